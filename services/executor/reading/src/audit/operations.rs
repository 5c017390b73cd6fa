//! Entries about operations: calls of tools with their approvals, waits, and executions of plans.

use belay_execution::{
    ApprovalRequirement, ChildEnd, Decision, EffectSummary, Failure, OperationEnd, OperationEvent, OperationId,
    OperationReport, Receipt, SubjectKind, ToolCallEnd, ToolCallRequest, WaitCondition, WaitEnd, Work,
};
use belay_plan::AuditLevel;
use serde_json::{Value, json};

use super::entry_content::{EntryContent, Severity, because, decided, duration, failure, millis, operation as id_of};

pub(super) fn operation(id: &OperationId, event: &OperationEvent, has_actor: bool) -> EntryContent {
    use AuditLevel::{Standard, Verbose};
    use Severity::Info;
    let step = &id.step;
    match event {
        OperationEvent::Requested(Work::ToolCall(request)) => call_requested(id, request),
        OperationEvent::Requested(Work::Wait(condition)) => wait_started(id, condition),
        OperationEvent::Requested(Work::Child(child)) => {
            let until = child.until.map(|until| until.as_micros() / 1_000);
            let details = json!({"executionId": child.execution, "untilUnixMs": until});
            EntryContent::new(
                Standard,
                Info,
                format!("Step `{step}` starts the execution `{}`", child.execution),
                details,
            )
        }
        OperationEvent::Held(requirement) => held(id, requirement),
        OperationEvent::Asked { approval, subject_digest } => {
            let details = json!({"operation": id_of(id), "approval": approval, "subjectDigest": subject_digest});
            EntryContent::new(Standard, Info, format!("Step `{step}` waits for approval"), details)
        }
        OperationEvent::Decided { approval, decision, reason } => decision_made(id, approval, *decision, reason),
        OperationEvent::Dispatched => {
            let details = json!({"operation": id_of(id)});
            EntryContent::new(Verbose, Info, format!("The approved call of step `{step}` is sent"), details)
        }
        OperationEvent::Reported(OperationReport::ChildCreated) => {
            EntryContent::new(Verbose, Info, format!("The execution of step `{step}` was created"), json!({}))
        }
        OperationEvent::Reported(OperationReport::ChildPaused) => EntryContent::new(
            Standard,
            Info,
            format!("The execution of step `{step}` was paused with this one"),
            json!({}),
        ),
        OperationEvent::Reported(OperationReport::ChildResumed) => EntryContent::new(
            Standard,
            Info,
            format!("The execution of step `{step}` goes on with this one"),
            json!({}),
        ),
        OperationEvent::Ended(OperationEnd::ToolCall(end)) => call_ended(id, end),
        OperationEvent::Ended(OperationEnd::Wait(end)) => wait_ended(id, end, has_actor),
        OperationEvent::Ended(OperationEnd::Child { end, .. }) => child_ended(id, end),
    }
}

fn call_requested(call: &OperationId, request: &ToolCallRequest) -> EntryContent {
    let details = json!({
        "operation": id_of(call),
        "tool": request.tool,
        "argumentsDigest": request.arguments_digest,
        "argumentsBytes": request.arguments.size(),
        "timeoutMs": millis(request.timeout),
    });
    let message = format!("Step `{}` calls `{}`", call.step, request.tool);
    EntryContent::new(AuditLevel::Verbose, Severity::Info, message, details)
}

fn held(call: &OperationId, requirement: &ApprovalRequirement) -> EntryContent {
    let what = match requirement.kind {
        SubjectKind::Call => "before it runs",
        SubjectKind::Effect => "before its changes are committed",
    };
    let details = json!({
        "operation": id_of(call),
        "rule": requirement.decision.rule,
        "reason": requirement.decision.reason,
        "subjectDigest": requirement.subject_digest,
        "effect": counts(&requirement.effect),
    });
    let message = format!("The call of step `{}` has to be approved {what}", call.step);
    EntryContent::new(AuditLevel::Verbose, Severity::Info, message, details)
}

fn decision_made(id: &OperationId, approval: &str, decision: Decision, reason: &str) -> EntryContent {
    let (word, severity) = match decision {
        Decision::Approved => ("approved", Severity::Info),
        Decision::Denied => ("denied", Severity::Warn),
        Decision::Skipped => ("decided: skip", Severity::Warn),
        Decision::Expired => ("expired", Severity::Warn),
    };
    let details =
        json!({"operation": id_of(id), "approval": approval, "decision": decided(decision), "reason": reason});
    EntryContent::new(AuditLevel::Minimal, severity, because(&format!("Step `{}` {word}", id.step), reason), details)
}

