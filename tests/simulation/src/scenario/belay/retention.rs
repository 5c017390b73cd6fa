//! Deletions by the executor's retention, recorded with the journal's commits and outside of the machines: it deletes only executions that have
//! ended, whose end is recorded where it belongs, and never the execution of a step's plan while that of the step is in progress.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_journal::{
    BatchOutcome, DeleteRequest, ExecutionKey, ExecutionRow, ExecutionSummary, NewExecution, StoreWrite,
    StoreWriteOutcome,
};
use belay_proto::v1::{self, child_ended::End, execution_event::Kind};
use belay_settings::{Retention, ValueWithOrigin};
use prost::Message as _;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::hosts::now_micros;
use super::records::{Deletion, parent_of};
use crate::checker::Checker;
use crate::trace;

/// The settings of one simulation: a few seconds, or some executions, or both.
pub(super) fn settings(seed: u64) -> Retention {
    let mut random = StdRng::seed_from_u64(seed ^ 0x7E7A);
    let which = random.random_range(0..3);
    let finished_for = (which != 1).then(|| random.random_range(0..=4));
    let keep_last = (which != 0).then(|| [0, 2, 6, 20, 60][random.random_range(0..5)]);
    Retention {
        finished_for: ValueWithOrigin::default_of(finished_for),
        keep_last: ValueWithOrigin::default_of(keep_last),
    }
}

/// The interval between two rounds of it.
pub(super) fn interval(seed: u64) -> Duration {
    Duration::from_millis(StdRng::seed_from_u64(seed ^ 0x17E2).random_range(5..400))
}

/// How long an execution may be in progress again, in microseconds, when retention deletes one of its children: it has looked before.
const LOOKED_BEFORE: i64 = 1_000_000;

/// Executions that retention has deleted. Clones are one record.
#[derive(Debug, Clone, Default)]
pub(super) struct DeletedExecutions(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    executions: BTreeMap<ExecutionKey, KnownExecution>,
    /// By the name of the parent and the call's name: the executions of steps' plans.
    started: BTreeMap<(String, String), String>,
    /// The executions of steps' plans whose end is recorded, or was tried to be.
    recorded: BTreeSet<String>,
    /// By the names of the executions.
    taken: BTreeMap<String, Deletion>,
    /// Whether the record is closed.
    is_closed: bool,
}

#[derive(Debug)]
struct KnownExecution {
    name: String,
    parent_step: String,
    parent: Option<ExecutionKey>,
    progress: Progress,
}

impl KnownExecution {
    fn new(execution: &NewExecution, progress: Progress) -> Self {
        let NewExecution { namespace, id, parent, .. } = execution;
        Self {
            name: format!("namespaces/{namespace}/executions/{id}"),
            parent_step: execution.parent_step().unwrap_or_default(),
            parent: parent.as_ref().map(|parent| parent.execution),
            progress,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// In progress since then, in true time in microseconds since the Unix epoch.
    Since(i64),
    Ended,
    /// A commit has no answer.
    Unknown,
}

impl Progress {
    fn after(self, summary: &ExecutionSummary, now: i64) -> Self {
        match self {
            _ if summary.ended => Self::Ended,
            Self::Since(before) => Self::Since(before),
            Self::Ended | Self::Unknown => Self::Since(now),
        }
    }
}

impl DeletedExecutions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The executions that a batch deletes, of which only the journal knows their names: nobody knows whether it had created them.
    pub(super) fn unknown(&self, batch: &[StoreWrite]) -> Vec<ExecutionKey> {
        let state = self.state();
        batch.iter().filter_map(deleted).filter(|key| !state.executions.contains_key(key)).collect()
    }

    /// Records what the journal knows of an execution.
    pub(super) fn know(&self, key: ExecutionKey, row: Option<&ExecutionRow>) {
        let known = row.map(|row| KnownExecution::new(&row.execution, Progress::Unknown));
        self.state().executions.extend(known.map(|known| (key, known)));
    }

    /// Commits a batch, and records what it does.
    pub(super) async fn remembering(
        &self,
        batch: &[StoreWrite],
        checker: &Checker,
        commit: impl Future<Output = BatchOutcome>,
    ) -> BatchOutcome {
        let before: Vec<Option<Progress>> = {
            let mut state = self.state();
            batch.iter().map(|operation| state.tried(operation, checker)).collect()
        };
        let answers = commit.await?;
        let mut state = self.state();
        for ((operation, answer), before) in batch.iter().zip(&answers).zip(before) {
            match answer {
                Ok(done) => state.done(operation, done, before, checker),
                Err(_) => state.refused(operation, before),
            }
        }
        Ok(answers)
    }

    /// The executions that retention has deleted, or may have, by name.
    pub(super) fn all(&self) -> BTreeMap<String, Deletion> {
        let mut taken = self.state().taken.clone();
        taken.retain(|_, deletion| deletion.open > 0 || deletion.acknowledged_at.is_some());
        taken
    }

    /// Whether retention has deleted an execution, or may have.
    pub(super) fn has(&self, name: &str) -> bool {
        let state = self.state();
        state.taken.get(name).is_some_and(|deletion| deletion.open > 0 || deletion.acknowledged_at.is_some())
    }

    /// Records nothing of what the other services forget from now on.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
    }
}

