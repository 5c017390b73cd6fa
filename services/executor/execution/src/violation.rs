//! The rules of a log: what each event may do after the events before it.

use belay_plan::CheckPlace;
use thiserror::Error;

use crate::{
    BudgetReport, ExecutionState, ExecutionTrigger, MAX_OPEN_QUESTIONS, MAX_QUESTIONS, MAX_SIGNALS, OperationId,
    StepId, StepState, StepTrigger, Totals,
};

/// An event that cannot follow the events before it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("event {sequence} cannot be: {violation}")]
pub struct IllegalEvent {
    /// The event's sequence number.
    pub sequence: u64,
    /// The rule that it violates.
    pub violation: Violation,
}

/// The rule that an event violates. [`Execution::apply`](crate::Execution::apply) is the only judge: requests are refused by what it says.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)] // each is described by its message
#[rustfmt::skip] // a table: one rule, one line
pub enum Violation {
    // The log.
    #[error("the list of events is empty")] NoEvents,
    #[error("the first event must be `created`")] NotCreated,
    #[error("`created` comes first and once")] CreatedTwice,
    #[error("the event before it is {last}")] NotNextInSequence { last: u64 },
    #[error("there is no step `{0}`")] NoStep(StepId),
    #[error("two steps have the id `{0}`")] DuplicateStep(StepId),

    // The execution.
    #[error("an execution that is {from:?} has no move {by:?}")] ExecutionMove { from: ExecutionState, by: ExecutionTrigger },
    #[error("the execution has started before")] StartedBefore,
    #[error("the execution has ended")] Ended,
    #[error("the execution has ended, is being stopped, or what it did is being undone")] Stopping,
    #[error("the execution is being killed")] BeingKilled,
    #[error("the execution has not started, is paused, or is being stopped: nothing may start")] MayNotStart,
    /// No model has asked for verification.
    #[error("no model has asked for the verification of a step")] NothingToVerify,
    #[error("the execution has no limits, or has asked for them before")] LimitsNotWanted,
    #[error("the execution does not wait for its limits")] LimitsNotAwaited,
    #[error("the execution keeps {MAX_SIGNALS} signals that no step has taken")] TooManySignals,
    #[error("something can proceed without a decision")] MayProceed,
    #[error("the steps have ended otherwise: {totals:?}")] OtherTotals { totals: Totals },
    #[error("an execution has outputs when its plan declares some and it ended COMPLETED or PARTIAL, and otherwise none")] OtherOutputs,
    #[error("no such report is due: {0:?}")] ReportNotDue(Box<BudgetReport>),

    // Changes of the plan, and steps that run again.
    #[error("the plan has revision {0}")] OtherRevision(u32),
    #[error(transparent)] Change(#[from] ForbiddenChange),
    #[error("the plan has the input `{0}`, which has no default, and the execution was started without it")] NoInput(String),
    #[error("steps run again by an escalation when all have ended and the execution has not")] EscalatedEarly,
    #[error("no step is named that runs again")] NothingToRetry,
    #[error("a step is named twice")] NamedTwice,
    #[error("step `{step}`, which is {state:?}, has not ended")] NotEnded { step: StepId, state: StepState },
    #[error("step `{0}` is none that the plan has")] NotPlanned(StepId),
    #[error("step `{step}` runs for an entry of the list of `{list}`, which does not run again")] ListStays { step: StepId, list: StepId },
    #[error("step `{0}` depends on one that runs again, and has started")] DependentStarted(StepId),
    #[error("nothing is undone while the execution is paused or does not hold its limits, while something runs, or twice")] MayNotUndo,
    #[error("step `{0}` has nothing to undo, has no `compensate`, or is named twice")] NothingToUndo(StepId),

