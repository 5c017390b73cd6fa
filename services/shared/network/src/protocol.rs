//! What may be spoken with a host.

use serde::{Deserialize, Serialize};

/// The methods that a rule may name (RFC 9110, RFC 5789).
pub(crate) const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"];

/// The protocol that may be spoken with a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// TLS whose server name is the host's. What is in it is not read.
    Https,
    /// HTTP in clear text: each request is read.
    Http,
    /// Anything.
    Tcp,
}

impl Protocol {
    /// The words in settings.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("https", Self::Https), ("http", Self::Http), ("tcp", Self::Tcp)];

    /// Its name in settings.
    pub fn word(self) -> &'static str {
        match self {
            Self::Https => "https",
            Self::Http => "http",
            Self::Tcp => "tcp",
        }
    }
}
