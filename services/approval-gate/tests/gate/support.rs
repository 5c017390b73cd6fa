//! A gate with its two endpoints, and its runner.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
};

use belay_approval_gate::{Gate, Parts, RunnerClient, Store, hosted, hosted_for_services, keys};
use belay_grant::{Change, ChangeKind, Gravity, Kind, Risk, Subject, digest_of};
use belay_policy::Policies;
use belay_proto::{
    gate_v1::{self, approval_gate_service_client::ApprovalGateServiceClient},
    runner_v1::{
        self,
        get_effect_response::Content,
        tool_runner_service_server::{ToolRunnerService, ToolRunnerServiceServer},
    },
    v1::{
        self, Approval, Decision, approval_service_client::ApprovalServiceClient,
        policy_service_client::PolicyServiceClient,
    },
};
use belay_service_kit::{
    Access, Clock, HostedServices, Ids, People, Principal, Role, Service, Shutdown, Trigger,
    net::{self, Address, UnixSocket},
    status,
};
use belay_settings::GateLimits;
use belay_sqlite::{Location, Threads};
use belay_telemetry::{SpanRecord, Telemetry};
use futures::Stream;
use tokio::sync::{Notify, RwLock};
use tonic::{Code, Request, Response, Status, service::Routes, transport::Channel};

/// A client of one endpoint of the gate.
#[derive(Clone)]
pub(crate) struct Client(Channel);

impl Client {
    pub(crate) fn people(&self) -> ApprovalServiceClient<Channel> {
        ApprovalServiceClient::new(self.0.clone()).max_decoding_message_size(16 << 20)
    }

    pub(crate) fn policy(&self) -> PolicyServiceClient<Channel> {
        PolicyServiceClient::new(self.0.clone())
    }

    pub(crate) fn services(&self) -> ApprovalGateServiceClient<Channel> {
        ApprovalGateServiceClient::new(self.0.clone())
    }
}

