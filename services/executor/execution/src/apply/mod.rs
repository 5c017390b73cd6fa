//! The fold: applies one event to the state of an execution.
//!
//! No decision is made here. Two changes follow from an event without one of their own, always in the same way, and are part of the format:
//! a step becomes ready when its last dependency has ended as it wants, and is marked to be skipped when one ends otherwise, or when another step of its
//! group fails and the group has `fail_fast`.

mod compensation;
mod dependency;
mod group;
mod retry;
mod step;
mod update;

use std::time::Duration;

use crate::{
    Actor, Body, Control, Event, Execution, ExecutionEvent, ExecutionState, ExecutionTrigger, MAX_SIGNALS,
    OperationKey, PauseCause, StepId, StepKey, StepState, StepTrigger, Timestamp,
    state::{AttemptEnd, LimitState, PausedBy, Stop},
    steps,
    transitions::{execution_transition, step_transition},
    violation::{IllegalEvent, Violation},
};

impl Execution {
    /// The state after these events, the first of which is `Created`.
    ///
    /// # Errors
    /// [`IllegalEvent`], naming the event, when the list has a gap or contains an illegal transition: the store is corrupt, or a newer
    /// version wrote it.
    pub fn replay(events: impl IntoIterator<Item = Event>) -> Result<Self, IllegalEvent> {
        let mut events = events.into_iter();
        let first = events.next().ok_or(IllegalEvent { sequence: 1, violation: Violation::NoEvents })?;
        let mut execution = Self::create(first)?;
        for event in events {
            execution.apply(&event)?;
        }
        Ok(execution)
    }

    /// A new execution from its first event.
    ///
    /// # Errors
    /// [`IllegalEvent`] when the event is not `Created` with sequence 1.
    pub fn create(first: Event) -> Result<Self, IllegalEvent> {
        let Event { sequence: 1, time, actor, body: Body::Execution(ExecutionEvent::Created(created)) } = first else {
            return Err(IllegalEvent { sequence: first.sequence, violation: Violation::NotCreated });
        };
        let twice = |id| IllegalEvent { sequence: 1, violation: Violation::DuplicateStep(id) };
        Self::new(*created, actor.unwrap_or_default(), time).map_err(twice)
    }

    /// Applies one event.
    ///
    /// # Errors
    /// [`IllegalEvent`] when a sequence number is missing, the transition does not exist, or the event contradicts the state of its step or
    /// its operation. The execution must not be used after that.
    pub fn apply(&mut self, event: &Event) -> Result<(), IllegalEvent> {
        let illegal = |violation| IllegalEvent { sequence: event.sequence, violation };
        if event.sequence != self.last_sequence + 1 {
            return Err(illegal(Violation::NotNextInSequence { last: self.last_sequence }));
        }
        self.apply_body(event).map_err(illegal)?;
        self.measure_wait(event.time);
        self.progress.last_sequence = event.sequence;
        self.progress.last_time = self.last_time.max(event.time);
        Ok(())
    }

    fn apply_body(&mut self, event: &Event) -> Result<(), Violation> {
        let (time, actor) = (event.time, event.actor.as_ref());
        match &event.body {
            Body::Execution(kind) => self.apply_execution(event.sequence, time, actor, kind),
            Body::Step { step, attempt, event } => step::apply(self, step, *attempt, event, time),
            Body::Operation { id, event } => steps::apply(self, id, event, actor, time),
        }?;
        let asked = actor.filter(|actor| !actor.request_id.is_empty());
        if let (Some(actor), Some(control)) = (asked, Control::of(&event.body)) {
            self.progress.requests.insert(actor, control.digest(&actor.principal));
        }
        Ok(())
    }

