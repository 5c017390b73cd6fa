//! Bugs to plant at the seams, to show that the checker finds them.

use std::sync::Arc;
use std::time::Duration;

use belay_defects::Defect;
use belay_journal::{BatchOutcome, JournalWriter, StoreError, StoreWrite, StoreWriteOutcome};
use belay_journal_sqlite::SqliteWriter;
use belay_proto::stores::Stores;
use belay_service_kit::ServiceChannel;
use belay_sqlite::Synchronous;
use tokio::sync::Mutex;
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
    /// The fate of the runner's ledger when the runner restarts.
    pub(super) calls: Memory,
    /// The fate of the gate's store when the gate restarts.
    pub(super) gate: Memory,
    /// Whether one row of the runner's ledger is damaged once. A fault, not a bug.
    pub(super) damages_a_row: bool,
    /// Whether all executions append to one file at once, repeatedly. Neither a fault nor a bug.
    pub(super) crowds: bool,
    /// Whether some steps wait for a time, a signal or an answer. Neither a fault nor a bug.
    pub(super) waits: bool,
    /// Whether some steps have plans of their own. Neither a fault nor a bug.
    pub(super) nests: bool,
    /// Whether the executor drives only what it is asked to, as one beside which there is no service. Neither a fault nor a bug.
    pub(super) drives_some: bool,
    /// Whether a client lists and gets executions all the time. Neither a fault nor a bug.
    pub(super) looks: bool,
    /// Whether executions that have ended are forked. Neither a fault nor a bug.
    pub(super) forks: bool,
    /// Whether executions that have ended are deleted, also those of steps' plans. Neither a fault nor a bug.
    pub(super) deletes: bool,
    /// Whether the executor deletes executions soon after their ends by itself, as its settings say. Neither a fault nor a bug.
    pub(super) retains: bool,
    /// Whether a receiver of webhooks, which is away now and then, is told what happens to executions, while the executor's clock is set. A fault, not a bug.
    pub(super) webhooks: bool,
    /// Whether all steps have plans of their own, many of which end as soon as they have begun. Neither a fault nor a bug.
    pub(super) broods: bool,
    /// Whether some steps run for each entry of a list, fall back to other calls, are undone, have checks, or share resources. Neither a fault nor a bug.
    pub(super) extends: bool,
    /// Whether what fails runs again by its plan, which then waits for a person. Neither a fault nor a bug.
    pub(super) escalates: bool,
    /// Whether the executor's journal is once replaced by an older copy, which is accepted as an operator would do.
    pub(super) restores_journal: bool,
    /// Whether the stores of all services, the blobs and the workspaces are once copied together and later replaced by the copy. A fault, not a bug.
    pub(super) restores_all: bool,
    /// Whether another executor replaces each while it runs, which does not notice that. A fault, not a bug.
    pub(super) replaces_executors: bool,
    /// A defect planted in the services' own code.
    pub(super) defect: Option<Defect>,
    pub(super) journal: Synchronous,
    pub(super) ledger: Synchronous,
    pub(super) workspaces: Flaw,
    /// An additional fault and its number: not a bug, but it exposes one.
    pub(super) often: Option<(u32, Fault)>,
}

impl Bugs {
    /// A defect of the services' own code.
    pub(super) fn planted(defect: Defect) -> Self {
        Self { defect: Some(defect), ..Self::default() }
    }

    /// Whether namespaces may have budgets. Only where nothing else is planted: the seeds that find what is planted stay what they are.
    pub(super) fn has_budgets(&self) -> bool {
        self.defect.is_none_or(|defect| defect == Defect::NamespaceHoldsForgotten)
    }

    /// Whether a process that drives nothing reads the journal beside the executor, and clients look there as well.
    pub(super) fn reads_beside(&self) -> bool {
        // What is planted is to be found by the clients of the executor alone.
        let is_planted = self.defect.is_some()
            || self.writes_behind
            || [self.calls, self.gate].contains(&Memory::Replaced)
            || [self.journal, self.ledger].contains(&Synchronous::Normal)
            || self.workspaces != Flaw::None;
        !is_planted
    }

    /// A channel of a service with these stores. When a bug loses a store's contents, the services do not report positions to each other: they would
    /// detect the loss, and the audit has to find the bug without that. The same when executors are replaced: one that is told that its store is behind
    /// stops before it writes.
    pub(super) fn channel(&self, channel: Channel, stores: &Arc<Stores>) -> ServiceChannel {
        let forgets = self.writes_behind
            || self.replaces_executors
            || self.calls == Memory::Replaced
            || [self.journal, self.ledger].contains(&Synchronous::Normal);
        if forgets { channel.into() } else { ServiceChannel::new(channel, Arc::clone(stores)) }
    }
}

/// The content of a restarted service's store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Memory {
    /// Everything.
    #[default]
    Kept,
    /// Empty: the store is new, with a new id. A fault, not a bug.
    Lost,
    /// Empty: the store is new, but has the old id.
    Replaced,
}

/// The journal's writer, with or without a bug: then it returns from appends at once, and commits them a little later, or with the next batch.
pub(super) enum SimulatedWriter {
    /// As it is.
    AtOnce(SqliteWriter),
    /// With the bug.
    Behind(Arc<Mutex<Behind>>),
}

pub(super) struct Behind {
    writer: SqliteWriter,
    held: Vec<StoreWrite>,
}

impl SimulatedWriter {
    pub(super) fn new(writer: SqliteWriter, bugs: &Bugs) -> Self {
        match bugs.writes_behind {
            false => Self::AtOnce(writer),
            true => Self::Behind(Arc::new(Mutex::new(Behind { writer, held: Vec::new() }))),
        }
    }
}

impl Behind {
    async fn flush(&mut self) -> Result<(), StoreError> {
        let held = std::mem::take(&mut self.held);
        match held.is_empty() {
            true => Ok(()),
            false => self.writer.commit(&held).await.map(drop),
        }
    }
}

impl JournalWriter for SimulatedWriter {
    fn blocks(&self) -> bool {
        false
    }

    async fn commit(&mut self, batch: &[StoreWrite]) -> BatchOutcome {
        let shared = match self {
            Self::AtOnce(writer) => return writer.commit(batch).await,
            Self::Behind(shared) => shared,
        };
        let mut behind = shared.lock().await;
        behind.flush().await?;
        // Only the store can assign the key of a new execution.
        if batch.iter().any(|operation| matches!(operation, StoreWrite::Create { .. })) {
            return behind.writer.commit(batch).await;
        }
        let answers = batch.iter().map(|_| Ok(StoreWriteOutcome::Appended)).collect();
        behind.held = batch.to_vec();
        let later = Arc::clone(shared);
        tokio::spawn(async move {
            tokio::time::sleep(WRITE_DELAY).await;
            // Only the next commit returns a failure, which is the bug.
            drop(later.lock().await.flush().await);
        });
        Ok(answers)
    }
}
