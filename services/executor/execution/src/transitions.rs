//! All state transitions, in two tables. `apply` rejects every transition that they do not list.

use serde::{Deserialize, Serialize};

/// The state of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ExecutionState {
    /// Accepted; nothing has started.
    Pending,
    /// Steps are running or can start.
    Running,
    /// No step can make progress until an approval is decided.
    AwaitingApproval,
    /// Paused: nothing new starts until a principal resumes it.
    Paused,
    /// Cancelled or timed out, with calls that have not ended yet.
    Cancelling,
    /// Ended: no step failed.
    Completed,
    /// Ended: some steps failed, some completed.
    Partial,
    /// Ended: some failed, and none completed or the plan stops on an error.
    Failed,
    /// Ended on request.
    Cancelled,
    /// Ended by its time limit.
    TimedOut,
}

impl ExecutionState {
    /// Whether the state is final.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Partial | Self::Failed | Self::Cancelled | Self::TimedOut)
    }

    /// Whether an execution that has ended so has the outputs of its plan: it has come to its end, with what has completed.
    pub fn has_outputs(self) -> bool {
        matches!(self, Self::Completed | Self::Partial)
    }
}

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StepState {
    /// Waits for steps it depends on.
    Pending,
    /// Can start; waits for a slot.
    Ready,
    /// An attempt is running.
    Running,
    /// Its call has to be approved.
    AwaitingApproval,
    /// Waits for a time or a signal.
    Waiting,
    /// Waits before its next attempt.
    BackingOff,
    /// Whether its call took effect is not known.
    OutcomeUnknown,
    /// Completed.
    Completed,
    /// Failed.
    Failed,
    /// Skipped.
    Skipped,
    /// Started, and cancelled before it completed.
    Cancelled,
}

impl StepState {
    /// The state as a reference in a plan has it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::AwaitingApproval => "awaiting_approval",
            Self::BackingOff => "backing_off",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the step has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped | Self::Cancelled)
    }
}

/// A trigger of a transition of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named after the events
pub enum ExecutionTrigger {
    Started,
    Paused,
    Resumed,
    CancelRequested,
    /// Also for one that is being cancelled.
    KillRequested,
    DeadlineExceeded,
    AwaitingApproval,
    ApprovalDecided,
    /// A step that waited for an approval has continued without one.
    StepResolved,
    Retried,
    /// The compensations of steps start, before the execution ends.
    CompensationStarted,
    Finished,
}

/// A trigger of a transition of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named after the events
pub enum StepTrigger {
    /// Not an event: follows from the end of the step's last dependency.
    DependenciesCompleted,
    Started,
    /// A call is requested after one was discarded.
    OperationRequested,
    /// Its call was cancelled through no fault of the step; the attempt does not count as failed.
    CallDiscarded,
    /// Its call waits for approval.
    CallHeld,
    ApprovalDecided,
    WaitStarted,
    WaitEnded,
    /// Its call ended before its approval was decided.
    CallEnded,
    RetryScheduled,
    FallbackSwitched,
    Completed,
    Failed,
    Skipped,
    Cancelled,
    OutcomeUnknown,
    Resolved,
    Retried,
}

/// All transitions of an execution. `Finished` has several targets, all terminal, and names the one it reaches.
pub const EXECUTION_TRANSITIONS: &[(ExecutionState, ExecutionTrigger, ExecutionState)] = {
    use ExecutionState as S;
    use ExecutionTrigger as T;
    &[
        (S::Pending, T::Started, S::Running),
        (S::Pending, T::Paused, S::Paused),
        (S::Pending, T::CancelRequested, S::Cancelling),
        (S::Pending, T::KillRequested, S::Cancelling),
        (S::Pending, T::DeadlineExceeded, S::Cancelling),
        (S::Running, T::Paused, S::Paused),
        (S::Running, T::CancelRequested, S::Cancelling),
        (S::Running, T::KillRequested, S::Cancelling),
        (S::Running, T::DeadlineExceeded, S::Cancelling),
        (S::Running, T::AwaitingApproval, S::AwaitingApproval),
        (S::AwaitingApproval, T::ApprovalDecided, S::Running),
        (S::AwaitingApproval, T::StepResolved, S::Running),
        (S::AwaitingApproval, T::Paused, S::Paused),
        (S::AwaitingApproval, T::CancelRequested, S::Cancelling),
        (S::AwaitingApproval, T::KillRequested, S::Cancelling),
        (S::AwaitingApproval, T::DeadlineExceeded, S::Cancelling),
        (S::Running, T::CompensationStarted, S::Running),
        (S::Cancelling, T::CompensationStarted, S::Running),
        (S::Cancelling, T::KillRequested, S::Cancelling),
        (S::Running, T::Finished, S::Completed),
        (S::Running, T::Finished, S::Partial),
        (S::Running, T::Finished, S::Failed),
        // What had been done before it was stopped is undone.
        (S::Running, T::Finished, S::Cancelled),
        (S::Running, T::Finished, S::TimedOut),
        // Before its start time.
        (S::Paused, T::Resumed, S::Pending),
        (S::Paused, T::Resumed, S::Running),
        (S::Paused, T::CancelRequested, S::Cancelling),
        (S::Paused, T::KillRequested, S::Cancelling),
        (S::Paused, T::DeadlineExceeded, S::Cancelling),
        (S::Paused, T::Finished, S::Completed),
        (S::Paused, T::Finished, S::Partial),
        (S::Paused, T::Finished, S::Failed),
        (S::Paused, T::Finished, S::Cancelled),
        (S::Paused, T::Finished, S::TimedOut),
        (S::Cancelling, T::Finished, S::Completed),
        (S::Cancelling, T::Finished, S::Cancelled),
        (S::Cancelling, T::Finished, S::TimedOut),
        // Before its start time: a person had given the output of a step, or skipped it.
        (S::Pending, T::Retried, S::Pending),
        (S::Running, T::Retried, S::Running),
        (S::AwaitingApproval, T::Retried, S::Running),
        (S::Paused, T::Retried, S::Paused),
        (S::Completed, T::Retried, S::Running),
        (S::Partial, T::Retried, S::Running),
        (S::Failed, T::Retried, S::Running),
        // Stopped before its start time.
        (S::Cancelled, T::Retried, S::Pending),
        (S::Cancelled, T::Retried, S::Running),
        (S::TimedOut, T::Retried, S::Pending),
        (S::TimedOut, T::Retried, S::Running),
    ]
};

