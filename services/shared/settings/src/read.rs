//! Converts the YAML tree to settings.

use std::path::Path;

use belay_yaml::{Node, Reader, Value, nearest, seconds, shown};

use crate::{
    Cache, CacheUse, Commands, KNOWN_CACHES, KnownCache, LogFormat, LogLevel, Place, Retention, Services, Settings,
    ValueWithOrigin, VisiblePath,
    paths::{self, absolute, is_system},
    read_credentials::ReadCredentials,
    read_env::{MAX_ENTRIES, env, is_name},
    read_values::{bytes, bytes_or_none, number, set},
};

/// The longest retention, in seconds: a hundred years.
const MAX_RETENTION: u64 = 36_500 * 86_400;

/// The longest time that a cancelled command has to end, in seconds.
const MAX_STOP_GRACE: u64 = 3600;

const SECTIONS: &str = "log commands services retention budgets secrets tools mcp_servers agents webhooks network credentials models research local_only air_gapped";
const LOG: &str = "level format";
const COMMANDS: &str =
    "find_toolchains read_only path env plans_may_set view scratch reserve limits stop_grace asking_calls caches";
const VIEW: &str = "size files";
const SCRATCH: &str = "place tmp home shm files";
const LIMITS: &str = "processes open_files file_size address_space cpu_time";
const SERVICES: &str = "executor runner gate";
const EXECUTOR: &str = "executions steps watchers";
const RUNNER: &str = "calls";
const GATE: &str = "approvals previews watchers";
const RETENTION: &str = "finished_for keep_last";
const USES: &[(&str, CacheUse)] = &[("off", CacheUse::Off), ("read", CacheUse::Read), ("keep", CacheUse::Keep)];

/// Reads all sections. An invalid value adds a violation and keeps the default.
///
/// `file` is the file of the settings, which the places of rules name.
pub(crate) fn settings(
    reader: &mut Reader,
    root: &Node,
    home: Option<&Path>,
    file: Option<&Path>,
    settings: &mut Settings,
) {
    let mut credentials = ReadCredentials::default();
    let mut network = None;
    reader.map(root, "", |reader, key, field, node| {
        match key {
            "log" => reader.map(node, field, |reader, key, field, node| {
                let log = &mut settings.log;
                match key {
                    "level" => set(&mut log.level, reader.one_of(node, field, &LogLevel::WORDS), node),
                    "format" => set(&mut log.format, reader.one_of(node, field, &LogFormat::WORDS), node),
                    _ => return Err(LOG),
                }
                Ok(())
            }),
            "commands" => commands(reader, node, field, home, &mut settings.commands),
            "services" => services(reader, node, field, &mut settings.services),
            "retention" => retention(reader, node, field, &mut settings.retention),
            "budgets" => settings.budgets = crate::read_budgets::budgets(reader, node, field),
            "secrets" => reader.map(node, field, |reader, key, field, node| {
                let "rules_file" = key else { return Err("rules_file") };
                let path = reader.text(node, field).map(|text| absolute(&text, home));
                match path {
                    Some(Ok(path)) => settings.secrets.rules_file = Some(ValueWithOrigin::on_line(path, node.line)),
                    Some(Err(why)) => reader.refuse(field, node.line, why),
                    None => {}
                }
                Ok(())
            }),
            "tools" => settings.tools = crate::read_tools::tools(reader, node, field),
            "mcp_servers" => settings.mcp_servers = crate::read_mcp::servers(reader, node, field),
            "agents" => settings.agents = crate::read_agents::agents(reader, node, field, home),
            "webhooks" => settings.webhooks = crate::read_webhooks::webhooks(reader, node, field),
            "credentials" => credentials = crate::read_credentials::credentials(reader, node, field, home),
            "network" => network = Some((node, field.to_owned())),
            "models" => settings.models.configured = crate::read_models::models(reader, node, field),
            "research" => settings.research = crate::read_research::research(reader, node, field, home),
            "local_only" => set_switch(reader, node, field, &mut settings.models.local_only),
            "air_gapped" => set_switch(reader, node, field, &mut settings.air_gapped),
            _ => return Err(SECTIONS),
        }
        Ok(())
    });
    if settings.air_gapped.value {
        crate::read_webhooks::refuse_beyond_this_machine(reader, &settings.webhooks);
    }
    // Checked last: `tools` may come before `network`, and that before `credentials`.
    let mut profiles_are_known = true;
    if let Some((node, field)) = network {
        let network = crate::read_network::network(reader, node, &field, (home, file), &credentials);
        profiles_are_known = network.is_some();
        settings.network = network.unwrap_or_default();
    }
    let (tools, servers) = (&settings.tools, &settings.mcp_servers);
    let of_tools = tools.iter().map(|tool| &tool.value).map(|tool| (format!("tools.{}", tool.name), &tool.reveals[..]));
    let of_servers = servers.iter().map(|server| &server.value);
    let of_servers = of_servers.map(|server| (format!("mcp_servers.{}", server.name), &server.reveals[..]));
    let of_agents = settings.agents.iter().map(|agent| &agent.value);
    let of_agents = of_agents.map(|agent| (format!("agents.{}", agent.name), &agent.reveals[..]));
    crate::read_credentials::of_programs(reader, of_tools.chain(of_servers).chain(of_agents), &credentials);
    crate::read_models::credentials_of_models(reader, &settings.models.configured, &credentials);
    settings.credentials = credentials.valid;
    if profiles_are_known {
        let of_tools = settings.tools.iter().map(|tool| &tool.value);
        let of_tools = of_tools.map(|tool| (format!("tools.{}", tool.name), tool.network.as_deref()));
        let of_servers = settings.mcp_servers.iter().map(|server| &server.value);
        let of_servers = of_servers.map(|server| (format!("mcp_servers.{}", server.name), server.network.as_deref()));
        let of_agents = settings.agents.iter().map(|agent| &agent.value);
        let of_agents = of_agents.map(|agent| (format!("agents.{}", agent.name), agent.network.as_deref()));
        let profiles = &settings.network.profiles;
        crate::read_network::profiles_of_programs(reader, of_tools.chain(of_servers).chain(of_agents), profiles);
        crate::read_agents::refuse_unseen_tokens(reader, &settings.agents, profiles);
        crate::read_research::profile_of_web(reader, &settings.research, &settings.network.profiles);
    }
}

