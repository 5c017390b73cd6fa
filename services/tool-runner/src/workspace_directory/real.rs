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
    CacheChanges, Commit, CommitError, Digest, EffectError, IoFailure, Layer, LayerOwner, LayerPlace, Limits, Manifest,
    OpenError, OwnChanges, Stop, ViewError, Workspace,
};

use serde::{Deserialize, Serialize};

use super::{StagedEffect, WorkspaceDirectories, WorkspaceDirectory};
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

    fn view_over(&self, id: &str, set: &str, layers: &[String], stop: Stop<'_>) -> Result<Box<dyn View>, ViewError> {
        Ok(Box::new(Self::view_over(self, id, set, layers, stop)?))
    }

    fn view_without_conflicts(
        &self,
        id: &str,
        set: &str,
        layers: &[String],
        owner: LayerOwner,
        stop: Stop<'_>,
    ) -> Result<Box<dyn View>, ViewError> {
        Ok(Box::new(Self::view_without_conflicts(self, id, set, layers, owner, stop)?))
    }

    fn own_changes(&self, view: &dyn View, manifest: &Manifest) -> OwnChanges {
        of_workspace(view).own_changes(manifest)
    }

    fn effect(&self, view: &dyn View, stop: Stop<'_>) -> Result<Manifest, EffectError> {
        of_workspace(view).effect_until(Limits::default(), stop)
    }

    fn stage(&self, view: Box<dyn View>, manifest: &Manifest, stop: Stop<'_>) -> Result<StagedEffect, CommitError> {
        let view = into_workspace(view);
        let id = view.id().to_owned();
        let staged = self.stage_until(*view, manifest, stop);
        staged.map(|commit| written(&id, &commit)).inspect_err(|_| remove_unfinished(self, id))
    }

    fn stage_layer(
        &self,
        view: Box<dyn View>,
        own: OwnChanges,
        layer: (LayerPlace, Vec<String>, String),
        stop: Stop<'_>,
    ) -> Result<(StagedEffect, String), CommitError> {
        let view = into_workspace(view);
        let id = view.id().to_owned();
        let staged = Self::stage_layer(self, *view, own, layer, stop);
        let staged = staged.map(|layer| (written(&id, &layer), layer.reference()));
        staged.inspect_err(|_| remove_unfinished(self, id))
    }

    fn layer_notes(&self, set: &str, layers: &[String]) -> Result<Vec<String>, ViewError> {
        Self::layer_notes(self, set, layers)
    }

    fn remove_layers(&self, set: &str) -> Result<(), IoFailure> {
        Self::remove_layers(self, set)
    }

    fn sweep_layers(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
        Self::sweep_layers(self, keep)
    }

    fn stage_caches(&self, view: &dyn View) -> Result<(), IoFailure> {
        Self::stage_caches(self, of_workspace(view))
    }

    fn caches(&self, view: &str) -> Result<Option<CacheChanges>, IoFailure> {
        Self::caches(self, view)
    }

    fn check(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        match plan(staged)? {
            Plan::Layer(layer) => self.check_layer(&layer),
            Plan::Commit(commit) => Self::check(self, &commit),
        }
    }

    fn apply(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        match plan(staged)? {
            Plan::Layer(layer) => return self.keep_layer(&layer),
            Plan::Commit(commit) => {
                Self::apply(self, &commit)?;
                retire(self, &commit);
            }
        }
        Ok(())
    }

    fn redo(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        match plan(staged)? {
            Plan::Layer(layer) => return self.keep_layer(&layer),
            Plan::Commit(commit) => {
                Self::redo(self, &commit)?;
                retire(self, &commit);
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), IoFailure> {
        Self::sync(self)
    }

    fn discard(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        match plan(staged)? {
            Plan::Layer(Layer { commit, .. }) | Plan::Commit(commit) => Self::discard(self, &commit)?,
        }
        if let Err(error) = Self::caches(self, &staged.id).map(drop) {
            tracing::warn!(%error, "Cannot remove what a call has left in its caches; it stays until the workspace is next opened");
        }
        Ok(())
    }

    fn finish(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        match plan(staged)? {
            // It has replaced nothing.
            Plan::Layer(_) => Ok(()),
            Plan::Commit(commit) => Self::finish(self, &commit),
        }
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

/// Removes what a staging that has failed has left.
fn remove_unfinished(workspace: &Workspace, id: String) {
    let unfinished = Commit { id, manifest: Digest::of(&[]), ops: Vec::new() };
    if let Err(left) = workspace.discard(&unfinished) {
        tracing::warn!(error = %left, "Cannot remove staged files; they stay until the workspace is next opened");
    }
}

fn of_workspace(view: &dyn View) -> &belay_workspace::View {
    let view: &dyn Any = view;
    view.downcast_ref().expect("the view belongs to this workspace")
}

fn into_workspace(view: Box<dyn View>) -> Box<belay_workspace::View> {
    let view: Box<dyn Any> = view;
    view.downcast().expect("the view belongs to this workspace")
}

/// The plan for what was staged.
#[derive(Deserialize)]
#[serde(untagged)]
enum Plan {
    Layer(Layer),
    Commit(Commit),
}

fn written(id: &str, plan: &impl Serialize) -> StagedEffect {
    let plan = serde_json::to_string(plan).expect("numbers, texts and lists are always JSON");
    StagedEffect { id: id.to_owned(), plan }
}

fn plan(staged: &StagedEffect) -> Result<Plan, CommitError> {
    serde_json::from_str(&staged.plan).map_err(|error| {
        let failure = IoFailure { doing: "reading the plan of commit", path: staged.id.clone(), source: error.into() };
        CommitError::Io(failure)
    })
}
