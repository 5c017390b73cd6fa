//! Commits to the journal: the operations that are ready go together.

use std::sync::Arc;

use belay_group_commit::{CommitError, GroupCommit, Runs, Writer};
use belay_journal::{Done, JournalWriter, Operation, Refused, StoreError};

/// What makes operations durable.
pub(crate) type Commits = GroupCommit<Operation, Result<Done, Refused>, Arc<StoreError>>;

/// A commit that failed for its whole batch.
pub(crate) type Failed = CommitError<Arc<StoreError>>;

/// Starts the group commit of a journal.
pub(crate) fn start(writer: impl JournalWriter, max_batch: usize) -> Commits {
    let runs = if writer.blocks() { Runs::OnThread("belay-journal") } else { Runs::AsTask };
    GroupCommit::start(runs, max_batch, Committing(writer))
}

struct Committing<W>(W);

impl<W: JournalWriter> Writer<Operation, Result<Done, Refused>, Arc<StoreError>> for Committing<W> {
    async fn commit(&mut self, batch: Vec<Operation>) -> Result<Vec<Result<Done, Refused>>, Arc<StoreError>> {
        self.0.commit(batch).await.map_err(Arc::new)
    }
}
