//! A call of a server's tool: its server is started, the tool called, and the server ended.

use std::sync::Arc;

use belay_mcp::{Answer, McpError};
use belay_proto::v1::ErrorClass;
use belay_reasons as reasons;
use futures::FutureExt as _;
use serde_json::{Value, json};

use super::{
    served_tool::ServedTool,
    server::{failed, is_cut, with_server},
};
use crate::{Invocation, ToolFailure, ToolResult};

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
    let (ran, done) = with_server(&tool.terminal, &tool.server, Some(&tool.revision), invocation, move |session| {
        async move {
            // Whoever approved the tool, or gave it to a model, has seen how it was described.
            let now = session.tools().await?.into_iter().find(|now| now.name == definition.name);
            let changed = now.as_ref().map(|now| definition.differences(now));
            match changed {
                Some(changed) if changed.is_empty() => {}
                changed => return Ok(Called::Changed(changed.unwrap_or_default())),
            }
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
        Some(Ok(Called::Answered(_))) | None => Err(failed(&tool.server, ran, None)),
        Some(Err(error)) => Err(failed(&tool.server, ran, Some(error))),
    }
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
        let accept = match kept_in {
            Some(file) => format!("to accept what it has now, remove {} and restart the tool runner", file.display()),
            None => "restart the tool runner to accept what it has now".to_owned(),
        };
        let message = format!("The MCP server `{}` {what}. The tool was not called; {accept}.", server.name);
        ToolFailure::new(ErrorClass::InvalidArguments, reasons::MCP_TOOL_CHANGED, message)
    }
}
