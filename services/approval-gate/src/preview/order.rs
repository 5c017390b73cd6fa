//! The order in which changes are shown, and how creations are grouped by folder.

use std::collections::{BTreeMap, HashSet};

use belay_grant::{Change, ChangeKind};
use belay_policy::Gravity;

/// Up to this number, plain creations are shown one by one; beyond it they are grouped by folder.
const MAX_UNGROUPED_CREATIONS: usize = 20;

/// A folder with fewer new files is not grouped.
const MIN_GROUP: usize = 4;

/// A line of the preview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// One change.
    One(&'a Change),
    /// A folder in which this number of paths is created, and nothing else changes.
    Folder(&'a str, usize),
}

/// How grave a change is.
pub(super) fn gravity(change: &Change) -> Gravity {
    let kind = match change.kind {
        ChangeKind::Created => belay_policy::ChangeKind::Created,
        ChangeKind::Modified => belay_policy::ChangeKind::Modified,
        ChangeKind::Deleted => belay_policy::ChangeKind::Deleted,
    };
    Gravity::of(&change.path, kind, &change.flags)
}

/// The changes, the gravest first; equally grave ones by path, as in the subject.
pub(crate) fn gravest_first(changes: &[Change]) -> Vec<&Change> {
    let mut sorted: Vec<&Change> = changes.iter().collect();
    sorted.sort_by_cached_key(|change| gravity(change));
    sorted
}

/// The changes, the gravest first, with creations grouped by folder.
pub(super) fn entries(changes: &[Change]) -> Vec<Entry<'_>> {
    let sorted = gravest_first(changes);
    let plain = sorted.iter().position(|change| gravity(change) == Gravity::Created).unwrap_or(sorted.len());
    let (others, created) = sorted.split_at(plain);
    let mut entries: Vec<Entry<'_>> = others.iter().copied().map(Entry::One).collect();
    if created.len() <= MAX_UNGROUPED_CREATIONS {
        entries.extend(created.iter().copied().map(Entry::One));
        return entries;
    }
    // A folder with other changes is not grouped.
    let mixed: HashSet<&str> = others.iter().flat_map(|change| folders(&change.path)).collect();
    let mut groups: BTreeMap<&str, Vec<&Change>> = BTreeMap::new();
    let mut alone = Vec::new();
    for &change in created {
        match folders(&change.path).find(|folder| !mixed.contains(folder)) {
            Some(folder) => groups.entry(folder).or_default().push(change),
            None => alone.push(change),
        }
    }
    // A new folder belongs to its own group.
    for &change in &alone.clone() {
        if let Some(group) = groups.get_mut(change.path.as_str()) {
            group.push(change);
            alone.retain(|other| !std::ptr::eq(*other, change));
        }
    }
    let mut folders = Vec::new();
    for (folder, group) in groups {
        if group.len() < MIN_GROUP {
            alone.extend(group);
        } else {
            folders.push(Entry::Folder(folder, group.len()));
        }
    }
    alone.sort_by(|a, b| a.path.cmp(&b.path));
    entries.extend(folders);
    entries.extend(alone.into_iter().map(Entry::One));
    entries
}

/// The folders around a path, the outermost first.
fn folders(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}