fn set_switch(reader: &mut Reader, node: &Node, field: &str, to: &mut ValueWithOrigin<bool>) {
    let mut value = to.value;
    reader.switch(node, field, &mut value);
    *to = ValueWithOrigin::on_line(value, node.line);
}

fn retention(reader: &mut Reader, node: &Node, field: &str, to: &mut Retention) {
    let is_unlimited = |node: &Node| matches!(&node.value, Value::Text(text) if text == "unlimited");
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "finished_for" => {
                let value = match &node.value {
                    _ if is_unlimited(node) => Some(None),
                    Value::Text(text) => {
                        seconds(text).filter(|seconds| (1..=MAX_RETENTION).contains(seconds)).map(Some)
                    }
                    _ => None,
                };
                if value.is_none() {
                    let message = "must be `unlimited`, or a whole number with a unit: 30d, 12h, 90m or 90s";
                    reader.refuse(field, node.line, message);
                }
                set(&mut to.finished_for, value, node);
            }
            "keep_last" if is_unlimited(node) => set(&mut to.keep_last, Some(None), node),
            "keep_last" => set(&mut to.keep_last, number(reader, node, field, 0, 1_000_000_000).map(Some), node),
            _ => return Err(RETENTION),
        }
        Ok(())
    });
}

fn services(reader: &mut Reader, node: &Node, field: &str, to: &mut Services) {
    reader.map(node, field, |reader, key, field, node| {
        let (known, limits): (_, Vec<(&str, &mut ValueWithOrigin<u32>)>) = match key {
            "executor" => {
                let to = &mut to.executor;
                (
                    EXECUTOR,
                    vec![("executions", &mut to.executions), ("steps", &mut to.steps), ("watchers", &mut to.watchers)],
                )
            }
            "runner" => (RUNNER, vec![("calls", &mut to.runner.calls)]),
            "gate" => {
                let to = &mut to.gate;
                let limits = vec![
                    ("approvals", &mut to.approvals),
                    ("previews", &mut to.previews),
                    ("watchers", &mut to.watchers),
                ];
                (GATE, limits)
            }
            _ => return Err(SERVICES),
        };
        let mut limits = limits;
        reader.map(node, field, |reader, key, field, node| {
            let Some((_, limit)) = limits.iter_mut().find(|(name, _)| *name == key) else { return Err(known) };
            let value = number(reader, node, field, 1, 1_000_000).and_then(|number| u32::try_from(number).ok());
            set(limit, value, node);
            Ok(())
        });
        Ok(())
    });
}

