//! The fold itself: one event, one change of the present.

use thiserror::Error;

use crate::{
    CallId, CallInFlight, ErrorClass, Event, EventKind, Execution, ExecutionMove, ExecutionState, SkipReason, StepMove, StepState,
    Timestamp,
    execution::{CallEnd, PausedBy, Stop},
    moves::{execution_move, step_move},
};

/// An event that cannot follow the ones before it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("event {sequence} cannot be: {what}")]
pub struct Impossible {
    /// The event's number.
    pub sequence: u64,
    /// What is wrong with it.
    pub what: String,
}

impl Execution {
    /// Changes the present by one event.
    ///
    /// # Errors
    /// [`Impossible`] when there is a gap before it or its move does not exist. The execution must not be used after that.
    pub fn apply(&mut self, event: &Event) -> Result<(), Impossible> {
        let impossible = |what: String| Impossible { sequence: event.sequence, what };
        if event.sequence != self.last_sequence + 1 {
            return Err(impossible(format!("the event before it is {}", self.last_sequence)));
        }
        self.apply_kind(event.time, &event.kind).map_err(impossible)?;
        self.last_sequence = event.sequence;
        self.last_time = self.last_time.max(event.time);
        Ok(())
    }

    fn apply_kind(&mut self, time: Timestamp, kind: &EventKind) -> Result<(), String> {
        use EventKind as K;
        match kind {
            K::Created(_) => return Err("`created` comes first and once".into()),
            K::Started => {
                self.move_execution(ExecutionMove::Started, None)?;
                self.started_at = Some(time);
            }
            K::Paused { discard_calls, .. } => {
                self.move_execution(ExecutionMove::Paused, None)?;
                self.paused = Some(PausedBy { since: time, discard_calls: *discard_calls });
            }
            K::Resumed { .. } => {
                self.move_execution(ExecutionMove::Resumed, None)?;
                self.paused = None;
            }
            K::CancelRequested { .. } => {
                self.move_execution(ExecutionMove::CancelRequested, None)?;
                self.paused = None;
                self.stop = Some(Stop::Cancelled);
            }
            K::DeadlineExceeded => {
                self.move_execution(ExecutionMove::DeadlineExceeded, None)?;
                self.paused = None;
                self.stop = Some(Stop::Deadline);
            }
            K::Recovered { .. } => {
                if self.state.is_terminal() {
                    return Err("an execution that ended cannot be recovered".into());
                }
            }
            K::Finished(finished) => {
                self.move_execution(ExecutionMove::Finished, Some(finished.state))?;
                if self.totals.done() != self.totals.total {
                    return Err("some steps have not ended".into());
                }
                self.paused = None;
                self.ended_at = Some(time);
            }
            K::StepStarted { step, attempt } => self.step_started(*step, *attempt, time)?,
            K::RetryScheduled { step, failure, not_before, .. } => {
                self.move_step(*step, StepMove::RetryScheduled, time)?;
                let record = &mut self.steps[*step];
                record.not_before = Some(*not_before);
                record.failure = Some(failure.clone());
                record.call_end = None;
                self.unsettled.remove(step);
                self.backing_off.insert((*not_before, *step));
            }
            K::StepCompleted { step, .. } => {
                self.move_step(*step, StepMove::Completed, time)?;
                self.end_step(*step, time);
                self.totals.completed += 1;
                self.steps[*step].failure = None;
                self.meet_dependents(*step, time)?;
            }
            K::StepFailed { step, failure, .. } => {
                self.move_step(*step, StepMove::Failed, time)?;
                self.end_step(*step, time);
                self.totals.failed += 1;
                self.steps[*step].failure = Some(failure.clone());
                self.first_failure.get_or_insert_with(|| failure.clone());
                self.doom_dependents(*step, SkipReason::DependencyFailed);
                if self.stop.is_none() && (self.created.plan.stop_on_error() || failure.class == ErrorClass::Fatal) {
                    self.stop = Some(Stop::Error { step: *step });
                }
            }
            K::StepSkipped { step, reason, because, .. } => {
                self.move_step(*step, StepMove::Skipped, time)?;
                self.end_step(*step, time);
                self.totals.skipped += 1;
                self.steps[*step].skipped = Some((*reason, *because));
                self.doom_dependents(*step, SkipReason::DependencySkipped);
            }
            K::StepCancelled { step, .. } => {
                self.move_step(*step, StepMove::Cancelled, time)?;
                self.end_step(*step, time);
                self.totals.cancelled += 1;
                self.doom_dependents(*step, SkipReason::DependencySkipped);
            }
            K::StepOutcomeUnknown { step, failure, .. } => {
                self.move_step(*step, StepMove::OutcomeUnknown, time)?;
                self.unsettled.remove(step);
                self.unknown.insert(*step);
                let record = &mut self.steps[*step];
                record.failure = Some(failure.clone());
                record.call_end = None;
                self.active -= 1;
            }
            K::CallRequested(request) => {
                let CallId { step, attempt, number } = request.call;
                let record = self.steps.get(step).ok_or_else(|| format!("the plan has no step {step}"))?;
                if attempt != record.attempt || number != record.calls + 1 || record.call_end.is_some() {
                    return Err(format!("{} does not follow call {}.{}", request.call, record.attempt, record.calls));
                }
                if record.state == StepState::Ready {
                    self.move_step(step, StepMove::CallRequested, time)?;
                    self.discarded.remove(&step);
                } else if record.state != StepState::Running || self.in_flight.keys().any(|call| call.step == step) {
                    return Err(format!("step {step} cannot make a call now"));
                }
                self.steps[step].calls = number;
                self.in_flight.insert(request.call, CallInFlight { request: (**request).clone(), since: time });
            }
            K::CallCompleted { call, result, .. } => {
                self.end_call(*call, CallEnd::Completed)?;
                self.steps[call.step].output = Some(result.clone());
            }
            K::CallFailed { call, failure, .. } => self.end_call(*call, CallEnd::Failed(failure.clone()))?,
            K::CallOutcomeUnknown { call, failure } => self.end_call(*call, CallEnd::Unknown(failure.clone()))?,
            K::CallCancelled { call } => {
                self.end_call(*call, CallEnd::Cancelled)?;
                if self.stop.is_none() {
                    self.move_step(call.step, StepMove::CallDiscarded, time)?;
                    self.unsettled.remove(&call.step);
                    self.steps[call.step].call_end = None;
                    self.discarded.insert(call.step);
                }
            }
        }
        Ok(())
    }

