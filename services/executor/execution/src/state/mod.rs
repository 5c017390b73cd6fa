//! The state of an execution after its events so far: steps, operations, and what an execution has as a whole.

mod account;
mod cache;
mod index;
mod operation;
mod record;
mod requests;
mod signals;
mod snapshot;

use serde::{Deserialize, Serialize};
use std::time::Duration;

use belay_plan::{CONTEXT_INPUT, Plan, StepKind, StepSpec, ToolStep};

pub(crate) use self::{
    account::Account,
    cache::StepCache,
    index::Index,
    operation::Operations,
    record::{AccountKey, AttemptEnd, DueReports, Items, OpenOperations, StepRecord, Steps},
    requests::Requests,
    signals::Signals,
};
pub use self::{
    operation::{ChildPause, Operation, OperationKey, OperationKind, Phase, Wait},
    record::{Authorization, FailedAttempt, StepKey, StepRole},
    signals::MAX_SIGNALS,
    snapshot::{NotRestored, SNAPSHOT_VERSION},
};
use crate::{
    Actor, CachedFrom, Created, ExecutionState, Failure, Json, OperationId, Payload, SkipReason, StepId, StepState,
    Timestamp, ToolFacts, Totals, event::child_id,
};

/// One execution. Created from events and changed only by events.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    pub(crate) created: Created,
    /// The plan that it carries out now, and the facts about its tools; `None` for those that it began with.
    pub(crate) revised: Option<Box<Revised>>,
    /// How often its plan was changed.
    pub(crate) revision: u32,
    pub(crate) started_by: Actor,
    pub(crate) created_at: Timestamp,
    pub(crate) state: ExecutionState,
    pub(crate) steps: Steps,
    pub(crate) operations: Operations,
    /// Derived from `steps` and `operations`.
    pub(crate) index: Index,
    pub(crate) last_sequence: u64,
    pub(crate) last_time: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    /// The outputs of its plan, or why it has none.
    pub(crate) outputs: Option<Result<Payload, Failure>>,
    /// When it last went on after its end.
    pub(crate) resumed_after_end_at: Option<Timestamp>,
    /// When its time limit ends it.
    pub(crate) deadline: Option<Timestamp>,
    /// Since when it is in `AwaitingApproval`; `None` in other states.
    pub(crate) awaiting_since: Option<Timestamp>,
    /// How long it has been in `AwaitingApproval` before.
    pub(crate) waited: Duration,
    pub(crate) paused: Option<PausedBy>,
    /// Until when a rate limit pauses it, unless it is paused already.
    pub(crate) queued_until: Option<Timestamp>,
    /// How often the plan's escalation has had what failed run again, since a principal did.
    pub(crate) escalations: u32,
    /// Whether the escalation has paused it for a person since.
    pub(crate) is_escalated: bool,
    pub(crate) stop: Option<Stop>,
    /// Since what steps have done is being undone.
    pub(crate) compensation: Option<Compensation>,
    /// The requests that controlled it.
    pub(crate) requests: Requests,
    /// Signals that no step has taken yet.
    pub(crate) signals: Signals,
    /// The ledger that the last intent names.
    pub(crate) ledger_id: String,
    pub(crate) first_failure: Option<Failure>,
    pub(crate) totals: Totals,
    /// The account of the plan's budget.
    pub(crate) account: Account,
    /// Reports of budgets that are to be recorded; they follow from the accounts.
    pub(crate) due_reports: DueReports,
}

/// A plan that took the place of the one that an execution began with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Revised {
    pub(crate) plan: Plan,
    pub(crate) tools: Vec<ToolFacts>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PausedBy {
    pub(crate) principal: String,
    pub(crate) since: Timestamp,
    pub(crate) discard_calls: bool,
    /// When it goes on by itself.
    pub(crate) resume_at: Option<Timestamp>,
    /// A budget was used up.
    pub(crate) by_budget: bool,
    /// The reason, when the budget of the namespace was: such a pause ends by itself.
    pub(crate) namespace_budget: Option<String>,
}

