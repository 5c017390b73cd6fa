//! The proxy of this runner: started when a command first needs it, and again when it has ended.

use std::{
    fs,
    os::unix::{fs::MetadataExt as _, net::UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use belay_network::{Profile, UpstreamProxy};
use belay_proto::v1::ErrorClass;
use belay_proxy::{
    AskedHosts, Budget, CallCredential, CommandSockets, OpenAccess, Proxy, ProxyError, ProxySettings, Report,
    ServiceUser,
};
use belay_reasons as reasons;
use belay_settings::NetworkLimits;

use crate::{
    CommandSettings, ToolFailure,
    lock::lock,
    trust::{self, TrustFiles},
};

/// The proxy of this runner.
#[derive(Debug)]
pub(crate) struct ProxyHolder {
    executable: PathBuf,
    /// The user that it becomes if the runner is root: that of commands.
    user: ServiceUser,
    /// The operator's own certificate authorities.
    authorities: Vec<PathBuf>,
    /// The bounds of one command.
    budget: Budget,
    /// The proxy behind which hosts are reached.
    upstream: Option<UpstreamProxy>,
    /// The directory for the certificates that commands trust.
    certificates_in: Option<PathBuf>,
    /// Files that no other process may read, which the proxy tries before it serves.
    closed: Vec<PathBuf>,
    running: Mutex<Option<RunningProxy>>,
}

/// A proxy, and the state of the files from which it knows how this machine resolves names: it reads them once, before it confines itself.
#[derive(Debug)]
struct RunningProxy {
    proxy: Arc<CommandProxy>,
    resolver: [Option<FileState>; 2],
}

/// A proxy with the certificates that commands trust because of it.
#[derive(Debug)]
pub(crate) struct CommandProxy {
    proxy: Proxy,
    /// The operator's own certificate authorities.
    authorities: Vec<String>,
    /// The bounds of one command.
    budget: Budget,
    /// The files, written when the first command needs them.
    trust: OnceLock<Result<TrustFiles, String>>,
    certificates_in: Option<PathBuf>,
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
    pub(crate) fn new(settings: &CommandSettings) -> Self {
        let sandbox = settings.sandbox();
        Self {
            executable: sandbox.executable,
            user: ServiceUser { uid: sandbox.service_uid, gid: sandbox.service_gid },
            authorities: settings.authorities().to_vec(),
            budget: budget(settings.network_limits()),
            upstream: settings.upstream_proxy().cloned(),
            certificates_in: settings.certificates_in(),
            closed: settings.closed_files(),
            running: Mutex::new(None),
        }
    }

    /// The proxy, started if it does not run. Blocks until it has confined itself and refused its own attacks.
    ///
    /// # Errors
    /// NETWORK_UNAVAILABLE.
    pub(crate) fn running(&self) -> Result<Arc<CommandProxy>, ToolFailure> {
        let mut running = lock(&self.running);
        let resolver = resolver_files();
        match running.take() {
            Some(known) if known.proxy.proxy.is_alive() && known.resolver == resolver => {
                let proxy = Arc::clone(&known.proxy);
                *running = Some(known);
                return Ok(proxy);
            }
            // Commands that have a network keep the earlier one until they end.
            Some(known) if known.proxy.proxy.is_alive() => {
                tracing::info!("This machine resolves names in another way now, and the proxy of commands is replaced");
            }
            Some(_) => tracing::warn!("The proxy of commands has ended, and is started again"),
            None => {}
        }
        let authorities = self.authorities.iter().map(|file| authority(file)).collect::<Result<Vec<_>, _>>()?;
        let settings = ProxySettings { authorities, upstream: self.upstream.clone(), closed: self.closed.clone() };
        let proxy = Proxy::start(&self.executable, self.user, &settings).map_err(|error| unavailable(&error))?;
        let (certificates_in, budget) = (self.certificates_in.clone(), self.budget.clone());
        let proxy = Arc::new(CommandProxy {
            proxy,
            authorities: settings.authorities,
            budget,
            trust: OnceLock::new(),
            certificates_in,
        });
        *running = Some(RunningProxy { proxy: Arc::clone(&proxy), resolver });
        Ok(proxy)
    }
}

/// Starts a proxy like that of a runner with these settings, attacks it, and ends it. Returns the names of what confines it. Blocks for tens of milliseconds.
///
/// # Errors
/// Why commands that ask for a network would be refused.
pub fn check_network(settings: &CommandSettings) -> Result<Vec<String>, String> {
    let proxy = ProxyHolder::new(settings).running().map_err(|failure| failure.message)?;
    Ok(proxy.enforced())
}

/// The bounds of one command, as the proxy takes them.
fn budget(limits: &NetworkLimits) -> Budget {
    Budget {
        bytes: limits.bytes.value,
        connections: limits.connections.value,
        open_connections: u32::try_from(limits.open_connections.value).unwrap_or(u32::MAX),
        idle_time: Duration::from_secs(limits.idle.value),
        ..Budget::default()
    }
}

/// The operator's certificate authorities in a file.
fn authority(file: &Path) -> Result<String, ToolFailure> {
    let refused = |why: String| not_opened(&format_args!("`network.authorities` names {}, {why}", file.display()));
    let text = fs::read_to_string(file).map_err(|error| refused(format!("which cannot be read: {error}")))?;
    trust::problem(&text).map_or(Ok(text), |problem| Err(refused(format!("which {problem}"))))
}

impl CommandProxy {
    /// The names of what confines it.
    pub(crate) fn enforced(&self) -> Vec<String> {
        self.proxy.enforced()
    }

    /// Whether commands under this profile need other certificates than those of this machine.
    fn changes_trust(&self, profile: &Profile) -> bool {
        profile.reads_tls() || !self.authorities.is_empty()
    }

    /// The certificates that a command under this profile trusts; `None`: those of this machine.
    ///
    /// # Errors
    /// NETWORK_UNAVAILABLE.
    pub(crate) fn trust(&self, profile: &Profile) -> Result<Option<&TrustFiles>, ToolFailure> {
        if !self.changes_trust(profile) {
            return Ok(None);
        }
        let written = self.trust.get_or_init(|| {
            let directory = self.certificates_in.as_deref().ok_or("this runner keeps no files")?;
            // A machine without certificates trusts nobody.
            let of_machine =
                trust::OF_MACHINE.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
            let texts = [of_machine.as_str(), self.proxy.certificate()];
            let all = texts.into_iter().chain(self.authorities.iter().map(String::as_str));
            // Nothing but certificates: other parts of the files are not for commands.
            let certificates: Vec<Vec<u8>> = all.flat_map(trust::certificates).collect();
            TrustFiles::write(directory, &trust::pem_of(&certificates))
                .map_err(|error| format!("cannot write the certificates to {}: {error}", directory.display()))
        });
        written.as_ref().map(Some).map_err(|why| not_opened(why))
    }
}

/// The network of a command, with the proxy behind it, which lives as long.
#[derive(Debug)]
pub(crate) struct CommandAccess {
    access: OpenAccess,
    _proxy: Arc<CommandProxy>,
}

impl CommandAccess {
    /// Opens the network of a command, which may use at most so many tokens of models behind base URLs.
    ///
    /// # Errors
    /// NETWORK_UNAVAILABLE.
    pub(crate) fn open(
        proxy: Arc<CommandProxy>,
        profile: &Profile,
        sockets: CommandSockets,
        credentials: &[CallCredential],
        tokens: Option<u64>,
    ) -> Result<Self, ToolFailure> {
        let access = proxy
            .proxy
            .open(profile, sockets, credentials, Budget { tokens, ..proxy.budget.clone() })
            .map_err(|error| unavailable(&error))?;
        Ok(Self { access, _proxy: proxy })
    }

    /// Has the proxy serve one request of a tool, which is sent over the connection.
    ///
    /// # Errors
    /// NETWORK_UNAVAILABLE.
    pub(crate) fn of_tool(
        proxy: Arc<CommandProxy>,
        profile: &Profile,
        credentials: &[CallCredential],
    ) -> Result<(UnixStream, Self), ToolFailure> {
        let (client, served) = UnixStream::pair().map_err(|error| not_opened(&error))?;
        let access = proxy
            .proxy
            .serve_tool(profile, served, credentials, proxy.budget.clone())
            .map_err(|error| unavailable(&error))?;
        Ok((client, Self { access, _proxy: proxy }))
    }

    /// Takes the questions about hosts, once.
    pub(crate) fn take_questions(&mut self) -> Option<AskedHosts> {
        self.access.take_questions()
    }

    /// Closes everything of the command at once, and returns the account of it. Blocks for at most `wait`.
    pub(crate) fn close(self, wait: Duration) -> Report {
        self.access.close(wait)
    }
}

/// The failure of a call whose network could not be opened.
fn unavailable(why: &ProxyError) -> ToolFailure {
    not_opened(why)
}

fn not_opened(why: &dyn std::fmt::Display) -> ToolFailure {
    let message = format!("The network of the call could not be opened: {why}.");
    ToolFailure::new(ErrorClass::Transient, reasons::NETWORK_UNAVAILABLE, message)
}
