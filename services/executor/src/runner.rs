//! The tool runner as the executor sees it: a catalogue of tools, and calls that end in an answer or say that there is none.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use belay_execution::{CallRequest, ErrorClass, EventKind, Failure, Json, Receipt, RecoveryClass};
use belay_json_schema::Schema;
use belay_proto::v1::{
    self, call_tool_response::Event, tool_call::State, tool_runner_service_client::ToolRunnerServiceClient,
};
use belay_service_kit::{host::LARGEST_MESSAGE, status};
use tonic::{Code, Request, Status, metadata::MetadataValue, transport::Channel};

use crate::wire;

/// A way to a tool runner.
#[derive(Clone)]
pub struct Runner {
    client: ToolRunnerServiceClient<Channel>,
    authorization: Option<MetadataValue<tonic::metadata::Ascii>>,
    catalogue: Arc<Mutex<Option<Arc<Catalogue>>>>,
}

/// A token that cannot stand in a header.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the runner's token holds characters that cannot be sent")]
pub struct BadToken;

/// The tools of a runner, as it told them.
pub(crate) struct Catalogue {
    pub(crate) ledger_id: String,
    pub(crate) tools: Vec<v1::Tool>,
    by_name: HashMap<String, usize>,
    schemas: Vec<Option<Schema>>,
}

impl Catalogue {
    fn new(tools: Vec<v1::Tool>, ledger_id: String) -> Self {
        let names = |tool: &v1::Tool| {
            std::iter::once(tool.name.clone()).chain(tool.aliases.iter().cloned()).collect::<Vec<_>>()
        };
        let by_name = tools
            .iter()
            .enumerate()
            .flat_map(|(index, tool)| names(tool).into_iter().map(move |name| (name, index)))
            .collect();
        // The runner has checked its schemas and checks every call; one that cannot be read here only means a later refusal.
        let schemas = tools.iter().map(|tool| Schema::new(&tool.parameters_schema).ok()).collect();
        Self { ledger_id, tools, by_name, schemas }
    }

    /// A tool by any of its names, with the schema of its parameters.
    pub(crate) fn find(&self, name: &str) -> Option<(&v1::Tool, Option<&Schema>)> {
        let &index = self.by_name.get(name)?;
        Some((&self.tools[index], self.schemas[index].as_ref()))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }
}

/// What came of talking to a runner about a call.
#[derive(Debug)]
pub(crate) enum Answer {
    /// How the call ended.
    Ended(EventKind),
    /// No answer now: try again. The runner is away, or stopping, or does not let us in.
    Away(Status),
    /// The runner keeps another ledger than the intent names: it does not know what became of the call.
    LedgerChanged,
    /// Another executor owns the shard.
    Fenced,
}