/// What steps have done is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Compensation {
    /// Why no further step had started before that.
    pub(crate) stop: Option<Stop>,
    /// How many of the steps that undo others have not ended.
    pub(crate) open: usize,
}

/// Why no further step starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stop {
    /// A step failed in a plan that stops on an error, or failed fatally.
    Error {
        step: StepKey,
    },
    Cancelled,
    /// Nothing is undone.
    Killed,
    Deadline,
}

impl Stop {
    /// Whether the execution ends for it, and not for a step that failed.
    pub(crate) fn is_of_execution(self) -> bool {
        matches!(self, Self::Cancelled | Self::Killed | Self::Deadline)
    }
}

/// What an execution or a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The end of the execution of the step's plan.
    Child {
        /// Since when.
        since: Timestamp,
        /// The operation that it is.
        child: OperationKey,
    },
    /// The time that a step waits for.
    Time {
        /// Since when.
        since: Timestamp,
        /// Until when.
        until: Timestamp,
    },
    /// The next attempt.
    Timer {
        /// Since when.
        since: Timestamp,
        /// Until when.
        until: Timestamp,
    },
    /// The namespace has used up its budget of a window, which has to end.
    NamespaceBudget {
        /// Since when.
        since: Timestamp,
        /// When the window ends.
        until: Timestamp,
    },
    /// A principal has to resume it, or its time has to come.
    Resume {
        /// Since when.
        since: Timestamp,
        /// When it goes on by itself; `None` means never.
        until: Option<Timestamp>,
    },
    /// A person has to find out what a call did.
    Outcome {
        /// Since when.
        since: Timestamp,
        /// The step.
        step: StepKey,
    },
    /// A signal.
    Signal {
        /// Since when.
        since: Timestamp,
        /// Until when; `None` means without a limit.
        until: Option<Timestamp>,
        /// The wait.
        wait: OperationKey,
    },
    /// A person's answer to a form.
    Form {
        /// Since when.
        since: Timestamp,
        /// Until when; `None` means without a limit.
        until: Option<Timestamp>,
        /// The wait.
        wait: OperationKey,
    },
    /// A running call.
    Call {
        /// Since when.
        since: Timestamp,
    },
    /// A call has to be approved.
    Approval {
        /// Since when.
        since: Timestamp,
        /// The operation.
        operation: OperationKey,
    },
}

/// The current state of one step.
#[derive(Clone, Copy, Debug)]
pub struct StepView<'a> {
    /// The step's position.
    pub key: StepKey,
    record: &'a StepRecord,
    operations: &'a Operations,
    /// The state of the step that undoes what this one has done.
    compensation: Option<StepState>,
}

