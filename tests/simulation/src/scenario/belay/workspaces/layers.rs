//! Layers of a modelled workspace: one file each, with what a call has changed.

use std::collections::{BTreeMap, BTreeSet};

use belay_tool_runner::StagedEffect;
use belay_workspace::{CommitError, Digest, IoFailure, LayerPlace, OwnChanges, ViewError};
use serde::{Deserialize, Serialize};

use super::files::{Files, Op};
use super::support::{conflict, failed};
use super::view::ModelView;

use crate::trace;

/// A staged or kept layer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Layer {
    pub(super) place: LayerPlace,
    id: String,
    ops: Vec<Op>,
    /// Paths in the layers that it began with whose changes it undid.
    undone: Vec<String>,
    over: Vec<String>,
    note: String,
}

impl Layer {
    pub(super) fn of(view: &ModelView, own: &OwnChanges, place: LayerPlace, over: Vec<String>, note: String) -> Self {
        let own_paths: BTreeSet<String> = own.manifest.changes.iter().map(|change| change.path.to_string()).collect();
        let ops = view.ops().into_iter().filter(|op| own_paths.contains(&op.path)).collect();
        let undone = own.undone.iter().map(|undone| undone.path.to_string()).collect();
        Self { place, id: view.id().to_owned(), ops, undone, over, note }
    }

    pub(super) fn ops(&self) -> &[Op] {
        &self.ops
    }

    pub(super) fn written(&self) -> String {
        serde_json::to_string(self).expect("texts are always JSON")
    }

    pub(super) fn reference(&self) -> String {
        format!("{}.{}", self.id, Digest::of(self.written().as_bytes()))
    }

    /// The layer of a staged plan; `None` for that of a commit.
    pub(super) fn staged(staged: &StagedEffect) -> Option<Self> {
        serde_json::from_str(&staged.plan).ok()
    }

    fn paths(&self) -> impl Iterator<Item = &str> {
        self.ops.iter().map(|op| op.path.as_str()).chain(self.undone.iter().map(String::as_str))
    }

    fn name(&self) -> String {
        format!("{}.{}.{}", self.place.set, self.place.entry, self.id)
    }

    /// Lets a view begin with it, without its changes of these paths, which a later layer has reverted. With `dropped`, those at whose paths the workspace has
    /// changed are dropped.
    fn fill(
        &self,
        files: &Files,
        reverted: &BTreeSet<String>,
        view: &mut ModelView,
        dropped: Option<&mut BTreeMap<String, Option<String>>>,
    ) -> Result<(), ViewError> {
        let standing = || self.ops.iter().filter(|op| !reverted.contains(&op.path));
        let is_changed = |op: &&Op| files.content(&op.path).map(|content| Digest::of(content.as_bytes())) != op.base;
        let changed: BTreeSet<&str> = standing().filter(is_changed).map(|op| op.path.as_str()).collect();
        match dropped {
            None if !changed.is_empty() => {
                return Err(ViewError::LayerConflict { paths: conflict(changed) });
            }
            None => {}
            Some(dropped) => {
                let taken = standing().filter(|op| changed.contains(&*op.path));
                dropped.extend(taken.map(|op| (op.path.clone(), op.content.clone())));
            }
        }
        self.undone.iter().for_each(|path| view.undo(path));
        standing().filter(|op| !changed.contains(&*op.path)).for_each(|op| view.begin_with(files, op));
        Ok(())
    }

    /// Checks that no other layer of its set touches a path of it.
    pub(super) fn check(&self, files: &Files) -> Result<(), CommitError> {
        let at = |source| failed("checking layer", &self.id, source);
        if !files.is_staged(&self.id).map_err(at)? {
            return Err(CommitError::NotStaged { id: self.id.clone() });
        }
        let mine: BTreeSet<&str> = self.paths().collect();
        let mut touched = Vec::new();
        for other in all(files, &self.place.set)? {
            let is_below = self.over.contains(&other.reference());
            if other.place.entry != self.place.entry && !is_below {
                touched.extend(other.paths().filter(|path| mine.contains(path)).map(str::to_owned));
            }
        }
        let paths = conflict(touched.iter().map(String::as_str));
        if paths.is_empty() { Ok(()) } else { Err(CommitError::Conflict { paths }) }
    }

    /// Keeps it, durably.
    pub(super) fn keep(&self, files: &Files) -> Result<(), CommitError> {
        let at = |source| failed("keeping layer", &self.id, source);
        for earlier in all(files, &self.place.set)? {
            if earlier.place.entry == self.place.entry && earlier.id != self.id {
                files.remove_layer(&earlier.name()).map_err(at)?;
            }
        }
        files.keep_layer(&self.name(), &self.written()).map_err(at)?;
        Ok(files.remove_staged(&self.id).map_err(at)?)
    }
}

/// The kept layers of a set.
fn all(files: &Files, set: &str) -> Result<Vec<Layer>, IoFailure> {
    let at = |source| failed("reading the layers of", set, source);
    let mut layers = Vec::new();
    for name in files.all_layers().map_err(at)?.iter().filter(|name| name.split('.').next() == Some(set)) {
        if let Some(layer) = files.layer(name).map_err(at)?.and_then(|text| serde_json::from_str(&text).ok()) {
            layers.push(layer);
        }
    }
    Ok(layers)
}

/// Lets a view begin with layers; where it `drops_conflicts`, without their changes of paths that the workspace has otherwise since.
pub(super) fn fill(
    files: &Files,
    set: &str,
    layers: &[String],
    view: &mut ModelView,
    drops_conflicts: bool,
) -> Result<(), ViewError> {
    let found = find(files, set, layers)?;
    let mut dropped = drops_conflicts.then(BTreeMap::new);
    for (place, layer) in found.iter().enumerate() {
        let reverted = found[place + 1..].iter().flat_map(|later| later.undone.iter().cloned()).collect();
        layer.fill(files, &reverted, view, dropped.as_mut())?;
    }
    if !layers.is_empty() {
        trace::count("views over layers");
    }
    let dropped = dropped.unwrap_or_default();
    if !dropped.is_empty() {
        trace::count("views without conflicts");
    }
    view.begun(dropped);
    Ok(())
}

pub(super) fn notes(files: &Files, set: &str, layers: &[String]) -> Result<Vec<String>, ViewError> {
    Ok(find(files, set, layers)?.into_iter().map(|layer| layer.note).collect())
}

fn find(files: &Files, set: &str, layers: &[String]) -> Result<Vec<Layer>, ViewError> {
    let kept = all(files, set)?;
    let find = |reference: &String| {
        let found = kept.iter().find(|layer| layer.reference() == *reference).cloned();
        found.ok_or_else(|| ViewError::LayerGone { layer: reference.clone() })
    };
    layers.iter().map(find).collect()
}

/// Removes the layers of sets that are not to be kept.
pub(super) fn remove(files: &Files, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
    let at = |source| failed("removing", "layers", source);
    for name in files.all_layers().map_err(at)? {
        if !keep(name.split('.').next().unwrap_or_default()) {
            files.remove_layer(&name).map_err(at)?;
        }
    }
    Ok(())
}
