//! Events: the stored bytes are the ones watchers get.

use std::time::Duration;

use belay_execution::{
    CallId, CallRequest, Created, Event, EventKind, Finished, Json, Progress, Receipt, SkipReason, Timestamp,
    ToolFacts, Totals,
};
use belay_journal::Transition;
use belay_plan::Plan;
use belay_proto::v1::{self, execution_event::Kind};
use prost::Message as _;
use thiserror::Error;

use super::{
    approval_mode,
    execution::{approval_mode_to, skip_reason, state, state_from, totals},
    failure, failure_from, json, payload, plan_from, plan_message, recovery_from, recovery_to, time,
};

/// The version of the events' meaning that is written now.
pub(crate) const VERSION: u32 = 1;

/// What turns a call's identity into its name and back.
#[derive(Clone, Debug)]
pub(crate) struct CallNames {
    /// `namespaces/*/executions/*`.
    pub(crate) execution: String,
    pub(crate) uid: String,
    pub(crate) traceparent: String,
}

impl CallNames {
    pub(crate) fn call(&self, plan: &Plan, call: CallId) -> String {
        let step = plan.steps()[call.step].id();
        format!("{}/steps/{step}/calls/{}.{}", self.execution, call.attempt, call.number)
    }
}

/// One event as a message.
pub(crate) fn encode(names: &CallNames, plan: &Plan, event: &Event) -> v1::ExecutionEvent {
    let call = event.kind.call();
    v1::ExecutionEvent {
        sequence: i64::try_from(event.sequence).unwrap_or(i64::MAX),
        event_id: format!("{}.{}", names.uid, event.sequence),
        time: Some(time(event.time)),
        execution: names.execution.clone(),
        step_id: event.kind.step().map(|step| plan.steps()[step].id().to_owned()).unwrap_or_default(),
        attempt: attempt(&event.kind).and_then(|attempt| i32::try_from(attempt).ok()).unwrap_or_default(),
        call: call.map(|call| names.call(plan, call)).unwrap_or_default(),
        schema_version: i32::try_from(VERSION).unwrap_or(i32::MAX),
        traceparent: names.traceparent.clone(),
        transient: false,
        safe_to_skip: false,
        kind: Some(encode_kind(names, plan, &event.kind)),
    }
}

fn attempt(kind: &EventKind) -> Option<u32> {
    match kind {
        EventKind::StepStarted { attempt, .. }
        | EventKind::RetryScheduled { attempt, .. }
        | EventKind::StepCompleted { attempt, .. }
        | EventKind::StepFailed { attempt, .. }
        | EventKind::StepCancelled { attempt, .. }
        | EventKind::StepOutcomeUnknown { attempt, .. } => Some(*attempt),
        _ => kind.call().map(|call| call.attempt),
    }
}

fn progress(progress: &Progress) -> Option<v1::Progress> {
    let count = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    Some(v1::Progress { done: count(progress.done), total: count(progress.total) })
}

fn receipt(receipt: &Receipt) -> Option<v1::Receipt> {
    Some(v1::Receipt { ledger_id: receipt.ledger_id.clone(), duration: Some(belay_proto::duration(receipt.duration)) })
}

