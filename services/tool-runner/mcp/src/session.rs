//! A session with a server: its start, its tools, its calls and its end.

use std::{sync::Arc, time::Duration};

use rmcp::{
    ClientLifecycleMode, ClientServiceExt as _,
    model::{CallToolRequestParams, ContentBlock, PaginatedRequestParams, ProtocolVersion, RequestMetaObject},
    service::{RoleClient, RunningService, ServiceError},
};
use serde_json::{Map, Value};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    bounded::{Bound, BoundedLines, Exceeded, MAX_BYTES, MAX_LINE, MAX_LINES},
    definition::{Definition, MAX_TOOLS},
    handler::{Handler, Host},
};

/// The most pages of a list of tools.
const MAX_PAGES: usize = 100;

/// How long the client's own task may take to end once its pipes are closed.
const END: Duration = Duration::from_secs(1);

/// The longest name and version of a server that are kept, in characters.
const MAX_IDENTITY: usize = 200;

/// Why a server could not be used.
#[derive(Debug, Error)]
pub enum McpError {
    /// It was not ready for calls.
    #[error("did not get ready: {0}")]
    NotStarted(String),
    /// It has ended, or closed its output.
    #[error("ended before it answered")]
    Ended,
    /// A line of it is too long.
    #[error("wrote a message of more than {MAX_LINE} bytes")]
    Overlong,
    /// It has written too much.
    #[error("wrote more than {MAX_BYTES} bytes or {MAX_LINES} lines in one session")]
    Flooded,
    /// It answers with an error of the protocol, such as that it does not know the tool.
    #[error("refused the request: {0}")]
    Refused(String),
    /// It answers in a way that is not understood.
    #[error("answered what the protocol does not have here: {0}")]
    NotUnderstood(String),
    /// It has too many tools.
    #[error("has more than {MAX_TOOLS} tools")]
    TooMany,
}

/// The name, version and revision that a server reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerIdentity {
    /// Its name; empty when it does not say.
    pub name: String,
    /// Its version; empty when it does not say.
    pub version: String,
    /// The revision of the protocol that is spoken with it.
    pub revision: String,
}

/// The answer to a call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// The texts among its content, a line break between them.
    pub text: String,
    /// The rest of its content (images, sounds, resources), in the form of the protocol.
    pub blocks: Vec<Value>,
    /// Its structured content; `None` when it has none.
    pub structured: Option<Value>,
    /// Whether the tool says that it has failed.
    pub is_error: bool,
}

/// A session with a server that is ready for calls.
pub struct Session {
    service: RunningService<RoleClient, Handler>,
    exceeded: Exceeded,
}

impl Session {
    /// Starts a session over the pipes of a server. How long it may take is the caller's to say: drop the future. `known` is the revision that the server was
    /// known to speak before, if any: one without `server/discover` is not asked for it, as some answer nothing then.
    ///
    /// # Errors
    /// [`McpError::NotStarted`], [`McpError::Overlong`] or [`McpError::Flooded`].
    pub async fn start<R, W>(from: R, to: W, host: Arc<dyn Host>, known: Option<&str>) -> Result<Self, McpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let (from, exceeded) = BoundedLines::new(from);
        let lifecycle = match known {
            // Revisions are dates.
            Some(known) if known < ProtocolVersion::NO_INITIALIZE.as_str() => ClientLifecycleMode::Initialize,
            _ => ClientLifecycleMode::Auto {
                preferred_versions: vec![ProtocolVersion::V_2026_07_28],
                legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
            },
        };
        match Handler(host).serve_with_lifecycle((from, to), lifecycle).await {
            Ok(service) => Ok(Self { service, exceeded }),
            Err(error) => Err(of_bound(&exceeded).unwrap_or_else(|| McpError::NotStarted(error.to_string()))),
        }
    }

    /// The identity that the server reports.
    pub fn server(&self) -> ServerIdentity {
        let Some(info) = self.service.peer_info() else { return ServerIdentity::default() };
        let of = info.server_info.as_ref();
        let bounded = |text: &String| text.chars().take(MAX_IDENTITY).collect();
        ServerIdentity {
            name: of.map(|of| bounded(&of.name)).unwrap_or_default(),
            version: of.map(|of| bounded(&of.version)).unwrap_or_default(),
            revision: info.protocol_version.to_string(),
        }
    }

    /// The tools of the server, in its order.
    ///
    /// # Errors
    /// [`McpError`].
    pub async fn tools(&self) -> Result<Vec<Definition>, McpError> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.list_tools(Some(page)).await.map_err(|error| self.failure(error))?;
            tools.extend(page.tools.into_iter().map(Definition::of));
            if tools.len() > MAX_TOOLS {
                return Err(McpError::TooMany);
            }
            match page.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(tools),
            }
        }
        Err(McpError::TooMany)
    }

    /// Calls a tool. `traceparent` is the trace that the call belongs to; empty for none.
    ///
    /// # Errors
    /// [`McpError`]. What the tool itself says of its failure is an [`Answer`].
    pub async fn call(&self, tool: &str, arguments: Map<String, Value>, traceparent: &str) -> Result<Answer, McpError> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        if !traceparent.is_empty() {
            let mut meta = RequestMetaObject::default();
            meta.insert("traceparent".to_owned(), traceparent.into());
            params.meta = Some(meta);
        }
        let result = self.service.call_tool(params).await.map_err(|error| self.failure(error))?;
        let (mut texts, mut blocks) = (Vec::new(), Vec::new());
        for block in result.content {
            match block {
                ContentBlock::Text(text) => texts.push(text.text),
                other => blocks.push(serde_json::to_value(other).unwrap_or_default()),
            }
        }
        Ok(Answer {
            text: texts.join("\n"),
            blocks,
            structured: result.structured_content,
            is_error: result.is_error.unwrap_or_default(),
        })
    }

    /// Ends the session: closes the pipes, so that the server ends.
    pub async fn end(mut self) {
        // A task that does not end is dropped with its runtime; its pipes are closed in any case.
        let _ = self.service.close_with_timeout(END).await;
    }

    fn failure(&self, error: ServiceError) -> McpError {
        if let Some(exceeded) = of_bound(&self.exceeded) {
            return exceeded;
        }
        match error {
            ServiceError::McpError(error) => McpError::Refused(format!("{} ({})", error.message, error.code.0)),
            ServiceError::TransportClosed | ServiceError::TransportSend(_) | ServiceError::Cancelled { .. } => {
                McpError::Ended
            }
            ServiceError::UnexpectedResponse => McpError::NotUnderstood(
                "a task, or a message of another kind: only tools that answer their call can be called".to_owned(),
            ),
            other => McpError::NotUnderstood(other.to_string()),
        }
    }
}

/// The error of a bound that was exceeded, if one was.
fn of_bound(exceeded: &Exceeded) -> Option<McpError> {
    exceeded.get().map(|bound| match bound {
        Bound::Line => McpError::Overlong,
        Bound::Session => McpError::Flooded,
    })
}
