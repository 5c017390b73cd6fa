//! Programs of this repository as child processes.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    process::{Command as Build, Stdio},
    sync::Mutex,
    time::Duration,
};

use tokio::process::{Child, Command};

/// The path of a program of this workspace, built if it has to be. Cargo builds a package's programs only for that package's own tests.
///
/// # Panics
/// When it does not build.
pub fn binary(name: &str) -> PathBuf {
    static BUILT: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut built = BUILT.lock().expect("no builder panicked");
    let built = built.get_or_insert_default();
    if let Some(path) = built.get(name) {
        return path.clone();
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let package = if name == "belay" { "belay-cli" } else { name };
    let status = Build::new(cargo).args(["build", "--quiet", "--package", package, "--bin", name]).status();
    assert!(status.expect("cargo runs").success(), "{name} builds");
    // tests/e2e's own test program stands in target/<profile>/deps.
    let this = std::env::current_exe().expect("a running program has a path");
    let path = this.ancestors().nth(2).expect("target/<profile>/deps/<test>").join(name);
    built.insert(name.to_owned(), path.clone());
    path
}

/// A running program; ended with this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
}

impl Process {
    /// Starts a program of this workspace. Its log goes to `log`.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(name: &str, arguments: &[&str], log: &Path) -> Self {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).expect("a log can be written");
        let mut command = Command::new(binary(name));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        Self { child: command.spawn().expect("the program starts") }
    }

    /// `kill -9`, and waits until it is gone.
    ///
    /// # Panics
    /// When it cannot be ended.
    pub async fn kill(&mut self) {
        self.child.kill().await.expect("a child can be killed");
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }
}

/// Executor and tool runner, each in its own process, over unix sockets in one folder.
#[derive(Debug)]
pub struct Services {
    folder: PathBuf,
    /// The executor.
    pub executor: Process,
    /// The tool runner.
    pub runner: Process,
}

impl Services {
    /// Starts both and waits until they serve.
    pub async fn start(folder: &Path) -> Self {
        let services = Self {
            folder: folder.to_owned(),
            executor: Self::start_executor(folder),
            runner: Self::start_runner(folder),
        };
        services.ready().await;
        services
    }

    /// Kills the executor and starts it again.
    pub async fn restart_executor(&mut self) {
        self.executor.kill().await;
        self.executor = Self::start_executor(&self.folder);
    }

    /// Kills the runner and starts it again.
    pub async fn restart_runner(&mut self) {
        self.runner.kill().await;
        self.runner = Self::start_runner(&self.folder);
    }

    /// The executor's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("executor.sock")
    }

    /// Answers when both serve.
    ///
    /// # Panics
    /// When they do not within a minute.
    pub async fn ready(&self) {
        let serving = async {
            for (socket, service) in
                [("runner.sock", "belay.v1.ToolRunnerService"), ("executor.sock", "belay.v1.ExecutorService")]
            {
                let channel = crate::client::channel(&self.folder.join(socket));
                let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
                let asked = tonic_health::pb::HealthCheckRequest { service: service.into() };
                while health.check(asked.clone()).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        };
        assert!(
            tokio::time::timeout(Duration::from_secs(60), serving).await.is_ok(),
            "the services serve within a minute"
        );
    }

    fn start_runner(folder: &Path) -> Process {
        let path = |name: &str| folder.join(name).display().to_string();
        let listen = format!("unix:{}", path("runner.sock"));
        Process::start(
            "belay-tool-runner",
            &["--listen", &listen, "--state-dir", &path("runner")],
            &folder.join("runner.log"),
        )
    }

    fn start_executor(folder: &Path) -> Process {
        let path = |name: &str| folder.join(name).display().to_string();
        let (listen, runner) = (format!("unix:{}", path("executor.sock")), format!("unix:{}", path("runner.sock")));
        let arguments = ["--listen", &listen, "--state-dir", &path("executor"), "--runner", &runner];
        Process::start("belay-executor", &arguments, &folder.join("executor.log"))
    }
}
