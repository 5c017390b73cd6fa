use belay_proto::runner_v1;
use tonic::Status;

use super::checks::check_name;
use crate::Calls;

pub(super) async fn acknowledge_tool_calls(
    calls: &Calls,
    request: runner_v1::AcknowledgeToolCallsRequest,
) -> Result<runner_v1::AcknowledgeToolCallsResponse, Status> {
    for name in &request.names {
        check_name(name)?;
    }
    calls.admit(request.fence).await?;
    calls.acknowledge(request.names, request.fence.unwrap_or_default().token);
    Ok(runner_v1::AcknowledgeToolCallsResponse {})
}
