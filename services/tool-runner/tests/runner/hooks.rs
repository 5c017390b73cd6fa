//! Real workspace directories with hooks.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use belay_tool_runner::{HostDirectories, StagedEffect, View, WorkspaceDirectories, WorkspaceDirectory};
use belay_workspace::{
    CommitError, EffectError, IoFailure, LayerOwner, LayerPlace, Manifest, OpenError, OwnChanges, Seam, Stop,
    ViewError, Workspace,
};

/// Hooks that replace operations of a workspace directory; the defaults forward.
pub(crate) trait Hooks: Clone + Send + Sync + 'static {
    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn WorkspaceDirectory>, OpenError> {
        HostDirectories.open(path, forbidden)
    }

    fn view_over(
        &self,
        place: &dyn WorkspaceDirectory,
        id: &str,
        (set, layers): (&str, &[String]),
        stop: Stop<'_>,
    ) -> Result<Box<dyn View>, ViewError> {
        place.view_over(id, set, layers, stop)
    }

    fn effect(&self, place: &dyn WorkspaceDirectory, view: &dyn View, stop: Stop<'_>) -> Result<Manifest, EffectError> {
        place.effect(view, stop)
    }

    fn check(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        place.check(staged)
    }

    fn apply(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        place.apply(staged)
    }

    fn redo(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        place.redo(staged)
    }

    fn finish(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        place.finish(staged)
    }
}

/// Opens a directory through a seam.
pub(crate) fn open_on(
    path: &Path,
    forbidden: &[PathBuf],
    seam: Arc<dyn Seam>,
) -> Result<Arc<dyn WorkspaceDirectory>, OpenError> {
    let forbidden: Vec<&Path> = forbidden.iter().map(PathBuf::as_path).collect();
    Ok(Arc::new(Workspace::open_with(path, &forbidden, seam)?))
}

/// Workspace directories with these hooks.
pub(crate) struct HookedDirectories<H>(pub(crate) H);

struct HookedDirectory<H>(H, Arc<dyn WorkspaceDirectory>);

impl<H: Hooks> WorkspaceDirectories for HookedDirectories<H> {
    fn resolve(&self, path: &Path) -> Result<PathBuf, OpenError> {
        HostDirectories.resolve(path)
    }

    fn enclosing_state_directory(&self, path: &Path) -> Option<PathBuf> {
        HostDirectories.enclosing_state_directory(path)
    }

    fn make(&self, path: &Path) -> Result<(), OpenError> {
        HostDirectories.make(path)
    }

    fn remove(&self, path: &Path) -> Result<(), OpenError> {
        HostDirectories.remove(path)
    }

    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn WorkspaceDirectory>, OpenError> {
        Ok(Arc::new(HookedDirectory(self.0.clone(), self.0.open(path, forbidden)?)))
    }
}

impl<H: Hooks> WorkspaceDirectory for HookedDirectory<H> {
    fn path(&self) -> &Path {
        self.1.path()
    }

    fn sweep(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
        self.1.sweep(keep)
    }

    fn view(&self, id: &str) -> Result<Box<dyn View>, ViewError> {
        self.1.view(id)
    }

    fn view_over(&self, id: &str, set: &str, layers: &[String], stop: Stop<'_>) -> Result<Box<dyn View>, ViewError> {
        self.0.view_over(&*self.1, id, (set, layers), stop)
    }

    fn view_without_conflicts(
        &self,
        id: &str,
        set: &str,
        layers: &[String],
        owner: LayerOwner,
        stop: Stop<'_>,
    ) -> Result<Box<dyn View>, ViewError> {
        self.1.view_without_conflicts(id, set, layers, owner, stop)
    }

    fn own_changes(&self, view: &dyn View, manifest: &Manifest) -> OwnChanges {
        self.1.own_changes(view, manifest)
    }

    fn stage_layer(
        &self,
        view: Box<dyn View>,
        own: OwnChanges,
        layer: (LayerPlace, Vec<String>, String),
        stop: Stop<'_>,
    ) -> Result<(StagedEffect, String), CommitError> {
        self.1.stage_layer(view, own, layer, stop)
    }

    fn layer_notes(&self, set: &str, layers: &[String]) -> Result<Vec<String>, ViewError> {
        self.1.layer_notes(set, layers)
    }

    fn remove_layers(&self, set: &str) -> Result<(), IoFailure> {
        self.1.remove_layers(set)
    }

    fn sweep_layers(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
        self.1.sweep_layers(keep)
    }

    fn effect(&self, view: &dyn View, stop: Stop<'_>) -> Result<Manifest, EffectError> {
        self.0.effect(&*self.1, view, stop)
    }

    fn stage(&self, view: Box<dyn View>, manifest: &Manifest, stop: Stop<'_>) -> Result<StagedEffect, CommitError> {
        self.1.stage(view, manifest, stop)
    }

    fn check(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        self.0.check(&*self.1, staged)
    }

    fn apply(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        self.0.apply(&*self.1, staged)
    }

    fn redo(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        self.0.redo(&*self.1, staged)
    }

    fn sync(&self) -> Result<(), IoFailure> {
        self.1.sync()
    }

    fn discard(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        self.1.discard(staged)
    }

    fn finish(&self, staged: &StagedEffect) -> Result<(), CommitError> {
        self.0.finish(&*self.1, staged)
    }

    fn has_to_clear(&self) -> bool {
        self.1.has_to_clear()
    }

    fn clear(&self) -> Result<(), IoFailure> {
        self.1.clear()
    }
}
