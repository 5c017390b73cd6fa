//! Credentials: where a value may go, and how. The value itself is elsewhere.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::{
    draft::Problem,
    host::HostPattern,
    name::{MAX_LIST, is_profile_name},
    path::is_path,
    protocol::{METHODS, Protocol},
};

/// The longest part of a credential that its operator writes: a header, a prefix, a user, a parameter, a variable.
const MAX_TEXT: usize = 128;
/// The longest text with which a placeholder begins.
const MAX_PLACEHOLDER: usize = 32;
/// The header that carries a credential, unless its operator names another.
const AUTHORIZATION: &str = "Authorization";
/// Headers that describe the connection or the body, so that a value in them would change how the request is read.
const NOT_FOR_VALUES: [&str; 21] = [
    "host",
    "connection",
    "content-length",
    "content-encoding",
    "content-type",
    "transfer-encoding",
    "trailer",
    "te",
    "upgrade",
    "expect",
    "accept-encoding",
    "keep-alive",
    "proxy-connection",
    "proxy-authorization",
    "range",
    "if-range",
    "date",
    "sec-websocket-key",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "sec-websocket-version",
];

/// The source of a credential's value. It is read when a call begins, so that a value that was changed holds from the next call on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialSource {
    /// A file that its owner alone can read.
    File(PathBuf),
    /// A variable of the service.
    Environment(String),
    /// A credential that systemd gives to the service (`LoadCredential=`), by its name.
    Systemd(String),
    /// Output of a program: its absolute path, and its arguments.
    Command(Vec<String>),
}

impl fmt::Display for CredentialSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => write!(f, "the file {}", file.display()),
            Self::Environment(name) => write!(f, "the variable {name}"),
            Self::Systemd(name) => write!(f, "systemd's credential {name}"),
            Self::Command(words) => write!(f, "the command {}", words.first().map_or("", String::as_str)),
        }
    }
}

/// A credential as its operator wrote it, without its source. Empty texts mean that it was left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftCredential {
    /// Its name.
    pub name: String,
    /// The header with the value: without `basic` and `query`, `Authorization`.
    pub header: Option<String>,
    /// The text before the value in the header: without it, `Bearer ` in `Authorization`, and nothing in another.
    pub prefix: Option<String>,
    /// The user of basic authentication, whose password is the value.
    pub basic: Option<String>,
    /// The parameter of the query that has the value.
    pub query: Option<String>,
    /// Where it may go: `https://api.example.com`, `https://*.example.com:8443`. None with a `variable`: it is for tools that reveal it.
    pub hosts: Vec<String>,
    /// The methods of requests with it; empty: all.
    pub methods: Vec<String>,
    /// The prefixes of their paths; empty: all.
    pub paths: Vec<String>,
    /// The variable in which commands get the placeholder.
    pub variable: Option<String>,
    /// The text with which the placeholder begins, where programs check it.
    pub placeholder: Option<String>,
    /// Whether it may go to `http://` hosts.
    pub clear_text: bool,
}

/// The place of a value in a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// A header.
    Header {
        /// Its name, as written.
        name: String,
        /// The text before the value.
        prefix: String,
    },
    /// The password of basic authentication.
    Basic {
        /// The user.
        user: String,
    },
    /// A parameter of the query.
    Query {
        /// Its name.
        name: String,
    },
}

impl fmt::Display for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header { name, prefix } if prefix.is_empty() => write!(f, "in the header {name}"),
            Self::Header { name, prefix } => write!(f, "in the header {name} after `{prefix}`"),
            Self::Basic { user } => write!(f, "as the password of `{user}`"),
            Self::Query { name } => write!(f, "in the query as {name}"),
        }
    }
}

/// A host to which a credential may go.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Binding {
    /// `https` or `http`.
    pub protocol: Protocol,
    /// The host.
    pub host: HostPattern,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}:{}", self.protocol.word(), self.host, self.port)
    }
}

/// A credential: where its value may go, and how.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Credential {
    /// Its name.
    pub name: String,
    /// The place of the value in a request.
    pub placement: Placement,
    /// Where it may go; nowhere if it is for tools that reveal it.
    pub hosts: Vec<Binding>,
    /// The methods of requests with it; empty: all.
    pub methods: Vec<String>,
    /// The prefixes of their paths; empty: all.
    pub paths: Vec<String>,
    /// The variable in which commands get the placeholder.
    pub variable: Option<String>,
    /// The text with which the placeholder begins.
    pub placeholder: String,
}

