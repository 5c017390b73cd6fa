//! Bugs to plant at the seams, to show that the checker finds them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_defects::Defect;
use belay_journal::{Done, JournalWriter, Operation, Refused, StoreError};
use belay_proto::stores::Stores;
use belay_service_kit::ServiceChannel;
use belay_sqlite::Synchronous;
use tonic::transport::Channel;

use super::workspaces::Flaw;
use crate::fault::Fault;

/// How long a write-behind journal delays a batch.
const WRITE_DELAY: Duration = Duration::from_millis(40);

/// The planted bugs and additional faults. None by default.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bugs {
    /// The journal acknowledges a batch before it commits it.
    pub(super) writes_behind: bool,
    /// What happens to the runner's ledger when the runner restarts.
    pub(super) calls: Memory,
    /// What happens to the gate's store when the gate restarts.
    pub(super) gate: Memory,
    /// Whether one row of the runner's ledger is damaged once. A fault, not a bug.
    pub(super) damages_a_row: bool,
    /// Whether all executions append to one file at once, repeatedly. Neither a fault nor a bug.
    pub(super) crowds: bool,
    /// Whether some steps wait for a time, a signal or an answer. Neither a fault nor a bug.
    pub(super) waits: bool,
    /// Whether the executor's journal is once replaced by an older copy, which is accepted as an operator would do.
    pub(super) restores_journal: bool,
    /// A defect planted in the services' own code.
    pub(super) defect: Option<Defect>,
    pub(super) journal: Synchronous,
    pub(super) ledger: Synchronous,
    pub(super) workspaces: Flaw,
    /// An additional fault and its number: not a bug, but it exposes one.
    pub(super) often: Option<(u32, Fault)>,
}

impl Bugs {
    /// One defect of the services' own code.
    pub(super) fn planted(defect: Defect) -> Self {
        Self { defect: Some(defect), ..Self::default() }
    }

    /// A channel of a service with these stores. When a bug loses a store's contents, the services do not report positions to each other: they would
    /// detect the loss, and the audit has to find the bug without that.
    pub(super) fn channel(&self, channel: Channel, stores: &Arc<Stores>) -> ServiceChannel {
        let forgets = self.writes_behind
            || self.calls == Memory::Replaced
            || [self.journal, self.ledger].contains(&Synchronous::Normal);
        if forgets { channel.into() } else { ServiceChannel::new(channel, Arc::clone(stores)) }
    }
}

/// What a restarted service finds in its store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Memory {
    /// Everything.
    #[default]
    Kept,
    /// Nothing: its store is new, with a new id. A fault, not a bug.
    Lost,
    /// Nothing: its store is new, but has the old id.
    Replaced,
}

/// A journal that returns from appends at once and commits them a little later, or with the next batch.
pub(super) struct WritesBehind(Arc<Mutex<Behind>>);

struct Behind {
    writer: Box<dyn JournalWriter>,
    held: Vec<Operation>,
}

impl WritesBehind {
    pub(super) fn new(writer: Box<dyn JournalWriter>) -> Self {
        let held = Vec::new();
        Self(Arc::new(Mutex::new(Behind { writer, held })))
    }
}

fn lock(behind: &Mutex<Behind>) -> MutexGuard<'_, Behind> {
    behind.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Behind {
    fn flush(&mut self) -> Result<(), StoreError> {
        let held = std::mem::take(&mut self.held);
        match held.is_empty() {
            true => Ok(()),
            false => self.writer.commit(held).map(drop),
        }
    }
}

impl JournalWriter for WritesBehind {
    fn commit(&mut self, batch: Vec<Operation>) -> Result<Vec<Result<Done, Refused>>, StoreError> {
        let mut behind = lock(&self.0);
        behind.flush()?;
        // Only the store can assign the key of a new execution.
        if batch.iter().any(|operation| matches!(operation, Operation::Create { .. })) {
            return behind.writer.commit(batch);
        }
        let answers = batch.iter().map(|_| Ok(Done::Appended)).collect();
        behind.held = batch;
        let later = Arc::clone(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(WRITE_DELAY).await;
            // Only the next commit returns a failure, which is the bug.
            drop(lock(&later).flush());
        });
        Ok(answers)
    }
}
