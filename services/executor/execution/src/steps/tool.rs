//! Steps that are one call of one tool. An attempt makes another call when one was discarded through no fault of its step.

use std::sync::Arc;

use belay_plan::{AuditLevel, JUDGE_TOOL, MODEL_TOOL};
use belay_reasons as reasons;
use serde_json::{Value, json};

use crate::{
    ApprovalRequirement, CommittedFile, Decision, EffectSummary, Execution, Failure, NetworkUse, Operation,
    OperationId, OperationKey, OperationKind, Phase, Receipt, RequiredAction, StepOutput, StepState, StepTrigger,
    SubjectKind, Timestamp, ToolCallEnd, ToolCallRequest, Violation,
    state::{AttemptEnd, Authorization},
    steps::checks,
    words::{self, Activity, Severity, Words},
};

/// The call that an event names, which must be in flight.
pub(super) fn call_in_flight<'a>(execution: &'a Execution, id: &OperationId) -> Result<&'a Operation, Violation> {
    let operation = execution.in_flight(id)?;
    operation.tool_call().map(|_| operation).ok_or_else(|| Violation::NotACall(id.clone()))
}

/// A call is requested.
pub(super) fn requested(
    execution: &mut Execution,
    id: &OperationId,
    request: &Arc<ToolCallRequest>,
    time: Timestamp,
) -> Result<(), Violation> {
    let step = execution.named(&id.step)?;
    let key = OperationKey { step, attempt: id.attempt, number: id.number };
    execution.check_is_next(key)?;
    let record = &execution.steps[step];
    if record.current_call().is_none() || record.has_entries() {
        return Err(Violation::NoTool(id.step.clone()));
    }
    record.check_can_call(request.check)?;
    let checked = record.position(request.check);
    if record.state == StepState::Ready {
        execution.transition_step(step, StepTrigger::OperationRequested, time)?;
    }
    execution.update_step(step, |record| {
        (record.operations, record.checked) = (key.number, checked);
        record.operations_before_purpose += std::mem::take(&mut record.questions);
        record.remember_call(request);
        if request.tool == MODEL_TOOL {
            record.asked = Some(request.arguments.clone());
        }
    });
    execution.progress.ledger_id.clone_from(&request.ledger_id);
    let kind = OperationKind::ToolCall(Arc::clone(request));
    execution.insert_operation(Operation::new(key, time, kind, Phase::Dispatched));
    Ok(())
}

/// A call that was approved before it ran gets a slot.
pub(super) fn dispatched(execution: &mut Execution, id: &OperationId) -> Result<(), Violation> {
    execution.check_can_start()?;
    let operation = call_in_flight(execution, id)?;
    let (key, phase) = (operation.key, operation.phase);
    if phase != Phase::Queued {
        return Err(Violation::NotQueued(id.clone()));
    }
    if !execution.has_slot_to_dispatch() {
        return Err(Violation::NoSlot(id.clone()));
    }
    execution.update_operation(key, |operation| operation.phase = Phase::Dispatched);
    Ok(())
}

/// A call has ended.
pub(super) fn ended(
    execution: &mut Execution,
    id: &OperationId,
    end: &ToolCallEnd,
    time: Timestamp,
) -> Result<(), Violation> {
    let operation = call_in_flight(execution, id)?;
    let (step, used) = (operation.key.step, operation.used(end));
    end_call(execution, id, end, time)?;
    execution.spend(step, used);
    Ok(())
}

