//! `belay network check`.

use std::net::SocketAddr;

use belay_all_in_one::{
    LoadedSettings,
    network::{AccessDecision, AccessRequest, Profile, Protocol, Refusal, RefusalKind, Rule},
};
use belay_reasons as reasons;
use serde_json::{Value, json};

use super::{
    carried, credential_as_json, find, place, rule_as_json, settings,
    target::{Target, TargetHost, target},
};
use crate::{
    args::Format,
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    next,
    render::text::{Line, Style, clean, table},
};

/// Check whether a network profile allows a URL, and by which rule
///
/// Asks no host and no name server. A refusal has the line of the settings that would allow it.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Example:\n  belay network check registries https://pypi.org/simple/\n  belay network check ci db.example.com:5432\n\n\
                  Exit codes:\n  0    allowed\n  1    a fault of Belay or its surroundings\n  \
                  2    used wrongly: there is no such profile, or the URL is none\n  33   refused by the profile"
)]
pub(crate) struct Check {
    /// The profile's name
    #[arg(value_name = "NAME")]
    name: String,
    /// https://HOST[:PORT]/PATH, http://HOST[:PORT]/PATH, or HOST:PORT
    #[arg(value_name = "URL")]
    url: String,
    /// The method of the request
    #[arg(long, value_name = "METHOD", default_value = "GET")]
    method: String,
}

/// Checks it.
pub(crate) async fn check(context: &Context, verb: Check) -> Result<Exit, Failure> {
    let loaded = settings(context).await?;
    let profile = find(&loaded, &verb.name)?;
    let target = target(&verb.url).map_err(|why| wrong("URL", &verb.url, &why))?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    // Methods are compared as they are written, and the proxy takes them in upper case alone.
    if verb.method.is_empty() || !verb.method.bytes().all(|byte| is_token(byte) && !byte.is_ascii_lowercase()) {
        return Err(wrong("--method", &verb.method, "is not a method: write one in upper case, such as GET").into());
    }
    // As the runner does, by the profile: no call has one that has hosts.
    let answer = match loaded.settings.air_gapped.value && profile.leaves_this_machine() {
        true => Answer::AirGapped,
        false => Answer::new(profile, &target, &verb.method),
    };
    match context.screen.format {
        Format::Text => context.screen.print(&lines(&loaded, profile, &answer))?,
        Format::Json | Format::Jsonl => {
            let mut value = as_json(&loaded, &answer);
            value["profile"] = profile.name.as_str().into();
            value["host"] = match &target.host {
                TargetHost::Name(host) => host.as_str().into(),
                TargetHost::Address(text, _) => text.as_str().into(),
            };
            value["port"] = target.port.into();
            if target.has_method() {
                value["method"] = verb.method.as_str().into();
            }
            context.screen.print_json(&value)?;
        }
    }
    Ok(if answer.is_allowed() { Exit::OK } else { Exit::DENIED })
}

fn wrong(what: &str, text: &str, why: &str) -> Report {
    let message = format!("{what} `{}` {why}", clean(text));
    Report::new(reasons::INVALID_USAGE, message).next(next::command(&["network", "check", "--help"]))
}

/// The answer of a profile.
#[derive(Debug)]
enum Answer<'a> {
    /// This rule allows it.
    Rule(&'a Rule),
    /// It is this service of this machine, which this profile has.
    HostService(SocketAddr, String),
    /// No rule allows it.
    Refused(Refusal),
    /// The profile has hosts, and the settings say that nothing beyond this machine is reached.
    AirGapped,
    /// It is an address: what that means, and the line that allows it, if one can.
    Address(String, Option<String>),
}

impl<'a> Answer<'a> {
    fn new(profile: &'a Profile, target: &Target, method: &str) -> Self {
        match &target.host {
            // The hosts file of commands has this name.
            TargetHost::Name(host) if host.as_str() == "localhost" => {
                Self::of_address(profile, "localhost", Some(SocketAddr::from(([127, 0, 0, 1], target.port))))
            }
            TargetHost::Address(text, address) => Self::of_address(profile, text, *address),
            TargetHost::Name(host) => {
                let reads_tls = profile.reads_tls_of(host, target.port);
                let asked = AccessRequest { host, port: target.port, traffic: target.traffic(method, reads_tls) };
                match profile.decide(asked) {
                    AccessDecision::Allowed(rule) => Self::Rule(rule),
                    AccessDecision::Refused(refusal) => Self::Refused(refusal),
                }
            }
        }
    }

