//! Checks of the fields of requests.

use belay_proto::runner_v1::MadeFolder;
use belay_service_kit::{names::CallName, status};
use tonic::Status;

use crate::{Calls, WorkspaceRefusal, workspace_locks::WorkspaceUnavailable, workspaces::ChosenWorkspace};

pub(super) fn not_allowed(refused: WorkspaceRefusal) -> Status {
    WorkspaceUnavailable::from(refused).into_status()
}

/// The workspace of a call, of which requests about the call name one: a directory, or a folder of the runner's own.
pub(super) fn workspace_of(
    calls: &Calls,
    directory: &str,
    made: Option<&MadeFolder>,
) -> Result<ChosenWorkspace, Status> {
    match (directory, made) {
        ("", Some(folder)) => calls.workspaces.made(folder).map_err(not_allowed),
        ("", None) => Err(status::invalid("workspace", "is needed, or `made_folder`").into()),
        (directory, None) => calls.workspaces.named(directory).map_err(not_allowed),
        (_, Some(_)) => Err(status::invalid("made_folder", "must not be set beside `workspace`").into()),
    }
}

/// Checks that this is the name of a call.
pub(super) fn check_name(name: &str) -> Result<(), Status> {
    CallName::parse("name", name).map(drop)
}