    fn apply_execution(
        &mut self,
        sequence: u64,
        time: Timestamp,
        actor: Option<&Actor>,
        event: &ExecutionEvent,
    ) -> Result<(), Violation> {
        use ExecutionEvent as E;
        match event {
            E::Created(_) => return Err(Violation::CreatedTwice),
            E::LimitsRequested => {
                let is_wanted = !self.created.limits.is_empty() && self.limits == LimitState::None;
                if !is_wanted || self.state.is_terminal() || self.paused.is_some() {
                    return Err(Violation::LimitsNotWanted);
                }
                self.progress.limits = LimitState::Waiting(time);
            }
            E::LimitsAcquired => {
                if !matches!(self.limits, LimitState::Waiting(_)) {
                    return Err(Violation::LimitsNotAwaited);
                }
                self.progress.limits = LimitState::Held;
            }
            E::Started => {
                if self.started_at.is_some() {
                    return Err(Violation::StartedBefore);
                }
                if !self.holds_limits() {
                    return Err(Violation::MayNotStart);
                }
                self.transition_execution(ExecutionTrigger::Started, None)?;
                self.progress.started_at = Some(time);
            }
            E::Paused { reason, discard_calls, resume_at, cause } => {
                if *cause == PauseCause::Verification && self.verification_due.is_empty() {
                    return Err(Violation::NothingToVerify);
                }
                self.transition_execution(ExecutionTrigger::Paused, None)?;
                let principal = actor.map(|actor| actor.principal.clone()).unwrap_or_default();
                self.progress.paused = Some(PausedBy {
                    principal,
                    since: time,
                    discard_calls: *discard_calls,
                    resume_at: *resume_at,
                    cause: *cause,
                    reason: reason.clone(),
                });
                // No execution waits behind one that is paused.
                if matches!(self.limits, LimitState::Waiting(_)) {
                    self.progress.limits = LimitState::None;
                }
                self.progress.queued_until = None;
                if *cause == PauseCause::Verification {
                    self.progress.verification_due.clear();
                }
                self.progress.is_escalated |= actor.is_none() && resume_at.is_none() && *cause == PauseCause::Request;
                steps::child::forget_pauses(self);
            }
            E::BudgetReported(report) => self.reported(report)?,
            E::Resumed => {
                self.transition_execution(ExecutionTrigger::Resumed, Some(self.state_to_go_on_in()))?;
                if let Some(paused) = self.progress.paused.take().filter(|paused| paused.cause != PauseCause::Request) {
                    self.forgive_wait(time.since(paused.since));
                }
                steps::child::forget_pauses(self);
            }
            E::CancelRequested { kill, .. } => {
                let (trigger, stop) = match kill {
                    true => (ExecutionTrigger::KillRequested, Stop::Killed),
                    false => (ExecutionTrigger::CancelRequested, Stop::Cancelled),
                };
                if self.stop == Some(Stop::Killed) {
                    return Err(Violation::BeingKilled);
                }
                self.transition_execution(trigger, None)?;
                self.progress.paused = None;
                self.progress.stop = Some(stop);
            }
            E::SignalReceived(received) => {
                if self.state.is_terminal() {
                    return Err(Violation::Ended);
                }
                if self.signals.len() == MAX_SIGNALS {
                    return Err(Violation::TooManySignals);
                }
                self.progress.signals.push(&received.signal, sequence, received.payload.clone());
            }
            E::Retried(retried) => retry::apply(self, retried, time)?,
            E::PlanUpdated(updated) => update::apply(self, updated, time)?,
            E::CompensationStarted { steps } => compensation::apply(self, steps, time)?,
            E::DeadlineExceeded => {
                self.transition_execution(ExecutionTrigger::DeadlineExceeded, None)?;
                self.progress.paused = None;
                self.progress.stop = Some(Stop::Deadline);
            }
            E::AwaitingApproval => {
                if !self.only_awaits_approvals() {
                    return Err(Violation::MayProceed);
                }
                self.transition_execution(ExecutionTrigger::AwaitingApproval, None)?;
            }
            E::Recovered { .. } => {
                if self.state.is_terminal() {
                    return Err(Violation::Ended);
                }
            }
            E::Finished(finished) => {
                self.transition_execution(ExecutionTrigger::Finished, Some(finished.state))?;
                self.progress.verification_due.clear();
                if !self.has_nothing_left() || finished.totals != self.totals {
                    return Err(Violation::OtherTotals { totals: self.totals });
                }
                let may_have_outputs = finished.state.has_outputs() && self.plan().outputs().is_some();
                if finished.outputs.is_some() != may_have_outputs {
                    return Err(Violation::OtherOutputs);
                }
                self.progress.paused = None;
                self.progress.limits = LimitState::None;
                self.progress.ended_at = Some(time);
                self.progress.outputs.clone_from(&finished.outputs);
            }
        }
        Ok(())
    }

    /// Measures the time in `AwaitingApproval`.
    fn measure_wait(&mut self, time: Timestamp) {
        if self.state == ExecutionState::AwaitingApproval {
            self.progress.awaiting_since.get_or_insert(time);
        } else if let Some(since) = self.progress.awaiting_since.take() {
            self.progress.waited += time.since(since);
        }
    }

