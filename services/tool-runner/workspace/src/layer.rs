//! The changes of one call of a set, as a value.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{
    commit::{Commit, Op},
    dropped::RevertedPath,
    manifest::{Act, Change, Manifest},
    path::RelPath,
    tree::{Digest, Node},
};

/// Where a layer is kept: 1 to 64 letters, digits, `-` and `_` each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerPlace {
    /// The set of layers that are committed together.
    pub set: String,
    /// The entry whose layer it is. A later layer of the same entry replaces an earlier one.
    pub entry: String,
}

/// The changes of one call of a set. Its id is that of its commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layer {
    /// Its place.
    pub place: LayerPlace,
    /// The staged changes.
    pub commit: Commit,
    /// The paths that it reverted, of the layers that it began with.
    pub undone: Vec<RevertedPath>,
    /// The references of the layers that it began with.
    pub over: Vec<String>,
    /// Its caller's note for the commit of the set.
    pub note: String,
}

/// The changes of a call beyond the layers that it began with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnChanges {
    /// The changes, as changes of the workspace.
    pub manifest: Manifest,
    /// The same, each as a change of what the call began with: what it did itself.
    pub seen: Manifest,
    /// The paths that are as they are in the workspace again.
    pub undone: Vec<RevertedPath>,
}

impl OwnChanges {
    /// Whether the call changed nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.manifest.is_empty() && self.undone.is_empty()
    }

    /// The changes that a view has now beyond those that it had: see [`View::own_changes`].
    #[must_use]
    pub fn between(before: &Manifest, now: &Manifest) -> Self {
        let at = |manifest: &Manifest, path: &RelPath| {
            manifest.changes.binary_search_by(|change| change.path.cmp(path)).ok()
        };
        let is_new =
            |change: &&Change| at(before, &change.path).is_none_or(|index| !is_same(&before.changes[index], change));
        let changes: Vec<Change> = now.changes.iter().filter(is_new).cloned().collect();
        // A path inside of a directory that is put there or removed as a whole is part of that.
        let whole = changes.iter().filter(|change| !matches!(change.act, Act::Meta { .. }));
        let whole = Paths::of(whole.map(|change| (&change.path, true)));
        let undone = before
            .changes
            .iter()
            .filter(|change| at(now, &change.path).is_none() && !whole.contain(&change.path))
            .map(|change| RevertedPath { path: change.path.clone(), is_mode: matches!(change.act, Act::Meta { .. }) })
            .collect();
        let seen =
            changes.iter().map(|change| seen(change, at(before, &change.path).map(|index| &before.changes[index])));
        let seen = Manifest { changes: seen.collect(), ..Manifest::default() };
        Self { manifest: Manifest { changes, left_out: now.left_out.clone() }, seen, undone }
    }
}

/// A change as the call made it, on top of an earlier one of the same path: in a directory that an earlier call has made, only what differs from that. What
/// earlier calls have added and this one removes again is no removal: the workspace never had it.
fn seen(now: &Change, earlier: Option<&Change>) -> Change {
    let Some(earlier) = earlier else { return now.clone() };
    let has = |nodes: &[Node], path: &RelPath| nodes.binary_search_by(|node| node.path.cmp(path)).is_ok();
    let stays = |node: &&Node| has(&now.after, &node.path) || has(&now.before, &node.path);
    let before: Vec<Node> = earlier.after.iter().filter(stays).cloned().collect();
    let differs = |path: &RelPath| {
        let at = |nodes: &[Node]| nodes.iter().find(|node| node.path == *path).cloned();
        at(&before) != at(&now.after)
    };
    let flags = now.flags.iter().filter(|flagged| differs(&flagged.path)).cloned().collect();
    Change { before, flags, ..now.clone() }
}

/// Paths, each with whether everything inside of it is meant too.
pub(crate) struct Paths<'a>(BTreeMap<&'a [u8], bool>);

impl<'a> Paths<'a> {
    pub(crate) fn of(paths: impl Iterator<Item = (&'a RelPath, bool)>) -> Self {
        Self(paths.map(|(path, whole)| (path.as_bytes(), whole)).collect())
    }

    /// Whether the path is one of them, or inside of one that is meant with everything in it.
    pub(crate) fn cover(&self, path: &RelPath) -> bool {
        self.0.contains_key(path.as_bytes()) || self.contain(path)
    }

    /// Whether the path is inside of one of them that is meant with everything in it.
    pub(crate) fn contain(&self, path: &RelPath) -> bool {
        let bytes = path.as_bytes();
        let parents = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &bytes[..at]);
        parents.into_iter().any(|parent| self.0.get(parent) == Some(&true))
    }

    /// Whether one of them is the path, has it inside, or is inside of it; the last two only where the outer one is meant with everything in it.
    fn touch(&self, path: &RelPath, whole: bool) -> bool {
        let inside = [path.as_bytes(), b"/"].concat();
        let has_inside = || self.0.range(&*inside..).next().is_some_and(|(first, _)| first.starts_with(&inside));
        self.cover(path) || whole && has_inside()
    }
}

/// The changes of each of these layers, in their order, that no later one of them reverts: where the workspace has changed since at the path of another one, that is no
/// conflict, because the path is as the workspace has it.
pub(crate) fn in_force(layers: &[Layer]) -> Vec<Vec<&Op>> {
    let (mut whole, mut modes) = (Paths(BTreeMap::new()), BTreeSet::new());
    let mut found: Vec<Vec<&Op>> = Vec::with_capacity(layers.len());
    for layer in layers.iter().rev() {
        let stands = |op: &&Op| {
            let path = op.path();
            !(whole.cover(path) || matches!(op, Op::Meta { .. }) && modes.contains(path))
        };
        found.push(layer.commit.ops.iter().filter(stands).collect());
        for RevertedPath { path, is_mode } in &layer.undone {
            if *is_mode {
                modes.insert(path);
            } else {
                whole.0.insert(path.as_bytes(), true);
            }
        }
    }
    found.reverse();
    found
}

/// Whether two changes of one path come to the same.
fn is_same(one: &Change, other: &Change) -> bool {
    match (one.act, other.act) {
        (Act::Put { .. }, Act::Put { .. }) => one.before == other.before && one.after == other.after,
        (Act::Away { .. }, Act::Away { .. }) => true,
        (Act::Meta { new, .. }, Act::Meta { new: other, .. }) => new == other,
        _ => false,
    }
}

impl Layer {
    /// The name by which a later view refers to it: its id and a digest of all that describes it, joined by a full stop. Who keeps the reference
    /// elsewhere than in the workspace finds out when the layer was tampered with there.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}.{}", self.commit.id, Digest::of(&self.description()))
    }

    pub(crate) fn description(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("texts, numbers and lists are always JSON")
    }

    /// The paths that it touches, each with whether everything inside is touched too.
    fn touched(&self) -> impl Iterator<Item = (&RelPath, bool)> {
        let changed = self.commit.ops.iter().map(|op| (op.path(), !matches!(op, Op::Meta { .. })));
        changed.chain(self.undone.iter().map(|undone| (&undone.path, !undone.is_mode)))
    }

    /// The paths that it touches and another one too.
    pub(crate) fn overlap(&self, other: &Self) -> Vec<RelPath> {
        let others = Paths::of(other.touched());
        self.touched().filter(|(path, whole)| others.touch(path, *whole)).map(|(path, _)| path.clone()).collect()
    }
}
