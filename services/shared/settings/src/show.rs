//! Lists every setting with its name, value and origin.

use std::{ffi::OsString, path::Path};

use crate::{
    CacheUse, CommandTool, ExternalAgent, McpServer, NamespaceBudget, Origin, Place, ResolvedCommands, Row,
    SYSTEM_PATH, Settings, ValueWithOrigin, Webhook, show_credentials, show_models, show_network, show_research, size,
    size::shown_time,
};

fn row<T>(key: impl Into<String>, from: &ValueWithOrigin<T>, value: impl Into<String>) -> Row {
    Row { key: key.into(), value: value.into(), origin: from.origin.clone() }
}

fn moved(from: &Path, at: &Path) -> String {
    if from == at { from.display().to_string() } else { format!("{} (at {})", from.display(), at.display()) }
}

fn found(key: impl Into<String>, value: impl Into<String>) -> Row {
    Row { key: key.into(), value: value.into(), origin: Origin::Found }
}

/// All settings, with what was found on this machine. `env` returns the environment variables that override the file.
pub fn rows(settings: &Settings, here: &ResolvedCommands, env: &dyn Fn(&str) -> Option<OsString>) -> Vec<Row> {
    let (log, commands) = (&settings.log, &here.commands);
    let mut rows = vec![
        row("log.level", &log.level, log.level.value.word()),
        row("log.format", &log.format, log.format.value.word()),
    ];
    for (row, variable) in rows.iter_mut().zip(["BELAY_LOG", "BELAY_LOG_FORMAT"]) {
        if let Some(value) = env(variable).filter(|value| !value.is_empty()) {
            row.value = value.to_string_lossy().into_owned();
            row.origin = Origin::Variable(variable);
        }
    }
    let of_services = settings.services.rows();
    let of_services: Vec<Row> =
        of_services.map(|(key, limit)| row(format!("services.{key}"), limit, limit.value.to_string())).into();
    rows.push(row("commands.find_toolchains", &commands.find_toolchains, commands.find_toolchains.value.to_string()));
    let none = |key: &str| Row { key: key.to_owned(), value: "none".to_owned(), origin: Origin::Default };
    let shown = commands.read_only.iter().enumerate();
    let shown = shown
        .map(|(n, shown)| row(format!("commands.read_only[{n}]"), shown, moved(&shown.value.from, &shown.value.at)));
    let of_toolchains =
        here.toolchains.shown.iter().map(|part| found("commands.read_only", moved(&part.shown.from, &part.shown.at)));
    rows.extend(or(shown.chain(of_toolchains).collect(), none("commands.read_only")));
    let written = |folder: &Path| commands.path.iter().enumerate().find(|(_, written)| written.value == folder);
    rows.extend(here.path.iter().map(|folder| {
        let value = folder.display().to_string();
        match written(folder) {
            Some((n, written)) => row(format!("commands.path[{n}]"), written, value),
            None if SYSTEM_PATH.iter().any(|system| folder == Path::new(system)) => {
                Row { origin: Origin::Default, ..found("commands.path", value) }
            }
            None => found("commands.path", value),
        }
    }));
    let of_toolchains = here.toolchains.env.iter().map(|(name, value)| found(format!("commands.env.{name}"), value));
    let own = commands.env.iter().map(|(name, value)| row(format!("commands.env.{name}"), value, value.value.clone()));
    rows.extend(or(of_toolchains.chain(own).collect(), none("commands.env")));
    let may_set = commands.plans_may_set.iter().enumerate();
    let may_set = may_set.map(|(n, name)| row(format!("commands.plans_may_set[{n}]"), name, name.value.clone()));
    rows.extend(or(may_set.collect(), none("commands.plans_may_set")));

    let view = &commands.view;
    rows.push(row("commands.view.size", &view.size, size::shown(view.size.value)));
    rows.push(row("commands.view.files", &view.files, view.files.value.to_string()));

    let scratch = &commands.scratch;
    let place = match &scratch.place.value {
        Place::Workspace => "workspace".to_owned(),
        Place::Memory => "memory".to_owned(),
        Place::Folder(folder) => folder.display().to_string(),
    };
    rows.push(row("commands.scratch.place", &scratch.place, place));
    for (name, bytes) in [("tmp", &scratch.tmp), ("home", &scratch.home), ("shm", &scratch.shm)] {
        rows.push(row(format!("commands.scratch.{name}"), bytes, size::shown(bytes.value)));
    }
    rows.push(row("commands.scratch.files", &scratch.files, scratch.files.value.to_string()));

    let (reserve, of_disk) = (&commands.reserve, |part: &str| format!("default ({part})"));
    let bytes = reserve.size.value.map_or_else(|| of_disk("1/10 of the disk, at most 1GiB"), size::shown);
    rows.push(row("commands.reserve.size", &reserve.size, bytes));
    let files =
        reserve.files.value.map_or_else(|| of_disk("1/50 of the disk's, at most 10000"), |files| files.to_string());
    rows.push(row("commands.reserve.files", &reserve.files, files));

    let limits = &commands.limits;
    rows.push(row("commands.limits.processes", &limits.processes, limits.processes.value.to_string()));
    rows.push(row("commands.limits.open_files", &limits.open_files, limits.open_files.value.to_string()));
    let limit = |value: Option<u64>, shown: fn(u64) -> String| value.map_or("unlimited".to_owned(), shown);
    rows.push(row("commands.limits.file_size", &limits.file_size, limit(limits.file_size.value, size::shown)));
    rows.push(row(
        "commands.limits.address_space",
        &limits.address_space,
        limit(limits.address_space.value, size::shown),
    ));
    rows.push(row(
        "commands.limits.cpu_time",
        &limits.cpu_time,
        limit(limits.cpu_time.value, |seconds| format!("{seconds}s")),
    ));
    rows.push(row("commands.asking_calls", &commands.asking_calls, commands.asking_calls.value.to_string()));
    rows.push(row("commands.stop_grace", &commands.stop_grace, format!("{}s", commands.stop_grace.value)));

    for cache in &commands.caches {
        let used = here.caches.iter().find(|used| used.name == cache.value.name);
        let at = format!("~/{}", cache.value.at.display());
        let value = match (cache.value.used, used.and_then(|used| used.read_from.as_ref())) {
            (CacheUse::Off, _) => "off".to_owned(),
            (CacheUse::Keep, _) => format!("keep, at {at}"),
            (CacheUse::Read, Some(from)) => format!("read {}, at {at}", from.display()),
            (CacheUse::Read, None) => "read, and there is none".to_owned(),
        };
        rows.push(row(format!("commands.caches.{}", cache.value.name), cache, value));
    }
    rows.extend(of_services);
    let retention = &settings.retention;
    rows.push(row("retention.finished_for", &retention.finished_for, limit(retention.finished_for.value, shown_time)));
    rows.push(row(
        "retention.keep_last",
        &retention.keep_last,
        limit(retention.keep_last.value, |kept| kept.to_string()),
    ));
    let budgets = settings.budgets.0.iter().flat_map(of_budget).collect();
    rows.extend(or(budgets, none("budgets")));
    rows.push(match &settings.secrets.rules_file {
        Some(file) => {
            let rules = &settings.secrets.rules;
            let count = if rules.len() == 1 { "1 rule".to_owned() } else { format!("{} rules", rules.len()) };
            let names = if rules.is_empty() { String::new() } else { format!(": {}", rules.join(", ")) };
            row("secrets.rules_file", file, format!("{} ({count}{names})", file.value.display()))
        }
        None => none("secrets.rules_file"),
    });
    rows.extend(settings.tools.iter().flat_map(of_tool));
    rows.extend(settings.mcp_servers.iter().flat_map(of_mcp_server));
    rows.extend(settings.agents.iter().flat_map(of_agent));
    rows.extend(settings.webhooks.iter().flat_map(of_webhook));
    rows.extend(show_credentials::rows(&settings.credentials));
    rows.extend(show_network::rows(&settings.network));
    rows.extend(show_research::rows(&settings.research));
    rows.push(row("air_gapped", &settings.air_gapped, settings.air_gapped.value.to_string()));
    rows.push(row("local_only", &settings.models.local_only, settings.models.local_only.value.to_string()));
    rows.extend(show_models::rows(&settings.models.configured));
    rows
}

