//! Inventory of the workspaces at the end.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::super::workspaces::Change;

/// The changes in each workspace.
pub(in super::super) type WorkspaceChanges = BTreeMap<PathBuf, Vec<Change>>;

/// Reads the workspaces on the runner's disk, when requested, instead of running the runner.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Inventory(Arc<Mutex<Stock>>);

#[derive(Debug, Default)]
pub(super) struct Stock {
    pub(super) is_due: bool,
    pub(super) found: Option<WorkspaceChanges>,
}

impl Inventory {
    pub(super) fn stock(&self) -> MutexGuard<'_, Stock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests the inventory: from its next start on, the runner's host runs only this.
    pub(in super::super) fn request(&self) {
        self.stock().is_due = true;
    }

    /// Whether it was taken.
    pub(in super::super) fn is_taken(&self) -> bool {
        self.stock().found.is_some()
    }

    /// Takes the inventory that was found.
    pub(in super::super) fn take(&self) -> Option<WorkspaceChanges> {
        self.stock().found.take()
    }
}
