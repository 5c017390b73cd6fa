use belay_proto::v1;
use tonic::Status;

use super::attempt_of;
use crate::Calls;

pub(super) fn get_tool_call(calls: &Calls, request: &v1::GetToolCallRequest) -> Result<v1::ToolCall, Status> {
    attempt_of(&request.name)?;
    calls.get(&request.name).map(|call| (*call).clone())
}
