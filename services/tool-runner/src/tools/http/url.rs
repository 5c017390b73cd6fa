//! URLs of requests, read strictly: what can be read in two ways is refused. Pure.

use std::fmt;

use belay_network::{AccessDecision, AccessRequest, Host, HostProblem, Profile, Traffic};

/// The longest URL, in bytes.
const MAX_URL: usize = 8 * 1024;

/// A URL that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HttpUrl {
    /// Whether it is `https`.
    pub(crate) is_tls: bool,
    /// The host.
    pub(crate) host: Host,
    port: u16,
    /// The path with its query.
    path: String,
}

impl HttpUrl {
    /// Reads `http://host/path` or `https://host:port/path?query`.
    ///
    /// # Errors
    /// The problem, and what to do, after the name of the field.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_URL {
            return Err(format!("has {} bytes, and the limit is {MAX_URL}: send long values as the body", text.len()));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("must be a whole URL, such as `https://example.com/path`".to_owned());
        };
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err("must begin with `https://` or `http://`".to_owned()),
        };
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if path.contains('#') {
            return Err("must have no `#…`, which is not sent: leave it out, or escape the `#` as `%23`".to_owned());
        }
        let (host, port) = host_and_port(authority)?;
        let path = match path.as_bytes().first() {
            Some(b'/') => path.to_owned(),
            _ => format!("/{path}"),
        };
        if let Some(bad) = path.chars().find(|character| !is_of_path(*character)) {
            let bytes: String = bad.to_string().bytes().map(|byte| format!("%{byte:02X}")).collect();
            return Err(format!(
                "has the character `{}`, which has to be escaped: write `{bytes}`",
                bad.escape_debug()
            ));
        }
        let port = port.unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { is_tls, host, port, path })
    }

    /// The same with this parameter in its query, whose value is escaped.
    pub(crate) fn with_parameter(&self, name: &str, value: &str) -> Self {
        let between = match self.path.split_once('?') {
            Some((_, "")) => "",
            Some(_) => "&",
            None => "?",
        };
        let mut path = format!("{}{between}{name}=", self.path);
        for byte in value.bytes() {
            match byte {
                byte if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => path.push(char::from(byte)),
                byte => path.push_str(&format!("%{byte:02X}")),
            }
        }
        Self { path, ..self.clone() }
    }

    /// Why this profile does not allow a tool to ask for it; `None` when it does.
    pub(crate) fn refused_by(&self, profile: &Profile) -> Option<String> {
        let path = self.path.split('?').next().unwrap_or_default();
        let traffic = match self.is_tls {
            true => Traffic::TlsRequest { method: "GET", path },
            false => Traffic::Request { method: "GET", path },
        };
        match profile.for_tools().decide(AccessRequest { host: &self.host, port: self.port, traffic }) {
            AccessDecision::Allowed(_) => None,
            AccessDecision::Refused(refusal) => Some(refusal.to_string()),
        }
    }

    /// The value of the `Host` header.
    pub(crate) fn authority(&self) -> String {
        let default = if self.is_tls { 443 } else { 80 };
        if self.port == default { self.host.to_string() } else { format!("{}:{}", self.host, self.port) }
    }

    /// The URL to which a `Location` header leads from this one (RFC 3986, section 5.2), without its fragment.
    ///
    /// # Errors
    /// The problem, as [`HttpUrl::parse`].
    pub(crate) fn join(&self, location: &str) -> Result<Self, String> {
        let location = location.split('#').next().unwrap_or_default();
        let scheme = if self.is_tls { "https" } else { "http" };
        let has_scheme = location
            .split_once(':')
            .is_some_and(|(scheme, _)| !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        let (path, query) =
            self.path.split_once('?').map_or((self.path.as_str(), None), |(path, query)| (path, Some(query)));
        let whole = if has_scheme {
            location.to_owned()
        } else if location.starts_with("//") {
            format!("{scheme}:{location}")
        } else {
            let (to, to_query) = location.split_once('?').map_or((location, None), |(to, query)| (to, Some(query)));
            let merged = match to {
                "" => path.to_owned(),
                _ if to.starts_with('/') => without_dots(to),
                _ => without_dots(&format!(
                    "{}{to}",
                    path.rsplit_once('/').map_or("/", |(folder, _)| &path[..=folder.len()])
                )),
            };
            let query = if to.is_empty() { to_query.or(query) } else { to_query };
            format!(
                "{scheme}://{}{merged}{}",
                self.authority(),
                query.map(|query| format!("?{query}")).unwrap_or_default()
            )
        };
        Self::parse(&escaped(&whole))
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", if self.is_tls { "https" } else { "http" }, self.authority(), self.path)
    }
}

fn host_and_port(authority: &str) -> Result<(Host, Option<u16>), String> {
    if authority.contains('@') {
        return Err(
            "must have no user before the host: a credential of the network profile is put in by the proxy".to_owned()
        );
    }
    let (name, port) = match authority.split_once(':') {
        Some((name, port)) if !authority.starts_with('[') => (name, Some(port)),
        _ => (authority, None),
    };
    let port = port.map(|digits| {
        let is_number = (1..=5).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
        let port = if is_number { digits.parse::<u16>().ok() } else { None };
        port.filter(|port| *port > 0).ok_or_else(|| "must have a port from 1 to 65535".to_owned())
    });
    let host = Host::parse(name).map_err(|problem| match problem {
        HostProblem::Length => "must have a host, such as `https://example.com/path`".to_owned(),
        problem => format!("has the host `{}`, which {problem}", name.escape_debug()),
    })?;
    Ok((host, port.transpose()?))
}

