//! The records of a store: executions, transitions, snapshots and summaries.

use std::collections::BTreeMap;

/// The number that identifies an execution within a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionKey(pub i64);

/// The fencing token with which an owner writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The shard.
    pub shard: u32,
    /// Increases with every change of owner.
    pub token: i64,
}

/// A transition: events of one execution that were decided together, in their stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The sequence of the first event.
    pub first_sequence: u64,
    /// The number of events; at least 1.
    pub count: u32,
    /// The version of the events' encoding.
    pub version: u32,
    /// The redacted events: length-delimited `belay.v1.ExecutionEvent`.
    pub shown: Vec<u8>,
    /// The content that `shown` leaves out, sealed; `None` when it is complete.
    pub sealed: Option<Vec<u8>>,
    /// Facts that only services need, in a form of the writer's own, with an execution's first events and with those that change its plan; `None`
    /// with all others. They are stored beside `shown` because that is what clients get.
    pub facts: Option<Vec<u8>>,
}

impl Transition {
    /// The sequence of the last event.
    pub fn last_sequence(&self) -> u64 {
        self.first_sequence + u64::from(self.count) - 1
    }
}

/// A transition as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTransition {
    /// The transition.
    pub transition: Transition,
    /// The token of the fence that it was written with.
    pub token: i64,
}

/// The state of an execution after some of its events, so that reading it need not begin with the first. Disposable: a store may drop it, and
/// a reader that does not know its version ignores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The sequence of the last event that is in it.
    pub sequence: u64,
    /// The version of the events' encoding up to there.
    pub version: u32,
    /// The state, in a form of the writer's own.
    pub content: Vec<u8>,
    /// Whether the content is sealed with the execution's key.
    pub is_sealed: bool,
}

/// Data from which an execution is loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredExecution {
    /// Its row.
    pub row: ExecutionRow,
    /// Its wrapped key; `None` when no transition of it is sealed.
    pub seal_key: Option<Vec<u8>>,
    /// The snapshot to begin with.
    pub snapshot: Option<Snapshot>,
    /// Its transitions in order: all of them, or, with a snapshot, the first and those with events after the snapshot.
    pub transitions: Vec<Transition>,
}

impl StoredExecution {
    /// The facts that only services need, beside the event with this sequence.
    pub fn facts(&self, sequence: u64) -> Option<&[u8]> {
        let at = self.transitions.partition_point(|transition| transition.last_sequence() < sequence);
        self.transitions.get(at)?.facts.as_deref()
    }
}

/// Reasons for which an execution waits while it is parked: a set of kinds, by the numbers of `belay.v1.WaitingReason.Kind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waits(pub u32);

impl Waits {
    /// The set with one more kind. A number that does not fit into the set, which the contract does not have, is left out.
    #[must_use]
    pub fn with(self, kind: i32) -> Self {
        Self(self.0 | u32::try_from(kind).ok().and_then(|kind| 1_u32.checked_shl(kind)).unwrap_or(0))
    }

    /// Whether the kind is in the set.
    pub fn contains(self, kind: i32) -> bool {
        Self::default().with(kind).0 & self.0 != 0
    }

    /// The kinds in the set, in the order of their numbers.
    pub fn kinds(self) -> impl Iterator<Item = i32> {
        (0..32).filter(move |kind| self.contains(*kind))
    }
}

/// How many steps of an execution are in which final state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// All steps.
    pub total: u32,
    /// Completed steps.
    pub completed: u32,
    /// Failed steps.
    pub failed: u32,
    /// Skipped steps.
    pub skipped: u32,
    /// Cancelled steps.
    pub cancelled: u32,
}

