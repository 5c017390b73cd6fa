//! Snapshots of the fold: an execution's state as bytes, so that a long one need not be folded from its first event each time.
//!
//! A snapshot is disposable: the events have everything that it has. It is of one version, and every other is ignored. What follows from the
//! first event (the plan, the facts about tools) and what can be rebuilt (the indexes) is not in it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Execution, ExecutionProgress, Operation, StepKey, StepProgress, StepRecord, StepRole, Steps};
use crate::{Event, ExecutionState, IllegalEvent, Json, Timestamp};

/// The version of snapshots. It changes with everything that their bytes have: a test compares them with those of this version.
pub const SNAPSHOT_VERSION: u32 = 21;

/// Why an execution cannot be restored from a snapshot. Its events still have everything.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NotRestored {
    /// The first event is not that of an execution.
    #[error(transparent)]
    Illegal(#[from] IllegalEvent),
    /// Another version of Belay made it.
    #[error("the snapshot has version {found}, and this version of Belay reads {SNAPSHOT_VERSION}")]
    OtherVersion {
        /// Its version.
        found: u32,
    },
    /// It cannot be decoded.
    #[error("the snapshot cannot be decoded: {0}")]
    Undecodable(String),
    /// It has other steps than the execution.
    #[error("the snapshot is of another plan")]
    OtherPlan,
}

#[derive(Serialize, Deserialize)]
struct Snapshot {
    state: ExecutionState,
    steps: Vec<StepSnapshot>,
    operations: Vec<Operation>,
    progress: ExecutionProgress,
}

/// A step without what its specification gives and without what belongs to the indexes.
#[derive(Serialize, Deserialize)]
struct StepSnapshot {
    /// The role of a step that is not in the plan.
    added: Option<AddedRole>,
    progress: StepProgress,
    listed: Option<usize>,
    open_items: usize,
}

/// The role of a step that is not in the plan.
#[derive(Serialize, Deserialize)]
enum AddedRole {
    Item { of: StepKey, item: Json },
    Compensates { step: StepKey, after: Option<StepKey> },
}

impl StepSnapshot {
    fn of(record: &StepRecord) -> Self {
        let added = match record.role {
            StepRole::Planned => None,
            StepRole::Item { of, .. } => record.item.clone().map(|item| AddedRole::Item { of, item }),
            StepRole::Compensates { step } => {
                Some(AddedRole::Compensates { step, after: record.dependencies.first().copied() })
            }
        };
        Self { added, progress: record.progress().clone(), listed: record.items.listed, open_items: record.items.open }
    }

    fn restore(self, record: &mut StepRecord) {
        let Self { added: _, progress, listed, open_items } = self;
        (record.items.listed, record.items.open) = (listed, open_items);
        record.set_progress(progress);
    }
}

impl Steps {
    /// Appends a step that the plan does not name.
    fn append_added(&mut self, added: &AddedRole, time: Timestamp) -> Result<(), NotRestored> {
        let is_there = |step: StepKey| step.position() < self.len();
        let appended = match *added {
            AddedRole::Item { of, ref item } if is_there(of) => self.append_item(of, item.clone(), time),
            AddedRole::Compensates { step, .. } if is_there(step) => self.compensation(step, time),
            AddedRole::Item { .. } | AddedRole::Compensates { .. } => return Err(NotRestored::OtherPlan),
        };
        appended.map(drop).map_err(|_| NotRestored::OtherPlan)
    }

    /// Connects the steps that undo others, all of which are there now.
    fn connect_added(&mut self, snapshots: &[StepSnapshot]) -> Result<(), NotRestored> {
        for (position, snapshot) in snapshots.iter().enumerate() {
            let Some(AddedRole::Compensates { after: Some(after), .. }) = snapshot.added else { continue };
            if after.position() >= self.len() {
                return Err(NotRestored::OtherPlan);
            }
            let step = StepKey::new(position);
            self[step].dependencies = vec![after];
            self[after].dependents.push(step);
        }
        Ok(())
    }
}

