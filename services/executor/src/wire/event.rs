//! Encodes events as messages.
//!
//! Stored messages leave out what all messages of an execution repeat (its name, its trace, the names of its calls), which would be most of the log.
//! [`CallNames::complete`] restores it for watchers.

use std::fmt::Display;

use belay_execution::{CallId, Event, EventKind, Progress, SubjectKind, Timestamp, ToolFacts};
use belay_plan::Plan;
use belay_proto::v1::{self, execution_event::Kind};

use super::{
    approval::{decision_to, receipt_to, requirement_to},
    execution::{approval_mode_to, skip_reason, state, totals},
    failure, payload, plan_message, recovery_to, time,
};

/// The version of the events' meaning that this version writes.
pub(crate) const VERSION: u32 = 1;

/// Converts between a call's id and its name.
#[derive(Clone, Debug)]
pub(crate) struct CallNames {
    /// `namespaces/*/executions/*`.
    pub(crate) execution: String,
    pub(crate) uid: String,
    pub(crate) traceparent: String,
}

impl CallNames {
    pub(crate) fn call(&self, plan: &Plan, call: CallId) -> String {
        self.call_of(plan.steps()[call.step].id(), call.attempt, call.number)
    }

    /// A stored message as watchers get it.
    pub(crate) fn complete(&self, stored: v1::ExecutionEvent) -> v1::ExecutionEvent {
        let call = match stored.call.as_str() {
            "" => String::new(),
            number => self.call_of(&stored.step_id, stored.attempt, number),
        };
        v1::ExecutionEvent {
            event_id: format!("{}.{}", self.uid, stored.sequence),
            execution: self.execution.clone(),
            traceparent: self.traceparent.clone(),
            call,
            ..stored
        }
    }

    fn call_of(&self, step: &str, attempt: impl Display, number: impl Display) -> String {
        format!("{}/steps/{step}/calls/{attempt}.{number}", self.execution)
    }
}

/// Encodes one event as a message to store. Of its call's name it has only the number.
pub(crate) fn encode(names: &CallNames, plan: &Plan, event: &Event) -> v1::ExecutionEvent {
    v1::ExecutionEvent {
        sequence: i64::try_from(event.sequence).unwrap_or(i64::MAX),
        event_id: String::new(),
        time: Some(time(event.time)),
        execution: String::new(),
        step_id: event.kind.step().map(|step| plan.steps()[step].id().to_owned()).unwrap_or_default(),
        attempt: attempt(&event.kind).and_then(|attempt| i32::try_from(attempt).ok()).unwrap_or_default(),
        call: event.kind.call().map(|call| call.number.to_string()).unwrap_or_default(),
        schema_version: i32::try_from(VERSION).unwrap_or(i32::MAX),
        traceparent: String::new(),
        transient: false,
        safe_to_skip: false,
        kind: Some(encode_kind(names, plan, &event.kind)),
    }
}

/// The event of a call's output, without its time and content.
pub(crate) fn output_frame(names: &CallNames, step: &str, call: CallId) -> v1::ExecutionEvent {
    v1::ExecutionEvent {
        execution: names.execution.clone(),
        step_id: step.to_owned(),
        attempt: i32::try_from(call.attempt).unwrap_or_default(),
        call: names.call_of(step, call.attempt, call.number),
        schema_version: i32::try_from(VERSION).unwrap_or(i32::MAX),
        traceparent: names.traceparent.clone(),
        transient: true,
        safe_to_skip: true,
        ..v1::ExecutionEvent::default()
    }
}

/// The event of an output chunk, as watchers get it: its secrets are hidden already.
pub(crate) fn output_event(
    frame: &v1::ExecutionEvent,
    now: Timestamp,
    output: v1::ToolCallOutput,
) -> v1::ExecutionEvent {
    v1::ExecutionEvent { time: Some(time(now)), kind: Some(Kind::ToolCallOutput(output)), ..frame.clone() }
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
        K::AwaitingApproval => Kind::ExecutionAwaitingApproval(v1::ExecutionAwaitingApproval {}),
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
        K::CallCompleted { result, receipt: given, .. } => Kind::ToolCallCompleted(v1::ToolCallCompleted {
            result: Some(payload(result)),
            receipt: Some(receipt_to(given)),
        }),
        K::CallFailed { failure: cause, receipt: given, .. } => {
            Kind::ToolCallFailed(v1::ToolCallFailed { failure: Some(failure(cause)), receipt: Some(receipt_to(given)) })
        }
        K::CallCancelled { failure: cause, grant_nonce, .. } => Kind::ToolCallCancelled(v1::ToolCallCancelled {
            failure: cause.as_ref().map(failure),
            grant_nonce: grant_nonce.clone(),
        }),
        K::CallDenied { failure: cause, receipt: given, .. } => {
            Kind::ToolCallDenied(v1::ToolCallDenied { failure: Some(failure(cause)), receipt: Some(receipt_to(given)) })
        }
        K::CallHeld { requirement, .. } => {
            let message = Some(requirement_to(requirement));
            match requirement.kind {
                SubjectKind::Call => Kind::ToolCallApprovalRequired(v1::ToolCallApprovalRequired { need: message }),
                SubjectKind::Effect => Kind::ToolCallEffectProposed(v1::ToolCallEffectProposed { need: message }),
            }
        }
        K::ApprovalRequested { approval, subject_digest, .. } => Kind::ApprovalRequested(v1::ApprovalRequested {
            approval: approval.clone(),
            subject_digest: subject_digest.clone(),
        }),
        K::ApprovalDecided { approval, decision, principal, reason, .. } => {
            Kind::ApprovalDecided(v1::ApprovalDecided {
                approval: approval.clone(),
                decision: decision_to(*decision).into(),
                principal: principal.clone(),
                reason: reason.clone(),
            })
        }
        K::CallOutcomeUnknown { failure: cause, grant_nonce, .. } => {
            let (failure, grant_nonce) = (Some(failure(cause)), grant_nonce.clone());
            Kind::ToolCallOutcomeUnknown(v1::ToolCallOutcomeUnknown { failure, grant_nonce })
        }
    }
}

fn facts(facts: &ToolFacts) -> v1::ToolFacts {
    v1::ToolFacts {
        tool: facts.tool.clone(),
        used_as: facts.used_as.clone(),
        recovery: recovery_to(facts.recovery).into(),
        default_timeout: Some(belay_proto::duration(facts.default_timeout)),
    }
}