impl Credential {
    /// Checks what the operator wrote.
    ///
    /// # Errors
    /// All problems, each with its field below the credentials.
    pub fn new(draft: &DraftCredential) -> Result<Self, Vec<Problem>> {
        let mut problems = Vec::new();
        let mut refuse = |key: &str, message: String| {
            let field = if key.is_empty() { draft.name.clone() } else { format!("{}.{key}", draft.name) };
            problems.push(Problem { field, message });
        };
        if !is_profile_name(&draft.name) {
            refuse(
                "",
                "is not a credential's name: it has 1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or a digit"
                    .to_owned(),
            );
        }
        let placement = placement(draft, &mut refuse);
        let mut hosts = Vec::new();
        if draft.hosts.is_empty() && draft.variable.is_none() {
            let message = "names no host: add those to which it may go, such as [https://api.example.com], or a `variable` for the tools that reveal it";
            refuse("hosts", message.to_owned());
        } else if draft.hosts.len() > MAX_LIST {
            refuse("hosts", format!("has {} entries, but the limit is {MAX_LIST}", draft.hosts.len()));
        }
        for (place, text) in draft.hosts.iter().enumerate() {
            match binding(text, draft.clear_text) {
                Ok(binding) => hosts.push(binding),
                Err(message) => refuse(&format!("hosts[{place}]"), message),
            }
        }
        for (key, list) in [("methods", &draft.methods), ("paths", &draft.paths)] {
            if list.len() > MAX_LIST {
                refuse(key, format!("has {} entries, but the limit is {MAX_LIST}", list.len()));
            }
        }
        for (place, method) in draft.methods.iter().enumerate() {
            if !METHODS.contains(&method.as_str()) {
                refuse(&format!("methods[{place}]"), format!("must be one of {}", METHODS.join(", ")));
            }
        }
        for (place, path) in draft.paths.iter().enumerate() {
            if !is_path(path) {
                refuse(&format!("paths[{place}]"), crate::path::RULE.to_owned());
            }
        }
        if draft.variable.as_deref().is_some_and(|name| !is_variable(name)) {
            refuse(
                "variable",
                "is not a valid variable name: use letters, digits and `_`, such as GITHUB_TOKEN".to_owned(),
            );
        }
        let placeholder = draft.placeholder.clone().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if placeholder.len() > MAX_PLACEHOLDER || !placeholder.chars().all(is_plain) {
            refuse(
                "placeholder",
                format!(
                    "must be the beginning of the placeholder, of at most {MAX_PLACEHOLDER} letters, digits, `-`, `_` and `.`, such as ghp_"
                ),
            );
        }
        match placement {
            Some(placement) if problems.is_empty() => Ok(Self {
                name: draft.name.clone(),
                placement,
                hosts,
                methods: draft.methods.clone(),
                paths: draft.paths.clone(),
                variable: draft.variable.clone(),
                placeholder,
            }),
            _ => Err(problems),
        }
    }

    /// Whether it may go to every host of a pattern on this port.
    pub(crate) fn is_for(&self, protocol: Protocol, host: &HostPattern, port: u16) -> bool {
        self.hosts
            .iter()
            .any(|binding| binding.protocol == protocol && binding.port == port && binding.host.contains(host))
    }

    /// Its bindings, for people: `https://api.example.com:443 and 2 more`.
    pub(crate) fn shown_hosts(&self) -> String {
        let shown: Vec<String> = self.hosts.iter().map(ToString::to_string).collect();
        if shown.is_empty() { "no host".to_owned() } else { shown.join(", ") }
    }
}

/// The methods that change nothing at a host (RFC 9110, section 9.2.1).
const SAFE: [&str; 4] = ["GET", "HEAD", "OPTIONS", "TRACE"];

/// Whether requests with one of these lists of methods, each of which is empty for all, change nothing.
pub(crate) fn only_reads(lists: [&[String]; 2]) -> bool {
    let is_allowed =
        |method: &&str| lists.iter().all(|list| list.is_empty() || list.iter().any(|known| known == method));
    METHODS.iter().copied().filter(is_allowed).all(|method| SAFE.contains(&method))
}