fn end_call(execution: &mut Execution, id: &OperationId, end: &ToolCallEnd, time: Timestamp) -> Result<(), Violation> {
    let operation = call_in_flight(execution, id)?;
    let key = operation.key;
    let check = operation.tool_call().and_then(|request| request.check);
    let recovery = execution.recovery(key);
    match end {
        ToolCallEnd::Completed { result, receipt } => {
            let end = execution.check_end(id, AttemptEnd::Completed)?;
            let pending = execution.operations.get(key).and_then(|operation| operation.pending_approval.as_ref());
            let authorization = Authorization::of(receipt, pending).map(Box::new);
            let continues = check.is_some() || execution.steps[key.step].has_checks_after();
            match (continues, execution.stop) {
                (false, _) => execution.end_operation(key, end, time)?,
                (true, None) => {
                    execution.drop_operation(key, time)?;
                    checks::passed(execution, key.step, check);
                }
                // What was to be checked after the call is not, so that it is not known to have done what it should.
                (true, Some(_)) => {
                    execution.end_operation(key, AttemptEnd::Cancelled, time)?;
                    checks::passed(execution, key.step, check);
                }
            }
            // What a check returned is of no use to other steps.
            if check.is_none() {
                execution.update_step(key.step, |record| {
                    record.remember_result(result, recovery, time);
                    (record.authorization, record.output) = (authorization, Some(result.clone()));
                    record.layer.clone_from(&receipt.layer);
                });
            }
            Ok(())
        }
        ToolCallEnd::Failed { failure, .. } => {
            let is_verdict = failure.reason == reasons::POSTCONDITION_FAILED
                || operation.tool_call().is_none_or(|request| request.tool != JUDGE_TOOL);
            let failure = match check.filter(|_| is_verdict) {
                Some(place) => checks::failed(execution.steps[key.step].spec.check(place), place, failure),
                // A model that could not be asked for its judgement has judged nothing.
                None => failure.clone(),
            };
            let end = execution.check_end(id, AttemptEnd::Failed(failure))?;
            execution.end_operation(key, end, time)
        }
        ToolCallEnd::Denied { failure, .. } => {
            let end = execution.check_end(id, AttemptEnd::Denied(failure.clone()))?;
            execution.end_operation(key, end, time)
        }
        ToolCallEnd::OutcomeUnknown { failure, .. } => {
            let end = execution.check_end(id, AttemptEnd::Unknown(failure.clone()))?;
            execution.end_operation(key, end, time)
        }
        ToolCallEnd::Cancelled { failure, .. } => {
            let end = execution.check_end(id, AttemptEnd::Cancelled)?;
            let reason = failure.as_ref().map(|failure| failure.reason.as_str());
            execution.update_step(key.step, |record| match reason {
                Some(reasons::CONFLICT) => record.conflicts += 1,
                Some(reasons::FAILED_BESIDE_COMMITS) => record.failed_during_commits = true,
                _ => {}
            });
            if execution.stop.is_some() {
                return execution.end_operation(key, end, time);
            }
            // The attempt continues with another call.
            execution.remove_operation(key);
            match execution.steps[key.step].state {
                StepState::Running | StepState::AwaitingApproval => {
                    execution.transition_step(key.step, StepTrigger::CallDiscarded, time)
                }
                _ => Ok(()),
            }
        }
    }
}

/// While the execution is paused, a held call needs nothing, even if it is decided meanwhile.
pub(crate) fn action(execution: &Execution, operation: &Operation) -> Option<RequiredAction> {
    if let Some(stop) = execution.stop {
        return Some(RequiredAction::to_stop(stop));
    }
    let paused = execution.paused.as_ref();
    match operation.phase {
        Phase::Dispatched => match paused {
            // It runs again, and a person waits at a terminal for the pause.
            Some(paused) if paused.discard_calls => Some(RequiredAction::Kill),
            Some(_) | None => Some(RequiredAction::Dispatch),
        },
        Phase::AwaitingApproval => {
            (paused.is_none() && operation.needs_approval_request()).then_some(RequiredAction::RequestApproval)
        }
        Phase::Decided => {
            let pending = operation.pending_approval.as_ref().filter(|_| paused.is_none())?;
            match (pending.decision()?, pending.requirement.kind) {
                (Decision::Approved, SubjectKind::Effect) => Some(RequiredAction::Commit),
                (Decision::Approved, SubjectKind::Call) => Some(RequiredAction::Dispatch),
                (Decision::Denied | Decision::Skipped | Decision::Expired, _) => Some(RequiredAction::Discard),
            }
        }
        Phase::Queued | Phase::Waiting => None,
    }
}

/// The words of a call that is requested.
pub(super) fn words_requested(call: &OperationId, request: &ToolCallRequest) -> Words {
    let details = json!({
        "operation": words::operation(call),
        "tool": request.tool,
        "argumentsDigest": request.arguments_digest,
        "argumentsBytes": request.arguments.size(),
        "timeoutMs": words::millis(request.timeout),
    });
    let message = format!("Step `{}` calls `{}`", call.step, request.tool);
    Words::new(AuditLevel::Verbose, Severity::Info, message, details)
}

/// The words of a call that has to be approved.
pub(super) fn words_held(call: &OperationId, requirement: &ApprovalRequirement) -> Words {
    let what = match requirement.kind {
        SubjectKind::Call => "before it runs",
        SubjectKind::Effect => "before its changes are committed",
    };
    let details = json!({
        "operation": words::operation(call),
        "rule": requirement.decision.rule,
        "reason": requirement.decision.reason,
        "subjectDigest": requirement.subject_digest,
        "effect": counts(&requirement.effect),
    });
    let message = format!("The call of step `{}` has to be approved {what}", call.step);
    Words::new(AuditLevel::Verbose, Severity::Info, message, details)
}

/// The words of a decision about a call.
pub(super) fn words_decided(id: &OperationId, approval: &str, decision: Decision, reason: &str) -> Words {
    let (word, severity) = match decision {
        Decision::Approved => ("approved", Severity::Info),
        Decision::Denied => ("denied", Severity::Warn),
        Decision::Skipped => ("decided: skip", Severity::Warn),
        Decision::Expired => ("expired", Severity::Warn),
    };
    let details = json!({"operation": words::operation(id), "approval": approval, "decision": words::decided(decision), "reason": reason});
    Words::new(AuditLevel::Minimal, severity, words::because(&format!("Step `{}` {word}", id.step), reason), details)
}