/// Whether a path or a query may have this character (RFC 3986, and what servers take besides).
fn is_of_path(character: char) -> bool {
    character.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:@/?%[]|".contains(character)
}

/// A text whose other characters are escaped: hosts send such redirects, and all clients follow them.
fn escaped(url: &str) -> String {
    let mut text = String::with_capacity(url.len());
    for character in url.chars() {
        if is_of_path(character) {
            text.push(character);
        } else {
            let mut buffer = [0; 4];
            character.encode_utf8(&mut buffer).bytes().for_each(|byte| text.push_str(&format!("%{byte:02X}")));
        }
    }
    text
}

/// A path without `.` and `..`.
fn without_dots(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    let all: Vec<&str> = path.split('/').skip(1).collect();
    for (at, part) in all.iter().enumerate() {
        let is_last = at + 1 == all.len();
        match *part {
            "." | ".." => {
                if *part == ".." {
                    parts.pop();
                }
                if is_last {
                    parts.push("");
                }
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_in_one_way_or_refused() {
        for (text, expected) in [
            ("https://example.com", "https://example.com/"),
            ("HTTPS://Example.COM:443/A?b=c", "https://example.com/A?b=c"),
            ("http://example.com:8080?x", "http://example.com:8080/?x"),
            ("http://example.com:80/", "http://example.com/"),
        ] {
            assert_eq!(HttpUrl::parse(text).unwrap().to_string(), expected);
        }
        for (text, problem) in [
            ("example.com/x", "whole URL"),
            ("ftp://example.com/", "must begin with `https://`"),
            ("https://user:pass@example.com/", "no user before the host"),
            ("https://example.com@evil.example/", "no user before the host"),
            ("https:///path", "must have a host"),
            ("https://127.0.0.1/", "`127.0.0.1`, which must be the name of a host, not an address"),
            ("https://0x7f000001/", "not an address"),
            ("https://[::1]/", "not an address"),
            ("https://example.com./", "without the final dot"),
            ("https://exämple.com/", "`xn--`"),
            ("https://example.com:0/", "port from 1 to 65535"),
            ("https://example.com:/", "port from 1 to 65535"),
            ("https://example.com/#part", "must have no `#…`"),
            ("https://example.com#part", "must have no `#…`"),
            ("https://example.com/a b", "write `%20`"),
            ("https://example.com/ä", "write `%C3%A4`"),
            ("https://example.com/\r\nX: y", "write `%0D`"),
            ("https://example.com\\@evil.example/", "no user before the host"),
        ] {
            let refused = HttpUrl::parse(text).unwrap_err();
            assert!(refused.contains(problem), "{text}: {refused}");
        }
        assert!(HttpUrl::parse(&format!("https://example.com/{}", "x".repeat(MAX_URL))).unwrap_err().contains("limit"));
    }

    #[test]
    fn a_parameter_is_escaped() {
        for (text, value, expected) in [
            ("https://example.com/search", "a b&c=d#ä", "https://example.com/search?q=a%20b%26c%3Dd%23%C3%A4"),
            ("https://example.com/search?lang=de", "x", "https://example.com/search?lang=de&q=x"),
            ("https://example.com/?", "x\r\n", "https://example.com/?q=x%0D%0A"),
        ] {
            let url = HttpUrl::parse(text).unwrap().with_parameter("q", value);
            assert_eq!(url.to_string(), expected);
            assert_eq!(HttpUrl::parse(expected).unwrap(), url);
        }
    }

    #[test]
    fn a_redirect_is_resolved_against_the_url_that_was_asked_for() {
        let base = HttpUrl::parse("https://example.com:8443/a/b/c?q=1").unwrap();
        for (location, expected) in [
            ("https://other.example/x#part", "https://other.example/x"),
            ("http://example.com/", "http://example.com/"),
            ("//other.example/x", "https://other.example/x"),
            ("/x?y", "https://example.com:8443/x?y"),
            ("d", "https://example.com:8443/a/b/d"),
            ("d/", "https://example.com:8443/a/b/d/"),
            ("../d", "https://example.com:8443/a/d"),
            ("../../../d/./e/..", "https://example.com:8443/d/"),
            ("?z=2", "https://example.com:8443/a/b/c?z=2"),
            ("", "https://example.com:8443/a/b/c?q=1"),
            ("/a b/ä", "https://example.com:8443/a%20b/%C3%A4"),
            ("/x?u=https://other.example/", "https://example.com:8443/x?u=https://other.example/"),
        ] {
            assert_eq!(base.join(location).unwrap().to_string(), expected, "{location}");
        }
        for location in ["file:///etc/passwd", "javascript:alert(1)", "https://user@example.com/", "//127.0.0.1/"] {
            assert!(base.join(location).is_err(), "{location}");
        }
    }
}
