//! The client of the tool runner: its catalogue of tools, and calls.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use belay_execution::Failure;
use belay_json_schema::{Schema, secret_places};
use belay_proto::{
    runner_v1::{
        self, SessionOperation, call_tool_response::Event, session_operation::Operation,
        tool_runner_service_client::ToolRunnerServiceClient,
    },
    stores::Stores,
    v1::{self, tool_call::State},
};
use belay_reasons as reasons;
use belay_service_kit::{ServiceChannel, host::MAX_MESSAGE_BYTES, status};
use belay_telemetry::TraceContext;
use futures::Stream;
use tonic::{Code, Request, Status, metadata::MetadataValue};

use crate::{
    intake::paths::path_arguments,
    runners::{
        call_reply::{CallReply, RunnerReply, refused, reply_of},
        link::Link,
        session::Urgency,
    },
    wire,
};

/// How long the runner may take to forget executions: it removes their directories.
const FORGET_TIMEOUT: Duration = Duration::from_secs(60);

/// The time limit of a request that runs no tool.
const RPC_TIMEOUT: Duration = Duration::from_secs(5);

/// A client of a tool runner.
#[derive(Clone)]
pub struct Runner {
    client: ToolRunnerServiceClient<ServiceChannel>,
    authorization: Option<MetadataValue<tonic::metadata::Ascii>>,
    catalogue: Arc<Mutex<Option<Arc<Catalogue>>>>,
    /// Whether a session was opened since the tools were listed: the runner may be another one by now, with other tools.
    is_catalogue_old: Arc<AtomicBool>,
    stores: Option<Arc<Stores>>,
    link: Arc<Link>,
}

/// A token that contains characters a header cannot.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the token contains characters that are not allowed in an HTTP header")]
pub struct InvalidToken;

/// The tools of a runner, as it listed them.
pub(crate) struct Catalogue {
    pub(crate) ledger_id: String,
    pub(crate) tools: Vec<v1::Tool>,
    /// The servers that tools are of.
    pub(crate) servers: Vec<v1::ToolServer>,
    by_name: HashMap<String, usize>,
    parameters: Vec<Parameters>,
}

/// The schema of a tool's parameters, compiled.
struct Parameters {
    schema: Option<Schema>,
    /// The arguments that are paths, by name.
    path_arguments: Vec<String>,
    /// The arguments that are secrets, as JSON pointers.
    secret_arguments: Vec<String>,
    /// The parts of its result that are secrets.
    secret_result: Vec<String>,
}

/// A tool of the catalogue.
pub(crate) struct FoundTool<'c> {
    pub(crate) tool: &'c v1::Tool,
    /// The schema of its parameters; `None` when it cannot be read here.
    pub(crate) schema: Option<&'c Schema>,
    /// The arguments that are paths, by name.
    pub(crate) path_arguments: &'c [String],
    /// The arguments that are secrets, as JSON pointers in which `*` stands for every member or item.
    pub(crate) secret_arguments: &'c [String],
    /// The parts of its result that are secrets.
    pub(crate) secret_result: &'c [String],
}

impl Catalogue {
    fn new(tools: Vec<v1::Tool>, servers: Vec<v1::ToolServer>, ledger_id: String) -> Self {
        let names = |tool: &v1::Tool| {
            std::iter::once(tool.name.clone()).chain(tool.aliases.iter().cloned()).collect::<Vec<_>>()
        };
        let by_name = tools
            .iter()
            .enumerate()
            .flat_map(|(index, tool)| names(tool).into_iter().map(move |name| (name, index)))
            .collect();
        // The runner has checked its schemas and checks every call; one that cannot be read here only means a later refusal.
        let parameters = tools.iter().map(|tool| {
            let parameters = serde_json::from_str(&tool.parameters_schema).unwrap_or_default();
            let result = serde_json::from_str(&tool.result_schema).unwrap_or_default();
            Parameters {
                schema: Schema::new(&tool.parameters_schema).ok(),
                path_arguments: path_arguments(&parameters),
                secret_arguments: secret_places(&parameters),
                secret_result: secret_places(&result),
            }
        });
        let parameters = parameters.collect();
        Self { ledger_id, tools, servers, by_name, parameters }
    }

    /// Why the tool of this name is not offered, if it is of a server that could not be asked.
    pub(crate) fn problem_of_server(&self, tool: &str) -> Option<&v1::ToolServer> {
        let (name, _) = tool.split_once('.')?;
        self.servers.iter().find(|server| server.name == name && !server.problem.is_empty())
    }

