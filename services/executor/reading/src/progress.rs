//! Meaning of an execution's events for operators: which attempts, steps, calls and waits for a person ended, and after how long.
//!
//! Metrics and the log are made of it. It is pure, and what it keeps is what runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use belay_execution::{
    Activity, Body, Decision, Event, Execution, ExecutionEvent, ExecutionState, Failure, Finished, ModelUsage,
    OperationEnd, OperationEvent, OperationId, OperationKey, SkipReason, StepEvent, StepId, StepState, Timestamp,
    ToolCallEnd, ToolCallRequest, Waiting, Work,
};

/// Follows the events of one execution.
#[derive(Debug)]
pub struct Progress {
    /// When each running step began its first attempt.
    steps: BTreeMap<StepId, Timestamp>,
    /// The calls in flight, and when each was requested.
    calls: BTreeMap<OperationId, (Arc<ToolCallRequest>, Timestamp)>,
    /// Since when each undecided approval is waited for.
    approvals: BTreeMap<OperationId, Timestamp>,
    /// The steps that wait for another attempt.
    backing_off: BTreeSet<StepId>,
}

/// A call that ended, or was the last one of what ended.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedCall {
    /// The request of the call.
    pub request: Arc<ToolCallRequest>,
    /// How it ended, as metrics name it.
    pub status: &'static str,
    /// How long it took.
    pub duration: Duration,
    /// The turn of a model that it was, or that asked for it; `None` where a plan says what is called.
    pub turn: Option<u32>,
    /// What the server of the model that was asked has counted.
    pub usage: Option<ModelUsage>,
}

