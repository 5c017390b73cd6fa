//! Profiles: drafts, checked and with what they include.

use core::net::{IpAddr, SocketAddr};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};

use crate::{
    built_in::{BUILT_IN, BuiltIn},
    draft::{DraftProfile, DraftRule, Problem},
    host::HostPattern,
    path::is_path,
};

/// The profile of a command that asks for none: its own loopback, and nothing else.
pub const LOOPBACK: &str = "loopback";

/// The same: another name for it, which says what is reached.
pub const NONE: &str = "none";

/// The most rules of a profile with what it includes.
const MAX_RULES: usize = 1_000;
/// The most ports and services of this machine in one profile, each of which is a socket of every command.
const MAX_SOCKETS: usize = 64;
/// The ports of the name server and of the proxy in the network of every command, which no rule can have.
pub const OWN_PORTS: [u16; 2] = [53, 21_080];
/// The maximum length of the name of a profile, in characters.
pub const MAX_PROFILE_NAME: usize = 64;
/// The most methods and paths of a rule.
const MAX_LIST: usize = 100;
/// The methods that a rule may name (RFC 9110, RFC 5789).
pub(crate) const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

/// The protocol that may be spoken with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TLS whose server name is the host's. What is in it is not read.
    Https,
    /// HTTP in clear text: each request is read.
    Http,
    /// Anything.
    Tcp,
}

impl Protocol {
    const WORDS: [(&'static str, Self); 3] = [("https", Self::Https), ("http", Self::Http), ("tcp", Self::Tcp)];

    /// Its name in settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }
}

/// Ports from the first to the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl Ports {
    /// One port.
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// Whether this port is among them.
    pub fn contains(self, port: u16) -> bool {
        (self.first..=self.last).contains(&port)
    }

    fn parse(text: &str) -> Result<Self, String> {
        let port = |digits: &str| match digits.parse::<u16>() {
            Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => Ok(port),
            Ok(_) | Err(_) => Err("must be a port from 1 to 65535, or a range such as 8000-8100".to_owned()),
        };
        let Some((first, last)) = text.split_once('-') else { return port(text).map(Self::one) };
        let (first, last) = (port(first.trim())?, port(last.trim())?);
        if first > last {
            return Err(format!("is a range upside down: write {last}-{first}"));
        }
        // Every profile that has it would be refused, after it has been written out in each.
        let count = usize::from(last - first) + 1;
        if count > MAX_SOCKETS {
            return Err(format!(
                "has {count} ports, but a profile may have {MAX_SOCKETS}, because every command under it listens on each: name those that are needed"
            ));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last { write!(f, "{}", self.first) } else { write!(f, "{}-{}", self.first, self.last) }
    }
}

/// Where a rule comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The profile that has it.
    pub profile: String,
    /// Where it was written; empty for a built-in one.
    pub place: String,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place.is_empty() {
            write!(f, "{}, built in", self.profile)
        } else {
            write!(f, "{}, {}", self.profile, self.place)
        }
    }
}

/// A rule: hosts that may be reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rule {
    /// The hosts.
    pub host: HostPattern,
    /// The ports, in order.
    pub ports: Vec<Ports>,
    /// The protocol that may be spoken.
    pub protocol: Protocol,
    /// The methods, where requests are read; empty: all.
    pub methods: Vec<String>,
    /// The prefixes of paths, where requests are read; empty: all.
    pub paths: Vec<String>,
    /// Whether the hosts may lead to addresses that are closed otherwise ([`crate::closed_range`]).
    pub private_addresses: bool,
    /// Where it comes from.
    pub origin: Origin,
}

impl Rule {
    /// Whether it limits requests that cannot be read.
    pub fn is_unenforced_inside_tls(&self) -> bool {
        self.protocol != Protocol::Http && !(self.methods.is_empty() && self.paths.is_empty())
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:", self.protocol.word(), self.host)?;
        for (place, ports) in self.ports.iter().enumerate() {
            write!(f, "{}{ports}", if place == 0 { "" } else { "," })?;
        }
        if !self.methods.is_empty() {
            write!(f, " {}", self.methods.join(","))?;
        }
        // No path has a space, so that two rules that open different things never read alike: approvals are bound to these texts.
        for path in &self.paths {
            write!(f, " {path}")?;
        }
        if self.is_unenforced_inside_tls() {
            f.write_str(" (not enforced inside TLS)")?;
        }
        if self.private_addresses {
            f.write_str(" (private addresses too)")?;
        }
        Ok(())
    }
}

