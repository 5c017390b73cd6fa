//! A scripted executor and approval gate on a socket: they answer by the script and keep what they were asked.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
};

use belay_proto::{
    v1::{
        Approval, Artifact, AuditEntry, CancelExecutionRequest, CompareExecutionsRequest, CompareExecutionsResponse,
        DecideApprovalRequest, DeleteExecutionRequest, DeleteExecutionResponse, Execution, ExecutionEvent,
        ExplainExecutionRequest, ExplainExecutionResponse, ForkExecutionRequest, GetArtifactRequest,
        GetArtifactResponse, GetExecutionRequest, GetProvenanceRequest, GetProvenanceResponse, GetStepRequest,
        GetTimelineRequest, ListArtifactsRequest, ListArtifactsResponse, ListAuditEntriesRequest,
        ListAuditEntriesResponse, ListCapabilitiesRequest, ListCapabilitiesResponse, ListEventsRequest,
        ListEventsResponse, ListExecutionsRequest, ListExecutionsResponse, ListNamespacesRequest,
        ListNamespacesResponse, ListStepsRequest, ListStepsResponse, ListToolCallsRequest, ListToolCallsResponse,
        PauseExecutionRequest, Plan, PlanViolation, ReadBlobRequest, ReadBlobResponse, ResolveStepRequest,
        ResumeExecutionRequest, RetryExecutionRequest, RetryStepRequest, SetStepOutputRequest, SignalExecutionRequest,
        SkipStepRequest, StartExecutionRequest, Step, Timeline, ToolCall, UpdatePlanRequest, ValidatePlanRequest,
        ValidatePlanResponse, WaitExecutionRequest, WatchExecutionRequest, WatchExecutionResponse,
        WatchExecutionsRequest, WatchExecutionsResponse,
        approval_service_server::ApprovalServiceServer,
        execution_event::Kind,
        executor_service_server::{ExecutorService, ExecutorServiceServer},
        watch_execution_response::Content,
    },
    watch::WatchMessage,
};
use futures::Stream;
use tempfile::TempDir;
use tokio::{net, runtime::Runtime, sync::watch};
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::{Request, Response, Status, transport};

/// The server's state.
#[derive(Default)]
pub(crate) struct World {
    /// The result of a start, by the plan's text: the execution as it is accepted, and what happens to it.
    pub(crate) story: Option<(Execution, Vec<ExecutionEvent>)>,
    /// The executions there are, the newest last.
    pub(crate) executions: Vec<(Execution, Vec<ExecutionEvent>)>,
    /// The calls of tools that they made.
    pub(crate) calls: Vec<ToolCall>,
    /// Their artifacts, and how many files are not listed.
    pub(crate) artifacts: Vec<Artifact>,
    pub(crate) unlisted_files: i64,
    /// Their audit log, whatever is asked for, and what was asked for.
    pub(crate) audit: Vec<AuditEntry>,
    pub(crate) audits: Vec<ListAuditEntriesRequest>,
    /// The messages of the watches of all executions, one after the other.
    pub(crate) all: Vec<Vec<WatchExecutionsResponse>>,
    /// The watches of all executions that were asked for.
    pub(crate) watches_of_all: Vec<WatchExecutionsRequest>,
    /// The problems of every plan.
    pub(crate) violations: Vec<PlanViolation>,
    /// Streams break after the event with this number, each number once.
    pub(crate) breaks: Vec<i64>,
    /// The starts that were asked for.
    pub(crate) starts: Vec<StartExecutionRequest>,
    /// The cursors of the watches that were asked for; `all` and `new` for those without one.
    pub(crate) watches: Vec<String>,
    /// The `authorization` of the last request.
    pub(crate) authorization: Option<String>,
    /// The approvals there are, in the order of a list.
    pub(crate) approvals: Vec<Approval>,
    /// The decisions that were sent.
    pub(crate) answers: Vec<belay_proto::v1::AnswerFormRequest>,
    /// Why the next answers are refused, the last first.
    pub(crate) refused_answers: Vec<String>,
    pub(crate) decisions: Vec<DecideApprovalRequest>,
}