/// An occurrence, with how long it took.
#[derive(Debug, PartialEq)]
pub enum Fact<'a> {
    /// A call ended.
    CallEnded {
        /// The operation that it was.
        call: &'a OperationId,
        /// How it ended.
        ended: EndedCall,
    },
    /// An attempt failed, and another one is planned after the delay.
    Retry {
        /// The step.
        step: &'a StepId,
        /// The attempt that failed.
        attempt: u32,
        /// Why it failed.
        failure: &'a Failure,
        /// How long until the next attempt.
        delay: Duration,
        /// Its last call.
        call: Option<EndedCall>,
    },
    /// All attempts of a call failed, and another call takes its place.
    Fallback {
        /// The step.
        step: &'a StepId,
        /// The last attempt of the call.
        attempt: u32,
        /// Why that failed.
        failure: &'a Failure,
        /// The tool of the call that failed, and that of the next.
        tools: [&'a str; 2],
        /// The call that failed.
        call: Option<EndedCall>,
    },
    /// A step that had started ended.
    StepEnded {
        /// The step.
        step: &'a StepId,
        /// Its last attempt.
        attempt: u32,
        /// How it ended, as metrics name it.
        status: &'static str,
        /// Why, if it failed.
        failure: Option<&'a Failure>,
        /// How long it took from its first attempt on.
        duration: Duration,
        /// Its last call.
        call: Option<EndedCall>,
    },
    /// A person, or the policy's time limit, decided an approval.
    Decided {
        /// The decision.
        decision: Decision,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A wait for a person, a time or a signal began.
    WaitBegan {
        /// The step that waits.
        step: &'a StepId,
        /// The tool of its call, if it has one.
        tool: Option<String>,
        /// The object that it waits for.
        waiting: Waiting,
    },
    /// A step is skipped.
    Skipped {
        /// The step.
        step: &'a StepId,
        /// Why.
        reason: SkipReason,
    },
    /// Somebody asked for the execution to be cancelled, or killed.
    StopRequested {
        /// Whether it is to be killed.
        kill: bool,
    },
    /// A step ends without the attempt that was planned, because somebody stopped the execution.
    RetryDropped {
        /// The step.
        step: &'a StepId,
        /// Its last attempt.
        attempt: u32,
    },
    /// The execution ended.
    Finished(&'a Finished),
}

impl Progress {
    /// The progress of an execution in its current state: whatever runs in it.
    pub fn of(execution: &Execution) -> Self {
        let running = execution.steps().filter(|step| step.ended_at().is_none());
        let steps = running.filter_map(|step| Some((step.id().clone(), step.started_at()?)));
        let calls = execution.operations().filter_map(|operation| {
            let call = execution.operation_id(operation.key);
            Some((call, (Arc::clone(operation.tool_call()?), operation.since)))
        });
        let backing_off = execution.steps().filter(|step| step.state() == StepState::BackingOff);
        let backing_off = backing_off.map(|step| step.id().clone()).collect();
        let approvals = execution.operations().filter_map(|operation| {
            let pending = operation.pending_approval.as_ref().filter(|pending| pending.decided.is_none())?;
            Some((execution.operation_id(operation.key), pending.since))
        });
        Self { steps: steps.collect(), calls: calls.collect(), approvals: approvals.collect(), backing_off }
    }

    /// Takes events that `execution` has applied and that are stored, and returns what they mean.
    pub fn take<'a>(&mut self, execution: &Execution, events: &'a [Event]) -> Vec<Fact<'a>> {
        let mut facts = Vec::new();
        // The last call of each step that ends in these events: a step ends in the transition of its last call.
        let mut last: BTreeMap<&StepId, EndedCall> = BTreeMap::new();
        for event in events {
            match &event.body {
                Body::Execution(kind) => match kind {
                    ExecutionEvent::Finished(finished) => facts.push(Fact::Finished(finished)),
                    ExecutionEvent::CancelRequested { kill, .. } => facts.push(Fact::StopRequested { kill: *kill }),
                    ExecutionEvent::Created(_)
                    | ExecutionEvent::LimitsRequested
                    | ExecutionEvent::LimitsAcquired
                    | ExecutionEvent::Started
                    | ExecutionEvent::Paused { .. }
                    | ExecutionEvent::Resumed
                    | ExecutionEvent::SignalReceived(_)
                    | ExecutionEvent::Recovered { .. }
                    | ExecutionEvent::Retried(_)
                    | ExecutionEvent::PlanUpdated(_)
                    | ExecutionEvent::BudgetReported(_)
                    | ExecutionEvent::CompensationStarted { .. }
                    | ExecutionEvent::DeadlineExceeded
                    | ExecutionEvent::AwaitingApproval => {}
                },
                Body::Step { step, attempt, event: kind } => {
                    if let StepEvent::OutcomeUnknown { .. } = kind {
                        facts.extend(outcome_wait(execution, step));
                    }
                    if let StepEvent::Skipped { reason, .. } = kind {
                        facts.push(Fact::Skipped { step, reason: *reason });
                    }
                    facts.extend(self.dropped(execution, step, *attempt, kind));
                    facts.extend(self.step(step, *attempt, kind, event.time, &mut last));
                }
                Body::Operation { id, event: kind } => match kind {
                    OperationEvent::Requested(Work::ToolCall(request)) => {
                        self.calls.insert(id.clone(), (Arc::clone(request), event.time));
                    }
                    // A form is waited for when the gate asks for it. A child is counted like any other execution.
                    OperationEvent::Requested(_) if kind.activity() == Some(Activity::Waits) => {
                        let operation = execution.operation_key(id).and_then(|key| execution.operation(key));
                        let waiting = operation.and_then(|operation| operation.waiting());
                        facts.extend(waiting.map(|waiting| Fact::WaitBegan { step: &id.step, tool: None, waiting }));
                    }
                    OperationEvent::Held(_) => drop(self.approvals.insert(id.clone(), event.time)),
                    OperationEvent::Asked { .. } => facts.extend(person_wait(execution, id)),
                    OperationEvent::Decided { approval, decision, .. } => {
                        let since = self.approvals.remove(id);
                        // The execution's approval mode decides at once, and has no approval at the gate.
                        if let Some(since) = since.filter(|_| !approval.is_empty()) {
                            facts.push(Fact::Decided { decision: *decision, waited: event.time.since(since) });
                        }
                    }
                    OperationEvent::Ended(OperationEnd::ToolCall(end)) => {
                        self.approvals.remove(id);
                        let Some((request, since)) = self.calls.remove(id) else { continue };
                        let turn = execution.step_key(&id.step).and_then(|key| execution.step(key).turn());
                        let (status, duration, usage) = (status(end), event.time.since(since), end.usage());
                        let ended = EndedCall { request, status, duration, turn, usage };
                        last.insert(&id.step, ended.clone());
                        facts.push(Fact::CallEnded { call: id, ended });
                    }
                    OperationEvent::Requested(_)
                    | OperationEvent::Dispatched
                    | OperationEvent::Reported(_)
                    | OperationEvent::Ended(_) => {}
                },
            }
        }
        facts
    }

    /// Follows which steps wait for another attempt.
    fn dropped<'a>(
        &mut self,
        execution: &Execution,
        step: &'a StepId,
        attempt: u32,
        event: &StepEvent,
    ) -> Option<Fact<'a>> {
        match event {
            StepEvent::RetryScheduled { .. } | StepEvent::FallbackSwitched { .. } => {
                self.backing_off.insert(step.clone());
                None
            }
            StepEvent::Started
            | StepEvent::Completed { .. }
            | StepEvent::Failed { .. }
            | StepEvent::Cancelled { .. }
            | StepEvent::Skipped { .. } => {
                let was_backing_off = self.backing_off.remove(step);
                let is_stopped = matches!(execution.state(), ExecutionState::Cancelling | ExecutionState::Cancelled);
                let is_dropped = was_backing_off && is_stopped && *event != StepEvent::Started;
                is_dropped.then_some(Fact::RetryDropped { step, attempt })
            }
            StepEvent::OutcomeUnknown { .. }
            | StepEvent::CachedResultUsed { .. }
            | StepEvent::ItemsListed { .. }
            | StepEvent::ItemsCollected { .. }
            | StepEvent::Resolved { .. }
            | StepEvent::SkipRequested { .. }
            | StepEvent::OutputSet { .. }
            | StepEvent::ConversationCarriedOver { .. }
            | StepEvent::RetryAdvanced { .. }
            | StepEvent::RetryCancelled { .. } => None,
        }
    }

    fn step<'a>(
        &mut self,
        step: &'a StepId,
        attempt: u32,
        event: &'a StepEvent,
        time: Timestamp,
        last: &mut BTreeMap<&StepId, EndedCall>,
    ) -> Option<Fact<'a>> {
        let (status, failure) = match event {
            StepEvent::Started => {
                self.steps.entry(step.clone()).or_insert(time);
                return None;
            }
            StepEvent::RetryScheduled { failure, delay, .. } => {
                return Some(Fact::Retry { step, attempt, failure, delay: *delay, call: last.remove(step) });
            }
            StepEvent::FallbackSwitched { failure, from, to, reason: _ } => {
                return Some(Fact::Fallback { step, attempt, failure, tools: [from, to], call: last.remove(step) });
            }
            StepEvent::Completed { .. } => ("COMPLETED", None),
            StepEvent::Failed { failure, .. } => ("FAILED", Some(failure)),
            StepEvent::Cancelled { .. } => (belay_reasons::CANCELLED, None),
            StepEvent::Skipped { .. } => ("SKIPPED", None),
            StepEvent::OutcomeUnknown { .. }
            | StepEvent::CachedResultUsed { .. }
            | StepEvent::ItemsListed { .. }
            | StepEvent::ItemsCollected { .. }
            | StepEvent::Resolved { .. }
            | StepEvent::SkipRequested { .. }
            | StepEvent::OutputSet { .. }
            | StepEvent::ConversationCarriedOver { .. }
            | StepEvent::RetryAdvanced { .. }
            | StepEvent::RetryCancelled { .. } => return None,
        };
        let since = self.steps.remove(step);
        let (duration, call) = (since.map(|since| time.since(since)), last.remove(step));
        // One that failed before it could start, as by its condition, has failed nevertheless.
        let duration = duration.or(failure.map(|_| Duration::ZERO))?;
        Some(Fact::StepEnded { step, attempt, status, failure, duration, call })
    }
}

