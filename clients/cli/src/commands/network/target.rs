//! Reads the URL of `belay network check` as a strict client would: an unusual spelling is an error, and never corrected.

use std::net::SocketAddr;

use belay_all_in_one::network::{Host, HostProblem, Traffic};

/// The host or address of a URL, and what would be spoken with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// The host.
    pub(super) host: TargetHost,
    /// The port.
    pub(super) port: u16,
    /// The protocol.
    protocol: TargetProtocol,
}

/// A host, or an address in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TargetHost {
    /// A name.
    Name(Host),
    /// An address, as it is written; without the address itself where only some programs read one.
    Address(String, Option<SocketAddr>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TargetProtocol {
    Unknown,
    /// HTTP inside of TLS, with the path.
    Https(String),
    /// HTTP in clear text, with the path.
    Http(String),
}

impl Target {
    /// The traffic, with this method. `reads_tls`: whether requests inside of TLS to the host are read.
    pub(super) fn traffic<'a>(&'a self, method: &'a str, reads_tls: bool) -> Traffic<'a> {
        match &self.protocol {
            TargetProtocol::Unknown => Traffic::Nothing,
            TargetProtocol::Https(path) if reads_tls => Traffic::TlsRequest { method, path },
            TargetProtocol::Https(_) => Traffic::Tls,
            TargetProtocol::Http(path) => Traffic::Request { method, path },
        }
    }

    /// Whether a method says something about it.
    pub(super) fn has_method(&self) -> bool {
        self.protocol != TargetProtocol::Unknown
    }
}

/// Reads `https://host[:port]/path`, `http://…` or `host:port`.
///
/// # Errors
/// The problem, and what to write.
pub(super) fn target(text: &str) -> Result<Target, String> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("has a character that no URL has: write spaces and other letters than those of ASCII as `%20`, international names in their `xn--` form".to_owned());
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (Some(scheme), rest),
        None => (None, text),
    };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if authority.contains('@') {
        return Err("has a user name: leave it out, because only host, port and path are judged".to_owned());
    }
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let requested = || if path.is_empty() { "/".to_owned() } else { path.to_owned() };
    let (default, protocol) = match scheme {
        Some("https") => (Some(443), TargetProtocol::Https(requested())),
        Some("http") => (Some(80), TargetProtocol::Http(requested())),
        Some(_) => return Err("must begin with https:// or http://, or be HOST:PORT".to_owned()),
        None if rest.len() > authority.len() => {
            return Err("has a path, but no https:// or http:// before the host".to_owned());
        }
        None => (None, TargetProtocol::Unknown),
    };
    let (name, port) = split(authority).ok_or("has a `[` without `]`")?;
    let port = match (port, default) {
        (Some(digits), _) => {
            let is_port = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let port = digits.parse().ok().filter(|port| is_port && *port > 0);
            port.ok_or("must have a port from 1 to 65535 after the host's `:`")?
        }
        (None, Some(port)) => port,
        (None, None) => return Err(format!("has no port: write https://{authority} or {authority}:443")),
    };
    let host = match Host::parse(name) {
        Ok(host) => TargetHost::Name(host),
        Err(HostProblem::Address) => TargetHost::Address(name.to_owned(), format!("{name}:{port}").parse().ok()),
        Err(problem) => return Err(format!("has the host `{name}`, which {problem}")),
    };
    Ok(Target { host, port, protocol })
}

