//! The state of an execution after its events so far: steps, operations, and what an execution has as a whole.

mod account;
mod agent;
mod cache;
mod groups;
mod index;
mod operation;
mod progress;
mod read_turn;
mod record;
mod requests;
mod signals;
mod snapshot;
mod step_view;
mod waiting;

use std::{ops::Deref, time::Duration};

use belay_plan::{CONTEXT_INPUT, Plan};

pub(crate) use self::{
    account::Account,
    agent::{AgentEntry, AgentItem},
    cache::StepCache,
    index::Index,
    operation::Operations,
    progress::{Compensation, ExecutionProgress, PausedBy, Stop},
    record::{
        AccountKey, AttemptEnd, CarriedTurns, DueReports, OpenOperations, StepProgress, StepRecord, Steps, TurnSupply,
    },
    requests::Requests,
    signals::Signals,
};
pub use self::{
    operation::{ChildPause, Operation, OperationKey, OperationKind, Phase, Wait},
    progress::LimitState,
    record::{Authorization, FailedAttempt, StepKey, StepRole},
    signals::MAX_SIGNALS,
    snapshot::{NotRestored, SNAPSHOT_VERSION},
    step_view::StepView,
    waiting::Waiting,
};
use crate::{
    Actor, Created, ExecutionState, Failure, Json, OperationId, Payload, StepId, Timestamp, ToolFacts, Totals,
};

/// An execution. Created from events and changed only by events.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    pub(crate) created: Created,
    /// The plan that it carries out now, and the facts about its tools; `None` for those that it began with.
    pub(crate) revised: Option<Box<PlanRevision>>,
    /// How often its plan was changed.
    pub(crate) revision: u32,
    pub(crate) started_by: Actor,
    pub(crate) created_at: Timestamp,
    pub(crate) state: ExecutionState,
    pub(crate) steps: Steps,
    pub(crate) operations: Operations,
    /// Derived from `steps` and `operations`.
    pub(crate) index: Index,
    /// The rest of what its events determine. Its fields are read as those of the execution, and written here.
    pub(crate) progress: ExecutionProgress,
    /// Reports of budgets that are to be recorded; they follow from the accounts.
    pub(crate) due_reports: DueReports,
}

/// A plan that replaced the first one of an execution.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanRevision {
    pub(crate) plan: Plan,
    pub(crate) tools: Vec<ToolFacts>,
}

impl Deref for Execution {
    type Target = ExecutionProgress;

    fn deref(&self) -> &ExecutionProgress {
        &self.progress
    }
}

impl Execution {
    /// An execution of which nothing is known but its creation.
    ///
    /// # Errors
    /// The id that two of its steps have.
    pub(crate) fn new(created: Created, started_by: Actor, time: Timestamp) -> Result<Self, StepId> {
        let mut steps = Steps::default();
        steps.append(created.plan.steps(), time)?;
        steps.connect(&created.plan);
        let progress = ExecutionProgress::new(&created, steps.len(), time);
        let mut execution = Self {
            created,
            revised: None,
            revision: 0,
            started_by,
            created_at: time,
            state: ExecutionState::Pending,
            steps,
            operations: Operations::default(),
            index: Index::default(),
            progress,
            due_reports: DueReports::default(),
        };
        execution.recount_budgets();
        execution.index_new();
        Ok(execution)
    }

    /// The values that its creation fixed.
    pub fn created(&self) -> &Created {
        &self.created
    }

    /// The plan it carries out: the one it began with, or what a principal made of it since.
    pub fn plan(&self) -> &Plan {
        self.revised.as_ref().map_or(&self.created.plan, |revised| &revised.plan)
    }

    /// The values of the plan's inputs, by their names: those that it was started with, and the defaults of inputs that came with a change of the plan.
    pub fn inputs(&self) -> serde_json::Value {
        let mut inputs = self.created.inputs.value();
        if let Some(inputs) = inputs.as_object_mut() {
            for (name, input) in self.plan().inputs() {
                if let Some(default) = &input.default {
                    inputs.entry(name.as_str()).or_insert_with(|| default.clone());
                }
            }
        }
        inputs
    }

    /// The context in which its plan was asked for, which its calls get: the value of the input [`CONTEXT_INPUT`]; `None` where the plan declares none.
    pub fn context(&self) -> Option<Json> {
        self.plan().inputs().get(CONTEXT_INPUT)?;
        let inputs = self.inputs();
        inputs.get(CONTEXT_INPUT).map(Json::canonical)
    }

    /// How often its plan was changed since it began.
    pub fn plan_revision(&self) -> u32 {
        self.revision
    }

    /// Its state.
    pub fn state(&self) -> ExecutionState {
        self.state
    }

    /// The number of the last event.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// The time of its last event.
    pub fn last_time(&self) -> Timestamp {
        self.last_time
    }

    /// Whether it waits for its limits over executions or holds them.
    pub fn limit_state(&self) -> LimitState {
        self.progress.limits
    }

    /// When it was accepted.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// When its first step started.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    /// When it last resumed after its end, because a principal had steps run again; `None` when it never has.
    pub fn resumed_after_end_at(&self) -> Option<Timestamp> {
        self.resumed_after_end_at
    }

