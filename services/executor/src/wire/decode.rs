//! Decodes stored messages into events.

use std::sync::Arc;

use belay_execution::{
    CallId, CallRequest, Created, Event, EventKind, Finished, Progress, SkipReason, SubjectKind, Timestamp, ToolFacts,
    Totals,
};
use belay_journal::Transition;
use belay_plan::Plan;
use belay_proto::{
    check::{Refused, check},
    v1::{self, execution_event::Kind},
};
use prost::Message as _;
use thiserror::Error;

use super::{
    NotUnderstood, VERSION,
    approval::{decided_from, receipt_from, requirement_from},
    approval_mode,
    execution::state_from,
    failure_from, json, known, plan_from, recovery_from,
};

/// Why this version cannot read stored bytes.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum DecodeError {
    #[error("event bytes are damaged: {0}")]
    Damaged(String),
    #[error("event {0} is of a kind that this version does not know")]
    UnknownKind(i64),
    #[error("events of version {0} are newer than this version reads")]
    Newer(u32),
    /// A newer version wrote a field or a value that an execution cannot be carried out without.
    #[error("event {sequence}: {unknown}")]
    Unknown { sequence: i64, unknown: Refused },
    #[error("event {sequence}: {problem}")]
    NotUnderstood { sequence: i64, problem: NotUnderstood },
    #[error("event {sequence} lacks {what}")]
    Lacks { sequence: i64, what: &'static str },
}

impl DecodeError {
    /// Whether a newer version wrote what cannot be read, so that nothing is damaged.
    pub(crate) fn is_newer(&self) -> bool {
        match self {
            Self::UnknownKind(_) | Self::Newer(_) | Self::Unknown { .. } => true,
            Self::NotUnderstood { problem, .. } => {
                matches!(problem, NotUnderstood::Value { .. } | NotUnderstood::Blob(_))
            }
            Self::Damaged(_) | Self::Lacks { .. } => false,
        }
    }
}

/// Checks that encoded messages, of which an execution is carried out, have nothing that this version does not know: it would be carried out
/// without that.
pub(crate) fn check_known(mut bytes: &[u8]) -> Result<(), DecodeError> {
    while !bytes.is_empty() {
        let damaged = |what: String| DecodeError::Damaged(what);
        let length = prost::decode_length_delimiter(&mut bytes).map_err(|error| damaged(error.to_string()))?;
        let (event, rest) = bytes.split_at_checked(length).ok_or_else(|| damaged("they end within an event".into()))?;
        if let Err(unknown) = check::<v1::ExecutionEvent>(event) {
            let sequence = v1::ExecutionEvent::decode(event).map_or(0, |event| event.sequence);
            return Err(match unknown.is_newer() {
                true => DecodeError::Unknown { sequence, unknown },
                false => damaged(format!("event {sequence}: {unknown}")),
            });
        }
        bytes = rest;
    }
    Ok(())
}

/// The messages of a stored transition, with secrets hidden.
pub(crate) fn decode_all(transition: &Transition) -> Result<Vec<v1::ExecutionEvent>, DecodeError> {
    if transition.version > VERSION {
        return Err(DecodeError::Newer(transition.version));
    }
    decode_bytes(&transition.shown)
}

/// Length-delimited messages.
pub(crate) fn decode_bytes(mut bytes: &[u8]) -> Result<Vec<v1::ExecutionEvent>, DecodeError> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let event = v1::ExecutionEvent::decode_length_delimited(&mut bytes);
        events.push(event.map_err(|error| DecodeError::Damaged(error.to_string()))?);
    }
    Ok(events)
}

/// Decodes messages into events. `plan` is the one in the first message.
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
            let created = decode_created(created, sequence, &lacks)?;
            plan = Some(created.plan.clone());
            return Ok(event(EventKind::Created(Box::new(created))));
        }
        let plan = plan.as_ref().ok_or_else(|| lacks("a plan before it"))?;
        decode_kind(plan, message, &lacks).map(event)
    })
}

type Lacks<'a> = &'a dyn Fn(&'static str) -> DecodeError;

fn decode_created(created: v1::ExecutionCreated, sequence: i64, lacks: Lacks<'_>) -> Result<Created, DecodeError> {
    let unknown = |problem| DecodeError::NotUnderstood { sequence, problem };
    let mode = known(created.approval_mode, "the approval mode").map_err(unknown)?;
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
            .map(|facts| {
                Ok(ToolFacts {
                    recovery: recovery_from(known(facts.recovery, "the recovery class of a tool").map_err(unknown)?),
                    used_as: facts.used_as,
                    tool: facts.tool,
                    default_timeout: facts
                        .default_timeout
                        .as_ref()
                        .and_then(belay_proto::to_duration)
                        .unwrap_or_default(),
                })
            })
            .collect::<Result<_, _>>()?,
        deadline: created.deadline.map(|deadline| Timestamp::from_micros(belay_proto::micros(&deadline))),
        trace: (trace.traceparent, trace.tracestate),
        shard: u32::try_from(created.shard).unwrap_or(0),
    })
}

