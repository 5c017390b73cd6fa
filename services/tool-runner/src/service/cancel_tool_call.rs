use std::sync::Arc;

use belay_proto::runner_v1;
use tonic::Status;

use super::checks::{check_name, workspace_of};
use crate::Calls;
use crate::stop::Stop;

pub(super) async fn cancel_tool_call(
    calls: &Arc<Calls>,
    request: runner_v1::CancelToolCallRequest,
) -> Result<runner_v1::ToolCall, Status> {
    check_name(&request.name)?;
    let workspace = workspace_of(calls, &request.workspace, request.made_folder.as_ref())?;
    calls.admit(request.fence).await?;
    let stop = if request.kill { Stop::AtOnce } else { Stop::Gracefully };
    calls.remove_lost_view(&request.name, workspace, stop).await?;
    calls.cancel(&request.name, stop).await.map(|call| (*call).clone())
}
