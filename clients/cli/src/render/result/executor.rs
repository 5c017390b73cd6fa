//! The result of an executor stage: `status`, `step_results`, `metrics`, `next_stage`.

use std::collections::HashMap;

use belay_proto::v1::{ErrorClass, Execution, Failure, Step, execution, step::State};
use serde_json::{Value, json};

use super::recorded::{RecordedExecution, lasted, message, output, steps_of_plan};
use crate::{
    exit::{Exit, has_had_all_turns},
    follow::is_over,
};

/// The stage that continues after an execution that completed.
const NEXT_STAGE: &str = "verifier";

/// The whole result.
pub(super) fn result(recorded: &RecordedExecution) -> Value {
    let execution = &recorded.execution;
    let is_complete = execution.state() == execution::State::Completed;
    let numbers = Numbers::of(execution);
    let results: Vec<Value> = steps_of_plan(execution).map(|step| step_result(step, &numbers)).collect();
    let executed = steps_of_plan(execution).filter(|step| step.attempt > 0).count();
    let tokens = execution.spent.as_ref().map_or(0, |spent| spent.tokens);
    let mut result = json!({
        "status": stage_status(execution.state()),
        "output": {
            "all_complete": is_complete,
            "step_results": results,
            "metrics": { "duration_ms": lasted(recorded), "tokens": tokens },
        },
        "next_stage": is_complete.then_some(NEXT_STAGE),
        "message": format!("{executed} steps executed"),
        "metrics": { "stage": "executor", "duration_ms": lasted(recorded) },
    });
    if let Some(exit) = exit_code(execution) {
        result["exit_code"] = exit.into();
    }
    result
}

/// The exit code of `belay run`, once the execution has ended.
fn exit_code(execution: &Execution) -> Option<u8> {
    is_over(execution.state()).then(|| Exit::of_execution(execution).0)
}

/// The numbers of steps as a stage counts them, from 1: of the task, which is a group of the plan, and of the step in it. Steps in no group are one task.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    by_id: HashMap<String, (usize, usize)>,
    /// The number of steps that were counted.
    pub(super) counted: usize,
}

impl Numbers {
    /// The numbers of an execution's steps, in the order of the plan.
    pub(super) fn of(execution: &Execution) -> Numbers {
        let groups: HashMap<&str, &str> = execution
            .plan
            .iter()
            .flat_map(|plan| &plan.steps)
            .map(|step| (step.id.as_str(), step.group.as_str()))
            .collect();
        let mut tasks: HashMap<&str, (usize, usize)> = HashMap::new();
        let mut by_id = HashMap::with_capacity(execution.steps.len());
        for step in &execution.steps {
            let next = tasks.len() + 1;
            let group = groups.get(step.step_id.as_str()).copied().unwrap_or_default();
            let (task, steps) = tasks.entry(group).or_insert((next, 0));
            *steps += 1;
            by_id.insert(step.step_id.clone(), (*task, *steps));
        }
        Numbers { by_id, counted: execution.steps.len() }
    }

    /// The task and the step; `None` for a step that is not one of the plan.
    pub(super) fn step(&self, id: &str) -> Option<(usize, usize)> {
        self.by_id.get(id).copied()
    }
}

fn step_result(step: &Step, numbers: &Numbers) -> Value {
    let (task, number) = numbers.step(&step.step_id).unwrap_or((1, 0));
    let mut result = json!({
        "task": task,
        "step": number,
        "step_id": step.step_id,
        "title": title(step),
        "status": step_status(step),
    });
    if let Some(value) = output(step) {
        result["output"] = value;
    }
    if let Some(failure) = step.failure.as_ref().filter(|_| step.state() == State::Failed) {
        result["message"] = message(failure).into();
        result["error_code"] = error_code(failure).into();
    }
    result
}

/// The step's title, or its id where the plan has none.
pub(super) fn title(step: &Step) -> &str {
    if step.title.is_empty() { &step.step_id } else { &step.title }
}

/// The status of the stage.
pub(super) fn stage_status(state: execution::State) -> &'static str {
    match state {
        execution::State::Completed => "success",
        state if is_over(state) => "failed",
        _ => "running",
    }
}

fn step_status(step: &Step) -> &'static str {
    match step.state() {
        State::Unspecified | State::Pending | State::Ready => "pending",
        State::Running | State::AwaitingApproval | State::BackingOff | State::OutcomeUnknown | State::Waiting => {
            "running"
        }
        State::Completed | State::Compensating | State::Compensated => "success",
        State::Failed => step.failure.as_ref().map_or("failed", failed),
        State::Skipped => "skipped",
        State::Cancelled => "cancelled",
    }
}

/// The status of a step that failed: a fatal failure stops the execution.
pub(super) fn failed(failure: &Failure) -> &'static str {
    if failure.error_class() == ErrorClass::Fatal { "fatal" } else { "failed" }
}

/// The error code of a failure's class.
pub(super) fn error_code(failure: &Failure) -> &'static str {
    if has_had_all_turns(failure) {
        return "ACODE-EXEC-003";
    }
    match failure.error_class() {
        ErrorClass::RateLimit | ErrorClass::Transient => "ACODE-EXEC-002",
        ErrorClass::SandboxViolation => "ACODE-EXEC-004",
        ErrorClass::ApprovalDenied | ErrorClass::PolicyDenied => "ACODE-EXEC-005",
        ErrorClass::Timeout => "ACODE-EXEC-006",
        ErrorClass::InvalidArguments | ErrorClass::InvalidResult => "ACODE-EXEC-007",
        ErrorClass::Unspecified
        | ErrorClass::Crash
        | ErrorClass::Fatal
        | ErrorClass::AgentUnavailable
        | ErrorClass::PreconditionFailed
        | ErrorClass::PostconditionFailed
        | ErrorClass::BudgetExhausted
        | ErrorClass::Cancelled
        | ErrorClass::OutcomeUnknown
        | ErrorClass::Internal => "ACODE-EXEC-001",
    }
}
