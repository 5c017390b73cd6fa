use std::sync::Arc;

use belay_proto::{
    runner_v1::{self, call_tool_response::Event},
    v1::payload::Content,
};
use belay_reasons as reasons;
use belay_service_kit::status;
use belay_telemetry::TraceContext;
use tonic::{Code, Status};

use super::{
    checks::{check_name, workspace_of},
    follow::CallUpdate,
};
use crate::{
    Calls, NetworkProblem,
    calls::{CallRequest, StepLayers, Subscription},
};

/// The limit for inline arguments, in bytes of JSON: what a plan may hold, and what templates may make of it.
const MAX_ARGUMENTS_BYTES: usize = 4 * 1024 * 1024;

/// The limit for the context, in bytes of JSON: what the value of an input may hold.
const MAX_CONTEXT_BYTES: usize = 256 * 1024;

pub(super) async fn call_tool(calls: &Arc<Calls>, request: runner_v1::CallToolRequest) -> Result<Subscription, Status> {
    check_name(&request.name)?;
    let attempt = u32::try_from(request.attempt)
        .map_err(|_| Status::from(status::invalid("attempt", "must not be negative")))?
        .max(1);
    // A call that this ledger has is told how it ended, whichever ledger the executor expects.
    let is_elsewhere = !request.ledger_id.is_empty() && request.ledger_id != calls.ledger_id();
    if is_elsewhere && !calls.has(&request.name) {
        let message = format!(
            "The ledger of this runner is {}, not {}, so it does not know the same calls.",
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
        Some(Content::Json(json)) if json.len() <= MAX_ARGUMENTS_BYTES => json,
        Some(Content::Json(json)) => {
            let message = format!("has {} bytes; the limit is {MAX_ARGUMENTS_BYTES}", json.len());
            return Err(status::invalid("arguments.json", message).into());
        }
        Some(Content::Blob(_)) => {
            return Err(status::invalid("arguments.blob", "is not supported: send inline JSON").into());
        }
    };
    let context = match request.context.and_then(|payload| payload.content) {
        None => None,
        Some(Content::Json(json)) if json.len() <= MAX_CONTEXT_BYTES => Some(json),
        Some(Content::Json(json)) => {
            let message = format!("has {} bytes; the limit is {MAX_CONTEXT_BYTES}", json.len());
            return Err(status::invalid("context.json", message).into());
        }
        Some(Content::Blob(_)) => {
            return Err(status::invalid("context.blob", "is not supported: send inline JSON").into());
        }
    };
    let timeout = request
        .timeout
        .map(|timeout| {
            belay_proto::to_duration(&timeout)
                .ok_or_else(|| Status::from(status::invalid("timeout", "must not be negative")))
        })
        .transpose()?;
    let layers = request.layers.map(StepLayers::read).transpose()?;
    // Its effect is judged by what the calls of its step have noted: another tool would commit what nobody has judged.
    let commits = layers.as_ref().is_some_and(|layers| layers.entry.is_none());
    if layers.is_some() && commits != (tool.spec.name == belay_policy::COMMIT_CHANGES) {
        let message = "must be empty for `commit_changes`, and for no other tool";
        return Err(status::invalid("layers.entry", message).into());
    }
    // Another tool would leave a layer without what it has taken over.
    let takes_over = layers.as_ref().is_some_and(StepLayers::takes_over);
    if takes_over && tool.spec.name != belay_policy::REBASE_CHANGES {
        return Err(status::invalid("layers.carried", "is for `rebase_changes`, and for no other tool").into());
    }
    let asked = Some(request.network.as_str()).filter(|name| !name.is_empty());
    // Arguments that are no JSON are refused when the call runs.
    let given = serde_json::from_str(&arguments).unwrap_or_default();
    let network = match tool.tool.network_of(&given, asked) {
        // The network is that of the step, which may have calls that run no command.
        Err(NetworkProblem::NoCommand) => Ok(None),
        found => found,
    };
    let asked_network = request.network.clone();
    let of_network = network.as_ref().ok().and_then(Option::as_deref);
    let recovery = tool.tool.recovery_of(&arguments).unwrap_or_else(|| tool.spec.recovery.with_network(of_network));
    let workspace = workspace_of(calls, &request.workspace, request.made_folder.as_ref())?;
    calls.admit(request.fence).await?;
    // An invalid trace context is ignored.
    let trace = request.trace.and_then(|trace| TraceContext::parse(&trace.traceparent, &trace.tracestate).ok());
    let (name, grant, exclusive) = (request.name, request.grant, request.exclusive);
    let token = request.fence.unwrap_or_default().token;
    calls
        .call(CallRequest {
            name,
            attempt,
            tool,
            arguments,
            timeout,
            workspace,
            exclusive,
            layers,
            grant,
            token,
            trace,
            context,
            asked_network,
            recovery,
            network,
        })
        .await
}

pub(super) fn message(update: CallUpdate) -> runner_v1::CallToolResponse {
    let event = match update {
        CallUpdate::Started(name) => Event::Started(runner_v1::ToolCallStarted { name }),
        CallUpdate::Output(output) => Event::Output(output),
        CallUpdate::WaitingFor(exclusive_call) => Event::Waiting(runner_v1::ToolCallWaiting { exclusive_call }),
        CallUpdate::Asking(questions) => Event::Asking(runner_v1::ToolCallAsking { questions: questions.to_vec() }),
        CallUpdate::AwaitingApproval(call) => Event::Held(Arc::unwrap_or_clone(call)),
        CallUpdate::Ended(call) => Event::Result(Arc::unwrap_or_clone(call)),
    };
    runner_v1::CallToolResponse { event: Some(event) }
}