    pub(crate) fn transition_execution(
        &mut self,
        by: ExecutionTrigger,
        to: Option<ExecutionState>,
    ) -> Result<(), Violation> {
        self.state =
            execution_transition(self.state, by, to).ok_or(Violation::ExecutionMove { from: self.state, by })?;
        Ok(())
    }

    /// The state of an execution that is neither paused nor stopped any more: one that waits for its start time has not started.
    pub(crate) fn state_to_go_on_in(&self) -> ExecutionState {
        if self.started_at.is_some() { ExecutionState::Running } else { ExecutionState::Pending }
    }

    /// The step that an event names.
    pub(crate) fn named(&self, id: &StepId) -> Result<StepKey, Violation> {
        self.steps.key(id).ok_or_else(|| Violation::NoStep(id.clone()))
    }

    /// Returns an error before the execution has started, while it is paused or does not hold its limits, and once it is being stopped: nothing may start then.
    pub(crate) fn check_can_start(&self) -> Result<(), Violation> {
        if self.started_at.is_none() || self.paused.is_some() || self.stop.is_some() || !self.holds_limits() {
            return Err(Violation::MayNotStart);
        }
        Ok(())
    }

    /// Checks that a step's next operation has this position.
    pub(crate) fn check_is_next(&self, key: OperationKey) -> Result<(), Violation> {
        if key != self.next_operation(key.step) || !self.steps[key.step].needs_operation() {
            let (attempt, last) = (self.steps[key.step].attempt, self.steps[key.step].operations);
            return Err(Violation::NotNextOperation { operation: self.operation_id(key), attempt, last });
        }
        self.check_can_start()
    }

    pub(crate) fn transition_step(&mut self, step: StepKey, by: StepTrigger, time: Timestamp) -> Result<(), Violation> {
        let from = self.steps[step].state;
        let to = step_transition(from, by).ok_or_else(|| Violation::StepMove {
            step: self.steps[step].id.clone(),
            from,
            by,
        })?;
        let since = self.steps[step].since;
        if from == StepState::AwaitingApproval
            && let Some(whole) = self.steps[step].runs_for().filter(|_| self.steps[step].is_of_agent())
        {
            let waited = self.waited_alone(whole, step, since, time);
            self.update_step(whole, |record| record.waited += waited);
        }
        self.update_step(step, |record| {
            if from == StepState::AwaitingApproval {
                record.waited += time.since(since);
            }
            (record.state, record.since) = (to, time);
        });
        Ok(())
    }

    /// How long an entry of a step with a goal, which does not wait for a person any more, has waited and no other one that still does: so that each moment in which any of them waited is counted
    /// once for the whole.
    fn waited_alone(&self, whole: StepKey, entry: StepKey, since: Timestamp, until: Timestamp) -> Duration {
        let others = self.steps[whole].items.current().iter().filter(|&&other| other != entry);
        let waiting =
            others.map(|&other| &self.steps[other]).filter(|other| other.state == StepState::AwaitingApproval);
        waiting.map(|other| other.since).min().map_or(until, |other| other.min(until)).since(since)
    }

    /// A step waits for approvals exactly while all its operations do; `by` is what moves it out of that.
    pub(crate) fn settle_approvals(
        &mut self,
        step: StepKey,
        by: StepTrigger,
        time: Timestamp,
    ) -> Result<(), Violation> {
        let record = &self.steps[step];
        let all_await = record.open.all > 0 && record.open.awaiting == record.open.all;
        match (record.state, all_await) {
            (StepState::Running, true) => self.transition_step(step, StepTrigger::CallHeld, time),
            (StepState::AwaitingApproval, false) => self.transition_step(step, by, time),
            _ => Ok(()),
        }
    }

    /// Removes an operation that has ended; the step's attempt continues.
    pub(crate) fn drop_operation(&mut self, key: OperationKey, time: Timestamp) -> Result<(), Violation> {
        self.remove_operation(key);
        self.settle_approvals(key.step, StepTrigger::CallEnded, time)
    }

    /// Ends an operation; what that means for its step is decided next.
    pub(crate) fn end_operation(
        &mut self,
        key: OperationKey,
        end: AttemptEnd,
        time: Timestamp,
    ) -> Result<(), Violation> {
        self.drop_operation(key, time)?;
        self.update_step(key.step, |record| record.end = Some(end));
        Ok(())
    }
}
