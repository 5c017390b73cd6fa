//! The rules of profiles.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{credential::Credential, host::HostPattern, protocol::Protocol};

/// The most ports and services of this machine in one profile, each of which is a socket of every command.
pub(crate) const MAX_SOCKETS: usize = 64;

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

    /// Reads a port or a range.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
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
    /// Whether a person is asked about each host and port before it is reached.
    pub ask: bool,
    /// The credential that requests to the hosts carry. Then requests inside of TLS are read.
    pub credential: Option<Box<Credential>>,
    /// The URL in clear text at which commands reach the host, and only there. It has one host and one port then.
    pub base_url: Option<BaseUrl>,
    /// Whether every request is read although the rule has no credential: the proxy makes it (see [`Profile::for_tools`]), or another rule of the profile has
    /// one for the same hosts and ports.
    pub is_read: bool,
    /// Where it comes from.
    pub origin: Origin,
}

/// A URL in clear text in the network of a command, behind which is one host.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BaseUrl {
    /// The variable that has it.
    pub variable: String,
    /// Its path, such as `/v1`; empty without one.
    pub path: String,
}

impl Rule {
    /// Whether it, or its credential, is for some methods or paths only.
    pub fn limits_requests(&self) -> bool {
        let of_credential = self.credential.iter().flat_map(|credential| [&credential.methods, &credential.paths]);
        [&self.methods, &self.paths].into_iter().chain(of_credential).any(|list| !list.is_empty())
    }

    /// Whether requests inside of TLS to its hosts are read for the sake of its credential.
    pub(crate) fn reads_tls(&self) -> bool {
        self.protocol == Protocol::Https && self.credential.is_some() && self.base_url.is_none()
    }

    /// Whether it has all hosts and ports of another one.
    pub(crate) fn has_all_of(&self, other: &Self) -> bool {
        let has = |ports: &Ports| self.ports.iter().any(|own| own.first <= ports.first && ports.last <= own.last);
        self.host.contains(&other.host) && other.ports.iter().all(has)
    }

    /// Whether it limits requests that cannot be read.
    pub fn is_unenforced_inside_tls(&self) -> bool {
        let is_read = self.is_read || self.protocol == Protocol::Http || self.credential.is_some();
        let is_limited = !self.methods.is_empty() || !self.paths.is_empty();
        is_limited && !is_read
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
        if self.ask {
            f.write_str(" (a person is asked)")?;
        }
        if let Some(BaseUrl { variable, path }) = &self.base_url {
            write!(f, " (only at ${variable}")?;
            if !path.is_empty() {
                write!(f, " with the path {path}")?;
            }
            f.write_str(")")?;
        }
        if let Some(Credential { name, placement, methods, paths, .. }) = self.credential.as_deref() {
            write!(f, " (with the credential {name} {placement}")?;
            if !(methods.is_empty() && paths.is_empty()) {
                f.write_str(", which is for")?;
            }
            if !methods.is_empty() {
                write!(f, " {}", methods.join(","))?;
            }
            for path in paths {
                write!(f, " {path}")?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}
