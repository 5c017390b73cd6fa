use std::sync::Arc;

use belay_execution::StepId;
use belay_proto::v1;
use belay_reading::tool_calls::{ToolCall, ToolCalls};
use belay_service_kit::status;
use prost::Message as _;
use tonic::Status;

use super::{history::History, list_executions::page_size};
use crate::{ExecutionReader, names::execution_or_step, store::secrets::shown, wire};

/// How many bytes of calls a page has, unless one call alone has more.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024 - 64 * 1024;

pub(super) async fn list_tool_calls(
    reading: &Arc<ExecutionReader>,
    request: v1::ListToolCallsRequest,
) -> Result<v1::ListToolCallsResponse, Status> {
    let (name, step) = execution_or_step("parent", &request.parent)?;
    let size = page_size(request.page_size, 100)?;
    // The token is the number of the event with the last request on the pages before.
    let after: u64 = match request.page_token.as_str() {
        "" => 0,
        token => token.parse().map_err(|_| {
            Status::from(status::invalid("page_token", "is not one that this method returned: begin without one"))
        })?,
    };
    let history = History::of(reading, &name, step.as_deref(), &request.parent).await?;
    let of_step = step.as_deref().map(StepId::from);
    let selecting = history.select(|index, is_complete| index.calls(of_step.as_ref(), after, size, is_complete));
    let sequences = selecting.await?;
    let mut calls = ToolCalls::new(of_step, size);
    // As they are shown: the originals of secrets are not needed.
    history.at(&sequences, |event| calls.apply(&event)).await?;
    let execution = name.to_string();
    let message = |call: ToolCall| {
        let message = wire::tool_call(&execution, call);
        let bytes = message.encoded_len();
        (message, bytes)
    };
    let (calls, next) = calls.page(MAX_PAGE_BYTES, message);
    Ok(v1::ListToolCallsResponse {
        tool_calls: calls.into_iter().map(|call| shown(&history.redactor, call)).collect(),
        next_page_token: next.map(|next| next.to_string()).unwrap_or_default(),
    })
}
