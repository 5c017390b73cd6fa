//! Commits to the journal: the operations that are ready go together, and each has an outcome.

use belay_reasons::StoreFault;
use std::{sync::Arc, time::Duration};

use belay_defects::{Defect, is_planted};
use belay_group_commit::{CommitError, GroupCommit, Writer, WriterRuntime};
use belay_journal::{
    BatchOutcome, Evidence, JournalReader, JournalWriter, Refused, StoreError, StoreWrite, StoreWriteOutcome,
};

use crate::feeds::{Follower, Push};

/// Makes operations durable.
pub(crate) type Commits = GroupCommit<Write, Result<StoreWriteOutcome, Refused>, Arc<StoreError>>;

/// An operation to commit.
#[derive(Debug)]
pub(crate) struct Write {
    /// The operation.
    pub(crate) operation: StoreWrite,
    /// The data that it brings along for readers.
    pub(crate) push: Option<Push>,
}

impl From<StoreWrite> for Write {
    fn from(operation: StoreWrite) -> Self {
        Self { operation, push: None }
    }
}

/// A commit that failed for its whole batch.
pub(crate) type BatchError = CommitError<Arc<StoreError>>;

/// How often a batch of unknown outcome is committed again. With [`pause`] the store is given 30 s: one that does not answer for longer is reported
/// as failed, and what it has is read when it is opened again.
const MAX_ATTEMPTS: u32 = 14;

/// How long to wait before an attempt, from 10 ms to 5 s.
fn pause(attempt: u32) -> Duration {
    Duration::from_millis(10 << attempt.min(9)).min(Duration::from_secs(5))
}

/// Starts the group commit of a journal, which the follower follows.
pub(crate) fn start(
    writer: impl JournalWriter,
    reader: Arc<dyn JournalReader>,
    follower: Arc<Follower>,
    max_batch: usize,
) -> Commits {
    let runs = if writer.blocks() { WriterRuntime::OnThread("belay-journal") } else { WriterRuntime::AsTask };
    GroupCommit::start(runs, max_batch, Committing { writer, reader, follower })
}

struct Committing<W> {
    writer: W,
    reader: Arc<dyn JournalReader>,
    follower: Arc<Follower>,
}

impl<W: JournalWriter> Writer<Write, Result<StoreWriteOutcome, Refused>, Arc<StoreError>> for Committing<W> {
    async fn commit(&mut self, batch: Vec<Write>) -> Result<Vec<Result<StoreWriteOutcome, Refused>>, Arc<StoreError>> {
        let (batch, pushes): (Vec<StoreWrite>, Vec<_>) =
            batch.into_iter().map(|Write { operation, push }| (operation, push)).unzip();
        let committed = match self.writer.commit(&batch).await {
            // Only the store can give a new execution its key.
            Err(StoreError::OutcomeUnknown(_))
                if is_planted(Defect::LostAnswerTrusted)
                    && batch.iter().all(|operation| matches!(operation, StoreWrite::Append { .. })) =>
            {
                Ok(batch.iter().map(|_| Ok(StoreWriteOutcome::Appended)).collect())
            }
            Err(StoreError::OutcomeUnknown(why)) => Box::pin(self.find_out(&batch, why)).await,
            committed => committed,
        };
        let answers = committed.map_err(Arc::new)?;
        // Before any caller learns of it: no caller acts on what readers cannot be shown.
        for ((operation, push), answer) in batch.into_iter().zip(pushes).zip(&answers) {
            if let Ok(done) = answer {
                self.follower.committed(operation, push, done);
            }
        }
        self.follower.has_committed();
        Ok(answers)
    }
}

impl<W: JournalWriter> Committing<W> {
    /// The outcome of a batch whose answer was lost. It is committed again, until the store answers: what can be repeated is repeated, and what
    /// cannot is refused where it is there already. A refusal counts only when the operation is not there. Nothing else is committed meanwhile.
    async fn find_out(&mut self, batch: &[StoreWrite], mut why: String) -> BatchOutcome {
        for attempt in 0..MAX_ATTEMPTS {
            tracing::warn!(why, attempt, "It is not known whether a batch was stored; it is committed again");
            tokio::time::sleep(pause(attempt)).await;
            match self.again(batch).await {
                Err(StoreError::OutcomeUnknown(again) | StoreError::Fault(StoreFault::Other(again))) => why = again,
                known => return known,
            }
        }
        Err(StoreError::OutcomeUnknown(why))
    }

    async fn again(&mut self, batch: &[StoreWrite]) -> BatchOutcome {
        let mut answers = self.writer.commit(batch).await?;
        for (operation, answer) in batch.iter().zip(&mut answers) {
            if answer.is_err()
                && let Some(done) = operation.outcome(&Evidence::read(self.reader.as_ref(), operation).await?)
            {
                *answer = Ok(done);
            }
        }
        Ok(answers)
    }
}

#[cfg(test)]
mod tests;