/// A wall clock that the test sets.
#[derive(Debug)]
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(crate) fn advance(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now_micros(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs a gate on this folder from its start to a kill of its process. The policy is YAML; empty means the preset.
pub(crate) fn life<T>(folder: &Path, policy: &str, work: impl AsyncFnOnce(World) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // Dropping the runtime drops every task at once.
    runtime.block_on(async { work(World::open(folder, policy, GateLimits::default()).await).await })
}

/// The same with a folder of its own.
pub(crate) fn world<T>(policy: &str, work: impl AsyncFnOnce(World) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    life(folder.path(), policy, work)
}

/// The same with limits of its own.
pub(crate) fn world_with<T>(limits: GateLimits, work: impl AsyncFnOnce(World) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { work(World::open(folder.path(), "", limits).await).await })
}

pub(crate) struct World {
    pub(crate) folder: PathBuf,
    pub(crate) gate: Arc<Gate>,
    pub(crate) runner: Arc<Runner>,
    pub(crate) clock: Arc<ManualClock>,
    /// A client of the endpoint for people; its principal is the owner.
    pub(crate) person: Client,
    /// A client of the endpoint for services.
    pub(crate) executor: Client,
    /// The spans that were sent.
    pub(crate) spans: Arc<Mutex<Vec<SpanRecord>>>,
    pub(crate) trigger: Trigger,
    stop: Shutdown,
}

impl World {
    async fn open(folder: &Path, policy: &str, limits: GateLimits) -> Self {
        let (trigger, stop) = Shutdown::new();
        let runner = Arc::new(Runner::default());
        let clock = Arc::new(ManualClock(AtomicI64::new(1_700_000_000_000_000)));
        let at = |name: &str| Address::Unix(folder.join(name));
        let ids = Ids::seeded(7);
        let spans = Arc::<Mutex<Vec<SpanRecord>>>::default();
        let sent = Arc::clone(&spans);
        let gate = Gate::open(Parts {
            key: keys::open(folder, || ids.next_key()).unwrap(),
            store: Store::open(&Location::file(folder.join("gate.db")), Threads::Inline, || "store".into()).unwrap(),
            policies: if policy.is_empty() { Policies::preset() } else { Policies::from_yaml(policy).unwrap() },
            runner: RunnerClient::new(net::connect_lazy(&at("runner.sock")), None).unwrap(),
            clock: clock.clone(),
            ids,
            redactor: belay_redaction::Redactor::new(),
            telemetry: Telemetry::to(move |span| sent.lock().unwrap().push(span), |bytes| bytes.fill(1)),
            shutdown: stop.clone(),
            limits,
        })
        .await
        .unwrap();
        let people = Access::people(&at("gate.sock"), People::new(None, None).unwrap()).unwrap();
        let person = serve(&folder.join("gate.sock"), hosted(gate.clone()), people, &stop);
        let services = Access::unauthenticated_executor();
        let executor = serve(&folder.join("service.sock"), hosted_for_services(gate.clone()), services, &stop);
        let world = Self {
            folder: folder.to_owned(),
            gate,
            runner,
            clock,
            person: Client(person),
            executor: Client(executor),
            spans,
            trigger,
            stop,
        };
        world.start_runner();
        world
    }

    fn start_runner(&self) {
        let service = ToolRunnerServiceServer::from_arc(self.runner.clone());
        let service = HostedServices::new(
            Routes::new(service),
            "belay.runner.v1.ToolRunnerService",
            belay_proto::FILE_DESCRIPTOR_SET,
        );
        serve(
            &self.folder.join("runner.sock"),
            service,
            Access::Unauthenticated(Principal::Service(Service::ApprovalGate)),
            &self.stop,
        );
    }

    /// A client with this principal.
    pub(crate) fn client_for(&self, principal: &Principal) -> Client {
        let socket = self.folder.join(format!("{}.sock", principal.to_string().replace(':', "-")));
        let hosted = match principal {
            Principal::Service(_) => hosted_for_services(self.gate.clone()),
            Principal::Person { .. } => hosted(self.gate.clone()),
        };
        Client(serve(&socket, hosted, Access::Unauthenticated(principal.clone()), &self.stop))
    }

    /// The same for a person with every role.
    pub(crate) fn client_for_person(&self, name: &str) -> Client {
        self.client_for(&Principal::person(name, Role::ALL))
    }

    /// Lets the runner hold a call and the executor create its approval.
    pub(crate) async fn ask(&self, subject: &Subject) -> Approval {
        self.try_ask(subject, v1::ApprovalMode::Wait).await.unwrap()
    }

    pub(crate) async fn try_ask(&self, subject: &Subject, mode: v1::ApprovalMode) -> Result<Approval, Status> {
        self.runner.hold(&call_of(subject), &subject.canonical_bytes(), &[]);
        let request = request(subject, mode);
        self.executor.services().create_approval(request).await.map(Response::into_inner)
    }

    pub(crate) async fn get(&self, name: &str) -> Approval {
        let request = v1::GetApprovalRequest { name: name.into(), view: v1::ApprovalView::Full.into() };
        self.person.people().get_approval(request).await.unwrap().into_inner()
    }
}

pub(crate) fn request(subject: &Subject, mode: v1::ApprovalMode) -> gate_v1::CreateApprovalRequest {
    gate_v1::CreateApprovalRequest {
        call: call_of(subject),
        subject_digest: subject.digest(),
        requested_by: "person:planner".into(),
        approval_mode: mode.into(),
        ..Default::default()
    }
}

pub(crate) async fn decide(client: &Client, approval: &Approval, decision: Decision) -> Result<Approval, Status> {
    let request = v1::DecideApprovalRequest {
        name: approval.name.clone(),
        subject_digest: approval.subject_digest.clone(),
        decision: decision.into(),
        reason: "because".into(),
        ..Default::default()
    };
    client.people().decide_approval(request).await.map(Response::into_inner)
}

fn serve(path: &Path, service: HostedServices, access: Access, stop: &Shutdown) -> Channel {
    let incoming = UnixSocket::bind(path).unwrap().incoming();
    tokio::spawn(belay_service_kit::host::serve(incoming, service, access, stop.clone()));
    net::connect_lazy(&Address::Unix(path.to_owned()))
}

/// Code and reason of a refusal.
pub(crate) fn refusal<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status::reason(&status).unwrap_or_else(|| status.message().to_owned()))
}

/// An effect of `make` in one step of one execution.
pub(crate) fn effect(execution: &str) -> Subject {
    Subject {
        v: Subject::VERSION,
        kind: Kind::Effect,
        execution: format!("namespaces/default/executions/{execution}"),
        step: "build".into(),
        tool: "run_terminal".into(),
        arguments: r#"{"command":["make"]}"#.into(),
        arguments_digest: digest_of(br#"{"command":["make"]}"#),
        command: vec!["make".into(), "all".into()],
        working_directory: String::new(),
        hidden: None,
        workspace: "/w".into(),
        enforced: vec!["namespaces".into()],
        policy_revision: 1,
        rule: "terminal_commands".into(),
        reason: "What commands change is looked at.".into(),
        effect_digest: digest_of(b"manifest"),
        risk: Risk::Low,
        changes: vec![Change {
            path: "out.txt".into(),
            path_digest: String::new(),
            kind: ChangeKind::Created,
            gravity: Gravity::Created,
            protection: String::new(),
            before: String::new(),
            after: digest_of(b"made\n"),
            what: "file 0644".into(),
            flags: Vec::new(),
            folder: None,
        }],
        folders: Vec::new(),
        network: None,
        reveals: Vec::new(),
    }
}

pub(crate) fn call_of(subject: &Subject) -> String {
    format!("{}/steps/{}/calls/1.1", subject.execution, subject.step)
}

/// A scripted runner.
#[derive(Default)]
pub(crate) struct Runner {
    held: Mutex<HashMap<String, Vec<runner_v1::GetEffectResponse>>>,
    pub(crate) asked: AtomicUsize,
    /// Notified when a request arrives.
    pub(crate) arrived: Notify,
    /// No response is sent while a test holds the write lock.
    pub(crate) responses: RwLock<()>,
}

impl Runner {
    /// Each content is sent under the given digest, whether it matches or not.
    pub(crate) fn hold(&self, call: &str, subject: &[u8], contents: &[(&str, &[u8])]) {
        let subject = subject.chunks(64).map(|bytes| Content::Subject(bytes.to_vec()));
        let contents = contents.iter().map(|(digest, bytes)| {
            Content::Chunk(runner_v1::ContentChunk { digest: (*digest).into(), data: bytes.to_vec(), last: true })
        });
        let messages =
            subject.chain(contents).map(|content| runner_v1::GetEffectResponse { content: Some(content) }).collect();
        self.held.lock().unwrap().insert(call.to_owned(), messages);
    }
}

type Messages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The gate calls only GetEffect.
fn not_called<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("the gate never calls this"))
}

