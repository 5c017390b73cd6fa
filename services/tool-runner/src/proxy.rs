//! The proxy of this runner: started when a command first needs it, and again when it has ended.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use belay_network::Profile;
use belay_proto::v1::ErrorClass;
use belay_proxy::{Budget, CommandSockets, OpenAccess, Proxy, ProxyError, Report, ServiceUser};
use belay_reasons as reasons;

use crate::{SandboxSettings, ToolFailure, lock::lock};

/// The proxy of this runner.
#[derive(Debug)]
pub(crate) struct ProxyHolder {
    executable: PathBuf,
    /// The user that it becomes if the runner is root: that of commands.
    user: ServiceUser,
    running: Mutex<Option<RunningProxy>>,
}

/// A proxy, and the state of the files from which it knows how this machine resolves names: it reads them once, before it confines itself.
#[derive(Debug)]
struct RunningProxy {
    proxy: Arc<Proxy>,
    resolver: [Option<FileState>; 2],
}

/// The state of a file: device, inode, size and time of modification.
type FileState = (u64, u64, u64, i64, i64);

/// The files by which this machine resolves names.
fn resolver_files() -> [Option<FileState>; 2] {
    ["/etc/resolv.conf", "/etc/hosts"].map(|file| {
        let file = fs::metadata(file).ok()?;
        Some((file.dev(), file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
    })
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
        let resolver = resolver_files();
        match running.take() {
            Some(known) if known.proxy.is_alive() && known.resolver == resolver => {
                let proxy = Arc::clone(&known.proxy);
                *running = Some(known);
                return Ok(proxy);
            }
            // Commands that have a network keep the earlier one until they end.
            Some(known) if known.proxy.is_alive() => {
                tracing::info!("This machine resolves names in another way now, and the proxy of commands is replaced");
            }
            Some(_) => tracing::warn!("The proxy of commands has ended, and is started again"),
            None => {}
        }
        let proxy = Arc::new(Proxy::start(&self.executable, self.user).map_err(|error| unavailable(&error))?);
        *running = Some(RunningProxy { proxy: Arc::clone(&proxy), resolver });
        Ok(proxy)
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

/// The network of a command, with the proxy behind it, which lives as long.
#[derive(Debug)]
pub(crate) struct CommandAccess {
    access: OpenAccess,
    _proxy: Arc<Proxy>,
}

impl CommandAccess {
    /// Opens the network of a command.
    ///
    /// # Errors
    /// NETWORK_UNAVAILABLE.
    pub(crate) fn open(proxy: Arc<Proxy>, profile: &Profile, sockets: CommandSockets) -> Result<Self, ToolFailure> {
        let access = proxy.open(profile, sockets, Budget::default()).map_err(|error| unavailable(&error))?;
        Ok(Self { access, _proxy: proxy })
    }

    /// Closes everything of the command at once, and returns the account of it. Blocks for at most `wait`.
    pub(crate) fn close(self, wait: Duration) -> Report {
        self.access.close(wait)
    }
}

/// The failure of a call whose network could not be opened.
fn unavailable(why: &ProxyError) -> ToolFailure {
    let message = format!("The network of the command could not be opened: {why}.");
    ToolFailure::new(ErrorClass::Transient, reasons::NETWORK_UNAVAILABLE, message)
}