    fn of_address(profile: &Profile, text: &str, address: Option<SocketAddr>) -> Self {
        let known = profile.host_services.iter().find(|(known, _)| Some(*known) == address);
        if let Some((address, origin)) = known {
            return Self::HostService(*address, origin.to_string());
        }
        match address.filter(|address| address.ip().is_loopback()) {
            Some(address) if address.is_ipv4() => Self::Address(
                format!(
                    "{address} is the command's own loopback, and not a service of this machine under the network profile `{}`",
                    profile.name
                ),
                Some(format!("host_services: ['{address}']")),
            ),
            Some(address) => Self::Address(
                format!(
                    "{address} is the command's own loopback: services of this machine are reached at addresses such as 127.0.0.1"
                ),
                None,
            ),
            None => Self::Address(
                format!(
                    "`{text}` is an address, and no network profile allows one: commands reach hosts by their names"
                ),
                None,
            ),
        }
    }

    fn is_allowed(&self) -> bool {
        matches!(self, Self::Rule(_) | Self::HostService(..))
    }

    /// The line to add to the settings, with the key that it stands below.
    fn line(&self) -> Option<(&'static str, String)> {
        match self {
            // Another rule would not help: its message says what does.
            Self::Refused(refusal) if matches!(refusal.kind, RefusalKind::Credential | RefusalKind::BaseUrl) => None,
            Self::Refused(refusal) => Some(("rules", format!("- {}", refusal.line()))),
            Self::Address(_, line) => line.clone().map(|line| ("", line)),
            Self::Rule(_) | Self::HostService(..) | Self::AirGapped => None,
        }
    }
}

/// Why nothing on another machine is reached.
const AIR_GAPPED: &str = "the settings say `air_gapped: true`, and no call has a profile with hosts on other machines";

fn lines(loaded: &LoadedSettings, profile: &Profile, answer: &Answer<'_>) -> Vec<Line> {
    let good = |words: String| Line::default().and(Style::Good, "allowed").and(Style::Plain, words);
    let bad = |words: &str| Line::default().and(Style::Bad, "refused").and(Style::Plain, format!(": {words}"));
    let mut lines = match answer {
        Answer::Rule(rule) => vec![good(format!(" by {rule}")).and(Style::Dim, format!("  {}", rule.origin))],
        Answer::HostService(address, origin) => {
            vec![good(format!(": this machine's {address}")).and(Style::Dim, format!("  {origin}"))]
        }
        Answer::Refused(refusal) => vec![bad(&refusal.to_string())],
        Answer::AirGapped => vec![bad(AIR_GAPPED)],
        Answer::Address(message, _) => vec![bad(message)],
    };
    let mut facts = Vec::new();
    if let Some((key, line)) = answer.line() {
        facts.push(("add", line));
        facts.push(("to", destination(loaded, profile, key)));
    }
    if let Answer::Rule(rule) = answer {
        if let Some(credential) = &rule.credential {
            facts.push(("carries", format!("the credential {} {}", credential.name, carried(loaded, credential))));
        }
        facts.extend(notes(rule).into_iter().map(|note| ("note", note.to_owned())));
    }
    let cells = |(name, value): &(&str, String)| vec![(Style::Dim, (*name).to_owned()), (Style::Plain, value.clone())];
    lines.extend(table(&facts.iter().map(cells).collect::<Vec<_>>()));
    lines
}

/// The place to add a line.
fn destination(loaded: &LoadedSettings, profile: &Profile, key: &str) -> String {
    let file = loaded.file.as_deref().or(loaded.looked_in.first().map(std::path::PathBuf::as_path));
    let file = file.map(|file| format!(" in {}", file.display())).unwrap_or_default();
    let key = if key.is_empty() { String::new() } else { format!(".{key}") };
    match place(loaded, profile) {
        Some(_) => format!("network.profiles.{}{key}{file}", profile.name),
        None if profile.is_closed() => format!("network.profiles.NAME{key}{file}: `{}` is built in", profile.name),
        None => format!("network.profiles.NAME{key}{file}, with `include: [{0}]`: `{0}` is built in", profile.name),
    }
}

/// The conditions that are checked once a command connects.
fn notes(rule: &Rule) -> Vec<&'static str> {
    let mut notes = Vec::new();
    if rule.protocol == Protocol::Https {
        notes.push("what is spoken must be TLS, with the host as its server name");
    }
    if rule.protocol == Protocol::Https && rule.credential.is_some() {
        notes.push("the proxy reads the requests inside TLS to this host, to put the credential into them");
    }
    if rule.is_unenforced_inside_tls() {
        notes.push("methods and paths of this rule are not enforced inside TLS");
    }
    if !rule.private_addresses {
        notes.push("the name must not lead to an address of this machine or of a private network");
    }
    notes
}

