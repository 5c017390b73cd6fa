//! What the fields of requests have to be.

use belay_service_kit::{ids::is_call_id, status};
use tonic::Status;

use crate::{Calls, NotAllowed, subject::parts, workspace_locks::WorkspaceUnavailable, workspaces::Chosen};

pub(super) fn not_allowed(refused: NotAllowed) -> Status {
    WorkspaceUnavailable::from(refused).into_status()
}

/// The workspace of a call, as requests about the call name it.
pub(super) fn workspace_of(calls: &Calls, call: &str, workspace: &str) -> Result<Chosen, Status> {
    calls.workspaces.choose(workspace, parts(call).0).map_err(not_allowed)
}

/// Checks that a name has the form `namespaces/*/executions/*`.
pub(super) fn check_execution(field: &str, name: &str) -> Result<(), Status> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["namespaces", namespace, "executions", execution]
            if name.len() <= 512 && [namespace, execution].iter().all(|part| !part.is_empty()) =>
        {
            Ok(())
        }
        _ => {
            let message = format!("`{name}` is not the name of an execution: use namespaces/N/executions/E");
            Err(status::invalid(field, message).into())
        }
    }
}

/// Checks that a name has the form `namespaces/*/executions/*/steps/*/calls/*`.
pub(super) fn check_name(name: &str) -> Result<(), Status> {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        ["namespaces", namespace, "executions", execution, "steps", step, "calls", call]
            if name.len() <= 512
                && [namespace, execution, step].iter().all(|part| !part.is_empty())
                && is_call_id(call) =>
        {
            Ok(())
        }
        _ => {
            let message =
                format!("`{name}` is not a valid call name: use namespaces/N/executions/E/steps/S/calls/CALL");
            Err(status::invalid("name", message).into())
        }
    }
}
