//! The bounds of one call.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The bounds of one call: what goes beyond them is refused or closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The most bytes in both directions together.
    pub bytes: u64,
    /// The most connections.
    pub connections: u64,
    /// The most connections at one time.
    pub open_connections: u32,
    /// The most bytes of the head of a request, and of a TLS ClientHello.
    pub header_bytes: usize,
    /// The most headers of a request.
    pub headers: usize,
    /// The most names to which the name server gives an address.
    pub names: usize,
    /// The most connections and questions that a report lists; the rest is counted.
    pub listed: usize,
    /// The longest time until the head of a request, a TLS ClientHello or a question is complete.
    pub head_time: Duration,
    /// The longest time for the resolution of a name and the connection to its host together.
    pub connect_time: Duration,
    /// The longest time in which nothing is sent or received.
    pub idle_time: Duration,
    /// The most tokens of models behind base URLs: a request after them is refused. `None`: no bound.
    pub tokens: Option<u64>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            bytes: 16 << 30,
            connections: 100_000,
            open_connections: 256,
            header_bytes: 64 << 10,
            headers: 100,
            names: 4_096,
            listed: 1_000,
            head_time: Duration::from_secs(10),
            connect_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(300),
            tokens: None,
        }
    }
}