fn commands(reader: &mut Reader, node: &Node, field: &str, home: Option<&Path>, to: &mut Commands) {
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "find_toolchains" => {
                let mut found = to.find_toolchains.value;
                reader.switch(node, field, &mut found);
                set(&mut to.find_toolchains, Some(found), node);
            }
            "read_only" => {
                to.read_only = few(reader, node, field, |reader, node, field| shown_at(reader, node, field, home))
            }
            "path" => to.path = few(reader, node, field, |reader, node, field| path(reader, node, field, home)),
            "env" => to.env = env(reader, node, field),
            "plans_may_set" => to.plans_may_set = few(reader, node, field, variable_name),
            "view" => view(reader, node, field, to),
            "scratch" => scratch(reader, node, field, home, to),
            "reserve" => reserve(reader, node, field, to),
            "limits" => limits(reader, node, field, to),
            "stop_grace" => {
                let value = match &node.value {
                    Value::Text(text) => seconds(text).filter(|seconds| *seconds <= MAX_STOP_GRACE),
                    _ => None,
                };
                if value.is_none() {
                    reader.refuse(field, node.line, "must be a whole number with a unit, from 0s to 1h: 10s or 2m");
                }
                set(&mut to.stop_grace, value, node);
            }
            "asking_calls" => {
                let value = number(reader, node, field, 0, 10_000);
                set(&mut to.asking_calls, value, node);
            }
            "caches" => caches(reader, node, field, home, to),
            _ => return Err(COMMANDS),
        }
        Ok(())
    });
    // Checked last, because `path` may come before `read_only`.
    for (n, folder) in to.path.iter().enumerate() {
        let is_shown =
            is_system(&folder.value) || to.read_only.iter().any(|shown| folder.value.starts_with(&shown.value.at));
        if !is_shown {
            let (field, line) = (format!("{field}.path[{n}]"), reader.line_of(&format!("{field}.path[{n}]")));
            let folder = folder.value.display();
            reader.refuse(
                &field,
                line,
                format!("commands do not see `{folder}`: add it, or its parent directory, to `commands.read_only`"),
            );
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    for (n, shown) in to.read_only.iter().enumerate() {
        if !seen.insert(&shown.value.at) {
            let field = format!("{field}.read_only[{n}]");
            let line = reader.line_of(&field);
            reader.refuse(
                &field,
                line,
                format!("`{}` is used by an earlier entry: remove one of them", shown.value.at.display()),
            );
        }
    }
}

/// Reads a list; each entry keeps its line.
fn few<T>(
    reader: &mut Reader,
    node: &Node,
    field: &str,
    mut take: impl FnMut(&mut Reader, &Node, &str) -> Option<T>,
) -> Vec<ValueWithOrigin<T>> {
    if let Value::List(entries) = &node.value
        && entries.len() > MAX_ENTRIES
    {
        reader.refuse(field, node.line, format!("has {} entries, but the limit is {MAX_ENTRIES}", entries.len()));
        return Vec::new();
    }
    reader
        .list(node, field, |reader, node, field| Some(ValueWithOrigin::on_line(take(reader, node, field)?, node.line)))
}

fn path(reader: &mut Reader, node: &Node, field: &str, home: Option<&Path>) -> Option<std::path::PathBuf> {
    let text = reader.text(node, field)?;
    let checked =
        absolute(&text, home).and_then(|path| match text.contains(':') {
            true => Err("contains `:`, which separates the directories of a PATH: write one directory for each entry"
                .to_owned()),
            false => Ok(path),
        });
    checked.map_err(|why| reader.refuse(field, node.line, why)).ok()
}

fn shown_at(reader: &mut Reader, node: &Node, field: &str, home: Option<&Path>) -> Option<VisiblePath> {
    let (mut from, mut at) = (None, None);
    if let Value::Map(_) = &node.value {
        reader.map(node, field, |reader, key, field, node| {
            match key {
                "from" => from = path(reader, node, field, home),
                "at" => at = path(reader, node, field, home),
                _ => return Err("from at"),
            }
            Ok(())
        });
        if !reader.has_read(&format!("{field}.from")) {
            reader.refuse(field, node.line, "has no `from`: add the path on this machine");
        }
    } else {
        from = path(reader, node, field, home);
    }
    let from = from?;
    let at = at.unwrap_or_else(|| from.clone());
    if let Some(why) = paths::too_much(&from, home) {
        reader.refuse(field, node.line, format!("`{}` {why}", from.display()));
        return None;
    }
    const BUILT: [&str; 5] = ["/proc", "/sys", "/dev", "/workspace", "/tmp"];
    let built = BUILT.iter().find(|built| at.starts_with(built));
    let whole = [paths::COMMAND_HOME, "/etc", "/var", "/run", "/home"];
    let whole = whole.iter().chain(&paths::SYSTEM_FOLDERS).find(|whole| at == Path::new(whole));
    if let Some(built) = built.or(whole) {
        reader.refuse(
            field,
            node.line,
            format!("`{}`: the sandbox provides {built}; choose another path: `{{from: …, at: /opt/…}}`", at.display()),
        );
        return None;
    }
    Some(VisiblePath { from, at })
}

fn variable_name(reader: &mut Reader, node: &Node, field: &str) -> Option<String> {
    let name = reader.text(node, field)?;
    if is_name(&name) {
        return Some(name);
    }
    reader.refuse(
        field,
        node.line,
        format!("`{}` is not a valid variable name: use letters, digits and `_`, such as PYTHONPATH", shown(&name)),
    );
    None
}

fn view(reader: &mut Reader, node: &Node, field: &str, to: &mut Commands) {
    let to = &mut to.view;
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "size" => set(&mut to.size, bytes(reader, node, field, 1 << 20), node),
            "files" => set(&mut to.files, number(reader, node, field, 1_000, 1_000_000_000), node),
            _ => return Err(VIEW),
        }
        Ok(())
    });
}

