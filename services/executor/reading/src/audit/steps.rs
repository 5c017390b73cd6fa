//! Entries about attempts at steps.

use belay_execution::{Resolution, SkipReason, StepEvent, StepId};
use belay_plan::AuditLevel;
use serde_json::json;

use belay_execution::words::{Severity, Words, because, counted, duration, failure, millis};

pub(super) fn step(step: &StepId, attempt: u32, event: &StepEvent) -> Words {
    use AuditLevel::{Minimal, Standard};
    use Severity::{Error, Info, Warn};
    let by_principal =
        |what: &str, reason: &str| Words::new(Minimal, Info, because(what, reason), json!({"reason": reason}));
    let attempts = counted(attempt as usize, "attempt");
    match event {
        StepEvent::Started => {
            let message = match attempt {
                1 => format!("Step `{step}` started"),
                attempt => format!("Step `{step}` started, attempt {attempt}"),
            };
            Words::new(Standard, Info, message, json!({"attempt": attempt}))
        }
        StepEvent::RetryScheduled { failure: cause, retry_count, delay, not_before } => {
            let message = format!(
                "Step `{step}` failed in attempt {attempt} and is tried again after {}: {}",
                duration(*delay),
                cause.message
            );
            let details = json!({
                "attempt": attempt,
                "retryCount": retry_count,
                "delayMs": millis(*delay),
                "notBeforeUnixMs": not_before.as_micros() / 1_000,
                "failure": failure(cause),
            });
            Words::new(Standard, Warn, message, details)
        }
        StepEvent::FallbackSwitched { failure: cause, from, to, reason } => {
            let message =
                format!("The call of `{from}` of step `{step}` failed, and `{to}` takes its place: {}", cause.message);
            let details =
                json!({"attempt": attempt, "from": from, "to": to, "reason": reason, "failure": failure(cause)});
            Words::new(Standard, Warn, message, details)
        }
        StepEvent::CachedResultUsed { failure: cause, result, source } => {
            let age = duration(source.age);
            let message = format!(
                "The call of step `{step}` failed, and its earlier result is used, which is {age} old: {}",
                cause.message
            );
            let details = json!({
                "attempt": attempt,
                "cached": true,
                "ageMs": millis(source.age),
                "execution": source.execution,
                "resultBytes": result.size(),
                "failure": failure(cause),
            });
            Words::new(Standard, Warn, message, details)
        }
        StepEvent::ItemsListed { first, items } => {
            let more = if *first > 0 { "more " } else { "" };
            let message = format!("Step `{step}` runs as {} of its own", counted(items.len(), &format!("{more}step")));
            Words::new(Standard, Info, message, json!({"items": items.len(), "first": first}))
        }
        StepEvent::ItemsCollected { output } => {
            let details = json!({"outputBytes": output.size()});
            Words::new(Standard, Info, format!("Step `{step}` has the outputs of all its steps"), details)
        }
        StepEvent::Completed { duration: took, .. } => {
            let details = json!({"attempts": attempt, "durationMs": millis(*took)});
            let message = match attempt {
                0 | 1 => format!("Step `{step}` completed after {}", duration(*took)),
                _ => format!("Step `{step}` completed after {}, in {attempts}", duration(*took)),
            };
            Words::new(Minimal, Info, message, details)
        }
        StepEvent::Failed { failure: cause, .. } => {
            let details = json!({"attempts": attempt, "failure": failure(cause)});
            Words::new(Minimal, Error, format!("Step `{step}` failed after {attempts}: {}", cause.message), details)
        }
        StepEvent::Skipped { reason, because: on, group, .. } => {
            let (why, severity) = skipped(*reason);
            let on = on.as_ref().map(|on| on.as_str());
            let which = on.map(|on| format!(" (step `{on}`)")).unwrap_or_default();
            let mut details = json!({"reason": name(*reason), "because": on});
            let of_group = group.as_ref().map(|group| format!(" of the group `{group}`")).unwrap_or_default();
            if let Some(group) = group {
                details["group"] = group.as_str().into();
            }
            Words::new(Minimal, severity, format!("Step `{step}` skipped: {why}{of_group}{which}"), details)
        }
        StepEvent::Cancelled { .. } => {
            Words::new(Minimal, Warn, format!("Step `{step}` cancelled"), json!({"attempts": attempt}))
        }
        StepEvent::OutcomeUnknown { failure: cause } => {
            let message = format!("It is not known whether step `{step}` took effect: {}", cause.message);
            Words::new(Minimal, Error, message, json!({"attempt": attempt, "failure": failure(cause)}))
        }
        StepEvent::Resolved { resolution, reason } => {
            let (word, found) = match resolution {
                Resolution::Completed(_) => ("COMPLETED", "to have completed"),
                Resolution::Failed => ("FAILED", "to have failed"),
                Resolution::Again => ("AGAIN", "safe to run again"),
            };
            let message = because(&format!("The call of step `{step}` was found {found}"), reason);
            Words::new(Minimal, Info, message, json!({"resolution": word, "reason": reason}))
        }
        StepEvent::SkipRequested { reason } => by_principal(&format!("Step `{step}` is to be skipped"), reason),
        StepEvent::OutputSet { output, reason } => {
            let details = json!({"outputBytes": output.as_str().len(), "reason": reason});
            Words::new(Minimal, Info, because(&format!("The output of step `{step}` was given"), reason), details)
        }
        StepEvent::ConversationCarriedOver { conversation, turns, layers, spent: _, reason } => {
            let details = json!({
                "turns": turns,
                "conversationBytes": conversation.size(),
                "layers": layers.as_ref().map_or(0, |carried| carried.layers.len()),
                "reason": reason,
            });
            let message = format!("Step `{step}` begins with {turns} turns of another execution");
            Words::new(Minimal, Info, because(&message, reason), details)
        }
        StepEvent::RetryAdvanced { reason } => {
            by_principal(&format!("The next attempt of step `{step}` starts now"), reason)
        }
        StepEvent::RetryCancelled { reason } => {
            by_principal(&format!("The next attempt of step `{step}` was cancelled"), reason)
        }
    }
}

