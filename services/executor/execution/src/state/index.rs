//! Indexes into the steps and operations, so that deciding costs the same at step 10,000 as at step 10.
//!
//! The contribution of a step or an operation follows from it alone ([`StepClass`], [`OperationClass`]). Every change goes through
//! [`Execution::update_step`] or one of the functions for operations, which compare the contribution before and after. So the indexes can be
//! rebuilt, and a test shows after every event that nothing else would come out.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use belay_plan::{Plan, StepSpec};

use super::{Execution, OpenOperations, Operation, OperationKey, Operations, Phase, StepKey, StepRecord, Steps};
use crate::{StepState, Timestamp};

/// The indexes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Index {
    /// Steps that hold one of the plan's `parallelism` slots. There are more than slots only while effects are committed or discarded.
    pub(crate) slots_held: usize,
    /// Held slots that no operation uses: their steps wait for their next attempt, or their next operation is still to be requested.
    pub(crate) slots_idle: usize,
    /// Steps in `Pending`.
    pub(crate) pending: usize,
    /// Steps in `Ready` whose first attempt has not started, which then hold a slot, and which use no resources.
    pub(crate) ready: BTreeSet<StepKey>,
    /// The same that use resources, by these.
    pub(crate) ready_with: BTreeMap<Vec<String>, BTreeSet<StepKey>>,
    /// The resources that steps use which have started and have not ended, and how many do.
    pub(crate) resources_held: BTreeMap<String, usize>,
    /// Steps that have started and whose next operation is still to be requested. They keep their slot.
    pub(crate) to_request: BTreeSet<StepKey>,
    /// Steps that hold no slot, and whose first attempt can start or whose next operation is still to be requested.
    pub(crate) to_start_without_slot: BTreeSet<StepKey>,
    /// Steps to skip because of a step that they depend on.
    pub(crate) to_skip: BTreeSet<StepKey>,
    /// Steps whose operation has ended and that have not been resolved.
    pub(crate) to_resolve: BTreeSet<StepKey>,
    /// Steps that wait for their next attempt, by its time.
    pub(crate) backing_off: BTreeSet<(Timestamp, StepKey)>,
    /// Steps in `Ready` whose first attempt may start at a time: rounds after a delay.
    pub(crate) ready_from: BTreeSet<(Timestamp, StepKey)>,
    /// Steps in `OutcomeUnknown`.
    pub(crate) unknown: BTreeSet<StepKey>,
    /// Approved calls that wait for a slot.
    pub(crate) queued: BTreeSet<OperationKey>,
    /// Operations whose approval is still to be requested from the gate.
    pub(crate) approval_to_request: BTreeSet<OperationKey>,
    /// Operations whose approval is pending at the gate.
    pub(crate) approval_requested: BTreeSet<OperationKey>,
    /// Waits that end at a time, by that.
    pub(crate) timers: BTreeSet<(Timestamp, OperationKey)>,
    /// Waits for a signal.
    pub(crate) waits_for_signal: BTreeSet<OperationKey>,
    /// Waits for a person's answer.
    pub(crate) waits_for_answer: BTreeSet<OperationKey>,
    /// Questions of calls.
    pub(crate) questions: BTreeSet<OperationKey>,
}

/// The contribution of a step to the indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct StepClass {
    holds_slot: bool,
    idles_slot: bool,
    is_pending: bool,
    is_ready: bool,
    holds_resources: bool,
    to_request: bool,
    to_start_without_slot: bool,
    to_skip: bool,
    to_resolve: bool,
    backing_off: Option<Timestamp>,
    ready_from: Option<Timestamp>,
    is_unknown: bool,
}

impl StepClass {
    fn of(record: &StepRecord) -> Self {
        let (started, slot) = (record.has_started(), record.needs_slot());
        let holds_resources = started && !record.state.is_terminal() && !record.resources().is_empty();
        let none = Self { to_resolve: record.end.is_some(), holds_resources, ..Self::default() };
        match record.state {
            StepState::Pending => Self { is_pending: true, to_skip: record.to_skip.is_some(), ..none },
            StepState::Ready if !started && record.to_skip.is_some() => Self { to_skip: true, ..none },
            StepState::Ready if !started => match record.not_before {
                None => Self { is_ready: slot, to_start_without_slot: !slot, ..none },
                ready_from => Self { ready_from, ..none },
            },
            StepState::Ready | StepState::Running => {
                let OpenOperations { all, awaiting, queued } = record.open;
                let none_can_run = all > 0 && awaiting + queued == all;
                let to_request = record.needs_operation();
                Self {
                    holds_slot: slot && !none_can_run,
                    idles_slot: slot && to_request,
                    to_request: slot && to_request,
                    to_start_without_slot: !slot && to_request,
                    ..none
                }
            }
            StepState::BackingOff => {
                Self { holds_slot: slot, idles_slot: slot, backing_off: record.not_before, ..none }
            }
            StepState::OutcomeUnknown => Self { is_unknown: true, ..none },
            StepState::AwaitingApproval
            | StepState::Waiting
            | StepState::Completed
            | StepState::Failed
            | StepState::Skipped
            | StepState::Cancelled => none,
        }
    }
}

