use std::sync::Arc;

use belay_proto::v1::{self, attach_tool_call_response::Event};
use tonic::Status;

use super::{News, attempt_of};
use crate::{Calls, calls::Outcome};

pub(super) fn attach_tool_call(calls: &Calls, request: &v1::AttachToolCallRequest) -> Result<Outcome, Status> {
    attempt_of(&request.name)?;
    calls.attach(&request.name)
}

pub(super) fn message(news: News) -> v1::AttachToolCallResponse {
    let event = match news {
        News::Started => Event::Started(v1::ToolCallStarted::default()),
        News::Ended(call) => Event::Result(Arc::unwrap_or_clone(call)),
    };
    v1::AttachToolCallResponse { event: Some(event) }
}
