use std::sync::Arc;

use belay_proto::{runner_v1, v1};
use tonic::Status;

use super::attempt_of;
use crate::Calls;

pub(super) async fn cancel_tool_call(
    calls: &Arc<Calls>,
    request: runner_v1::CancelToolCallRequest,
) -> Result<v1::ToolCall, Status> {
    attempt_of(&request.name)?;
    calls.admit(request.fence).await?;
    calls.cancel(&request.name).await.map(|call| (*call).clone())
}
