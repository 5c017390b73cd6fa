//! Executor, tool runner and approval gate, each in its own process, over unix sockets in one folder.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use crate::{Process, client, watchdog::UnderWay};

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// The approval gate.
    Gate,
    /// The tool runner.
    Runner,
    /// The executor.
    Executor,
}

impl Service {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Gate, Self::Runner, Self::Executor];

    /// The word that makes `belay` this service.
    fn word(self) -> &'static str {
        match self {
            Self::Gate => "approval-gate",
            Self::Runner => "tool-runner",
            Self::Executor => "executor",
        }
    }

    /// Its socket, and its name for health checks.
    fn health(self) -> (&'static str, &'static str) {
        match self {
            Self::Gate => ("gate.sock", "belay.v1.ApprovalService"),
            Self::Runner => ("runner.sock", "belay.runner.v1.ToolRunnerService"),
            Self::Executor => ("executor.sock", "belay.v1.ExecutorService"),
        }
    }
}

/// The three services of one folder. Each can be killed and restarted at any time; dropping this value kills all.
#[derive(Debug)]
pub struct Services {
    folder: PathBuf,
    log_filter: Option<String>,
    processes: [Option<Process>; 3],
    _under_way: UnderWay,
}

impl Services {
    /// Starts all three under the built-in policy, and waits until they serve.
    pub async fn start(folder: &Path) -> Self {
        Self::under(folder, "{}").await
    }

    /// Starts all three under this policy (YAML), and waits until they serve and the runner has the policy.
    ///
    /// # Panics
    /// When they do not serve within a minute.
    pub async fn under(folder: &Path, policy: &str) -> Self {
        Self::begun(folder, policy, None).await
    }

    /// The same with a value for `BELAY_LOG`.
    ///
    /// # Panics
    /// When they do not serve within a minute.
    pub async fn logging(folder: &Path, policy: &str, filter: &str) -> Self {
        Self::begun(folder, policy, Some(filter.to_owned())).await
    }

    async fn begun(folder: &Path, policy: &str, log_filter: Option<String>) -> Self {
        // The runner reports workspaces by their paths without symbolic links.
        let folder = folder.canonicalize().expect("the folder is there");
        fs::create_dir_all(folder.join("work")).expect("a folder can be made");
        fs::write(folder.join("policy.yaml"), policy).expect("a file can be written");
        let mut services = Self { folder, log_filter, processes: [None, None, None], _under_way: UnderWay::begin() };
        // Runners pin the key that the gate creates at its first start.
        services.launch(Service::Gate);
        services.serving(Service::Gate).await;
        services.launch(Service::Runner);
        services.launch(Service::Executor);
        services.ready().await;
        crate::Runner::new(&services.runner()).until_it_has_a_policy().await;
        services
    }

    /// Kills a service, if it runs.
    pub async fn kill(&mut self, service: Service) {
        if let Some(mut process) = self.processes[service as usize].take() {
            process.kill().await;
        }
    }

    /// Waits until a service has exited; returns its exit code, `None` when a signal ended it.
    ///
    /// # Panics
    /// When it does not run, or does not end within a minute.
    pub async fn ended(&mut self, service: Service) -> Option<i32> {
        let mut process = self.processes[service as usize].take().expect("it runs");
        let ended = tokio::time::timeout(Duration::from_secs(60), process.ended()).await;
        ended.unwrap_or_else(|_| panic!("{service:?} does not end:\n{}", self.log(service)))
    }

    /// Starts a service that does not run, without waiting for it.
    ///
    /// # Panics
    /// When it runs, or cannot be started.
    pub fn launch(&mut self, service: Service) {
        self.launch_with(service, &[]);
    }

    /// The same, with more arguments.
    ///
    /// # Panics
    /// When it runs, or cannot be started.
    pub fn launch_with(&mut self, service: Service, more: &[&str]) {
        assert!(self.processes[service as usize].is_none(), "{service:?} runs");
        let path = |name: &str| self.folder.join(name).display().to_string();
        let socket = |name: &str| format!("unix:{}", path(name));
        let arguments = match service {
            Service::Gate => vec![
                ("--listen", socket("gate.sock")),
                ("--service-listen", socket("gate-services.sock")),
                ("--runner", socket("runner.sock")),
                ("--state-dir", path("gate")),
                ("--policy", path("policy.yaml")),
            ],
            Service::Runner => vec![
                ("--listen", socket("runner.sock")),
                ("--state-dir", path("runner")),
                ("--gate", socket("gate-services.sock")),
                ("--gate-key", path("gate/gate.pub")),
                ("--workspace-root", path("work")),
            ],
            Service::Executor => vec![
                ("--listen", socket("executor.sock")),
                ("--state-dir", path("executor")),
                ("--runner", socket("runner.sock")),
                ("--gate", socket("gate-services.sock")),
            ],
        };
        let arguments = arguments.iter().flat_map(|(flag, value)| [*flag, value.as_str()]);
        let arguments: Vec<&str> = arguments.chain(more.iter().copied()).collect();
        let log = self.folder.join(service.word()).with_extension("log");
        self.processes[service as usize] =
            Some(Process::logging(service.word(), &arguments, &log, self.log_filter.as_deref()));
    }

    /// Kills a service and starts it again.
    pub async fn restart(&mut self, service: Service) {
        self.kill(service).await;
        self.launch(service);
    }

    /// Returns when all launched services serve.
    pub async fn ready(&self) {
        for service in Service::ALL.into_iter().filter(|service| self.processes[*service as usize].is_some()) {
            self.serving(service).await;
        }
    }

    async fn serving(&self, service: Service) {
        let (socket, name) = service.health();
        let socket = self.folder.join(socket);
        let serving = client::serving(&socket, name);
        let within = tokio::time::timeout(Duration::from_secs(60), serving).await;
        assert!(within.is_ok(), "{service:?} serves within a minute:\n{}", self.log(service));
    }

    /// The number of a service's threads.
    ///
    /// # Panics
    /// When it does not run.
    pub fn threads(&self, service: Service) -> usize {
        let process = self.processes[service as usize].as_ref().expect("it runs");
        fs::read_dir(format!("/proc/{}/task", process.id())).expect("a process has threads").count()
    }

    /// The state directory of a service.
    pub fn state(&self, service: Service) -> PathBuf {
        self.folder.join(match service {
            Service::Gate => "gate",
            Service::Runner => "runner",
            Service::Executor => "executor",
        })
    }

    /// The executor's socket.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("executor.sock")
    }

    /// The runner's socket.
    pub fn runner(&self) -> PathBuf {
        self.folder.join("runner.sock")
    }

    /// The gate's socket for people.
    pub fn people(&self) -> PathBuf {
        self.folder.join("gate.sock")
    }

    /// The gate's socket for services.
    pub fn gate(&self) -> PathBuf {
        self.folder.join("gate-services.sock")
    }

    /// A new workspace below the runner's workspace root.
    ///
    /// # Panics
    /// When it cannot be made.
    pub fn workspace(&self, name: &str) -> PathBuf {
        let path = self.folder.join("work").join(name);
        fs::create_dir(&path).expect("a folder can be made");
        path
    }

    /// The log of a service.
    pub fn log(&self, service: Service) -> String {
        fs::read_to_string(self.folder.join(service.word()).with_extension("log")).unwrap_or_default()
    }
}
