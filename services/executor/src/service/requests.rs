//! Cancel, pause and resume: each is one command to the execution's driver.

use std::sync::Arc;

use belay_execution::EventKind;
use belay_proto::v1;
use belay_reasons as reasons;
use belay_service_kit::{Principal, Role, status};
use tokio::sync::oneshot;
use tonic::{Code, Request, Status};

use crate::{ExecutionRegistry, driver::Command, names::ExecutionName};

pub(super) async fn cancel_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::CancelExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::CancelExecutionRequest { name, reason, etag, request_id } = request.into_inner();
    check("reason", &reason)?;
    let kind = EventKind::CancelRequested { principal: caller.to_string(), reason, request_id: request_id.clone() };
    ask(registry, &caller, &name, kind, etag, request_id).await
}

pub(super) async fn pause_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::PauseExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::PauseExecutionRequest { name, reason, etag, request_id, discard_calls } = request.into_inner();
    check("reason", &reason)?;
    let principal = caller.to_string();
    let kind = EventKind::Paused { principal, reason, discard_calls, request_id: request_id.clone() };
    ask(registry, &caller, &name, kind, etag, request_id).await
}

pub(super) async fn resume_execution(
    registry: &Arc<ExecutionRegistry>,
    request: Request<v1::ResumeExecutionRequest>,
) -> Result<v1::Execution, Status> {
    let caller = Principal::of(&request)?;
    let v1::ResumeExecutionRequest { name, etag, request_id } = request.into_inner();
    let kind = EventKind::Resumed { principal: caller.to_string(), request_id: request_id.clone() };
    ask(registry, &caller, &name, kind, etag, request_id).await
}

async fn ask(
    registry: &Arc<ExecutionRegistry>,
    caller: &Principal,
    name: &str,
    kind: EventKind,
    etag: String,
    request_id: String,
) -> Result<v1::Execution, Status> {
    let name = ExecutionName::parse("name", name)?;
    check("request_id", &request_id)?;
    let row = registry.client_reads.find(&name).await?;
    check_may_control(caller, &row.execution.principal)?;
    let (reply, received) = oneshot::channel();
    registry.send(row, Command::Request { kind: Box::new(kind), etag, request_id, reply }).await;
    match received.await {
        Ok(described) => described.map(|execution| *execution),
        Err(_) => Err(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping; retry.").into()),
    }
}

/// An operator may control every execution, a planner only those it started.
fn check_may_control(caller: &Principal, started_by: &str) -> Result<(), Status> {
    if caller.has(Role::Operator) || caller.to_string() == started_by {
        return Ok(());
    }
    let message = format!(
        "`{started_by}` started this execution, and `{caller}` may cancel, pause and resume only its own. The role operator may do so for \
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
