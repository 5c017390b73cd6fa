//! The time in which an execution did nothing but wait for a person.

use std::time::Duration;

use belay_proto::v1::{ExecutionEvent, execution_event::Kind};
use pbjson_types::Timestamp;

use crate::render::time;

/// The time in which an execution did nothing but wait for a person.
#[derive(Debug, Default)]
pub(super) struct Pause {
    since: Option<Timestamp>,
    pub(super) total: Duration,
}

impl Pause {
    /// Takes an event into account; each has to be given once.
    pub(super) fn see(&mut self, event: &ExecutionEvent) {
        match &event.kind {
            Some(Kind::ExecutionAwaitingApproval(_)) => self.since = event.record_time,
            // A question is asked while the execution already waits for another; a signal is kept.
            Some(Kind::ApprovalRequested(_) | Kind::ToolCallOutput(_) | Kind::SignalReceived(_)) => {}
            Some(
                Kind::ExecutionCreated(_)
                | Kind::ExecutionStarted(_)
                | Kind::ExecutionPaused(_)
                | Kind::ExecutionResumed(_)
                | Kind::ExecutionCancelRequested(_)
                | Kind::ExecutionRecovered(_)
                | Kind::ExecutionDeadlineExceeded(_)
                | Kind::ExecutionCompensationStarted(_)
                | Kind::ExecutionFinished(_)
                | Kind::ExecutionRetried(_)
                | Kind::ExecutionPlanUpdated(_)
                | Kind::BudgetWarning(_)
                | Kind::BudgetExceeded(_)
                | Kind::BudgetOverrun(_)
                | Kind::StepStarted(_)
                | Kind::StepRetryScheduled(_)
                | Kind::StepCompleted(_)
                | Kind::StepFailed(_)
                | Kind::StepSkipped(_)
                | Kind::StepCancelled(_)
                | Kind::StepOutcomeUnknown(_)
                | Kind::StepResolved(_)
                | Kind::StepFallbackSwitched(_)
                | Kind::StepCachedResultUsed(_)
                | Kind::StepItemsListed(_)
                | Kind::StepItemsCollected(_)
                | Kind::StepSkipRequested(_)
                | Kind::StepOutputSet(_)
                | Kind::StepRetryAdvanced(_)
                | Kind::StepRetryCancelled(_)
                | Kind::WaitStarted(_)
                | Kind::WaitEnded(_)
                | Kind::ChildStarted(_)
                | Kind::ChildCreated(_)
                | Kind::ChildPaused(_)
                | Kind::ChildEnded(_)
                | Kind::ToolCallRequested(_)
                | Kind::ToolCallCompleted(_)
                | Kind::ToolCallFailed(_)
                | Kind::ToolCallCancelled(_)
                | Kind::ToolCallOutcomeUnknown(_)
                | Kind::ToolCallEffectProposed(_)
                | Kind::ToolCallApprovalRequired(_)
                | Kind::ToolCallDenied(_)
                | Kind::ToolCallDispatched(_)
                | Kind::ApprovalDecided(_),
            )
            | None => {
                let until = event.record_time.as_ref().and_then(time::since_epoch);
                self.total += time::between(self.since.take().as_ref(), until).unwrap_or_default();
            }
        }
    }
}
