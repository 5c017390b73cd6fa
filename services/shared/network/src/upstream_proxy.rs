//! A proxy of the operator's own network, behind which hosts are reached.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::host::{Host, HostOrAddress, HostPattern};

/// The proxy behind which hosts are reached, with those that are reached directly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamProxy {
    /// Its name or its address.
    pub host: HostOrAddress,
    /// Its port.
    pub port: u16,
    /// The hosts that are reached without it.
    pub direct: Vec<HostPattern>,
}

impl fmt::Display for UpstreamProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}:{}", self.host, self.port)
    }
}

impl UpstreamProxy {
    /// Reads `http://proxy.example.com:3128`, and the hosts that are reached directly.
    ///
    /// # Errors
    /// The problem with the URL, after the name of its field.
    pub fn parse(url: &str, direct: Vec<HostPattern>) -> Result<Self, String> {
        let rest = match url.split_once("://") {
            Some(("http", rest)) => rest.strip_suffix('/').unwrap_or(rest),
            Some(("https", _)) => {
                return Err("must be an `http://` URL: the proxy itself is spoken with in clear text".to_owned());
            }
            _ => return Err("must be a URL such as http://proxy.example.com:3128".to_owned()),
        };
        if rest.contains('@') {
            return Err("must not contain a user: a proxy that wants one is not supported".to_owned());
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, digits)) if !host.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                (host, digits.parse().ok().filter(|port| *port > 0))
            }
            _ => return Err("must have a port, such as http://proxy.example.com:3128".to_owned()),
        };
        let port = port.ok_or("must have a port from 1 to 65535")?;
        let host = HostOrAddress::parse(host).map_err(|problem| problem.message().to_owned())?;
        Ok(Self { host, port, direct })
    }

    /// Whether a host is reached through it.
    pub fn is_for(&self, host: &Host) -> bool {
        !self.direct.iter().any(|direct| direct.matches(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_url_without_a_user() {
        let parse = |url: &str| UpstreamProxy::parse(url, Vec::new()).map(|proxy| proxy.to_string());
        for url in ["http://proxy.example.com:3128", "http://10.0.0.1:8080", "http://[fd00::1]:8080"] {
            assert_eq!(parse(url).as_deref(), Ok(url));
        }
        assert_eq!(parse("http://proxy:3128/").as_deref(), Ok("http://proxy:3128"));
        for (url, says) in [
            ("https://proxy:3128", "must be an `http://` URL"),
            ("proxy:3128", "must be a URL"),
            ("http://proxy", "must have a port"),
            ("http://proxy:0", "must have a port"),
            ("http://proxy:70000", "must have a port"),
            ("http://me:secret@proxy:3128", "must not contain a user"),
            ("http://proxy/x:1", "must be the name of a host"),
            ("http://:3128", "must have a port"),
        ] {
            let problem = parse(url).unwrap_err();
            assert!(problem.starts_with(says) && !problem.contains("secret"), "{url}: {problem}");
        }
    }

    #[test]
    fn some_hosts_are_reached_directly() {
        let direct = ["*.corp.example.com", "git.example.com"].map(|text| HostPattern::parse(text).unwrap()).into();
        let proxy = UpstreamProxy::parse("http://proxy:3128", direct).unwrap();
        let is_for = |name: &str| proxy.is_for(&Host::parse(name).unwrap());
        assert!(is_for("pypi.org") && is_for("corp.example.com"));
        assert!(!is_for("a.corp.example.com") && !is_for("git.example.com"));
    }
}
