use std::sync::Arc;

use belay_proto::runner_v1;
use tonic::Status;

use super::checks::check_name;
use crate::Calls;
use crate::stop::Stop;

pub(super) async fn cancel_tool_call(
    calls: &Arc<Calls>,
    request: runner_v1::CancelToolCallRequest,
) -> Result<runner_v1::ToolCall, Status> {
    check_name(&request.name)?;
    calls.admit(request.fence).await?;
    calls
        .cancel(&request.name, if request.kill { Stop::AtOnce } else { Stop::Gracefully })
        .await
        .map(|call| (*call).clone())
}
