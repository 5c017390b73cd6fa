//! Which events to record now, and which actions the driver then has to perform.

use std::{borrow::Cow, sync::Arc, time::Duration};

use belay_plan::StepKind;
use belay_reasons as reasons;

use crate::{
    CallId, CallRequest, ErrorClass, Event, EventKind, Execution, ExecutionState, Failure, Finished, Json, Progress,
    SkipReason, StepState, Timestamp,
    apply::IllegalEvent,
    digest,
    execution::{CallEnd, StepRecord, Stop, Totals},
};

/// The inputs of a decision besides the events so far. Their values are recorded in the resulting events, so a replay does not need them.
#[derive(Clone, Copy, Debug)]
pub struct DecideContext<'a> {
    /// The wall clock.
    pub now: Timestamp,
    /// The id of the runner's ledger.
    pub ledger_id: &'a str,
}

/// What the driver has to do. Derived from the current state, so a new driver continues where a lost one stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// Send this call to the runner under its own name; sending it again attaches to it. A call that was held before it ran is sent with
    /// the grant of its approval.
    Dispatch(CallId),
    /// Cancel this call, and record how it really ended.
    Cancel(CallId),
    /// Request approval for this call, which its runner holds.
    RequestApproval(CallId),
    /// Commit the approved effect of this call.
    Commit(CallId),
    /// Discard this call, which was not approved.
    Discard(CallId),
    /// Nothing to do before this time, unless something happens.
    WakeAt(Timestamp),
}

impl Execution {
    /// Records something that happened outside: a reply of a runner, a request of a principal.
    ///
    /// # Errors
    /// [`IllegalEvent`] when it is not legal now; the execution is unchanged then.
    pub fn record(&mut self, now: Timestamp, kind: EventKind) -> Result<Event, IllegalEvent> {
        let event = Event { sequence: self.last_sequence + 1, time: now.max(self.last_time), kind };
        // `apply` checks events from outside before it changes anything.
        self.apply(&event)?;
        Ok(event)
    }

    /// Decides everything that can be decided now, and applies it. The driver has to store the events before it acts on them.
    pub fn advance(&mut self, context: DecideContext<'_>) -> Vec<Event> {
        let now = context.now.max(self.last_time);
        let context = DecideContext { now, ..context };
        let mut events = Vec::new();
        loop {
            let decided = self.decide(context);
            if decided.is_empty() {
                return events;
            }
            for kind in decided {
                let event = Event { sequence: self.last_sequence + 1, time: now, kind };
                self.apply(&event).expect("decide only makes moves that exist; shown by the property tests");
                events.push(event);
            }
        }
    }

    /// What the driver has to do now.
    pub fn actions(&self) -> Vec<Action> {
        if self.state.is_terminal() {
            return Vec::new();
        }
        let mut actions: Vec<Action> =
            self.in_flight.values().filter_map(|in_flight| self.action_for(in_flight)).collect();
        actions.extend(self.wake_at().map(Action::WakeAt));
        actions
    }

    /// When a retry or the deadline is due next; `None` when neither is pending.
    pub fn wake_at(&self) -> Option<Timestamp> {
        if self.state.is_terminal() {
            return None;
        }
        let deadline = match self.stop {
            None | Some(Stop::Error { .. }) => self.created.deadline,
            Some(Stop::Cancelled | Stop::Deadline) => None,
        };
        let backoff = match (&self.paused, self.stop) {
            // Without a free slot the execution waits for a running call.
            (None, None) if self.has_free_slot() => self.backing_off.first().map(|&(not_before, _)| not_before),
            _ => None,
        };
        [deadline, backoff].into_iter().flatten().min()
    }

    /// Whether no operation is needed: the execution waits for a time, a decision, a person or nothing at all, and can leave memory.
    pub fn is_parked(&self) -> bool {
        self.in_flight.values().all(|in_flight| self.action_for(in_flight).is_none())
    }

    /// The calls whose end a lost executor may have missed: those that need an action.
    pub fn in_doubt(&self) -> Vec<CallId> {
        let acted_on = self.in_flight.values().filter(|in_flight| self.action_for(in_flight).is_some());
        acted_on.map(|in_flight| in_flight.request.call).collect()
    }