/// The summary of an execution, for queries without reading its events. Written when it is created, parks, wakes and ends, but not per step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionSummary {
    /// The execution's state, as the number of `belay.v1.Execution.State`.
    pub state: i32,
    /// Whether it has ended.
    pub ended: bool,
    /// When to load it, in microseconds since the Unix epoch; `None` when only an external event continues it.
    pub wake_at: Option<i64>,
    /// Whether it waits for a time or a person, in memory or not, so that a starting executor need not load it before `wake_at`.
    pub parked: bool,
    /// The reasons for which it waits while it is parked; empty while it is not.
    pub waits_for: Waits,
    /// A digest of what it asks people at the gate while it is parked, by which the gate's list is compared with it; 0 when it asks nothing.
    pub asks: u64,
    /// The time of its last event when the summary was written, in microseconds since the Unix epoch.
    pub updated_at: i64,
    /// When it ended, in microseconds since the Unix epoch.
    pub ended_at: Option<i64>,
    /// The reason of the failure that it ended with.
    pub failure_reason: Option<String>,
    /// Its steps when the summary was written. They change without the summary being written while the execution runs.
    pub steps: StepCounts,
}

impl ExecutionSummary {
    /// Whether the store should have `newer` instead of this one. What changes with every step is not worth a write.
    pub fn is_outdated_by(&self, newer: &Self) -> bool {
        let comparable = Self { updated_at: newer.updated_at, steps: newer.steps, ..self.clone() };
        comparable != *newer
    }
}

/// The step whose plan an execution carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStep {
    /// The execution that the step belongs to.
    pub execution: ExecutionKey,
    /// The id of that execution, which is in the same namespace.
    pub execution_id: String,
    /// The id of the step.
    pub step_id: String,
}

/// An execution to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewExecution {
    /// The namespace's id.
    pub namespace: String,
    /// The execution's id, unique in its namespace.
    pub id: String,
    /// The shard it belongs to.
    pub shard: u32,
    /// When it is created, in microseconds since the Unix epoch.
    pub created_at: i64,
    /// The plan's id, for lists.
    pub plan_id: String,
    /// Labels, for lists.
    pub labels: BTreeMap<String, String>,
    /// The authenticated principal that starts it.
    pub principal: String,
    /// The caller's request id; empty when there is none.
    pub request_id: String,
    /// The digest of the request, which distinguishes a repeated request from another one with the same request id.
    pub request_hash: String,
    /// The step whose plan it carries out; `None` for an execution that a request has started.
    pub parent: Option<ParentStep>,
}

impl NewExecution {
    /// The name of the step whose plan it carries out, `namespaces/*/executions/*/steps/*`.
    pub fn parent_step(&self) -> Option<String> {
        let ParentStep { execution_id, step_id, .. } = self.parent.as_ref()?;
        Some(format!("namespaces/{}/executions/{execution_id}/steps/{step_id}", self.namespace))
    }
}

/// A stored execution without its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionRow {
    /// Its key.
    pub key: ExecutionKey,
    /// The values it was created with.
    pub execution: NewExecution,
    /// Its summary.
    pub summary: ExecutionSummary,
    /// A revision that agrees with the summary: the sequence of the last event when that was written, or of a later one. Whoever is shown the
    /// row and then the execution is shown that with these events.
    pub revision: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_waits_has_what_was_put_in() {
        let waits = Waits::default().with(1).with(4).with(4);
        assert_eq!(waits, Waits(0b1_0010));
        assert_eq!([0, 1, 2, 4, 31].map(|kind| waits.contains(kind)), [false, true, false, true, false]);
        assert_eq!(waits.kinds().collect::<Vec<_>>(), [1, 4]);
        for unknown in [-1, 32, i32::MAX] {
            assert_eq!(waits.with(unknown), waits, "{unknown}");
            assert!(!waits.contains(unknown), "{unknown}");
        }
        assert_eq!(Waits::default().with(31).kinds().collect::<Vec<_>>(), [31]);
    }

    // A running execution does not write its summary for each step.
    #[test]
    fn a_summary_is_outdated_by_what_lists_are_found_by() {
        let old = ExecutionSummary { state: 2, updated_at: 10, ..ExecutionSummary::default() };
        let steps = StepCounts { total: 9, completed: 1, ..StepCounts::default() };
        assert!(!old.is_outdated_by(&ExecutionSummary { updated_at: 20, steps, ..old.clone() }));
        for newer in [
            ExecutionSummary { state: 3, ..old.clone() },
            ExecutionSummary { parked: true, ..old.clone() },
            ExecutionSummary { wake_at: Some(20), updated_at: 20, steps, ..old.clone() },
        ] {
            assert!(old.is_outdated_by(&newer), "{newer:?}");
        }
    }
}