fn reserve(reader: &mut Reader, node: &Node, field: &str, to: &mut Commands) {
    let to = &mut to.reserve;
    let by_default = |node: &Node| matches!(&node.value, Value::Text(text) if text == "default");
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "size" if by_default(node) => set(&mut to.size, Some(None), node),
            "size" => set(&mut to.size, bytes(reader, node, field, 1 << 20).map(Some), node),
            "files" if by_default(node) => set(&mut to.files, Some(None), node),
            "files" => set(&mut to.files, number(reader, node, field, 100, 1_000_000_000).map(Some), node),
            _ => return Err(VIEW),
        }
        Ok(())
    });
}

fn scratch(reader: &mut Reader, node: &Node, field: &str, home: Option<&Path>, to: &mut Commands) {
    let to = &mut to.scratch;
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "place" => {
                let place = match &node.value {
                    Value::Text(text) if text == "workspace" => Some(Place::Workspace),
                    Value::Text(text) if text == "memory" => Some(Place::Memory),
                    Value::Text(text) if text.starts_with(['/', '~']) => {
                        path(reader, node, field, home).map(Place::Folder)
                    }
                    _ => {
                        reader.refuse(
                            field,
                            node.line,
                            "must be `workspace`, `memory`, or the absolute path of a directory used only for this",
                        );
                        None
                    }
                };
                set(&mut to.place, place, node);
            }
            "tmp" => set(&mut to.tmp, bytes(reader, node, field, 1 << 20), node),
            "home" => set(&mut to.home, bytes(reader, node, field, 1 << 20), node),
            "shm" => set(&mut to.shm, bytes(reader, node, field, 1 << 20), node),
            "files" => set(&mut to.files, number(reader, node, field, 1_000, 1_000_000_000), node),
            _ => return Err(SCRATCH),
        }
        Ok(())
    });
}

