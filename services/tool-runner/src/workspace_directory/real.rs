//! Workspaces on the disk.

use std::{
    any::Any,
    fs::{DirBuilder, File, canonicalize},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use belay_workspace::{
    Commit, CommitError, Digest, EffectError, IoFailure, Limits, Manifest, OpenError, Stop, ViewError, Workspace,
};

use super::{Place, Places, Staged};
use crate::View;

/// Folders of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealPlaces;

impl Places for RealPlaces {
    fn resolve(&self, path: &Path) -> Result<PathBuf, OpenError> {
        canonicalize(path).map_err(|source| OpenError::Unreachable { path: path.to_owned(), source })
    }

    fn stores_around(&self, path: &Path) -> Option<PathBuf> {
        belay_workspace::stores_around(path)
    }

    fn make(&self, path: &Path) -> Result<(), OpenError> {
        make_for_good(path).map_err(|source| OpenError::Unreachable { path: path.to_owned(), source })
    }

    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn Place>, OpenError> {
        let forbidden: Vec<&Path> = forbidden.iter().map(PathBuf::as_path).collect();
        Ok(Arc::new(Workspace::open(path, &forbidden)?))
    }
}

/// Makes a folder with those above it. Their names are on the disk for good: what a ledger says was committed there must not go with them.
fn make_for_good(path: &Path) -> io::Result<()> {
    let is_there = |folder: &&Path| folder.try_exists().unwrap_or(false);
    let Some(above) = path.ancestors().find(is_there).filter(|above| *above != path) else { return Ok(()) };
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let made_in = path.ancestors().skip(1).take_while(|folder| folder.starts_with(above));
    made_in.map(File::open).try_for_each(|folder| folder?.sync_all())
}

impl Place for Workspace {
    fn path(&self) -> &Path {
        Self::path(self)
    }

    fn sweep(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
        Self::sweep(self, keep)
    }

    fn view(&self, id: &str) -> Result<Box<dyn View>, ViewError> {
        Ok(Box::new(Self::view(self, id)?))
    }

    fn effect(&self, view: &dyn View, stop: Stop<'_>) -> Result<Manifest, EffectError> {
        let view: &dyn Any = view;
        let view = view.downcast_ref::<belay_workspace::View>().expect("the view is of this place");
        view.effect_until(Limits::default(), stop)
    }

    fn stage(&self, view: Box<dyn View>, manifest: &Manifest, stop: Stop<'_>) -> Result<Staged, CommitError> {
        let view: Box<dyn Any> = view;
        let view = view.downcast::<belay_workspace::View>().expect("the view is of this place");
        let id = view.id().to_owned();
        match self.stage_until(*view, manifest, stop) {
            Ok(commit) => {
                let plan = serde_json::to_string(&commit).expect("numbers, texts and lists are always JSON");
                Ok(Staged { id, plan })
            }
            Err(error) => {
                let unfinished = Commit { id, manifest: Digest::of(&[]), ops: Vec::new() };
                if let Err(left) = Self::discard(self, &unfinished) {
                    tracing::warn!(error = %left, "What was staged stays until the workspace is opened again");
                }
                Err(error)
            }
        }
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
        Self::discard(self, &commit(staged)?)
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

/// Marks a commit as done before the next one begins. It is in place whether or not that succeeds.
fn retire(workspace: &Workspace, commit: &Commit) {
    if let Err(error) = workspace.retire(commit) {
        tracing::warn!(%error, "What a commit displaced stays in its place until it is removed");
    }
}

fn commit(staged: &Staged) -> Result<Commit, CommitError> {
    serde_json::from_str(&staged.plan).map_err(|error| {
        let failure = IoFailure { doing: "reading the plan of commit", path: staged.id.clone(), source: error.into() };
        CommitError::Io(failure)
    })
}