    /// The next events that follow from the current state and time; empty when nothing can be decided.
    ///
    /// Returns one event, or a group that would come out the same one by one: an executor that crashes after any event continues as if it
    /// had not crashed.
    fn decide(&self, context: DecideContext<'_>) -> Vec<EventKind> {
        if self.state.is_terminal() {
            return Vec::new();
        }
        let now = context.now;
        if self.created.deadline.is_some_and(|deadline| deadline <= now)
            && !matches!(self.stop, Some(Stop::Cancelled | Stop::Deadline))
        {
            return vec![EventKind::DeadlineExceeded];
        }
        if let Some(&step) = self.to_resolve.first() {
            return vec![self.resolve_step(step, now)];
        }
        if self.stop.is_none()
            && let Some(decision) = self.decide_by_mode()
        {
            return vec![decision];
        }
        if let Some(stop) = self.stop {
            let drain = self.drain(stop);
            if !drain.is_empty() {
                return drain;
            }
        } else {
            if let Some((&step, &(reason, because))) = self.to_skip.first_key_value() {
                return vec![EventKind::StepSkipped {
                    step,
                    reason,
                    because: Some(because),
                    progress: self.progress(1),
                }];
            }
            if self.paused.is_none() {
                if self.started_at.is_none() {
                    return vec![EventKind::Started];
                }
                if let Some(start) = self.start_next(context) {
                    return vec![start];
                }
                if self.state == ExecutionState::Running && self.only_awaits_approvals() {
                    return vec![EventKind::AwaitingApproval];
                }
            }
        }
        if self.totals.done() == self.totals.total { vec![self.finish(now)] } else { Vec::new() }
    }

    fn progress(&self, more: usize) -> Progress {
        Progress { done: self.totals.done() + more, total: self.totals.total }
    }

    /// What the end of its call means for a step.
    fn resolve_step(&self, step: usize, now: Timestamp) -> EventKind {
        let record = &self.steps[step];
        let attempt = record.attempt;
        match record.call_end.as_ref().expect("an unsettled step has an ended call") {
            CallEnd::Completed => {
                let duration = record.started_at.map_or(Duration::ZERO, |started| now.since(started));
                EventKind::StepCompleted { step, attempt, progress: self.progress(1), duration }
            }
            CallEnd::Cancelled => EventKind::StepCancelled { step, attempt, progress: self.progress(1) },
            CallEnd::Unknown(failure) => EventKind::StepOutcomeUnknown { step, attempt, failure: failure.clone() },
            CallEnd::Failed(failure) => self.retry_or_fail(step, failure, now),
            CallEnd::Denied(failure) => self.fail(step, failure.clone()),
            &CallEnd::Skipped(reason) => {
                EventKind::StepSkipped { step, reason, because: None, progress: self.progress(1) }
            }
        }
    }

    fn retry_or_fail(&self, step: usize, failure: &Failure, now: Timestamp) -> EventKind {
        let record = &self.steps[step];
        let plan = &self.plan().steps()[step];
        let attempt = record.attempt;
        if !failure.class.is_retryable() || attempt >= plan.retry().max_attempts || self.stop.is_some() {
            return self.fail(step, failure.clone());
        }
        let delay = failure.delay_before_retry(plan.retry().delay(attempt - 1));
        let not_before = now.saturating_add(delay);
        if self.step_deadline(step).is_some_and(|deadline| deadline <= not_before) {
            let message = format!("{}; the step's time limit leaves no room for another attempt", failure.message);
            return self.fail(step, Failure { message, ..failure.clone() });
        }
        EventKind::RetryScheduled { step, attempt, failure: failure.clone(), retry_count: attempt, delay, not_before }
    }

    fn step_deadline(&self, step: usize) -> Option<Timestamp> {
        let limit = self.plan().steps()[step].timeout()?;
        // Time spent waiting for approval does not count towards the step's time limit.
        let StepRecord { started_at, waited, .. } = &self.steps[step];
        Some((*started_at)?.saturating_add(limit + *waited))
    }

    /// Ends every step without a call in flight, once nothing may start any more.
    fn drain(&self, stop: Stop) -> Vec<EventKind> {
        if self.pending_steps + self.ready.len() + self.to_dispatch.len() + self.backing_off.len() + self.unknown.len()
            == 0
        {
            return Vec::new();
        }
        let (reason, cause) = match stop {
            Stop::Error { step } => (SkipReason::StopOnError, Some(step)),
            Stop::Cancelled => (SkipReason::Cancelled, None),
            Stop::Deadline => (SkipReason::TimedOut, None),
        };
        let mut events = Vec::new();
        for (step, record) in self.steps.iter().enumerate() {
            let progress = self.progress(events.len() + 1);
            let attempt = record.attempt;
            events.push(match record.state {
                StepState::Ready | StepState::Pending if attempt == 0 => {
                    let to_skip = self.to_skip.get(&step).map(|&(reason, because)| (reason, Some(because)));
                    let (reason, because) = to_skip.unwrap_or((reason, cause));
                    EventKind::StepSkipped { step, reason, because, progress }
                }
                StepState::Ready | StepState::BackingOff => EventKind::StepCancelled { step, attempt, progress },
                StepState::Running if self.to_dispatch.contains(&step) => {
                    EventKind::StepCancelled { step, attempt, progress }
                }
                StepState::OutcomeUnknown => EventKind::StepFailed {
                    step,
                    attempt,
                    failure: Failure::new(
                        ErrorClass::OutcomeUnknown,
                        reasons::OUTCOME_UNKNOWN,
                        "The execution was stopped before anybody found out whether the step's call took effect.",
                    ),
                    progress,
                },
                _ => continue,
            });
        }
        events
    }