fn as_json(loaded: &LoadedSettings, answer: &Answer<'_>) -> Value {
    let line = answer.line().map(|(_, line)| line);
    match answer {
        Answer::Rule(rule) => json!({
            "allowed": true,
            "rule": rule_as_json(rule),
            "credential": rule.credential.as_ref().map(|credential| credential_as_json(loaded, credential)),
            "notes": notes(rule),
        }),
        Answer::HostService(address, origin) => {
            json!({ "allowed": true, "hostService": address.to_string(), "origin": origin })
        }
        Answer::Refused(refusal) => json!({
            "allowed": false,
            "refusedFor": word(refusal.kind),
            "message": refusal.to_string(),
            "nearestRule": refusal.nearest,
            "lineToAdd": line,
        }),
        Answer::AirGapped => json!({ "allowed": false, "refusedFor": "AIR_GAPPED", "message": AIR_GAPPED }),
        Answer::Address(message, _) => {
            json!({ "allowed": false, "refusedFor": "ADDRESS", "message": message, "lineToAdd": line })
        }
    }
}

fn word(kind: RefusalKind) -> &'static str {
    match kind {
        RefusalKind::Host => "HOST",
        RefusalKind::Port => "PORT",
        RefusalKind::Protocol => "PROTOCOL",
        RefusalKind::Method => "METHOD",
        RefusalKind::Path => "PATH",
        RefusalKind::Credential => "CREDENTIAL",
        RefusalKind::BaseUrl => "BASE_URL",
    }
}

#[cfg(test)]
mod tests {
    use super::{super::sample::settings, *};

    /// The screen, and whether it is allowed.
    fn checked(profile: &str, url: &str, method: &str) -> (bool, String) {
        let loaded = settings();
        let profile = find(&loaded, profile).unwrap();
        let target = target(url).unwrap();
        let answer = Answer::new(profile, &target, method);
        let lines: Vec<String> = lines(&loaded, profile, &answer).iter().map(|line| line.render(false)).collect();
        (answer.is_allowed(), lines.join("\n"))
    }

    #[test]
    fn the_rule_that_allows_a_url_is_named() {
        for (url, says) in [
            ("https://pypi.org/simple/", "allowed by https://pypi.org:443  registries, built in\n"),
            ("https://tls.example.com", "methods and paths of this rule are not enforced inside TLS"),
            (
                "http://mirror.example.com/debian/x?y",
                "allowed by http://mirror.example.com:80 GET /debian/  ci, c.yaml:4",
            ),
            ("db.example.com:5432", "allowed by tcp://db.example.com:5432 (private addresses too)  ci, c.yaml:4"),
            ("127.0.0.1:5432", "allowed: this machine's 127.0.0.1:5432  ci, c.yaml:3"),
            ("http://localhost:5432/", "allowed: this machine's 127.0.0.1:5432"),
        ] {
            let (is_allowed, screen) = checked("ci", url, "GET");
            assert!(is_allowed && screen.contains(says), "{url}: {screen}");
        }
        assert!(checked("ci", "https://pypi.org", "GET").1.contains("must not lead to an address of this machine"));
        assert!(!checked("ci", "db.example.com:5432", "GET").1.contains("note"));
    }

    #[test]
    fn a_request_carries_a_credential_where_it_is_read() {
        let (is_allowed, screen) = checked("ci", "https://api.github.com/repos/a/b", "GET");
        assert!(is_allowed, "{screen}");
        for says in [
            "allowed by https://api.github.com:443 (with the credential github ",
            "carries  the credential github in the header Authorization after `Bearer `, from the file /etc/belay/github.token",
            "note     the proxy reads the requests inside TLS to this host, to put the credential into them",
        ] {
            assert!(screen.contains(says), "{says}: {screen}");
        }
        assert!(!screen.contains("not enforced"), "{screen}");
        // The requests for which it is not are refused, and no line of a profile allows them.
        for (url, method) in [("https://api.github.com/user", "GET"), ("https://api.github.com/repos/a", "DELETE")] {
            let (is_allowed, screen) = checked("ci", url, method);
            assert!(!is_allowed && screen.ends_with("the operator changes `credentials.github`"), "{screen}");
        }
        // Of a host with a port nothing more is known.
        let (is_allowed, screen) = checked("ci", "api.github.com:443", "GET");
        assert!(is_allowed && screen.contains("carries  the credential github"), "{screen}");
        assert!(!checked("ci", "https://pypi.org/", "GET").1.contains("carries"));
    }