    /// When its time limit ends it.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// How long no step could make progress without a decision, not counting such a wait that is still open.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How many steps have ended in each state.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The failure of the first step that failed.
    pub fn first_failure(&self) -> Option<&Failure> {
        self.first_failure.as_ref()
    }

    /// The outputs that its plan declares, or why it has none; `None` while it has not ended, when it has not come to its end, and when the plan declares none.
    pub fn outputs(&self) -> Option<Result<&Payload, &Failure>> {
        self.outputs.as_ref().map(Result::as_ref)
    }

    /// The principal that started it.
    pub fn principal(&self) -> &str {
        &self.started_by.principal
    }

    /// Its steps; those of the plan come first, in the plan's order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = StepView<'_>> {
        self.steps.iter().map(|(key, record)| self.view(key, record))
    }

    /// The step at this position.
    ///
    /// # Panics
    /// When there is none.
    pub fn step(&self, key: StepKey) -> StepView<'_> {
        self.view(key, &self.steps[key])
    }

    fn view<'a>(&'a self, key: StepKey, record: &'a StepRecord) -> StepView<'a> {
        let compensation = record.compensation.map(|by| self.steps[by].state);
        StepView { key, record, operations: &self.operations, compensation }
    }

    /// Counts what becomes of a step, if the totals count it.
    pub(crate) fn count(&mut self, step: StepKey, change: impl FnOnce(&mut Totals)) {
        if self.steps[step].is_counted() {
            change(&mut self.progress.totals);
        }
    }

    /// The step with this id.
    pub fn step_key(&self, id: &str) -> Option<StepKey> {
        self.steps.key(id)
    }

    /// The operations whose intent is recorded and whose end is not, by step in the plan's order.
    pub fn operations(&self) -> impl ExactSizeIterator<Item = &Operation> {
        self.operations.iter()
    }

    /// The position of the operation that a step requests next.
    pub(crate) fn next_operation(&self, step: StepKey) -> OperationKey {
        let (attempt, operations) = (self.steps[step].attempt, self.steps[step].operations);
        OperationKey { step, attempt, number: operations + 1 }
    }

    /// Returns an operation in flight.
    pub fn operation(&self, key: OperationKey) -> Option<&Operation> {
        self.operations.get(key)
    }

    /// The number of a call among the operations of its attempt with the same purpose, the step's own or that of a check; from 1.
    pub fn calls_for_purpose(&self, key: OperationKey) -> u32 {
        key.number - self.steps[key.step].operations_before_purpose
    }

    /// The id of an operation at this position.
    ///
    /// # Panics
    /// When its step does not exist.
    pub fn operation_id(&self, key: OperationKey) -> OperationId {
        let OperationKey { step, attempt, number } = key;
        OperationId { step: self.steps[step].id.clone(), attempt, number }
    }

    /// The position of the operation with this id; `None` when there is no such step.
    pub fn operation_key(&self, id: &OperationId) -> Option<OperationKey> {
        let &OperationId { ref step, attempt, number } = id;
        Some(OperationKey { step: self.steps.key(step)?, attempt, number })
    }

    /// The operations whose approval or answer is pending at the gate; none while the execution is being stopped.
    pub fn requested_approvals(&self) -> impl Iterator<Item = OperationKey> + '_ {
        let is_asked =
            |key: &&OperationKey| self.operations.get(**key).is_some_and(|it| it.requested_answer().is_some());
        let forms = self.index.waits_for_answer.iter().filter(is_asked);
        self.index.approval_requested.iter().chain(forms).copied().filter(|_| self.stop.is_none())
    }

    /// The principal that paused it; `None` when it is not paused.
    pub fn paused_by(&self) -> Option<&str> {
        self.paused.as_ref().map(|paused| paused.principal.as_str())
    }

    /// The reason in words, when it is paused because its namespace has used up its budget.
    pub fn exhausted_namespace_budget(&self) -> Option<&str> {
        self.paused.as_ref()?.namespace_budget()
    }

    /// Whether it is paused so that running calls are discarded.
    pub fn discards_calls(&self) -> bool {
        self.paused.as_ref().is_some_and(|paused| paused.discard_calls)
    }

    /// Whether it is being stopped: cancelled, or ended by its time limit or a failure.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Whether it waits for nothing but the executions of its steps' plans, so that it has nothing to do before the end of one.
    pub fn waits_for_children(&self) -> bool {
        self.is_parked() && self.operations.iter().any(|operation| operation.child().is_some())
    }

    /// The ledger that its last intent names; empty before the first intent.
    pub fn ledger_id(&self) -> &str {
        &self.ledger_id
    }

    /// Whether a request with this id is remembered.
    pub fn has_seen(&self, request: &Actor) -> bool {
        self.requests.digest(request).is_some()
    }

    /// The facts about the tool that the plan names `used_as`.
    pub(crate) fn tool(&self, used_as: &str) -> Option<&ToolFacts> {
        agent::facts(used_as).or_else(|| self.tools().iter().find(|facts| facts.used_as == used_as))
    }
}
