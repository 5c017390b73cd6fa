//! An approval with the contents of its files, cached while a person pages through them.

use belay_defects::{Defect, is_planted};
use belay_grant::{Change, Subject};

use super::Contents;

/// The subject of an approval, with the contents of its files.
pub(crate) struct OpenedSubject {
    /// The approval's name.
    pub(crate) name: String,
    /// The contents of its files, verified against the subject's digests.
    pub(crate) contents: Contents,
    pub(crate) subject: Subject,
}

impl OpenedSubject {
    pub(crate) fn new(name: String, subject: Subject, contents: Contents) -> Self {
        Self { name, contents, subject }
    }

    /// The change at a place of the subject; `None` when it has fewer. Never looked up by its path: two that are shown may read alike.
    pub(crate) fn change(&self, place: usize) -> Option<&Change> {
        let change = self.subject.changes.get(place)?;
        if is_planted(Defect::ContentByShownPath) {
            return self.subject.changes.iter().rfind(|other| other.path == change.path);
        }
        Some(change)
    }
}
