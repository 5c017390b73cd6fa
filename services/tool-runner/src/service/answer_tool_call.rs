use std::sync::Arc;

use belay_proto::runner_v1::{self, answer_tool_call_request::Reply};
use belay_service_kit::status;
use tonic::Status;

use super::checks::check_name;
use crate::Calls;

pub(super) async fn answer_tool_call(
    calls: &Arc<Calls>,
    request: runner_v1::AnswerToolCallRequest,
) -> Result<runner_v1::AnswerToolCallResponse, Status> {
    check_name(&request.name)?;
    if request.question.is_empty() {
        return Err(status::invalid("question", "is missing: the id of the question").into());
    }
    let reply = request
        .reply
        .ok_or_else(|| Status::from(status::invalid("reply", "is missing: set `answer`, `declined` or `timed_out`")))?;
    if let Reply::Answer(answer) = &reply {
        let json = answer.as_json().ok_or_else(|| Status::from(status::invalid("answer", "must be JSON")))?;
        belay_json::read(json)
            .map_err(|refused| Status::from(status::invalid("answer", format!("is not JSON: {refused}"))))?;
    }
    calls.admit(request.fence).await?;
    calls.answer(&request.name, &request.question, reply).await?;
    Ok(runner_v1::AnswerToolCallResponse {})
}