fn encode_kind(names: &CallNames, plan: &Plan, kind: &EventKind) -> Kind {
    use EventKind as K;
    match kind {
        K::Created(created) => Kind::ExecutionCreated(v1::ExecutionCreated {
            uid: created.uid.clone(),
            plan: Some(plan_message(&created.plan)),
            approval_mode: approval_mode_to(created.approval_mode).into(),
            workspace: created.workspace.clone(),
            labels: created.labels.clone(),
            principal: created.principal.clone(),
            tools: created.tools.iter().map(facts).collect(),
            deadline: created.deadline.map(time),
            trace: Some(v1::TraceContext { traceparent: created.trace.0.clone(), tracestate: created.trace.1.clone() }),
            shard: i32::try_from(created.shard).unwrap_or(i32::MAX),
        }),
        K::Started => Kind::ExecutionStarted(v1::ExecutionStarted {}),
        K::Paused { principal, reason, discard_calls, request_id } => Kind::ExecutionPaused(v1::ExecutionPaused {
            principal: principal.clone(),
            reason: reason.clone(),
            discard_calls: *discard_calls,
            request_id: request_id.clone(),
        }),
        K::Resumed { principal, request_id } => Kind::ExecutionResumed(v1::ExecutionResumed {
            principal: principal.clone(),
            request_id: request_id.clone(),
        }),
        K::CancelRequested { principal, reason, request_id } => {
            Kind::ExecutionCancelRequested(v1::ExecutionCancelRequested {
                principal: principal.clone(),
                reason: reason.clone(),
                request_id: request_id.clone(),
            })
        }
        K::Recovered { in_doubt } => {
            let in_doubt = in_doubt.iter().map(|&call| names.call(plan, call)).collect();
            Kind::ExecutionRecovered(v1::ExecutionRecovered { in_doubt })
        }
        K::DeadlineExceeded => Kind::ExecutionDeadlineExceeded(v1::ExecutionDeadlineExceeded {}),
        K::Finished(finished) => Kind::ExecutionFinished(v1::ExecutionFinished {
            state: state(finished.state).into(),
            totals: Some(totals(finished.totals)),
            failure: finished.failure.as_ref().map(failure),
            next_stage: if finished.state == belay_execution::ExecutionState::Completed {
                "verifier".into()
            } else {
                String::new()
            },
            duration: Some(belay_proto::duration(finished.duration)),
        }),
        K::StepStarted { step, .. } => {
            Kind::StepStarted(v1::StepStarted { title: plan.steps()[*step].title().to_owned() })
        }
        K::RetryScheduled { failure: cause, retry_count, delay, not_before, .. } => {
            Kind::StepRetryScheduled(v1::StepRetryScheduled {
                failure: Some(failure(cause)),
                retry_count: i32::try_from(*retry_count).unwrap_or(i32::MAX),
                delay: Some(belay_proto::duration(*delay)),
                not_before: Some(time(*not_before)),
            })
        }
        K::StepCompleted { progress: done, duration, .. } => Kind::StepCompleted(v1::StepCompleted {
            progress: progress(done),
            duration: Some(belay_proto::duration(*duration)),
        }),
        K::StepFailed { attempt, failure: cause, progress: done, .. } => Kind::StepFailed(v1::StepFailed {
            failure: Some(failure(cause)),
            attempts: i32::try_from(*attempt).unwrap_or(i32::MAX),
            progress: progress(done),
        }),
        K::StepSkipped { reason, because, progress: done, .. } => Kind::StepSkipped(v1::StepSkipped {
            reason: skip_reason(*reason).into(),
            because: because.map(|step| plan.steps()[step].id().to_owned()).unwrap_or_default(),
            progress: progress(done),
        }),
        K::StepCancelled { progress: done, .. } => Kind::StepCancelled(v1::StepCancelled { progress: progress(done) }),
        K::StepOutcomeUnknown { failure: cause, .. } => {
            Kind::StepOutcomeUnknown(v1::StepOutcomeUnknown { failure: Some(failure(cause)) })
        }
        K::CallRequested(request) => Kind::ToolCallRequested(v1::ToolCallRequested {
            tool: request.tool.clone(),
            arguments: Some(payload(&request.arguments)),
            arguments_digest: request.arguments_digest.clone(),
            recovery: recovery_to(request.recovery).into(),
            ledger_id: request.ledger_id.clone(),
            timeout: Some(belay_proto::duration(request.timeout)),
        }),
        K::CallCompleted { result, receipt: given, .. } => {
            Kind::ToolCallCompleted(v1::ToolCallCompleted { result: Some(payload(result)), receipt: receipt(given) })
        }
        K::CallFailed { failure: cause, receipt: given, .. } => {
            Kind::ToolCallFailed(v1::ToolCallFailed { failure: Some(failure(cause)), receipt: receipt(given) })
        }
        K::CallCancelled { .. } => Kind::ToolCallCancelled(v1::ToolCallCancelled {}),
        K::CallOutcomeUnknown { failure: cause, .. } => {
            Kind::ToolCallOutcomeUnknown(v1::ToolCallOutcomeUnknown { failure: Some(failure(cause)) })
        }
    }
}

fn facts(facts: &ToolFacts) -> v1::ToolFacts {
    v1::ToolFacts {
        tool: facts.tool.clone(),
        used_as: facts.used_as.clone(),
        recovery: recovery_to(facts.recovery).into(),
        default_timeout_ms: i64::try_from(facts.default_timeout.as_millis()).unwrap_or(i64::MAX),
    }
}

/// Stored bytes that this version cannot read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum DecodeError {
    #[error("event bytes are damaged: {0}")]
    Damaged(String),
    #[error("event {0} is of a kind that this version does not know")]
    UnknownKind(i64),
    #[error("events of version {0} are newer than this version reads")]
    Newer(u32),
    #[error("event {sequence} lacks {what}")]
    Lacks { sequence: i64, what: &'static str },
}

