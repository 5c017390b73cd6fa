//! Directories opened as workspaces. Traits, so that the simulation can keep its workspaces in memory.
//!
//! Everything here blocks.

mod real;

pub use real::HostDirectories;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use belay_workspace::{
    CacheChanges, CommitError, EffectError, IoFailure, LayerOwner, LayerPlace, Manifest, OpenError, OwnChanges, Stop,
    ViewError,
};
use serde::{Deserialize, Serialize};

use crate::View;

/// Opens directories as workspaces.
pub trait WorkspaceDirectories: Send + Sync + 'static {
    /// The canonical path of a directory.
    ///
    /// # Errors
    /// [`OpenError::Unreachable`] when it does not exist.
    fn resolve(&self, path: &Path) -> Result<PathBuf, OpenError>;

    /// The state directory of this or another Belay that `path` is or lies in. `path` is as [`Self::resolve`] returns it.
    fn enclosing_state_directory(&self, path: &Path) -> Option<PathBuf>;

    /// Creates a directory of the runner and its parents. Does nothing if it exists.
    ///
    /// # Errors
    /// [`OpenError`] when it cannot be created.
    fn make(&self, path: &Path) -> Result<(), OpenError>;

    /// Removes a directory of the runner with everything in it. Does nothing if it does not exist.
    ///
    /// # Errors
    /// [`OpenError::InUse`] when it is open, otherwise an error of the file system.
    fn remove(&self, path: &Path) -> Result<(), OpenError>;

    /// Opens a directory and locks it against other processes until the value is dropped. `forbidden` are directories that calls must never
    /// reach.
    ///
    /// # Errors
    /// [`OpenError`], which names the directory and says what to do.
    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn WorkspaceDirectory>, OpenError>;
}

/// An open workspace.
pub trait WorkspaceDirectory: Send + Sync {
    /// Its canonical path.
    fn path(&self) -> &Path;

    /// Whether the directory was removed or replaced by another since it was opened, so that it has to be opened anew.
    fn is_replaced(&self) -> bool {
        false
    }

