//! Profiles: drafts, checked and with what they include.

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    built_in::{BUILT_IN, BuiltIn},
    credential::{Credential, is_variable, only_reads},
    draft::{DraftProfile, DraftRule, Problem},
    host::{Host, HostPattern},
    name::{MAX_LIST, is_profile_name},
    path::{self, is_path},
    protocol::{METHODS, Protocol},
    rule::{BaseUrl, MAX_SOCKETS, Origin, Ports, Rule},
};

/// The profile of a command that asks for none: its own loopback, and nothing else.
pub const LOOPBACK: &str = "loopback";

/// The same: another name for it, which says what is reached.
pub const NONE: &str = "none";

/// The most rules of a profile with what it includes.
const MAX_RULES: usize = 1_000;
/// The ports of the name server and of the proxy in the network of every command, which no rule can have.
pub const OWN_PORTS: [u16; 2] = [53, 21_080];

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

    /// Whether it has hosts on other machines, which nothing reaches in air-gapped mode. The services that it may have besides are on this one.
    pub fn leaves_this_machine(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The ports on which its hosts may be reached, each of which is a socket of a command: in order, ranges written out.
    pub fn ports(&self) -> BTreeSet<u16> {
        let direct = self.rules.iter().filter(|rule| rule.base_url.is_none());
        direct.flat_map(|rule| &rule.ports).flat_map(|ports| ports.first..=ports.last).collect()
    }

    /// A rule with a URL, and another by which its host is reached directly.
    fn url_beside_rule(&self) -> Option<(&Rule, &Rule)> {
        let direct = || self.rules.iter().filter(|rule| rule.base_url.is_none());
        let is_same = |url: &Rule, rule: &Rule| {
            rule.host.contains(&url.host)
                && url.ports.iter().any(|port| rule.ports.iter().any(|ports| ports.contains(port.first)))
        };
        self.base_urls().find_map(|(url, _)| Some((url, direct().find(|rule| is_same(url, rule))?)))
    }

    /// The number of sockets that a command under it has for hosts and services.
    fn sockets(&self) -> usize {
        self.ports().len() + self.host_services.len() + self.base_urls().count()
    }

    /// The variables that it gives to commands, each with what has it.
    fn variables(&self) -> impl Iterator<Item = (&str, String)> {
        let urls = self.base_urls().map(|(rule, url)| (url.variable.as_str(), format!("the URL of {}", rule.host)));
        let named = self.credentials().into_values();
        let placeholders =
            named.filter_map(|named| Some((named.variable.as_deref()?, format!("the credential {}", named.name))));
        urls.chain(placeholders)
    }

    /// Its rules that are reached by a URL of their own, in order.
    pub fn base_urls(&self) -> impl Iterator<Item = (&Rule, &BaseUrl)> {
        self.rules.iter().filter_map(|rule| Some((rule, rule.base_url.as_ref()?)))
    }

    /// Whether a person may be asked about a host while a command runs.
    pub fn asks(&self) -> bool {
        self.rules.iter().any(|rule| rule.ask)
    }

    /// The credentials of its rules, each once, by name.
    pub fn credentials(&self) -> BTreeMap<&str, &Credential> {
        let named = self.rules.iter().filter_map(|rule| rule.credential.as_deref());
        named.map(|credential| (credential.name.as_str(), credential)).collect()
    }

    /// Whether requests to this host carry a credential under some rule.
    pub fn has_credential_for(&self, host: &Host) -> bool {
        self.rules.iter().any(|rule| rule.credential.is_some() && rule.host.matches(host))
    }

    /// Whether requests inside of TLS to some host are read, because they carry a credential.
    pub fn reads_tls(&self) -> bool {
        self.rules.iter().any(Rule::reads_tls)
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
        Self::with_credentials(drafts, &[])
    }

    /// The same with credentials that rules may name.
    ///
    /// # Errors
    /// All problems of all profiles.
    pub fn with_credentials(drafts: &[DraftProfile], credentials: &[Credential]) -> Result<Self, Vec<Problem>> {
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
            let checked = CheckedDraft::new(draft, credentials, &mut problems);
            own.insert(&draft.name, checked);
        }
        let mut by_name = BTreeMap::new();
        for name in own.keys() {
            let mut collected = EffectiveList::default();
            collect(&own, name, &mut Vec::new(), &mut collected, &mut problems);
            let EffectiveList { mut rules, host_services, fetch_only, .. } = collected;
            let reading: Vec<Rule> = rules.iter().filter(|rule| rule.reads_tls()).cloned().collect();
            for rule in rules.iter_mut().filter(|rule| rule.protocol == Protocol::Https && rule.credential.is_none()) {
                rule.is_read = reading.iter().any(|reading| reading.has_all_of(rule));
            }
            let profile =
                Profile { name: (*name).to_owned(), rules, host_services, fetch_only: fetch_only.unwrap_or(true) };
            if profile.rules.len() > MAX_RULES {
                let message = format!(
                    "has {} rules with those that it includes, but the limit is {MAX_RULES}",
                    profile.rules.len()
                );
                problems.push(Problem { field: (*name).to_owned(), message });
            } else if profile.sockets() > MAX_SOCKETS {
                let message = format!(
                    "has {} ports, base URLs and services of this machine, each of which every command under it listens on, but the limit is {MAX_SOCKETS}",
                    profile.sockets()
                );
                problems.push(Problem { field: (*name).to_owned(), message });
            }
            if let Some((url, direct)) = profile.url_beside_rule() {
                let message = format!(
                    "reaches {} at ${} and only there by one rule, and directly by another (`{direct}`): remove one of them",
                    url.host,
                    url.base_url.as_ref().map_or("", |url| url.variable.as_str())
                );
                problems.push(Problem { field: (*name).to_owned(), message });
            }
            let mut variables = BTreeMap::new();
            for (variable, owner) in profile.variables() {
                if let Some(other) = variables.insert(variable, owner.clone()).filter(|other| *other != owner) {
                    let message = format!("gives the variable `{variable}` two values: {other} and {owner}");
                    problems.push(Problem { field: (*name).to_owned(), message });
                }
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
            ask: false,
            credential: None,
            base_url: None,
            is_read: false,
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

    fn new(draft: &'a DraftProfile, credentials: &[Credential], problems: &mut Vec<Problem>) -> Self {
        let origin = |place: &str| Origin {
            profile: draft.name.clone(),
            place: if place.is_empty() { draft.place.clone() } else { place.to_owned() },
        };
        let mut rules = Vec::new();
        for (place, written) in draft.rules.iter().enumerate() {
            let field = format!("{}.rules[{place}]", draft.name);
            let rule = rule(written, &field, (draft.any_host, credentials), origin(&written.place), problems);
            if let Some((rule, credential)) = rule.as_ref().and_then(|rule| Some((rule, rule.credential.as_deref()?)))
                && draft.fetch_only
                && !only_reads([&rule.methods, &credential.methods])
            {
                let message = format!(
                    "says that commands under this profile may run again, and its rule {place} sends the credential `{}` with methods that may change something: bound the rule by `methods: [GET, HEAD]`, or remove `fetch_only`",
                    credential.name
                );
                problems.push(Problem { field: format!("{}.fetch_only", draft.name), message });
            }
            rules.extend(rule);
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
fn rule(
    written: &DraftRule,
    field: &str,
    (any_host, credentials): (bool, &[Credential]),
    origin: Origin,
    problems: &mut Vec<Problem>,
) -> Option<Rule> {
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
            refuse(&format!("paths[{place}]"), path::RULE.to_owned());
        }
    }
    let (host, protocol) = (host?, protocol?);
    let credential = match &written.credential {
        Some(name) => Some(Box::new(credential(name, (protocol, &host, &ports), credentials, &mut refuse)?)),
        None => None,
    };
    let base_url = base_url(written, (&host, &ports), credential.is_some(), &mut refuse);
    (problems.len() == before).then(|| Rule {
        host,
        ports,
        protocol,
        methods: written.methods.clone(),
        paths: written.paths.clone(),
        private_addresses: written.private_addresses,
        ask: written.ask,
        credential,
        base_url,
        is_read: false,
        origin,
    })
}

/// The credential of this name, which has to be bound to everything that its rule opens.
fn credential(
    name: &str,
    (protocol, host, ports): (Protocol, &HostPattern, &[Ports]),
    credentials: &[Credential],
    refuse: &mut impl FnMut(&str, String),
) -> Option<Credential> {
    let Some(credential) = credentials.iter().find(|credential| credential.name == name) else {
        let known: Vec<&str> = credentials.iter().map(|credential| credential.name.as_str()).collect();
        let known =
            if known.is_empty() { "there is none".to_owned() } else { format!("there are {}", known.join(", ")) };
        refuse("credential", format!("`{name}` is not in `credentials`, where {known}"));
        return None;
    };
    if protocol == Protocol::Tcp {
        let message = "is put into requests, and with `protocol: tcp` nothing is known of them: remove it".to_owned();
        refuse("credential", message);
        return None;
    }
    let mut all = ports.iter().flat_map(|ports| ports.first..=ports.last);
    if let Some(port) = all.find(|port| !credential.is_for(protocol, host, *port)) {
        let message = format!(
            "`{name}` is not bound to {}://{host}:{port}, but to {}: name a host to which it is bound, or add this one to `credentials.{name}.hosts`",
            protocol.word(),
            credential.shown_hosts()
        );
        refuse("credential", message);
        return None;
    }
    Some(credential.clone())
}

fn base_url(
    written: &DraftRule,
    (host, ports): (&HostPattern, &[Ports]),
    has_credential: bool,
    refuse: &mut impl FnMut(&str, String),
) -> Option<BaseUrl> {
    let Some(variable) = &written.base_url else {
        if written.base_path.is_some() {
            refuse("base_path", "is the path of `base_url`, which this rule has not: remove it".to_owned());
        }
        return None;
    };
    if !is_variable(variable) {
        let message = "must be the name of a variable: letters, digits and `_`, such as OPENAI_BASE_URL".to_owned();
        refuse("base_url", message);
    }
    if !has_credential {
        let message =
            "is for hosts with a `credential`: add it, or remove `base_url`, and the host is reached directly"
                .to_owned();
        refuse("base_url", message);
    }
    let is_one = matches!(host, HostPattern::Exact(_)) && matches!(ports, [only] if only.first == only.last);
    if !is_one {
        refuse("base_url", "is the URL of one host: write a rule with one name and one port".to_owned());
    }
    let path = written.base_path.clone().unwrap_or_default();
    if !path.is_empty() && (!is_path(&path) || path.ends_with('/')) {
        refuse("base_path", "must begin with `/` and not end with it, such as /v1".to_owned());
    }
    Some(BaseUrl { variable: variable.clone(), path })
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
mod credential_tests;
#[cfg(test)]
mod tests;
