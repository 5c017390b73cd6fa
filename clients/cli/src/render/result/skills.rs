//! The result of a plan of skills: `status`, `stepResults`, `finalResult`, `error`, `metrics`, `audit`.

use std::collections::BTreeMap;

use belay_proto::v1::{AuditEntry, ErrorClass, Failure, Step, audit_entry::Severity, execution, step::State};
use belay_reasons as reasons;
use serde_json::{Map, Value, json};

use super::recorded::{
    RecordedExecution, final_result, lasted, message, milliseconds, output, own_tools, planned_id, steps_of_plan, tool,
    when,
};
use crate::render::{json, time};

/// The whole result.
pub(super) fn result(recorded: &RecordedExecution) -> Result<Value, json::JsonError> {
    let execution = &recorded.execution;
    let mut steps = Map::new();
    for step in &execution.steps {
        steps.insert(step.step_id.clone(), step_result(recorded, step)?);
    }
    let mut result = json!({
        "executionId": crate::names::id(&execution.name),
        "planId": execution.plan_id,
        "status": status(execution.state()),
        "stepResults": steps,
        "metrics": metrics(recorded),
        "audit": { "entries": recorded.audit.iter().map(audit_entry).collect::<Vec<_>>() },
    });
    if let Some(value) = final_result(execution) {
        result["finalResult"] = value;
    }
    match &execution.failure {
        Some(failure) => result["error"] = error(recorded, failure)?,
        None if execution.state() == execution::State::TimedOut => {
            let message = "the execution ran out of the time that its plan allows";
            result["error"] = json!({ "code": reasons::TIMEOUT, "message": message, "recoverable": true });
        }
        None => {}
    }
    Ok(result)
}

fn audit_entry(entry: &AuditEntry) -> Value {
    let level = match entry.severity() {
        Severity::Unspecified | Severity::Info => "info",
        Severity::Warn => "warn",
        Severity::Error => "error",
    };
    let mut said = json!({ "level": level, "message": entry.message });
    if let Some(time) = &entry.record_time {
        said["timestamp"] = when(time);
    }
    if !entry.step_id.is_empty() {
        said["stepId"] = entry.step_id.as_str().into();
    }
    if let Ok(details) = serde_json::from_str::<Value>(&entry.details) {
        said["details"] = details;
    }
    said
}

fn step_result(recorded: &RecordedExecution, step: &Step) -> Result<Value, json::JsonError> {
    let mut result = json!({
        "stepId": step.step_id,
        "skillId": tool(step),
        "status": step_status(step.state()),
        "input": recorded.calls.input(&step.step_id),
        "attempts": step.attempt,
        "duration": match step.start_time {
            Some(_) => milliseconds(step.start_time.as_ref(), step.end_time.as_ref(), recorded.now),
            None => 0,
        },
    });
    // A step that ended without a start took no time, at its end.
    if let Some(start) = step.start_time.as_ref().or(step.end_time.as_ref()) {
        result["startTime"] = when(start);
    }
    if let Some(end) = &step.end_time {
        result["endTime"] = when(end);
    }
    if let Some(value) = output(step) {
        result["output"] = value;
    }
    if let Some(source) = &step.cached_result {
        let age = source.age.as_ref().map(time::duration).unwrap_or_default();
        result["cached"] = true.into();
        result["cacheAge"] = u64::try_from(age.as_millis()).unwrap_or(u64::MAX).into();
    }
    if let Some(failure) = step.failure.as_ref().filter(|_| step.state() == State::Failed) {
        result["error"] = error(recorded, failure)?;
    }
    Ok(result)
}

fn status(state: execution::State) -> &'static str {
    use execution::State as Of;
    match state {
        Of::Unspecified | Of::Pending => "pending",
        Of::Running | Of::AwaitingApproval | Of::Paused | Of::Cancelling => "running",
        Of::Completed => "completed",
        Of::Partial => "partial",
        Of::Failed => "failed",
        Of::Cancelled => "cancelled",
        Of::TimedOut => "timeout",
    }
}

fn step_status(state: State) -> &'static str {
    match state {
        State::Unspecified | State::Pending | State::Ready => "pending",
        State::Running | State::AwaitingApproval | State::BackingOff | State::OutcomeUnknown | State::Waiting => {
            "running"
        }
        // What it did was done, and is undone by a step of its own.
        State::Completed | State::Compensating | State::Compensated => "completed",
        State::Failed => "failed",
        State::Skipped | State::Cancelled => "skipped",
    }
}

fn error(recorded: &RecordedExecution, failure: &Failure) -> Result<Value, json::JsonError> {
    let is_parallel = recorded.execution.plan.as_ref().is_some_and(|plan| plan.parallelism > 1);
    let code = match failure.error_class() {
        ErrorClass::RateLimit => "RATE_LIMIT_EXCEEDED",
        ErrorClass::Timeout => reasons::TIMEOUT,
        ErrorClass::PreconditionFailed => reasons::PRECONDITION_FAILED,
        // A step that ran beside others and did not come to an end of its own: its skill has not failed.
        ErrorClass::Crash | ErrorClass::OutcomeUnknown | ErrorClass::Internal if is_parallel => {
            "PARALLEL_EXECUTION_FAILED"
        }
        _ => "SKILL_EXECUTION_FAILED",
    };
    Ok(json!({
        "code": code,
        "message": message(failure),
        "recoverable": failure.retryable,
        "details": json::of(failure)?,
    }))
}

/// The calls of tools, and the tokens and the cost of models (S4-30).
fn resource_usage(recorded: &RecordedExecution, calls: u64) -> Value {
    let spent = recorded.execution.spent.unwrap_or_default();
    let mut usage = json!({ "apiCalls": calls });
    if spent.tokens > 0 {
        usage["tokensUsed"] = spent.tokens.into();
        usage["costUSD"] = (spent.cost_micros as f64 / 1e6).into();
    }
    usage
}

fn metrics(recorded: &RecordedExecution) -> Value {
    // A step that undoes another is none of the plan's.
    let steps = || steps_of_plan(&recorded.execution).filter(|step| step.compensates.is_empty());
    let count = |status: &str| steps().filter(|step| step_status(step.state()) == status).count();
    let (own, mut invoked, mut calls) = (own_tools(&recorded.execution), BTreeMap::new(), 0);
    for step in &recorded.execution.steps {
        for (fallback, made) in recorded.calls.counts(&step.step_id) {
            let planned = || own.get(planned_id(step)).copied();
            *invoked.entry(fallback.or_else(planned).unwrap_or_else(|| tool(step))).or_insert(0_u64) += made;
            calls += made;
        }
    }
    json!({
        "totalSteps": steps().count(),
        "completedSteps": count("completed"),
        "failedSteps": count("failed"),
        "skippedSteps": count("skipped"),
        "totalDuration": lasted(recorded),
        "skillsInvoked": invoked,
        "resourceUsage": resource_usage(recorded, calls),
    })
}
