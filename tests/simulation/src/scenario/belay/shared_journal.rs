//! A journal that executors open one after the other, while an executor before may still have it: as with a store elsewhere, whose lock an executor
//! may lose without noticing it.

use std::sync::Arc;

use belay_journal::{
    BatchOutcome, JournalReader, JournalWriter, OpenedStore, Reading, Refused, StoreError, StoreWrite,
};
use belay_journal_sqlite::SqliteWriter;
use tokio::sync::{RwLock, watch};

use super::bugs::{Bugs, SimulatedWriter};
use super::hosts::Owners;
use super::retention::DeletedExecutions;
use super::webhooks::Mailbox;
use crate::checker::Checker;
use crate::trace;

/// The journal, as the last executor that opened it has it. Clones are the same journal.
#[derive(Clone, Default)]
pub(super) struct SharedJournal(Arc<RwLock<Option<Open>>>, watch::Sender<()>);

struct Open {
    writer: SimulatedWriter,
    reader: Arc<dyn JournalReader>,
    fence: i64,
}

impl SharedJournal {
    /// Opens it, also for the executors that have it already. They keep their fence.
    pub(super) async fn open(
        &self,
        bugs: &Bugs,
        open: impl AsyncFnOnce() -> Result<OpenedStore<SqliteWriter>, StoreError>,
    ) -> Result<OpenedStore<()>, StoreError> {
        let mut current = self.0.write().await;
        // SQLite's lock allows no second one.
        *current = None;
        let OpenedStore { writer, reader, client_reader, store_id, stores, fence } = open().await?;
        *current = Some(Open { writer: SimulatedWriter::new(writer, bugs), reader: Arc::clone(&reader), fence });
        Ok(OpenedStore { writer: (), reader, client_reader, store_id, stores, fence })
    }

    /// Changes when something is about to be written, as the log of a journal does.
    pub(super) fn writes(&self) -> watch::Receiver<()> {
        self.1.subscribe()
    }

    pub(super) async fn read<T>(
        &self,
        read: impl for<'r> FnOnce(&'r dyn JournalReader) -> Reading<'r, T>,
    ) -> Result<T, StoreError> {
        match &*self.0.read().await {
            Some(open) => read(open.reader.as_ref()).await,
            None => Err(StoreError::Broken),
        }
    }
}

/// The writer of one of the executors that have the journal.
pub(super) struct SharedWriter {
    pub(super) journal: SharedJournal,
    pub(super) owners: Owners,
    /// The executor's fence.
    pub(super) fence: i64,
    pub(super) checker: Checker,
    /// Executions that retention deletes, where it does.
    pub(super) taken: Option<DeletedExecutions>,
    /// The mailbox that is told of it, where there is one.
    pub(super) mailbox: Option<Mailbox>,
}

impl JournalWriter for SharedWriter {
    fn blocks(&self) -> bool {
        false
    }

    async fn commit(&mut self, batch: &[StoreWrite]) -> BatchOutcome {
        let mut current = self.journal.0.write().await;
        let Some(open) = current.as_mut() else { return Err(StoreError::Broken) };
        self.journal.1.send_replace(());
        if self.fence == open.fence {
            let Open { writer, reader, .. } = open;
            let commit = self.owners.remembering(batch, writer.commit(batch));
            return match (&self.taken, &self.mailbox) {
                (_, Some(mailbox)) => mailbox.remembering(batch, commit).await,
                (Some(taken), None) => {
                    for key in taken.unknown(batch) {
                        taken.know(key, reader.get(key).await?.as_ref());
                    }
                    taken.remembering(batch, &self.checker, commit).await
                }
                (None, None) => commit.await,
            };
        }
        let answers = open.writer.commit(batch).await?;
        for (operation, answer) in batch.iter().zip(&answers) {
            match answer {
                Err(Refused::Fenced { .. }) => trace::count("writes of replaced executors refused"),
                // An owner decides none of these.
                _ if !is_fenced(operation) => {}
                // S2-NFR-005, B-08.
                Ok(_) => self.checker.violation(format_args!(
                    "an executor with fence {}, which that with {} had replaced, has written",
                    self.fence, open.fence
                )),
                Err(_) => {}
            }
        }
        Ok(answers)
    }
}

/// Whether only the owner may do this.
pub(super) fn is_fenced(operation: &StoreWrite) -> bool {
    match operation {
        StoreWrite::Create { .. }
        | StoreWrite::Append { .. }
        | StoreWrite::Summarize { .. }
        | StoreWrite::TakeMessages { .. }
        | StoreWrite::KeepSnapshot { .. }
        | StoreWrite::Delete { .. }
        | StoreWrite::Erase { .. }
        | StoreWrite::CloseDeletion { .. }
        | StoreWrite::PutSchedule { .. }
        | StoreWrite::DeleteSchedule { .. } => true,
        StoreWrite::DropDeletions { .. }
        | StoreWrite::RemoveMessage { .. }
        | StoreWrite::PostponeMessage { .. }
        | StoreWrite::RescheduleMessages { .. }
        | StoreWrite::DropMessages { .. } => false,
    }
}
