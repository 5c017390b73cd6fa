//! Whether this process still owns the executions in the store.
//!
//! The store, the runner and the gate refuse what a replaced owner writes, by its fence. The files of blobs have none, and the gate knows a fence from
//! the first request on that came with it. So this process asks the store before it removes files, and before it withdraws what the gate asks people.

use std::sync::Arc;

use belay_journal::JournalReader;

/// The ownership of one process.
#[derive(Clone)]
pub(crate) struct Ownership {
    reader: Arc<dyn JournalReader>,
    token: i64,
}

impl Ownership {
    pub(crate) fn new(reader: Arc<dyn JournalReader>, token: i64) -> Self {
        Self { reader, token }
    }

    /// The fencing token of this process.
    pub(crate) fn token(&self) -> i64 {
        self.token
    }

    /// Whether no other process has opened the store since. A store that cannot be read shows nothing: `false`.
    pub(crate) async fn is_still_owner(&self) -> bool {
        match self.reader.newest_token().await {
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
