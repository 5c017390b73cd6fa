//! Decides about connections and requests.

use std::fmt;

use crate::{
    host::Host,
    path::{is_path, reads_in_one_way},
    profile::Profile,
    protocol::{METHODS, Protocol},
    rule::Rule,
};

/// The longest path that a refusal repeats, in bytes.
const MAX_SHOWN_PATH: usize = 200;

/// A connection, or a request, that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct AccessRequest<'a> {
    /// The host.
    pub host: &'a Host,
    /// The port.
    pub port: u16,
    /// The traffic, as far as it is known.
    pub traffic: Traffic<'a>,
}

/// The traffic of a connection, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic<'a> {
    /// Nothing yet: whether anything may be spoken with the host at all.
    Nothing,
    /// TLS whose server name is the host's.
    Tls,
    /// A request inside of TLS, which is read: because requests to the host carry a credential, or because the proxy makes it for a tool.
    TlsRequest {
        /// Its method, as sent.
        method: &'a str,
        /// Its path, as sent, without the query.
        path: &'a str,
    },
    /// A request in clear text.
    Request {
        /// Its method, as sent.
        method: &'a str,
        /// Its path, as sent, without the query.
        path: &'a str,
    },
    /// Neither.
    Other,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessDecision<'a> {
    /// This rule allows it.
    Allowed(&'a Rule),
    /// No rule does.
    Refused(Refusal),
}

/// Why no rule allows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// No rule has the host.
    Host,
    /// Rules have the host, but not the port.
    Port,
    /// Rules have host and port, but not what is spoken.
    Protocol,
    /// Rules have all that, but not the method.
    Method,
    /// Rules have all that, but not the path.
    Path,
    /// A rule has the request, but its credential is for other requests.
    Credential,
    /// The host is reached by a URL of its own.
    BaseUrl,
}

/// A refusal, and the line by which it would be allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub kind: RefusalKind,
    /// The profile that decided.
    pub profile: String,
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
    /// The rule that comes nearest, if one has the host.
    pub nearest: Option<String>,
    /// The protocol that was spoken, as far as it is known.
    pub protocol: Option<Protocol>,
    /// Additions of the nearest rule to its requests and its commands, if it has the host.
    pub extra: NearestExtra,
    /// The method and the path of a request that a rule with methods or paths does not allow; each only where a rule may name it.
    pub request: (Option<String>, Option<String>),
}

/// The parts of the nearest rule by which a host is reached otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NearestExtra {
    /// The name of its credential.
    pub credential: Option<String>,
    /// The variable with its URL.
    pub base_url: Option<String>,
}

impl Refusal {
    /// The line to add to the operator's settings: a rule that allows this, and little else.
    pub fn line(&self) -> String {
        let Self { host, port, protocol, request: (method, path), .. } = self;
        let mut line = format!("{{host: {host}");
        // Without `protocol`, a rule of port 80 alone has `http`, any other `https`.
        let default = if *port == 80 { Protocol::Http } else { Protocol::Https };
        let protocol = protocol.unwrap_or(default);
        if *port != 443 || protocol != default {
            line += &format!(", ports: [{port}]");
        }
        if protocol != default {
            line += &format!(", protocol: {}", protocol.word());
        }
        for (key, value) in [("methods", method), ("paths", path)] {
            if let Some(value) = value {
                // Quoted, because a path may have what YAML reads as more than text.
                let quoted = if key == "paths" { format!("'{}'", value.replace('\'', "''")) } else { value.clone() };
                line += &format!(", {key}: [{quoted}]");
            }
        }
        for (key, value) in [("credential", &self.extra.credential), ("base_url", &self.extra.base_url)] {
            if let Some(value) = value.as_ref().filter(|_| method.is_some() || path.is_some()) {
                line += &format!(", {key}: {value}");
            }
        }
        line + "}"
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, profile, host, port, nearest, extra, .. } = self;
        write!(f, "{host}:{port} is not in the network profile `{profile}`")?;
        let credential = extra.credential.as_deref().unwrap_or_default();
        let nearest = nearest.as_deref().unwrap_or_default();
        match kind {
            RefusalKind::Host => write!(
                f,
                "; to allow it, the operator adds the rule `{}` to a profile that the step asks for",
                self.line()
            ),
            RefusalKind::Port => write!(
                f,
                ": its rule `{nearest}` has other ports; to allow it, the operator adds the rule `{}`",
                self.line()
            ),
            RefusalKind::Protocol => write!(
                f,
                " for what was sent: its rule is `{nearest}`; to allow it, the operator adds the rule `{}`",
                self.line()
            ),
            RefusalKind::Method => write!(
                f,
                " with this method: its rule is `{nearest}`; to allow it, the operator adds the rule `{}`",
                self.line()
            ),
            RefusalKind::Credential => write!(
                f,
                " for this request: its rule is `{nearest}`; to allow it, the operator changes `credentials.{credential}`"
            ),
            RefusalKind::BaseUrl => write!(
                f,
                " directly: its rule is `{nearest}`; set the program to the URL in ${}",
                extra.base_url.as_deref().unwrap_or_default()
            ),
            RefusalKind::Path => write!(
                f,
                " with this path: its rule is `{nearest}`; to allow it, the operator adds the rule `{}`",
                self.line()
            ),
        }
    }
}

