//! The addresses of servers.

use std::{path::PathBuf, str::FromStr};

/// A server, as people write it: `unix:/path` or `http://host:port`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// A socket on this machine.
    Unix(PathBuf),
    /// A server over TCP, by its URL.
    Http(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return match path.starts_with('/') {
                true => Ok(Address::Unix(path.into())),
                false => Err("the path of a socket is absolute: unix:/path/to/socket".to_owned()),
            };
        }
        if text.starts_with("https://") {
            return Err("this version speaks no TLS: use unix:/path, or http:// to a proxy on this machine".to_owned());
        }
        let url = text.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        match url.map(|rest| (rest, rest.rsplit_once(':'))) {
            Some((rest, Some((host, port))))
                if !host.is_empty() && !rest.contains('/') && port.parse::<u16>().is_ok() =>
            {
                Ok(Address::Http(format!("http://{rest}")))
            }
            _ => Err("write unix:/path/to/socket or http://host:port".to_owned()),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Http(url) => f.write_str(url),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_are_written() {
        assert_eq!("unix:/run/b.sock".parse(), Ok(Address::Unix("/run/b.sock".into())));
        assert_eq!("unix:///run/b.sock".parse(), Ok(Address::Unix("/run/b.sock".into())));
        assert_eq!("http://h:1/".parse(), Ok(Address::Http("http://h:1".to_owned())));
        assert_eq!("http://[::1]:7".parse(), Ok(Address::Http("http://[::1]:7".to_owned())));
        for wrong in
            ["", "h:1", "unix:b.sock", "https://h:1", "http://h", "http://:1", "http://h:99999", "http://h:1/x"]
        {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }
}
