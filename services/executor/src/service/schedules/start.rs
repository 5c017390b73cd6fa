//! The start of an execution for a schedule.

use std::sync::Arc;

use belay_proto::v1::{self, scheduled_execution::Source, start_execution_request};
use belay_reasons as reasons;
use belay_schedule::Firing;
use belay_service_kit::{Principal, Role, status};
use tonic::{Code, Request, Status};

use super::super::start_execution::start_execution;
use crate::ExecutionRegistry;

/// The label with the id of the schedule.
const LABEL: &str = "schedule";

/// How a start ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The execution exists, or has existed.
    Exists,
    /// It can never be started.
    Never(String),
    /// It cannot be started now.
    Later(String),
}

/// The request for an execution of a schedule.
pub(super) fn request(
    namespace: &str,
    schedule: &str,
    execution: &v1::ScheduledExecution,
) -> v1::StartExecutionRequest {
    let v1::ScheduledExecution { source, labels, approval_mode, workspace, inputs, step_timeout, .. } =
        execution.clone();
    let mut labels = labels;
    labels.insert(LABEL.to_owned(), schedule.to_owned());
    v1::StartExecutionRequest {
        parent: format!("namespaces/{namespace}"),
        source: source.map(|source| match source {
            Source::Plan(plan) => start_execution_request::Source::Plan(plan),
            Source::Document(document) => start_execution_request::Source::Document(document),
        }),
        labels,
        approval_mode,
        workspace,
        inputs,
        step_timeout,
        ..Default::default()
    }
}

/// Starts the execution of a firing for the principal of its schedule. Its id and the id of the request are derived, so that a repeated start finds
/// the execution that it has started.
pub(super) async fn start(
    registry: &Arc<ExecutionRegistry>,
    namespace: &str,
    schedule: &str,
    definition: &v1::Schedule,
    firing: Firing,
) -> Start {
    let Some(execution) = &definition.execution else { return Start::Never("it has no plan".to_owned()) };
    let execution_id = firing.execution_id(schedule);
    let message = v1::StartExecutionRequest {
        request_id: format!("schedule/{}/{execution_id}", definition.uid),
        execution_id,
        ..request(namespace, schedule, execution)
    };
    let mut request = Request::new(message);
    request.extensions_mut().insert(planner(&definition.principal));
    outcome(start_execution(registry, request).await)
}

/// The principal of a schedule, with the one role that starting takes.
pub(super) fn planner(principal: &str) -> Principal {
    Principal::person(principal.strip_prefix("person:").unwrap_or(principal), [Role::Planner])
}

fn outcome(started: Result<v1::Execution, Status>) -> Start {
    let Err(refused) = started else { return Start::Exists };
    let words = refused.message().to_owned();
    match refused.code() {
        Code::NotFound if status::reason(&refused).as_deref() == Some(reasons::EXECUTION_DELETED) => Start::Exists,
        // The plan does not wait, so this time is over.
        _ if status::reason(&refused).as_deref() == Some(reasons::LIMIT_FULL) => Start::Never(words),
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::OutOfRange
        | Code::Unimplemented => Start::Never(words),
        _ => Start::Later(words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_that_may_succeed_later_is_not_given_up() {
        let refused = |code, reason| Err(status::error(code, reason, "why").into());
        let later = Start::Later("why".into());
        assert_eq!(outcome(refused(Code::Unavailable, reasons::STOPPING)), later);
        assert_eq!(outcome(refused(Code::ResourceExhausted, reasons::RESOURCE_EXHAUSTED)), later);
        assert_eq!(outcome(refused(Code::ResourceExhausted, reasons::LIMIT_FULL)), Start::Never("why".into()));
        assert_eq!(outcome(refused(Code::InvalidArgument, reasons::INVALID_ARGUMENT)), Start::Never("why".into()));
        assert_eq!(outcome(refused(Code::AlreadyExists, reasons::EXECUTION_EXISTS)), Start::Never("why".into()));
        assert_eq!(outcome(refused(Code::NotFound, reasons::EXECUTION_DELETED)), Start::Exists, "it ran");
        assert_eq!(outcome(Ok(v1::Execution::default())), Start::Exists);
    }
}
