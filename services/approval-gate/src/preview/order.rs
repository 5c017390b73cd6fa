//! The order in which changes are shown. The runner has judged, ordered and grouped them by their paths as they are; here, paths are redacted already.

use belay_grant::{Change, Folder, Gravity, Subject};

/// A line of the preview.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// A change, and its place in the subject.
    One(usize, &'a Change),
    /// A folder in which only plain creations happen.
    Folder(&'a Folder),
}

impl Entry<'_> {
    /// The number of changes that it stands for.
    pub(super) fn count(self) -> usize {
        match self {
            Self::One(..) => 1,
            Self::Folder(folder) => usize::try_from(folder.changes).unwrap_or(usize::MAX),
        }
    }
}

/// The changes, the gravest first, with plain creations grouped by folder.
pub(super) fn entries(subject: &Subject) -> Vec<Entry<'_>> {
    let ungrouped = subject.changes.iter().enumerate().filter(|(_, change)| change.folder.is_none());
    let (plain, others): (Vec<_>, Vec<_>) = ungrouped.partition(|(_, change)| change.gravity == Gravity::Created);
    let one = |(place, change)| Entry::One(place, change);
    let folders = subject.folders.iter().map(Entry::Folder);
    others.into_iter().map(one).chain(folders).chain(plain.into_iter().map(one)).collect()
}
