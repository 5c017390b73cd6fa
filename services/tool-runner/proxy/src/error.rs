//! The reasons why there is no proxy, or no network for a call.

use std::{io, net::SocketAddr};

/// The reason why there is no proxy, or no network for a call. Nothing is open then.
#[derive(Debug, thiserror::Error)]
pub enum ProxyError {
    /// This program's `main` does not call [`crate::take_over_if_asked`].
    #[error("this program cannot be executed as the network proxy: its `main` has to call `take_over_if_asked` first")]
    NotReady,
    /// The process could not be started, or reached.
    #[error("the network proxy cannot be started: {doing}: {source}")]
    Start {
        /// The action that failed.
        doing: &'static str,
        /// The error.
        source: io::Error,
    },
    /// The process could not confine itself.
    #[error("the network proxy cannot confine itself: {message}")]
    Confinement {
        /// The reason, as the process gives it.
        message: String,
    },
    /// An attack of the start succeeded, or what is allowed did not work.
    #[error("the network proxy failed its test: {attack}: expected {expected}, but got {got}")]
    SelfTest {
        /// The attack.
        attack: &'static str,
        /// The answer that was expected.
        expected: &'static str,
        /// The answer.
        got: String,
    },
    /// A socket is for a service that the profile does not have.
    #[error("the network profile `{profile}` has no service {address}: add it to its `host_services`")]
    UnknownService {
        /// The profile.
        profile: String,
        /// The address.
        address: SocketAddr,
    },
    /// The proxy refused to open the network of a call.
    #[error("the network proxy cannot open the network of the command: {message}")]
    Refused {
        /// The reason, as the process gives it.
        message: String,
    },
    /// The process does not answer, and is given up: start another one.
    #[error("the network proxy did not answer in {seconds} s, and is replaced: make the call again")]
    NoReply {
        /// The time limit.
        seconds: u64,
    },
    /// The process has ended: start another one.
    #[error("the network proxy has ended, and is replaced: make the call again")]
    Lost,
}
