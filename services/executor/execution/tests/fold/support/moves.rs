//! Which moves of the tables were made.

use std::collections::HashSet;

use belay_execution::{EventKind, Execution, ExecutionMove, ExecutionState, StepMove, StepState};

/// Moves that were made, as rows of the tables.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Moves {
    pub(crate) execution: HashSet<(ExecutionState, ExecutionMove, ExecutionState)>,
    pub(crate) steps: HashSet<(StepState, StepMove, StepState)>,
}

/// The states of an execution and its steps at one moment.
pub(crate) struct Standing {
    state: ExecutionState,
    steps: Vec<StepState>,
}

impl Standing {
    pub(crate) fn of(execution: &Execution) -> Self {
        Self { state: execution.state(), steps: execution.steps().map(|step| step.state()).collect() }
    }
}

impl Moves {
    /// Notes what one event moved.
    pub(crate) fn note(&mut self, before: &Standing, kind: &EventKind, after: &Execution) {
        match execution_move(kind) {
            // Moves an execution that waited for nothing but this, and no other.
            Some(ExecutionMove::ApprovalDecided) if before.state == after.state() => {}
            Some(by) => {
                self.execution.insert((before.state, by, after.state()));
            }
            None => assert_eq!(before.state, after.state(), "{kind:?} moved the execution"),
        }
        for (step, (from, view)) in before.steps.iter().zip(after.steps()).enumerate() {
            if *from != view.state() {
                let by = if kind.step() == Some(step) {
                    step_move(kind, *from, view.state())
                } else {
                    Some(StepMove::DependenciesCompleted)
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

fn execution_move(kind: &EventKind) -> Option<ExecutionMove> {
    Some(match kind {
        EventKind::Started => ExecutionMove::Started,
        EventKind::Paused { .. } => ExecutionMove::Paused,
        EventKind::Resumed { .. } => ExecutionMove::Resumed,
        EventKind::CancelRequested { .. } => ExecutionMove::CancelRequested,
        EventKind::DeadlineExceeded => ExecutionMove::DeadlineExceeded,
        EventKind::AwaitingApproval => ExecutionMove::AwaitingApproval,
        EventKind::ApprovalDecided { .. } => ExecutionMove::ApprovalDecided,
        EventKind::Finished(_) => ExecutionMove::Finished,
        _ => return None,
    })
}

fn step_move(kind: &EventKind, from: StepState, to: StepState) -> Option<StepMove> {
    Some(match kind {
        _ if kind.ends_call() && (from, to) == (StepState::AwaitingApproval, StepState::Running) => StepMove::CallEnded,
        EventKind::CallHeld { .. } => StepMove::CallHeld,
        EventKind::ApprovalDecided { .. } => StepMove::ApprovalDecided,
        EventKind::StepStarted { .. } => StepMove::Started,
        EventKind::CallRequested(_) => StepMove::CallRequested,
        EventKind::CallCancelled { .. } => StepMove::CallDiscarded,
        EventKind::RetryScheduled { .. } => StepMove::RetryScheduled,
        EventKind::StepCompleted { .. } => StepMove::Completed,
        EventKind::StepFailed { .. } => StepMove::Failed,
        EventKind::StepSkipped { .. } => StepMove::Skipped,
        EventKind::StepCancelled { .. } => StepMove::Cancelled,
        EventKind::StepOutcomeUnknown { .. } => StepMove::OutcomeUnknown,
        _ => return None,
    })
}