impl<'a> StepView<'a> {
    /// Its id.
    pub fn id(&self) -> &'a StepId {
        &self.record.id
    }

    /// What the step is to do.
    pub fn spec(&self) -> &'a StepSpec {
        &self.record.spec
    }

    /// Why the execution has it.
    pub fn role(&self) -> StepRole {
        self.record.role
    }

    /// A short line for people.
    pub fn title(&self) -> &'a str {
        match self.record.spec.title() {
            title if title == self.record.spec.id() => &self.record.id,
            title => title,
        }
    }

    /// The call that it makes: its own, or one that has taken its place; `None` for a step that calls no tool.
    pub fn call(&self) -> Option<&'a ToolStep> {
        self.record.current_call()
    }

    /// The entry of the list for which it runs; `None` for a step of the plan.
    pub fn item(&self) -> Option<&'a Json> {
        self.record.item.as_ref()
    }

    /// The state of the step that undoes what this one has done; `None` while that stays.
    pub fn compensation(&self) -> Option<StepState> {
        self.compensation
    }

    /// Whether it runs for each entry of a list: the steps for the entries do what there is to do.
    pub fn has_entries(&self) -> bool {
        self.record.has_entries()
    }

    /// Whether it runs for each entry of a list, and has read that.
    pub fn is_listed(&self) -> bool {
        self.record.items.listed.is_some()
    }

    /// The steps for the entries of the list for each of which it runs, in order; none before it has read the list.
    pub fn items(&self) -> &'a [StepKey] {
        self.record.items.current()
    }

    /// Its state.
    pub fn state(&self) -> StepState {
        self.record.state
    }

    /// The current or last attempt, from 1; 0 before the first.
    pub fn attempt(&self) -> u32 {
        self.record.attempt
    }

    /// The number of the last attempt that it may make.
    pub fn max_attempts(&self) -> u32 {
        let attempts = if self.record.has_entries() { 1 } else { self.record.spec.retry().max_attempts };
        // A rate limit that is queued for later has made more of them.
        self.record.attempts_before_call.saturating_add(attempts).max(self.record.attempt)
    }

    /// When its first attempt started.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.record.started_at
    }

    /// When the current attempt started; `None` between attempts and after the last.
    pub fn attempt_started_at(&self) -> Option<Timestamp> {
        self.record.attempt_started_at
    }

    /// How long it has waited for decisions so far, without a wait that goes on.
    pub fn waited(&self) -> Duration {
        self.record.waited
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.record.ended_at
    }

    /// Its output, once it has completed.
    pub fn output(&self) -> Option<&'a Payload> {
        self.record.output.as_ref()
    }

    /// The last failure.
    pub fn failure(&self) -> Option<&'a Failure> {
        self.record.failure.as_deref()
    }

    /// Where its output comes from, when that is an earlier result of the same call.
    pub fn cached_from(&self) -> Option<&'a CachedFrom> {
        self.record.cached_from()
    }

    /// Its attempts that failed, in order, those before it was made to run again included.
    pub fn failed_attempts(&self) -> &'a [FailedAttempt] {
        &self.record.failed_attempts
    }

    /// The authorization of the call that completed it; `None` before that, and when the call changed nothing.
    pub fn authorization(&self) -> Option<&'a Authorization> {
        self.record.authorization.as_deref()
    }

    /// Why it was skipped, and because of which step.
    pub fn skipped(&self) -> Option<(SkipReason, Option<StepKey>)> {
        self.record.skipped
    }

    /// How many calls with the purpose of the current one, its own or that of a check, conflicted with another commit in this attempt.
    pub fn conflicts(&self) -> u32 {
        self.record.conflicts
    }

    /// Whether a call with that purpose was made again because it failed while others committed.
    pub fn failed_during_commits(&self) -> bool {
        self.record.failed_during_commits
    }

    /// Its operations in flight.
    pub fn operations(&self) -> impl DoubleEndedIterator<Item = &'a Operation> {
        self.operations.of_step(self.key)
    }

    /// The id of the execution that carries out its plan in its current attempt; `None` for a step that has begun none.
    pub fn child(&self, execution: &Execution) -> Option<String> {
        let begun = matches!(self.record.spec.kind(), StepKind::Plan(_)) && self.record.operations > 0;
        let begun = begun && self.record.compensates().is_none();
        begun.then(|| {
            let (attempt, number) = (self.record.attempt, self.record.operations);
            child_id(&execution.created.uid, self.record.id.as_str(), attempt, number)
        })
    }

    /// The approvals that it waits for, and the forms whose answer it waits for, by their names at the gate.
    pub fn approvals(&self) -> impl Iterator<Item = &'a str> {
        self.operations().filter_map(|operation| operation.requested_approval().or(operation.requested_answer()))
    }

    /// What it waits for.
    pub fn waiting(&self) -> Option<Waiting> {
        let since = self.record.since;
        match self.record.state {
            StepState::BackingOff => self.record.not_before.map(|until| Waiting::Timer { since, until }),
            StepState::OutcomeUnknown => Some(Waiting::Outcome { since, step: self.key }),
            // The steps for the entries say what they wait for.
            StepState::Running if self.record.has_entries() => None,
            StepState::Running => Some(match self.operations().find(|operation| operation.child().is_some()) {
                Some(operation) => Waiting::Child { since, child: operation.key },
                // Its next call is not made yet: the execution is paused, or others hold what the call needs of a budget.
                None if self.record.open.all == 0 => return None,
                None => Waiting::Call { since },
            }),
            StepState::AwaitingApproval => {
                self.operations().next().map(|operation| Waiting::Approval { since, operation: operation.key })
            }
            StepState::Waiting => self.operations().find_map(Operation::waiting),
            StepState::Pending
            | StepState::Ready
            | StepState::Completed
            | StepState::Failed
            | StepState::Skipped
            | StepState::Cancelled => None,
        }
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
        let deadline = created.deadline;
        let mut execution = Self {
            created,
            revised: None,
            revision: 0,
            started_by,
            created_at: time,
            state: ExecutionState::Pending,
            last_sequence: 1,
            last_time: time,
            started_at: None,
            ended_at: None,
            outputs: None,
            resumed_after_end_at: None,
            deadline,
            awaiting_since: None,
            waited: Duration::ZERO,
            paused: None,
            queued_until: None,
            escalations: 0,
            is_escalated: false,
            stop: None,
            compensation: None,
            requests: Requests::default(),
            signals: Signals::default(),
            ledger_id: String::new(),
            first_failure: None,
            totals: Totals { total: steps.len(), ..Totals::default() },
            steps,
            operations: Operations::default(),
            index: Index::default(),
            account: Account::default(),
            due_reports: DueReports::default(),
        };
        execution.account = Account::with_spent(execution.created.spent);
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

    /// When it last went on after its end, because a principal had steps run again; `None` when that never was.
    pub fn resumed_after_end_at(&self) -> Option<Timestamp> {
        self.resumed_after_end_at
    }

    /// When its time limit ends it.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// How long no step could make progress without a decision, without such a wait that goes on.
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
            change(&mut self.totals);
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
        let StepRecord { attempt, operations, .. } = self.steps[step];
        OperationKey { step, attempt, number: operations + 1 }
    }

    /// One of the operations in flight.
    pub fn operation(&self, key: OperationKey) -> Option<&Operation> {
        self.operations.get(key)
    }

    /// Which of the operations in its attempt with its purpose, the step's own or that of a check, one is; from 1.
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
        self.paused.as_ref()?.namespace_budget.as_deref()
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

    /// What the execution as a whole waits for; empty when it has ended or can make progress.
    pub fn waiting(&self) -> Vec<Waiting> {
        if self.state.is_terminal() {
            return Vec::new();
        }
        if let Some(paused) = &self.paused {
            let (since, until) = (paused.since, paused.resume_at);
            return vec![match (&paused.namespace_budget, until) {
                (Some(_), Some(until)) => Waiting::NamespaceBudget { since, until },
                _ => Waiting::Resume { since, until },
            }];
        }
        if let Some(until) = self.created.start_at.filter(|_| self.started_at.is_none() && self.stop.is_none()) {
            return vec![Waiting::Time { since: self.created_at, until }];
        }
        let mut waiting: Vec<Waiting> =
            self.index.unknown.iter().map(|&step| Waiting::Outcome { since: self.steps[step].since, step }).collect();
        waiting.extend(self.index.approval_requested.iter().filter_map(|&operation| {
            let since = self.operations.get(operation)?.pending_approval.as_ref()?.since;
            Some(Waiting::Approval { since, operation })
        }));
        waiting.extend(self.operations.iter().filter_map(Operation::waiting));
        if !self.is_parked() {
            return waiting;
        }
        if let Some(&(until, step)) = self.index.backing_off.first() {
            waiting.push(Waiting::Timer { since: self.steps[step].since, until });
        }
        // Of many the first stands for all: each step says its own.
        let child = self.operations.iter().find(|operation| operation.child().is_some());
        waiting.extend(child.map(|operation| Waiting::Child { since: operation.since, child: operation.key }));
        waiting
    }

    /// The facts about the tool that the plan names `used_as`.
    pub(crate) fn tool(&self, used_as: &str) -> Option<&ToolFacts> {
        self.tools().iter().find(|facts| facts.used_as == used_as)
    }
}