fn placement(draft: &DraftCredential, refuse: &mut impl FnMut(&str, String)) -> Option<Placement> {
    let is_token = |text: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        !text.is_empty() && text.len() <= MAX_TEXT && text.bytes().all(plain)
    };
    let is_text = |text: &str| text.len() <= MAX_TEXT && text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let mut problem = |key: &str, message: &str| {
        refuse(key, message.to_owned());
        None
    };
    match (&draft.header, &draft.basic, &draft.query) {
        (header, None, None) => {
            let name = header.clone().unwrap_or_else(|| AUTHORIZATION.to_owned());
            if !is_token(&name) {
                return problem("header", "must be the name of a header, such as X-Api-Key");
            }
            if NOT_FOR_VALUES.iter().any(|known| name.eq_ignore_ascii_case(known)) {
                return problem(
                    "header",
                    "is a header by which servers read the request: name the one with the credential",
                );
            }
            let of_scheme = if name.eq_ignore_ascii_case(AUTHORIZATION) { "Bearer " } else { "" };
            let prefix = draft.prefix.clone().unwrap_or_else(|| of_scheme.to_owned());
            if !is_text(&prefix) {
                return problem("prefix", "must be ASCII text of at most 128 characters, such as \"token \"");
            }
            Some(Placement::Header { name, prefix })
        }
        (None, Some(user), None) if draft.prefix.is_none() => {
            if user.is_empty() || user.contains(':') || !is_text(user) {
                return problem("basic", "must be a user of ASCII characters without `:`, such as x-access-token");
            }
            Some(Placement::Basic { user: user.clone() })
        }
        (None, None, Some(name)) if draft.prefix.is_none() => {
            if name.is_empty()
                || name.len() > MAX_TEXT
                || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            {
                return problem(
                    "query",
                    "must be the name of a parameter: letters, digits, `-`, `_` and `.`, such as api_key",
                );
            }
            Some(Placement::Query { name: name.clone() })
        }
        (None, Some(_), None) | (None, None, Some(_)) => {
            problem("prefix", "is the text before the value in a header, and this credential is in none: remove it")
        }
        _ => problem("", "has more than one of `header`, `basic` and `query`: a value has one place in a request"),
    }
}

/// Reads `https://host` or `https://host:port`.
fn binding(text: &str, clear_text: bool) -> Result<Binding, String> {
    let (protocol, rest) = match text.split_once("://") {
        Some(("https", rest)) => (Protocol::Https, rest),
        Some(("http", rest)) if clear_text => (Protocol::Http, rest),
        Some(("http", _)) => {
            return Err(
                "would send the value in clear text, where everybody on the way can read it: write `https://`, or say that you mean it with `clear_text: true` in the credential"
                    .to_owned(),
            );
        }
        _ => return Err("must begin with its scheme, such as https://api.example.com".to_owned()),
    };
    let (host, port) = match rest.rsplit_once(':') {
        None => (rest, if protocol == Protocol::Https { 443 } else { 80 }),
        Some((host, digits)) => match digits.parse() {
            Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => (host, port),
            _ => return Err("must have a port from 1 to 65535 after the `:`, or none".to_owned()),
        },
    };
    if host.contains('/') {
        return Err("must be a scheme, a host and a port without a path: paths stand in `paths`".to_owned());
    }
    let host = HostPattern::parse(host).map_err(|problem| problem.message().to_owned())?;
    if host.is_everything() {
        return Err(format!(
            "`{host}` is every host, or all of a top-level domain, and a credential goes to named ones: name them"
        ));
    }
    Ok(Binding { protocol, host, port })
}

