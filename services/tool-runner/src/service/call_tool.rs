use std::sync::Arc;

use belay_proto::v1::{self, call_tool_response::Event, payload::Content};
use belay_reasons as reasons;
use belay_service_kit::status;
use belay_telemetry::TraceContext;
use tonic::{Code, Status};

use super::{News, attempt_of, not_allowed};
use crate::{
    Calls,
    calls::{Followed, Order},
    subject::parts,
};

/// The largest arguments that are taken inline, in bytes of JSON: as much as a plan may hold, and what templates may make of it.
const LARGEST_ARGUMENTS: usize = 4 * 1024 * 1024;

pub(super) async fn call_tool(calls: &Arc<Calls>, request: v1::CallToolRequest) -> Result<Followed, Status> {
    let attempt = attempt_of(&request.name)?;
    if !request.ledger_id.is_empty() && request.ledger_id != calls.ledger_id() {
        let message = format!(
            "This runner's ledger is {}, not {}: it does not remember the same calls.",
            calls.ledger_id(),
            request.ledger_id
        );
        return Err(status::error(Code::FailedPrecondition, reasons::LEDGER_CHANGED, message)
            .with("ledger_id", calls.ledger_id())
            .into());
    }
    let Some(tool) = calls.registry.find(&request.tool) else {
        return Err(status::error(
            Code::NotFound,
            reasons::TOOL_NOT_FOUND,
            format!("Tool '{}' not found.", request.tool),
        )
        .into());
    };
    let arguments = match request.arguments.and_then(|payload| payload.content) {
        None => "{}".to_owned(),
        Some(Content::Json(json)) if json.len() <= LARGEST_ARGUMENTS => json,
        Some(Content::Json(json)) => {
            let message = format!("are {} bytes, and at most {LARGEST_ARGUMENTS} are taken", json.len());
            return Err(status::invalid("arguments.json", message).into());
        }
        Some(Content::Blob(_)) => {
            return Err(status::invalid("arguments.blob", "this runner takes arguments inline only").into());
        }
    };
    let timeout = request
        .timeout
        .map(|timeout| {
            belay_proto::to_duration(&timeout)
                .ok_or_else(|| Status::from(status::invalid("timeout", "must not be negative")))
        })
        .transpose()?;
    let workspace = calls.rooms.choose(&request.workspace, parts(&request.name).0).map_err(not_allowed)?;
    calls.admit(request.fence).await?;
    // One that is not in order is as good as none.
    let trace = request.trace.and_then(|trace| TraceContext::parse(&trace.traceparent, &trace.tracestate).ok());
    let (name, grant, exclusive) = (request.name, request.grant, request.exclusive);
    let token = request.fence.unwrap_or_default().token;
    calls.call(Order { name, attempt, tool, arguments, timeout, workspace, exclusive, grant, token, trace }).await
}

pub(super) fn message(news: News) -> v1::CallToolResponse {
    let event = match news {
        News::Started(name) => Event::Started(v1::ToolCallStarted { name }),
        News::Output(output) => Event::Output(output),
        News::Waits(exclusive_call) => Event::Waiting(v1::ToolCallWaiting { exclusive_call }),
        News::Held(call) => Event::Held(Arc::unwrap_or_clone(call)),
        News::Ended(call) => Event::Result(Arc::unwrap_or_clone(call)),
    };
    v1::CallToolResponse { event: Some(event) }
}