impl Execution {
    /// The state after the events so far, as bytes. They have the execution's secrets. `None` once the plan was changed: then the first event no longer
    /// says which steps there are, and an execution whose plan a person changes is rare and rarely long.
    ///
    /// # Panics
    /// Never: memory can be written to, and everything has an encoding.
    pub fn snapshot(&self) -> Option<Vec<u8>> {
        let Self {
            revised: None,
            revision: 0,
            created: _,
            started_by: _,
            created_at: _,
            index: _,
            state,
            steps,
            operations,
            progress,
            due_reports: _,
        } = self
        else {
            return None;
        };
        let snapshot = Snapshot {
            state: *state,
            steps: steps.iter().map(|(_, record)| StepSnapshot::of(record)).collect(),
            operations: operations.iter().cloned().collect(),
            progress: progress.clone(),
        };
        let bytes = postcard::to_stdvec(&(SNAPSHOT_VERSION, snapshot));
        Some(bytes.expect("memory can be written to, and everything has an encoding"))
    }

    /// The execution with this first event, as it was when the snapshot was made. The events after [`Self::last_sequence`] follow.
    ///
    /// # Errors
    /// [`NotRestored`]: then the execution is folded from its events.
    pub fn restore(first: Event, snapshot: &[u8]) -> Result<Self, NotRestored> {
        let undecodable = |error: postcard::Error| NotRestored::Undecodable(error.to_string());
        let (found, rest) = postcard::take_from_bytes::<u32>(snapshot).map_err(undecodable)?;
        if found != SNAPSHOT_VERSION {
            return Err(NotRestored::OtherVersion { found });
        }
        let (snapshot, rest) = postcard::take_from_bytes::<Snapshot>(rest).map_err(undecodable)?;
        if !rest.is_empty() {
            return Err(NotRestored::Undecodable(format!("{} bytes are left", rest.len())));
        }
        let mut execution = Self::create(first)?;
        let time = execution.last_time;
        for step in snapshot.steps.iter().skip(execution.steps.len()) {
            let added = step.added.as_ref().ok_or(NotRestored::OtherPlan)?;
            execution.steps.append_added(added, time)?;
        }
        execution.steps.connect_added(&snapshot.steps)?;
        let steps = execution.steps.len();
        let is_of_a_step = |operation: &Operation| operation.key.step.position() < steps;
        if snapshot.steps.len() != steps || !snapshot.operations.iter().all(is_of_a_step) {
            return Err(NotRestored::OtherPlan);
        }
        let Snapshot { state, steps, operations, progress } = snapshot;
        (execution.state, execution.progress) = (state, progress);
        for (position, step) in steps.into_iter().enumerate() {
            step.restore(&mut execution.steps[StepKey::new(position)]);
        }
        execution.restore_operations(operations);
        Ok(execution)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExecutionEvent, test_support::started};

    // What is in flight belongs to a step: an operation of a step that is not there is not dropped in silence.
    #[test]
    fn a_snapshot_with_an_operation_of_no_step_is_refused() {
        let now = Timestamp::from_micros(5);
        let one = started("id: p\nsteps: [{id: a, wait: {signal: go}}]", now);
        let two = started("id: p\nsteps: [{id: a, wait: {signal: go}}, {id: b, wait: {signal: go}}]", now);
        let created = || Event {
            sequence: 1,
            time: now,
            actor: None,
            body: ExecutionEvent::Created(Box::new(one.created().clone())).into(),
        };
        assert_eq!(Execution::restore(created(), &one.snapshot().unwrap()).unwrap(), one);
        let mut other = one.clone();
        other.operations = two.operations.clone();
        assert_eq!(Execution::restore(created(), &other.snapshot().unwrap()), Err(NotRestored::OtherPlan));
    }
}
