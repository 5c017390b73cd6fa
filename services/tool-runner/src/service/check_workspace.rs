use std::sync::Arc;

use belay_proto::runner_v1;
use belay_service_kit::status;
use tonic::Status;

use super::checks::not_allowed;
use crate::{Calls, workspace_locks::WorkspaceUnavailable};

pub(super) async fn check_workspace(
    calls: &Calls,
    request: &runner_v1::CheckWorkspaceRequest,
) -> Result<runner_v1::CheckWorkspaceResponse, Status> {
    if request.workspace.is_empty() {
        return Err(status::invalid("workspace", "must not be empty: give the path of the directory").into());
    }
    let chosen = calls.workspaces.named(&request.workspace).map_err(not_allowed)?;
    // Opens the workspace as a call would, so that an unusable one is rejected before the execution starts. In a task of its own, so that a
    // caller that disconnects does not cancel the opening halfway.
    let workspaces = Arc::clone(&calls.workspaces);
    let entered = tokio::spawn(async move { workspaces.open(chosen).await });
    let visit = entered
        .await
        .map_err(|error| Status::internal(error.to_string()))?
        .map_err(WorkspaceUnavailable::into_status_of_choice)?;
    let workspace = visit.path().to_str().map(str::to_owned);
    let workspace = workspace.ok_or_else(|| Status::from(status::invalid("workspace", "its path must be UTF-8")))?;
    Ok(runner_v1::CheckWorkspaceResponse { workspace })
}
