//! What one command may use.

use std::{sync::OnceLock, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{error::LaunchError, wire::wire_struct};

/// What one command may use. Where the runner itself is under a lower limit, that one counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Processor time of each process, in whole seconds rounded up; then SIGXCPU, a second later SIGKILL. `None`: no limit.
    pub cpu: Option<Duration>,
    /// Bytes of the largest file a process may write; beyond it SIGXFSZ. Never above the largest budget of a place it may write to, which
    /// is the limit for `None`.
    pub file_size: Option<u64>,
    /// Open files of each process (the hard RLIMIT_NOFILE: a program may raise its own limit up to this).
    pub open_files: u64,
    /// Open files with which a program starts (the soft RLIMIT_NOFILE). `None`: as many as the runner was started with, which is what
    /// the program would start with outside.
    pub open_files_at_start: Option<u64>,
    /// Processes and threads of the whole command. The kernel counts up to 301 for each smaller number where only the
    /// namespace's own limit applies.
    pub processes: u32,
    /// Bytes of address space of each process. `None`: no limit. Runtimes that reserve far more than they use (Java, Go, V8, the
    /// sanitizers) need tens of gigabytes.
    pub address_space: Option<u64>,
}

wire_struct!(Limits { cpu, file_size, open_files, open_files_at_start, processes, address_space });

impl Default for Limits {
    /// What the test suites of ordinary projects live with: no limit on processor time and address space, files of 8 GiB,
    /// 1,048,576 open files (or what the runner has), 4,096 processes and threads.
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
    /// `field`: where these limits stand, for the message.
    pub(crate) fn check(&self, field: &str) -> Result<(), LaunchError> {
        // Below that not even a dynamic loader starts, and the failure would name no limit.
        const FEWEST_FILES: u64 = 16;
        if self.open_files < FEWEST_FILES {
            return Err(LaunchError::spec(format!("{field}.open_files"), "must be at least 16"));
        }
        if self.open_files_at_start.is_some_and(|files| files < FEWEST_FILES || files > self.open_files) {
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

/// Raises this process's soft limit on open files to its hard one, once, and returns what it was before: each running command holds seven
/// descriptors here, and 1,024 files, the customary soft limit, would not do for 150 commands. Programs still start with the old limit.
pub(crate) fn raise_open_files() -> u64 {
    static BEFORE: OnceLock<u64> = OnceLock::new();
    *BEFORE.get_or_init(|| {
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        // A kernel that refuses leaves the limit as it was; commands beyond it fail with the kernel's own words.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        current.unwrap_or(u64::MAX)
    })
}
