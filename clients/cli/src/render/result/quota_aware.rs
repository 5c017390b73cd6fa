//! The result of one agent's prompt: `success`, `output`, `dry_run`, `exit_code`, `quota_state`.

use belay_proto::v1::{ErrorClass, Failure, execution::State};
use serde_json::{Value, json};

use super::recorded::{RecordedExecution, decisive, exit_code, message, text_of};
use crate::render::json;

/// The exit code of an agent that could not be started.
const NOT_STARTED: i64 = -1;

/// The whole result: that of the last attempt of the step that decided it.
pub(super) fn result(RecordedExecution { execution, .. }: &RecordedExecution) -> Result<Value, json::JsonError> {
    let success = execution.state() == State::Completed;
    let step = decisive(execution);
    let failure = execution.failure.as_ref();
    let exit_code = match failure.map(Failure::error_class) {
        _ if success => step.and_then(exit_code).unwrap_or(0),
        Some(ErrorClass::AgentUnavailable) => NOT_STARTED,
        _ => step.and_then(exit_code).filter(|code| *code != 0).unwrap_or(1),
    };
    let mut result = json!({
        "success": success,
        "output": step.map(text_of).unwrap_or_default(),
        "dry_run": false,
        "exit_code": exit_code,
    });
    if let Some(failure) = failure {
        result["error"] = message(failure).into();
    }
    if let Some(state) = failure.map(quota_state).transpose()?.flatten() {
        result["quota_state"] = state;
    }
    Ok(result)
}

/// The quota as the tool reported it, with a status: `QUOTA_EXHAUSTED` where it named the quota that is used up, else `RATE_LIMITED`.
fn quota_state(failure: &Failure) -> Result<Option<Value>, json::JsonError> {
    if failure.error_class() != ErrorClass::RateLimit && failure.quota.is_none() {
        return Ok(None);
    }
    let (mut state, status) = match &failure.quota {
        Some(quota) => (json::of(quota)?, "QUOTA_EXHAUSTED"),
        None => (json!({}), "RATE_LIMITED"),
    };
    state["status"] = status.into();
    if let Some(after) = &failure.retry_after {
        state["retryAfter"] = json::duration(crate::render::time::duration(after));
    }
    Ok(Some(state))
}