#[tonic::async_trait]
impl ToolRunnerService for Runner {
    async fn check_calls(
        &self,
        _: Request<runner_v1::CheckCallsRequest>,
    ) -> Result<Response<runner_v1::CheckCallsResponse>, Status> {
        not_called()
    }

    type SessionStream = Messages<runner_v1::SessionResponse>;

    async fn session(
        &self,
        _: Request<tonic::Streaming<belay_proto::session::ReceivedRequest>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        not_called()
    }

    type CallToolStream = Messages<runner_v1::CallToolResponse>;
    type AttachToolCallStream = Messages<runner_v1::AttachToolCallResponse>;
    type GetEffectStream = Messages<runner_v1::GetEffectResponse>;
    type ReadBlobStream = Messages<runner_v1::ReadBlobResponse>;

    async fn read_blob(
        &self,
        _: Request<runner_v1::ReadBlobRequest>,
    ) -> Result<Response<Self::ReadBlobStream>, Status> {
        not_called()
    }

    async fn get_effect(
        &self,
        request: Request<runner_v1::GetEffectRequest>,
    ) -> Result<Response<Self::GetEffectStream>, Status> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.arrived.notify_one();
        drop(self.responses.read().await);
        let held = self.held.lock().unwrap().get(&request.get_ref().name).cloned();
        let held = held.ok_or_else(|| Status::from(status::error(Code::NotFound, "CALL_NOT_FOUND", "no such call")))?;
        Ok(Response::new(Box::pin(futures::stream::iter(held.into_iter().map(Ok)))))
    }

    async fn list_tools(
        &self,
        _: Request<runner_v1::ListToolsRequest>,
    ) -> Result<Response<runner_v1::ListToolsResponse>, Status> {
        not_called()
    }

    async fn call_tool(
        &self,
        _: Request<runner_v1::CallToolRequest>,
    ) -> Result<Response<Self::CallToolStream>, Status> {
        not_called()
    }

    async fn get_tool_call(
        &self,
        _: Request<runner_v1::GetToolCallRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        not_called()
    }

    async fn attach_tool_call(
        &self,
        _: Request<runner_v1::AttachToolCallRequest>,
    ) -> Result<Response<Self::AttachToolCallStream>, Status> {
        not_called()
    }

    async fn answer_tool_call(
        &self,
        _: Request<runner_v1::AnswerToolCallRequest>,
    ) -> Result<Response<runner_v1::AnswerToolCallResponse>, Status> {
        Err(Status::unimplemented("the gate does not ask for this"))
    }

    async fn cancel_tool_call(
        &self,
        _: Request<runner_v1::CancelToolCallRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        not_called()
    }

    async fn forget_executions(
        &self,
        _: Request<runner_v1::ForgetExecutionsRequest>,
    ) -> Result<Response<runner_v1::ForgetExecutionsResponse>, Status> {
        not_called()
    }

    async fn commit_effect(
        &self,
        _: Request<runner_v1::CommitEffectRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        not_called()
    }

    async fn discard_effect(
        &self,
        _: Request<runner_v1::DiscardEffectRequest>,
    ) -> Result<Response<runner_v1::ToolCall>, Status> {
        not_called()
    }

    async fn check_workspace(
        &self,
        _: Request<runner_v1::CheckWorkspaceRequest>,
    ) -> Result<Response<runner_v1::CheckWorkspaceResponse>, Status> {
        not_called()
    }

    async fn get_enforcement(
        &self,
        _: Request<runner_v1::GetEnforcementRequest>,
    ) -> Result<Response<runner_v1::EnforcementReport>, Status> {
        not_called()
    }

    type WatchUnacknowledgedToolCallsStream = Messages<runner_v1::WatchUnacknowledgedToolCallsResponse>;

    async fn watch_unacknowledged_tool_calls(
        &self,
        _: Request<runner_v1::WatchUnacknowledgedToolCallsRequest>,
    ) -> Result<Response<Self::WatchUnacknowledgedToolCallsStream>, Status> {
        not_called()
    }

    async fn acknowledge_tool_calls(
        &self,
        _: Request<runner_v1::AcknowledgeToolCallsRequest>,
    ) -> Result<Response<runner_v1::AcknowledgeToolCallsResponse>, Status> {
        not_called()
    }
}
