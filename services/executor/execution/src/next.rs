//! What has to be recorded now, and what the world outside then has to do.

use std::{borrow::Cow, sync::Arc, time::Duration};

use belay_plan::StepKind;
use belay_reasons as reasons;

use crate::{
    CallId, CallRequest, ErrorClass, Event, EventKind, Execution, ExecutionState, Failure, Finished, Json, Progress,
    SkipReason, StepState, Timestamp,
    apply::Impossible,
    digest,
    execution::{CallEnd, StepRecord, Stop, Totals},
};

/// What a decision may depend on besides the past. It ends up in the events, so that replaying them does not need it.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The wall clock.
    pub now: Timestamp,
    /// The identity of the runner's ledger.
    pub ledger_id: &'a str,
}

/// What the driver has to do, derived from the present: asking twice gives the same answer, so a driver that was lost loses nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    /// This call has to be with the runner, under its own name: sending it again attaches to it. One that was held before its work goes
    /// with the grant of its approval.
    Send(CallId),
    /// This call has to be stopped, and its true end recorded.
    Stop(CallId),
    /// Somebody has to be asked about this call, which its runner holds.
    Ask(CallId),
    /// The effect of this call was approved and has to be put in place.
    Commit(CallId),
    /// This call was turned down and has to be given up.
    Discard(CallId),
    /// Nothing before this moment, unless something happens.
    WakeAt(Timestamp),
}

impl Execution {
    /// Records something that happened outside: an answer of a runner, a request of a person.
    ///
    /// # Errors
    /// [`Impossible`] when it cannot happen now; the execution is unchanged then.
    pub fn record(&mut self, now: Timestamp, kind: EventKind) -> Result<Event, Impossible> {
        let event = Event { sequence: self.last_sequence + 1, time: now.max(self.last_time), kind };
        // Every kind that comes from outside is checked before its first change.
        self.apply(&event)?;
        Ok(event)
    }