/// A running server; gone when it is dropped.
pub(crate) struct Server {
    folder: TempDir,
    tcp: SocketAddr,
    world: Arc<Mutex<World>>,
    changed: Arc<watch::Sender<()>>,
    runtime: Runtime,
}

impl Server {
    /// Listens on a socket and on TCP.
    pub(crate) fn start(world: World) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let world = Arc::new(Mutex::new(world));
        let changed = Arc::new(watch::Sender::new(()));
        let scripted = ScriptedServer { world: world.clone(), changed: changed.clone() };
        let gate = ApprovalServiceServer::new(scripted.clone());
        let service = ExecutorServiceServer::new(scripted);
        let _inside = runtime.enter();
        let socket = net::UnixListener::bind(folder.path().join("socket")).unwrap();
        let listener = runtime.block_on(net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let tcp = listener.local_addr().unwrap();
        let on_tcp = transport::Server::builder().add_service(service.clone()).add_service(gate.clone());
        runtime.spawn(on_tcp.serve_with_incoming(TcpListenerStream::new(listener)));
        let on_socket = transport::Server::builder().add_service(service).add_service(gate);
        runtime.spawn(on_socket.serve_with_incoming(UnixListenerStream::new(socket)));
        Server { folder, tcp, world, changed, runtime }
    }

    /// The socket's address for `--server`.
    pub(crate) fn address(&self) -> String {
        format!("unix:{}", self.folder.path().join("socket").display())
    }

    /// The TCP address for `--server`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.tcp)
    }

    /// A folder for files.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The server's state now.
    pub(crate) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap()
    }

    /// Waits until a client watches.
    pub(crate) fn wait_for_watch(&self) {
        let mut changed = self.changed.subscribe();
        while self.world().watches.is_empty() {
            self.runtime.block_on(changed.changed()).unwrap();
        }
    }

    /// Something happens to the newest execution.
    pub(crate) fn happen(&self, event: ExecutionEvent) {
        self.world().executions.last_mut().unwrap().1.push(event);
        self.changed.send_replace(());
    }
}

#[derive(Clone)]
pub(crate) struct ScriptedServer {
    pub(crate) world: Arc<Mutex<World>>,
    changed: Arc<watch::Sender<()>>,
}

impl ScriptedServer {
    fn get(&self, name: &str) -> Result<Execution, Status> {
        let world = self.world.lock().unwrap();
        let found = world.executions.iter().find(|(execution, _)| execution.name == name);
        let (execution, events) = found.ok_or_else(|| Status::not_found("there is no such execution"))?;
        let mut execution = execution.clone();
        for event in events {
            execution.last_sequence = event.sequence;
            if let Some(Kind::ExecutionFinished(finished)) = &event.kind {
                execution.state = finished.state;
                execution.failure = finished.failure.clone();
                execution.totals = finished.totals;
            }
        }
        Ok(execution)
    }
}

/// A message after the event `sent`, which is its cursor.
fn watched(sent: i64, content: Content) -> WatchMessage {
    WatchExecutionResponse { cursor: sent.to_string(), content: Some(content), ..Default::default() }.into()
}

#[tonic::async_trait]
impl ExecutorService for ScriptedServer {
    async fn validate_plan(&self, _: Request<ValidatePlanRequest>) -> Result<Response<ValidatePlanResponse>, Status> {
        let violations = self.world.lock().unwrap().violations.clone();
        let plan = violations.is_empty().then(|| Plan { id: "p".to_owned(), ..Default::default() });
        Ok(Response::new(ValidatePlanResponse { violations, plan, ..ValidatePlanResponse::default() }))
    }

    async fn start_execution(&self, request: Request<StartExecutionRequest>) -> Result<Response<Execution>, Status> {
        let request = request.into_inner();
        let mut world = self.world.lock().unwrap();
        world.starts.push(request.clone());
        if !world.violations.is_empty() {
            return Err(Status::invalid_argument("the plan is refused"));
        }
        let story = world.story.clone().expect("the test's script has a story");
        if !request.validate_only {
            world.executions.push(story.clone());
        }
        Ok(Response::new(story.0))
    }