impl Runner {
    /// A runner behind a channel; `token` is shown with every request.
    ///
    /// # Errors
    /// [`BadToken`] when the token cannot stand in a header.
    pub fn new(channel: Channel, token: Option<&str>) -> Result<Self, BadToken> {
        let client = ToolRunnerServiceClient::new(channel)
            .max_decoding_message_size(LARGEST_MESSAGE)
            .max_encoding_message_size(LARGEST_MESSAGE);
        let authorization = token.map(|token| format!("Bearer {token}").parse().map_err(|_| BadToken)).transpose()?;
        Ok(Self { client, authorization, catalogue: Arc::default() })
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    /// The tools as last heard of, asked for when nothing was heard yet or `fresh` ones are wanted.
    pub(crate) async fn catalogue(&self, fresh: bool) -> Result<Arc<Catalogue>, Status> {
        let known = self.catalogue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|_| !fresh) {
            return Ok(known);
        }
        let (mut tools, mut page_token) = (Vec::new(), String::new());
        loop {
            let mut request = self.request(v1::ListToolsRequest { page_size: 1000, page_token });
            request.set_timeout(Duration::from_secs(5));
            let page = self.client.clone().list_tools(request).await.map_err(unreachable_runner)?.into_inner();
            tools.extend(page.tools);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                let catalogue = Arc::new(Catalogue::new(tools, page.ledger_id));
                *self.catalogue.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&catalogue));
                return Ok(catalogue);
            }
        }
    }

    /// Has a call run, or attaches to it, and waits for its end.
    pub(crate) async fn call(
        &self,
        name: String,
        workspace: String,
        request: &CallRequest,
        fence: v1::Fence,
        ledger_id: &str,
    ) -> Answer {
        let message = v1::CallToolRequest {
            name,
            tool: request.tool.clone(),
            arguments: Some(wire::payload(&request.arguments)),
            timeout: Some(belay_proto::duration(request.timeout)),
            fence: Some(fence),
            ledger_id: ledger_id.to_owned(),
            workspace,
        };
        let mut stream = match self.client.clone().call_tool(self.request(message)).await {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(request, status),
        };
        loop {
            match stream.message().await {
                Ok(Some(v1::CallToolResponse { event: Some(Event::Result(call)) })) => {
                    // Read to its end: a stream that is dropped before its trailers is reset, and HTTP/2 takes a thousand resets for an
                    // attack and closes the connection under everybody.
                    while let Ok(Some(_)) = stream.message().await {}
                    return Answer::Ended(end_of(request, call));
                }
                Ok(Some(_)) => {}
                Ok(None) => return Answer::Away(Status::unavailable("the runner ended the stream before the call")),
                Err(status) => return refused(request, status),
            }
        }
    }

    /// Has a call stopped, and waits for its true end.
    pub(crate) async fn stop(&self, name: String, request: &CallRequest, fence: v1::Fence, ledger_id: &str) -> Answer {
        let message = v1::CancelToolCallRequest { name, fence: Some(fence) };
        let ended = match self.client.clone().cancel_tool_call(self.request(message)).await {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(request, status),
        };
        // That a call never ran is believed from the ledger in which it was to be kept, and from no other.
        let kept_in = ended.receipt.as_ref().map_or("", |receipt| receipt.ledger_id.as_str());
        let elsewhere = !ledger_id.is_empty() && !kept_in.is_empty() && kept_in != ledger_id;
        if elsewhere && ended.state() == State::Cancelled {
            return Answer::LedgerChanged;
        }
        Answer::Ended(end_of(request, ended))
    }

    /// Lets the runner forget calls.
    pub(crate) async fn acknowledge(&self, names: Vec<String>, fence: v1::Fence) -> Result<(), Status> {
        let message = v1::AcknowledgeToolCallsRequest { names, fence: Some(fence) };
        self.client.clone().acknowledge_tool_calls(self.request(message)).await.map(drop)
    }
}

fn unreachable_runner(status: Status) -> Status {
    let message = format!("The tool runner does not answer: {}.", status.message());
    status::error(Code::Unavailable, "RUNNER_UNAVAILABLE", message).into()
}

/// What a refusal means for the call. Only what the runner itself refuses for good ends it: a status that a proxy or the transport made
/// up says nothing about the call, which may be running.
fn refused(request: &CallRequest, status: Status) -> Answer {
    let failed = |class, reason: &str| {
        let failure = Failure::new(class, reason, status.message());
        Answer::Ended(EventKind::CallFailed { call: request.call, failure, receipt: Receipt::default() })
    };
    let reason = status::reason(&status);
    match (status.code(), reason.as_deref()) {
        (Code::FailedPrecondition, Some("LEDGER_CHANGED")) => Answer::LedgerChanged,
        (Code::FailedPrecondition, Some("FENCED")) => Answer::Fenced,
        (Code::NotFound, Some(reason @ "TOOL_NOT_FOUND")) => failed(ErrorClass::InvalidArguments, reason),
        (Code::InvalidArgument, Some(reason)) => failed(ErrorClass::InvalidArguments, reason),
        (Code::AlreadyExists, Some(reason)) => failed(ErrorClass::Internal, reason),
        // tonic's word for a message beyond the limit, sent or received: sending it again would never end.
        (Code::OutOfRange, None) => failed(ErrorClass::InvalidArguments, "TOO_LARGE"),
        _ => Answer::Away(status),
    }
}

