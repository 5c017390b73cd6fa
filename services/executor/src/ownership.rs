//! Whether this process still owns the executions in the store.
//!
//! The store and the runner refuse what a replaced owner writes, by its fence. What else it could change has no fence: the files of blobs, and what the
//! gate asks people. It asks the store before it changes any of these because of what it takes for the state of an execution.

use std::sync::Arc;

use crate::journal_reads::JournalReads;

/// The ownership of one process.
#[derive(Clone)]
pub(crate) struct Ownership {
    reads: Arc<JournalReads>,
    token: i64,
}

impl Ownership {
    pub(crate) fn new(reads: Arc<JournalReads>, token: i64) -> Self {
        Self { reads, token }
    }

    /// Whether no other process has opened the store since. A store that cannot be read shows nothing: `false`.
    pub(crate) async fn lasts(&self) -> bool {
        match self.reads.read(|reader| reader.newest_token()).await {
            Ok(newest) if newest > self.token => {
                tracing::warn!(newest, token = self.token, "Another executor has replaced this one");
                false
            }
            Ok(_) => true,
            Err(error) => {
                tracing::warn!(%error, "It cannot be read whether another executor has replaced this one");
                false
            }
        }
    }
}