/// The waits for a person, with their steps, that began with these facts.
pub fn person_waits<'a>(facts: &'a [Fact<'_>]) -> impl Iterator<Item = (&'a StepId, Waiting)> {
    facts.iter().filter_map(|fact| match fact {
        Fact::WaitBegan {
            step,
            waiting: waiting @ (Waiting::Approval { .. } | Waiting::Form { .. } | Waiting::Outcome { .. }),
            ..
        } => Some((*step, *waiting)),
        _ => None,
    })
}

/// The wait for the decision or answer that the gate now asks for; `None` when that is over already.
fn person_wait<'a>(execution: &Execution, id: &'a OperationId) -> Option<Fact<'a>> {
    let key: OperationKey = execution.operation_key(id)?;
    let operation = execution.operation(key)?;
    let tool = operation.tool_call().map(|request| request.tool.clone());
    let waiting = match &operation.pending_approval {
        Some(pending) if pending.decided.is_none() => Waiting::Approval { since: pending.since, operation: key },
        Some(_) => return None,
        None => operation.waiting()?,
    };
    Some(Fact::WaitBegan { step: &id.step, tool, waiting })
}

fn outcome_wait<'a>(execution: &Execution, step: &'a StepId) -> Option<Fact<'a>> {
    let key = execution.step_key(step)?;
    let waiting = execution.step(key).waiting().filter(|waiting| matches!(waiting, Waiting::Outcome { .. }))?;
    Some(Fact::WaitBegan { step, tool: None, waiting })
}

fn status(end: &ToolCallEnd) -> &'static str {
    match end {
        ToolCallEnd::Completed { .. } => "COMPLETED",
        ToolCallEnd::Failed { .. } => "FAILED",
        ToolCallEnd::Denied { .. } => "DENIED",
        ToolCallEnd::Cancelled { .. } => belay_reasons::CANCELLED,
        ToolCallEnd::OutcomeUnknown { .. } => belay_reasons::OUTCOME_UNKNOWN,
    }
}