    /// Removes what a crashed process left behind: every view, and every staged effect that `keep` does not know.
    ///
    /// # Errors
    /// An error of the file system.
    fn sweep(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure>;

    /// Creates a view for one call, which is removed when the value is dropped. `id`: 1 to 64 letters, digits, `-` and `_`, never reused.
    ///
    /// # Errors
    /// An error of the file system.
    fn view(&self, id: &str) -> Result<Box<dyn View>, ViewError>;

    /// The changes in a view of this workspace. No process may use the view any more. `stop` is polled: soon after it returns true, this
    /// fails.
    ///
    /// # Errors
    /// [`EffectError::Conflict`] when a touched path changed in the workspace meanwhile; others when the changes cannot be committed, or it
    /// was stopped.
    fn effect(&self, view: &dyn View, stop: Stop<'_>) -> Result<Manifest, EffectError>;

    /// Moves the changes of a view to disk beside the workspace, and syncs all effects applied before. Consumes the view; on an error
    /// nothing is left. `stop` as for [`WorkspaceDirectory::effect`].
    ///
    /// # Errors
    /// [`CommitError::Conflict`] when a touched path has changed.
    fn stage(&self, view: Box<dyn View>, manifest: &Manifest, stop: Stop<'_>) -> Result<StagedEffect, CommitError>;

    /// Creates a view that begins with layers of a set, in their order: see [`belay_workspace::Workspace::view_over`]. `stop` as for
    /// [`WorkspaceDirectory::effect`].
    ///
    /// # Errors
    /// [`ViewError::LayerGone`], [`ViewError::LayerConflict`], [`ViewError::Stopped`], or an error of the file system.
    fn view_over(&self, id: &str, set: &str, layers: &[String], stop: Stop<'_>) -> Result<Box<dyn View>, ViewError>;

    /// The same, without the changes of the layers at whose paths the workspace has changed since: see
    /// [`belay_workspace::Workspace::view_without_conflicts`].
    ///
    /// # Errors
    /// As [`WorkspaceDirectory::view_over`].
    fn view_without_conflicts(
        &self,
        id: &str,
        set: &str,
        layers: &[String],
        owner: LayerOwner,
        stop: Stop<'_>,
    ) -> Result<Box<dyn View>, ViewError>;

    /// The changes in a view beyond the layers that it began with.
    fn own_changes(&self, view: &dyn View, manifest: &Manifest) -> OwnChanges;

    /// As [`WorkspaceDirectory::stage`], what a call changed itself, as a layer: applying it keeps it beside the workspace, which stays as it is.
    /// With its place go the layers that the view began with, and what [`WorkspaceDirectory::layer_notes`] returns. Also returns what later views name
    /// the layer by.
    ///
    /// # Errors
    /// [`CommitError`].
    fn stage_layer(
        &self,
        view: Box<dyn View>,
        own: OwnChanges,
        layer: (LayerPlace, Vec<String>, String),
        stop: Stop<'_>,
    ) -> Result<(StagedEffect, String), CommitError>;

    /// The notes about layers.
    ///
    /// # Errors
    /// [`ViewError::LayerGone`].
    fn layer_notes(&self, set: &str, layers: &[String]) -> Result<Vec<String>, ViewError>;

    /// Removes a set of layers. Does nothing when there is none.
    ///
    /// # Errors
    /// An error of the file system.
    fn remove_layers(&self, set: &str) -> Result<(), IoFailure>;

    /// Removes every set of layers that `keep` does not know.
    ///
    /// # Errors
    /// An error of the file system.
    fn sweep_layers(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure>;

    /// Keeps what a command has left in the caches of a view, until [`WorkspaceDirectory::caches`] takes it or its effect is discarded.
    ///
    /// # Errors
    /// An error of the file system.
    fn stage_caches(&self, _view: &dyn View) -> Result<(), IoFailure> {
        Ok(())
    }

    /// The changes in caches by the command of the call with this view; they are removed when the value is dropped.
    ///
    /// # Errors
    /// An error of the file system.
    fn caches(&self, _view: &str) -> Result<Option<CacheChanges>, IoFailure> {
        Ok(None)
    }

    /// Checks that a staged effect can be applied now.
    ///
    /// # Errors
    /// [`CommitError::Conflict`] when a touched path has changed, [`CommitError::NotStaged`] when the staged files are gone.
    fn check(&self, staged: &StagedEffect) -> Result<(), CommitError>;

    /// Applies a staged effect. A power loss can undo it until a later [`WorkspaceDirectory::stage`] or [`WorkspaceDirectory::sync`] has succeeded: until then the
    /// ledger has to keep its row.
    ///
    /// # Errors
    /// [`CommitError::Stuck`] when it was applied in part and has to be retried. After any other error the workspace is unchanged.
    fn apply(&self, staged: &StagedEffect) -> Result<(), CommitError>;

    /// Applies a staged effect after a crash, from whatever state that left. To be called for all committed effects in the ledger, in their
    /// order.
    ///
    /// # Errors
    /// As [`WorkspaceDirectory::apply`]; [`CommitError::NotStaged`] when it and every one before it are applied.
    fn redo(&self, staged: &StagedEffect) -> Result<(), CommitError>;

    /// Syncs all applied effects to disk.
    ///
    /// # Errors
    /// An error of the file system; what is on disk is unknown then.
    fn sync(&self) -> Result<(), IoFailure>;

    /// Discards a staged effect that was not applied.
    ///
    /// # Errors
    /// An error of the file system.
    fn discard(&self, staged: &StagedEffect) -> Result<(), CommitError>;

    /// Removes the files that an applied effect replaced. Files that older views may still use stay until [`WorkspaceDirectory::clear`].
    ///
    /// # Errors
    /// An error of the file system.
    fn finish(&self, staged: &StagedEffect) -> Result<(), CommitError>;

    /// Whether replaced files are left that no view uses any more. Does not block.
    fn has_to_clear(&self) -> bool {
        false
    }

    /// Removes replaced files that no view uses any more.
    ///
    /// # Errors
    /// An error of the file system.
    fn clear(&self) -> Result<(), IoFailure> {
        Ok(())
    }
}

/// A staged effect, as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedEffect {
    /// The id of the view it came from.
    pub id: String,
    /// The plan of the commit, opaque to the ledger.
    pub plan: String,
}
