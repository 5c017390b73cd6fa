//! The proxy of this runner: started when a command first needs it, and again when it has ended.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
};

use belay_network::Profile;
use belay_proto::v1::ErrorClass;
use belay_proxy::{Budget, CommandSockets, OpenAccess, Proxy, ProxyError, ServiceUser};
use belay_reasons as reasons;

use crate::{SandboxSettings, ToolFailure, lock::lock};

/// The proxy of this runner.
#[derive(Debug)]
pub(crate) struct ProxyHolder {
    executable: PathBuf,
    /// The user that it becomes if the runner is root: that of commands.
    user: ServiceUser,
    running: Mutex<Option<Arc<Proxy>>>,
}

impl ProxyHolder {
    /// A proxy that is not started yet, by the program and the user of these settings.
    pub(crate) fn new(settings: &SandboxSettings) -> Self {
        let user = ServiceUser { uid: settings.service_uid, gid: settings.service_gid };
        Self { executable: settings.executable.clone(), user, running: Mutex::new(None) }
    }

    /// The proxy, started if it does not run. Blocks until it has confined itself and refused its own attacks.
    ///
    /// # Errors
    /// NETWORK_UNAVAILABLE.
    pub(crate) fn running(&self) -> Result<Arc<Proxy>, ToolFailure> {
        let mut running = lock(&self.running);
        if let Some(proxy) = running.as_ref().filter(|proxy| proxy.is_alive()) {
            return Ok(Arc::clone(proxy));
        }
        if running.take().is_some() {
            tracing::warn!("The proxy of commands has ended, and is started again");
        }
        let started = Proxy::start(&self.executable, self.user).map_err(|error| unavailable(&error))?;
        Ok(Arc::clone(running.insert(Arc::new(started))))
    }
}

/// Starts a proxy like that of a runner with these settings, attacks it, and ends it. Returns the names of what confines it. Blocks for tens of milliseconds.
///
/// # Errors
/// Why commands that ask for a network would be refused.
pub fn check_network(settings: &SandboxSettings) -> Result<Vec<String>, String> {
    let proxy = ProxyHolder::new(settings).running().map_err(|failure| failure.message)?;
    Ok(proxy.enforced())
}

/// Opens the network of a command.
///
/// # Errors
/// NETWORK_UNAVAILABLE.
pub(crate) fn open(proxy: &Proxy, profile: &Profile, sockets: CommandSockets) -> Result<OpenAccess, ToolFailure> {
    proxy.open(profile, sockets, Budget::default()).map_err(|error| unavailable(&error))
}

/// The failure of a call whose network could not be opened.
fn unavailable(why: &ProxyError) -> ToolFailure {
    let message = format!("The network of the command could not be opened: {why}.");
    ToolFailure::new(ErrorClass::Transient, reasons::NETWORK_UNAVAILABLE, message)
}
