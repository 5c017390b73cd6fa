//! The resource limits of a command.

use std::{sync::OnceLock, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{error::LaunchError, wire::wire_struct};

/// The resource limits of a command. A lower limit of the runner itself takes precedence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// CPU time of each process, rounded up to whole seconds; then SIGXCPU, and a second later SIGKILL. `None`: no limit.
    pub cpu: Option<Duration>,
    /// The largest file that a process may write, in bytes; beyond it SIGXFSZ. Capped at the largest write budget, which is also the limit
    /// for `None`.
    pub file_size: Option<u64>,
    /// Open files per process (hard RLIMIT_NOFILE: a program may raise its own limit up to this). At most half of the runner's limit applies.
    pub open_files: u64,
    /// Initial soft RLIMIT_NOFILE. `None`: the one that the runner was started with.
    pub open_files_at_start: Option<u64>,
    /// Processes and threads of the whole command. If only the limit of the namespace applies, values below 301 count as 301.
    pub processes: u32,
    /// Address space per process, in bytes. `None`: no limit. Runtimes that reserve far more than they use (Java, Go, V8, sanitizers) need
    /// tens of gigabytes.
    pub address_space: Option<u64>,
}

wire_struct!(Limits { cpu, file_size, open_files, open_files_at_start, processes, address_space });

impl Default for Limits {
    /// Limits that test suites of ordinary projects fit into: no limit on CPU time and address space, files of 8 GiB, 1,048,576 open files
    /// (or half of the runner's limit), 4,096 processes and threads.
    fn default() -> Self {
        Self {
            cpu: None,
            file_size: Some(8 << 30),
            open_files: 1 << 20,
            open_files_at_start: None,
            processes: 4096,
            address_space: None,
        }
    }
}

impl Limits {
    /// `field`: the path of these limits, for the message.
    pub(crate) fn check(&self, field: &str) -> Result<(), LaunchError> {
        // With fewer, not even the dynamic loader starts, and the failure would not name the limit.
        const MIN_OPEN_FILES: u64 = 16;
        if self.open_files < MIN_OPEN_FILES {
            return Err(LaunchError::spec(format!("{field}.open_files"), "must be at least 16"));
        }
        if self.open_files_at_start.is_some_and(|files| files < MIN_OPEN_FILES || files > self.open_files) {
            return Err(LaunchError::spec(
                format!("{field}.open_files_at_start"),
                "must be at least 16 and at most open_files",
            ));
        }
        if self.processes == 0 {
            return Err(LaunchError::spec(format!("{field}.processes"), "must be at least 1"));
        }
        Ok(())
    }
}

/// Raises the soft limit on open files of this process to the hard one, once, and returns the previous soft limit. Each running command
/// takes seven descriptors here, so the usual soft limit of 1,024 would not suffice for 150 commands. Programs still start with the
/// previous limit.
pub(crate) fn raise_open_files() -> u64 {
    static BEFORE: OnceLock<u64> = OnceLock::new();
    *BEFORE.get_or_init(|| {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // If this fails, commands beyond the limit fail with the kernel's error.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        current.unwrap_or(u64::MAX)
    })
}
