//! The result of a plan with working memory: the artifacts, each with its provenance, and the status of the plan and of each step.

use std::collections::{HashMap, HashSet};

use belay_proto::v1::{ErrorClass, Failure, Step, execution, step::State};
use serde_json::{Value, json};

use super::recorded::{RecordedExecution, completed, dependencies, message, output, planned_id, specs, tool, when};

/// The whole result.
pub(super) fn result(RecordedExecution { execution, .. }: &RecordedExecution) -> Value {
    let ids: HashSet<&str> = completed(execution).map(|step| step.step_id.as_str()).collect();
    let from: HashMap<&str, Vec<String>> =
        specs(execution).map(|spec| (spec.id.as_str(), dependencies(spec, &ids))).collect();
    let name = |id: &str| format!("{}/steps/{id}", execution.name);
    // What reads a list is made from what was made for each entry.
    let mut entries: HashMap<&str, Vec<&str>> = HashMap::new();
    for step in completed(execution) {
        if let Some(item) = &step.item {
            entries.entry(&item.step_id).or_default().push(&step.step_id);
        }
    }
    let artifact = |step: &Step| {
        let of_entries = entries.get(step.step_id.as_str()).into_iter().flatten().map(|entry| name(entry));
        let before = from.get(planned_id(step)).into_iter().flatten().map(|before| name(before));
        let depends_on: Vec<String> = before.chain(of_entries).collect();
        json!({
            "artifact_id": name(&step.step_id),
            "tool": tool(step),
            "content": output(step),
            "created_at": step.end_time.as_ref().map(when),
            "provenance": { "created_by": step.step_id, "depends_on": depends_on },
        })
    };
    let steps: Vec<Value> = execution.steps.iter().map(of_step).collect();
    let mut plan = json!({ "plan_id": execution.plan_id, "status": plan_status(execution.state()) });
    if let Some(failure) = &execution.failure {
        plan["error"] = error(failure);
    }
    json!({ "artifacts": completed(execution).map(artifact).collect::<Vec<_>>(), "plan": plan, "steps": steps })
}

/// The names of the artifacts.
pub(super) fn artifacts(RecordedExecution { execution, .. }: &RecordedExecution) -> Vec<String> {
    completed(execution).map(|step| format!("{}/steps/{}", execution.name, step.step_id)).collect()
}

fn of_step(step: &Step) -> Value {
    let mut value = json!({ "step_id": step.step_id, "status": step_status(step.state()) });
    if let Some(failure) = step.failure.as_ref().filter(|_| step.state() == State::Failed) {
        value["error"] = error(failure);
    }
    value
}

fn error(failure: &Failure) -> Value {
    let kind = match failure.error_class() {
        ErrorClass::Timeout => "TimeoutError",
        _ => "ExecutionError",
    };
    json!({ "type": kind, "message": message(failure) })
}

/// A plan has failed when a step exhausted its attempts, also where the others completed.
fn plan_status(state: execution::State) -> &'static str {
    use execution::State as Of;
    match state {
        Of::Unspecified | Of::Pending => "PENDING",
        Of::Running | Of::AwaitingApproval | Of::Paused | Of::Cancelling => "RUNNING",
        Of::Completed => "COMPLETED",
        Of::Partial | Of::Failed | Of::Cancelled | Of::TimedOut => "FAILED",
    }
}

fn step_status(state: State) -> &'static str {
    match state {
        State::Unspecified | State::Pending | State::Ready => "PENDING",
        State::Running | State::AwaitingApproval | State::BackingOff | State::OutcomeUnknown | State::Waiting => {
            "RUNNING"
        }
        State::Completed | State::Compensating | State::Compensated => "COMPLETED",
        State::Failed => "FAILED",
        State::Skipped | State::Cancelled => "SKIPPED",
    }
}
