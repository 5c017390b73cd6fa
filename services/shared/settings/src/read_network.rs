//! Reads the section `network`, and the profiles that tools name.

use std::path::Path;

use belay_network::{DraftProfile, DraftRule, HostPattern, Profiles, UpstreamProxy};
use belay_yaml::{Node, Reader, Value, nearest, shown};

use crate::{
    ValueWithOrigin,
    network::{Network, NetworkLimits, ProfileLines, place},
    paths::absolute,
    read_credentials::ReadCredentials,
    read_env::own_variable_problem,
    read_values::{bytes, filled_text, is_empty_list, number, request_limits, set},
};

const NETWORK: &str = "profiles authorities proxy limits";
const PROXY: &str = "url direct";
const LIMITS: &str = "bytes connections open_connections idle";
const PROFILE: &str = "include rules host_services fetch_only any_host";
const RULE: &str = "host ports protocol methods paths private_addresses ask credential base_url base_path";
const PROTOCOLS: &[(&str, &str)] = &[("https", "https"), ("http", "http"), ("tcp", "tcp")];

/// The most profiles.
const MAX_PROFILES: usize = 100;
/// The most profiles that one includes by name.
const MAX_INCLUDES: usize = 100;
/// The longest time in which nothing passes through a connection, in seconds: a day.
const MAX_IDLE: u64 = 86_400;
/// The most files of certificate authorities.
const MAX_AUTHORITIES: usize = 20;

/// Reads all profiles, and adds the built-in ones. `None` where one is invalid, which adds violations.
///
/// `home` is that of `~`, and `file` is the file of the settings, which the places of rules name.
pub(crate) fn network(
    reader: &mut Reader,
    node: &Node,
    field: &str,
    (home, file): (Option<&Path>, Option<&Path>),
    credentials: &ReadCredentials,
) -> Option<Network> {
    let before = reader.violations().len();
    let mut drafts = Vec::new();
    let (mut authorities, mut proxy, mut limits) = (Vec::new(), None, NetworkLimits::default());
    let mut lines = std::collections::BTreeMap::new();
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "profiles" => {}
            "authorities" => {
                authorities = self::authorities(reader, node, field, home);
                return Ok(());
            }
            "proxy" => {
                proxy = self::proxy(reader, node, field);
                return Ok(());
            }
            "limits" => {
                self::limits(reader, node, field, &mut limits);
                return Ok(());
            }
            _ => return Err(NETWORK),
        }
        reader.map(node, field, |reader, name, field, node| {
            let line = reader.line_of(field);
            let (draft, fetch_only) = profile(reader, node, field, name, line, file);
            drafts.push(draft);
            lines.insert(name.to_owned(), ProfileLines { profile: line, fetch_only });
            Ok(())
        });
        Ok(())
    });
    let field = format!("{field}.profiles");
    if drafts.len() > MAX_PROFILES {
        let message = format!("has {} profiles, but the limit is {MAX_PROFILES}", drafts.len());
        reader.refuse(&field, reader.line_of(&field), message);
    }
    // What could not be read would be missed, or counted wrongly, by the checks of the whole.
    if reader.violations().len() > before {
        return None;
    }
    // A rule whose credential is invalid is judged without it: what else is wrong would only follow from that.
    for rule in drafts.iter_mut().flat_map(|draft| &mut draft.rules) {
        if rule.credential.as_deref().is_some_and(|name| credentials.is_refused(name)) {
            (rule.credential, rule.base_url, rule.base_path) = (None, None, None);
        }
    }
    match Profiles::with_credentials(&drafts, &credentials.of_rules()) {
        Ok(profiles) => Some(Network { profiles, authorities, proxy, limits, lines }),
        Err(problems) => {
            for problem in problems {
                let field = format!("{field}.{}", shown(&problem.field));
                reader.refuse(&field, reader.line_of(&field), problem.message);
            }
            None
        }
    }
}

/// Reads the proxy behind which hosts are reached.
fn proxy(reader: &mut Reader, node: &Node, field: &str) -> Option<ValueWithOrigin<UpstreamProxy>> {
    let (mut url, mut direct) = (None, Vec::new());
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "url" => url = filled_text(reader, node, field).map(|url| (url, field.to_owned(), node.line)),
            "direct" => {
                direct = reader.list(node, field, |reader, node, field| {
                    let text = text_or_number(reader, node, field)?;
                    let pattern = HostPattern::parse(&text);
                    pattern.map_err(|problem| reader.refuse(field, node.line, problem.message())).ok()
                });
            }
            _ => return Err(PROXY),
        }
        Ok(())
    });
    if matches!(node.value, Value::Map(_)) && !reader.has_read(&format!("{field}.url")) {
        reader.refuse(field, node.line, "has no `url`: add it, such as {url: http://proxy.example.com:3128}");
    }
    let (url, field, line) = url?;
    match UpstreamProxy::parse(&url, direct) {
        Ok(proxy) => Some(ValueWithOrigin::on_line(proxy, line)),
        Err(problem) => {
            reader.refuse(&field, line, problem);
            None
        }
    }
}

fn limits(reader: &mut Reader, node: &Node, field: &str, limits: &mut NetworkLimits) {
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "bytes" => set(&mut limits.bytes, bytes(reader, node, field, 1 << 20), node),
            "connections" => set(&mut limits.connections, number(reader, node, field, 1, 1_000_000_000), node),
            "open_connections" => set(&mut limits.open_connections, number(reader, node, field, 1, 100_000), node),
            "idle" => {
                let idle = match &node.value {
                    Value::Text(text) => belay_yaml::seconds(text).filter(|seconds| (1..=MAX_IDLE).contains(seconds)),
                    _ => None,
                };
                if idle.is_none() {
                    let message = "must be a whole number with a unit, from 1s to 24h: 90s or 5m";
                    reader.refuse(field, node.line, message);
                }
                set(&mut limits.idle, idle, node);
            }
            _ => return Err(LIMITS),
        }
        Ok(())
    });
}