/// All transitions of a step.
pub const STEP_TRANSITIONS: &[(StepState, StepTrigger, StepState)] = {
    use StepState as S;
    use StepTrigger as T;
    &[
        (S::Pending, T::DependenciesCompleted, S::Ready),
        (S::Pending, T::Skipped, S::Skipped),
        (S::Ready, T::Started, S::Running),
        (S::Ready, T::Skipped, S::Skipped),
        // A discarded call is made again. So the step had started before, except where its condition has no value.
        (S::Ready, T::OperationRequested, S::Running),
        (S::Ready, T::Failed, S::Failed),
        (S::Ready, T::Cancelled, S::Cancelled),
        (S::Running, T::CallDiscarded, S::Ready),
        (S::Running, T::CallHeld, S::AwaitingApproval),
        (S::AwaitingApproval, T::ApprovalDecided, S::Running),
        (S::AwaitingApproval, T::CallDiscarded, S::Ready),
        (S::AwaitingApproval, T::CallEnded, S::Running),
        (S::Running, T::WaitStarted, S::Waiting),
        (S::Waiting, T::WaitEnded, S::Running),
        // Only when the decision about its call was to skip the step.
        (S::Running, T::Skipped, S::Skipped),
        (S::Running, T::RetryScheduled, S::BackingOff),
        // The first attempt of the other call is due at once.
        (S::Running, T::FallbackSwitched, S::BackingOff),
        (S::Running, T::Completed, S::Completed),
        (S::Running, T::Failed, S::Failed),
        (S::Running, T::Cancelled, S::Cancelled),
        (S::Running, T::OutcomeUnknown, S::OutcomeUnknown),
        (S::BackingOff, T::Started, S::Running),
        (S::BackingOff, T::Failed, S::Failed),
        (S::BackingOff, T::Cancelled, S::Cancelled),
        (S::OutcomeUnknown, T::Resolved, S::Running),
        // When the execution is stopped before the outcome is resolved.
        (S::OutcomeUnknown, T::Failed, S::Failed),
        // A principal gave its output.
        (S::Pending, T::Completed, S::Completed),
        (S::Ready, T::Completed, S::Completed),
        (S::BackingOff, T::Completed, S::Completed),
        // A principal skipped it.
        (S::BackingOff, T::Skipped, S::Skipped),
        (S::Completed, T::Retried, S::Pending),
        (S::Failed, T::Retried, S::Pending),
        (S::Skipped, T::Retried, S::Pending),
        (S::Cancelled, T::Retried, S::Pending),
        // One that it depends on runs again.
        (S::Ready, T::Retried, S::Pending),
    ]
};

pub(crate) fn step_transition(from: StepState, by: StepTrigger) -> Option<StepState> {
    STEP_TRANSITIONS.iter().find(|(state, moved_by, _)| *state == from && *moved_by == by).map(|(_, _, to)| *to)
}

/// `to` is used only for `Finished`, which has several targets.
pub(crate) fn execution_transition(
    from: ExecutionState,
    by: ExecutionTrigger,
    to: Option<ExecutionState>,
) -> Option<ExecutionState> {
    EXECUTION_TRANSITIONS
        .iter()
        .find(|(state, moved_by, target)| *state == from && *moved_by == by && to.is_none_or(|to| to == *target))
        .map(|(_, _, target)| *target)
}
