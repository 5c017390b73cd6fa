//! The owners of the journal, what each of them stored, and when.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use belay_journal::{BatchOutcome, ExecutionKey, StoreWrite, StoreWriteOutcome};

use super::super::bugs::Bugs;
use super::clock::now_micros;

/// Knowledge about the owners of a journal that was copied.
#[derive(Debug)]
pub(in super::super) struct OwnersCopy {
    newest_fence: i64,
    names: BTreeMap<ExecutionKey, String>,
    stored: BTreeMap<(String, i64), Write>,
}

/// When a transition was stored, and by whom.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Write {
    /// True time in microseconds since the Unix epoch.
    pub(in super::super) at: i64,
    /// The fence of the executor that stored it.
    pub(in super::super) fence: i64,
}

/// The owners of the journal so far.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Owners(Arc<Mutex<OwnerState>>);

#[derive(Debug, Default)]
pub(super) struct OwnerState {
    pub(super) newest_fence: i64,
    pub(super) runners: u64,
    pub(super) gates: u64,
    /// The number of times the gate has lost its store.
    pub(super) gate_losses: u64,
    pub(super) executors: u64,
    /// Whether every executor that starts from now on drives all executions.
    drives_all: bool,
    /// A copy of the journal and its log, until it is restored.
    pub(super) journal_copy: Option<[Vec<u8>; 2]>,
    /// The copy was restored, and no executor has opened it yet: the operator asks each one to accept it.
    pub(super) accepting: bool,
    pub(super) last_operation: Option<StoreWrite>,
    /// The names of the executions in the journal.
    pub(super) names: BTreeMap<ExecutionKey, String>,
    /// How each transition was stored, by the execution's name and the sequence of its last event.
    stored: BTreeMap<(String, i64), Write>,
}

impl Owners {
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut OwnerState) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The true time at which an event was stored, in microseconds since the Unix epoch; `None` when it is not known.
    pub(in super::super) fn stored_at(&self, execution: &str, sequence: i64) -> Option<i64> {
        self.stored(execution, sequence).map(|stored| stored.at)
    }

    /// How an event was stored; `None` when it is not known.
    pub(in super::super) fn stored(&self, execution: &str, sequence: i64) -> Option<Write> {
        self.with(|owned| {
            let after = owned.stored.range((execution.to_owned(), sequence)..).next();
            after.filter(|((name, _), _)| name == execution).map(|(_, stored)| *stored)
        })
    }

    /// Commits a batch of the owner, and keeps its last operation beyond the machine's end.
    pub(in super::super) async fn remembering(
        &self,
        batch: &[StoreWrite],
        commit: impl Future<Output = BatchOutcome>,
    ) -> BatchOutcome {
        let last = batch.iter().rfind(|operation| is_fenced(operation)).cloned();
        let now = now_micros();
        self.with(|owned| {
            if last.is_some() {
                owned.last_operation = last;
            }
            for operation in batch {
                // Recorded before the result is known: an operation that failed but was stored is not written again.
                if let StoreWrite::Append { key, transition, .. } = operation
                    && let Some(name) = owned.names.get(key)
                {
                    let sequence = |number: u64| (name.clone(), i64::try_from(number).unwrap_or(i64::MAX));
                    // What was tried in their place before was not stored.
                    let first = sequence(transition.first_sequence);
                    owned.stored.retain(|key, _| key.0 != first.0 || key.1 < first.1);
                    let stored = Write { at: now, fence: owned.newest_fence };
                    owned.stored.insert(sequence(transition.last_sequence()), stored);
                }
            }
        });
        let answers = commit.await?;
        self.with(|owned| {
            for (operation, answer) in batch.iter().zip(&answers) {
                if let (StoreWrite::Create { execution, .. }, Ok(StoreWriteOutcome::Created(key))) = (operation, answer)
                {
                    let name = format!("namespaces/{}/executions/{}", execution.namespace, execution.id);
                    owned.names.insert(*key, name);
                }
            }
        });
        Ok(answers)
    }

    /// The current knowledge.
    pub(in super::super) fn copy(&self) -> OwnersCopy {
        self.with(|owned| OwnersCopy {
            newest_fence: owned.newest_fence,
            names: owned.names.clone(),
            stored: owned.stored.clone(),
        })
    }

    /// The journal is what it was then. An executor is asked to accept it or not.
    pub(in super::super) fn restore(&self, copy: OwnersCopy, is_accepted: bool) {
        let OwnersCopy { newest_fence, names, stored } = copy;
        self.with(|owned| {
            (owned.newest_fence, owned.names, owned.stored, owned.last_operation) = (newest_fence, names, stored, None);
            owned.accepting = is_accepted;
        });
    }

    /// Has executors drive all executions from their next start on, whatever they did before, and keep all.
    pub(in super::super) fn drive_all(&self) {
        self.with(|owned| owned.drives_all = true);
    }

    pub(super) fn drives_all(&self, bugs: &Bugs) -> bool {
        !bugs.drives_some || self.is_over()
    }

    /// Whether executors start only so that what is stored can be read.
    pub(super) fn is_over(&self) -> bool {
        self.with(|owned| owned.drives_all)
    }

    /// The fence of the executor that opened the journal last.
    pub(in super::super) fn newest_fence(&self) -> i64 {
        self.with(|owned| owned.newest_fence)
    }
}

/// Whether only the owner may do this.
pub(in super::super) fn is_fenced(operation: &StoreWrite) -> bool {
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
        | StoreWrite::ResetLimitTimes { .. }
        | StoreWrite::DeleteSchedule { .. } => true,
        StoreWrite::DropDeletions { .. }
        | StoreWrite::RemoveMessage { .. }
        | StoreWrite::PostponeMessage { .. }
        | StoreWrite::RescheduleMessages { .. }
        | StoreWrite::DropMessages { .. } => false,
    }
}
