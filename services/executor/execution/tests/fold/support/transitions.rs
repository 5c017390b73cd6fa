//! Records which transitions of the tables occur.

use std::collections::HashSet;

use belay_execution::{EventKind, Execution, ExecutionState, ExecutionTrigger, StepState, StepTrigger};

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
    pub(crate) fn note(&mut self, before: &States, kind: &EventKind, after: &Execution) {
        match execution_trigger(kind) {
            // Only moves an execution that waits for approvals alone.
            Some(ExecutionTrigger::ApprovalDecided) if before.state == after.state() => {}
            Some(by) => {
                self.execution.insert((before.state, by, after.state()));
            }
            None => assert_eq!(before.state, after.state(), "{kind:?} moved the execution"),
        }
        for (step, (from, view)) in before.steps.iter().zip(after.steps()).enumerate() {
            if *from != view.state() {
                let by = if kind.step() == Some(step) {
                    step_trigger(kind, *from, view.state())
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

fn execution_trigger(kind: &EventKind) -> Option<ExecutionTrigger> {
    Some(match kind {
        EventKind::Started => ExecutionTrigger::Started,
        EventKind::Paused { .. } => ExecutionTrigger::Paused,
        EventKind::Resumed { .. } => ExecutionTrigger::Resumed,
        EventKind::CancelRequested { .. } => ExecutionTrigger::CancelRequested,
        EventKind::DeadlineExceeded => ExecutionTrigger::DeadlineExceeded,
        EventKind::AwaitingApproval => ExecutionTrigger::AwaitingApproval,
        EventKind::ApprovalDecided { .. } => ExecutionTrigger::ApprovalDecided,
        EventKind::Finished(_) => ExecutionTrigger::Finished,
        _ => return None,
    })
}

fn step_trigger(kind: &EventKind, from: StepState, to: StepState) -> Option<StepTrigger> {
    Some(match kind {
        _ if kind.ends_call() && (from, to) == (StepState::AwaitingApproval, StepState::Running) => {
            StepTrigger::CallEnded
        }
        EventKind::CallHeld { .. } => StepTrigger::CallHeld,
        EventKind::ApprovalDecided { .. } => StepTrigger::ApprovalDecided,
        EventKind::StepStarted { .. } => StepTrigger::Started,
        EventKind::CallRequested(_) => StepTrigger::CallRequested,
        EventKind::CallCancelled { .. } => StepTrigger::CallDiscarded,
        EventKind::RetryScheduled { .. } => StepTrigger::RetryScheduled,
        EventKind::StepCompleted { .. } => StepTrigger::Completed,
        EventKind::StepFailed { .. } => StepTrigger::Failed,
        EventKind::StepSkipped { .. } => StepTrigger::Skipped,
        EventKind::StepCancelled { .. } => StepTrigger::Cancelled,
        EventKind::StepOutcomeUnknown { .. } => StepTrigger::OutcomeUnknown,
        _ => return None,
    })
}
