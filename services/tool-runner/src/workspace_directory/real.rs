//! Workspaces on disk.

use std::{
    any::Any,
    fs::{DirBuilder, File, canonicalize},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use belay_workspace::{
    CacheChanges, Commit, CommitError, Digest, EffectError, IoFailure, Limits, Manifest, OpenError, Stop, ViewError,
    Workspace,
};

use super::{Staged, WorkspaceDirectories, WorkspaceDirectory};
use crate::View;

/// Directories of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostDirectories;

impl WorkspaceDirectories for HostDirectories {
    fn resolve(&self, path: &Path) -> Result<PathBuf, OpenError> {
        canonicalize(path).map_err(|source| OpenError::Unreachable { path: path.to_owned(), source })
    }

    fn enclosing_state_directory(&self, path: &Path) -> Option<PathBuf> {
        belay_workspace::enclosing_state_directory(path)
    }

    fn make(&self, path: &Path) -> Result<(), OpenError> {
        make_for_good(path).map_err(|source| OpenError::Unreachable { path: path.to_owned(), source })
    }

    fn remove(&self, path: &Path) -> Result<(), OpenError> {
        belay_workspace::remove_workspace(path)
    }

    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn WorkspaceDirectory>, OpenError> {
        let forbidden: Vec<&Path> = forbidden.iter().map(PathBuf::as_path).collect();
        Ok(Arc::new(Workspace::open(path, &forbidden)?))
    }
}

/// Creates a directory and its parents, and syncs their names: an effect that the ledger holds as committed there must not be lost with
/// them.
fn make_for_good(path: &Path) -> io::Result<()> {
    let is_there = |folder: &&Path| folder.try_exists().unwrap_or(false);
    let Some(above) = path.ancestors().find(is_there).filter(|above| *above != path) else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let made_in = path.ancestors().skip(1).take_while(|folder| folder.starts_with(above));
    made_in.map(File::open).try_for_each(|folder| folder?.sync_all())
}

impl WorkspaceDirectory for Workspace {
    fn path(&self) -> &Path {
        Self::path(self)
    }

    fn is_replaced(&self) -> bool {
        Self::is_replaced(self)
    }

    fn sweep(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
        Self::sweep(self, keep)
    }

    fn view(&self, id: &str) -> Result<Box<dyn View>, ViewError> {
        Ok(Box::new(Self::view(self, id)?))
    }

    fn effect(&self, view: &dyn View, stop: Stop<'_>) -> Result<Manifest, EffectError> {
        let view: &dyn Any = view;
        let view = view.downcast_ref::<belay_workspace::View>().expect("the view belongs to this workspace");
        view.effect_until(Limits::default(), stop)
    }

    fn stage(&self, view: Box<dyn View>, manifest: &Manifest, stop: Stop<'_>) -> Result<Staged, CommitError> {
        let view: Box<dyn Any> = view;
        let view = view.downcast::<belay_workspace::View>().expect("the view belongs to this workspace");
        let id = view.id().to_owned();
        match self.stage_until(*view, manifest, stop) {
            Ok(commit) => {
                let plan = serde_json::to_string(&commit).expect("numbers, texts and lists are always JSON");
                Ok(Staged { id, plan })
            }
            Err(error) => {
                let unfinished = Commit { id, manifest: Digest::of(&[]), ops: Vec::new() };
                if let Err(left) = Self::discard(self, &unfinished) {
                    tracing::warn!(error = %left, "Cannot remove staged files; they stay until the workspace is next opened");
                }
                Err(error)
            }
        }
    }

    fn stage_caches(&self, view: &dyn View) -> Result<(), IoFailure> {
        let view: &dyn Any = view;
        let view = view.downcast_ref::<belay_workspace::View>().expect("the view belongs to this workspace");
        Self::stage_caches(self, view)
    }

    fn caches(&self, view: &str) -> Result<Option<CacheChanges>, IoFailure> {
        Self::caches(self, view)
    }

    fn check(&self, staged: &Staged) -> Result<(), CommitError> {
        Self::check(self, &commit(staged)?)
    }

    fn apply(&self, staged: &Staged) -> Result<(), CommitError> {
        let commit = commit(staged)?;
        Self::apply(self, &commit)?;
        retire(self, &commit);
        Ok(())
    }

    fn redo(&self, staged: &Staged) -> Result<(), CommitError> {
        let commit = commit(staged)?;
        Self::redo(self, &commit)?;
        retire(self, &commit);
        Ok(())
    }

    fn sync(&self) -> Result<(), IoFailure> {
        Self::sync(self)
    }

    fn discard(&self, staged: &Staged) -> Result<(), CommitError> {
        Self::discard(self, &commit(staged)?)?;
        if let Err(error) = Self::caches(self, &staged.id).map(drop) {
            tracing::warn!(%error, "Cannot remove what a call has left in its caches; it stays until the workspace is next opened");
        }
        Ok(())
    }

    fn finish(&self, staged: &Staged) -> Result<(), CommitError> {
        Self::finish(self, &commit(staged)?)
    }

    fn has_to_clear(&self) -> bool {
        Self::has_to_clear(self)
    }

    fn clear(&self) -> Result<(), IoFailure> {
        Self::clear(self)
    }
}

/// Marks a commit as done before the next one starts. The commit is applied even if this fails.
fn retire(workspace: &Workspace, commit: &Commit) {
    if let Err(error) = workspace.retire(commit) {
        tracing::warn!(%error, "Cannot mark a commit as done; the files that it replaced stay in their directory until they are removed");
    }
}

fn commit(staged: &Staged) -> Result<Commit, CommitError> {
    serde_json::from_str(&staged.plan).map_err(|error| {
        let failure = IoFailure { doing: "reading the plan of commit", path: staged.id.clone(), source: error.into() };
        CommitError::Io(failure)
    })
}