/// The execution that an operation deletes without a client's request.
fn deleted(operation: &StoreWrite) -> Option<ExecutionKey> {
    match operation {
        StoreWrite::Delete { key, request, .. } if *request == DeleteRequest::default() => Some(*key),
        _ => None,
    }
}

/// The summary that an operation stores of an execution that is there.
fn summarized(operation: &StoreWrite) -> Option<(ExecutionKey, &ExecutionSummary)> {
    match operation {
        StoreWrite::Append { key, summary: Some(summary), .. } | StoreWrite::Summarize { key, summary, .. } => {
            Some((*key, summary))
        }
        _ => None,
    }
}

impl State {
    /// Records an operation whose result is not known yet. Returns the progress before it of the execution whose summary it changes.
    fn tried(&mut self, operation: &StoreWrite, checker: &Checker) -> Option<Progress> {
        if let Some(known) = deleted(operation).and_then(|key| self.executions.get(&key)) {
            let deletion = self.taken.entry(known.name.clone()).or_default();
            deletion.open += 1;
            deletion.parent_step.clone_from(&known.parent_step);
        }
        if let StoreWrite::Append { key, transition, .. } = operation
            && let Some(name) = self.executions.get(key).map(|known| known.name.clone())
        {
            self.children(&name, &transition.shown, checker);
        }
        let (key, _) = summarized(operation)?;
        let known = self.executions.get_mut(&key)?;
        Some(std::mem::replace(&mut known.progress, Progress::Unknown))
    }

    /// Records which executions of its steps' plans an execution has started, and those whose ends it records.
    fn children(&mut self, parent: &str, mut shown: &[u8], checker: &Checker) {
        while let Ok(event) = v1::ExecutionEvent::decode_length_delimited(&mut shown) {
            let call = (parent.to_owned(), belay_proto::call_name(parent, &event));
            match &event.kind {
                Some(Kind::ChildStarted(started)) => {
                    let (executions, _) = parent.rsplit_once('/').unwrap_or_default();
                    self.started.insert(call, format!("{executions}/{}", started.execution_id));
                }
                Some(Kind::ChildEnded(ended)) => {
                    let Some(child) = self.started.get(&call).cloned() else { continue };
                    if let Some(End::Failure(failure)) = &ended.end
                        && failure.reason == "CHILD_LOST"
                        && self.taken.contains_key(&child)
                    {
                        checker.violation(format_args!("{parent} has lost {child}, which retention has deleted"));
                    }
                    self.recorded.insert(child);
                }
                _ => {}
            }
            if shown.is_empty() {
                break;
            }
        }
    }

    fn refused(&mut self, operation: &StoreWrite, before: Option<Progress>) {
        if let Some(known) = deleted(operation).and_then(|key| self.executions.get(&key))
            && let Some(deletion) = self.taken.get_mut(&known.name)
        {
            deletion.open -= 1;
            trace::count("deletions by retention refused");
        }
        if let Some((key, _)) = summarized(operation)
            && let (Some(known), Some(before)) = (self.executions.get_mut(&key), before)
        {
            known.progress = before;
        }
    }

    fn done(&mut self, operation: &StoreWrite, done: &StoreWriteOutcome, before: Option<Progress>, checker: &Checker) {
        let now = now_micros();
        match (operation, done) {
            (StoreWrite::Create { execution, summary, .. }, StoreWriteOutcome::Created(key)) => {
                // Some end as soon as they have begun.
                self.executions.insert(*key, KnownExecution::new(execution, Progress::Unknown.after(summary, now)));
            }
            (StoreWrite::CloseDeletion { key, .. }, _) if !self.is_closed => {
                if let Some(deletion) = self.executions.get(key).and_then(|known| self.taken.get_mut(&known.name)) {
                    deletion.is_complete = true;
                }
            }
            _ => {}
        }
        if let Some((key, summary)) = summarized(operation)
            && let Some(known) = self.executions.get_mut(&key)
        {
            known.progress = before.unwrap_or(Progress::Unknown).after(summary, now);
        }
        if let Some(key) = deleted(operation) {
            self.is_taken(key, now, checker);
        }
    }

    /// B-28: retention has deleted an execution.
    fn is_taken(&mut self, key: ExecutionKey, now: i64, checker: &Checker) {
        let Some(KnownExecution { name, parent_step, parent, progress }) = self.executions.get(&key) else { return };
        trace::event(format_args!("retention deletes {name}"));
        trace::count(if parent_step.is_empty() { "executions not kept" } else { "children not kept" });
        let deletion = self.taken.entry(name.clone()).or_default();
        deletion.acknowledged_at.get_or_insert(now);
        if matches!(progress, Progress::Since(_)) {
            checker.violation(format_args!("retention has deleted {name}, which has not ended"));
        }
        let running = parent.as_ref().and_then(|parent| self.executions.get(parent));
        if let Some(KnownExecution { name: parent, progress: Progress::Since(since), .. }) = running {
            if now - since > LOOKED_BEFORE {
                checker.violation(format_args!("retention has deleted {name} while {parent} is in progress"));
            }
            if !self.recorded.contains(name) {
                checker.violation(format_args!("retention has deleted {name} before {parent} had recorded its end"));
            }
            trace::count("children not kept by an execution that goes on");
        }
        if parent_of(parent_step).is_some_and(|parent| self.taken.contains_key(parent)) {
            trace::count("children not kept after their parents");
        }
    }
}
