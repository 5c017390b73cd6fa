//! Why a command was not started.

use std::{fs, io, path::PathBuf};

use belay_defects::{Defect, is_planted};

use crate::{
    budget::{DiskLimit, WriteBudget},
    layer::Layer,
};

/// Why a command was not started. None of it ran, and nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The spec or a setting is invalid.
    #[error("{field}: {problem}")]
    Spec {
        /// The field of the spec or the settings, as a path.
        field: String,
        /// The problem.
        problem: String,
    },
    /// The program does not exist in the view of the command.
    #[error("program `{program}` not found in the sandbox (searched {searched})")]
    ProgramNotFound {
        /// The program as requested.
        program: String,
        /// The directories that were searched, or the path.
        searched: String,
    },
    /// The program exists but cannot be executed: no permission, an unknown format, or a script whose interpreter is missing.
    #[error("cannot execute program `{program}`: {source}")]
    ProgramNotExecutable {
        /// The program as requested.
        program: String,
        /// The error of `execve`.
        source: io::Error,
    },
    /// The working directory cannot be entered.
    #[error("cannot enter working directory `{}`: {source}", cwd.display())]
    WorkingDirectory {
        /// As requested, relative to the workspace.
        cwd: PathBuf,
        /// The error of `chdir`.
        source: io::Error,
    },
    /// A layer could not be set up, and nothing runs without it.
    #[error("sandbox layer `{layer}` failed: {doing}: {source}; {}", advice(*layer, source))]
    Layer {
        /// The layer.
        layer: Layer,
        /// The action that failed.
        doing: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A disk that the command would write to is below its reserve.
    #[error("{} has only {} {} free; commands must leave {}", place.display(), limit.found, limit.unit.name(), limit.limit)]
    DiskFull {
        /// A directory on that disk.
        place: PathBuf,
        /// The reserve, and the free space.
        limit: DiskLimit,
    },
    /// The launcher exited without a reply: it was killed, or it crashed.
    #[error("the sandbox launcher exited before it started `{program}`")]
    LauncherLost {
        /// The program as requested.
        program: String,
    },
    /// This program's `main` does not call `take_over_if_asked`, so it cannot be executed as the launcher.
    #[error("belay_sandbox::take_over_if_asked() must be the first call of this program's main")]
    NotReady,
}

impl LaunchError {
    /// An error about one field.
    pub(crate) fn spec(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Spec { field: field.into(), problem: problem.into() }
    }

    /// Refuses a budget that is too small. `field`: its path, for the message.
    pub(crate) fn check_budget(field: &str, budget: WriteBudget) -> Result<(), Self> {
        budget.too_small().map_or(Ok(()), |(part, problem)| Err(Self::spec(format!("{field}.{part}"), problem)))
    }

    /// A failure to run the launcher.
    pub(crate) fn launcher(doing: &str, source: io::Error) -> Self {
        Self::Layer { layer: Layer::Launcher, doing: doing.to_owned(), source }
    }

    /// The limit of the machine or of the user that was reached, if that is why nothing was started. Other commands and programs share it, so
    /// the same launch may succeed later.
    #[must_use]
    pub fn reached_limit(&self) -> Option<&'static str> {
        match self {
            Self::Layer { layer, source, .. } => reached_limit(*layer, source.raw_os_error()?),
            _ => None,
        }
    }

    /// Whether it says nothing about the sandbox on this machine: processes of the launch were killed, a limit was reached, or a disk was full.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Self::LauncherLost { .. } | Self::DiskFull { .. } => true,
            Self::Layer { source, .. } => {
                let was_killed = source.raw_os_error().is_some_and(|error| LOST.contains(&error));
                was_killed || self.reached_limit().is_some() || is_waiting_over(source) || is_disk_full(source)
            }
            Self::Spec { .. }
            | Self::ProgramNotFound { .. }
            | Self::ProgramNotExecutable { .. }
            | Self::WorkingDirectory { .. }
            | Self::NotReady => false,
        }
    }
}

/// The error of a step whose process was killed.
pub(crate) const KILLED: i32 = libc::ESRCH;

/// The errors of a connection or a process whose other end is gone.
const LOST: [i32; 5] = [KILLED, libc::EPIPE, libc::ECONNRESET, libc::ECHILD, libc::EINTR];

/// How an operator can fix a failed layer, unless it only has to be tried again.
fn advice(layer: Layer, source: &io::Error) -> String {
    match source.raw_os_error().and_then(|error| reached_limit(layer, error)) {
        Some(limit) => format!("the limit that was reached is {limit}"),
        None => format!("to fix it: {}", layer.fix()),
    }
}

fn reached_limit(layer: Layer, error: i32) -> Option<&'static str> {
    if is_planted(Defect::SharedLimitIsFinal) && !matches!(error, libc::EAGAIN | libc::ENOMEM) {
        return None;
    }
    Some(match error {
        libc::ETOOMANYREFS => {
            "the number of file descriptors in flight over unix sockets, which is the runner's limit of open files \
             (RLIMIT_NOFILE) for all processes of its user together"
        }
        libc::EMFILE => "the runner's limit of open files (RLIMIT_NOFILE)",
        libc::ENFILE => "the machine's limit of open files (fs.file-max)",
        libc::EAGAIN => "the number of processes of the user or of the control group (RLIMIT_NPROC, pids.max)",
        libc::ENOMEM => "memory, of the machine or of the control group",
        // Without any namespaces it is a setting, and not a limit that others use up.
        libc::ENOSPC | libc::EUSERS if matches!(layer, Layer::UserNamespace | Layer::Namespaces) => {
            let none = fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|text| text.trim() == "0");
            return (!none).then_some("the number of namespaces of the user (the settings user.max_*_namespaces)");
        }
        _ => return None,
    })
}

/// Whether a launcher has not replied in time.
fn is_waiting_over(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn is_disk_full(source: &io::Error) -> bool {
    matches!(source.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(layer: Layer, error: i32) -> LaunchError {
        LaunchError::Layer { layer, doing: "testing".into(), source: io::Error::from_raw_os_error(error) }
    }

    #[test]
    fn a_reached_limit_is_named_instead_of_a_fix() {
        for (error, limit) in [
            (libc::ETOOMANYREFS, "in flight"),
            (libc::EMFILE, "open files (RLIMIT_NOFILE)"),
            (libc::ENFILE, "fs.file-max"),
            (libc::EAGAIN, "pids.max"),
            (libc::ENOMEM, "memory"),
        ] {
            let error = layer(Layer::Launcher, error);
            assert!(error.is_lost() && error.to_string().contains(limit), "{error}");
            assert!(!error.to_string().contains("to fix it"), "{error}");
        }
        for error in [libc::ETOOMANYREFS, libc::EMFILE, libc::ENFILE] {
            assert!(layer(Layer::Network, error).is_lost(), "{error}");
        }
    }

    #[test]
    fn what_says_nothing_about_the_machine_is_lost() {
        for error in [KILLED, libc::EPIPE, libc::ECONNRESET, libc::ENOSPC, libc::EDQUOT] {
            assert!(layer(Layer::Launcher, error).is_lost(), "{error}");
        }
        assert!(LaunchError::LauncherLost { program: "make".into() }.is_lost());
        for error in [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::EOPNOTSUPP, libc::EINVAL, libc::EIO] {
            let error = layer(Layer::Landlock, error);
            assert!(!error.is_lost() && error.to_string().contains("to fix it"), "{error}");
        }
        assert!(!LaunchError::NotReady.is_lost() && !LaunchError::spec("a", "is wrong").is_lost());
    }
}
