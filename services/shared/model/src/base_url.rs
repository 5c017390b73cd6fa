//! Where the server of a model is.

use core::net::IpAddr;
use std::fmt;

use belay_network::{HostOrAddress, Protocol};

/// The address that the paths of an API are added to: `http://127.0.0.1:11434/v1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseUrl {
    /// `https` or `http`.
    pub protocol: Protocol,
    /// The host.
    pub host: HostOrAddress,
    /// The port.
    pub port: u16,
    /// The path before that of the API, without a slash at its end; empty for none.
    pub path: String,
}

impl BaseUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// The problem and what to do, after the name of the field. It does not repeat the URL: somebody may have written a key there.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (protocol, rest) = match text.split_once("://") {
            Some(("https", rest)) => (Protocol::Https, rest),
            Some(("http", rest)) => (Protocol::Http, rest),
            _ => return Err("must begin with https:// or http://, such as http://127.0.0.1:11434/v1"),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("must not contain a user or a key: name a credential with `credential`");
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-._~%:@!$&'()*+,;=".contains(c);
        if text.contains(['?', '#']) || !path.chars().all(is_plain) {
            return Err("must be a scheme, a host and a path, without `?`, `#` and blanks");
        }
        let digits = |port: &str| match port.strip_prefix(':') {
            None if port.is_empty() => Some(if protocol == Protocol::Https { 443 } else { 80 }),
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port > 0)
            }
            _ => None,
        };
        let (host, port) = match authority.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(None) => return Err("must close the `[` of an IPv6 address with `]`, such as http://[::1]:8080/v1"),
            Some(Some(parts)) => parts,
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let host = HostOrAddress::parse(host)
            .map_err(|_| "must name a host: letters, digits, `.`, `-` and `_`, or an address")?;
        let port = digits(port).ok_or("must have a port from 1 to 65535 after the host's `:`, or none")?;
        Ok(Self { protocol, host, port, path: path.trim_end_matches('/').to_owned() })
    }

    /// Whether the server is on this machine, by its address or as `localhost`. Other names may lead anywhere.
    pub fn is_local(&self) -> bool {
        match &self.host {
            HostOrAddress::Address(IpAddr::V4(address)) => address.is_loopback(),
            HostOrAddress::Address(IpAddr::V6(address)) => {
                address.is_loopback() || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
            }
            HostOrAddress::Name(name) => name.as_str() == "localhost",
        }
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_protocol = if self.protocol == Protocol::Https { 443 } else { 80 };
        write!(f, "{}://{}", self.protocol.word(), self.host)?;
        if self.port != of_protocol {
            write!(f, ":{}", self.port)?;
        }
        f.write_str(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_read_and_shown() {
        for (text, shown) in [
            ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
            ("http://[::1]:8080/v1/", "http://[::1]:8080/v1"),
            ("https://API.example.com:443/a/b", "https://api.example.com/a/b"),
            ("https://api.example.com", "https://api.example.com"),
            ("http://192.168.1.7:80", "http://192.168.1.7"),
        ] {
            assert_eq!(BaseUrl::parse(text).unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_url() {
        for (text, says) in [
            ("127.0.0.1:11434", "must begin with https://"),
            ("ftp://x", "must begin with https://"),
            ("https://key@x", "name a credential"),
            ("https://", "must name a host"),
            ("https:///v1", "must name a host"),
            ("http://[::1/v1", "must close the `[`"),
            ("http://x:0/v1", "must have a port"),
            ("http://x:+1/v1", "must have a port"),
            ("http://[::1]8080/v1", "must have a port"),
            ("https://x/v1?key=secret", "without `?`"),
            ("https://x/v 1", "without `?`"),
            ("https://exämple.com", "must name a host"),
        ] {
            let problem = BaseUrl::parse(text).unwrap_err();
            assert!(problem.contains(says), "{text}: {problem}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        let is_local = |text: &str| BaseUrl::parse(text).unwrap().is_local();
        for text in [
            "http://127.0.0.1",
            "http://127.8.9.1:1",
            "http://[::1]",
            "http://localhost:1",
            "http://[::ffff:127.0.0.1]",
        ] {
            assert!(is_local(text), "{text}");
        }
        for text in ["http://10.0.0.1", "https://localhost.example.com", "http://[::2]", "http://0.0.0.0", "http://gpu"]
        {
            assert!(!is_local(text), "{text}");
        }
    }
}