fn wait_started(wait: &OperationId, condition: &WaitCondition) -> EntryContent {
    let (what, kind) = match condition {
        WaitCondition::Time { .. } => ("a time".to_owned(), "TIME"),
        WaitCondition::Signal { signal, .. } => (format!("the signal `{signal}`"), "SIGNAL"),
        WaitCondition::Form { form, .. } | WaitCondition::Question { form, .. } => {
            (format!("an answer to `{}`", form.title), "FORM")
        }
    };
    let until = condition.until().map(|until| until.as_micros() / 1_000);
    let details = json!({"waitsFor": kind, "signal": condition.signal(), "untilUnixMs": until});
    EntryContent::new(AuditLevel::Standard, Severity::Info, format!("Step `{}` waits for {what}", wait.step), details)
}

fn wait_ended(wait: &OperationId, end: &WaitEnd, has_actor: bool) -> EntryContent {
    use AuditLevel::{Minimal, Standard};
    use Severity::{Error, Info, Warn};
    let ended = |level, severity, what: &str, cause: &str| {
        let message = format!("The wait of step `{}` ended: {what}", wait.step);
        EntryContent::new(level, severity, message, json!({"cause": cause}))
    };
    match end {
        WaitEnd::Elapsed => ended(Standard, Info, "its time has come", "ELAPSED"),
        WaitEnd::Signalled { .. } => ended(Standard, Info, "its signal came", "SIGNALLED"),
        WaitEnd::Answered { .. } => ended(Minimal, Info, "a principal answered the form", "ANSWERED"),
        WaitEnd::Declined { decision, reason } => {
            let who = if has_actor { "a principal" } else { "the execution's approval mode" };
            let said = ended(Minimal, Warn, &because(&format!("{who} declined the form"), reason), "DECLINED");
            EntryContent {
                details: json!({"cause": "DECLINED", "decision": decided(*decision), "reason": reason}),
                ..said
            }
        }
        WaitEnd::Refused { message } => {
            ended(Standard, Error, &format!("the approval gate refuses its form: {message}"), "REFUSED")
        }
        WaitEnd::TimedOut => ended(Standard, Warn, "the step's time limit ran out", "TIMED_OUT"),
        WaitEnd::Cancelled => ended(Standard, Warn, "the execution is being stopped", belay_reasons::CANCELLED),
    }
}

fn child_ended(child: &OperationId, end: &ChildEnd) -> EntryContent {
    use AuditLevel::{Minimal, Standard};
    use Severity::{Error, Info, Warn};
    let step = &child.step;
    match end {
        ChildEnd::Completed { .. } => {
            EntryContent::new(Standard, Info, format!("The execution of step `{step}` completed"), json!({}))
        }
        ChildEnd::Failed { failure: failed } => {
            let message = because(&format!("The execution of step `{step}` failed"), &failed.message);
            EntryContent::new(Minimal, Error, message, failure(failed))
        }
        ChildEnd::Cancelled => EntryContent::new(
            Standard,
            Warn,
            format!("The execution of step `{step}` was cancelled with this one"),
            json!({}),
        ),
    }
}

fn call_ended(call: &OperationId, end: &ToolCallEnd) -> EntryContent {
    use AuditLevel::{Standard, Verbose};
    use Severity::{Info, Warn};
    let step = &call.step;
    let failed = |level, word: &str, cause: &Failure, receipt: Option<&Receipt>| {
        let mut details = call_details(call, receipt);
        details["failure"] = failure(cause);
        EntryContent::new(level, Warn, format!("The call of step `{step}` {word}: {}", cause.message), details)
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
                    EntryContent::new(Standard, Info, message, details)
                }
                None => {
                    let took = duration(receipt.duration);
                    EntryContent::new(
                        Verbose,
                        Info,
                        format!("The call of step `{step}` completed after {took}"),
                        details,
                    )
                }
            }
        }
        ToolCallEnd::Failed { failure, receipt } => failed(Verbose, "failed", failure, Some(receipt)),
        ToolCallEnd::Denied { failure, receipt } => failed(Standard, "was denied", failure, Some(receipt)),
        ToolCallEnd::OutcomeUnknown { failure, .. } => failed(Verbose, "has an unknown outcome", failure, None),
        ToolCallEnd::Cancelled { failure: Some(cause), .. } => failed(Verbose, "was discarded", cause, None),
        ToolCallEnd::Cancelled { failure: None, .. } => EntryContent::new(
            Verbose,
            Info,
            format!("The call of step `{step}` was cancelled"),
            call_details(call, None),
        ),
    }
}

fn call_details(call: &OperationId, receipt: Option<&Receipt>) -> Value {
    let mut details = json!({"operation": id_of(call)});
    let Some(receipt) = receipt else { return details };
    details["durationMs"] = millis(receipt.duration).into();
    if let Some(decision) = &receipt.decision {
        details["rule"] = decision.rule.clone().into();
    }
    if let Some(effect) = &receipt.effect {
        details["effect"] = counts(effect);
        details["effectDigest"] = receipt.effect_digest.clone().into();
    }
    details
}

fn counts(effect: &EffectSummary) -> Value {
    json!({"created": effect.created, "modified": effect.modified, "deleted": effect.deleted})
}