    /// A tool by any of its names.
    pub(crate) fn find(&self, name: &str) -> Option<FoundTool<'_>> {
        let &index = self.by_name.get(name)?;
        let Parameters { schema, path_arguments, secret_arguments, secret_result } = &self.parameters[index];
        let (tool, schema) = (&self.tools[index], schema.as_ref());
        Some(FoundTool { tool, schema, path_arguments, secret_arguments, secret_result })
    }

    /// Whether the calls of a tool have the network profile of the plan.
    pub(crate) fn takes_network(&self, name: &str) -> bool {
        self.find(name).is_some_and(|found| found.tool.takes_network)
    }

    /// Every name of a tool, the canonical ones first.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let aliases = self.tools.iter().flat_map(|tool| &tool.aliases);
        self.tools.iter().map(|tool| &tool.name).chain(aliases).map(String::as_str)
    }
}

impl Runner {
    /// A client on this channel; it sends `token` with every request.
    ///
    /// # Errors
    /// [`InvalidToken`] when the token contains characters that a header cannot.
    pub fn new(channel: impl Into<ServiceChannel>, token: Option<&str>) -> Result<Self, InvalidToken> {
        let channel = channel.into();
        let stores = channel.stores().cloned();
        let client = ToolRunnerServiceClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        let authorization =
            token.map(|token| format!("Bearer {token}").parse().map_err(|_| InvalidToken)).transpose()?;
        Ok(Self {
            client,
            authorization,
            catalogue: Arc::default(),
            is_catalogue_old: Arc::default(),
            stores,
            link: Arc::default(),
        })
    }

    /// The session with this runner.
    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// The stores whose positions are reported to the runner.
    pub(crate) fn stores(&self) -> Option<Arc<Stores>> {
        self.stores.clone()
    }

    /// Opens a session; it begins with the hellos.
    ///
    /// # Errors
    /// UNIMPLEMENTED: the runner has no sessions.
    pub(crate) async fn open_session(
        &self,
        requests: impl Stream<Item = runner_v1::SessionRequest> + Send + 'static,
    ) -> Result<tonic::Streaming<runner_v1::SessionResponse>, Status> {
        let session = self.client.clone().session(self.request(requests)).await?.into_inner();
        self.is_catalogue_old.store(true, Ordering::Release);
        Ok(session)
    }

    /// The end of an operation, by the session or by its own method.
    async fn end_of(
        &self,
        name: &str,
        (operation, trace): (Operation, Option<&TraceContext>),
        urgency: Urgency,
    ) -> Result<runner_v1::ToolCall, Status> {
        let in_session = || SessionOperation {
            operation: Some(operation.clone()),
            trace: trace.map(wire_trace),
            ..SessionOperation::default()
        };
        if self.link.is_session()
            && let Some(end) = self.link.ask(name.to_owned(), in_session(), urgency).await
        {
            return end;
        }
        let mut client = self.client.clone();
        let response = match operation {
            Operation::CancelToolCall(message) => client.cancel_tool_call(self.request(message)).await,
            Operation::CommitEffect(message) => client.commit_effect(self.traced(message, trace)).await,
            Operation::DiscardEffect(message) => client.discard_effect(self.traced(message, trace)).await,
            Operation::CallTool(_) | Operation::AcknowledgeToolCalls(_) => {
                unreachable!("they are not asked for an end")
            }
        };
        Ok(response?.into_inner())
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(authorization) = &self.authorization {
            request.metadata_mut().insert("authorization", authorization.clone());
        }
        request
    }

    fn traced<T>(&self, message: T, trace: Option<&TraceContext>) -> Request<T> {
        let mut request = self.request(message);
        if let Some(trace) = trace {
            trace.put(request.metadata_mut());
        }
        request
    }

    /// Returns the tools as last listed; lists them again when there is no list yet, `fresh` is set or a session was opened meanwhile. In the last case the
    /// list that is known serves while the runner is unavailable.
    pub(crate) async fn catalogue(&self, fresh: bool) -> Result<Arc<Catalogue>, Status> {
        let known = self.catalogue.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(known) = known.filter(|_| !fresh) else { return self.listed().await };
        if !self.is_catalogue_old.load(Ordering::Acquire) {
            return Ok(known);
        }
        Ok(self.listed().await.unwrap_or(known))
    }