    async fn get_execution(&self, request: Request<GetExecutionRequest>) -> Result<Response<Execution>, Status> {
        Ok(Response::new(self.get(&request.into_inner().name)?))
    }

    async fn get_step(&self, request: Request<GetStepRequest>) -> Result<Response<Step>, Status> {
        let name = request.into_inner().name;
        let (execution, _) = name.rsplit_once("/steps/").unwrap();
        let steps = self.get(execution)?.steps;
        let found = steps.into_iter().find(|step| name.ends_with(&format!("/steps/{}", step.step_id)));
        found.map(Response::new).ok_or_else(|| Status::not_found("there is no such step"))
    }

    type ReadBlobStream = Pin<Box<dyn Stream<Item = Result<ReadBlobResponse, Status>> + Send>>;

    async fn read_blob(&self, _: Request<ReadBlobRequest>) -> Result<Response<Self::ReadBlobStream>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list_steps(&self, request: Request<ListStepsRequest>) -> Result<Response<ListStepsResponse>, Status> {
        let steps = self.get(&request.into_inner().parent)?.steps;
        Ok(Response::new(ListStepsResponse { steps, ..Default::default() }))
    }

    async fn list_tool_calls(
        &self,
        request: Request<ListToolCallsRequest>,
    ) -> Result<Response<ListToolCallsResponse>, Status> {
        let request = request.into_inner();
        let world = self.world.lock().unwrap();
        let of_parent = |call: &&ToolCall| call.name.starts_with(&format!("{}/", request.parent));
        let all: Vec<ToolCall> = world.calls.iter().filter(of_parent).cloned().collect();
        // One a page, so that clients have to ask for the next.
        let before: usize = request.page_token.parse().unwrap_or(0);
        let next_page_token = if before + 1 < all.len() { (before + 1).to_string() } else { String::new() };
        Ok(Response::new(ListToolCallsResponse {
            tool_calls: all.into_iter().skip(before).take(1).collect(),
            next_page_token,
        }))
    }

    async fn list_artifacts(
        &self,
        request: Request<ListArtifactsRequest>,
    ) -> Result<Response<ListArtifactsResponse>, Status> {
        let request = request.into_inner();
        let world = self.world.lock().unwrap();
        let (execution, step) = request.parent.split_once("/steps/").unwrap_or((&request.parent, ""));
        let has_kind = |found: &Artifact| request.kind == 0 || found.kind == request.kind;
        let is_wanted = |found: &&Artifact| {
            found.name.starts_with(&format!("{execution}/"))
                && (step.is_empty() || found.step_id == step)
                && has_kind(found)
                && found.path.starts_with(&request.path_prefix)
        };
        let all: Vec<Artifact> = world.artifacts.iter().filter(is_wanted).cloned().collect();
        // One a page, so that clients have to ask for the next.
        let before: usize = request.page_token.parse().unwrap_or(0);
        let next_page_token = if before + 1 < all.len() { (before + 1).to_string() } else { String::new() };
        Ok(Response::new(ListArtifactsResponse {
            artifacts: all.into_iter().skip(before).take(1).collect(),
            next_page_token,
            unlisted_file_count: world.unlisted_files,
        }))
    }

    type GetArtifactStream = Pin<Box<dyn Stream<Item = Result<GetArtifactResponse, Status>> + Send>>;

