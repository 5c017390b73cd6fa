//! Why a command was not started.

use std::{io, path::PathBuf};

use crate::{budget::DiskLimit, layer::Layer};

/// Why a command was not started. Nothing of it ran, and nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The caller asked for something that cannot be.
    #[error("{field}: {problem}")]
    Spec {
        /// The field of the spec or the settings, as a path.
        field: String,
        /// What is wrong with it.
        problem: String,
    },
    /// There is no such program in the command's view.
    #[error("program `{program}` does not exist in the sandbox (looked in {searched})")]
    ProgramNotFound {
        /// The program as it was asked for.
        program: String,
        /// The folders it was looked for in, or the one path.
        searched: String,
    },
    /// The program exists and cannot be executed: no permission, an unknown format, or a script whose interpreter is missing.
    #[error("program `{program}` cannot be executed: {source}")]
    ProgramNotExecutable {
        /// The program as it was asked for.
        program: String,
        /// What `execve` said.
        source: io::Error,
    },
    /// The working directory is not there.
    #[error("working directory `{}` cannot be entered: {source}", cwd.display())]
    WorkingDirectory {
        /// As it was asked for, relative to the workspace.
        cwd: PathBuf,
        /// What `chdir` said.
        source: io::Error,
    },
    /// A layer could not be put in force, and without it nothing runs.
    #[error("the sandbox's layer `{layer}` is missing: {doing}: {source}; to fix it: {}", layer.fix())]
    Layer {
        /// The layer.
        layer: Layer,
        /// What was being done.
        doing: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A disk that the command would write to has less free than its reserve.
    #[error("{} has {} {} free, and commands leave {} free", place.display(), limit.found, limit.unit.name(), limit.limit)]
    NoRoom {
        /// A folder on that disk.
        place: PathBuf,
        /// The reserve, and what is free.
        limit: DiskLimit,
    },
    /// The launcher ended without a word: somebody killed it, or it crashed.
    #[error("the sandbox's launcher ended before it could start `{program}`")]
    LauncherLost {
        /// The program as it was asked for.
        program: String,
    },
    /// `take_over_if_asked` was not called in this program's `main`: executing it again would not give a launcher.
    #[error("belay_sandbox::take_over_if_asked() must be the first call of this program's main")]
    NotReady,
}

impl LaunchError {
    /// A refusal of one field.
    pub(crate) fn spec(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Spec { field: field.into(), problem: problem.into() }
    }

    /// The launcher itself failed in the runner's half.
    pub(crate) fn launcher(doing: &str, source: io::Error) -> Self {
        Self::Layer { layer: Layer::Launcher, doing: doing.to_owned(), source }
    }
}