impl Profile {
    /// Judges a connection or a request. The first rule that allows it is named.
    pub fn decide(&self, asked: AccessRequest<'_>) -> AccessDecision<'_> {
        let mut refused: Option<(RefusalKind, &Rule)> = None;
        // A request carries a credential if any rule says so, and nobody is asked about what another rule allows.
        let mut rules: Vec<&Rule> = self.rules.iter().filter(|rule| rule.host.matches(asked.host)).collect();
        rules.sort_by_key(|rule| (rule.credential.is_none(), rule.ask));
        for rule in rules {
            match misfit(rule, asked) {
                None => return AccessDecision::Allowed(rule),
                Some(kind) if refused.is_none_or(|(known, _)| depth(kind) > depth(known)) => {
                    refused = Some((kind, rule))
                }
                Some(_) => {}
            }
        }
        AccessDecision::Refused(self.refusal(asked, refused))
    }

    /// Judges a request that came by the URL of this rule.
    pub fn decide_by_url<'a>(&'a self, rule: &'a Rule, asked: AccessRequest<'_>) -> AccessDecision<'a> {
        let (Traffic::TlsRequest { method, path } | Traffic::Request { method, path }) = asked.traffic else {
            return AccessDecision::Refused(self.refusal(asked, Some((RefusalKind::Protocol, rule))));
        };
        match misfit_of_request(rule, method, path) {
            None => AccessDecision::Allowed(rule),
            Some(kind) => AccessDecision::Refused(self.refusal(asked, Some((kind, rule)))),
        }
    }

    /// Whether requests inside of TLS to this host and port are read.
    pub fn reads_tls_of(&self, host: &Host, port: u16) -> bool {
        self.rules.iter().any(|rule| {
            rule.reads_tls() && rule.host.matches(host) && rule.ports.iter().any(|ports| ports.contains(port))
        })
    }

    fn refusal(&self, asked: AccessRequest<'_>, refused: Option<(RefusalKind, &Rule)>) -> Refusal {
        let kind = refused.map_or(RefusalKind::Host, |(kind, _)| kind);
        let request = match (kind, asked.traffic) {
            (
                RefusalKind::Method | RefusalKind::Path,
                Traffic::Request { method, path } | Traffic::TlsRequest { method, path },
            ) => (
                METHODS.contains(&method).then(|| method.to_owned()),
                (path.len() <= MAX_SHOWN_PATH && is_path(path)).then(|| path.to_owned()),
            ),
            _ => (None, None),
        };
        Refusal {
            kind,
            profile: self.name.clone(),
            host: asked.host.clone(),
            port: asked.port,
            nearest: refused.map(|(_, rule)| rule.to_string()),
            protocol: match asked.traffic {
                Traffic::Nothing => None,
                Traffic::Tls | Traffic::TlsRequest { .. } => Some(Protocol::Https),
                Traffic::Request { .. } => Some(Protocol::Http),
                Traffic::Other => Some(Protocol::Tcp),
            },
            extra: refused.map_or_else(NearestExtra::default, |(_, rule)| NearestExtra {
                credential: rule.credential.as_ref().map(|credential| credential.name.clone()),
                base_url: rule.base_url.as_ref().map(|url| url.variable.clone()),
            }),
            request,
        }
    }

    /// Whether any rule has this host, on any port: whether its name may be resolved.
    pub fn has_host(&self, host: &Host) -> bool {
        self.rules.iter().any(|rule| rule.host.matches(host))
    }
}

/// The number of conditions that a rule met before one that it did not.
fn depth(kind: RefusalKind) -> u8 {
    match kind {
        RefusalKind::Host => 0,
        RefusalKind::Port => 1,
        RefusalKind::Protocol => 2,
        RefusalKind::Method => 3,
        RefusalKind::Path => 4,
        RefusalKind::Credential => 5,
        // What is reached otherwise is said only if nothing is wrong but that.
        RefusalKind::BaseUrl => 1,
    }
}