pub(crate) fn is_variable(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty()
        && name.len() <= MAX_TEXT
        && name.chars().all(plain)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name != "PATH"
        && !name.starts_with("LD_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> DraftCredential {
        DraftCredential {
            name: "github".to_owned(),
            hosts: vec!["https://api.github.com".to_owned(), "https://*.example.com:8443".to_owned()],
            ..DraftCredential::default()
        }
    }

    fn problems(draft: &DraftCredential) -> Vec<String> {
        let problems = Credential::new(draft).unwrap_err();
        problems.into_iter().map(|Problem { field, message }| format!("{field}: {message}")).collect()
    }

    #[test]
    fn a_credential_is_bound_to_scheme_host_and_port() {
        let credential = Credential::new(&draft()).unwrap();
        assert_eq!(credential.shown_hosts(), "https://api.github.com:443, https://*.example.com:8443");
        let bearer = Placement::Header { name: AUTHORIZATION.to_owned(), prefix: "Bearer ".to_owned() };
        assert_eq!(credential.placement, bearer);
        let is_for = |protocol, host: &str, port| credential.is_for(protocol, &HostPattern::parse(host).unwrap(), port);
        assert!(is_for(Protocol::Https, "api.github.com", 443));
        assert!(is_for(Protocol::Https, "a.b.example.com", 8443) && is_for(Protocol::Https, "*.b.example.com", 8443));
        for (protocol, host, port) in [
            (Protocol::Http, "api.github.com", 443),
            (Protocol::Https, "api.github.com", 8443),
            (Protocol::Https, "x.api.github.com", 443),
            (Protocol::Https, "*.github.com", 443),
            (Protocol::Https, "*", 8443),
            (Protocol::Https, "example.com", 8443),
        ] {
            assert!(!is_for(protocol, host, port), "{protocol:?} {host} {port}");
        }
    }

    #[test]
    fn each_problem_names_its_field_and_what_to_do() {
        let some = |text: &str| Some(text.to_owned());
        let host = |text: &str| DraftCredential { hosts: vec![text.to_owned()], ..draft() };
        for (draft, field, message) in [
            (DraftCredential { name: "a b".to_owned(), ..draft() }, "a b", "not a credential's name"),
            (DraftCredential { hosts: Vec::new(), ..draft() }, "github.hosts", "names no host"),
            (host("http://api.github.com"), "github.hosts[0]", "clear text"),
            (host("api.github.com"), "github.hosts[0]", "must begin with its scheme"),
            (host("ftp://api.github.com"), "github.hosts[0]", "must begin with its scheme"),
            (host("https://api.github.com/x"), "github.hosts[0]", "without a path"),
            (host("https://api.github.com:0"), "github.hosts[0]", "a port from 1"),
            (host("https://api.github.com:+44"), "github.hosts[0]", "a port from 1"),
            (host("https://user@api.github.com"), "github.hosts[0]", "in ASCII"),
            (host("https://10.0.0.1"), "github.hosts[0]", "not an address"),
            (host("https://*"), "github.hosts[0]", "every host"),
            (host("https://*.com"), "github.hosts[0]", "every host"),
            (DraftCredential { header: some("a b"), ..draft() }, "github.header", "the name of a header"),
            (
                DraftCredential { header: some("Content-Length"), ..draft() },
                "github.header",
                "servers read the request",
            ),
            (DraftCredential { prefix: some("a\nb"), ..draft() }, "github.prefix", "ASCII text"),
            (DraftCredential { basic: some("a:b"), ..draft() }, "github.basic", "without `:`"),
            (DraftCredential { basic: some("a"), prefix: some("b"), ..draft() }, "github.prefix", "remove it"),
            (DraftCredential { query: some("a&b"), ..draft() }, "github.query", "the name of a parameter"),
            (DraftCredential { basic: some("a"), query: some("b"), ..draft() }, "github", "more than one of"),
            (DraftCredential { methods: vec!["get".to_owned()], ..draft() }, "github.methods[0]", "must be one of"),
            (DraftCredential { paths: vec!["x".to_owned()], ..draft() }, "github.paths[0]", "must begin with `/`"),
            (DraftCredential { variable: some("9A"), ..draft() }, "github.variable", "not a valid variable name"),
            (
                DraftCredential { variable: some("LD_PRELOAD"), ..draft() },
                "github.variable",
                "not a valid variable name",
            ),
            (
                DraftCredential { placeholder: some("a b"), ..draft() },
                "github.placeholder",
                "beginning of the placeholder",
            ),
        ] {
            let found = problems(&draft);
            let start = format!("{field}: ");
            assert!(
                found.len() == 1 && found[0].starts_with(&start) && found[0].contains(message),
                "{field}: {found:?}"
            );
        }
        let clear = DraftCredential { clear_text: true, ..host("http://internal.example.com") };
        assert_eq!(Credential::new(&clear).unwrap().shown_hosts(), "http://internal.example.com:80");
    }

    #[test]
    fn safe_methods_alone_only_read() {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(only_reads([&list(&["GET"]), &[]]) && only_reads([&[], &list(&["GET", "HEAD"])]));
        assert!(only_reads([&list(&["GET", "POST"]), &list(&["GET"])]), "both have to allow it");
        assert!(!only_reads([&[], &[]]) && !only_reads([&list(&["GET", "DELETE"]), &[]]));
    }
}
