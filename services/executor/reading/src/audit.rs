//! The audit log of an execution, derived from its events: one entry for each, and at which level it is wanted. Nothing about it is stored, so that nothing
//! can differ from the events.

mod steps;

use belay_execution::{
    Actor, Body, BudgetLevel, BudgetReport, BudgetUnit, EscalationRetry, Event, ExecutionEvent, ExecutionState,
    Finished, OperationId, StepId, Subject, Timestamp, Workspace,
};
use belay_plan::AuditLevel;
use serde_json::{Value, json};

pub use belay_execution::words::Severity;
use belay_execution::words::{Words, because, counted, duration, failure, millis, operation};

/// An entry of the audit log, with the secrets that the event has.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The sequence of the event.
    pub sequence: u64,
    /// When it happened.
    pub time: Timestamp,
    /// How grave it is.
    pub severity: Severity,
    /// The lowest level at which it is listed.
    pub level: AuditLevel,
    /// The step that it is about, if it is about one.
    pub step: Option<StepId>,
    /// The step's attempt; 0 before its first.
    pub attempt: u32,
    /// Description of the event, for people.
    pub message: String,
    /// Details of the event, for programs: an object, which is empty when there is nothing else to say.
    pub details: Value,
    /// The actor who asked for it.
    pub actor: Option<Actor>,
}

/// The entry of an event.
pub fn entry(event: &Event) -> Entry {
    let said = match &event.body {
        Body::Execution(body) => execution(body),
        Body::Step { step, attempt, event: body } => steps::step(step, *attempt, body),
        Body::Operation { id, event: body } => body.words(id, event.actor.is_some()),
    };
    let (step, attempt) = match event.body.subject() {
        Subject::Execution => (None, 0),
        Subject::Step { step, attempt } => (Some(step), attempt),
        Subject::Operation(OperationId { step, attempt, .. }) => (Some(step), *attempt),
    };
    Entry {
        sequence: event.sequence,
        time: event.time,
        severity: said.severity,
        level: said.level,
        step: step.cloned(),
        attempt,
        message: said.message,
        details: said.details,
        actor: event.actor.clone(),
    }
}

fn execution(event: &ExecutionEvent) -> Words {
    use AuditLevel::{Minimal, Standard};
    use Severity::{Info, Warn};
    match event {
        ExecutionEvent::Created(created) => {
            let plan = &created.plan;
            let (kind, place) = match &created.workspace {
                Workspace::Directory(path) => ("workspace", path),
                Workspace::MadeFolder(id) => ("made_folder", id),
            };
            let mut details = json!({"plan": plan.id(), "steps": plan.steps().len(), kind: place});
            if !created.labels.is_empty() {
                details["labels"] = json!(created.labels);
            }
            let message = format!("Execution accepted: plan `{}`, {}", plan.id(), counted(plan.steps().len(), "step"));
            Words::new(Minimal, Info, message, details)
        }
        ExecutionEvent::Started => Words::new(Minimal, Info, "Execution started", json!({})),
        ExecutionEvent::Paused { reason, discard_calls, resume_at, .. } => {
            let resume_time = resume_at.map(|at| at.as_micros());
            let details = json!({"reason": reason, "discardCalls": discard_calls, "resumeAtMicros": resume_time});
            Words::new(Minimal, Info, because("Execution paused", reason), details)
        }
        ExecutionEvent::Resumed => Words::new(Minimal, Info, "Execution resumed", json!({})),
        ExecutionEvent::CancelRequested { reason, kill } => {
            let asked = if *kill { "Kill requested" } else { "Cancellation requested" };
            Words::new(Minimal, Warn, because(asked, reason), json!({"reason": reason, "kill": kill}))
        }
        ExecutionEvent::SignalReceived(received) => {
            let details = json!({"signal": received.signal, "payloadBytes": received.payload.as_str().len()});
            Words::new(Minimal, Info, format!("Signal `{}` received", received.signal), details)
        }
        ExecutionEvent::Recovered { in_doubt } => {
            let named: Vec<String> = in_doubt.iter().map(operation).collect();
            let message = format!(
                "An executor took over the execution; {} had no recorded end",
                counted(named.len(), "operation")
            );
            Words::new(Standard, Warn, message, json!({"inDoubt": named}))
        }
        ExecutionEvent::Retried(retried) => {
            let request = &retried.request;
            let steps: Vec<&str> = retried.steps.iter().map(|step| step.as_str()).collect();
            let again = format!("{} to run again", counted(steps.len(), "step"));
            let escalation = retried.escalation.map(|retry| {
                let EscalationRetry { number, retries, resume_at } = retry;
                json!({"number": number, "retries": retries, "resumeAtMicros": resume_at.as_micros()})
            });
            let message = match retried.escalation {
                Some(EscalationRetry { number, retries, .. }) => {
                    format!("Escalated to retry {number} of {retries} of what has failed: {again}")
                }
                None => because(&again, &request.reason),
            };
            let from = request.from.as_ref().map(|step| step.as_str());
            let details = json!({
                "steps": steps,
                "fromStep": from,
                "skipFailed": request.skip_failed,
                "startPaused": request.start_paused,
                "planDigest": request.plan_digest,
                "reason": request.reason,
                "escalation": escalation,
            });
            let severity = if retried.escalation.is_some() { Warn } else { Info };
            Words::new(Minimal, severity, message, details)
        }
        ExecutionEvent::PlanUpdated(updated) => {
            let details =
                json!({"revision": updated.revision, "steps": updated.plan.steps().len(), "reason": updated.reason});
            Words::new(Minimal, Info, because("Plan changed", &updated.reason), details)
        }
        ExecutionEvent::BudgetReported(report) => self::budget_reported(report),
        ExecutionEvent::CompensationStarted { steps } => {
            let steps: Vec<&str> = steps.iter().map(|step| step.as_str()).collect();
            let message = format!("What {} did is undone", counted(steps.len(), "step"));
            Words::new(Minimal, Warn, message, json!({"steps": steps}))
        }
        ExecutionEvent::DeadlineExceeded => {
            Words::new(Minimal, Warn, "The time limit of the execution ran out", json!({}))
        }
        ExecutionEvent::LimitsRequested => {
            Words::new(Standard, Info, "Waits for its turn in its limits over executions", json!({}))
        }
        ExecutionEvent::LimitsAcquired => Words::new(Standard, Info, "Holds its limits over executions", json!({})),
        ExecutionEvent::AwaitingApproval => {
            Words::new(Standard, Info, "No step can make progress until an approval is decided", json!({}))
        }
        ExecutionEvent::Finished(finished) => self::finished(finished),
    }
}