/// Reads the files of the certificate authorities.
fn authorities(
    reader: &mut Reader,
    node: &Node,
    field: &str,
    home: Option<&Path>,
) -> Vec<ValueWithOrigin<std::path::PathBuf>> {
    let mut seen = std::collections::BTreeSet::new();
    let authorities = reader.list(node, field, |reader, node, field| {
        let path = match absolute(&reader.text(node, field)?, home) {
            Ok(path) => path,
            Err(why) => {
                reader.refuse(field, node.line, why);
                return None;
            }
        };
        if !seen.insert(path.clone()) {
            let message = format!("`{}` is an earlier entry, too: remove one of them", path.display());
            reader.refuse(field, node.line, message);
        }
        Some(ValueWithOrigin::on_line(path, node.line))
    });
    if authorities.len() > MAX_AUTHORITIES {
        let message = format!("has {} entries, but the limit is {MAX_AUTHORITIES}", authorities.len());
        reader.refuse(field, node.line, message);
    }
    authorities
}

/// Reads a profile: the draft, and the line of its `fetch_only`.
fn profile(
    reader: &mut Reader,
    node: &Node,
    field: &str,
    name: &str,
    line: u32,
    file: Option<&Path>,
) -> (DraftProfile, Option<u32>) {
    let mut draft = DraftProfile { name: name.to_owned(), place: place(file, line), ..DraftProfile::default() };
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "include" => draft.include = reader.list(node, field, Reader::text),
            "rules" => draft.rules = reader.list(node, field, |reader, node, field| rule(reader, node, field, file)),
            "host_services" => draft.host_services = reader.list(node, field, Reader::text),
            "fetch_only" => reader.switch(node, field, &mut draft.fetch_only),
            "any_host" => reader.switch(node, field, &mut draft.any_host),
            _ => return Err(PROFILE),
        }
        Ok(())
    });
    if draft.include.len() > MAX_INCLUDES {
        let message = format!("has {} profiles, but the limit is {MAX_INCLUDES}", draft.include.len());
        let field = format!("{field}.include");
        reader.refuse(&field, reader.line_of(&field), message);
    }
    let fetch_only = format!("{field}.fetch_only");
    let fetch_only_line = reader.has_read(&fetch_only).then(|| reader.line_of(&fetch_only));
    if let Some(line) = fetch_only_line
        && !draft.fetch_only
        && draft.rules.is_empty()
        && draft.host_services.is_empty()
    {
        let message = "is about the rules of this profile, which has none of its own: remove it; the profiles that it includes have theirs";
        reader.refuse(&fetch_only, line, message);
    }
    (draft, fetch_only_line)
}

fn rule(reader: &mut Reader, node: &Node, field: &str, file: Option<&Path>) -> Option<DraftRule> {
    if let Value::Text(_) = &node.value {
        reader.refuse(field, node.line, "is text, and must be a mapping, such as {host: api.example.com}");
        return None;
    }
    let mut rule = DraftRule { place: place(file, node.line), ..DraftRule::default() };
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "host" => rule.host = text_or_number(reader, node, field).unwrap_or_default(),
            "ports" => {
                if is_empty_list(node) {
                    reader.refuse(field, node.line, "is empty: name ports, or remove it for the port of the protocol");
                }
                rule.ports = reader.list(node, field, text_or_number);
            }
            "protocol" => rule.protocol = reader.one_of(node, field, PROTOCOLS).unwrap_or_default().to_owned(),
            "methods" => rule.methods = request_limits(reader, node, field, key),
            "paths" => rule.paths = request_limits(reader, node, field, key),
            "private_addresses" => reader.switch(node, field, &mut rule.private_addresses),
            "ask" => reader.switch(node, field, &mut rule.ask),
            "credential" => rule.credential = filled_text(reader, node, field),
            "base_url" => {
                rule.base_url = filled_text(reader, node, field);
                if let Some(problem) = rule.base_url.as_deref().and_then(own_variable_problem) {
                    reader.refuse(field, node.line, problem);
                }
            }
            "base_path" => rule.base_path = filled_text(reader, node, field),
            _ => return Err(RULE),
        }
        Ok(())
    });
    if matches!(node.value, Value::Map(_)) && !reader.has_read(&format!("{field}.host")) {
        reader.refuse(field, node.line, "has no `host`: add it, such as {host: api.example.com}");
    }
    Some(rule)
}

/// A text, or a number as it is written: a port, or a host that YAML reads as a number (`127.1`).
fn text_or_number(reader: &mut Reader, node: &Node, field: &str) -> Option<String> {
    match &node.value {
        Value::Number(number) => Some(number.to_string()),
        _ => reader.text(node, field),
    }
}

/// Refuses programs whose network profile does not exist: each with the field that declares it.
pub(crate) fn profiles_of_programs<'a>(
    reader: &mut Reader,
    programs: impl IntoIterator<Item = (String, Option<&'a str>)>,
    profiles: &Profiles,
) {
    for (declared, network) in programs {
        let Some(name) = network.filter(|name| profiles.find(name).is_none()) else { continue };
        let known: Vec<&str> = profiles.iter().map(|profile| profile.name.as_str()).collect();
        let hint =
            nearest(name, known.iter().copied()).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        let field = format!("{declared}.network");
        let message = format!("there is no network profile `{}`: use one of {}{hint}", shown(name), known.join(", "));
        reader.refuse(&field, reader.line_of(&field), message);
    }
}
