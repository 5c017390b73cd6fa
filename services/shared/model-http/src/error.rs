//! The reasons why a server cannot be asked.

use thiserror::Error;

/// A server cannot be asked.
#[derive(Debug, Error)]
pub enum InvalidServer {
    /// There are no certificate authorities to check it with.
    #[error(
        "has an https URL, and no certificate authority was found on this machine: install them (ca-certificates), or name a file in SSL_CERT_FILE{0}"
    )]
    NoAuthorities(String),
    /// The client cannot be made.
    #[error("cannot be asked: {0}")]
    Client(String),
}
