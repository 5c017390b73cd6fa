//! Where calls work: folders that are opened as workspaces. A seam, so that a simulation can keep its workspaces in memory.
//!
//! Everything here blocks.

mod real;

pub use real::RealPlaces;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use belay_workspace::{CommitError, EffectError, IoFailure, Manifest, OpenError, Stop, ViewError};
use serde::{Deserialize, Serialize};

use crate::View;

/// Opens folders as workspaces.
pub trait Places: Send + Sync + 'static {
    /// The folder's one name: absolute, without symbolic links.
    ///
    /// # Errors
    /// [`OpenError::Unreachable`] when it is not there.
    fn resolve(&self, path: &Path) -> Result<PathBuf, OpenError>;

    /// The state directory of a Belay, this one's or another's, that a folder is or lies in. `path` is as [`Self::resolve`] gives it.
    fn stores_around(&self, path: &Path) -> Option<PathBuf>;

    /// Makes a folder of the runner's own, with those above it. One that is there is left as it is.
    ///
    /// # Errors
    /// [`OpenError`] when it cannot be made.
    fn make(&self, path: &Path) -> Result<(), OpenError>;

    /// Opens a folder, which nobody else may open until the value is dropped. `forbidden` are folders that calls must never reach.
    ///
    /// # Errors
    /// [`OpenError`], which names the folder and says what to do.
    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn Place>, OpenError>;
}

/// An open workspace.
pub trait Place: Send + Sync {
    /// Where it is, without symbolic links.
    fn path(&self) -> &Path;

    /// Removes what a process left behind that died: every view, and every staged effect that `keep` does not know.
    ///
    /// # Errors
    /// What the file system refuses.
    fn sweep(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure>;

    /// Begins a view for one call; it is gone when the value is dropped. `id`: 1 to 64 letters, digits, `-` and `_`, never used twice.
    ///
    /// # Errors
    /// What the file system refuses.
    fn view(&self, id: &str) -> Result<Box<dyn View>, ViewError>;

    /// What was changed in a view of this place. No process may be left that works in it. `stop` is asked again and again: once it returns
    /// true, this fails soon.
    ///
    /// # Errors
    /// [`EffectError::Conflict`] when somebody else changed a touched path meanwhile, and others when it cannot be committed, or was
    /// stopped.
    fn effect(&self, view: &dyn View, stop: Stop<'_>) -> Result<Manifest, EffectError>;

    /// Brings what was changed in a view of this place onto the disk, beside the workspace, and with it for good
    /// all that was put in place before. The view is used up; when this fails, nothing is left. `stop` as for [`Place::effect`].
    ///
    /// # Errors
    /// [`CommitError::Conflict`] when a touched path is no longer what it was.
    fn stage(&self, view: Box<dyn View>, manifest: &Manifest, stop: Stop<'_>) -> Result<Staged, CommitError>;

    /// Whether a staged effect can be put in place as things are.
    ///
    /// # Errors
    /// [`CommitError::Conflict`] when a touched path is no longer what it was, [`CommitError::NotStaged`] when the staged files are gone.
    fn check(&self, staged: &Staged) -> Result<(), CommitError>;

    /// Puts a staged effect in place. The power can take it back until a later [`Place::stage`] or [`Place::sync`] has succeeded:
    /// until then the ledger has to know of it.
    ///
    /// # Errors
    /// [`CommitError::Stuck`] when it stands half done and has to be tried again. After any other the workspace is as it was.
    fn apply(&self, staged: &Staged) -> Result<(), CommitError>;

    /// The same after a crash, from whatever that left; for all effects that the ledger knows to be committed, in the order in which they
    /// were.
    ///
    /// # Errors
    /// As [`Place::apply`]; [`CommitError::NotStaged`] when it is in place and so is every one before it.
    fn redo(&self, staged: &Staged) -> Result<(), CommitError>;

    /// Brings all that was put in place onto the disk for good.
    ///
    /// # Errors
    /// What the file system refuses. What is on the disk is not known then.
    fn sync(&self) -> Result<(), IoFailure>;

    /// Gives up a staged effect that was not put in place.
    ///
    /// # Errors
    /// What the file system refuses.
    fn discard(&self, staged: &Staged) -> Result<(), CommitError>;

    /// Gives up what an effect that is in place displaced. What views may still look at that began before stays until [`Place::clear`].
    ///
    /// # Errors
    /// What the file system refuses.
    fn finish(&self, staged: &Staged) -> Result<(), CommitError>;

    /// Whether something was displaced that no view looks at any more. Does not block.
    fn has_to_clear(&self) -> bool {
        false
    }

    /// Removes what was displaced and no view looks at any more.
    ///
    /// # Errors
    /// What the file system refuses.
    fn clear(&self) -> Result<(), IoFailure> {
        Ok(())
    }
}

/// A staged effect, as the ledger keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staged {
    /// The id of the view it came from.
    pub id: String,
    /// What a place needs to know of it, in its own words.
    pub plan: String,
}
