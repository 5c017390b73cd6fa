//! Why an operation in a view failed.

use crate::{
    disk::IoFailure,
    path::{RelPath, shown},
    stat::FileKind,
};

/// Why an operation in a view failed.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The id of the view is not valid.
    #[error("view id `{id}` {why}")]
    Id {
        /// As given.
        id: String,
        /// The problem.
        why: &'static str,
    },
    /// The path does not exist.
    #[error("`{path}` does not exist")]
    NotFound {
        /// The path.
        path: String,
    },
    /// A symbolic link leaves the workspace.
    #[error(
        "`{path}` is outside workspace: it is a symbolic link to `{target}`; use a path that stays in the workspace"
    )]
    Outside {
        /// The link.
        path: String,
        /// Its target.
        target: String,
    },
    /// A change would follow a symbolic link, or there are too many links.
    #[error("`{path}` is a symbolic link to `{target}`, which is not followed here: use its target instead")]
    Link {
        /// The link.
        path: String,
        /// Its target.
        target: String,
    },
    /// Not a directory.
    #[error("`{path}` is not a directory")]
    NotADirectory {
        /// The path.
        path: String,
    },
    /// Not a regular file.
    #[error("`{path}` is {}: only regular files can be read and written", kind.name())]
    NotAFile {
        /// The path.
        path: String,
        /// Its type.
        kind: FileKind,
    },
    /// It is the state directory of a Belay.
    #[error("`{path}` is outside workspace: it contains the stores and keys of a Belay, which calls must not access")]
    Stores {
        /// The path.
        path: String,
    },
    /// A layer that the view was to begin with is not there, or is not what was kept.
    #[error(
        "the changes that an earlier call of this step made are gone (layer `{layer}`): nothing of the step was committed; run the step again"
    )]
    LayerGone {
        /// Its id.
        layer: String,
    },
    /// The workspace has changed at paths that earlier calls of the set have changed too.
    #[error(
        "changed by someone else since earlier calls of this step changed it: {}; nothing of the step was committed; run the step again on the \
         current files",
        shown(paths)
    )]
    LayerConflict {
        /// The paths.
        paths: Vec<RelPath>,
    },
    /// The caller stopped it while it began.
    #[error("it was stopped before it had begun")]
    Stopped,
    /// The layers that the view was to begin with cannot be used.
    #[error("the changes of earlier calls of this step cannot be used: {why}")]
    Layers {
        /// Why.
        why: String,
    },
    /// The workspace itself cannot be overwritten or removed.
    #[error("`.` is the workspace itself: name a path inside it")]
    Root,
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}
