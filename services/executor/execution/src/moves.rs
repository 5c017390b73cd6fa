//! Every move that exists, in two tables. A move that is not here cannot be made: `apply` looks it up.

/// Where an execution is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ExecutionState {
    /// Accepted; nothing has started.
    Pending,
    /// At work.
    Running,
    /// Nothing goes on before somebody has decided about a call.
    AwaitingApproval,
    /// Nothing new starts until somebody resumes it.
    Paused,
    /// Asked to stop, or out of time; some calls have not ended yet.
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
    /// Whether nothing can happen any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Partial | Self::Failed | Self::Cancelled | Self::TimedOut)
    }
}

/// Where a step is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StepState {
    /// Waits for steps it depends on.
    Pending,
    /// Could start; waits for its turn.
    Ready,
    /// An attempt is under way.
    Running,
    /// Somebody has to decide about its call.
    AwaitingApproval,
    /// Waits before its next attempt.
    BackingOff,
    /// Whether its call took effect is not known.
    OutcomeUnknown,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// Never started.
    Skipped,
    /// Started, and stopped before its end.
    Cancelled,
}

impl StepState {
    /// Whether the step has ended.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Skipped | Self::Cancelled)
    }
}

/// What moves an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named after the events
pub enum ExecutionMove {
    Started,
    Paused,
    Resumed,
    CancelRequested,
    DeadlineExceeded,
    AwaitingApproval,
    ApprovalDecided,
    Finished,
}

/// What moves a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // named after the events
pub enum StepMove {
    /// Not an event: follows from the completion of the last step it waited for.
    DependenciesCompleted,
    Started,
    /// A call goes out again after one was discarded.
    CallRequested,
    /// Its call was stopped through no fault of its own; the attempt is not burnt.
    CallDiscarded,
    /// Its call waits for a decision.
    CallHeld,
    ApprovalDecided,
    /// Its call ended before anybody had decided about it.
    CallEnded,
    RetryScheduled,
    Completed,
    Failed,
    Skipped,
    Cancelled,
    OutcomeUnknown,
}

/// Every move of an execution. `Finished` names its target itself; all its targets are terminal.
pub const EXECUTION_MOVES: &[(ExecutionState, ExecutionMove, ExecutionState)] = {
    use ExecutionMove as M;
    use ExecutionState as S;
    &[
        (S::Pending, M::Started, S::Running),
        (S::Pending, M::Paused, S::Paused),
        (S::Pending, M::CancelRequested, S::Cancelling),
        (S::Pending, M::DeadlineExceeded, S::Cancelling),
        (S::Running, M::Started, S::Running),
        (S::Running, M::Paused, S::Paused),
        (S::Running, M::CancelRequested, S::Cancelling),
        (S::Running, M::DeadlineExceeded, S::Cancelling),
        (S::Running, M::AwaitingApproval, S::AwaitingApproval),
        (S::AwaitingApproval, M::ApprovalDecided, S::Running),
        (S::AwaitingApproval, M::Paused, S::Paused),
        (S::AwaitingApproval, M::CancelRequested, S::Cancelling),
        (S::AwaitingApproval, M::DeadlineExceeded, S::Cancelling),
        (S::Running, M::Finished, S::Completed),
        (S::Running, M::Finished, S::Partial),
        (S::Running, M::Finished, S::Failed),
        (S::Paused, M::Resumed, S::Running),
        (S::Paused, M::CancelRequested, S::Cancelling),
        (S::Paused, M::DeadlineExceeded, S::Cancelling),
        (S::Paused, M::Finished, S::Completed),
        (S::Paused, M::Finished, S::Partial),
        (S::Paused, M::Finished, S::Failed),
        (S::Cancelling, M::Finished, S::Completed),
        (S::Cancelling, M::Finished, S::Cancelled),
        (S::Cancelling, M::Finished, S::TimedOut),
    ]
};

/// Every move of a step.
pub const STEP_MOVES: &[(StepState, StepMove, StepState)] = {
    use StepMove as M;
    use StepState as S;
    &[
        (S::Pending, M::DependenciesCompleted, S::Ready),
        (S::Pending, M::Skipped, S::Skipped),
        (S::Ready, M::Started, S::Running),
        (S::Ready, M::Skipped, S::Skipped),
        // The next three only after a discarded call: the step had started before.
        (S::Ready, M::CallRequested, S::Running),
        (S::Ready, M::Failed, S::Failed),
        (S::Ready, M::Cancelled, S::Cancelled),
        (S::Running, M::CallDiscarded, S::Ready),
        (S::Running, M::CallHeld, S::AwaitingApproval),
        (S::AwaitingApproval, M::ApprovalDecided, S::Running),
        (S::AwaitingApproval, M::CallDiscarded, S::Ready),
        (S::AwaitingApproval, M::CallEnded, S::Running),
        // Only when that was decided about its call.
        (S::Running, M::Skipped, S::Skipped),
        (S::Running, M::RetryScheduled, S::BackingOff),
        (S::Running, M::Completed, S::Completed),
        (S::Running, M::Failed, S::Failed),
        (S::Running, M::Cancelled, S::Cancelled),
        (S::Running, M::OutcomeUnknown, S::OutcomeUnknown),
        (S::BackingOff, M::Started, S::Running),
        (S::BackingOff, M::Failed, S::Failed),
        (S::BackingOff, M::Cancelled, S::Cancelled),
        // When the execution is stopped before anybody found out.
        (S::OutcomeUnknown, M::Failed, S::Failed),
    ]
};

pub(crate) fn step_move(from: StepState, by: StepMove) -> Option<StepState> {
    STEP_MOVES.iter().find(|(state, moved_by, _)| *state == from && *moved_by == by).map(|(_, _, to)| *to)
}

/// `to` is looked at for `Finished` only, which has several targets.
pub(crate) fn execution_move(
    from: ExecutionState,
    by: ExecutionMove,
    to: Option<ExecutionState>,
) -> Option<ExecutionState> {
    EXECUTION_MOVES
        .iter()
        .find(|(state, moved_by, target)| *state == from && *moved_by == by && to.is_none_or(|to| to == *target))
        .map(|(_, _, target)| *target)
}
