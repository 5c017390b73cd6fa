//! Addresses of services.

use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs as _},
    path::PathBuf,
    str::FromStr,
};

use thiserror::Error;

/// Where a service listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

/// Text that is not an address.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a valid address: write unix:/path/to/socket, host:port or http://host:port")]
pub struct InvalidAddress(String);

impl FromStr for Address {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        let host = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
        let resolved = host.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
        resolved.map(Self::Tcp).ok_or_else(|| InvalidAddress(text.to_owned()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "http://{address}"),
        }
    }
}