/// The contribution of an operation to the indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct OperationClass {
    queued: bool,
    approval_to_request: bool,
    approval_requested: bool,
    timer: Option<Timestamp>,
    waits_for_signal: bool,
    waits_for_answer: bool,
    is_question: bool,
    open: OpenOperations,
}

impl OperationClass {
    fn of(operation: &Operation) -> Self {
        let is = |phase| operation.phase == phase;
        let condition = operation.wait();
        let requested = operation.requested_approval().is_some();
        Self {
            queued: is(Phase::Queued),
            approval_to_request: operation.needs_approval_request(),
            approval_requested: requested,
            timer: condition.and_then(crate::WaitCondition::until),
            waits_for_signal: condition.is_some_and(|condition| condition.signal().is_some()),
            waits_for_answer: condition.is_some_and(|condition| condition.form().is_some()),
            is_question: condition.is_some_and(|condition| condition.question().is_some()),
            open: OpenOperations {
                all: 1,
                awaiting: u32::from(is(Phase::AwaitingApproval)),
                queued: u32::from(is(Phase::Queued)),
            },
        }
    }
}

impl Index {
    fn move_step(&mut self, step: StepKey, before: StepClass, after: StepClass, resources: &[String]) {
        if before == after {
            return;
        }
        count(&mut self.slots_held, before.holds_slot, after.holds_slot);
        count(&mut self.slots_idle, before.idles_slot, after.idles_slot);
        count(&mut self.pending, before.is_pending, after.is_pending);
        match resources {
            [] => toggle(&mut self.ready, step, before.is_ready, after.is_ready),
            _ if before.is_ready != after.is_ready => {
                let steps = self.ready_with.entry(resources.to_vec()).or_default();
                toggle(steps, step, before.is_ready, after.is_ready);
                if steps.is_empty() {
                    self.ready_with.remove(resources);
                }
            }
            _ => {}
        }
        if before.holds_resources != after.holds_resources {
            for resource in resources {
                let held = self.resources_held.entry(resource.clone()).or_default();
                count(held, before.holds_resources, after.holds_resources);
                if *held == 0 {
                    self.resources_held.remove(resource);
                }
            }
        }
        toggle(&mut self.to_request, step, before.to_request, after.to_request);
        let without_slot = (before.to_start_without_slot, after.to_start_without_slot);
        toggle(&mut self.to_start_without_slot, step, without_slot.0, without_slot.1);
        toggle(&mut self.to_skip, step, before.to_skip, after.to_skip);
        toggle(&mut self.to_resolve, step, before.to_resolve, after.to_resolve);
        toggle(&mut self.unknown, step, before.is_unknown, after.is_unknown);
        replace(&mut self.backing_off, step, before.backing_off, after.backing_off);
        replace(&mut self.ready_from, step, before.ready_from, after.ready_from);
    }

    fn move_operation(&mut self, key: OperationKey, before: OperationClass, after: OperationClass) {
        if before == after {
            return;
        }
        toggle(&mut self.queued, key, before.queued, after.queued);
        toggle(&mut self.approval_to_request, key, before.approval_to_request, after.approval_to_request);
        toggle(&mut self.approval_requested, key, before.approval_requested, after.approval_requested);
        toggle(&mut self.waits_for_signal, key, before.waits_for_signal, after.waits_for_signal);
        toggle(&mut self.waits_for_answer, key, before.waits_for_answer, after.waits_for_answer);
        toggle(&mut self.questions, key, before.is_question, after.is_question);
        replace(&mut self.timers, key, before.timer, after.timer);
    }

    /// The indexes of these steps and operations, from nothing.
    fn rebuilt(steps: &Steps, operations: &Operations) -> Self {
        let mut index = Self::default();
        for operation in operations.iter() {
            index.move_operation(operation.key, OperationClass::default(), OperationClass::of(operation));
        }
        for (step, record) in steps.iter() {
            index.move_step(step, StepClass::default(), StepClass::of(record), record.resources());
        }
        index
    }

    /// Whether a step is ready to start that then holds a slot, or that begins at a time; the resources that it uses may be in use.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty() || !self.ready_with.is_empty() || !self.ready_from.is_empty()
    }

    /// Whether one more step may use a resource, of which the plan says how many may.
    pub(crate) fn is_free(&self, plan: &Plan, resource: &str) -> bool {
        self.resources_held.get(resource).is_none_or(|&held| held < plan.capacity(resource))
    }

    /// The first step in the plan's order that is ready to start, of those that use nothing which is in use and may start.
    pub(crate) fn first_ready(&self, plan: &Plan, may_start: impl Fn(StepKey) -> bool) -> Option<StepKey> {
        let is_free = |resource: &String| self.is_free(plan, resource);
        let first = |steps: &BTreeSet<StepKey>| steps.iter().copied().find(|&step| may_start(step));
        let with = self.ready_with.iter().filter(|(resources, _)| resources.iter().all(is_free));
        let first_with = with.filter_map(|(_, steps)| first(steps));
        first(&self.ready).into_iter().chain(first_with).min()
    }
}

