use std::sync::Arc;

use belay_proto::runner_v1::{self, attach_tool_call_response::Event};
use belay_service_kit::status;
use tonic::Status;

use super::{checks::check_name, follow::CallUpdate};
use crate::{Calls, calls::Subscription, output::Position};

pub(super) async fn attach_tool_call(
    calls: &Calls,
    request: &runner_v1::AttachToolCallRequest,
) -> Result<(Subscription, Position), Status> {
    check_name(&request.name)?;
    for (field, offset) in [("stdout_offset", request.stdout_offset), ("stderr_offset", request.stderr_offset)] {
        if offset < 0 {
            return Err(status::invalid(field, "must not be negative").into());
        }
    }
    let subscription = calls.attach(&request.name).await?;
    Ok((subscription, Position::after(request.stdout_offset, request.stderr_offset)))
}

pub(super) fn message(update: CallUpdate) -> runner_v1::AttachToolCallResponse {
    let event = match update {
        CallUpdate::Started(name) => Event::Started(runner_v1::ToolCallStarted { name }),
        CallUpdate::Output(output) => Event::Output(output),
        CallUpdate::WaitingFor(exclusive_call) => Event::Waiting(runner_v1::ToolCallWaiting { exclusive_call }),
        CallUpdate::Asking(questions) => Event::Asking(runner_v1::ToolCallAsking { questions: questions.to_vec() }),
        CallUpdate::AwaitingApproval(call) => Event::Held(Arc::unwrap_or_clone(call)),
        CallUpdate::Ended(call) => Event::Result(Arc::unwrap_or_clone(call)),
    };
    runner_v1::AttachToolCallResponse { event: Some(event) }
}
