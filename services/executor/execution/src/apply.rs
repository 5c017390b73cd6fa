//! The fold itself: one event, one change of the present.

use std::sync::Arc;

use belay_reasons as reasons;
use thiserror::Error;

use crate::{
    CallId, CallInFlight, Decided, ErrorClass, Event, EventKind, Execution, ExecutionMove, ExecutionState, SkipReason,
    StepMove, StepState, Timestamp,
    execution::{Authorization, CallEnd, PausedBy, StepRecord, Stop},
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
    /// [`Impossible`] when there is a gap before it, its move does not exist, or it contradicts what is known of its step or its call.
    /// The execution must not be used after that.
    pub fn apply(&mut self, event: &Event) -> Result<(), Impossible> {
        let impossible = |what: String| Impossible { sequence: event.sequence, what };
        if event.sequence != self.last_sequence + 1 {
            return Err(impossible(format!("the event before it is {}", self.last_sequence)));
        }
        self.apply_kind(event.time, &event.kind).map_err(impossible)?;
        self.admit();
        self.last_sequence = event.sequence;
        self.last_time = self.last_time.max(event.time);
        Ok(())
    }

    fn apply_kind(&mut self, time: Timestamp, kind: &EventKind) -> Result<(), String> {
        use EventKind as K;
        match kind {
            K::Created(_) => return Err("`created` comes first and once".into()),
            K::Started => {
                if self.started_at.is_some() {
                    return Err("it has started before".into());
                }
                self.move_execution(ExecutionMove::Started, None)?;
                self.started_at = Some(time);
            }
            K::Paused { discard_calls, request_id, .. } => {
                self.move_execution(ExecutionMove::Paused, None)?;
                self.remember(request_id);
                let sequence = self.last_sequence + 1;
                self.paused = Some(PausedBy { since: time, discard_calls: *discard_calls, sequence });
            }
            K::Resumed { request_id, .. } => {
                self.move_execution(ExecutionMove::Resumed, None)?;
                self.remember(request_id);
                self.paused = None;
            }
            K::CancelRequested { request_id, .. } => {
                self.move_execution(ExecutionMove::CancelRequested, None)?;
                self.remember(request_id);
                self.paused = None;
                self.stop = Some(Stop::Cancelled);
            }
            K::DeadlineExceeded => {
                self.move_execution(ExecutionMove::DeadlineExceeded, None)?;
                self.paused = None;
                self.stop = Some(Stop::Deadline);
            }
            K::AwaitingApproval => {
                if !self.only_awaits() {
                    return Err("something can go on without a decision".into());
                }
                self.move_execution(ExecutionMove::AwaitingApproval, None)?;
            }
            K::Recovered { .. } => {
                if self.state.is_terminal() {
                    return Err("an execution that ended cannot be recovered".into());
                }
            }
            K::Finished(finished) => {
                self.move_execution(ExecutionMove::Finished, Some(finished.state))?;
                if self.totals.done() != self.totals.total || finished.totals != self.totals {
                    return Err(format!("of its steps this is known: {:?}", self.totals));
                }
                self.paused = None;
                self.ended_at = Some(time);
            }
            K::StepStarted { step, attempt } => self.step_started(*step, *attempt, time)?,
            K::RetryScheduled { step, attempt, failure, not_before, .. } => {
                self.check_step(*step, *attempt, StepMove::RetryScheduled)?;
                self.move_step(*step, StepMove::RetryScheduled, time)?;
                let record = &mut self.steps[*step];
                record.not_before = Some(*not_before);
                record.failed(*attempt, failure, time);
                record.call_end = None;
                record.attempt_started_at = None;
                self.unsettled.remove(step);
                self.backing_off.insert((*not_before, *step));
            }
            K::StepCompleted { step, attempt, .. } => {
                self.check_step(*step, *attempt, StepMove::Completed)?;
                self.move_step(*step, StepMove::Completed, time)?;
                self.end_step(*step, time);
                self.totals.completed += 1;
                self.steps[*step].failure = None;
                self.meet_dependents(*step, time)?;
            }
            K::StepFailed { step, attempt, failure, .. } => {
                self.check_step(*step, *attempt, StepMove::Failed)?;
                self.move_step(*step, StepMove::Failed, time)?;
                self.end_step(*step, time);
                self.totals.failed += 1;
                self.steps[*step].failed(*attempt, failure, time);
                self.first_failure.get_or_insert_with(|| failure.clone());
                self.doom_dependents(*step, SkipReason::DependencyFailed);
                if self.stop.is_none() && (self.created.plan.stop_on_error() || failure.class == ErrorClass::Fatal) {
                    self.stop = Some(Stop::Error { step: *step });
                }
            }
            K::StepSkipped { step, reason, because, .. } => {
                let record = self.record_of(*step)?;
                if record.attempt > 0 && !matches!(record.call_end, Some(CallEnd::LeftOut(_))) {
                    return Err(format!("step {step} has started, and can no longer be skipped"));
                }
                self.move_step(*step, StepMove::Skipped, time)?;
                self.end_step(*step, time);
                self.totals.skipped += 1;
                self.steps[*step].skipped = Some((*reason, *because));
                self.doom_dependents(*step, SkipReason::DependencySkipped);
            }
            K::StepCancelled { step, attempt, .. } => {
                self.check_step(*step, *attempt, StepMove::Cancelled)?;
                self.move_step(*step, StepMove::Cancelled, time)?;
                self.end_step(*step, time);
                self.totals.cancelled += 1;
                self.doom_dependents(*step, SkipReason::DependencySkipped);
            }
            K::StepOutcomeUnknown { step, attempt, failure } => {
                self.check_step(*step, *attempt, StepMove::OutcomeUnknown)?;
                self.move_step(*step, StepMove::OutcomeUnknown, time)?;
                self.unsettled.remove(step);
                self.unknown.insert(*step);
                let record = &mut self.steps[*step];
                record.failure = Some(failure.clone());
                record.call_end = None;
                record.attempt_started_at = None;
                self.active -= 1;
            }
            K::CallRequested(request) => {
                let CallId { step, attempt, number } = request.call;
                let record = self.record_of(step)?;
                if attempt != record.attempt || number != record.calls + 1 || !self.uncalled.contains(&step) {
                    return Err(format!("{} does not follow call {}.{}", request.call, record.attempt, record.calls));
                }
                self.check_under_way()?;
                if record.state == StepState::Ready {
                    self.move_step(step, StepMove::CallRequested, time)?;
                }
                self.uncalled.remove(&step);
                self.steps[step].calls = number;
                self.ledger_id.clone_from(&request.ledger_id);
                let flying = CallInFlight { request: Arc::clone(request), since: time, hold: None };
                self.in_flight.insert(request.call, flying);
            }
            K::CallCompleted { call, result, receipt } => {
                let hold = self.in_flight.get(call).and_then(|flying| flying.hold.as_ref());
                let authorization = Authorization::of(receipt, hold);
                self.end_call(*call, CallEnd::Completed, time)?;
                self.steps[call.step].authorization = authorization;
                self.steps[call.step].output = Some(result.clone());
            }
            K::CallFailed { call, failure, .. } => self.end_call(*call, CallEnd::Failed(failure.clone()), time)?,
            K::CallDenied { call, failure, .. } => self.end_call(*call, CallEnd::Denied(failure.clone()), time)?,
            K::CallOutcomeUnknown { call, failure, .. } => {
                self.end_call(*call, CallEnd::Unknown(failure.clone()), time)?
            }
            K::CallHeld { call, need } => self.call_held(*call, need, time)?,
            K::ApprovalRequested { call, approval, subject_digest } => {
                self.approval_requested(*call, approval, subject_digest)?;
            }
            K::ApprovalDecided { call, approval, decision, principal, reason } => {
                let sequence = self.last_sequence + 1;
                let (principal, reason) = (principal.clone(), reason.clone());
                let decided = Decided { decision: *decision, principal, reason, sequence };
                self.approval_decided(*call, approval, decided, time)?;
            }
            K::CallCancelled { call, failure, .. } => {
                if self.stop.is_none() {
                    self.check_end(*call, CallEnd::Cancelled)?;
                    self.leave_hold(*call, StepMove::CallDiscarded, time)?;
                }
                self.end_call(*call, CallEnd::Cancelled, time)?;
                let record = &mut self.steps[call.step];
                match failure.as_ref().map(|failure| failure.reason.as_str()) {
                    Some(reasons::CONFLICT) => record.conflicts += 1,
                    Some(reasons::FAILED_BESIDE_COMMITS) => record.failed_beside = true,
                    _ => {}
                }
                if self.stop.is_none() {
                    if self.steps[call.step].state == StepState::Running {
                        self.move_step(call.step, StepMove::CallDiscarded, time)?;
                    }
                    self.unsettled.remove(&call.step);
                    self.steps[call.step].call_end = None;
                    self.uncalled.insert(call.step);
                }
            }
        }
        Ok(())
    }

    fn remember(&mut self, request_id: &str) {
        if !request_id.is_empty() {
            self.requests.insert(request_id.to_owned());
        }
    }

    pub(crate) fn move_execution(&mut self, by: ExecutionMove, to: Option<ExecutionState>) -> Result<(), String> {
        self.state = execution_move(self.state, by, to)
            .ok_or_else(|| format!("an execution that is {:?} has no move {by:?}", self.state))?;
        Ok(())
    }

    fn record_of(&self, step: usize) -> Result<&StepRecord, String> {
        self.steps.get(step).ok_or_else(|| format!("the plan has no step {step}"))
    }

    /// Nothing starts before the execution does, while it is paused, or once it is stopped.
    fn check_under_way(&self) -> Result<(), String> {
        if self.started_at.is_none() || self.paused.is_some() || self.stop.is_some() {
            return Err("nothing may start now".into());
        }
        Ok(())
    }

    /// What the table of moves cannot say: a step is moved in the attempt it is in, and only to where the end of its call leads.
    fn check_step(&self, step: usize, attempt: u32, by: StepMove) -> Result<(), String> {
        let record = self.record_of(step)?;
        if attempt != record.attempt {
            return Err(format!(
                "attempt {attempt} of step {step} is not the one under way, which is {}",
                record.attempt
            ));
        }
        let uncalled = self.uncalled.contains(&step);
        let leads_there = match (record.state, by) {
            (StepState::Running, StepMove::Completed) => matches!(record.call_end, Some(CallEnd::Completed)),
            (StepState::Running, StepMove::RetryScheduled) => matches!(record.call_end, Some(CallEnd::Failed(_))),
            (StepState::Running, StepMove::OutcomeUnknown) => matches!(record.call_end, Some(CallEnd::Unknown(_))),
            (StepState::Running, StepMove::Failed) => {
                uncalled || matches!(record.call_end, Some(CallEnd::Failed(_) | CallEnd::Denied(_)))
            }
            (StepState::Running, StepMove::Cancelled) => {
                uncalled || matches!(record.call_end, Some(CallEnd::Cancelled))
            }
            (StepState::Ready, StepMove::Failed | StepMove::Cancelled) => uncalled,
            _ => true,
        };
        if !leads_there {
            return Err(format!(
                "step {step}, which is {:?}, has no call whose end leads to the move {by:?}",
                record.state
            ));
        }
        Ok(())
    }

    pub(crate) fn move_step(&mut self, step: usize, by: StepMove, time: Timestamp) -> Result<(), String> {
        let record = self.steps.get_mut(step).ok_or_else(|| format!("the plan has no step {step}"))?;
        let from = record.state;
        record.state =
            step_move(from, by).ok_or_else(|| format!("step {step}, which is {from:?}, has no move {by:?}"))?;
        record.since = time;
        if from == StepState::Pending {
            self.pending -= 1;
        }
        Ok(())
    }

    fn step_started(&mut self, step: usize, attempt: u32, time: Timestamp) -> Result<(), String> {
        self.check_under_way()?;
        let record = self.record_of(step)?;
        if attempt != record.attempt + 1 || self.uncalled.contains(&step) {
            return Err(format!("attempt {attempt} of step {step} does not follow attempt {}", record.attempt));
        }
        if let Some(open) =
            self.created.plan.steps()[step].dependencies().iter().find(|&&on| !self.steps[on].state.is_terminal())
        {
            return Err(format!("step {step} started before step {open}, which it depends on, had ended"));
        }
        let first = record.attempt == 0;
        if let Some(not_before) = record.not_before {
            self.backing_off.remove(&(not_before, step));
        }
        self.move_step(step, StepMove::Started, time)?;
        self.ready.remove(&step);
        self.uncalled.insert(step);
        let record = &mut self.steps[step];
        record.attempt = attempt;
        record.calls = 0;
        (record.conflicts, record.failed_beside) = (0, false);
        record.not_before = None;
        record.attempt_started_at = Some(time);
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
        record.attempt_started_at = None;
        record.call_end = None;
        if let Some(not_before) = record.not_before.take() {
            self.backing_off.remove(&(not_before, step));
        }
        let was_unknown = self.unknown.remove(&step);
        if record.started_at.is_some() && !was_unknown {
            self.active -= 1;
        }
        self.ready.remove(&step);
        self.uncalled.remove(&step);
        self.unsettled.remove(&step);
        self.doomed.remove(&step);
    }

    fn end_call(&mut self, call: CallId, end: CallEnd, time: Timestamp) -> Result<(), String> {
        let end = self.check_end(call, end)?;
        self.leave_hold(call, StepMove::CallEnded, time)?;
        if self.queued.remove(&call) {
            self.active += 1;
        }
        self.in_flight.remove(&call);
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

    /// Once the execution is stopped, that is why the steps that are left do not run.
    fn doom_dependents(&mut self, step: usize, reason: SkipReason) {
        if self.stop.is_some() {
            return;
        }
        for &dependent in self.created.plan.dependents(step) {
            if self.steps[dependent].state == StepState::Pending {
                self.doomed.entry(dependent).or_insert((reason, step));
            }
        }
    }
}