/// The messages of a stored transition.
pub(crate) fn decode_all(transition: &Transition) -> Result<Vec<v1::ExecutionEvent>, DecodeError> {
    if transition.version > VERSION {
        return Err(DecodeError::Newer(transition.version));
    }
    let mut bytes = transition.shown.as_slice();
    let mut events = Vec::with_capacity(transition.count as usize);
    while !bytes.is_empty() {
        let event = v1::ExecutionEvent::decode_length_delimited(&mut bytes);
        events.push(event.map_err(|error| DecodeError::Damaged(error.to_string()))?);
    }
    Ok(events)
}

/// Messages back into events. `plan` is the one that the first message carries.
pub(crate) fn to_events(
    messages: impl IntoIterator<Item = v1::ExecutionEvent>,
) -> impl Iterator<Item = Result<Event, DecodeError>> {
    let mut plan: Option<Plan> = None;
    messages.into_iter().map(move |message| {
        let sequence = message.sequence;
        let lacks = |what| DecodeError::Lacks { sequence, what };
        let time = message.time.as_ref().ok_or_else(|| lacks("its time"))?;
        let time = Timestamp::from_micros(belay_proto::micros(time));
        let event = |kind| Event { sequence: u64::try_from(sequence).unwrap_or(0), time, kind };
        if let Some(Kind::ExecutionCreated(created)) = message.kind {
            let created = decode_created(created, &lacks)?;
            plan = Some(created.plan.clone());
            return Ok(event(EventKind::Created(Box::new(created))));
        }
        let plan = plan.as_ref().ok_or_else(|| lacks("a plan before it"))?;
        decode_kind(plan, message, &lacks).map(event)
    })
}

