//! A call of a server's tool: its server is started, the tool called, and the server ended.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use belay_mcp::{Answer, McpError};
use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use futures::FutureExt as _;
use serde_json::{Value, json};

use super::{
    served_tool::ServedTool,
    server::{failed, is_cut, with_server},
};
use crate::{Invocation, Recovery, ToolFailure, ToolResult};

/// The longest reason of a tool that has failed, in characters: it is kept in events.
const MAX_WHY: usize = 4_000;

/// The outcome of a call whose server has done its part.
enum Called {
    /// Its answer.
    Answered(Answer),
    /// The server has changed these parts of the tool since it was first listed; none where it does not have it any more.
    Changed(Vec<&'static str>),
}

/// Calls a tool.
pub(super) async fn call(tool: Arc<ServedTool>, invocation: Invocation) -> ToolResult {
    let arguments = invocation.arguments.as_object().cloned().unwrap_or_default();
    let traceparent = invocation.trace.traceparent.clone();
    let definition = tool.definition.clone();
    let may_repeat = tool.spec.recovery.with_network(invocation.network.as_deref()) != Recovery::Manual;
    let is_sent = Arc::<AtomicBool>::default();
    let sent = Arc::clone(&is_sent);
    let (ran, done) = with_server(&tool.terminal, &tool.server, Some(&tool.revision), invocation, move |session| {
        async move {
            // People and models have seen the tool as it was described then.
            let now = session.tools().await?.into_iter().find(|now| now.name == definition.name);
            let changed = now.as_ref().map(|now| definition.differences(now));
            match changed {
                Some(changed) if changed.is_empty() => {}
                changed => return Ok(Called::Changed(changed.unwrap_or_default())),
            }
            sent.store(true, Ordering::Release);
            session.call(&definition.name, arguments, &traceparent).await.map(Called::Answered)
        }
        .boxed()
    })
    .await?;
    match done {
        Some(Ok(Called::Answered(answer))) if !is_cut(ran.result.outcome.status) => tool.result(answer),
        Some(Ok(Called::Changed(parts))) => Err(tool.changed(&parts)),
        // The server has done its part, and does not take the request.
        Some(Err(McpError::Refused(why))) if !is_cut(ran.result.outcome.status) => Err(tool.refused(&why)),
        other => {
            let failure = failed(&tool.server, ran, other.and_then(Result::err));
            let in_doubt = is_sent.load(Ordering::Acquire) && !may_repeat;
            Err(if in_doubt { unknown(&failure) } else { failure })
        }
    }
}

/// The failure of a call that was sent and may have had an effect outside of its view: another attempt of the step would be a second one.
fn unknown(failure: &ToolFailure) -> ToolFailure {
    let message =
        format!("{} It may have carried out the call, so it is not made again automatically.", failure.message);
    ToolFailure::new(ErrorClass::OutcomeUnknown, reasons::OUTCOME_UNKNOWN, message)
}

impl ServedTool {
    /// The result of a call.
    fn result(&self, answer: Answer) -> ToolResult {
        let Answer { text, blocks, structured, is_error } = answer;
        if is_error {
            return Err(self.refused(if text.is_empty() { "it gives no reason" } else { &text }));
        }
        match (&self.definition.result, structured) {
            (Some(_), Some(structured)) => Ok(structured),
            (Some(_), None) => {
                let message = format!(
                    "The tool `{}` has a schema of its result, and returned no structured content.",
                    self.spec.name
                );
                Err(ToolFailure::new(ErrorClass::InvalidResult, reasons::INVALID_RESULT, message))
            }
            (None, structured) => {
                let mut result = json!({"text": text});
                if !blocks.is_empty() {
                    result["content"] = Value::Array(blocks);
                }
                if let Some(structured) = structured {
                    result["structured"] = structured;
                }
                Ok(result)
            }
        }
    }

    /// The failure of a call that the tool itself says has failed.
    fn refused(&self, why: &str) -> ToolFailure {
        let end = why.char_indices().nth(MAX_WHY).map_or(why.len(), |(end, _)| end);
        let more = if end < why.len() { " …" } else { "" };
        let message = format!("The tool `{}` has failed: {}{more}", self.spec.name, &why[..end]);
        ToolFailure::new(ErrorClass::Transient, reasons::MCP_TOOL_FAILED, message)
    }

    /// The failure of a call of a tool that is not any more what it was.
    fn changed(&self, parts: &[&str]) -> ToolFailure {
        let ServedTool { server, definition, kept_in, .. } = self;
        let what = match parts {
            [] => format!("does not have the tool `{}` any more", definition.name),
            parts => format!("has changed {} of the tool `{}`", parts.join(", "), definition.name),
        };
        let (server, file) = (&server.name, kept_in.display());
        let message = format!(
            "The MCP server `{server}` {what}. The tool was not called; to accept what it has now, remove {file} and restart the tool runner."
        );
        ToolFailure::new(ErrorClass::InvalidArguments, reasons::MCP_TOOL_CHANGED, message)
    }
}
