//! An approval whose files are being looked at.

use std::collections::HashMap;

use belay_grant::{Change, Subject};
use belay_redaction::Redactor;

use super::{Contents, listed_path};

/// What an approval is about, with the contents of its files.
pub(crate) struct Opened {
    /// The approval's name.
    pub(crate) name: String,
    /// The contents of its files, checked against the subject's digests.
    pub(crate) contents: Contents,
    subject: Subject,
    /// The places of the changes, by the paths under which they are listed.
    by_path: HashMap<String, usize>,
}

impl Opened {
    pub(crate) fn new(name: String, subject: Subject, contents: Contents, redactor: &Redactor) -> Self {
        let paths = subject.changes.iter().enumerate();
        let by_path = paths.map(|(place, change)| (listed_path(redactor, change), place)).collect();
        Self { name, contents, subject, by_path }
    }

    /// The change of a path, as it is listed; `None` when the approval does not change it.
    pub(crate) fn change(&self, listed: &str) -> Option<&Change> {
        self.by_path.get(listed).map(|place| &self.subject.changes[*place])
    }
}