/// A profile with everything that it includes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// All its rules: those of what it includes, then its own.
    pub rules: Vec<Rule>,
    /// Services of this machine that commands reach under the same address, with where each comes from.
    pub host_services: Vec<(SocketAddr, Origin)>,
    /// Whether a command under it may run again: its author's word.
    pub fetch_only: bool,
}

impl Profile {
    /// Whether it has nothing beyond loopback.
    pub fn is_closed(&self) -> bool {
        self.rules.is_empty() && self.host_services.is_empty()
    }

    /// The ports on which its hosts may be reached, each of which is a socket of a command: in order, ranges written out.
    pub fn ports(&self) -> BTreeSet<u16> {
        self.rules.iter().flat_map(|rule| &rule.ports).flat_map(|ports| ports.first..=ports.last).collect()
    }

    /// Its rules and services, a line each, for people who are asked or want to know.
    pub fn lines(&self) -> Vec<String> {
        let services = self.host_services.iter().map(|(address, _)| format!("this machine's {address}"));
        self.rules.iter().map(ToString::to_string).chain(services).collect()
    }
}

/// All profiles of a runner, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profiles {
    by_name: BTreeMap<String, Profile>,
}

impl Default for Profiles {
    /// The built-in ones.
    fn default() -> Self {
        Self::new(&[]).unwrap_or_else(|_| Self { by_name: BTreeMap::new() })
    }
}

impl Profiles {
    /// Checks the operator's profiles and adds the built-in ones.
    ///
    /// # Errors
    /// All problems of all profiles.
    pub fn new(drafts: &[DraftProfile]) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut own: BTreeMap<&str, CheckedDraft<'_>> = BTreeMap::new();
        for built_in in BUILT_IN {
            own.insert(built_in.name, CheckedDraft::of_built_in(built_in));
        }
        for draft in drafts {
            let field = &draft.name;
            if let Some(message) = name_problem(&draft.name) {
                problems.push(Problem { field: field.clone(), message: message.to_owned() });
                continue;
            }
            if BUILT_IN.iter().any(|built_in| built_in.name == draft.name)
                || draft.name == LOOPBACK
                || draft.name == NONE
            {
                let message =
                    "is the name of a built-in profile: give it another, and `include` the built-in one".to_owned();
                problems.push(Problem { field: field.clone(), message });
                continue;
            }
            if own.contains_key(draft.name.as_str()) {
                problems
                    .push(Problem { field: field.clone(), message: "is the name of another profile, too".to_owned() });
                continue;
            }
            let checked = CheckedDraft::new(draft, &mut problems);
            own.insert(&draft.name, checked);
        }
        let mut by_name = BTreeMap::new();
        for name in own.keys() {
            let mut collected = EffectiveList::default();
            collect(&own, name, &mut Vec::new(), &mut collected, &mut problems);
            let EffectiveList { rules, host_services, fetch_only, .. } = collected;
            let profile =
                Profile { name: (*name).to_owned(), rules, host_services, fetch_only: fetch_only.unwrap_or(true) };
            if profile.rules.len() > MAX_RULES {
                let message = format!(
                    "has {} rules with those that it includes, but the limit is {MAX_RULES}",
                    profile.rules.len()
                );
                problems.push(Problem { field: (*name).to_owned(), message });
            } else if profile.ports().len() + profile.host_services.len() > MAX_SOCKETS {
                let message = format!(
                    "has {} ports and services of this machine, each of which every command under it listens on, but the limit is {MAX_SOCKETS}",
                    profile.ports().len() + profile.host_services.len()
                );
                problems.push(Problem { field: (*name).to_owned(), message });
            }
            by_name.insert((*name).to_owned(), profile);
        }
        for name in [LOOPBACK, NONE] {
            let closed =
                Profile { name: name.to_owned(), rules: Vec::new(), host_services: Vec::new(), fetch_only: true };
            by_name.insert(name.to_owned(), closed);
        }
        problems.dedup();
        if problems.is_empty() { Ok(Self { by_name }) } else { Err(problems) }
    }

    /// The profile of this name.
    pub fn find(&self, name: &str) -> Option<&Profile> {
        self.by_name.get(name)
    }

    /// The other profiles whose rules or services this one has, and that may do more than fetch: for their sake it may as well.
    pub fn beyond_fetching(&self, profile: &Profile) -> BTreeSet<&str> {
        let origins = profile.rules.iter().map(|rule| &rule.origin);
        let origins = origins.chain(profile.host_services.iter().map(|(_, origin)| origin));
        let others =
            origins.filter(|origin| origin.profile != profile.name).filter_map(|origin| self.find(&origin.profile));
        others.filter(|other| !other.fetch_only).map(|other| other.name.as_str()).collect()
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.by_name.values()
    }
}

