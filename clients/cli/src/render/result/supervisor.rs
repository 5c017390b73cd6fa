//! The result of one agent under supervision: `exit_code`, `error`, `artifacts`, `metadata`.

use belay_proto::v1::execution::State;
use serde_json::{Value, json};

use super::{
    agent,
    recorded::{RecordedExecution, decisive, exit_code, message, tool},
};

/// The whole result, about the step that decided it.
pub(super) fn result(recorded: &RecordedExecution) -> Value {
    let execution = &recorded.execution;
    let step = decisive(execution);
    let exit_code = match execution.state() {
        State::Completed => step.and_then(exit_code).unwrap_or(0),
        _ => step.and_then(exit_code).filter(|code| *code != 0).unwrap_or(1),
    };
    let attempts = step.map_or(0, |step| step.attempt);
    json!({
        "exit_code": exit_code,
        "error": execution.failure.as_ref().map(message),
        "artifacts": agent::artifacts(recorded),
        "metadata": {
            "agent_used": step.map(tool),
            "agent_id": step.map(|step| &step.step_id),
            "retry_count": (attempts - 1).max(0),
            "total_attempts": attempts,
        },
    })
}
