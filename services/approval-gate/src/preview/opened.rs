//! An approval with the contents of its files, cached while a person pages through them.

use std::collections::HashMap;

use belay_grant::{Change, Subject};
use belay_redaction::Redactor;

use super::{Contents, listed_path};

/// The subject of an approval, with the contents of its files.
pub(crate) struct Opened {
    /// The approval's name.
    pub(crate) name: String,
    /// The contents of its files, verified against the subject's digests.
    pub(crate) contents: Contents,
    subject: Subject,
    /// The indexes of the changes, by listed path.
    by_path: HashMap<String, usize>,
}

impl Opened {
    pub(crate) fn new(name: String, subject: Subject, contents: Contents, redactor: &Redactor) -> Self {
        let paths = subject.changes.iter().enumerate();
        let by_path = paths.map(|(place, change)| (listed_path(redactor, change), place)).collect();
        Self { name, contents, subject, by_path }
    }

    /// The change of a listed path; `None` when the approval does not change it.
    pub(crate) fn change(&self, listed: &str) -> Option<&Change> {
        self.by_path.get(listed).map(|place| &self.subject.changes[*place])
    }
}
