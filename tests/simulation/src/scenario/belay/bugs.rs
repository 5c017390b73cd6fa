//! Bugs to plant at the seams, so that the checker can show that it sees them.

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

/// How long a journal that writes behind lets a batch wait.
const BEHIND: Duration = Duration::from_millis(40);

/// What is wrong with the services. Nothing by default.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bugs {
    /// The journal acknowledges a batch before it commits it.
    pub(super) writes_behind: bool,
    /// What becomes of the runner's ledger when the runner starts again.
    pub(super) calls: Memory,
    /// What becomes of the gate's store when the gate starts again.
    pub(super) gate: Memory,
    /// Whether the executor's journal is replaced once by a copy from before, and accepted as an operator would.
    pub(super) restores_journal: bool,
    /// Planted in the services' own code.
    pub(super) defect: Option<Defect>,
    pub(super) journal: Synchronous,
    pub(super) ledger: Synchronous,
    pub(super) workspaces: Flaw,
    /// A fault that happens so often besides what the seed lets go wrong: no bug, but it brings one to light.
    pub(super) often: Option<(u32, Fault)>,
}

impl Bugs {
    /// One defect of the services' own code.
    pub(super) fn planted(defect: Defect) -> Self {
        Self { defect: Some(defect), ..Self::default() }
    }

    /// A channel of a service with these stores. Where a store is made to forget, the services do not tell each other what they remember of
    /// it: they would notice, and the bug is there to be found without that.
    pub(super) fn telling(&self, channel: Channel, stores: &Arc<Stores>) -> ServiceChannel {
        let forgets = self.writes_behind
            || self.calls == Memory::Replaced
            || [self.journal, self.ledger].contains(&Synchronous::Normal);
        if forgets { channel.into() } else { ServiceChannel::new(channel, Arc::clone(stores)) }
    }
}

/// What a service that starts again knows of before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Memory {
    /// What its store says.
    #[default]
    Kept,
    /// Nothing: its store is new, and says so. A fault and no bug.
    Lost,
    /// Nothing: its store is new, and passes for the old one.
    Replaced,
}

/// A journal that answers appends at once and commits them a little later, or with the next batch.
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
        // Only the store can say what key a new execution has.
        if batch.iter().any(|operation| matches!(operation, Operation::Create { .. })) {
            return behind.writer.commit(batch);
        }
        let answers = batch.iter().map(|_| Ok(Done::Appended)).collect();
        behind.held = batch;
        let later = Arc::clone(&self.0);
        tokio::spawn(async move {
            tokio::time::sleep(BEHIND).await;
            // A failure is heard of by the next commit, which is the bug.
            drop(lock(&later).flush());
        });
        Ok(answers)
    }
}
