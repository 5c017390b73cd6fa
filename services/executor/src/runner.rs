//! The tool runner as the executor sees it: a catalogue of tools, and calls that end in an answer or say that there is none.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use belay_execution::{CallRequest, Failure};
use belay_json_schema::Schema;
use belay_proto::v1::{
    self, call_tool_response::Event, tool_call::State, tool_runner_service_client::ToolRunnerServiceClient,
};
use belay_reasons as reasons;
use belay_service_kit::{ServiceChannel, host::LARGEST_MESSAGE, status};
use belay_telemetry::TraceContext;
use tonic::{Code, Request, Status, metadata::MetadataValue};

use crate::{
    call_reply::{CallReply, refused, reply_of},
    wire,
};

/// How long a question that needs no work may take.
const RPC_TIMEOUT: Duration = Duration::from_secs(5);

/// A way to a tool runner.
#[derive(Clone)]
pub struct Runner {
    client: ToolRunnerServiceClient<ServiceChannel>,
    authorization: Option<MetadataValue<tonic::metadata::Ascii>>,
    catalogue: Arc<Mutex<Option<Arc<Catalogue>>>>,
}

/// A token that cannot stand in a header.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the token holds characters that cannot be sent")]
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

impl Runner {
    /// A runner behind a channel; `token` is shown with every request.
    ///
    /// # Errors
    /// [`BadToken`] when the token cannot stand in a header.
    pub fn new(channel: impl Into<ServiceChannel>, token: Option<&str>) -> Result<Self, BadToken> {
        let client = ToolRunnerServiceClient::new(channel.into())
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

    fn traced<T>(&self, message: T, trace: &TraceContext) -> Request<T> {
        let mut request = self.request(message);
        trace.put(request.metadata_mut());
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
            request.set_timeout(RPC_TIMEOUT);
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

    /// Has a call run, or attaches to it, and waits for its end or for its being held. `accepted` is called once the runner has taken the call
    /// on. `said` gets what the tool says meanwhile, `waits`
    /// the call for whose end this one waits, and an empty name when it does not any more.
    pub(crate) async fn call(
        &self,
        message: v1::CallToolRequest,
        request: &CallRequest,
        accepted: impl FnOnce(),
        mut on_output: impl FnMut(v1::ToolCallOutput),
        mut on_waiting: impl FnMut(String),
    ) -> CallReply {
        let mut stream = match self.client.clone().call_tool(self.request(message)).await {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(request, status),
        };
        accepted();
        loop {
            match stream.message().await {
                Ok(Some(v1::CallToolResponse { event: Some(Event::Result(call) | Event::Held(call)) })) => {
                    // Read to its end: a stream that is dropped before its trailers is reset, and HTTP/2 takes a thousand resets for an
                    // attack and closes the connection under everybody.
                    while let Ok(Some(_)) = stream.message().await {}
                    return reply_of(request, call);
                }
                Ok(Some(v1::CallToolResponse { event: Some(Event::Output(output)) })) => on_output(output),
                Ok(Some(v1::CallToolResponse { event: Some(Event::Waiting(waiting)) })) => {
                    on_waiting(waiting.exclusive_call)
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    return CallReply::Unavailable(Status::unavailable("the runner ended the stream before the call"));
                }
                Err(status) => return refused(request, status),
            }
        }
    }

    /// Has a call stopped, and waits for its true end.
    pub(crate) async fn cancel(
        &self,
        name: String,
        request: &CallRequest,
        fence: v1::Fence,
        ledger_id: &str,
    ) -> CallReply {
        let message = v1::CancelToolCallRequest { name, fence: Some(fence) };
        let ended = match self.client.clone().cancel_tool_call(self.request(message)).await {
            Ok(response) => response.into_inner(),
            Err(status) => return refused(request, status),
        };
        // That a call never ran is believed from the ledger in which it was to be kept, and from no other.
        let kept_in = ended.receipt.as_ref().map_or("", |receipt| receipt.ledger_id.as_str());
        let elsewhere = !ledger_id.is_empty() && !kept_in.is_empty() && kept_in != ledger_id;
        if elsewhere && ended.state() == State::Cancelled {
            return CallReply::LedgerChanged;
        }
        reply_of(request, ended)
    }

    /// Has the effect of a held call put in place.
    pub(crate) async fn commit(
        &self,
        name: String,
        request: &CallRequest,
        fence: v1::Fence,
        grant: v1::Grant,
        trace: &TraceContext,
    ) -> CallReply {
        let message = v1::CommitEffectRequest { name, grant: Some(grant), fence: Some(fence) };
        match self.client.clone().commit_effect(self.traced(message, trace)).await {
            Ok(response) => reply_of(request, response.into_inner()),
            Err(status) => refused(request, status),
        }
    }

    /// Has a held call given up; `failure` is what the call will say.
    pub(crate) async fn discard(
        &self,
        name: String,
        request: &CallRequest,
        fence: v1::Fence,
        failure: &Failure,
        trace: &TraceContext,
    ) -> CallReply {
        let failure = Some(wire::failure(failure));
        let message = v1::DiscardEffectRequest { name, fence: Some(fence), failure };
        match self.client.clone().discard_effect(self.traced(message, trace)).await {
            Ok(response) => reply_of(request, response.into_inner()),
            Err(status) => refused(request, status),
        }
    }

    /// The path of a workspace as the runner knows it, without symbolic links.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the field `workspace`, with the runner's reason; UNAVAILABLE.
    pub(crate) async fn check_workspace(&self, workspace: String) -> Result<String, Status> {
        let mut request = self.request(v1::CheckWorkspaceRequest { workspace });
        request.set_timeout(RPC_TIMEOUT);
        match self.client.clone().check_workspace(request).await {
            Ok(response) => Ok(response.into_inner().workspace),
            Err(status) if status.code() == Code::InvalidArgument => {
                let reason = status::reason(&status).unwrap_or_else(|| reasons::INVALID_ARGUMENT.to_owned());
                let why = status.message().trim_start_matches("workspace: ").to_owned();
                let message = format!("workspace: {why}");
                Err(status::error(Code::InvalidArgument, &reason, message).field("workspace", why).into())
            }
            Err(status) => Err(unreachable_runner(status)),
        }
    }

    /// The calls that have ended there and are not acknowledged, then heartbeats until the connection or the runner is gone.
    pub(crate) async fn unacknowledged(
        &self,
    ) -> Result<tonic::Streaming<v1::WatchUnacknowledgedToolCallsResponse>, Status> {
        let request = self.request(v1::WatchUnacknowledgedToolCallsRequest::default());
        Ok(self.client.clone().watch_unacknowledged_tool_calls(request).await?.into_inner())
    }

    /// What the runner can tell of planned calls; nothing where it cannot be asked, since whether a plan is accepted does not hang on it.
    pub(crate) async fn check_calls(&self, calls: Vec<v1::PlannedCall>) -> Vec<v1::CallProblem> {
        let mut request = self.request(v1::CheckCallsRequest { calls });
        request.set_timeout(RPC_TIMEOUT);
        match self.client.clone().check_calls(request).await {
            Ok(response) => response.into_inner().problems,
            Err(status) => {
                tracing::warn!(%status, "The tool runner could not be asked what it can tell of a plan's calls");
                Vec::new()
            }
        }
    }

    /// Lets the runner forget calls.
    pub(crate) async fn acknowledge(&self, names: Vec<String>, fence: v1::Fence) -> Result<(), Status> {
        let message = v1::AcknowledgeToolCallsRequest { names, fence: Some(fence) };
        self.client.clone().acknowledge_tool_calls(self.request(message)).await.map(drop)
    }
}

fn unreachable_runner(status: Status) -> Status {
    let message = format!("The tool runner does not answer: {}.", status.message().trim_end_matches('.'));
    status::error(Code::Unavailable, reasons::RUNNER_UNAVAILABLE, message).into()
}