    // Attempts at steps.
    #[error("step `{step}`, which is {from:?}, has no move {by:?}")] StepMove { step: StepId, from: StepState, by: StepTrigger },
    #[error("attempt {attempt} of step `{step}` does not follow attempt {last}")] NotNextAttempt { step: StepId, attempt: u32, last: u32 },
    #[error("attempt {attempt} of step `{step}` is not the current one, which is {current}")] OtherAttempt { step: StepId, attempt: u32, current: u32 },
    #[error("step `{step}` started before step `{on}`, which it depends on, had ended")] DependencyOpen { step: StepId, on: StepId },
    #[error("step `{0}` has no dependency left that could end")] NoOpenDependency(StepId),
    #[error("step `{step}` uses the resource `{resource}`, which as many steps use as may")] ResourceInUse { step: StepId, resource: String },
    #[error("step `{step}`, which is {state:?} in attempt {attempt}, does not wait to start")] NotWaiting { step: StepId, state: StepState, attempt: u32 },
    #[error("step `{step}`, which is {state:?}, waits for no attempt")] NoNextAttempt { step: StepId, state: StepState },
    #[error("step `{step}`, which is {state:?}, has no operation whose end leads to the move {by:?}")] NoEnd { step: StepId, state: StepState, by: StepTrigger },
    #[error("no call of `{to}` takes the place of the one of `{from}` of step `{step}`")] NoFallback { step: StepId, from: String, to: String },
    #[error("the last attempt of step `{0}` failed in another way")] OtherFailure(StepId),
    #[error("step `{0}` has no failed call whose place an earlier result takes")] NoCachedResult(StepId),
    #[error("step `{0}` depends on no step because of which it is skipped")] NoSkipCause(StepId),
    #[error("step `{step}` is in no group `{group}` in which that step has failed because of which it is skipped")] NoFailedGroup { step: StepId, group: String },
    #[error("step `{0}` has started, and can no longer be skipped")] SkippedLate(StepId),
    #[error("step `{0}` is one that the plan still has")] StillPlanned(StepId),
    #[error("step `{step}`, which is {state:?} in attempt {attempt}, does not run for each entry of a list now")] NotListing { step: StepId, state: StepState, attempt: u32 },
    #[error("step `{0}` has read its list")] ListedBefore(StepId),
    #[error("step `{0}` has not read its list")] NotListed(StepId),
    #[error("step `{0}` is not one of a fork that can begin with a conversation")] NoConversation(StepId),
    #[error("step `{step}` makes another number of calls than {listed}")] OtherCalls { step: StepId, listed: usize },

    // Operations.
    #[error("{operation} does not follow {attempt}.{last}")] NotNextOperation { operation: OperationId, attempt: u32, last: u32 },
    #[error("{0} is not in flight")] NotInFlight(OperationId),
    #[error("{0} is being stopped")] BeingStopped(OperationId),
    #[error("step `{0}` calls no tool")] NoTool(StepId),
    #[error("step `{0}` waits for nothing")] NoWait(StepId),
    #[error("step `{0}` carries out no plan")] NoPlan(StepId),
    #[error("step `{step}` makes no such call now: {check:?} after {checked} checks")] NoSuchCall { step: StepId, check: Option<CheckPlace>, checked: usize },
    #[error("{0} is no call of a tool")] NotACall(OperationId),
    #[error("{0} is not a wait")] NotAWait(OperationId),
    #[error("{0} waits for no answer")] NotAForm(OperationId),
    #[error("{0} is no question")] NotAQuestion(OperationId),
    #[error("{0} is not an execution of a plan")] NotAChild(OperationId),
    #[error("{operation} cannot end by `{end}`")] OtherEnd { operation: OperationId, end: &'static str },

    // Approvals.
    #[error("{0} is held for this already")] HeldBefore(OperationId),
    #[error("{0} is not held")] NotHeld(OperationId),
    #[error("{0} waits for a decision, before which it is not held anew and does not end")] Undecided(OperationId),
    #[error("{0} was turned down, and cannot be held anew")] TurnedDown(OperationId),
    #[error("{operation} is about {subject}, and was asked about as {asked}")] OtherSubject { operation: OperationId, subject: String, asked: String },
    #[error("{0} needs no approval or answer to be requested")] NothingToAsk(OperationId),
    #[error("{0} is already decided")] DecidedBefore(OperationId),
    #[error("nobody was asked about {operation} by the approval `{approval}`")] NotAsked { operation: OperationId, approval: String },
    #[error("{0} was held, and nobody has approved it")] NotApproved(OperationId),
    #[error("{0} does not wait for a slot")] NotQueued(OperationId),
    #[error("{0} has to wait for a slot")] NoSlot(OperationId),

    // Questions of calls.
    #[error("the call {call}, which asks {question}, does not run")] CallNotRunning { call: u32, question: OperationId },
    #[error("{0} has no id")] QuestionWithoutId(OperationId),
    #[error("the call {0} asks more than {MAX_OPEN_QUESTIONS} questions at once, or more than {MAX_QUESTIONS}")] TooManyQuestions(u32),
    #[error("the call {call} has asked the question {question} before")] AskedBefore { call: u32, question: String },

    // Waits, and executions of steps' plans.
    #[error("event {sequence} is not the oldest signal `{signal}` that is kept")] NotOldestSignal { sequence: u64, signal: String },
    #[error("{0} is created already")] ChildCreatedBefore(OperationId),
    #[error("{0} is not to be paused or resumed")] NotToPause(OperationId),
    #[error("{0} is not being cancelled")] NotCancelled(OperationId),
}

/// A change that a new version of a plan may not make.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ForbiddenChange {
    /// The plan's id.
    #[error("the plan's id is `{0}`, and stays so")]
    Id(String),
    /// The plan's network, while a step that has it makes a call.
    #[error(
        "the plan's `network` cannot change while step `{0}` makes a call under it: change it when the call has ended"
    )]
    Network(StepId),
    /// A step that has started or ended is another one.
    #[error("step `{0}` has started or ended, and cannot change")]
    Changed(StepId),
    /// A step that has started or ended is missing.
    #[error("step `{0}` has started or ended, and cannot be removed")]
    Removed(StepId),
}