fn of_budget(budget: &NamespaceBudget) -> Vec<Row> {
    let NamespaceBudget { namespace, window, calls, output_bytes, tokens, cost_micros } = budget;
    let key = |key: &str| format!("budgets.{}.{key}", namespace.value);
    let limit = |name: &str, limit: &Option<ValueWithOrigin<u64>>| {
        limit.as_ref().map(|limit| row(key(name), limit, limit.value.to_string()))
    };
    let window = row(key("window"), window, window.value.word().to_owned());
    let dollars = |limit: &ValueWithOrigin<u64>| row(key("cost"), limit, belay_text::dollars(limit.value));
    let amounts = [limit("calls", calls), limit("output_bytes", output_bytes), limit("tokens", tokens)];
    [Some(window)].into_iter().chain(amounts).chain([cost_micros.as_ref().map(dollars)]).flatten().collect()
}

fn of_tool(tool: &ValueWithOrigin<CommandTool>) -> impl Iterator<Item = Row> {
    let CommandTool { name, network, reveals, .. } = &tool.value;
    let network = network.as_ref().map(|network| row(format!("tools.{name}.network"), tool, network.clone()));
    let reveals = (!reveals.is_empty()).then(|| row(format!("tools.{name}.reveals"), tool, reveals.join(", ")));
    std::iter::once(row(format!("tools.{name}"), tool, tool.value.shown())).chain(network).chain(reveals)
}