    async fn listed(&self) -> Result<Arc<Catalogue>, Status> {
        // A session that is opened from here on makes the list old again.
        let was_old = self.is_catalogue_old.swap(false, Ordering::AcqRel);
        let listed = self.list().await;
        if listed.is_err() {
            self.is_catalogue_old.fetch_or(was_old, Ordering::AcqRel);
        }
        listed
    }

    async fn list(&self) -> Result<Arc<Catalogue>, Status> {
        let (mut tools, mut page_token) = (Vec::new(), String::new());
        loop {
            let mut request = self.request(runner_v1::ListToolsRequest { page_size: 1000, page_token });
            request.set_timeout(RPC_TIMEOUT);
            let page = self.client.clone().list_tools(request).await.map_err(unreachable_runner)?.into_inner();
            tools.extend(page.tools);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                let catalogue = Arc::new(Catalogue::new(tools, page.tool_servers, page.ledger_id));
                *self.catalogue.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&catalogue));
                return Ok(catalogue);
            }
        }
    }

    /// The ledger that the runner had when its tools were listed last; `None` when it is the one that the caller knows, or no list is known.
    pub(crate) fn other_ledger(&self, known: &str) -> Option<Arc<str>> {
        let catalogue = self.catalogue.lock().unwrap_or_else(PoisonError::into_inner);
        catalogue
            .as_ref()
            .filter(|catalogue| catalogue.ledger_id != known)
            .map(|catalogue| catalogue.ledger_id.as_str().into())
    }

    /// Runs a call by the method of its own, or attaches to it, until it ends or is held. `accepted` is called once the runner has accepted the call, `on_output`
    /// with the tool's output, `on_waiting` with the exclusive call that this one waits for, or an empty name when it no longer waits, and `on_asking` with the
    /// questions of the call that are open.
    pub(crate) async fn call(
        &self,
        message: runner_v1::CallToolRequest,
        accepted: impl FnOnce(),
        mut on_output: impl FnMut(v1::ToolCallOutput),
        mut on_waiting: impl FnMut(String),
        mut on_asking: impl FnMut(Vec<runner_v1::ToolCallQuestion>),
    ) -> RunnerReply {
        let mut stream = match self.client.clone().call_tool(self.request(message)).await {
            Ok(response) => response.into_inner(),
            Err(status) => return RunnerReply::Whole(refused(status)),
        };
        accepted();
        loop {
            match stream.message().await {
                Ok(Some(runner_v1::CallToolResponse { event: Some(Event::Result(call) | Event::Held(call)) })) => {
                    // Read to the end: a stream that is dropped before its trailers is reset. HTTP/2 servers treat a thousand resets as an
                    // attack and close the connection for all calls.
                    while let Ok(Some(_)) = stream.message().await {}
                    return reply_of(call);
                }
                Ok(Some(runner_v1::CallToolResponse { event: Some(Event::Output(output)) })) => on_output(output),
                Ok(Some(runner_v1::CallToolResponse { event: Some(Event::Waiting(waiting)) })) => {
                    on_waiting(waiting.exclusive_call)
                }
                Ok(Some(runner_v1::CallToolResponse { event: Some(Event::Asking(asking)) })) => {
                    on_asking(asking.questions)
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    return RunnerReply::Whole(CallReply::Unavailable(Status::unavailable(
                        "the runner closed the stream before the call ended",
                    )));
                }
                Err(status) => return RunnerReply::Whole(refused(status)),
            }
        }
    }

    /// Cancels a call, and returns how it really ended.
    pub(crate) async fn cancel(&self, message: runner_v1::CancelToolCallRequest, ledger_id: &str) -> RunnerReply {
        let name = message.name.clone();
        let operation = (Operation::CancelToolCall(message), None);
        let ended = match self.end_of(&name, operation, Urgency::First).await {
            Ok(ended) => ended,
            Err(status) => return RunnerReply::Whole(refused(status)),
        };
        // Only the ledger that was to keep the call can confirm that it never ran.
        let kept_in = ended.receipt.as_ref().map_or("", |receipt| receipt.ledger_id.as_str());
        let elsewhere = !ledger_id.is_empty() && !kept_in.is_empty() && kept_in != ledger_id;
        if elsewhere && ended.state() == State::Cancelled {
            return RunnerReply::Whole(CallReply::LedgerChanged);
        }
        reply_of(ended)
    }

    /// Streams the result of a call, to which the runner has returned a reference.
    pub(crate) async fn read_blob(
        &self,
        request: runner_v1::ReadBlobRequest,
    ) -> Result<tonic::Streaming<runner_v1::ReadBlobResponse>, Status> {
        Ok(self.client.clone().read_blob(self.request(request)).await?.into_inner())
    }

    /// Commits the effect of a held call.
    pub(crate) async fn commit(
        &self,
        name: String,
        fence: runner_v1::Fence,
        grant: runner_v1::Grant,
        trace: &TraceContext,
    ) -> RunnerReply {
        let message = runner_v1::CommitEffectRequest { name: name.clone(), grant: Some(grant), fence: Some(fence) };
        let operation = (Operation::CommitEffect(message), Some(trace));
        self.end_of(&name, operation, Urgency::Usual)
            .await
            .map_or_else(|status| RunnerReply::Whole(refused(status)), reply_of)
    }

    /// Discards a held call; `failure` becomes the call's failure.
    pub(crate) async fn discard(
        &self,
        name: String,
        fence: runner_v1::Fence,
        failure: &Failure,
        trace: &TraceContext,
    ) -> RunnerReply {
        let failure = Some(wire::failure(failure));
        let message = runner_v1::DiscardEffectRequest { name: name.clone(), fence: Some(fence), failure };
        let operation = (Operation::DiscardEffect(message), Some(trace));
        self.end_of(&name, operation, Urgency::First)
            .await
            .map_or_else(|status| RunnerReply::Whole(refused(status)), reply_of)
    }

    /// Tells a call that runs what became of a question.
    pub(crate) async fn answer(&self, message: runner_v1::AnswerToolCallRequest) -> Result<(), Status> {
        let mut request = self.request(message);
        request.set_timeout(RPC_TIMEOUT);
        self.client.clone().answer_tool_call(request).await.map(drop)
    }

    /// Returns the path of a workspace as the runner resolves it, without symbolic links.
    ///
    /// # Errors
    /// INVALID_ARGUMENT naming the field `workspace`, with the runner's reason; UNAVAILABLE.
    pub(crate) async fn check_workspace(&self, workspace: String) -> Result<String, Status> {
        let mut request = self.request(runner_v1::CheckWorkspaceRequest { workspace });
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

    /// Streams the calls that have ended at the runner and are not acknowledged, then heartbeats.
    pub(crate) async fn unacknowledged(
        &self,
    ) -> Result<tonic::Streaming<runner_v1::WatchUnacknowledgedToolCallsResponse>, Status> {
        let request = self.request(runner_v1::WatchUnacknowledgedToolCallsRequest::default());
        Ok(self.client.clone().watch_unacknowledged_tool_calls(request).await?.into_inner())
    }

    /// Returns what the runner says about planned calls, and the policy of a namespace unless that is empty; an empty response when the runner is
    /// unavailable, since this does not decide whether a plan is accepted.
    pub(crate) async fn check_calls(
        &self,
        calls: Vec<runner_v1::PlannedCall>,
        namespace: String,
    ) -> runner_v1::CheckCallsResponse {
        let mut request = self.request(runner_v1::CheckCallsRequest { calls, namespace });
        request.set_timeout(RPC_TIMEOUT);
        match self.client.clone().check_calls(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => {
                tracing::warn!(%status, "The tool runner did not check a plan's calls; its warnings are missing");
                runner_v1::CheckCallsResponse::default()
            }
        }
    }

    /// Makes the runner forget deleted executions; returns the names of those that it has forgotten.
    pub(crate) async fn forget(&self, executions: Vec<runner_v1::DeletedExecution>) -> Result<Vec<String>, Status> {
        let mut request = self.request(runner_v1::ForgetExecutionsRequest { executions });
        request.set_timeout(FORGET_TIMEOUT);
        Ok(self.client.clone().forget_executions(request).await?.into_inner().forgotten)
    }

    /// Acknowledges calls, so that the runner may forget them.
    pub(crate) async fn acknowledge(&self, names: Vec<String>, fence: runner_v1::Fence) -> Result<(), Status> {
        let message = runner_v1::AcknowledgeToolCallsRequest { names, fence: Some(fence) };
        self.client.clone().acknowledge_tool_calls(self.request(message)).await.map(drop)
    }
}

fn unreachable_runner(status: Status) -> Status {
    let message = format!("The tool runner is not available: {}.", status.message().trim_end_matches('.'));
    status::error(Code::Unavailable, reasons::RUNNER_UNAVAILABLE, message).into()
}

/// A trace context as messages carry it.
pub(crate) fn wire_trace(trace: &TraceContext) -> v1::TraceContext {
    v1::TraceContext { traceparent: trace.traceparent(), tracestate: trace.tracestate().into() }
}