fn skipped(reason: SkipReason) -> (&'static str, Severity) {
    match reason {
        SkipReason::DependencyFailed => ("a step it depends on failed", Severity::Warn),
        SkipReason::DependencySkipped => ("a step it depends on was skipped or cancelled", Severity::Warn),
        SkipReason::StopOnError => ("another step failed", Severity::Warn),
        SkipReason::Cancelled => ("the execution was cancelled", Severity::Warn),
        SkipReason::TimedOut => ("the execution ran out of time", Severity::Warn),
        SkipReason::ApprovalSkipped => ("its approval was decided so", Severity::Warn),
        SkipReason::NonInteractive => ("it requires approval, and this run cannot ask", Severity::Warn),
        SkipReason::Requested => ("a principal requested it", Severity::Info),
        SkipReason::NotListed => ("its list has become shorter", Severity::Info),
        SkipReason::PlanUpdated => ("the plan no longer has it", Severity::Info),
        SkipReason::ConditionFalse => ("its condition does not hold", Severity::Info),
    }
}

/// The reason as the contract names it.
fn name(reason: SkipReason) -> &'static str {
    match reason {
        SkipReason::DependencyFailed => "DEPENDENCY_FAILED",
        SkipReason::DependencySkipped => "DEPENDENCY_SKIPPED",
        SkipReason::StopOnError => "STOP_ON_ERROR",
        SkipReason::ConditionFalse => "CONDITION_FALSE",
        SkipReason::Cancelled => belay_reasons::CANCELLED,
        SkipReason::TimedOut => "TIMED_OUT",
        SkipReason::ApprovalSkipped => belay_reasons::APPROVAL_SKIPPED,
        SkipReason::NonInteractive => belay_reasons::NON_INTERACTIVE,
        SkipReason::Requested => "REQUESTED",
        SkipReason::PlanUpdated => "PLAN_UPDATED",
        SkipReason::NotListed => "NOT_LISTED",
    }
}