    /// The content is `{"n":7}`, in pieces of three bytes; the first stream breaks after one.
    async fn get_artifact(
        &self,
        request: Request<GetArtifactRequest>,
    ) -> Result<Response<Self::GetArtifactStream>, Status> {
        let request = request.into_inner();
        let world = self.world.lock().unwrap();
        let found = world.artifacts.iter().find(|found| found.name == request.name).cloned();
        let found = found.ok_or_else(|| Status::not_found("there is no such artifact"))?;
        let offset = usize::try_from(request.offset).unwrap();
        let pieces: Vec<Result<GetArtifactResponse, Status>> = br#"{"n":7}"#[offset..]
            .chunks(3)
            .map(|data| Ok(GetArtifactResponse { artifact: Some(found.clone()), data: data.to_vec(), offset: 0 }))
            .collect();
        let breaks = (offset == 0).then(|| Err(Status::unavailable("the line was cut")));
        let pieces = pieces.into_iter().take(if offset == 0 { 1 } else { 9 }).chain(breaks);
        Ok(Response::new(Box::pin(futures::stream::iter(pieces.collect::<Vec<_>>()))))
    }

    async fn get_provenance(
        &self,
        request: Request<GetProvenanceRequest>,
    ) -> Result<Response<GetProvenanceResponse>, Status> {
        let name = request.into_inner().name;
        let world = self.world.lock().unwrap();
        let found = world.artifacts.iter().find(|found| found.name == name).cloned();
        let artifact = Some(found.ok_or_else(|| Status::not_found("there is no such artifact"))?);
        let all = || world.artifacts.iter().filter(|found| found.name != name);
        let ancestors = all().filter(|found| artifact.iter().any(|of| of.derives_from.contains(&found.name)));
        Ok(Response::new(GetProvenanceResponse {
            ancestors: ancestors.cloned().collect(),
            descendants: all().filter(|found| found.derives_from.contains(&name)).cloned().collect(),
            artifact,
            ..GetProvenanceResponse::default()
        }))
    }

    async fn list_audit_entries(
        &self,
        request: Request<ListAuditEntriesRequest>,
    ) -> Result<Response<ListAuditEntriesResponse>, Status> {
        let mut world = self.world.lock().unwrap();
        let request = request.into_inner();
        let entries = world.audit.clone();
        world.audits.push(request.clone());
        Ok(Response::new(ListAuditEntriesResponse { entries, level: request.level, ..Default::default() }))
    }

    async fn list_events(&self, _: Request<ListEventsRequest>) -> Result<Response<ListEventsResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn explain_execution(
        &self,
        _: Request<ExplainExecutionRequest>,
    ) -> Result<Response<ExplainExecutionResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn compare_executions(
        &self,
        _: Request<CompareExecutionsRequest>,
    ) -> Result<Response<CompareExecutionsResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn get_timeline(&self, _: Request<GetTimelineRequest>) -> Result<Response<Timeline>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list_executions(
        &self,
        request: Request<ListExecutionsRequest>,
    ) -> Result<Response<ListExecutionsResponse>, Status> {
        let mut world = self.world.lock().unwrap();
        world.authorization = request.metadata().get("authorization").map(|value| value.to_str().unwrap().to_owned());
        let request = request.into_inner();
        let prefix = request.filter.strip_prefix("id = \"").and_then(|id| id.strip_suffix("*\"")).unwrap_or_default();
        let beginning = format!("{}/executions/{prefix}", request.parent);
        let newest_first = world.executions.iter().rev().map(|(execution, _)| execution.clone());
        let executions = newest_first
            .filter(|execution| execution.name.starts_with(&beginning))
            .take(usize::try_from(request.page_size).unwrap())
            .collect();
        Ok(Response::new(ListExecutionsResponse { executions, ..Default::default() }))
    }

    async fn list_namespaces(
        &self,
        _: Request<ListNamespacesRequest>,
    ) -> Result<Response<ListNamespacesResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    type WatchExecutionStream = Pin<Box<dyn Stream<Item = Result<WatchMessage, Status>> + Send>>;

