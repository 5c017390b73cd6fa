//! The side of the client that a server asks and tells while it works.

use std::sync::Arc;

use futures::future::BoxFuture;
use rmcp::{
    ClientHandler,
    model::{
        ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationCapability,
        ErrorData, FormElicitationCapability, Implementation, ProgressNotificationParam, ProtocolVersion,
    },
    service::{NotificationContext, RequestContext, RoleClient},
};
use serde_json::Value;

/// The people and the log behind a call.
pub trait Host: Send + Sync + 'static {
    /// Asks a person. The future may take as long as people do; a question whose future is dropped is withdrawn.
    fn ask(&self, question: Question) -> BoxFuture<'static, Reply>;

    /// Receives a line of progress.
    fn report(&self, line: &str);
}

/// A question of a server to a person: an elicitation.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The question, as the server words it.
    pub message: String,
    /// The JSON Schema of the answer.
    pub schema: Value,
}

/// The reply to a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// The answer, which matches the schema.
    Answer(Value),
    /// A person does not want to answer.
    Declined,
    /// There will be no answer: the time is over, or people are not asked.
    Cancelled,
}

/// Passes what a server asks and tells to a host.
#[derive(Clone)]
pub(crate) struct Handler(pub(crate) Arc<dyn Host>);

impl ClientHandler for Handler {
    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let ElicitRequestParams::FormElicitationParams { message, requested_schema, .. } = request else {
            // Not declared: a page in a browser says nothing about who has read it.
            return Err(ErrorData::invalid_params("only elicitations by a form are supported", None));
        };
        let schema = serde_json::to_value(requested_schema)
            .map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        let reply = tokio::select! {
            reply = self.0.ask(Question { message, schema }) => reply,
            // The server does not wait for it any more, or the session ends.
            () = context.ct.cancelled() => Reply::Cancelled,
        };
        Ok(match reply {
            Reply::Answer(answer) => ElicitResult::new(ElicitationAction::Accept).with_content(answer),
            Reply::Declined => ElicitResult::new(ElicitationAction::Decline),
            Reply::Cancelled => ElicitResult::new(ElicitationAction::Cancel),
        })
    }

    async fn on_progress(&self, params: ProgressNotificationParam, _context: NotificationContext<RoleClient>) {
        let ProgressNotificationParam { progress, total, message, .. } = params;
        let amount = match total {
            Some(total) => format!("{progress} of {total}"),
            None => progress.to_string(),
        };
        match message {
            Some(message) => self.0.report(&format!("{message} ({amount})")),
            None => self.0.report(&amount),
        }
    }

    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(ElicitationCapability::new().with_form(FormElicitationCapability::default()));
        // That of the handshake, which the newest revision does not have.
        ClientConfig::new(capabilities, Implementation::new("belay", env!("CARGO_PKG_VERSION")))
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }
}