    /// Decides everything that can be decided now, and applies it. The events have to be stored before anything is done about them.
    pub fn advance(&mut self, around: Surroundings<'_>) -> Vec<Event> {
        let now = around.now.max(self.last_time);
        let around = Surroundings { now, ..around };
        let mut events = Vec::new();
        loop {
            let decided = self.decide(around);
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

    /// What the driver has to do about the present.
    pub fn actions(&self) -> Vec<Action> {
        if self.state.is_terminal() {
            return Vec::new();
        }
        let mut actions: Vec<Action> = self.in_flight.values().filter_map(|flying| self.action_for(flying)).collect();
        actions.extend(self.wake_at().map(Action::WakeAt));
        actions
    }

    /// The moment at which something is due by itself.
    pub fn wake_at(&self) -> Option<Timestamp> {
        if self.state.is_terminal() {
            return None;
        }
        let deadline = match self.stop {
            None | Some(Stop::Error { .. }) => self.created.deadline,
            Some(Stop::Cancelled | Stop::Deadline) => None,
        };
        let backoff = match (&self.paused, self.stop) {
            // Where there is no room, the end of what runs is waited for.
            (None, None) if self.has_room() => self.backing_off.first().map(|&(not_before, _)| not_before),
            _ => None,
        };
        [deadline, backoff].into_iter().flatten().min()
    }

    /// Whether nothing is under way: it waits for a moment, a person, or nothing at all, and needs no memory meanwhile.
    pub fn is_parked(&self) -> bool {
        self.in_flight.values().all(|flying| self.action_for(flying).is_none())
    }

    /// The calls whose end an executor that was lost may have missed: those that do not rest.
    pub fn in_doubt(&self) -> Vec<CallId> {
        let acted_on = self.in_flight.values().filter(|flying| self.action_for(flying).is_some());
        acted_on.map(|flying| flying.request.call).collect()
    }

    /// The next few events that follow from the present and the moment. Empty when nothing can be decided.
    ///
    /// Each answer is one event, or a group that would come out the same if it were asked for one by one: an executor that dies after any
    /// event goes on as it would have gone on without that.
    fn decide(&self, around: Surroundings<'_>) -> Vec<EventKind> {
        if self.state.is_terminal() {
            return Vec::new();
        }
        let now = around.now;
        if self.created.deadline.is_some_and(|deadline| deadline <= now)
            && !matches!(self.stop, Some(Stop::Cancelled | Stop::Deadline))
        {
            return vec![EventKind::DeadlineExceeded];
        }
        if let Some(&step) = self.unsettled.first() {
            return vec![self.settle(step, now)];
        }
        if self.stop.is_none()
            && let Some(decision) = self.decide_held()
        {
            return vec![decision];
        }
        if let Some(stop) = self.stop {
            let wind_up = self.wind_up(stop);
            if !wind_up.is_empty() {
                return wind_up;
            }
        } else {
            if let Some((&step, &(reason, because))) = self.doomed.first_key_value() {
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
                if let Some(start) = self.start_something(around) {
                    return vec![start];
                }
                if self.state == ExecutionState::Running && self.only_awaits() {
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
    fn settle(&self, step: usize, now: Timestamp) -> EventKind {
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
            &CallEnd::LeftOut(reason) => {
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
        let delay = plan.retry().delay(attempt - 1);
        let not_before = now.saturating_add(delay);
        if self.step_deadline(step).is_some_and(|deadline| deadline <= not_before) {
            let message = format!("{}; the step's time limit leaves no room for another attempt", failure.message);
            return self.fail(step, Failure { message, ..failure.clone() });
        }
        EventKind::RetryScheduled { step, attempt, failure: failure.clone(), retry_count: attempt, delay, not_before }
    }

    fn step_deadline(&self, step: usize) -> Option<Timestamp> {
        let limit = self.plan().steps()[step].timeout()?;
        // Waiting for a person never runs into a limit of the step's.
        let StepRecord { started_at, waited, .. } = &self.steps[step];
        Some((*started_at)?.saturating_add(limit + *waited))
    }

    /// Ends every step that has no call in flight, once nothing may start any more.
    fn wind_up(&self, stop: Stop) -> Vec<EventKind> {
        if self.pending + self.ready.len() + self.uncalled.len() + self.backing_off.len() + self.unknown.len() == 0 {
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
                    let doomed = self.doomed.get(&step).map(|&(reason, because)| (reason, Some(because)));
                    let (reason, because) = doomed.unwrap_or((reason, cause));
                    EventKind::StepSkipped { step, reason, because, progress }
                }
                StepState::Ready | StepState::BackingOff => EventKind::StepCancelled { step, attempt, progress },
                StepState::Running if self.uncalled.contains(&step) => {
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

    /// Whether one more call may run of a step that holds its place: always, but where commits beside those that run take some.
    fn has_room(&self) -> bool {
        self.active - self.uncalled.len() - self.backing_off.len() < self.plan().parallelism()
    }

    /// The next thing that may start: a call of a step that has started, else the retry whose time has come first, else the first ready
    /// step in the plan's order.
    fn start_something(&self, around: Surroundings<'_>) -> Option<EventKind> {
        let room = self.has_room();
        let uncalled = self.uncalled.first().copied().filter(|_| room);
        let due = self.backing_off.first().filter(|(not_before, _)| *not_before <= around.now);
        let retry = || due.filter(|_| room).map(|&(_, step)| step);
        let ready = || self.ready.first().copied().filter(|_| self.active < self.plan().parallelism());
        let step = uncalled.or_else(retry).or_else(ready)?;
        if self.step_deadline(step).is_some_and(|deadline| deadline <= around.now) {
            let message = "The step's time limit ran out between two calls.";
            return Some(self.fail(step, Failure::new(ErrorClass::Timeout, reasons::STEP_TIMEOUT, message)));
        }
        Some(match uncalled {
            Some(_) => self.request_call(step, around),
            None => EventKind::StepStarted { step, attempt: self.steps[step].attempt + 1 },
        })
    }

    fn request_call(&self, step: usize, around: Surroundings<'_>) -> EventKind {
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
        let left = self.step_deadline(step).map_or(limit, |deadline| deadline.since(around.now));
        EventKind::CallRequested(Arc::new(CallRequest {
            call: CallId { step, attempt: record.attempt, number: record.calls + 1 },
            tool: facts.tool.clone(),
            arguments_digest: digest(arguments.as_str().as_bytes()),
            arguments,
            recovery: facts.recovery,
            ledger_id: around.ledger_id.to_owned(),
            timeout: left.min(limit),
        }))
    }

    fn fail(&self, step: usize, failure: Failure) -> EventKind {
        EventKind::StepFailed { step, attempt: self.steps[step].attempt, failure, progress: self.progress(1) }
    }

    /// Whether skipping left a hole: a step was left out that others needed, or every step was.
    fn lacks_what_was_skipped(&self) -> bool {
        let needed = |record: &StepRecord| matches!(record.skipped, Some((SkipReason::DependencySkipped, _)));
        self.totals.completed == 0 || self.steps.iter().any(needed)
    }

    fn finish(&self, now: Timestamp) -> EventKind {
        let Totals { total, completed, failed, .. } = self.totals;
        // What was stopped too late to stop anything has completed: the totals are the truth.
        let state = match self.stop {
            _ if completed == total => ExecutionState::Completed,
            Some(Stop::Cancelled) => ExecutionState::Cancelled,
            Some(Stop::Deadline) => ExecutionState::TimedOut,
            _ if failed == 0 && self.lacks_what_was_skipped() => ExecutionState::Partial,
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
