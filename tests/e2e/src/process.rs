//! Programs of this repository as child processes.

use std::{
    path::{Path, PathBuf},
    process::{Command as Build, Stdio},
    sync::OnceLock,
};

use tokio::process::{Child, Command};

/// The path of `belay`: in the directory that `BELAY_TEST_BINARIES` names, else built if necessary. Cargo builds a package's programs only for that
/// package's own tests.
///
/// # Panics
/// When it does not build.
pub fn binary() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        if let Some(built) = std::env::var_os("BELAY_TEST_BINARIES") {
            return Path::new(&built).join("belay");
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Build::new(cargo).args(["build", "--quiet", "--package", "belay-cli", "--bin", "belay"]).status();
        assert!(status.expect("cargo runs").success(), "belay builds");
        // tests/e2e's own test program is in target/<profile>/deps.
        let this = std::env::current_exe().expect("a running program has a path");
        this.ancestors().nth(2).expect("target/<profile>/deps/<test>").join("belay")
    })
}

/// The user that a program runs as.
#[derive(Clone, Debug)]
pub struct ProcessUser {
    /// The user and the group of the same number.
    pub id: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl ProcessUser {
    /// The options for `setpriv`.
    pub fn flags(&self) -> Vec<String> {
        let groups: Vec<_> = self.groups.iter().map(u32::to_string).collect();
        let groups =
            if groups.is_empty() { "--clear-groups".to_owned() } else { format!("--groups={}", groups.join(",")) };
        vec![format!("--reuid={}", self.id), format!("--regid={}", self.id), groups]
    }
}

/// A running program; dropping this value kills it.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts `belay` as a service, which logs to the file `log`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(service: &str, arguments: &[&str], log: &Path) -> Self {
        Self::logging(service, arguments, log, None)
    }

    /// The same with a value for `BELAY_LOG`; `None` leaves the environment's.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn logging(service: &str, arguments: &[&str], log: &Path, filter: Option<&str>) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log can be written");
        let mut command = Command::new(binary());
        command.envs(filter.map(|filter| ("BELAY_LOG", filter)));
        command.arg(service).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        Self { child: command.spawn().expect("the program starts") }
    }

    /// Waits until it has exited; returns its exit code, unless a signal ended it.
    ///
    /// # Panics
    /// When the operating system returns an error.
    pub async fn ended(&mut self) -> Option<i32> {
        self.child.wait().await.expect("a child can be waited for").code()
    }

    /// Starts `belay` as a service and as another user, with `setpriv`; only root may. Its log goes to `log`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_as(user: &ProcessUser, service: &str, arguments: &[&str], log: &Path) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log can be written");
        let mut command = Command::new("setpriv");
        command.args(user.flags()).arg("--").arg(binary()).arg(service).args(arguments);
        // As under systemd, which sets the user's own.
        command.env("HOME", "/nonexistent").env_remove("XDG_CONFIG_HOME");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        Self { child: command.spawn().expect("the program starts") }
    }

    /// Kills it with SIGKILL, and waits for its end.
    ///
    /// # Panics
    /// When it cannot be ended.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child can be killed");
    }

    /// Its process id.
    ///
    /// # Panics
    /// When it has been killed.
    pub fn id(&self) -> u32 {
        self.child.id().expect("it was not waited for")
    }

    /// Whether it has exited.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}
