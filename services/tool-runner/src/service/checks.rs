//! What the fields of requests have to be.

use belay_proto::runner_v1::MadeFolder;
use belay_service_kit::{ids::is_call_id, status};
use tonic::Status;

use crate::{Calls, NotAllowed, workspace_locks::WorkspaceUnavailable, workspaces::Chosen};

pub(super) fn not_allowed(refused: NotAllowed) -> Status {
    WorkspaceUnavailable::from(refused).into_status()
}

/// The workspace of a call, of which requests about the call name one: a directory, or a folder of the runner's own.
pub(super) fn workspace_of(calls: &Calls, directory: &str, made: Option<&MadeFolder>) -> Result<Chosen, Status> {
    match (directory, made) {
        ("", Some(folder)) => calls.workspaces.made(folder).map_err(not_allowed),
        ("", None) => Err(status::invalid("workspace", "is needed, or `made_folder`").into()),
        (directory, None) => calls.workspaces.named(directory).map_err(not_allowed),
        (_, Some(_)) => Err(status::invalid("made_folder", "must not be set beside `workspace`").into()),
    }
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
