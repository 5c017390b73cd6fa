//! Records which transitions of the tables occur.

use std::collections::HashSet;

use belay_execution::{
    Body, Execution, ExecutionEvent, ExecutionState, ExecutionTrigger, OperationEnd, OperationEvent, StepEvent,
    StepState, StepTrigger, ToolCallEnd, Work,
};

/// Transitions that occurred, as rows of the tables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Transitions {
    pub(crate) execution: HashSet<(ExecutionState, ExecutionTrigger, ExecutionState)>,
    pub(crate) steps: HashSet<(StepState, StepTrigger, StepState)>,
}

/// The states of an execution and its steps at one moment.
pub(crate) struct States {
    state: ExecutionState,
    steps: Vec<StepState>,
}

impl States {
    pub(crate) fn of(execution: &Execution) -> Self {
        Self { state: execution.state(), steps: execution.steps().map(|step| step.state()).collect() }
    }
}

impl Transitions {
    /// Records the transitions of one event.
    pub(crate) fn note(&mut self, before: &States, body: &Body, after: &Execution) {
        match execution_trigger(body) {
            // Only moves an execution that waits for approvals alone.
            Some(ExecutionTrigger::ApprovalDecided | ExecutionTrigger::StepResolved)
                if before.state == after.state() => {}
            Some(by) => {
                self.execution.insert((before.state, by, after.state()));
            }
            None => assert_eq!(before.state, after.state(), "{body:?} moved the execution"),
        }
        for (from, view) in before.steps.iter().zip(after.steps()) {
            let is_retried =
                matches!(body, Body::Execution(ExecutionEvent::Retried(_) | ExecutionEvent::PlanUpdated(_)));
            if is_retried && *from != view.state() {
                if *from != StepState::Pending {
                    self.steps.insert((*from, StepTrigger::Retried, StepState::Pending));
                }
                if view.state() == StepState::Ready {
                    self.steps.insert((StepState::Pending, StepTrigger::DependenciesCompleted, StepState::Ready));
                }
            } else if *from != view.state() {
                let by = if body.subject().step() == Some(view.id()) {
                    step_trigger(body, *from, view.state())
                } else {
                    Some(StepTrigger::DependenciesCompleted)
                };
                self.steps.insert((*from, by.expect("this event moves no step"), view.state()));
            }
        }
    }

    pub(crate) fn extend(&mut self, more: Self) {
        self.execution.extend(more.execution);
        self.steps.extend(more.steps);
    }
}

fn execution_trigger(body: &Body) -> Option<ExecutionTrigger> {
    match body {
        Body::Execution(event) => match event {
            ExecutionEvent::Started => Some(ExecutionTrigger::Started),
            ExecutionEvent::Paused { .. } => Some(ExecutionTrigger::Paused),
            ExecutionEvent::Resumed => Some(ExecutionTrigger::Resumed),
            ExecutionEvent::CancelRequested { kill: true, .. } => Some(ExecutionTrigger::KillRequested),
            ExecutionEvent::CancelRequested { kill: false, .. } => Some(ExecutionTrigger::CancelRequested),
            ExecutionEvent::DeadlineExceeded => Some(ExecutionTrigger::DeadlineExceeded),
            ExecutionEvent::AwaitingApproval => Some(ExecutionTrigger::AwaitingApproval),
            ExecutionEvent::CompensationStarted { .. } => Some(ExecutionTrigger::CompensationStarted),
            ExecutionEvent::Finished(_) => Some(ExecutionTrigger::Finished),
            ExecutionEvent::Retried(_) => Some(ExecutionTrigger::Retried),
            ExecutionEvent::PlanUpdated(_) => Some(ExecutionTrigger::StepResolved),
            ExecutionEvent::Created(_)
            | ExecutionEvent::LimitsRequested
            | ExecutionEvent::LimitsAcquired
            | ExecutionEvent::SignalReceived(_)
            | ExecutionEvent::BudgetReported(_)
            | ExecutionEvent::Recovered { .. } => None,
        },
        Body::Operation { event: OperationEvent::Decided { .. }, .. } => Some(ExecutionTrigger::ApprovalDecided),
        Body::Step {
            event:
                StepEvent::Resolved { .. }
                | StepEvent::SkipRequested { .. }
                | StepEvent::OutputSet { .. }
                | StepEvent::RetryAdvanced { .. }
                | StepEvent::RetryCancelled { .. }
                // Only a principal requests these where nothing else is in progress.
                | StepEvent::FallbackSwitched { .. },
            ..
        } => Some(ExecutionTrigger::StepResolved),
        Body::Operation { .. } | Body::Step { .. } => None,
    }
}

fn step_trigger(body: &Body, from: StepState, to: StepState) -> Option<StepTrigger> {
    match body {
        Body::Execution(_) => None,
        Body::Operation { event, .. } => match event {
            OperationEvent::Ended(OperationEnd::ToolCall(_))
                if (from, to) == (StepState::AwaitingApproval, StepState::Running) =>
            {
                Some(StepTrigger::CallEnded)
            }
            OperationEvent::Ended(OperationEnd::ToolCall(ToolCallEnd::Cancelled { .. })) => {
                Some(StepTrigger::CallDiscarded)
            }
            OperationEvent::Held(_) => Some(StepTrigger::CallHeld),
            OperationEvent::Requested(Work::ToolCall(_) | Work::Child(_)) => Some(StepTrigger::OperationRequested),
            OperationEvent::Requested(Work::Wait(_)) => Some(StepTrigger::WaitStarted),
            OperationEvent::Decided { .. } => Some(StepTrigger::ApprovalDecided),
            OperationEvent::Ended(OperationEnd::Wait(_)) => Some(StepTrigger::WaitEnded),
            OperationEvent::Asked { .. }
            | OperationEvent::Dispatched
            | OperationEvent::Reported(_)
            | OperationEvent::Ended(OperationEnd::ToolCall(_) | OperationEnd::Child { .. }) => None,
        },
        Body::Step { event, .. } => Some(match event {
            StepEvent::SkipRequested { .. }
            | StepEvent::OutputSet { .. }
            | StepEvent::ConversationCarriedOver { .. }
            | StepEvent::RetryAdvanced { .. }
            | StepEvent::RetryCancelled { .. }
            | StepEvent::CachedResultUsed { .. }
            | StepEvent::ItemsCollected { .. } => return None,
            // A step for an entry that runs again; those that have ended do so with the list.
            StepEvent::ItemsListed { .. } => match from {
                StepState::Pending => StepTrigger::DependenciesCompleted,
                _ => return None,
            },
            StepEvent::FallbackSwitched { .. } if from == StepState::BackingOff => return None,
            StepEvent::FallbackSwitched { .. } => StepTrigger::FallbackSwitched,
            StepEvent::Started => StepTrigger::Started,
            StepEvent::RetryScheduled { .. } => StepTrigger::RetryScheduled,
            StepEvent::Completed { .. } => StepTrigger::Completed,
            StepEvent::Failed { .. } => StepTrigger::Failed,
            StepEvent::Skipped { .. } => StepTrigger::Skipped,
            StepEvent::Cancelled { .. } => StepTrigger::Cancelled,
            StepEvent::OutcomeUnknown { .. } => StepTrigger::OutcomeUnknown,
            StepEvent::Resolved { .. } => StepTrigger::Resolved,
        }),
    }
}
