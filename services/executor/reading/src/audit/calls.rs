//! Entries about calls of tools.

use belay_execution::{EffectSummary, Failure, OperationId, Receipt, SubjectKind, ToolCallEnd, ToolCallEvent};
use belay_plan::AuditLevel;
use serde_json::{Value, json};

use super::said::{Said, Severity, duration, failure, millis, operation};

pub(super) fn call(call: &OperationId, event: &ToolCallEvent) -> Said {
    use AuditLevel::Verbose;
    use Severity::Info;
    let step = &call.step;
    match event {
        ToolCallEvent::Requested(request) => {
            let details = json!({
                "operation": operation(call),
                "tool": request.tool,
                "argumentsDigest": request.arguments_digest,
                "argumentsBytes": request.arguments.size(),
                "timeoutMs": millis(request.timeout),
            });
            Said::new(Verbose, Info, format!("Step `{step}` calls `{}`", request.tool), details)
        }
        ToolCallEvent::Held(requirement) => {
            let what = match requirement.kind {
                SubjectKind::Call => "before it runs",
                SubjectKind::Effect => "before its changes are committed",
            };
            let details = json!({
                "operation": operation(call),
                "rule": requirement.decision.rule,
                "reason": requirement.decision.reason,
                "subjectDigest": requirement.subject_digest,
                "effect": counts(&requirement.effect),
            });
            Said::new(Verbose, Info, format!("The call of step `{step}` has to be approved {what}"), details)
        }
        ToolCallEvent::Dispatched => {
            let details = json!({"operation": operation(call)});
            Said::new(Verbose, Info, format!("The approved call of step `{step}` is sent"), details)
        }
        ToolCallEvent::Ended(end) => ended(call, end),
    }
}

fn ended(call: &OperationId, end: &ToolCallEnd) -> Said {
    use AuditLevel::{Standard, Verbose};
    use Severity::{Info, Warn};
    let step = &call.step;
    let failed = |level, word: &str, cause: &Failure, receipt: Option<&Receipt>| {
        let mut details = details(call, receipt);
        details["failure"] = failure(cause);
        Said::new(level, Warn, format!("The call of step `{step}` {word}: {}", cause.message), details)
    };
    match end {
        ToolCallEnd::Completed { result, receipt } => {
            let mut details = details(call, Some(receipt));
            details["resultBytes"] = result.size().into();
            match &receipt.effect {
                Some(effect) => {
                    let EffectSummary { created, modified, deleted, .. } = effect;
                    let message = format!(
                        "The call of step `{step}` committed its changes: {created} created, {modified} modified, {deleted} deleted"
                    );
                    Said::new(Standard, Info, message, details)
                }
                None => {
                    let took = duration(receipt.duration);
                    Said::new(Verbose, Info, format!("The call of step `{step}` completed after {took}"), details)
                }
            }
        }
        ToolCallEnd::Failed { failure, receipt } => failed(Verbose, "failed", failure, Some(receipt)),
        ToolCallEnd::Denied { failure, receipt } => failed(Standard, "was denied", failure, Some(receipt)),
        ToolCallEnd::OutcomeUnknown { failure, .. } => failed(Verbose, "has an unknown outcome", failure, None),
        ToolCallEnd::Cancelled { failure: Some(cause), .. } => failed(Verbose, "was discarded", cause, None),
        ToolCallEnd::Cancelled { failure: None, .. } => {
            Said::new(Verbose, Info, format!("The call of step `{step}` was cancelled"), details(call, None))
        }
    }
}

fn details(call: &OperationId, receipt: Option<&Receipt>) -> Value {
    let mut details = json!({"operation": operation(call)});
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