fn budget_reported(report: &BudgetReport) -> Words {
    let BudgetReport { level, unit, step, spent, limit } = report;
    let whose = match step {
        Some(step) => format!("The budget of step `{step}`"),
        None => "The budget of the execution".to_owned(),
    };
    let unit_name = match unit {
        BudgetUnit::Calls => "CALLS",
        BudgetUnit::OutputBytes => "OUTPUT_BYTES",
        BudgetUnit::Tokens => "TOKENS",
        BudgetUnit::CostMicros => "COST_MICROS",
    };
    let (listed, severity, what) = match level {
        BudgetLevel::Warning => (AuditLevel::Standard, Severity::Warn, "is nearly used up"),
        BudgetLevel::Exceeded => (AuditLevel::Minimal, Severity::Error, "is used up"),
        BudgetLevel::Overrun => (AuditLevel::Minimal, Severity::Error, "is overrun"),
    };
    let message = format!("{whose} {what}: {}", unit.in_words(*spent, *limit));
    let step = step.as_ref().map(|step| step.as_str());
    Words::new(
        listed,
        severity,
        message,
        json!({"unit": unit_name, "budgetStep": step, "spent": spent, "limit": limit}),
    )
}

fn finished(finished: &Finished) -> Words {
    let (state, word, severity) = match finished.state {
        ExecutionState::Completed => ("COMPLETED", "completed", Severity::Info),
        ExecutionState::Partial => ("PARTIAL", "ended in part", Severity::Warn),
        ExecutionState::Cancelled => (belay_reasons::CANCELLED, "was cancelled", Severity::Warn),
        ExecutionState::Failed => ("FAILED", "failed", Severity::Error),
        ExecutionState::TimedOut => ("TIMED_OUT", "timed out", Severity::Error),
        // No execution ends in one of these.
        ExecutionState::Pending => ("PENDING", "ended", Severity::Warn),
        ExecutionState::Running => ("RUNNING", "ended", Severity::Warn),
        ExecutionState::AwaitingApproval => ("AWAITING_APPROVAL", "ended", Severity::Warn),
        ExecutionState::Paused => ("PAUSED", "ended", Severity::Warn),
        ExecutionState::Cancelling => ("CANCELLING", "ended", Severity::Warn),
    };
    let totals = finished.totals;
    let steps = format!(
        "{} completed, {} failed, {} skipped, {} cancelled",
        totals.completed, totals.failed, totals.skipped, totals.cancelled
    );
    let details = json!({
        "state": state,
        "durationMs": millis(finished.duration),
        "total": totals.total,
        "completed": totals.completed,
        "failed": totals.failed,
        "skipped": totals.skipped,
        "cancelled": totals.cancelled,
        "failure": finished.failure.as_ref().map(failure),
    });
    let message = format!("Execution {word} after {}: {steps}", duration(finished.duration));
    Words::new(AuditLevel::Minimal, severity, message, details)
}

#[cfg(test)]
mod tests;