type Lacks<'a> = &'a dyn Fn(&'static str) -> DecodeError;

fn decode_created(created: v1::ExecutionCreated, lacks: Lacks<'_>) -> Result<Created, DecodeError> {
    let mode = created.approval_mode();
    let plan = plan_from(created.plan.ok_or_else(|| lacks("its plan"))?);
    let trace = created.trace.unwrap_or_default();
    Ok(Created {
        uid: created.uid,
        plan: plan.map_err(|invalid| DecodeError::Damaged(invalid.to_string()))?,
        approval_mode: approval_mode(mode),
        workspace: created.workspace,
        labels: created.labels,
        principal: created.principal,
        tools: created
            .tools
            .into_iter()
            .map(|facts| ToolFacts {
                recovery: recovery_from(facts.recovery()),
                used_as: facts.used_as,
                tool: facts.tool,
                default_timeout: Duration::from_millis(u64::try_from(facts.default_timeout_ms).unwrap_or(0)),
            })
            .collect(),
        deadline: created.deadline.map(|deadline| Timestamp::from_micros(belay_proto::micros(&deadline))),
        trace: (trace.traceparent, trace.tracestate),
        shard: u32::try_from(created.shard).unwrap_or(0),
    })
}

fn decode_kind(plan: &Plan, message: v1::ExecutionEvent, lacks: Lacks<'_>) -> Result<EventKind, DecodeError> {
    use EventKind as K;
    let attempt = u32::try_from(message.attempt).unwrap_or(0);
    let step = || plan.step_index(&message.step_id).ok_or_else(|| lacks("a step of the plan"));
    let call = || parse_call(plan, &message.call).ok_or_else(|| lacks("a call of the plan"));
    let count = |n: i32| usize::try_from(n).unwrap_or(0);
    let progress = |progress: Option<v1::Progress>| {
        let v1::Progress { done, total } = progress.unwrap_or_default();
        Progress { done: count(done), total: count(total) }
    };
    let duration = |duration: Option<pbjson_types::Duration>| {
        duration.as_ref().and_then(belay_proto::to_duration).unwrap_or_default()
    };
    let failure = |failure: Option<v1::Failure>| failure.map(failure_from).ok_or_else(|| lacks("its failure"));
    let receipt = |receipt: Option<v1::Receipt>| {
        let receipt = receipt.unwrap_or_default();
        Receipt { ledger_id: receipt.ledger_id, duration: duration(receipt.duration) }
    };
    Ok(match message.kind.ok_or(DecodeError::UnknownKind(message.sequence))? {
        Kind::ExecutionCreated(_) => return Err(lacks("the first place in the list")),
        Kind::ExecutionStarted(_) => K::Started,
        Kind::ExecutionPaused(paused) => K::Paused {
            principal: paused.principal,
            reason: paused.reason,
            discard_calls: paused.discard_calls,
            request_id: paused.request_id,
        },
        Kind::ExecutionResumed(resumed) => K::Resumed { principal: resumed.principal, request_id: resumed.request_id },
        Kind::ExecutionCancelRequested(asked) => {
            K::CancelRequested { principal: asked.principal, reason: asked.reason, request_id: asked.request_id }
        }
        Kind::ExecutionRecovered(recovered) => {
            let calls =
                recovered.in_doubt.iter().map(|name| parse_call(plan, name).ok_or_else(|| lacks("a call of the plan")));
            K::Recovered { in_doubt: calls.collect::<Result<_, _>>()? }
        }
        Kind::ExecutionDeadlineExceeded(_) => K::DeadlineExceeded,
        Kind::ExecutionFinished(finished) => {
            let counted = finished.totals.unwrap_or_default();
            K::Finished(Box::new(Finished {
                state: state_from(finished.state()).ok_or_else(|| lacks("its state"))?,
                totals: Totals {
                    total: count(counted.total),
                    completed: count(counted.completed),
                    failed: count(counted.failed),
                    skipped: count(counted.skipped),
                    cancelled: count(counted.cancelled),
                },
                failure: finished.failure.map(failure_from),
                duration: duration(finished.duration),
            }))
        }
        Kind::StepStarted(_) => K::StepStarted { step: step()?, attempt },
        Kind::StepRetryScheduled(retry) => {
            let not_before = retry.not_before.as_ref().ok_or_else(|| lacks("its time of retry"))?;
            K::RetryScheduled {
                step: step()?,
                attempt,
                failure: failure(retry.failure)?,
                retry_count: u32::try_from(retry.retry_count).unwrap_or(0),
                delay: duration(retry.delay),
                not_before: Timestamp::from_micros(belay_proto::micros(not_before)),
            }
        }
        Kind::StepCompleted(completed) => K::StepCompleted {
            step: step()?,
            attempt,
            progress: progress(completed.progress),
            duration: duration(completed.duration),
        },
        Kind::StepFailed(failed) => K::StepFailed {
            step: step()?,
            attempt,
            failure: failure(failed.failure)?,
            progress: progress(failed.progress),
        },
        Kind::StepSkipped(skipped) => K::StepSkipped {
            step: step()?,
            reason: skip_reason_from(skipped.reason()).ok_or_else(|| lacks("its reason"))?,
            because: plan.step_index(&skipped.because),
            progress: progress(skipped.progress),
        },
        Kind::StepCancelled(cancelled) => {
            K::StepCancelled { step: step()?, attempt, progress: progress(cancelled.progress) }
        }
        Kind::StepOutcomeUnknown(unknown) => {
            K::StepOutcomeUnknown { step: step()?, attempt, failure: failure(unknown.failure)? }
        }
        Kind::ToolCallRequested(request) => {
            let recovery = recovery_from(request.recovery());
            K::CallRequested(Box::new(CallRequest {
                call: call()?,
                tool: request.tool,
                arguments: json(request.arguments).ok_or_else(|| lacks("its arguments"))?,
                arguments_digest: request.arguments_digest,
                recovery,
                ledger_id: request.ledger_id,
                timeout: duration(request.timeout),
            }))
        }
        Kind::ToolCallCompleted(completed) => K::CallCompleted {
            call: call()?,
            result: json(completed.result).unwrap_or_else(|| Json::from_text("null")),
            receipt: receipt(completed.receipt),
        },
        Kind::ToolCallFailed(failed) => {
            K::CallFailed { call: call()?, failure: failure(failed.failure)?, receipt: receipt(failed.receipt) }
        }
        Kind::ToolCallCancelled(_) => K::CallCancelled { call: call()? },
        Kind::ToolCallOutcomeUnknown(unknown) => {
            K::CallOutcomeUnknown { call: call()?, failure: failure(unknown.failure)? }
        }
    })
}

fn parse_call(plan: &Plan, name: &str) -> Option<CallId> {
    let mut parts = name.rsplit('/');
    let (attempt, number) = parts.next()?.split_once('.')?;
    let step = parts.nth(1)?;
    Some(CallId { step: plan.step_index(step)?, attempt: attempt.parse().ok()?, number: number.parse().ok()? })
}

fn skip_reason_from(reason: v1::SkipReason) -> Option<SkipReason> {
    Some(match reason {
        v1::SkipReason::Unspecified => return None,
        v1::SkipReason::DependencyFailed => SkipReason::DependencyFailed,
        v1::SkipReason::DependencySkipped => SkipReason::DependencySkipped,
        v1::SkipReason::StopOnError => SkipReason::StopOnError,
        v1::SkipReason::Cancelled => SkipReason::Cancelled,
        v1::SkipReason::TimedOut => SkipReason::TimedOut,
    })
}
