//! The fold: applies one event to the state of an execution.

use std::sync::Arc;

use belay_reasons as reasons;
use thiserror::Error;

use crate::{
    CallId, CallInFlight, Decided, ErrorClass, Event, EventKind, Execution, ExecutionState, ExecutionTrigger,
    SkipReason, StepState, StepTrigger, Timestamp,
    execution::{Authorization, CallEnd, PausedBy, StepRecord, Stop},
    transitions::{execution_transition, step_transition},
};

/// An event that cannot follow the events before it.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("event {sequence} cannot be: {what}")]
pub struct IllegalEvent {
    /// The event's sequence number.
    pub sequence: u64,
    /// Why it is illegal.
    pub what: String,
}

impl Execution {
    /// Applies one event.
    ///
    /// # Errors
    /// [`IllegalEvent`] when a sequence number is missing, the transition does not exist, or the event contradicts the state of its step or
    /// its call. The execution must not be used after that.
    pub fn apply(&mut self, event: &Event) -> Result<(), IllegalEvent> {
        let illegal = |what: String| IllegalEvent { sequence: event.sequence, what };
        if event.sequence != self.last_sequence + 1 {
            return Err(illegal(format!("the event before it is {}", self.last_sequence)));
        }
        self.apply_kind(event.time, &event.kind).map_err(illegal)?;
        self.measure_wait(event.time);
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
                self.transition_execution(ExecutionTrigger::Started, None)?;
                self.started_at = Some(time);
            }
            K::Paused { principal, discard_calls, request_id, .. } => {
                self.transition_execution(ExecutionTrigger::Paused, None)?;
                self.record_request_id(request_id);
                let sequence = self.last_sequence + 1;
                let principal = principal.clone();
                self.paused = Some(PausedBy { principal, since: time, discard_calls: *discard_calls, sequence });
            }
            K::Resumed { request_id, .. } => {
                self.transition_execution(ExecutionTrigger::Resumed, None)?;
                self.record_request_id(request_id);
                self.paused = None;
            }
            K::CancelRequested { request_id, .. } => {
                self.transition_execution(ExecutionTrigger::CancelRequested, None)?;
                self.record_request_id(request_id);
                self.paused = None;
                self.stop = Some(Stop::Cancelled);
            }
            K::DeadlineExceeded => {
                self.transition_execution(ExecutionTrigger::DeadlineExceeded, None)?;
                self.paused = None;
                self.stop = Some(Stop::Deadline);
            }
            K::AwaitingApproval => {
                if !self.only_awaits_approvals() {
                    return Err("something can go on without a decision".into());
                }
                self.transition_execution(ExecutionTrigger::AwaitingApproval, None)?;
            }
            K::Recovered { .. } => {
                if self.state.is_terminal() {
                    return Err("an execution that ended cannot be recovered".into());
                }
            }
            K::Finished(finished) => {
                self.transition_execution(ExecutionTrigger::Finished, Some(finished.state))?;
                if self.totals.done() != self.totals.total || finished.totals != self.totals {
                    return Err(format!("of its steps this is known: {:?}", self.totals));
                }
                self.paused = None;
                self.ended_at = Some(time);
            }
            K::StepStarted { step, attempt } => self.step_started(*step, *attempt, time)?,
            K::RetryScheduled { step, attempt, failure, not_before, .. } => {
                self.check_step(*step, *attempt, StepTrigger::RetryScheduled)?;
                self.transition_step(*step, StepTrigger::RetryScheduled, time)?;
                let record = &mut self.steps[*step];
                record.not_before = Some(*not_before);
                record.failed(*attempt, failure, time);
                record.call_end = None;
                record.attempt_started_at = None;
                self.to_resolve.remove(step);
                self.backing_off.insert((*not_before, *step));
            }
            K::StepCompleted { step, attempt, .. } => {
                self.check_step(*step, *attempt, StepTrigger::Completed)?;
                self.transition_step(*step, StepTrigger::Completed, time)?;
                self.end_step(*step, time);
                self.totals.completed += 1;
                self.steps[*step].failure = None;
                self.release_dependents(*step, time)?;
            }
            K::StepFailed { step, attempt, failure, .. } => {
                self.check_step(*step, *attempt, StepTrigger::Failed)?;
                self.transition_step(*step, StepTrigger::Failed, time)?;
                self.end_step(*step, time);
                self.totals.failed += 1;
                self.steps[*step].failed(*attempt, failure, time);
                self.first_failure.get_or_insert_with(|| failure.clone());
                self.skip_dependents(*step, SkipReason::DependencyFailed);
                if self.stop.is_none() && (self.created.plan.stop_on_error() || failure.class == ErrorClass::Fatal) {
                    self.stop = Some(Stop::Error { step: *step });
                }
            }
            K::StepSkipped { step, reason, because, .. } => {
                let record = self.record_of(*step)?;
                if record.attempt > 0 && !matches!(record.call_end, Some(CallEnd::Skipped(_))) {
                    return Err(format!("step {step} has started, and can no longer be skipped"));
                }
                self.transition_step(*step, StepTrigger::Skipped, time)?;
                self.end_step(*step, time);
                self.totals.skipped += 1;
                self.steps[*step].skipped = Some((*reason, *because));
                self.skip_dependents(*step, SkipReason::DependencySkipped);
            }
            K::StepCancelled { step, attempt, .. } => {
                self.check_step(*step, *attempt, StepTrigger::Cancelled)?;
                self.transition_step(*step, StepTrigger::Cancelled, time)?;
                self.end_step(*step, time);
                self.totals.cancelled += 1;
                self.skip_dependents(*step, SkipReason::DependencySkipped);
            }
            K::StepOutcomeUnknown { step, attempt, failure } => {
                self.check_step(*step, *attempt, StepTrigger::OutcomeUnknown)?;
                self.transition_step(*step, StepTrigger::OutcomeUnknown, time)?;
                self.to_resolve.remove(step);
                self.unknown.insert(*step);
                let record = &mut self.steps[*step];
                record.failure = Some(Box::new(failure.clone()));
                record.call_end = None;
                record.attempt_started_at = None;
                self.active -= 1;
            }
            K::CallRequested(request) => {
                let CallId { step, attempt, number } = request.call;
                let record = self.record_of(step)?;
                if attempt != record.attempt || number != record.calls + 1 || !self.to_dispatch.contains(&step) {
                    return Err(format!("{} does not follow call {}.{}", request.call, record.attempt, record.calls));
                }
                self.check_can_start()?;
                if record.state == StepState::Ready {
                    self.transition_step(step, StepTrigger::CallRequested, time)?;
                }
                self.to_dispatch.remove(&step);
                self.steps[step].calls = number;
                self.ledger_id.clone_from(&request.ledger_id);
                let in_flight = CallInFlight { request: Arc::clone(request), since: time, pending_approval: None };
                self.in_flight.insert(request.call, in_flight);
            }
            K::CallCompleted { call, result, receipt } => {
                let pending = self.in_flight.get(call).and_then(|in_flight| in_flight.pending_approval.as_ref());
                let authorization = Authorization::of(receipt, pending);
                self.end_call(*call, CallEnd::Completed, time)?;
                self.steps[call.step].authorization = authorization.map(Box::new);
                self.steps[call.step].output = Some(result.clone());
            }
            K::CallFailed { call, failure, .. } => self.end_call(*call, CallEnd::Failed(failure.clone()), time)?,
            K::CallDenied { call, failure, .. } => self.end_call(*call, CallEnd::Denied(failure.clone()), time)?,
            K::CallOutcomeUnknown { call, failure, .. } => {
                self.end_call(*call, CallEnd::Unknown(failure.clone()), time)?
            }
            K::CallHeld { call, requirement } => self.call_held(*call, requirement, time)?,
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
                    self.leave_pending(*call, StepTrigger::CallDiscarded, time)?;
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
                        self.transition_step(call.step, StepTrigger::CallDiscarded, time)?;
                    }
                    self.to_resolve.remove(&call.step);
                    self.steps[call.step].call_end = None;
                    self.to_dispatch.insert(call.step);
                }
            }
        }
        Ok(())
    }

    /// Measures the time in `AwaitingApproval`.
    fn measure_wait(&mut self, time: Timestamp) {
        if self.state == ExecutionState::AwaitingApproval {
            self.awaiting_since.get_or_insert(time);
        } else if let Some(since) = self.awaiting_since.take() {
            self.waited += time.since(since);
        }
    }

    fn record_request_id(&mut self, request_id: &str) {
        if !request_id.is_empty() {
            self.requests.insert(request_id.to_owned());
        }
    }

    pub(crate) fn transition_execution(
        &mut self,
        by: ExecutionTrigger,
        to: Option<ExecutionState>,
    ) -> Result<(), String> {
        self.state = execution_transition(self.state, by, to)
            .ok_or_else(|| format!("an execution that is {:?} has no move {by:?}", self.state))?;
        Ok(())
    }

    fn record_of(&self, step: usize) -> Result<&StepRecord, String> {
        self.steps.get(step).ok_or_else(|| format!("the plan has no step {step}"))
    }

    /// Returns an error before the execution has started, while it is paused, and once it is being stopped: nothing may start then.
    fn check_can_start(&self) -> Result<(), String> {
        if self.started_at.is_none() || self.paused.is_some() || self.stop.is_some() {
            return Err("nothing may start now".into());
        }
        Ok(())
    }

    /// Checks what the table of transitions cannot express: an event must name the step's current attempt, and must follow from how the
    /// step's call ended.
    fn check_step(&self, step: usize, attempt: u32, by: StepTrigger) -> Result<(), String> {
        let record = self.record_of(step)?;
        if attempt != record.attempt {
            return Err(format!(
                "attempt {attempt} of step {step} is not the one under way, which is {}",
                record.attempt
            ));
        }
        let to_dispatch = self.to_dispatch.contains(&step);
        let leads_there = match (record.state, by) {
            (StepState::Running, StepTrigger::Completed) => matches!(record.call_end, Some(CallEnd::Completed)),
            (StepState::Running, StepTrigger::RetryScheduled) => matches!(record.call_end, Some(CallEnd::Failed(_))),
            (StepState::Running, StepTrigger::OutcomeUnknown) => matches!(record.call_end, Some(CallEnd::Unknown(_))),
            (StepState::Running, StepTrigger::Failed) => {
                to_dispatch || matches!(record.call_end, Some(CallEnd::Failed(_) | CallEnd::Denied(_)))
            }
            (StepState::Running, StepTrigger::Cancelled) => {
                to_dispatch || matches!(record.call_end, Some(CallEnd::Cancelled))
            }
            (StepState::Ready, StepTrigger::Failed | StepTrigger::Cancelled) => to_dispatch,
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

    pub(crate) fn transition_step(&mut self, step: usize, by: StepTrigger, time: Timestamp) -> Result<(), String> {
        let record = self.steps.get_mut(step).ok_or_else(|| format!("the plan has no step {step}"))?;
        let from = record.state;
        record.state =
            step_transition(from, by).ok_or_else(|| format!("step {step}, which is {from:?}, has no move {by:?}"))?;
        record.since = time;
        if from == StepState::Pending {
            self.pending_steps -= 1;
        }
        Ok(())
    }

    fn step_started(&mut self, step: usize, attempt: u32, time: Timestamp) -> Result<(), String> {
        self.check_can_start()?;
        let record = self.record_of(step)?;
        if attempt != record.attempt + 1 || self.to_dispatch.contains(&step) {
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
        self.transition_step(step, StepTrigger::Started, time)?;
        self.ready.remove(&step);
        self.to_dispatch.insert(step);
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

    /// The bookkeeping that all ends of a step share; `transition_step` has already rejected a second end.
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
        self.to_dispatch.remove(&step);
        self.to_resolve.remove(&step);
        self.to_skip.remove(&step);
    }

    fn end_call(&mut self, call: CallId, end: CallEnd, time: Timestamp) -> Result<(), String> {
        let end = self.check_end(call, end)?;
        self.leave_pending(call, StepTrigger::CallEnded, time)?;
        if self.queued.remove(&call) {
            self.active += 1;
        }
        self.in_flight.remove(&call);
        self.steps[call.step].call_end = Some(end);
        self.to_resolve.insert(call.step);
        Ok(())
    }

    fn release_dependents(&mut self, step: usize, time: Timestamp) -> Result<(), String> {
        for index in 0..self.created.plan.dependents(step).len() {
            let dependent = self.created.plan.dependents(step)[index];
            let record = &mut self.steps[dependent];
            record.open_dependencies -= 1;
            if record.open_dependencies == 0 && record.state == StepState::Pending {
                self.transition_step(dependent, StepTrigger::DependenciesCompleted, time)?;
                self.ready.insert(dependent);
            }
        }
        Ok(())
    }

    /// Marks the steps that depend on `step` to be skipped. Once the execution is being stopped, the stop is the reason instead.
    fn skip_dependents(&mut self, step: usize, reason: SkipReason) {
        if self.stop.is_some() {
            return;
        }
        for &dependent in self.created.plan.dependents(step) {
            if self.steps[dependent].state == StepState::Pending {
                self.to_skip.entry(dependent).or_insert((reason, step));
            }
        }
    }
}