/// The host and the port of an authority; `None` if a bracket is not closed.
fn split(authority: &str) -> Option<(&str, Option<&str>)> {
    if authority.starts_with('[') {
        let (name, port) = authority.split_at(authority.find(']')? + 1);
        // Something else than a port behind it is refused as one.
        return Some((name, (!port.is_empty()).then(|| port.strip_prefix(':').unwrap_or_default())));
    }
    Some(match authority.split_once(':') {
        Some((name, port)) => (name, Some(port)),
        None => (authority, None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (String, u16, String) {
        let target = target(text).unwrap_or_else(|why| panic!("{text}: {why}"));
        let host = match &target.host {
            TargetHost::Name(host) => host.to_string(),
            TargetHost::Address(text, address) => format!("{text} {address:?}"),
        };
        let traffic = format!("{:?}", target.traffic("PUT", false));
        (host, target.port, traffic)
    }

    #[test]
    fn a_url_has_a_host_a_port_and_a_protocol() {
        let request = |path: &str| format!("Request {{ method: \"PUT\", path: \"{path}\" }}");
        for (text, host, port, traffic) in [
            ("https://API.example.com", "api.example.com", 443, "Tls".to_owned()),
            ("https://api.example.com:8443/a?b=c@d", "api.example.com", 8443, "Tls".to_owned()),
            ("http://api.example.com", "api.example.com", 80, request("/")),
            ("http://api.example.com?x=/y", "api.example.com", 80, request("/")),
            ("http://api.example.com:8080/a/b?c#d", "api.example.com", 8080, request("/a/b")),
            ("db.example.com:5432", "db.example.com", 5432, "Nothing".to_owned()),
            ("10.0.0.1:5432", "10.0.0.1 Some(10.0.0.1:5432)", 5432, "Nothing".to_owned()),
            ("http://127.1/", "127.1 None", 80, request("/")),
            ("https://[::1]", "[::1] Some([::1]:443)", 443, "Tls".to_owned()),
            ("[::1]:80", "[::1] Some([::1]:80)", 80, "Nothing".to_owned()),
        ] {
            assert_eq!(read(text), (host.to_owned(), port, traffic), "{text}");
        }
    }

    #[test]
    fn a_request_inside_of_tls_has_a_path_where_it_is_read() {
        for (text, path) in [
            ("https://api.example.com", "/"),
            ("https://api.example.com?x", "/"),
            ("https://api.example.com/a/b?c", "/a/b"),
        ] {
            assert_eq!(
                target(text).unwrap().traffic("GET", true),
                Traffic::TlsRequest { method: "GET", path },
                "{text}"
            );
        }
        let plain = target("http://api.example.com/a").unwrap();
        assert_eq!(plain.traffic("GET", true), Traffic::Request { method: "GET", path: "/a" });
        assert_eq!(target("api.example.com:443").unwrap().traffic("GET", true), Traffic::Nothing);
    }

    #[test]
    fn another_spelling_is_an_error() {
        for (text, why) in [
            ("", "has no port"),
            ("example.com", "has no port: write https://example.com or example.com:443"),
            ("example.com/x", "has a path, but no https://"),
            ("ftp://example.com", "must begin with https:// or http://"),
            ("HTTPS://example.com", "must begin with https:// or http://"),
            ("git@github.com:a/b", "has a user name"),
            ("git@github.com:22", "has a user name"),
            ("https://me:pass@example.com/", "has a user name"),
            ("https://example.com:/", "must have a port"),
            ("https://example.com:0/", "must have a port"),
            ("https://example.com:+443/", "must have a port"),
            ("https://example.com:65536/", "must have a port"),
            ("https://a:b:443/", "must have a port"),
            ("https://[::1/", "has a `[`"),
            ("https://[::1]443/", "must have a port"),
            ("https:///x", "has the host ``, which must be the name of a host, of 1 to 253"),
            (
                "https://example.com./",
                "has the host `example.com.`, which must be the name of a host without the final dot",
            ),
            ("https://exa\\mple.com/", "has the host `exa\\mple.com`, which must be the name of a host in ASCII"),
            ("https://ex%61mple.com/", "has the host `ex%61mple.com`, which must be the name of a host in ASCII"),
            ("https://*.example.com/", "has the host `*.example.com`, which must be the name of a host in ASCII"),
            ("https://exämple.com/", "has a character that no URL has"),
            ("https://example.com/a b", "has a character that no URL has"),
        ] {
            let found = target(text).unwrap_err();
            assert!(found.starts_with(why), "{text}: {found}");
        }
    }
}