fn of_mcp_server(server: &ValueWithOrigin<McpServer>) -> impl Iterator<Item = Row> {
    let McpServer { name, command, tools, read_only, recovery, network, reveals, .. } = &server.value;
    let key = |key: &str| format!("mcp_servers.{name}{key}");
    let list = |suffix: &str, list: &[String]| (!list.is_empty()).then(|| row(key(suffix), server, list.join(", ")));
    let tools = list(".tools", tools.as_deref().unwrap_or_default());
    let network = network.as_ref().map(|network| row(key(".network"), server, network.clone()));
    let command = Some(row(key(""), server, command.join(" ")));
    let recovery = Some(row(key(".recovery"), server, recovery.word().to_owned()));
    [command, tools, list(".read_only", read_only), recovery, network, list(".reveals", reveals)].into_iter().flatten()
}

fn of_agent(agent: &ValueWithOrigin<ExternalAgent>) -> impl Iterator<Item = Row> {
    let ExternalAgent {
        name,
        format,
        command,
        flags,
        config_dir,
        recovery,
        network,
        reveals,
        timeout,
        max_tokens,
        linger,
        ..
    } = &agent.value;
    let key = |key: &str| format!("agents.{name}{key}");
    let list = |suffix: &str, list: &[String]| (!list.is_empty()).then(|| row(key(suffix), agent, list.join(" ")));
    let own = [
        Some(row(key(""), agent, format.word().to_owned())),
        list(".command", command),
        list(".flags", flags),
        config_dir.as_ref().map(|path| row(key(".config_dir"), agent, path.display().to_string())),
        Some(row(key(".recovery"), agent, recovery.word().to_owned())),
        network.as_ref().map(|network| row(key(".network"), agent, network.clone())),
        list(".reveals", reveals),
        Some(row(key(".timeout"), agent, timeout.map_or("none".to_owned(), |limit| shown_time(limit.as_secs())))),
        max_tokens.map(|tokens| row(key(".max_tokens"), agent, tokens.to_string())),
        Some(row(key(".linger"), agent, shown_time(linger.as_secs()))),
    ];
    own.into_iter().flatten()
}

fn of_webhook(webhook: &Webhook) -> [Row; 5] {
    let Webhook { name, url, events, secret_file, timeout, give_up_after } = webhook;
    let key = |key: &str| format!("webhooks.{name}.{key}");
    let words: Vec<&str> = events.value.iter().map(|event| event.word()).collect();
    [
        row(key("url"), url, url.value.clone()),
        row(key("events"), events, words.join(", ")),
        row(key("secret_file"), secret_file, secret_file.value.display().to_string()),
        row(key("timeout"), timeout, shown_time(timeout.value.as_secs())),
        row(key("give_up_after"), give_up_after, shown_time(give_up_after.value.as_secs())),
    ]
}

fn or(rows: Vec<Row>, none: Row) -> Vec<Row> {
    if rows.is_empty() { vec![none] } else { rows }
}