/// Why a rule that has the host does not allow it; `None` if it does.
fn misfit(rule: &Rule, asked: AccessRequest<'_>) -> Option<RefusalKind> {
    if !rule.ports.iter().any(|ports| ports.contains(asked.port)) {
        return Some(RefusalKind::Port);
    }
    if rule.base_url.is_some() {
        return Some(RefusalKind::BaseUrl);
    }
    match (rule.protocol, asked.traffic) {
        (_, Traffic::Nothing)
        | (Protocol::Tcp, Traffic::Tls | Traffic::TlsRequest { .. } | Traffic::Request { .. } | Traffic::Other)
        | (Protocol::Https, Traffic::Tls) => None,
        (Protocol::Http, Traffic::Request { method, path })
        | (Protocol::Https, Traffic::TlsRequest { method, path }) => misfit_of_request(rule, method, path),
        (Protocol::Https, Traffic::Request { .. } | Traffic::Other)
        | (Protocol::Http, Traffic::Tls | Traffic::TlsRequest { .. } | Traffic::Other) => Some(RefusalKind::Protocol),
    }
}

/// Why a rule does not allow a request that is read.
fn misfit_of_request(rule: &Rule, method: &str, path: &str) -> Option<RefusalKind> {
    let has_method = |list: &[String]| list.is_empty() || list.iter().any(|name| name == method);
    let has_path = |list: &[String]| list.is_empty() || list.iter().any(|prefix| has_prefix(path, prefix));
    if !has_method(&rule.methods) {
        return Some(RefusalKind::Method);
    }
    if !has_path(&rule.paths) {
        return Some(RefusalKind::Path);
    }
    let credential = rule.credential.as_ref()?;
    (!has_method(&credential.methods) || !has_path(&credential.paths)).then_some(RefusalKind::Credential)
}

