//! Why a command was not started.

use std::{io, path::PathBuf};

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
        /// What is wrong with it.
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
    #[error("sandbox layer `{layer}` failed: {doing}: {source}; to fix it: {}", layer.fix())]
    Layer {
        /// The layer.
        layer: Layer,
        /// What was being done.
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
}
