//! An execution as it is in the journal.

use std::collections::HashSet;

use belay_execution::Execution;
use belay_journal::Transition;

use crate::store::secrets::Secrets;

/// An execution that was folded from its stored events.
pub(crate) struct ReplayedExecution {
    /// The execution.
    pub(crate) execution: Execution,
    /// The secrets to hide in it.
    pub(crate) secrets: Secrets,
    /// The size of what it was folded from as it is stored, without what is sealed in events.
    pub(crate) bytes: usize,
    /// The last event of the snapshot that it was restored from; 0 when there was none.
    pub(crate) snapshot_at: u64,
    /// The names of the files of its blobs; `None` when it was restored from a snapshot, since the events before that were not read.
    pub(crate) blobs: Option<HashSet<String>>,
}

/// The size of transitions as they are stored, without what is sealed.
pub(crate) fn shown_bytes(transitions: &[Transition]) -> usize {
    transitions.iter().map(|transition| transition.shown.len()).sum()
}