/// Whether a path begins with a prefix, at the border of a part. A path that servers may read in another way (escapes, `.` and `..`, `//`, `\`) has none: what
/// is not read in one way only is not allowed by a part of it.
fn has_prefix(path: &str, prefix: &str) -> bool {
    reads_in_one_way(path)
        && path
            .strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || prefix.ends_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DraftProfile, DraftRule, Profiles};

    fn profile(rules: Vec<DraftRule>) -> Profile {
        let draft =
            DraftProfile { name: "p".to_owned(), rules, place: "belay.yaml:1".to_owned(), ..DraftProfile::default() };
        Profiles::new(&[draft]).unwrap().find("p").unwrap().clone()
    }

    fn rule(host: &str) -> DraftRule {
        DraftRule { host: host.to_owned(), ..DraftRule::default() }
    }

    fn words(list: &[&str]) -> Vec<String> {
        list.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_connection_needs_a_rule_with_its_host_port_and_protocol() {
        let plain = DraftRule {
            ports: words(&["80"]),
            methods: words(&["GET"]),
            paths: words(&["/v1", "/files/"]),
            ..rule("plain.example.com")
        };
        let any =
            DraftRule { ports: words(&["22", "9000-9010"]), protocol: "tcp".to_owned(), ..rule("*.raw.example.com") };
        let profile = profile(vec![rule("api.example.com"), plain, any]);
        let get = |path| Traffic::Request { method: "GET", path };
        let answer = |host: &str, port, traffic| match profile.decide(AccessRequest {
            host: &Host::parse(host).unwrap(),
            port,
            traffic,
        }) {
            AccessDecision::Allowed(_) => None,
            AccessDecision::Refused(refusal) => Some(refusal.kind),
        };
        use RefusalKind::{Host as OtherHost, Method, Path, Port, Protocol as OtherProtocol};
        for (host, port, seen, expected) in [
            ("api.example.com", 443, Traffic::Tls, None),
            ("api.example.com", 443, Traffic::Nothing, None),
            ("api.example.com", 443, Traffic::Other, Some(OtherProtocol)),
            ("api.example.com", 443, get("/"), Some(OtherProtocol)),
            ("api.example.com", 22, Traffic::Nothing, Some(Port)),
            ("api.example.com", 80, get("/"), Some(Port)),
            ("example.com", 443, Traffic::Tls, Some(OtherHost)),
            ("x.api.example.com", 443, Traffic::Tls, Some(OtherHost)),
            ("plain.example.com", 80, get("/v1"), None),
            ("plain.example.com", 80, get("/v1/x"), None),
            ("plain.example.com", 80, get("/files/x"), None),
            ("plain.example.com", 80, get("/v10"), Some(Path)),
            ("plain.example.com", 80, get("/v1/../v2"), Some(Path)),
            ("plain.example.com", 80, get("/v1/%2e%2e/v2"), Some(Path)),
            ("plain.example.com", 80, get("/v1//x"), Some(Path)),
            ("plain.example.com", 80, get("/v1\\..\\v2"), Some(Path)),
            ("plain.example.com", 80, Traffic::Request { method: "POST", path: "/v1" }, Some(Method)),
            ("plain.example.com", 80, Traffic::Request { method: "get", path: "/v1" }, Some(Method)),
            ("plain.example.com", 80, Traffic::Tls, Some(OtherProtocol)),
            ("plain.example.com", 80, Traffic::Other, Some(OtherProtocol)),
            ("a.raw.example.com", 22, Traffic::Other, None),
            ("a.raw.example.com", 9005, Traffic::Tls, None),
            ("raw.example.com", 22, Traffic::Other, Some(OtherHost)),
            ("a.raw.example.com", 9011, Traffic::Other, Some(Port)),
        ] {
            assert_eq!(answer(host, port, seen), expected, "{host}:{port} {seen:?}");
        }
    }

    #[test]
    fn a_refusal_has_the_line_that_allows_it() {
        let profile = profile(vec![rule("api.example.com")]);
        let refused = |host: &str, port| {
            let host = Host::parse(host).unwrap();
            match profile.decide(AccessRequest { host: &host, port, traffic: Traffic::Nothing }) {
                AccessDecision::Allowed(rule) => panic!("{rule}"),
                AccessDecision::Refused(refusal) => refusal,
            }
        };
        assert_eq!(refused("other.example.com", 443).line(), "{host: other.example.com}");
        let port = refused("api.example.com", 8443);
        assert!(
            port.to_string().contains("{host: api.example.com, ports: [8443]}")
                && port.to_string().contains("https://api.example.com:443")
        );
        // The line that it names is valid, and allows it.
        let again = super::tests::profile(vec![
            rule("api.example.com"),
            DraftRule { ports: words(&["8443"]), ..rule("api.example.com") },
        ]);
        let host = Host::parse("api.example.com").unwrap();
        assert!(matches!(
            again.decide(AccessRequest { host: &host, port: 8443, traffic: Traffic::Tls }),
            AccessDecision::Allowed(_)
        ));
    }

    /// Each line is a rule that is valid, and allows what was refused.
    #[test]
    fn the_line_of_a_refusal_allows_what_was_sent() {
        let plain = DraftRule {
            ports: words(&["80", "8080"]),
            protocol: "http".to_owned(),
            methods: words(&["GET"]),
            paths: words(&["/v1"]),
            ..rule("plain.example.com")
        };
        let profile = profile(vec![rule("api.example.com"), plain]);
        let request = |method, path| Traffic::Request { method, path };
        for (host, port, traffic, line) in [
            ("x.example.com", 443, Traffic::Tls, "{host: x.example.com}"),
            ("x.example.com", 80, request("GET", "/"), "{host: x.example.com, ports: [80]}"),
            ("x.example.com", 80, Traffic::Nothing, "{host: x.example.com, ports: [80]}"),
            ("x.example.com", 80, Traffic::Tls, "{host: x.example.com, ports: [80], protocol: https}"),
            ("x.example.com", 8080, request("GET", "/"), "{host: x.example.com, ports: [8080], protocol: http}"),
            ("x.example.com", 5432, Traffic::Other, "{host: x.example.com, ports: [5432], protocol: tcp}"),
            ("api.example.com", 443, request("GET", "/"), "{host: api.example.com, ports: [443], protocol: http}"),
            (
                "plain.example.com",
                80,
                request("POST", "/v1/x"),
                "{host: plain.example.com, ports: [80], methods: [POST], paths: ['/v1/x']}",
            ),
            (
                "plain.example.com",
                8080,
                request("GET", "/it's"),
                "{host: plain.example.com, ports: [8080], protocol: http, methods: [GET], paths: ['/it''s']}",
            ),
            // No rule can name these.
            ("plain.example.com", 80, request("get", "/%2e"), "{host: plain.example.com, ports: [80]}"),
        ] {
            let host = Host::parse(host).unwrap();
            let AccessDecision::Refused(refusal) = profile.decide(AccessRequest { host: &host, port, traffic }) else {
                panic!("{host}:{port} is allowed");
            };
            assert_eq!(refusal.line(), line);
            assert!(refusal.to_string().contains(line), "{refusal}");
            let (method, path) = refusal.request.clone();
            let allowing = DraftRule {
                ports: vec![port.to_string()],
                protocol: refusal.protocol.map_or(String::new(), |protocol| protocol.word().to_owned()),
                methods: method.into_iter().collect(),
                paths: path.into_iter().collect(),
                ..rule(host.as_str())
            };
            let again = super::tests::profile(vec![allowing]);
            let decision = again.decide(AccessRequest { host: &host, port, traffic });
            assert!(matches!(decision, AccessDecision::Allowed(_)), "{line}: {decision:?}");
        }
    }
}
