//! The order in which folders are read, and what ends it.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use belay_workspace::RelPath;

use super::{left_out::Reason, secret_files::is_secret};
use crate::{ToolFailure, tools::files::Stop};

/// The largest file that is searched, in bytes.
pub(super) const MAX_FILE: u64 = 1 << 20;

/// Folders of what tools have fetched or made: they are read after all others.
const LATE: [&str; 12] = [
    "node_modules",
    "target",
    "vendor",
    "dist",
    "build",
    "out",
    ".venv",
    "venv",
    "__pycache__",
    ".next",
    ".gradle",
    ".cache",
];

/// What ends the reading of files: a call that is stopped, or whose time for reading is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Reading {
    pub(super) stop: Stop,
    late: Arc<AtomicBool>,
}

impl Reading {
    /// Reading that ends when `stop` says so.
    pub(super) fn new(stop: Stop) -> Self {
        Self { stop, late: Arc::default() }
    }

    /// Says that the time is over.
    pub(super) fn is_late_now(&self) {
        self.late.store(true, Ordering::Relaxed);
    }

    /// Whether there is time for another file.
    ///
    /// # Errors
    /// When the call was stopped.
    pub(super) fn goes_on(&self) -> Result<bool, ToolFailure> {
        self.stop.check()?;
        Ok(!self.late.load(Ordering::Relaxed))
    }
}

/// Folders to read: those near the top first, so that a bound leaves out what lies deepest.
#[derive(Clone, Debug, Default)]
pub(super) struct Folders {
    first: VecDeque<RelPath>,
    late: VecDeque<RelPath>,
}

impl Folders {
    /// Adds a folder, unless it is Git's own.
    pub(super) fn add(&mut self, path: RelPath) {
        if is_of_git(&path) {
            return;
        }
        let is_late = path.names().any(|name| LATE.iter().any(|late| name == *late));
        if is_late { self.late.push_back(path) } else { self.first.push_back(path) }
    }

    /// The next one.
    pub(super) fn next(&mut self) -> Option<RelPath> {
        self.first.pop_front().or_else(|| self.late.pop_front())
    }
}

/// Whether it is, or is in, a `.git`.
fn is_of_git(path: &RelPath) -> bool {
    path.names().any(|name| name == ".git")
}

/// Why a file is not searched, by its name and size.
pub(super) fn why_not(path: &RelPath, size: u64) -> Option<Reason> {
    if is_of_git(path) {
        Some(Reason::OfGit)
    } else if is_secret(path) {
        Some(Reason::SecretFile)
    } else if size > MAX_FILE {
        Some(Reason::TooLarge)
    } else {
        None
    }
}

/// Why the content of a file, of which one byte more than [`MAX_FILE`] was read, is not searched.
pub(super) fn why_not_content(bytes: &[u8]) -> Option<Reason> {
    if bytes.len() as u64 > MAX_FILE {
        Some(Reason::TooLarge)
    } else if bytes.contains(&0) {
        Some(Reason::Binary)
    } else {
        None
    }
}