fn count(counter: &mut usize, before: bool, after: bool) {
    match (before, after) {
        (false, true) => *counter += 1,
        (true, false) => *counter -= 1,
        (true, true) | (false, false) => {}
    }
}

fn toggle<T: Ord>(set: &mut BTreeSet<T>, item: T, before: bool, after: bool) {
    match (before, after) {
        (false, true) => drop(set.insert(item)),
        (true, false) => drop(set.remove(&item)),
        (true, true) | (false, false) => {}
    }
}

fn replace<T: Ord + Copy>(
    set: &mut BTreeSet<(Timestamp, T)>,
    item: T,
    before: Option<Timestamp>,
    after: Option<Timestamp>,
) {
    if before != after {
        before.map(|at| set.remove(&(at, item)));
        after.map(|at| set.insert((at, item)));
    }
}

impl OpenOperations {
    fn replace(&mut self, before: Self, after: Self) {
        self.all = self.all + after.all - before.all;
        self.awaiting = self.awaiting + after.awaiting - before.awaiting;
        self.queued = self.queued + after.queued - before.queued;
    }
}

impl Execution {
    /// Changes a step, and the indexes with it.
    pub(crate) fn update_step<T>(&mut self, step: StepKey, change: impl FnOnce(&mut StepRecord) -> T) -> T {
        let record = &mut self.steps[step];
        let before = StepClass::of(record);
        let changed = change(record);
        let after = StepClass::of(record);
        self.index.move_step(step, before, after, record.resources());
        changed
    }

    /// Replaces what a step is to do, and the indexes with it, which go by the resources that it uses.
    pub(crate) fn replace_spec(&mut self, step: StepKey, spec: &Arc<StepSpec>) {
        let record = &mut self.steps[step];
        self.index.move_step(step, StepClass::of(record), StepClass::default(), record.resources());
        record.set_spec(Arc::clone(spec));
        self.index.move_step(step, StepClass::default(), StepClass::of(record), record.resources());
    }

    /// Adds a step that was appended to the indexes.
    pub(crate) fn index_appended(&mut self, step: StepKey) {
        let record = &self.steps[step];
        self.index.move_step(step, StepClass::default(), StepClass::of(record), record.resources());
    }

    /// Changes an operation in flight, and the indexes with it.
    pub(crate) fn update_operation(&mut self, key: OperationKey, change: impl FnOnce(&mut Operation)) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        let before = OperationClass::of(operation);
        change(operation);
        let after = OperationClass::of(operation);
        self.move_operation(key, before, after);
    }

    /// Adds an operation in flight.
    pub(crate) fn insert_operation(&mut self, operation: Operation) {
        let (key, after) = (operation.key, OperationClass::of(&operation));
        self.hold(&operation);
        self.operations.insert(operation);
        self.move_operation(key, OperationClass::default(), after);
    }

    /// Removes an operation that has ended.
    pub(crate) fn remove_operation(&mut self, key: OperationKey) -> Option<Operation> {
        let operation = self.operations.remove(key)?;
        self.release(&operation);
        self.move_operation(key, OperationClass::of(&operation), OperationClass::default());
        Some(operation)
    }

    fn move_operation(&mut self, key: OperationKey, before: OperationClass, after: OperationClass) {
        self.index.move_operation(key, before, after);
        if before.open != after.open {
            self.update_step(key.step, |record| record.open.replace(before.open, after.open));
        }
    }

    /// Replaces the operations in flight, all of steps that are there, and rebuilds what follows from them and from the steps.
    pub(super) fn restore_operations(&mut self, operations: Vec<Operation>) {
        for operation in operations {
            let open = OperationClass::of(&operation).open;
            self.steps[operation.key.step].open.replace(OpenOperations::default(), open);
            self.operations.insert(operation);
        }
        self.recount_budgets();
        self.index_new();
    }

    /// Rebuilds the indexes of steps that were appended.
    pub(crate) fn index_new(&mut self) {
        self.index = Index::rebuilt(&self.steps, &self.operations);
    }

    /// Whether the indexes are those that the steps and operations give. Costs as much as there are steps and operations.
    pub fn is_index_consistent(&self) -> bool {
        let open = |step| {
            let mut open = OpenOperations::default();
            let operations = self.operations.of_step(step);
            operations.for_each(|one| open.replace(OpenOperations::default(), OperationClass::of(one).open));
            open
        };
        self.index == Index::rebuilt(&self.steps, &self.operations)
            && self.steps.iter().all(|(step, record)| record.open == open(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::started;

    // The checker of the indexes sees both what steps and what operations contribute: without this, all that relies on it is blind.
    #[test]
    fn an_index_that_is_not_what_steps_and_operations_give_is_seen() {
        let mut execution = started("id: p\nsteps: [{id: a, wait: {signal: go}}]", Timestamp::from_micros(5));
        assert!(execution.is_index_consistent());

        let mut other = execution.clone();
        other.index.waits_for_signal.clear();
        assert!(!other.is_index_consistent(), "an index lacks an operation");
        let step = StepKey::new(0);
        execution.steps[step].open = OpenOperations::default();
        assert!(!execution.is_index_consistent(), "a step lacks its operation");
    }
}
