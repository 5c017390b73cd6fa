//! Errors of a store.

use thiserror::Error;

use crate::ExecutionKey;

/// The reason why a store cannot be opened, read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("the store is in use by another process")]
    Locked,
    /// Its content is damaged, or is not that of a journal.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A row of one execution is damaged; the others can be used. The message names the row.
    #[error("{0}")]
    Damaged(String),
    /// There is no such execution: it was deleted.
    #[error("there is no execution with key {}: it was deleted", .0.0)]
    Missing(ExecutionKey),
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// Its files were removed or replaced while it was open.
    #[error("the store's file was removed or replaced while it was in use")]
    Gone,
    /// Another service has seen a later position of it.
    #[error("{0}")]
    Behind(String),
    /// A newer version of Belay wrote it.
    #[error("the store has format {found}, and this version of Belay reads up to {known}")]
    Newer {
        /// The store's format.
        found: i64,
        /// The newest format known.
        known: i64,
    },
    /// An earlier, unreleased version of Belay wrote it.
    #[error(
        "the store has format {found} of an earlier version of Belay, and this version reads format {known}: it lacks {lacks}"
    )]
    Older {
        /// The store's format.
        found: i64,
        /// The format that is read.
        known: i64,
        /// The part that the earlier format lacks.
        lacks: &'static str,
    },
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
    /// Anything else.
    #[error("the store failed: {0}")]
    Other(String),
}
