use std::sync::Arc;

use belay_proto::v1;
use belay_service_kit::status;
use tonic::Status;

use super::not_allowed;
use crate::{Calls, workspace_locks::Closed};

pub(super) async fn check_workspace(
    calls: &Calls,
    request: &v1::CheckWorkspaceRequest,
) -> Result<v1::CheckWorkspaceResponse, Status> {
    if request.workspace.is_empty() {
        return Err(status::invalid("workspace", "name the folder").into());
    }
    let chosen = calls.rooms.choose(&request.workspace, "").map_err(not_allowed)?;
    // Opened as a call would open it, so that a folder that can be none is refused before anything is started. In a task of its own: a
    // caller that leaves does not leave it half open.
    let rooms = Arc::clone(&calls.rooms);
    let entered = tokio::spawn(async move { rooms.enter(chosen).await });
    let visit = entered.await.map_err(|error| Status::internal(error.to_string()))?.map_err(Closed::into_status)?;
    let workspace = visit.path().to_str().map(str::to_owned);
    let workspace = workspace.ok_or_else(|| Status::from(status::invalid("workspace", "its path must be UTF-8")))?;
    Ok(v1::CheckWorkspaceResponse { workspace })
}
