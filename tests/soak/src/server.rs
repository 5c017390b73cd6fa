//! `belay serve` in a folder of its own.

use std::{fs, path::PathBuf, process::Stdio, time::Duration};

use belay_e2e::{binary, client};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::wrong::Wrong;

/// Commands and the declared tool need no approval, except for what they change in `asked`.
const POLICY: &str = "
terminal_commands: auto
rules:
  - {id: look, on: effect, paths: ['asked/**'], decide: prompt, reason: Somebody looks at these.}
  - {id: tally, on: intent, tools: [tally], decide: auto}
";

/// A tool that appends a word to a file.
const SETTINGS: &str = "
tools:
  tally:
    description: Appends a word to a file.
    command: [sh, -c, 'echo \"$1\" >> \"$2\"', sh, '${word}', '${path}']
    parameters:
      required: [word, path]
      properties: {word: {type: string}, path: {type: string, format: workspace-path}}
    output: text
";

/// A server that runs.
pub(crate) struct Server {
    folder: TempDir,
    child: Child,
    id: u32,
}

impl Server {
    /// Starts it, and waits until it serves.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("belay-soak-").tempdir().expect("a folder can be made");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("w")).expect("a folder can be made");
        fs::write(path("policy.yaml"), POLICY).expect("a file can be written");
        fs::write(path("config.yaml"), SETTINGS).expect("a file can be written");
        let log = fs::File::create(path("serve.log")).expect("a file can be written");
        let mut command = Command::new(binary());
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BELAY_")) {
            command.env_remove(name);
        }
        command.arg("serve");
        for (flag, name) in [("--state-dir", "state"), ("--policy", "policy.yaml"), ("--config", "config.yaml")] {
            command.arg(flag).arg(path(name));
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let child = command.spawn().expect("belay can be started");
        let id = child.id().expect("it was not waited for");
        let server = Self { folder, child, id };
        let socket = server.socket();
        let serving = client::serving(&socket, "belay.v1.ExecutorService");
        let within = tokio::time::timeout(Duration::from_secs(60), serving).await;
        assert!(within.is_ok(), "belay serves within a minute:\n{}", server.log());
        server
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    /// The executor's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.state().join("executor.sock")
    }

    /// The gate's socket for people.
    pub(crate) fn people(&self) -> PathBuf {
        self.state().join("gate.sock")
    }

    /// The folder of all workspaces.
    pub(crate) fn workspaces(&self) -> PathBuf {
        self.folder.path().join("w")
    }

    fn state(&self) -> PathBuf {
        self.folder.path().join("state")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("serve.log")).unwrap_or_default()
    }

    /// Stops it gracefully; a difference is that it does not, has ended before, or has had a panic.
    pub(crate) async fn stop(mut self) -> (StoppedServer, Vec<Wrong>) {
        let mut wrongs = Vec::new();
        let mut report = |what: String| wrongs.push(Wrong::new("", "", what));
        if let Ok(Some(status)) = self.child.try_wait() {
            report(format!("the server ended during the run, with {status}"));
        } else {
            kill_process(Pid::from_raw(self.id.cast_signed()).expect("it has an id"), Signal::TERM)
                .expect("the server is there");
            match tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await {
                Ok(Ok(status)) if status.success() => {}
                ended => report(format!("the server does not stop gracefully: {ended:?}")),
            }
        }
        if self.log().contains("panicked at") {
            report("the server has had a panic: see serve.log".to_owned());
        }
        (StoppedServer { folder: self.folder }, wrongs)
    }
}

/// A server that has ended; its state is removed unless it is kept.
pub(crate) struct StoppedServer {
    folder: TempDir,
}

impl StoppedServer {
    /// A command that shows an execution.
    pub(crate) fn look(&self, verb: &str, id: &str) -> String {
        format!("{} {verb} {id} --state-dir {}", binary().display(), self.folder.path().join("state").display())
    }

    /// Keeps the folder, and returns its path.
    pub(crate) fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}
