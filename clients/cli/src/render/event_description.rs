//! The description of an event: what it changes in an execution. The code that follows executions reads descriptions instead of events, so that each
//! kind of event is understood here, and once more for its line.

use belay_proto::v1::{
    ApprovalNeed, ChildStarted, ExecutionCompensationStarted, ExecutionEvent, ExecutionFinished, ExecutionPlanUpdated,
    ExecutionRetried, Failure, Payload, StepCachedResultUsed, StepFallbackSwitched, StepItemsListed,
    StepRetryScheduled, StepSkipped, ToolCallCompleted, ToolCallRequested, WaitStarted, child_ended, execution,
    execution_event::Kind,
};
use pbjson_types::Timestamp;

/// The description of an event.
#[derive(Clone, Copy)]
pub(crate) struct EventDescription<'a> {
    /// The change that it makes.
    pub(crate) change: EventChange<'a>,
    /// The value that its step has now: the step's output, when it ends with it.
    pub(crate) value: Option<StepValue<'a>>,
    /// The change that it makes to the wait for a person.
    pub(crate) idle: IdleChange,
    /// Whether it is worth a line above the rows of a running execution, which show the others anyway.
    pub(crate) is_milestone: bool,
}

/// A change of an execution.
#[derive(Clone, Copy)]
pub(crate) enum EventChange<'a> {
    /// No change.
    None,
    /// A change of the execution as a whole.
    Execution(ExecutionChange<'a>),
    /// A change of the event's step. An execution that waited for approval is running again.
    Step(StepChange<'a>),
}

/// A change of an execution as a whole.
#[derive(Clone, Copy)]
pub(crate) enum ExecutionChange<'a> {
    /// It started.
    Started,
    /// It is in this state now.
    State(execution::State),
    /// It is paused until it is resumed, at the latest at this time.
    Paused(Option<Timestamp>),
    /// It ended.
    Finished(&'a ExecutionFinished),
    /// Steps of it run again.
    Retried(&'a ExecutionRetried),
    /// It has another plan.
    PlanUpdated(&'a ExecutionPlanUpdated),
    /// It has a step for each step whose effects are undone.
    CompensationStarted(&'a ExecutionCompensationStarted),
    /// It has a step for each entry of the list that the event's step has read.
    ItemsListed(&'a StepItemsListed),
    /// It was sent a signal with this payload.
    Signal(Option<&'a Payload>),
}

/// A change of a step.
#[derive(Clone, Copy)]
pub(crate) enum StepChange<'a> {
    /// No change; the execution continues.
    None,
    /// An attempt started.
    Started,
    /// An attempt failed, and another follows.
    AttemptFailed(NextAttempt<'a>),
    /// The step ended.
    Ended(StepEnd<'a>),
    /// A person has to find out whether the step's call took effect.
    OutcomeUnknown(Option<&'a Failure>),
    /// A person has found out; the result of the call, if it had one.
    Resolved(Option<&'a Payload>),
    /// It has an output without a result of its own call.
    Output(Option<&'a Payload>),
    /// It has an earlier result of the same call.
    CachedResult(&'a StepCachedResultUsed),
    /// A change of a call of the step.
    Call(CallChange<'a>),
    /// A change of an approval that the step needs, or of a question.
    Approval(ApprovalChange<'a>),
    /// A wait of the step began, or a question of its call.
    WaitStarted(&'a WaitStarted),
    /// A wait of the step ended, or a question of its call.
    WaitEnded,
    /// The execution of the step's plan started.
    ChildStarted(&'a ChildStarted),
    /// The execution of the step's plan ended.
    ChildEnded,
}

/// The attempt that follows one that failed.
#[derive(Clone, Copy)]
pub(crate) enum NextAttempt<'a> {
    /// The same call again.
    Retry(&'a StepRetryScheduled),
    /// Another call in its place.
    Fallback(&'a StepFallbackSwitched),
}

impl<'a> NextAttempt<'a> {
    /// The failure of the attempt before it.
    pub(crate) fn failure(self) -> Option<&'a Failure> {
        match self {
            NextAttempt::Retry(retry) => retry.failure.as_ref(),
            NextAttempt::Fallback(switched) => switched.failure.as_ref(),
        }
    }
}

/// The end of a step.
#[derive(Clone, Copy)]
pub(crate) enum StepEnd<'a> {
    /// It completed.
    Completed,
    /// It failed.
    Failed(Option<&'a Failure>),
    /// It does not run.
    Skipped(&'a StepSkipped),
    /// It was cancelled.
    Cancelled,
}

/// A change of a call.
#[derive(Clone, Copy)]
pub(crate) enum CallChange<'a> {
    /// It is made.
    Requested(&'a ToolCallRequested),
    /// It goes to the runner, now that it is approved.
    Dispatched,
    /// It ended with a result.
    Completed(&'a ToolCallCompleted),
    /// It ended with a failure.
    Failed(Option<&'a Failure>),
    /// A policy or a person denied it.
    Denied(Option<&'a Failure>),
    /// It was cancelled, or its outcome cannot be known.
    WithoutOutcome(Option<&'a Failure>),
}

/// A change of an approval.
#[derive(Clone, Copy)]
pub(crate) enum ApprovalChange<'a> {
    /// A call needs one.
    Needed(Option<&'a ApprovalNeed>),
    /// The gate has created the approval with this name.
    Requested(&'a str),
    /// The approval with this name was decided; empty when no person was asked.
    Decided(&'a str),
}

/// A value that a step has before it ends.
#[derive(Clone, Copy)]
pub(crate) enum StepValue<'a> {
    /// The event's own.
    Own(&'a Payload),
    /// The payload of the signal that the event with this number brought.
    OfSignal(i64),
}

/// A change of the time in which an execution does nothing but wait for a person.
#[derive(Clone, Copy)]
pub(crate) enum IdleChange {
    /// It begins.
    Begins,
    /// It begins or ends with another event.
    None,
    /// It ends, if it has begun.
    Ends,
}

impl EventDescription<'_> {
    /// Whether the event is the end of its step.
    pub(crate) fn ends_step(&self) -> bool {
        matches!(self.change, EventChange::Step(StepChange::Ended(_)))
    }

    /// Whether the event announces a question that the person at the terminal is about to be asked.
    pub(crate) fn leads_to_question(&self) -> bool {
        let EventChange::Step(StepChange::Approval(change)) = self.change else { return false };
        match change {
            ApprovalChange::Needed(_) | ApprovalChange::Requested(_) => true,
            ApprovalChange::Decided(_) => false,
        }
    }
}

/// Describes an event. One whose kind is not known changes nothing.
pub(crate) fn describe(event: &ExecutionEvent) -> EventDescription<'_> {
    let Some(kind) = &event.kind else { return milestone(EventChange::None) };
    match kind {
        Kind::ExecutionCreated(_) => routine(EventChange::None),
        Kind::LimitsRequested(_) | Kind::LimitsAcquired(_) => milestone(EventChange::None),
        Kind::ExecutionStarted(_) => routine(EventChange::Execution(ExecutionChange::Started)),
        Kind::ExecutionPaused(paused) => milestone(EventChange::Execution(ExecutionChange::Paused(paused.resume_time))),
        Kind::ExecutionResumed(_) => state(execution::State::Running),
        Kind::ExecutionCancelRequested(_) | Kind::ExecutionDeadlineExceeded(_) => state(execution::State::Cancelling),
        Kind::ExecutionRecovered(_) | Kind::BudgetWarning(_) | Kind::BudgetExceeded(_) | Kind::BudgetOverrun(_) => {
            milestone(EventChange::None)
        }
        Kind::ExecutionFinished(finished) => routine(EventChange::Execution(ExecutionChange::Finished(finished))),
        Kind::ExecutionAwaitingApproval(_) => EventDescription {
            idle: IdleChange::Begins,
            is_milestone: false,
            ..state(execution::State::AwaitingApproval)
        },
        // It is kept, whatever the execution waits for.
        Kind::SignalReceived(received) => EventDescription {
            idle: IdleChange::None,
            ..milestone(EventChange::Execution(ExecutionChange::Signal(received.payload.as_ref())))
        },
        Kind::ExecutionRetried(retried) => milestone(EventChange::Execution(ExecutionChange::Retried(retried))),
        Kind::ExecutionPlanUpdated(updated) => milestone(EventChange::Execution(ExecutionChange::PlanUpdated(updated))),
        Kind::ExecutionCompensationStarted(started) => {
            milestone(EventChange::Execution(ExecutionChange::CompensationStarted(started)))
        }
        Kind::StepStarted(_) => routine(EventChange::Step(StepChange::Started)),
        Kind::StepRetryScheduled(retry) => {
            routine(EventChange::Step(StepChange::AttemptFailed(NextAttempt::Retry(retry))))
        }
        Kind::StepFallbackSwitched(switched) => step(StepChange::AttemptFailed(NextAttempt::Fallback(switched))),
        Kind::StepCompleted(_) => step(StepChange::Ended(StepEnd::Completed)),
        Kind::StepFailed(failed) => step(StepChange::Ended(StepEnd::Failed(failed.failure.as_ref()))),
        Kind::StepSkipped(skipped) => step(StepChange::Ended(StepEnd::Skipped(skipped))),
        Kind::StepCancelled(_) => step(StepChange::Ended(StepEnd::Cancelled)),
        Kind::StepOutcomeUnknown(unknown) => step(StepChange::OutcomeUnknown(unknown.failure.as_ref())),
        Kind::StepResolved(resolved) => {
            let result = resolved.result.as_ref();
            step(StepChange::Resolved(result)).with(result)
        }
        Kind::StepOutputSet(set) => step(StepChange::Output(set.output.as_ref())).with(set.output.as_ref()),
        Kind::StepItemsCollected(collected) => {
            let output = collected.output.as_ref();
            step(StepChange::Output(output)).with(output)
        }
        Kind::StepCachedResultUsed(used) => step(StepChange::CachedResult(used)).with(used.result.as_ref()),
        Kind::StepItemsListed(listed) => milestone(EventChange::Execution(ExecutionChange::ItemsListed(listed))),
        Kind::StepConversationCarriedOver(_)
        | Kind::StepSkipRequested(_)
        | Kind::StepRetryAdvanced(_)
        | Kind::StepRetryCancelled(_)
        | Kind::ChildCreated(_) => step(StepChange::None),
        Kind::ChildPaused(_) => routine(EventChange::Step(StepChange::None)),
        Kind::WaitStarted(wait) => routine(EventChange::Step(StepChange::WaitStarted(wait))),
        Kind::WaitEnded(wait) => {
            let value = wait.answer.as_ref().map_or(StepValue::OfSignal(wait.signal_sequence), StepValue::Own);
            EventDescription { value: Some(value), ..routine(EventChange::Step(StepChange::WaitEnded)) }
        }
        Kind::ChildStarted(child) => step(StepChange::ChildStarted(child)),
        Kind::ChildEnded(ended) => {
            let output = match &ended.end {
                Some(child_ended::End::Output(output)) => Some(output),
                Some(child_ended::End::Failure(_) | child_ended::End::Cancelled(_)) | None => None,
            };
            routine(EventChange::Step(StepChange::ChildEnded)).with(output)
        }
        Kind::ToolCallRequested(requested) => call(CallChange::Requested(requested)),
        Kind::ToolCallDispatched(_) => call(CallChange::Dispatched),
        Kind::ToolCallCompleted(completed) => call(CallChange::Completed(completed)).with(completed.result.as_ref()),
        Kind::ToolCallFailed(failed) => call(CallChange::Failed(failed.failure.as_ref())),
        Kind::ToolCallDenied(denied) => call(CallChange::Denied(denied.failure.as_ref())),
        Kind::ToolCallCancelled(cancelled) => call(CallChange::WithoutOutcome(cancelled.failure.as_ref())),
        Kind::ToolCallOutcomeUnknown(unknown) => call(CallChange::WithoutOutcome(unknown.failure.as_ref())),
        Kind::ToolCallEffectProposed(proposed) => {
            step(StepChange::Approval(ApprovalChange::Needed(proposed.need.as_ref())))
        }
        Kind::ToolCallApprovalRequired(required) => {
            step(StepChange::Approval(ApprovalChange::Needed(required.need.as_ref())))
        }
        // A question is asked while the execution already waits for another.
        Kind::ApprovalRequested(requested) => EventDescription {
            idle: IdleChange::None,
            ..step(StepChange::Approval(ApprovalChange::Requested(&requested.approval)))
        },
        Kind::ApprovalDecided(decided) => step(StepChange::Approval(ApprovalChange::Decided(&decided.approval))),
        Kind::ToolCallOutput(_) => EventDescription { idle: IdleChange::None, ..milestone(EventChange::None) },
    }
}

/// A change that is worth a line of its own. Whatever happens ends the wait for a person, unless it is said otherwise.
fn milestone(change: EventChange<'_>) -> EventDescription<'_> {
    EventDescription { change, value: None, idle: IdleChange::Ends, is_milestone: true }
}

/// A change that the rows of a running execution show.
fn routine(change: EventChange<'_>) -> EventDescription<'_> {
    EventDescription { is_milestone: false, ..milestone(change) }
}

/// Another state of the execution, which is worth a line.
fn state<'a>(state: execution::State) -> EventDescription<'a> {
    milestone(EventChange::Execution(ExecutionChange::State(state)))
}

/// A change of a step that is worth a line.
fn step(change: StepChange<'_>) -> EventDescription<'_> {
    milestone(EventChange::Step(change))
}

/// A change of a call, which the row of its step shows.
fn call(change: CallChange<'_>) -> EventDescription<'_> {
    routine(EventChange::Step(StepChange::Call(change)))
}

impl<'a> EventDescription<'a> {
    /// With a value for the step, if the event has one.
    fn with(self, value: Option<&'a Payload>) -> EventDescription<'a> {
        EventDescription { value: value.map(StepValue::Own), ..self }
    }
}