/// Whether a text can be the name of a profile: 1 to [`MAX_PROFILE_NAME`] letters, digits, `-`, `_` and `.`, beginning with a letter or a digit.
pub fn is_profile_name(text: &str) -> bool {
    text.len() <= MAX_PROFILE_NAME
        && text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

fn name_problem(name: &str) -> Option<&'static str> {
    (!is_profile_name(name)).then_some(
        "is not a profile's name: it has 1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or a digit",
    )
}

/// A draft whose own fields are checked.
struct CheckedDraft<'a> {
    name: &'a str,
    include: &'a [String],
    rules: Vec<Rule>,
    host_services: Vec<(SocketAddr, Origin)>,
    fetch_only: bool,
}

impl<'a> CheckedDraft<'a> {
    fn of_built_in(built_in: &'a BuiltIn) -> Self {
        let rule = |(host, port): &(&str, u16)| Rule {
            // The table is constant, and a test reads it.
            host: HostPattern::parse(host).expect("a built-in host"),
            ports: vec![Ports::one(*port)],
            protocol: if *port == 80 { Protocol::Http } else { Protocol::Https },
            methods: Vec::new(),
            paths: Vec::new(),
            private_addresses: false,
            origin: Origin { profile: built_in.name.to_owned(), place: String::new() },
        };
        Self {
            name: built_in.name,
            include: &[],
            rules: built_in.rules.iter().map(rule).collect(),
            host_services: Vec::new(),
            fetch_only: built_in.fetch_only,
        }
    }

    fn new(draft: &'a DraftProfile, problems: &mut Vec<Problem>) -> Self {
        let origin = |place: &str| Origin {
            profile: draft.name.clone(),
            place: if place.is_empty() { draft.place.clone() } else { place.to_owned() },
        };
        let mut rules = Vec::new();
        for (place, written) in draft.rules.iter().enumerate() {
            let field = format!("{}.rules[{place}]", draft.name);
            rules.extend(rule(written, &field, draft.any_host, origin(&written.place), problems));
        }
        let mut host_services = Vec::new();
        for (place, service) in draft.host_services.iter().enumerate() {
            match host_service(service) {
                Ok(address) => host_services.push((address, origin(""))),
                Err(message) => {
                    let field = format!("{}.host_services[{place}]", draft.name);
                    problems.push(Problem { field, message: message.to_owned() });
                }
            }
        }
        Self { name: &draft.name, include: &draft.include, rules, host_services, fetch_only: draft.fetch_only }
    }
}

fn host_service(text: &str) -> Result<SocketAddr, &'static str> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.port() == 0 => Err("must have a port from 1 to 65535"),
        Ok(address) if !address.is_ipv4() || !address.ip().is_loopback() => Err(
            "must be an address of this machine's loopback, such as 127.0.0.1:5432: write a rule for any other host",
        ),
        Ok(address) if is_taken(address) => Err(
            "is an address that stands for hosts, or for the proxy, in a command: have the service listen on another, such as 127.0.0.1",
        ),
        Ok(address) => Ok(address),
        Err(_) => Err("must be an address with a port, such as 127.0.0.1:5432"),
    }
}

/// Whether commands find something of Belay's at this address: the proxy (127.77.0.0/16), or a host that a name stands for (127.78.0.0/15).
fn is_taken(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V4(address) if matches!(address.octets(), [127, 77..=79, ..]))
}

