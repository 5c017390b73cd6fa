//! The proxy of a runner: a process that was attacked before it is used.

use std::{os::unix::net::UnixStream, path::Path};

use belay_network::Profile;

use crate::{
    access::CommandSockets,
    budget::Budget,
    client::{OpenAccess, ProxyProcess, ServiceUser},
    error::ProxyError,
    injection::CallCredential,
    self_test,
    wire::ProxySettings,
};

/// A running proxy process. Dropping this ends the process, and so does the end of the runner; then every network that it served is closed.
#[derive(Debug)]
pub struct Proxy(ProxyProcess);

impl Proxy {
    /// Executes `executable`, which is this program, as the proxy; waits until it has confined itself, and attacks it. If the runner is root, the proxy becomes
    /// `user`. Blocks for some milliseconds.
    ///
    /// # Errors
    /// When the process cannot be started or confined, or an attack is not refused.
    pub fn start(executable: &Path, user: ServiceUser, settings: &ProxySettings) -> Result<Self, ProxyError> {
        let process = ProxyProcess::start(executable, user, settings)?;
        self_test::attack(&process)?;
        Ok(Self(process))
    }

    /// Returns whether the process runs. A proxy that has ended is replaced by another one.
    pub fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    /// Returns the certificate (PEM) of its authority, which certifies hosts whose requests carry a credential.
    pub fn certificate(&self) -> &str {
        self.0.certificate()
    }

    /// Returns the names of what confines the process.
    pub fn enforced(&self) -> Vec<String> {
        self.0.enforced()
    }

    /// Returns the id of the process.
    pub fn process_id(&self) -> u32 {
        self.0.id()
    }

    /// Hands the sockets of a call to the proxy, which serves them under the profile until the call's access is closed. Blocks for about a millisecond.
    ///
    /// # Errors
    /// When a socket is for a service that the profile does not have, or the process has ended. No socket is open then.
    pub fn open(
        &self,
        profile: &Profile,
        sockets: CommandSockets,
        credentials: &[CallCredential],
        budget: Budget,
    ) -> Result<OpenAccess, ProxyError> {
        self.0.open(profile, sockets, credentials, budget)
    }
    /// Hands the proxy one end of a connected pair of sockets. It serves one request of a tool on it, under the profile (see [`Profile::for_tools`]), until the access is closed. The request is
    /// in absolute form: `http://host…` or `https://host…`, with which the proxy speaks TLS. Blocks for about a millisecond.
    ///
    /// # Errors
    /// When the process has ended, or has no free descriptors. The connection is closed then.
    pub fn serve_tool(
        &self,
        profile: &Profile,
        client: UnixStream,
        credentials: &[CallCredential],
        budget: Budget,
    ) -> Result<OpenAccess, ProxyError> {
        self.0.serve_tool(profile, client, credentials, budget)
    }
}
