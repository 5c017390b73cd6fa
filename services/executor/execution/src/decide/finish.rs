//! How an execution ends: what is still open is ended, then the execution itself.

use belay_reasons as reasons;

use crate::{
    Blobs, Body, ErrorClass, Execution, ExecutionEvent, ExecutionState, Failure, Finished, SkipReason, StepEvent,
    StepKey, StepState, Timestamp, Totals,
    state::{StepRecord, Stop},
    steps,
};

impl Execution {
    /// Ends every step without an operation in flight, once nothing may start any more.
    pub(super) fn drain(&self, stop: Stop) -> Vec<Body> {
        let index = &self.index;
        let started = index.to_request.len() + index.to_start_without_slot.len() + index.backing_off.len();
        let open = index.pending + started + index.unknown.len() + index.to_skip.len();
        if open == 0 && !index.has_ready() {
            return Vec::new();
        }
        let (reason, cause) = match stop {
            Stop::Error { step } => (SkipReason::StopOnError, Some(step)),
            Stop::Cancelled | Stop::Killed => (SkipReason::Cancelled, None),
            Stop::Deadline => (SkipReason::TimedOut, None),
        };
        // Alone, because what such a failure skips is skipped for that, also by an executor that begins right after it.
        let failed = self.fail_unknown();
        if !failed.is_empty() {
            return failed;
        }
        let (mut events, mut counted) = (Vec::new(), 0);
        for (step, record) in self.steps.iter() {
            let progress = self.progress(counted + usize::from(record.is_counted()));
            let event = match record.state {
                StepState::Ready | StepState::Pending if !record.has_started() => {
                    let group = record.to_skip.and_then(|(reason, because)| self.skipping_group(step, reason, because));
                    let to_skip = record.to_skip.map(|(reason, because)| (reason, Some(because)));
                    let (reason, because) = to_skip.unwrap_or((reason, cause));
                    let because = because.map(|because| self.steps[because].id.clone());
                    StepEvent::Skipped { reason, because, group, progress }
                }
                StepState::Ready | StepState::BackingOff => StepEvent::Cancelled { progress },
                StepState::Running if record.needs_operation() && !record.has_entries() => {
                    StepEvent::Cancelled { progress }
                }
                StepState::Pending
                | StepState::Running
                | StepState::OutcomeUnknown
                | StepState::AwaitingApproval
                | StepState::Waiting
                | StepState::Completed
                | StepState::Failed
                | StepState::Skipped
                | StepState::Cancelled => continue,
            };
            counted += usize::from(record.is_counted());
            events.push(self.about(step, record.attempt, event));
        }
        if events.is_empty() { self.drain_lists() } else { events }
    }

    /// Fails the steps of whose calls nobody knows the outcome.
    fn fail_unknown(&self) -> Vec<Body> {
        let unknown = self.steps.iter().filter(|(_, record)| record.state == StepState::OutcomeUnknown);
        let mut counted = 0;
        let failed = unknown.map(|(step, record)| {
            counted += usize::from(record.is_counted());
            let failure = Failure::new(
                ErrorClass::OutcomeUnknown,
                reasons::OUTCOME_UNKNOWN,
                "The execution was stopped before anybody found out whether the step's call took effect.",
            );
            self.about(step, record.attempt, StepEvent::Failed { failure, progress: self.progress(counted) })
        });
        failed.collect()
    }

    /// Ends the steps that run for each entry of a list, after those for the entries, whichever of these end together.
    fn drain_lists(&self) -> Vec<Body> {
        let lists = self.steps.iter().filter(|(_, record)| record.state == StepState::Running && record.has_entries());
        let open = lists.filter(|(_, record)| record.needs_operation());
        let cancelled = open.enumerate().map(|(before, (step, record))| {
            self.about(step, record.attempt, StepEvent::Cancelled { progress: self.progress(before + 1) })
        });
        cancelled.collect()
    }

    /// Whether a step was skipped that another step needed, or every step was; not counting what the plan's conditions have skipped.
    fn skipped_a_needed_step(&self) -> bool {
        let is_one = |record: &StepRecord| match record.skipped {
            Some((SkipReason::DependencySkipped, _)) => true,
            Some(_) => self.totals.completed == 0 && record.is_counted(),
            None => false,
        };
        self.steps.iter().any(|(step, record)| is_one(record) && !self.is_skipped_by_condition(step))
    }

    /// Whether a condition is the reason for which a step was skipped, by way of others or not.
    fn is_skipped_by_condition(&self, step: StepKey) -> bool {
        matches!(self.steps[self.steps.skipped_because(step)].skipped, Some((SkipReason::ConditionFalse, _)))
    }

    /// Whether this is what has undone a completed step, since that completed last.
    fn undoes_completed(&self, record: &StepRecord) -> bool {
        let undone = record.compensates().map(|step| &self.steps[step]);
        let undone = undone.filter(|undone| undone.state == StepState::Completed);
        let by = undone.and_then(|undone| undone.compensation);
        by.is_some_and(|by| self.steps[by].id == record.id)
    }

    /// The end of the execution, with the outputs of its plan; `None` while a blob that they need is not at hand.
    pub(super) fn finish(&self, now: Timestamp, blobs: &dyn Blobs) -> Option<Body> {
        let Totals { total, completed, failed, .. } = self.totals;
        // An execution that was stopped too late to stop anything has completed: the totals decide.
        let undoes = |record: &StepRecord| record.state == StepState::Completed && self.undoes_completed(record);
        let undone = self.steps.iter().filter(|(_, record)| undoes(record)).count();
        let before = self.compensation.and_then(|compensation| compensation.stop);
        let stop = before.filter(|stop| stop.is_of_execution()).or(self.stop);
        let state = match stop {
            _ if completed == total => ExecutionState::Completed,
            Some(Stop::Cancelled | Stop::Killed) => ExecutionState::Cancelled,
            Some(Stop::Deadline) => ExecutionState::TimedOut,
            _ if failed == 0 && self.skipped_a_needed_step() => ExecutionState::Partial,
            _ if failed == 0 => ExecutionState::Completed,
            _ if completed > undone && !self.plan().stop_on_error() => ExecutionState::Partial,
            _ => ExecutionState::Failed,
        };
        let outputs = match self.plan().outputs().filter(|_| state.has_outputs()) {
            Some(outputs) => Some(steps::outputs::of_plan(self, outputs, blobs)?),
            None => None,
        };
        let finished = Finished {
            state,
            totals: self.totals,
            failure: self.first_failure.clone(),
            duration: now.since(self.created_at),
            outputs,
        };
        Some(ExecutionEvent::Finished(Box::new(finished)).into())
    }
}
