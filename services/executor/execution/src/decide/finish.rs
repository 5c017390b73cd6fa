//! How an execution ends: what is still open is ended, then the execution itself.

use belay_reasons as reasons;

use crate::{
    Body, ErrorClass, Execution, ExecutionEvent, ExecutionState, Failure, Finished, SkipReason, StepEvent, StepKey,
    StepState, Timestamp, Totals,
    state::{StepRecord, Stop},
};

impl Execution {
    /// Ends every step without an operation in flight, once nothing may start any more.
    pub(super) fn drain(&self, stop: Stop) -> Vec<Body> {
        let index = &self.index;
        let started = index.to_request.len() + index.to_start_without_slot.len() + index.backing_off.len();
        if index.pending + started + index.unknown.len() == 0 && !index.has_ready() {
            return Vec::new();
        }
        let (reason, cause) = match stop {
            Stop::Error { step } => (SkipReason::StopOnError, Some(step)),
            Stop::Cancelled => (SkipReason::Cancelled, None),
            Stop::Deadline => (SkipReason::TimedOut, None),
        };
        let mut events = Vec::new();
        for (step, record) in self.steps.iter() {
            let progress = self.progress(events.len() + 1);
            let event = match record.state {
                StepState::Ready | StepState::Pending if !record.has_started() => {
                    let to_skip = record.to_skip.map(|(reason, because)| (reason, Some(because)));
                    let (reason, because) = to_skip.unwrap_or((reason, cause));
                    let because = because.map(|because| self.steps[because].id.clone());
                    StepEvent::Skipped { reason, because, progress }
                }
                StepState::Ready | StepState::BackingOff => StepEvent::Cancelled { progress },
                StepState::Running if record.is_to_request() => StepEvent::Cancelled { progress },
                StepState::OutcomeUnknown => StepEvent::Failed {
                    failure: Failure::new(
                        ErrorClass::OutcomeUnknown,
                        reasons::OUTCOME_UNKNOWN,
                        "The execution was stopped before anybody found out whether the step's call took effect.",
                    ),
                    progress,
                },
                StepState::Pending
                | StepState::Running
                | StepState::AwaitingApproval
                | StepState::Waiting
                | StepState::Completed
                | StepState::Failed
                | StepState::Skipped
                | StepState::Cancelled => continue,
            };
            events.push(self.about(step, record.attempt, event));
        }
        events
    }

    /// Whether a step was skipped that another step needed, or every step was; not counting what the plan's conditions have skipped.
    fn skipped_a_needed_step(&self) -> bool {
        let is_one = |record: &StepRecord| match record.skipped {
            Some((SkipReason::DependencySkipped, _)) => true,
            Some(_) => self.totals.completed == 0,
            None => false,
        };
        self.steps.iter().any(|(step, record)| is_one(record) && !self.is_skipped_by_condition(step))
    }

    /// Whether a condition is the reason for which a step was skipped, by way of others or not.
    fn is_skipped_by_condition(&self, step: StepKey) -> bool {
        matches!(self.steps[self.skipped_because(step)].skipped, Some((SkipReason::ConditionFalse, _)))
    }

    /// The step at which the reason for skipping a step begins: itself, or one that it depends on.
    pub(crate) fn skipped_because(&self, step: StepKey) -> StepKey {
        let mut step = step;
        while let Some((SkipReason::DependencySkipped | SkipReason::DependencyFailed, Some(because))) =
            self.steps[step].skipped
        {
            step = because;
        }
        step
    }

    pub(super) fn finish(&self, now: Timestamp) -> Body {
        let Totals { total, completed, failed, .. } = self.totals;
        // An execution that was stopped too late to stop anything has completed: the totals decide.
        let state = match self.stop {
            _ if completed == total => ExecutionState::Completed,
            Some(Stop::Cancelled) => ExecutionState::Cancelled,
            Some(Stop::Deadline) => ExecutionState::TimedOut,
            _ if failed == 0 && self.skipped_a_needed_step() => ExecutionState::Partial,
            _ if failed == 0 => ExecutionState::Completed,
            _ if completed > 0 && !self.plan().stop_on_error() => ExecutionState::Partial,
            _ => ExecutionState::Failed,
        };
        ExecutionEvent::Finished(Box::new(Finished {
            state,
            totals: self.totals,
            failure: self.first_failure.clone(),
            duration: now.since(self.created_at),
        }))
        .into()
    }
}
