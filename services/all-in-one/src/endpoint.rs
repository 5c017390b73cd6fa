//! Where the services listen.

use std::path::PathBuf;

/// The address of the services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A unix socket.
    Unix(PathBuf),
    /// TCP, with the token to send.
    Tcp {
        /// `http://host:port`.
        url: String,
        /// The token to send.
        token: Option<String>,
    },
}
