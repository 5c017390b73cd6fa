//! Errors of a store.

use belay_reasons::StoreFault;
use thiserror::Error;

use crate::ExecutionKey;

/// The reason why a store cannot be opened, read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// It cannot be used.
    #[error(transparent)]
    Fault(#[from] StoreFault),
    /// A row of one execution is damaged; the others can be used. The message names the row.
    #[error("{0}")]
    Damaged(String),
    /// There is no such execution: it was deleted.
    #[error("there is no execution with key {}: it was deleted", .0.0)]
    Missing(ExecutionKey),
    /// Another owner has continued from a later state of this store: it was replaced, or restored from a backup.
    #[error(
        "the tool runner has accepted a later owner than this store has recorded: the store was restored from a backup, or another executor has taken over"
    )]
    Superseded,
    /// An earlier commit failed; the store has to be opened again.
    #[error("an earlier write failed, so the store accepts no more writes until it is opened again")]
    Broken,
    /// The answer to a commit was lost, as when a connection breaks: the batch was committed, was not, or still is on its way.
    #[error("the answer to the last write was lost: {0}")]
    OutcomeUnknown(String),
}