fn end_of(request: &CallRequest, ended: v1::ToolCall) -> EventKind {
    let call = request.call;
    let receipt = {
        let receipt = ended.receipt.clone().unwrap_or_default();
        let duration = receipt.duration.as_ref().and_then(belay_proto::to_duration).unwrap_or_default();
        Receipt { ledger_id: receipt.ledger_id, duration }
    };
    let failure = |default| {
        ended
            .failure
            .clone()
            .map_or_else(|| Failure::new(default, "UNSAID", "The runner gave no reason."), wire::failure_from)
    };
    match ended.state() {
        State::Completed => {
            let result = wire::json(ended.result).unwrap_or_else(|| Json::from_text("null"));
            EventKind::CallCompleted { call, result, receipt }
        }
        State::Cancelled => EventKind::CallCancelled { call },
        State::OutcomeUnknown => EventKind::CallOutcomeUnknown { call, failure: failure(ErrorClass::OutcomeUnknown) },
        State::TimedOut => EventKind::CallFailed { call, failure: failure(ErrorClass::Timeout), receipt },
        State::Failed | State::Unspecified | State::Requested | State::Running => {
            EventKind::CallFailed { call, failure: failure(ErrorClass::Internal), receipt }
        }
    }
}

/// What to believe of a call whose ledger is gone, when it may have been sent before.
pub(crate) fn without_ledger(request: &CallRequest) -> Option<EventKind> {
    match request.recovery {
        RecoveryClass::ReadOnly | RecoveryClass::Idempotent | RecoveryClass::Transactional => None,
        RecoveryClass::Manual => Some(EventKind::CallOutcomeUnknown {
            call: request.call,
            failure: Failure::new(
                ErrorClass::OutcomeUnknown,
                "LEDGER_CHANGED",
                "The runner that had the call keeps another ledger now; what the call did cannot be known.",
            ),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belay_execution::{CallId, digest};

    use super::*;

    fn request(recovery: RecoveryClass) -> CallRequest {
        CallRequest {
            call: CallId { step: 0, attempt: 1, number: 1 },
            tool: "noop".into(),
            arguments: Json::from_text("{}"),
            arguments_digest: digest(b"{}"),
            recovery,
            ledger_id: "a".into(),
            timeout: Duration::from_secs(1),
        }
    }

    /// B-09: what is refused for good is never sent again; anything that does not come from the runner itself is asked again.
    #[test]
    fn only_the_runner_s_own_refusals_end_a_call() {
        let request = request(RecoveryClass::Manual);
        let ours = |code, reason| refused(&request, status::error(code, reason, "no").into());
        let foreign = |code| refused(&request, Status::new(code, "h2 protocol error"));
        assert!(matches!(ours(Code::NotFound, "TOOL_NOT_FOUND"), Answer::Ended(EventKind::CallFailed { .. })));
        assert!(matches!(ours(Code::InvalidArgument, "INVALID_ARGUMENT"), Answer::Ended(EventKind::CallFailed { .. })));
        assert!(matches!(ours(Code::FailedPrecondition, "FENCED"), Answer::Fenced));
        assert!(matches!(ours(Code::FailedPrecondition, "LEDGER_CHANGED"), Answer::LedgerChanged));
        assert!(matches!(ours(Code::Unavailable, "RUNNER_STOPPING"), Answer::Away(_)));
        assert!(matches!(foreign(Code::OutOfRange), Answer::Ended(EventKind::CallFailed { .. })));
        for code in [
            Code::ResourceExhausted,
            Code::Internal,
            Code::Unknown,
            Code::Cancelled,
            Code::NotFound,
            Code::Unauthenticated,
        ] {
            assert!(matches!(foreign(code), Answer::Away(_)), "{code:?}");
        }
    }

    #[test]
    fn a_lost_ledger_leaves_an_unknown_outcome_only_where_running_again_could_harm() {
        for recovery in [RecoveryClass::ReadOnly, RecoveryClass::Idempotent, RecoveryClass::Transactional] {
            assert_eq!(without_ledger(&request(recovery)), None);
        }
        assert!(matches!(without_ledger(&request(RecoveryClass::Manual)), Some(EventKind::CallOutcomeUnknown { .. })));
    }
}