    async fn watch_execution(
        &self,
        request: Request<WatchExecutionRequest>,
    ) -> Result<Response<Self::WatchExecutionStream>, Status> {
        let request = request.into_inner();
        let snapshot = self.get(&request.name)?;
        let (begin, mut sent) = match (request.cursor.as_str(), request.include_earlier_events) {
            ("", true) => ("all", 0),
            ("", false) => ("new", snapshot.last_sequence),
            (cursor, _) => (cursor, cursor.parse().unwrap()),
        };
        self.world.lock().unwrap().watches.push(begin.to_owned());
        self.changed.send_replace(());
        let (world, mut changed) = (self.world.clone(), self.changed.subscribe());
        Ok(Response::new(Box::pin(async_stream::try_stream! {
            yield watched(sent, Content::Snapshot(snapshot));
            loop {
                let events: Vec<ExecutionEvent> = {
                    let world = world.lock().unwrap();
                    let (_, events) = world.executions.iter().find(|(execution, _)| execution.name == request.name).unwrap();
                    events.iter().filter(|event| event.sequence > sent).cloned().collect()
                };
                for event in events {
                    sent = event.sequence;
                    let is_last = matches!(event.kind, Some(Kind::ExecutionFinished(_)));
                    yield watched(sent, Content::Event(event));
                    if is_last {
                        return;
                    }
                    let is_break = {
                        let breaks = &mut world.lock().unwrap().breaks;
                        let place = breaks.iter().position(|number| *number == sent);
                        place.map(|place| breaks.remove(place)).is_some()
                    };
                    if is_break {
                        Err(Status::unavailable("the line was cut"))?;
                    }
                }
                if changed.changed().await.is_err() {
                    return;
                }
            }
        })))
    }

    type WatchExecutionsStream = Pin<Box<dyn Stream<Item = Result<WatchExecutionsResponse, Status>> + Send>>;

    /// Each watch gets the next of the scripted ones, which ends as if the line was cut; after the last, nothing more comes.
    async fn watch_executions(
        &self,
        request: Request<WatchExecutionsRequest>,
    ) -> Result<Response<Self::WatchExecutionsStream>, Status> {
        let mut world = self.world.lock().unwrap();
        world.watches_of_all.push(request.into_inner());
        let next = if world.all.is_empty() { None } else { Some(world.all.remove(0)) };
        Ok(Response::new(Box::pin(async_stream::try_stream! {
            let Some(messages) = next else { return std::future::pending().await };
            for message in messages {
                yield message;
            }
            Err(Status::unavailable("the line was cut"))?;
        })))
    }

    async fn wait_execution(&self, _: Request<WaitExecutionRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn cancel_execution(&self, _: Request<CancelExecutionRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::failed_precondition("the execution has ended"))
    }

    async fn delete_execution(
        &self,
        _: Request<DeleteExecutionRequest>,
    ) -> Result<Response<DeleteExecutionResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn pause_execution(&self, _: Request<PauseExecutionRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn resume_execution(&self, _: Request<ResumeExecutionRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn signal_execution(&self, _: Request<SignalExecutionRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn resolve_step(&self, _: Request<ResolveStepRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn retry_execution(&self, _: Request<RetryExecutionRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn fork_execution(&self, _: Request<ForkExecutionRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn update_plan(&self, _: Request<UpdatePlanRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn retry_step(&self, _: Request<RetryStepRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn skip_step(&self, _: Request<SkipStepRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn set_step_output(&self, _: Request<SetStepOutputRequest>) -> Result<Response<Execution>, Status> {
        Err(Status::unimplemented("not scripted"))
    }

    async fn list_capabilities(
        &self,
        _: Request<ListCapabilitiesRequest>,
    ) -> Result<Response<ListCapabilitiesResponse>, Status> {
        Err(Status::unimplemented("not scripted"))
    }
}

/// An execution as it is accepted, with one step.
pub(crate) fn accepted(id: &str) -> Execution {
    Execution {
        name: format!("namespaces/default/executions/{id}"),
        plan_id: "p".to_owned(),
        labels: BTreeMap::new(),
        ..Default::default()
    }
}

/// An event of an execution.
pub(crate) fn event(sequence: i64, kind: Kind) -> ExecutionEvent {
    ExecutionEvent { sequence, kind: Some(kind), ..Default::default() }
}