fn decode_kind(plan: &Plan, message: v1::ExecutionEvent, lacks: Lacks<'_>) -> Result<EventKind, DecodeError> {
    use EventKind as K;
    let unknown = |problem| DecodeError::NotUnderstood { sequence: message.sequence, problem };
    let attempt = u32::try_from(message.attempt).unwrap_or(0);
    let step = || plan.step_index(&message.step_id).ok_or_else(|| lacks("a step of the plan"));
    let number = || message.call.parse().map_err(|_| lacks("the number of its call"));
    let call = || Ok(CallId { step: step()?, attempt, number: number()? });
    let count = |n: i32| usize::try_from(n).unwrap_or(0);
    let progress = |progress: Option<v1::Progress>| {
        let v1::Progress { done, total } = progress.unwrap_or_default();
        Progress { done: count(done), total: count(total) }
    };
    let duration = |duration: Option<pbjson_types::Duration>| {
        duration.as_ref().and_then(belay_proto::to_duration).unwrap_or_default()
    };
    let some_failure = |failure: Option<v1::Failure>| failure.map(failure_from).transpose().map_err(unknown);
    let failure = |failure: Option<v1::Failure>| some_failure(failure)?.ok_or_else(|| lacks("its failure"));
    let receipt = |receipt: Option<v1::Receipt>| receipt_from(receipt.unwrap_or_default()).map_err(unknown);
    let held = |need: Option<v1::ApprovalNeed>, kind| {
        let need = need.ok_or_else(|| lacks("what is to be decided"))?;
        let requirement = requirement_from(need, kind).map_err(unknown)?;
        Ok(K::CallHeld { call: call()?, requirement: Box::new(requirement) })
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
        Kind::ExecutionAwaitingApproval(_) => K::AwaitingApproval,
        Kind::ExecutionFinished(finished) => {
            let counted = finished.totals.unwrap_or_default();
            K::Finished(Box::new(Finished {
                state: state_from(known(finished.state, "the state of an execution").map_err(unknown)?)
                    .ok_or_else(|| lacks("its state"))?,
                totals: Totals {
                    total: count(counted.total),
                    completed: count(counted.completed),
                    failed: count(counted.failed),
                    skipped: count(counted.skipped),
                    cancelled: count(counted.cancelled),
                },
                failure: some_failure(finished.failure)?,
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
            reason: skip_reason_from(known(skipped.reason, "why a step was skipped").map_err(unknown)?)
                .ok_or_else(|| lacks("its reason"))?,
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
            let recovery = recovery_from(known(request.recovery, "the recovery class of a tool").map_err(unknown)?);
            K::CallRequested(Arc::new(CallRequest {
                call: call()?,
                tool: request.tool,
                arguments: json(request.arguments, "the arguments of the call").map_err(unknown)?,
                arguments_digest: request.arguments_digest,
                recovery,
                ledger_id: request.ledger_id,
                timeout: duration(request.timeout),
            }))
        }
        Kind::ToolCallCompleted(completed) => K::CallCompleted {
            call: call()?,
            result: json(completed.result, "the result of the call").map_err(unknown)?,
            receipt: receipt(completed.receipt)?,
        },
        Kind::ToolCallFailed(failed) => {
            K::CallFailed { call: call()?, failure: failure(failed.failure)?, receipt: receipt(failed.receipt)? }
        }
        Kind::ToolCallCancelled(cancelled) => K::CallCancelled {
            call: call()?,
            failure: some_failure(cancelled.failure)?,
            grant_nonce: cancelled.grant_nonce,
        },
        Kind::ToolCallDenied(denied) => {
            K::CallDenied { call: call()?, failure: failure(denied.failure)?, receipt: receipt(denied.receipt)? }
        }
        Kind::ToolCallEffectProposed(proposed) => return held(proposed.need, SubjectKind::Effect),
        Kind::ToolCallApprovalRequired(required) => return held(required.need, SubjectKind::Call),
        // Output is transient, and never stored.
        Kind::ToolCallOutput(_) => return Err(DecodeError::UnknownKind(message.sequence)),
        Kind::ApprovalRequested(asked) => {
            K::ApprovalRequested { call: call()?, approval: asked.approval, subject_digest: asked.subject_digest }
        }
        Kind::ApprovalDecided(decided) => K::ApprovalDecided {
            call: call()?,
            decision: decided_from(known(decided.decision, "the decision of an approval").map_err(unknown)?)
                .ok_or_else(|| lacks("its decision"))?,
            approval: decided.approval,
            principal: decided.principal,
            reason: decided.reason,
        },
        Kind::ToolCallOutcomeUnknown(unknown) => K::CallOutcomeUnknown {
            call: call()?,
            failure: failure(unknown.failure)?,
            grant_nonce: unknown.grant_nonce,
        },
    })
}

pub(crate) fn parse_call(plan: &Plan, name: &str) -> Option<CallId> {
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
        v1::SkipReason::ApprovalSkipped => SkipReason::ApprovalSkipped,
        v1::SkipReason::NonInteractive => SkipReason::NonInteractive,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_execution::{
        ApprovalRequirement, ChangeKind, Decision, EffectSummary, ErrorClass, Failure, Json, LastOutput, PathChange,
        PolicyDecision, QuotaState, Receipt, Verdict, WriteBound, WriteMechanism,
    };
    use belay_plan::Format;

    use super::*;
    use crate::wire::{CallNames, encode};

    /// Events come back as they were stored, including those about approvals. S2-FR-053.
    #[test]
    fn events_about_approvals_come_back_as_they_were() {
        let plan = Plan::parse(Format::Yaml, "id: p\nsteps: [{id: a, tool: noop}]").unwrap();
        let execution = "namespaces/default/executions/e".to_owned();
        let names = CallNames { execution, uid: "u".into(), traceparent: String::new() };
        let call = CallId { step: 0, attempt: 2, number: 3 };
        let change = |kind| PathChange { path: "a/b".into(), kind, flags: vec!["executable".into()] };
        let kinds = [ChangeKind::Created, ChangeKind::Modified, ChangeKind::Deleted];
        let effect = EffectSummary { created: 1, modified: 2, deleted: 3, changes: kinds.map(change).to_vec() };
        let decision = |verdict| PolicyDecision { verdict, rule: "r".into(), reason: "why".into(), policy_revision: 4 };
        let need = |kind| {
            let (decision, effect) = (decision(Verdict::Prompt), effect.clone());
            EventKind::CallHeld {
                call,
                requirement: Box::new(ApprovalRequirement {
                    kind,
                    subject_digest: "sha256:x".into(),
                    decision,
                    effect,
                }),
            }
        };
        let receipt = |verdict| Receipt {
            ledger_id: "l".into(),
            duration: Duration::from_millis(1500),
            decision: Some(decision(verdict)),
            effect_digest: "sha256:y".into(),
            effect: Some(effect.clone()),
            grant_nonce: "n".into(),
            enforced: vec!["landlock".into()],
            live_base: true,
            commits_beside: vec!["namespaces/n/executions/e/steps/b/calls/1.1".into()],
            commit_count_beside: 7,
            left_out: vec!["run/app.sock (a socket)".into()],
            left_out_count: 2,
            write_bounds: [(WriteMechanism::Tmpfs, 5), (WriteMechanism::Watcher, 0)]
                .map(|(mechanism, bytes)| WriteBound { place: "/tmp".into(), mechanism, bytes, files: 6 })
                .into(),
        };
        let failure = || {
            let (stdout, stderr) = ("1 failed\n".to_owned(), "oh\n".to_owned());
            let last_output = LastOutput { stdout, stderr, stdout_truncated: true, stderr_truncated: false };
            let last_output = Some(Arc::new(last_output));
            let quota = QuotaState {
                name: "requests".into(),
                limit: 9,
                remaining: 1,
                reset_time: Some(Timestamp::from_micros(5_000_000)),
            };
            Failure {
                last_output,
                metadata: [("exit_code".to_owned(), "3".to_owned())].into(),
                retry_after: Some(Duration::from_millis(1_500)),
                quota: Some(Arc::new(quota)),
                cause: Some(Arc::new(Failure::new(ErrorClass::Transient, "CAUSE", "why"))),
                ..Failure::new(ErrorClass::ApprovalDenied, "APPROVAL_DENIED", "no")
            }
        };
        let decided = |decision| {
            let (approval, principal, reason) = ("ap".to_owned(), "ann".to_owned(), "because".to_owned());
            EventKind::ApprovalDecided { call, approval, decision, principal, reason }
        };
        let result = Json::from_text("1");
        let kinds = [
            EventKind::AwaitingApproval,
            need(SubjectKind::Call),
            need(SubjectKind::Effect),
            EventKind::ApprovalRequested { call, approval: "ap".into(), subject_digest: "sha256:x".into() },
            decided(Decision::Approved),
            decided(Decision::Denied),
            decided(Decision::Skipped),
            decided(Decision::Expired),
            EventKind::CallDenied { call, failure: failure(), receipt: receipt(Verdict::Deny) },
            EventKind::CallCancelled { call, failure: Some(failure()), grant_nonce: "n".into() },
            EventKind::CallCancelled { call, failure: None, grant_nonce: String::new() },
            EventKind::CallOutcomeUnknown { call, failure: failure(), grant_nonce: "n".into() },
            EventKind::CallCompleted { call, result: result.clone(), receipt: receipt(Verdict::Auto) },
            EventKind::CallCompleted { call, result, receipt: receipt(Verdict::Preview) },
        ];
        for kind in kinds {
            let event = Event { sequence: 9, time: Timestamp::from_micros(5), kind };
            let message = encode(&names, &plan, &event);
            let bytes = message.encode_to_vec();
            let message = v1::ExecutionEvent::decode(bytes.as_slice()).unwrap();
            let lacks = |what| DecodeError::Lacks { sequence: 9, what };
            assert_eq!(decode_kind(&plan, message, &lacks), Ok(event.kind));
        }
    }
}