    fn move_execution(&mut self, by: ExecutionMove, to: Option<ExecutionState>) -> Result<(), String> {
        self.state = execution_move(self.state, by, to)
            .ok_or_else(|| format!("an execution that is {:?} has no move {by:?}", self.state))?;
        Ok(())
    }

    fn move_step(&mut self, step: usize, by: StepMove, time: Timestamp) -> Result<(), String> {
        let record = self.steps.get_mut(step).ok_or_else(|| format!("the plan has no step {step}"))?;
        let from = record.state;
        record.state = step_move(from, by).ok_or_else(|| format!("step {step}, which is {from:?}, has no move {by:?}"))?;
        record.since = time;
        if from == StepState::Pending {
            self.pending -= 1;
        }
        Ok(())
    }

    fn step_started(&mut self, step: usize, attempt: u32, time: Timestamp) -> Result<(), String> {
        let record = self.steps.get(step).ok_or_else(|| format!("the plan has no step {step}"))?;
        if attempt != record.attempt + 1 {
            return Err(format!("attempt {attempt} of step {step} does not follow attempt {}", record.attempt));
        }
        if let Some(open) = self.created.plan.steps()[step].dependencies().iter().find(|&&on| !self.steps[on].state.is_terminal()) {
            return Err(format!("step {step} started before step {open}, which it depends on, had ended"));
        }
        let first = record.attempt == 0;
        if let Some(not_before) = record.not_before {
            self.backing_off.remove(&(not_before, step));
        }
        self.move_step(step, StepMove::Started, time)?;
        self.ready.remove(&step);
        let record = &mut self.steps[step];
        record.attempt = attempt;
        record.calls = 0;
        record.not_before = None;
        if first {
            record.started_at = Some(time);
            self.active += 1;
        }
        Ok(())
    }

    /// The bookkeeping that every end of a step shares; `move_step` has already refused a second end.
    fn end_step(&mut self, step: usize, time: Timestamp) {
        let record = &mut self.steps[step];
        record.ended_at = Some(time);
        record.call_end = None;
        if let Some(not_before) = record.not_before.take() {
            self.backing_off.remove(&(not_before, step));
        }
        let was_unknown = self.unknown.remove(&step);
        if record.started_at.is_some() && !was_unknown {
            self.active -= 1;
        }
        self.ready.remove(&step);
        self.discarded.remove(&step);
        self.unsettled.remove(&step);
        self.doomed.remove(&step);
    }

    fn end_call(&mut self, call: CallId, end: CallEnd) -> Result<(), String> {
        self.in_flight.remove(&call).ok_or_else(|| format!("{call} is not in flight"))?;
        self.steps[call.step].call_end = Some(end);
        self.unsettled.insert(call.step);
        Ok(())
    }

    fn meet_dependents(&mut self, step: usize, time: Timestamp) -> Result<(), String> {
        for index in 0..self.created.plan.dependents(step).len() {
            let dependent = self.created.plan.dependents(step)[index];
            let record = &mut self.steps[dependent];
            record.unmet -= 1;
            if record.unmet == 0 && record.state == StepState::Pending {
                self.move_step(dependent, StepMove::DependenciesCompleted, time)?;
                self.ready.insert(dependent);
            }
        }
        Ok(())
    }

    fn doom_dependents(&mut self, step: usize, reason: SkipReason) {
        for &dependent in self.created.plan.dependents(step) {
            if self.steps[dependent].state == StepState::Pending {
                self.doomed.entry(dependent).or_insert((reason, step));
            }
        }
    }
}
