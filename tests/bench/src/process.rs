//! Processes that the bench starts, and ends.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::{
    io::{BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{Failure, Result};

/// The number of log lines that an error shows.
const SHOWN_LOG_LINES: usize = 8;

/// A running process. It is killed when this is dropped.
pub(crate) struct Process {
    name: String,
    child: Child,
    pid: u32,
    log: PathBuf,
}

impl Process {
    /// Starts `belay` as a service. What it writes goes to `SERVICE.log` in `folder`, after what an earlier process of the service wrote.
    pub(crate) fn start(program: &Path, service: &str, arguments: &[&str], folder: &Path) -> Result<Self> {
        Self::start_program(service, program, &[&[service], arguments].concat(), folder)
    }

    /// Starts any program. What it writes goes to `NAME.log` in `folder`, after what an earlier process of this name wrote.
    pub(crate) fn start_program(name: &str, program: &Path, arguments: &[&str], folder: &Path) -> Result<Self> {
        let log = folder.join(name).with_extension("log");
        let mut command = prepare(program, &log)?;
        command.args(arguments).stdout(File::options().append(true).open(&log)?);
        Self::spawn(name.to_owned(), program, command, log)
    }

    /// Starts a program that is talked to over stdin and stdout.
    pub(crate) fn start_talking(
        name: &str,
        program: &Path,
        arguments: &[&str],
        folder: &Path,
    ) -> Result<(Self, ChildStdin, Lines<BufReader<ChildStdout>>)> {
        let log = folder.join(name).with_extension("log");
        let mut command = prepare(program, &log)?;
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Self::spawn(name.to_owned(), program, command, log)?;
        let input = process.child.stdin.take().expect("asked for above");
        let output = process.child.stdout.take().expect("asked for above");
        Ok((process, input, tokio::io::AsyncBufReadExt::lines(BufReader::new(output))))
    }

    fn spawn(name: String, program: &Path, mut command: Command, log: PathBuf) -> Result<Self> {
        let child = command.spawn().map_err(|error| format!("{} could not be started: {error}", program.display()))?;
        let pid = child.id().ok_or("the process ended before it could be looked at")?;
        Ok(Self { name, child, pid, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// An error if the process has ended by itself.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => Err(self.explain(format!("{} ended with {status}", self.name).into())),
        }
    }

    /// The error, and what the process said last.
    pub(crate) fn explain(&self, error: Failure) -> Failure {
        // A log that cannot be read must not hide the error.
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        let last = &lines[lines.len().saturating_sub(SHOWN_LOG_LINES)..];
        format!("{error}\nLast lines of {}:\n  {}", self.name, last.join("\n  ")).into()
    }

    /// Kills the process with SIGKILL, and returns when it has ended.
    pub(crate) async fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill().await?)
    }
}

fn prepare(program: &Path, log: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stderr(File::options().create(true).append(true).open(log)?).kill_on_drop(true);
    // The user's own settings must not change what is measured.
    for (variable, _) in std::env::vars_os() {
        if ["BELAY_", "RESTATE_"].iter().any(|prefix| variable.to_string_lossy().starts_with(prefix)) {
            command.env_remove(variable);
        }
    }
    Ok(command)
}