    #[test]
    fn a_host_with_a_url_of_its_own_is_refused_with_the_variable() {
        let (is_allowed, screen) = checked("ci", "https://api.model.example/v1/messages", "POST");
        assert!(!is_allowed && screen.ends_with("set the program to the URL in $MODEL_URL"), "{screen}");
    }

    #[test]
    fn a_refusal_has_the_line_to_add() {
        for (profile, url, method, says) in [
            ("ci", "https://x.example.com", "GET", "add  - {host: x.example.com}\n"),
            ("ci", "http://mirror.example.com/debian/", "POST", "methods: [POST], paths: ['/debian/']}\n"),
            ("ci", "http://mirror.example.com/x", "GET", "methods: [GET], paths: ['/x']}\n"),
            (
                "ci",
                "https://mirror.example.com:80/",
                "GET",
                "- {host: mirror.example.com, ports: [80], protocol: https}\n",
            ),
            ("ci", "http://pypi.org/", "GET", "its rule `https://pypi.org:443` has other ports"),
            (
                "registries",
                "https://x.example.com",
                "GET",
                "to   network.profiles.NAME.rules in c.yaml, with `include: [registries]`: `registries` is built in",
            ),
            ("none", "https://x.example.com", "GET", "to   network.profiles.NAME.rules in c.yaml: `none` is built in"),
            ("ci", "127.0.0.1:80", "GET", "add  host_services: ['127.0.0.1:80']\n"),
            ("ci", "https://10.0.0.1/", "GET", "refused: `10.0.0.1` is an address, and no network profile allows one"),
            ("ci", "https://127.1/", "GET", "refused: `127.1` is an address"),
            ("ci", "[::1]:80", "GET", "is the command's own loopback"),
        ] {
            let (is_allowed, screen) = checked(profile, url, method);
            assert!(!is_allowed && screen.starts_with("refused: ") && screen.contains(says), "{url}: {screen}");
        }
    }

    #[test]
    fn programs_get_the_same() {
        let loaded = settings();
        let profile = find(&loaded, "ci").unwrap();
        let value = |url: &str| as_json(&loaded, &Answer::new(profile, &target(url).unwrap(), "GET"));
        let allowed = value("https://pypi.org");
        assert_eq!((&allowed["allowed"], &allowed["rule"]["profile"]), (&json!(true), &json!("registries")));
        assert_eq!(allowed["rule"]["place"], Value::Null);
        let refused = value("https://pypi.org:8443");
        assert_eq!((&refused["refusedFor"], &refused["nearestRule"]), (&json!("PORT"), &json!("https://pypi.org:443")));
        assert_eq!(refused["lineToAdd"], "- {host: pypi.org, ports: [8443]}");
        assert_eq!((&allowed["credential"], &allowed["rule"]["baseUrl"]), (&Value::Null, &Value::Null));
        let carrying = value("https://api.github.com/repos/a");
        assert_eq!((&carrying["allowed"], &carrying["rule"]["credential"]), (&json!(true), &json!("github")));
        assert_eq!(carrying["credential"]["source"], json!({ "kind": "FILE", "name": "/etc/belay/github.token" }));
        let other = value("https://api.github.com/user");
        assert_eq!((&other["refusedFor"], &other["lineToAdd"]), (&json!("CREDENTIAL"), &Value::Null));
        let by_url = value("https://api.model.example/");
        assert_eq!((&by_url["refusedFor"], &by_url["lineToAdd"]), (&json!("BASE_URL"), &Value::Null));
        assert_eq!(value("https://10.0.0.1")["refusedFor"], "ADDRESS");
        assert_eq!(value("127.0.0.1:5432")["hostService"], "127.0.0.1:5432");
    }

    #[test]
    fn an_unknown_profile_is_answered_with_those_that_exist() {
        let report = find(&settings(), "registreis").unwrap_err().report();
        assert_eq!((report.exit, report.next.as_deref()), (Exit::REFUSED, Some("belay network list")));
        assert_eq!(report.message, "there is no network profile `registreis`; did you mean `registries`?");
        assert_eq!(report.details, ["there are ci, git-https, loopback, none, registries"]);
    }
}