fn limits(reader: &mut Reader, node: &Node, field: &str, to: &mut Commands) {
    let to = &mut to.limits;
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "processes" => {
                let value = number(reader, node, field, 16, 4_000_000).and_then(|number| u32::try_from(number).ok());
                set(&mut to.processes, value, node);
            }
            "open_files" => set(&mut to.open_files, number(reader, node, field, 64, 1 << 30), node),
            "file_size" => set(&mut to.file_size, bytes_or_none(reader, node, field, 1 << 20), node),
            "address_space" => set(&mut to.address_space, bytes_or_none(reader, node, field, 64 << 20), node),
            "cpu_time" => {
                let value = match &node.value {
                    Value::Text(text) if text == "unlimited" => Some(None),
                    Value::Text(text) => seconds(text).filter(|seconds| *seconds > 0).map(Some),
                    _ => None,
                };
                if value.is_none() {
                    reader.refuse(
                        field,
                        node.line,
                        "must be `unlimited`, or a whole number with a unit: 90s, 15m or 24h",
                    );
                }
                set(&mut to.cpu_time, value, node);
            }
            _ => return Err(LIMITS),
        }
        Ok(())
    });
}

fn caches(reader: &mut Reader, node: &Node, field: &str, home: Option<&Path>, to: &mut Commands) {
    reader.map(node, field, |reader, name, field, node| {
        let Some(cache) = cache(reader, node, field, name, home) else { return Ok(()) };
        let cache = ValueWithOrigin::on_line(cache, node.line);
        match to.caches.iter_mut().find(|known| known.value.name == name) {
            Some(known) => *known = cache,
            None => to.caches.push(cache),
        }
        Ok(())
    });
}

fn cache(reader: &mut Reader, node: &Node, field: &str, name: &str, home: Option<&Path>) -> Option<Cache> {
    let known = KnownCache::named(name);
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if known.is_none() && (name.is_empty() || name.len() > 64 || !name.chars().all(is_plain)) {
        reader.refuse(field, node.line, "is not a valid cache name: use lower-case letters, digits, `-` and `_`");
        return None;
    }
    let (mut used, mut from, mut at) = (None, None, None);
    if let Value::Map(_) = &node.value {
        reader.map(node, field, |reader, key, field, node| {
            match key {
                "use" => used = reader.one_of(node, field, USES),
                "from" => from = path(reader, node, field, home),
                "at" => at = inside_home(reader, node, field),
                _ => return Err("use from at"),
            }
            Ok(())
        });
        if !reader.has_read(&format!("{field}.use")) {
            reader.refuse(field, node.line, "has no `use`: write off, read or keep");
        }
    } else {
        used = reader.one_of(node, field, USES);
    }
    let used = used?;
    let is_wrong = |key: &str, is_known: bool| !is_known && reader.has_read(&format!("{field}.{key}"));
    if is_wrong("from", from.is_some()) || is_wrong("at", at.is_some()) {
        // Already reported.
        return None;
    }
    if let Some(why) = from.as_ref().and_then(|from| paths::too_much(from, home)) {
        reader.refuse(&format!("{field}.from"), node.line, why);
        return None;
    }
    let Some(at) = at.or_else(|| known.map(|known| known.place.into())) else {
        let names = KNOWN_CACHES.map(|known| known.name);
        let hint = nearest(name, names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        reader.refuse(
            field,
            node.line,
            format!(
                "is not a known cache ({}): add where commands look for it: `{{use: …, at: .sbt}}`{hint}",
                names.join(", ")
            ),
        );
        return None;
    };
    if known.is_none() && used == CacheUse::Read && from.is_none() {
        reader.refuse(field, node.line, "has no `from`: add the directory on this machine that commands read");
        return None;
    }
    if used == CacheUse::Keep && from.is_some() {
        reader.refuse(
            &format!("{field}.from"),
            node.line,
            "Belay stores a cache with `use: keep` in its own directory: remove `from`, or write `use: read`",
        );
        return None;
    }
    Some(Cache { name: name.to_owned(), used, from, at })
}

/// Reads a path relative to the home directory of commands.
fn inside_home(reader: &mut Reader, node: &Node, field: &str) -> Option<std::path::PathBuf> {
    let text = reader.text(node, field)?;
    let path = Path::new(text.strip_prefix("~/").unwrap_or(&text)).to_owned();
    let plain = |part| matches!(part, std::path::Component::Normal(_));
    if path.as_os_str().is_empty() || text.contains('\0') || !path.components().all(plain) {
        reader.refuse(field, node.line, "must be a directory in the home directory of commands, such as .sbt");
        return None;
    }
    Some(path)
}