/// The words of a call's end.
pub(super) fn words_ended(call: &OperationId, end: &ToolCallEnd) -> Words {
    use AuditLevel::{Standard, Verbose};
    use Severity::{Info, Warn};
    let step = &call.step;
    let failed = |level, word: &str, cause: &Failure, receipt: Option<&Receipt>| {
        let mut details = call_details(call, receipt);
        details["failure"] = words::failure(cause);
        Words::new(level, Warn, format!("The call of step `{step}` {word}: {}", cause.message), details)
    };
    match end {
        ToolCallEnd::Completed { result, receipt } => {
            let mut details = call_details(call, Some(receipt));
            details["resultBytes"] = result.size().into();
            match &receipt.effect {
                Some(effect) => {
                    let EffectSummary { created, modified, deleted, .. } = effect;
                    let message = format!(
                        "The call of step `{step}` committed its changes: {created} created, {modified} modified, {deleted} deleted"
                    );
                    Words::new(Standard, Info, message, details)
                }
                None => {
                    let took = words::duration(receipt.duration);
                    Words::new(Verbose, Info, format!("The call of step `{step}` completed after {took}"), details)
                }
            }
        }
        ToolCallEnd::Failed { failure, receipt } => failed(Verbose, "failed", failure, Some(receipt)),
        ToolCallEnd::Denied { failure, receipt } => failed(Standard, "was denied", failure, Some(receipt)),
        ToolCallEnd::OutcomeUnknown { failure, network, .. } => {
            let mut unknown = failed(Verbose, "has an unknown outcome", failure, None);
            if let Some(network) = network {
                unknown.details["network"] = network_details(network);
            }
            unknown
        }
        ToolCallEnd::Cancelled { failure: Some(cause), .. } => failed(Verbose, "was discarded", cause, None),
        ToolCallEnd::Cancelled { failure: None, .. } => {
            Words::new(Verbose, Info, format!("The call of step `{step}` was cancelled"), call_details(call, None))
        }
    }
}

/// The details of a call, with what its receipt certifies.
fn call_details(call: &OperationId, receipt: Option<&Receipt>) -> Value {
    let mut details = json!({"operation": words::operation(call)});
    let Some(receipt) = receipt else { return details };
    details["durationMs"] = words::millis(receipt.duration).into();
    if let Some(decision) = &receipt.decision {
        details["rule"] = decision.rule.clone().into();
    }
    if let Some(effect) = &receipt.effect {
        details["effect"] = counts(effect);
        details["effectDigest"] = receipt.effect_digest.clone().into();
    }
    if let Some(network) = &receipt.network {
        details["network"] = network_details(network);
    }
    details
}

/// The use of a network profile: each connection that is known.
fn network_details(network: &NetworkUse) -> Value {
    let connections = network.connections.iter().map(|connection| {
        json!({
            "host": connection.host, "port": connection.port, "isAllowed": connection.is_allowed, "rule": connection.rule,
            "failure": connection.failure, "sentBytes": connection.sent, "receivedBytes": connection.received,
        })
    });
    let credentials = network
        .credentials
        .iter()
        .map(|used| json!({"credential": used.credential, "host": used.host, "requests": used.requests}));
    json!({
        "profile": network.profile, "connections": connections.collect::<Vec<_>>(), "unlistedConnections": network.unlisted,
        "refused": network.refused, "isLost": network.is_lost, "credentials": credentials.collect::<Vec<_>>(),
    })
}

/// The numbers of paths that an effect changes.
fn counts(effect: &EffectSummary) -> Value {
    json!({"created": effect.created, "modified": effect.modified, "deleted": effect.deleted})
}

/// The output that a call's end gives its step.
pub(super) fn output(end: &ToolCallEnd) -> Option<StepOutput> {
    match end {
        ToolCallEnd::Completed { result, .. } => Some(StepOutput::Value(result.clone())),
        ToolCallEnd::Failed { .. }
        | ToolCallEnd::Denied { .. }
        | ToolCallEnd::Cancelled { .. }
        | ToolCallEnd::OutcomeUnknown { .. } => None,
    }
}

/// The files that a call has committed.
pub(super) fn files(end: &ToolCallEnd) -> &[CommittedFile] {
    match end {
        ToolCallEnd::Completed { receipt, .. } | ToolCallEnd::Failed { receipt, .. } => &receipt.files,
        ToolCallEnd::Denied { .. } | ToolCallEnd::Cancelled { .. } | ToolCallEnd::OutcomeUnknown { .. } => &[],
    }
}

/// The activity of a step from the end of its call on: a call that was discarded is made again, as after a pause.
pub(super) fn activity_after(end: &ToolCallEnd) -> Option<Activity> {
    match end {
        ToolCallEnd::Cancelled { .. } => Some(Activity::Waits),
        ToolCallEnd::Completed { .. }
        | ToolCallEnd::Failed { .. }
        | ToolCallEnd::Denied { .. }
        | ToolCallEnd::OutcomeUnknown { .. } => None,
    }
}
