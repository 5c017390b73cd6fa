use belay_proto::runner_v1;
use tonic::Status;

use super::checks::check_name;
use crate::Calls;

pub(super) async fn get_tool_call(
    calls: &Calls,
    request: &runner_v1::GetToolCallRequest,
) -> Result<runner_v1::ToolCall, Status> {
    check_name(&request.name)?;
    calls.get(&request.name).await.map(|call| (*call).clone())
}