/// Checks a rule. `None` if it has a problem.
fn rule(written: &DraftRule, field: &str, any_host: bool, origin: Origin, problems: &mut Vec<Problem>) -> Option<Rule> {
    let before = problems.len();
    let mut refuse = |key: &str, message: String| problems.push(Problem { field: format!("{field}.{key}"), message });
    let host = match HostPattern::parse(&written.host) {
        Ok(host) if host.is_everything() && !any_host => {
            let message = format!(
                "`{host}` is every host, or all of a top-level domain: name the hosts, or say that you mean it with `any_host: true` in the profile"
            );
            refuse("host", message);
            None
        }
        Ok(host) => Some(host),
        Err(problem) => {
            refuse("host", problem.message().to_owned());
            None
        }
    };
    let mut ports = Vec::new();
    for (place, text) in written.ports.iter().enumerate() {
        match Ports::parse(text) {
            Ok(range) if OWN_PORTS.iter().any(|port| range.contains(*port)) => {
                let message =
                    "has 53 or 21080, where the name server and the proxy of every command are: name other ports";
                refuse(&format!("ports[{place}]"), message.to_owned());
            }
            Ok(range) => ports.push(range),
            Err(message) => refuse(&format!("ports[{place}]"), message),
        }
    }
    ports.sort_unstable();
    ports.dedup();
    let protocol = match written.protocol.as_str() {
        "" if ports == [Ports::one(80)] => Some(Protocol::Http),
        "" => Some(Protocol::Https),
        word => Protocol::WORDS.iter().find(|(name, _)| *name == word).map(|(_, protocol)| *protocol),
    };
    if protocol.is_none() {
        refuse("protocol", "must be `https`, `http` or `tcp`".to_owned());
    }
    if ports.is_empty() && written.ports.is_empty() {
        match protocol {
            Some(Protocol::Tcp) => refuse("ports", "are required with `protocol: tcp`, such as [5432]".to_owned()),
            Some(Protocol::Http) => ports.push(Ports::one(80)),
            Some(Protocol::Https) | None => ports.push(Ports::one(443)),
        }
    }
    for (key, list) in [("methods", &written.methods), ("paths", &written.paths)] {
        if list.len() > MAX_LIST {
            refuse(key, format!("has {} entries, but the limit is {MAX_LIST}", list.len()));
        } else if !list.is_empty() && protocol == Some(Protocol::Tcp) {
            refuse(key, "are of requests, and with `protocol: tcp` nothing is known of them: remove them".to_owned());
        }
    }
    for (place, method) in written.methods.iter().enumerate() {
        if !METHODS.contains(&method.as_str()) {
            refuse(&format!("methods[{place}]"), format!("must be one of {}", METHODS.join(", ")));
        }
    }
    for (place, path) in written.paths.iter().enumerate() {
        if !is_path(path) {
            refuse(
                &format!("paths[{place}]"),
                "must begin with `/`, and have no `..`, `//`, `%`, `;`, `?`, `#` or `\\`: it is the beginning of a path that servers read in one way"
                    .to_owned(),
            );
        }
    }
    let (host, protocol) = (host?, protocol?);
    (problems.len() == before).then(|| Rule {
        host,
        ports,
        protocol,
        methods: written.methods.clone(),
        paths: written.paths.clone(),
        private_addresses: written.private_addresses,
        origin,
    })
}

/// The rules and services of a profile with everything that it includes.
#[derive(Default)]
struct EffectiveList<'a> {
    rules: Vec<Rule>,
    host_services: Vec<(SocketAddr, Origin)>,
    /// Whether all that have a rule only fetch; `None`: none has.
    fetch_only: Option<bool>,
    seen: BTreeSet<&'a str>,
}

/// Collects a profile. `above`: the profiles that include it, the outermost first.
fn collect<'a>(
    all: &BTreeMap<&'a str, CheckedDraft<'a>>,
    name: &str,
    above: &mut Vec<&'a str>,
    collected: &mut EffectiveList<'a>,
    problems: &mut Vec<Problem>,
) {
    let Some(profile) = all.get(name) else { return };
    if !collected.seen.insert(profile.name) {
        return;
    }
    above.push(profile.name);
    for (place, included) in profile.include.iter().enumerate() {
        let mut refuse = |message: String| {
            let problem = Problem { field: format!("{}.include[{place}]", profile.name), message };
            if !problems.contains(&problem) {
                problems.push(problem);
            }
        };
        if above.contains(&included.as_str()) {
            let circle: Vec<&str> = above.iter().copied().skip_while(|name| *name != included).collect();
            refuse(format!("makes a circle ({} → {included}): remove one `include`", circle.join(" → ")));
        } else if all.contains_key(included.as_str()) {
            collect(all, included, above, collected, problems);
        } else if included != LOOPBACK && included != NONE {
            let names: Vec<&str> = all.keys().copied().collect();
            refuse(format!("is not a profile: there are {}", names.join(", ")));
        }
    }
    above.pop();
    if !(profile.rules.is_empty() && profile.host_services.is_empty()) {
        collected.fetch_only = Some(collected.fetch_only.unwrap_or(true) && profile.fetch_only);
    }
    collected.rules.extend(profile.rules.iter().cloned());
    for service in &profile.host_services {
        if !collected.host_services.iter().any(|(address, _)| *address == service.0) {
            collected.host_services.push(service.clone());
        }
    }
}

#[cfg(test)]
mod tests;
