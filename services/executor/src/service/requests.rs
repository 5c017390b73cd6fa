//! Cancel, pause, resume, signal and resolve: each is one command to the execution's driver.

use std::sync::Arc;

use belay_execution::{Actor, Control, Json, Resolution, Timestamp};
use belay_plan::{
    is_signal_name,
    limits::{MAX_ARGUMENT_BYTES, MAX_DURATION, MAX_SIGNAL_CHARS},
};
use belay_proto::v1::{self, payload::Content};
use belay_reasons as reasons;
use belay_service_kit::{Principal, Role, status};
use tokio::sync::oneshot;
use tonic::{Code, Request, Status};

use crate::{
    ExecutionRegistry,
    names::{ExecutionName, step_name},
    owned::messages::Command,
};

pub(super) async fn cancel_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::CancelExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::CancelExecutionRequest { name, reason, etag, request_id, kill } = request.into_inner();
    check("reason", &reason)?;
    ask(registry, &caller, &name, Control::Cancel { reason, kill }, etag, request_id).await
}

pub(super) async fn pause_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::PauseExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::PauseExecutionRequest { name, reason, etag, request_id, discard_calls, resume_time } = request.into_inner();
    check("reason", &reason)?;
    let resume_at = resume_time.as_ref().map(|time| Timestamp::from_micros(belay_proto::micros(time)));
    if resume_at.is_some_and(|at| at.since(registry.now()) > MAX_DURATION) {
        return Err(status::invalid("resume_time", "must be at most 365 days from now").into());
    }
    ask(registry, &caller, &name, Control::Pause { reason, discard_calls, resume_at }, etag, request_id).await
}

pub(super) async fn resume_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::ResumeExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::ResumeExecutionRequest { name, etag, request_id } = request.into_inner();
    ask(registry, &caller, &name, Control::Resume, etag, request_id).await
}

pub(super) async fn signal_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::SignalExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::SignalExecutionRequest { name, signal, payload, request_id } = request.into_inner();
    if !is_signal_name(&signal) {
        let message = format!(
            "must be 1 to {MAX_SIGNAL_CHARS} letters, digits, `-`, `_` and `.`, beginning with a letter or a digit"
        );
        return Err(status::invalid("signal", message).into());
    }
    let payload = inline_json("payload", payload)?;
    ask(registry, &caller, &name, Control::Signal { signal, payload }, String::new(), request_id).await
}

pub(super) async fn resolve_step(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::ResolveStepRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::ResolveStepRequest { name, resolution, result, reason, etag, request_id } = request.into_inner();
    check("reason", &reason)?;
    let resolution = match v1::StepResolution::try_from(resolution).unwrap_or_default() {
        v1::StepResolution::Completed => Resolution::Completed(inline_json("result", result)?),
        _ if result.is_some() => {
            return Err(status::invalid("result", "is for COMPLETED: leave it out").into());
        }
        v1::StepResolution::Failed => Resolution::Failed,
        v1::StepResolution::Again => Resolution::Again,
        v1::StepResolution::Unspecified => {
            return Err(status::invalid("resolution", "must be COMPLETED, FAILED or AGAIN").into());
        }
    };
    let (execution, step) = step_name("name", &name)?;
    let control = Control::ResolveStep { step: step.as_str().into(), resolution, reason };
    ask(registry, &caller, &execution.to_string(), control, etag, request_id).await
}

/// A small value that a request carries, as canonical JSON.
pub(super) fn inline_json(field: &str, payload: Option<v1::Payload>) -> Result<Json, Status> {
    json_within(field, payload, MAX_ARGUMENT_BYTES, "null")
}

/// A value that a request carries, of at most so many bytes, as canonical JSON; `absent` when there is none.
pub(super) fn json_within(
    field: &str,
    payload: Option<v1::Payload>,
    longest: usize,
    absent: &str,
) -> Result<Json, Status> {
    let text = match payload.and_then(|payload| payload.content) {
        None => return Ok(Json::from_text(absent)),
        Some(Content::Json(text)) => text,
        Some(Content::Blob(_)) => {
            let message = format!("cannot be sent: give the value as `{field}.json`");
            return Err(status::invalid(&format!("{field}.blob"), message).into());
        }
    };
    let field = format!("{field}.json");
    if text.len() > longest {
        let message = format!("has {} bytes and the limit is {longest}: send a reference", text.len());
        return Err(status::invalid(&field, message).into());
    }
    let value =
        belay_json::read(&text).map_err(|refused| Status::from(status::invalid(&field, refused.to_string())))?;
    Ok(Json::canonical(&value))
}

pub(super) async fn ask(
    registry: &Arc<ExecutionRegistry>,
    caller: &Principal,
    name: &str,
    control: Control,
    etag: String,
    request_id: String,
) -> Result<v1::Execution, Status> {
    let name = ExecutionName::parse("name", name)?;
    check("request_id", &request_id)?;
    let row = registry.reading.follower.find(&name).await?;
    check_may_control(caller, &row.execution.principal)?;
    let (reply, received) = oneshot::channel();
    let actor = Actor { principal: caller.to_string(), request_id };
    registry.send(row, Command::Control { control, actor, etag, reply }).await;
    match received.await {
        Ok(described) => described.map(|execution| *execution),
        Err(_) => Err(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping; retry.").into()),
    }
}

/// An operator may control every execution, a planner only those it started.
pub(super) fn check_may_control(caller: &Principal, started_by: &str) -> Result<(), Status> {
    if caller.has(Role::Operator) || caller.to_string() == started_by {
        return Ok(());
    }
    let message = format!(
        "`{started_by}` started this execution, and `{caller}` may control only its own. The role operator may do so for \
         every execution."
    );
    Err(status::error(Code::PermissionDenied, reasons::ROLE_MISSING, message).with("role", Role::Operator).into())
}

/// Checks a text that events store: its length, and that it has no control characters.
pub(super) fn check(field: &str, text: &str) -> Result<(), Status> {
    let longest = if field == "request_id" { 128 } else { 1024 };
    if text.len() > longest {
        return Err(status::invalid(field, format!("has {} bytes and the limit is {longest}", text.len())).into());
    }
    if text.chars().any(|character| character.is_control() && character != '\n') {
        return Err(status::invalid(field, "must not contain control characters").into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-19: a planner may control the executions it started, and no others.
    #[test]
    fn a_planner_controls_its_own_executions_and_an_operator_all() {
        let planner = Principal::person("bot", [Role::Planner]);
        assert!(check_may_control(&planner, "person:bot").is_ok());
        for other in ["person:bot2", "person:owner", "bot", ""] {
            let refused = check_may_control(&planner, other).unwrap_err();
            assert_eq!(status::reason(&refused).as_deref(), Some("ROLE_MISSING"), "{other}");
        }
        assert!(check_may_control(&Principal::owner(), "person:bot").is_ok());
    }
}