    /// Whether a started step may send its call: always, except while commits beside the running calls occupy slots.
    fn has_free_slot(&self) -> bool {
        self.active - self.to_dispatch.len() - self.backing_off.len() < self.plan().parallelism()
    }

    /// Starts next: the call of a step that has started, else the retry that has been due longest, else the first ready step in plan order.
    fn start_next(&self, context: DecideContext<'_>) -> Option<EventKind> {
        let room = self.has_free_slot();
        let to_dispatch = self.to_dispatch.first().copied().filter(|_| room);
        let due = self.backing_off.first().filter(|(not_before, _)| *not_before <= context.now);
        let retry = || due.filter(|_| room).map(|&(_, step)| step);
        let ready = || self.ready.first().copied().filter(|_| self.active < self.plan().parallelism());
        let step = to_dispatch.or_else(retry).or_else(ready)?;
        if self.step_deadline(step).is_some_and(|deadline| deadline <= context.now) {
            let message = "The step's time limit ran out between two calls.";
            return Some(self.fail(step, Failure::new(ErrorClass::Timeout, reasons::STEP_TIMEOUT, message)));
        }
        Some(match to_dispatch {
            Some(_) => self.request_call(step, context),
            None => EventKind::StepStarted { step, attempt: self.steps[step].attempt + 1 },
        })
    }

    fn request_call(&self, step: usize, context: DecideContext<'_>) -> EventKind {
        let record = &self.steps[step];
        let plan = &self.plan().steps()[step];
        let StepKind::Tool(tool) = plan.kind();
        let output = |id: &str| {
            let index = self.plan().step_index(id)?;
            self.steps[index].output.as_ref().map(|output| Cow::Owned(output.value()))
        };
        let Some(facts) = self.tool(&tool.tool) else {
            let message = format!("Tool '{}' not found in the execution's record.", tool.tool);
            return self.fail(step, Failure::new(ErrorClass::Internal, reasons::TOOL_FACTS_MISSING, message));
        };
        let arguments = match tool.arguments.resolve(&output) {
            Ok(arguments) => Json::canonical(&arguments),
            Err(unresolved) => {
                let failure =
                    Failure::new(ErrorClass::InvalidArguments, reasons::UNRESOLVED_REFERENCE, unresolved.to_string());
                return self.fail(step, failure);
            }
        };
        // The tool's own limit is for steps that say nothing: one that may take ten minutes may take them in one attempt.
        let limit = plan.attempt_timeout().or(plan.timeout()).unwrap_or(facts.default_timeout);
        let left = self.step_deadline(step).map_or(limit, |deadline| deadline.since(context.now));
        EventKind::CallRequested(Arc::new(CallRequest {
            call: CallId { step, attempt: record.attempt, number: record.calls + 1 },
            tool: facts.tool.clone(),
            arguments_digest: digest(arguments.as_str().as_bytes()),
            arguments,
            recovery: facts.recovery,
            ledger_id: context.ledger_id.to_owned(),
            timeout: left.min(limit),
        }))
    }

    fn fail(&self, step: usize, failure: Failure) -> EventKind {
        EventKind::StepFailed { step, attempt: self.steps[step].attempt, failure, progress: self.progress(1) }
    }

    /// Whether a step was skipped that another step needed, or every step was.
    fn skipped_a_needed_step(&self) -> bool {
        let needed = |record: &StepRecord| matches!(record.skipped, Some((SkipReason::DependencySkipped, _)));
        self.totals.completed == 0 || self.steps.iter().any(needed)
    }

    fn finish(&self, now: Timestamp) -> EventKind {
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
        EventKind::Finished(Box::new(Finished {
            state,
            totals: self.totals,
            failure: self.first_failure.clone(),
            duration: now.since(self.created_at),
        }))
    }
}
