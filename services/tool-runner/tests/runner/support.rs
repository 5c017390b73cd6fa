//! A runner on a real directory, with scripted tools and the key of a gate.

use belay_reasons::StoreFault;
use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use belay_grant::{Grant, Keys, Scope, SignedBytes, SigningKey, Subject};
use belay_policy::{Policies, RevisedPolicies, ToolKind};
use belay_proto::{
    runner_v1::{self, call_tool_response::Event, tool_runner_service_client::ToolRunnerServiceClient},
    v1::{self, ErrorClass, tool_call::State, tool_call_output::Stream},
};
use belay_redaction::{MasterKey, Redactor};
use belay_service_kit::{Access, Clock, Ids, Shutdown, net};
use belay_settings::{RunnerLimits, ValueWithOrigin};
use belay_sqlite::{Location, SqliteError, Threads};
use belay_telemetry::Telemetry;
use belay_tool_runner::{
    AllowedWorkspaces, Annotations, CallIntent, Calls, Enforcement, HostDirectories, Invocation, Ledger, LedgerError,
    Parts, Recovery, Registry, Secrets, Thresholds, Tool, ToolFailure, ToolResult, ToolSpec, Touches,
    WorkspaceDirectories, Workspaces, hosted,
};
use belay_workspace::RelPath;
use serde_json::{Value, json};
use tokio::{
    runtime::Runtime,
    sync::{Semaphore, watch},
};
use tonic::{Status, transport::Channel};

pub(crate) const CHANGE: &str = "change";
pub(crate) const LOOK: &str = "look";
pub(crate) const KEEP: &str = "keep";
pub(crate) const SEND: &str = "send";
pub(crate) const REACH: &str = "reach";
pub(crate) const COMMAND: &str = "command";

/// Every call and effect needs approval.
pub(crate) const ASK: &str = "file_write: prompt\nfile_delete: prompt\nterminal_commands: prompt\nrules: [{id: others, on: intent, tools: [keep, look], decide: auto}]\n";
/// A policy under which no call needs approval.
pub(crate) const FREE: &str = "file_write: auto\nfile_delete: auto\nterminal_commands: auto\nrules: [{id: others, on: intent, tools: [keep, send, reach, look], decide: auto}]\n";

/// The state shared by the tools and the test.
#[derive(Clone)]
pub(crate) struct Signals {
    /// How many calls have started.
    pub(crate) runs: Arc<watch::Sender<usize>>,
    /// Each permit resumes one waiting tool.
    pub(crate) resume: Arc<Semaphore>,
}

impl Default for Signals {
    fn default() -> Self {
        Self { runs: Arc::new(watch::Sender::new(0)), resume: Arc::new(Semaphore::new(0)) }
    }
}

impl Signals {
    pub(crate) async fn has_run(&self, times: usize) {
        self.runs.subscribe().wait_for(|runs| *runs >= times).await.unwrap();
    }

    pub(crate) fn runs(&self) -> usize {
        *self.runs.borrow()
    }
}

/// Runs the steps in its arguments, in order: `{"do": [["write", path, text], …]}`.
struct ScriptedTool {
    name: &'static str,
    recovery: Recovery,
    touches: Touches,
    kind: ToolKind,
    signals: Signals,
}

fn paths(arguments: &Value) -> Vec<String> {
    arguments["paths"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl Tool for ScriptedTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name,
            aliases: &[],
            description: "",
            parameters: r#"{"type": "object", "properties": {"do": {"type": "array"}, "n": {"type": "integer"}, "pin": {"writeOnly": true}}}"#,
            result: r#"{"type": ["integer", "string", "object"]}"#,
            recovery: self.recovery,
            touches: self.touches,
            kind: self.kind,
            default_timeout: Duration::from_secs(60),
            annotations: Annotations::default(),
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        let command = if self.kind == ToolKind::Terminal { vec!["do".to_owned()] } else { Vec::new() };
        let program = command.first().cloned();
        CallIntent { command, program, paths: paths(arguments), ..CallIntent::default() }
    }

    fn enforced(&self) -> Vec<String> {
        if self.kind == ToolKind::Terminal { vec!["a layer".to_owned()] } else { Vec::new() }
    }

    fn call(&self, invocation: Invocation) -> Pin<Box<dyn Future<Output = ToolResult> + Send>> {
        let signals = self.signals.clone();
        let layers = Some(self.enforced()).filter(|layers| !layers.is_empty());
        Box::pin(async move {
            signals.runs.send_modify(|runs| *runs += 1);
            if let Some(layers) = layers {
                invocation.enforced.set(layers).expect("set only here");
            }
            for step in invocation.arguments["do"].as_array().cloned().unwrap_or_default() {
                let text = |at: usize| step[at].as_str().unwrap_or_default().to_owned();
                let (what, path, content) = (text(0), text(1), text(2));
                match what.as_str() {
                    "wait" => signals.resume.acquire().await.expect("never closed").forget(),
                    "say" => invocation.output.write(Stream::Stdout, path.as_bytes()),
                    "fail" => {
                        return Err(ToolFailure::new(
                            ErrorClass::Transient,
                            "TOOL_FAILED",
                            format!("failed as scripted: {path}"),
                        ));
                    }
                    "unstarted" => {
                        let message = "The command was not started, because of other processes on this machine.";
                        return Err(ToolFailure::new(ErrorClass::Transient, "SANDBOX_UNAVAILABLE", message));
                    }
                    "answer" => return Ok(json!(path)),
                    "fill" => return Ok(json!(filled(path.parse().expect("a length")))),
                    "panic" => panic!("as scripted"),
                    "odd" => return Ok(json!([])),
                    "nest" => {
                        let levels: usize = path.parse().expect("a number");
                        return Ok((0..levels).fold(json!(1), |inner, _| json!({"a": inner})));
                    }
                    _ => {
                        let view = invocation.view.clone().expect("a tool that changes files has a view");
                        let done = view.work(move |view| {
                            let path = RelPath::parse(&path).expect("a good path");
                            match what.as_str() {
                                "write" => view.write(&path, content.as_bytes(), None),
                                "append" => {
                                    let mut bytes = view.read(&path, 0, None).unwrap_or_default();
                                    bytes.extend_from_slice(content.as_bytes());
                                    view.write(&path, &bytes, None)
                                }
                                "remove" => view.remove(&path),
                                other => panic!("{other} is not a scripted step"),
                            }
                        });
                        done.await.expect("the view is there").map_err(|error| {
                            ToolFailure::new(ErrorClass::InvalidArguments, "TOOL_FAILED", error.to_string())
                        })?;
                    }
                }
            }
            Ok(json!(1))
        })
    }
}

fn tools(signals: &Signals) -> Vec<Box<dyn Tool>> {
    let tool = |name, recovery, touches, kind| -> Box<dyn Tool> {
        Box::new(ScriptedTool { name, recovery, touches, kind, signals: signals.clone() })
    };
    vec![
        tool(CHANGE, Recovery::Transactional, Touches::Changes, ToolKind::FileWrite),
        tool(LOOK, Recovery::ReadOnly, Touches::Reads, ToolKind::FileRead),
        tool(KEEP, Recovery::Idempotent, Touches::Nothing, ToolKind::Other),
        tool(SEND, Recovery::Manual, Touches::Nothing, ToolKind::Other),
        tool(REACH, Recovery::Manual, Touches::Changes, ToolKind::Other),
        tool(COMMAND, Recovery::Transactional, Touches::Changes, ToolKind::Terminal),
        Box::new(belay_tool_runner::tools::CommitChanges),
        Box::new(belay_tool_runner::tools::RebaseChanges),
    ]
}

/// A clock that a test sets.
#[derive(Debug)]
pub(crate) struct SetClock(AtomicI64);

impl Clock for SetClock {
    fn now_micros(&self) -> i64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

impl SetClock {
    pub(crate) fn forward(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

/// Compiled once, because the tests start many runners.
static REDACTOR: std::sync::LazyLock<Redactor> = std::sync::LazyLock::new(Redactor::new);

pub(crate) const NOW: i64 = 1_800_000_000;

enum Folder {
    Own(tempfile::TempDir),
    Given(PathBuf),
}

/// A directory with a workspace and the state of a runner, which can be started and crashed.
pub(crate) struct Bench {
    folder: Folder,
    pub(crate) signals: Signals,
    pub(crate) clock: Arc<SetClock>,
    pub(crate) key: SigningKey,
    pub(crate) enforcement: runner_v1::EnforcementReport,
    pub(crate) allowed: AllowedWorkspaces,
    pub(crate) directories: Arc<dyn WorkspaceDirectories>,
    pub(crate) max_calls: u32,
    /// How long a workspace stays open that no call uses.
    pub(crate) linger: Duration,
    /// The folder of the runner's state, and what a new ledger in it is called.
    pub(crate) state: (&'static str, &'static str),
}

impl Bench {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        fs::create_dir(folder.path().join("state")).unwrap();
        Self::at(Folder::Own(folder))
    }

    /// In a directory of another bench.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self::at(Folder::Given(folder.to_owned()))
    }

    fn at(folder: Folder) -> Self {
        let enforcement = runner_v1::EnforcementReport {
            tier: runner_v1::enforcement_report::Tier::A.into(),
            staging: true,
            ..Default::default()
        };
        Self {
            folder,
            signals: Signals::default(),
            clock: Arc::new(SetClock(AtomicI64::new(NOW * 1_000_000))),
            key: SigningKey::from_bytes(&[7; 32]),
            enforcement,
            allowed: AllowedWorkspaces::Any,
            directories: Arc::new(HostDirectories),
            max_calls: 1000,
            linger: Thresholds::default().linger,
            state: ("state", "a ledger"),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        match &self.folder {
            Folder::Own(folder) => folder.path(),
            Folder::Given(folder) => folder,
        }
    }

    pub(crate) fn workspace(&self) -> PathBuf {
        self.path().join("work")
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        fs::write(self.workspace().join(path), text).unwrap();
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.workspace().join(path)).unwrap()
    }

    /// Everything in the workspace: kinds, modes and contents by path.
    pub(crate) fn tree(&self) -> BTreeMap<String, (u32, Vec<u8>)> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.workspace()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
                if entry.file_name() == ".belay" {
                    continue;
                }
                let mode = entry.metadata().unwrap().permissions().mode();
                let content = if entry.file_type().unwrap().is_dir() {
                    folders.push(entry.path());
                    Vec::new()
                } else {
                    fs::read(entry.path()).unwrap()
                };
                let path = entry.path().strip_prefix(self.workspace()).unwrap().to_str().unwrap().to_owned();
                found.insert(path, (mode, content));
            }
        }
        found
    }

    /// The views and staged effects left in Belay's own directory.
    pub(crate) fn left_over(&self) -> Vec<String> {
        let names = |folder: &str| -> Vec<String> {
            let entries = fs::read_dir(self.workspace().join(".belay").join(folder));
            let entries = entries.into_iter().flatten();
            entries.map(|entry| format!("{folder}/{}", entry.unwrap().file_name().display())).collect()
        };
        [names("views"), names("commits")].concat()
    }

    /// Waits until nothing is left over: replaced files are removed after the response.
    pub(crate) async fn cleared(&self) {
        while !self.left_over().is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// How many transactions the ledger has committed since it was opened, read from its write-ahead log.
    pub(crate) fn ledger_commits(&self) -> usize {
        let log = fs::read(self.path().join("state/ledger.db-wal")).unwrap_or_default();
        if log.len() < 32 {
            return 0;
        }
        let word = |at: usize| u32::from_be_bytes(log[at..at + 4].try_into().unwrap());
        let (page, salt) = (word(8) as usize, &log[16..24]);
        let frames = (32..).step_by(24 + page).take_while(|at| at + 24 + page <= log.len());
        frames.filter(|at| word(at + 4) != 0 && &log[at + 8..at + 16] == salt).count()
    }

    pub(crate) async fn start(&self, policy: &str) -> Runner {
        let runner = self.start_without_policy().await;
        runner.offer(self, 1, policy).await;
        runner
    }

    pub(crate) async fn start_without_policy(&self) -> Runner {
        let socket = self.path().join("runner.sock");
        let (state, ledger_id) = (self.path().join(self.state.0), self.state.1.to_owned());
        let (registry, clock) = (Registry::new(tools(&self.signals)).unwrap(), self.clock.clone());
        let keys = Keys::new([self.key.verifying_key()]);
        let thresholds = Thresholds { linger: self.linger, ..Thresholds::default() };
        let workspaces =
            Workspaces { own: state.join("own"), allowed: self.allowed.clone(), forbidden: vec![state.clone()] };
        let (directories, enforcement, max_calls) =
            (self.directories.clone(), Enforcement::reported(self.enforcement.clone()), self.max_calls);
        let started = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
            let threads = Threads::Real;
            let location = Location::file(state.join("ledger.db"));
            // The previous holder ends with its runtime; it releases the lock a moment later.
            let ids = Arc::new(Ids::from_system());
            let secrets =
                Secrets::new(REDACTOR.clone(), MasterKey::new([8; 32]), registry.clone(), move || ids.next_key());
            let ledger = loop {
                match Ledger::open(&location, threads, secrets.clone(), || ledger_id.clone()) {
                    Ok(ledger) => break ledger,
                    Err(LedgerError::Store(SqliteError::Fault(StoreFault::Locked))) => std::thread::yield_now(),
                    Err(error) => panic!("{error:?}"),
                }
            };
            let telemetry = Telemetry::off(|bytes| bytes.fill(1));
            let limits = RunnerLimits { calls: ValueWithOrigin::default_of(max_calls) };
            let parts = Parts {
                registry,
                ledger,
                clock,
                keys,
                workspaces,
                directories,
                enforcement,
                telemetry,
                threads,
                limits,
                thresholds,
            };
            let calls = runtime.block_on(Calls::recover(parts)).unwrap();
            let (trigger, stop) = Shutdown::new();
            let listener = runtime.block_on(net::bind(&net::Address::Unix(socket.clone()))).unwrap();
            let hosted = hosted(Arc::clone(&calls), stop.clone());
            runtime.spawn(async move {
                let _trigger = trigger;
                listener.serve(hosted, Access::unauthenticated_executor(), stop).await
            });
            (runtime, calls, socket)
        });
        let (runtime, calls, socket) = started.await.unwrap();
        let address = net::Address::Unix(socket);
        let client = ToolRunnerServiceClient::new(net::connect_lazy(&address));
        let workspace = self.workspace().to_str().unwrap().to_owned();
        Runner { client, address, calls: Some(calls), runtime: Some(runtime), workspace }
    }

    pub(crate) fn signed(&self, revision: i64, policy: &str) -> v1::SignedPolicy {
        let policy = Policies::from_yaml(policy).unwrap_or_else(|wrong| panic!("{wrong:?}"));
        let signed = SignedBytes::policy(&self.key, RevisedPolicies { revision, policies: policy }.to_bytes());
        v1::SignedPolicy { revision, body: signed.body, signature: signed.signature, key_id: signed.key_id }
    }

    /// A grant that approves a waiting call.
    pub(crate) fn grant(&self, held: &runner_v1::ToolCall) -> Grant {
        let need = held.approval_need.as_ref().expect("it waits");
        Grant {
            v: 1,
            approval: "namespaces/default/approvals/a".into(),
            subject_digest: need.subject_digest.clone(),
            call: held.name.clone(),
            audience: Grant::AUDIENCE.into(),
            approver: "unix:1000".into(),
            policy_revision: need.decision.as_ref().unwrap().policy_revision,
            not_before: NOW,
            expires: NOW + 24 * 3600,
            scope: Scope::Once,
            uses: 1,
            nonce: format!("nonce of {}", held.name),
        }
    }

    pub(crate) fn sign(&self, grant: &Grant) -> runner_v1::Grant {
        sign(&self.key, grant)
    }
}

pub(crate) fn sign(key: &SigningKey, grant: &Grant) -> runner_v1::Grant {
    let SignedBytes { body, signature, key_id } = grant.sign(key);
    runner_v1::Grant { body, signature, key_id }
}

/// A running runner.
pub(crate) struct Runner {
    pub(crate) client: ToolRunnerServiceClient<Channel>,
    address: net::Address,
    pub(crate) calls: Option<Arc<Calls>>,
    runtime: Option<Runtime>,
    workspace: String,
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

pub(crate) fn name(call: &str) -> String {
    format!("namespaces/default/executions/e/steps/{call}/calls/1.1")
}

impl Runner {
    pub(crate) async fn offer(&self, bench: &Bench, revision: i64, policy: &str) {
        let calls = self.calls.as_ref().unwrap();
        calls.policy().offer(bench.signed(revision, policy)).await.unwrap();
    }

    /// A connection of its own.
    pub(crate) fn channel(&self) -> Channel {
        net::connect_lazy(&self.address)
    }

    /// Stops it gracefully.
    pub(crate) async fn stop(self) {
        let (calls, runtime) =
            (Arc::clone(self.calls.as_ref().unwrap()), self.runtime.as_ref().unwrap().handle().clone());
        runtime.spawn(async move { calls.close().await }).await.unwrap().unwrap();
        self.lose().await;
    }

    /// Crashes it: everything in it stops where it is.
    pub(crate) async fn lose(mut self) {
        drop(self.calls.take());
        let runtime = self.runtime.take();
        tokio::task::spawn_blocking(move || drop(runtime)).await.unwrap();
    }

    pub(crate) fn request(&self, call: &str, tool: &str, todo: Value) -> runner_v1::CallToolRequest {
        let arguments = json!({ "do": todo }).to_string();
        runner_v1::CallToolRequest {
            name: if call.contains('/') { call.to_owned() } else { name(call) },
            tool: tool.into(),
            arguments: Some(v1::Payload { content: Some(v1::payload::Content::Json(arguments)) }),
            workspace: self.workspace.clone(),
            ..Default::default()
        }
    }

    /// Sends a call and returns its end, or its state when it waits for approval.
    pub(crate) async fn call(&self, request: runner_v1::CallToolRequest) -> Result<runner_v1::ToolCall, Status> {
        let mut events = self.client.clone().call_tool(request).await?.into_inner();
        while let Some(message) = events.message().await? {
            match message.event {
                Some(Event::Result(call) | Event::Held(call)) => return Ok(call),
                Some(Event::Started(_) | Event::Output(_) | Event::Waiting(_) | Event::Asking(_)) | None => {}
            }
        }
        Err(Status::aborted("the stream ended without a result"))
    }

    /// The first call whose end a call waits for. Starts the call, or attaches to it.
    pub(crate) async fn waits_for(&self, request: &runner_v1::CallToolRequest) -> String {
        let mut events = self.client.clone().call_tool(request.clone()).await.unwrap().into_inner();
        loop {
            if let Some(Event::Waiting(waiting)) = events.message().await.unwrap().expect("it waits").event {
                return waiting.exclusive_call;
            }
        }
    }

    pub(crate) async fn run(&self, call: &str, tool: &str, todo: Value) -> runner_v1::ToolCall {
        self.call(self.request(call, tool, todo)).await.unwrap()
    }

    /// Sends a call without waiting for its end.
    pub(crate) fn spawn(
        &self,
        request: runner_v1::CallToolRequest,
    ) -> tokio::task::JoinHandle<Result<runner_v1::ToolCall, Status>> {
        let (client, address) = (self.client.clone(), self.address.clone());
        let runner = Self { client, address, calls: None, runtime: None, workspace: self.workspace.clone() };
        tokio::spawn(async move { runner.call(request).await })
    }

    pub(crate) async fn get(&self, call: &str) -> Result<runner_v1::ToolCall, Status> {
        let request = runner_v1::GetToolCallRequest { name: name(call) };
        self.client.clone().get_tool_call(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn cancel(&self, call: &str) -> Result<runner_v1::ToolCall, Status> {
        self.stop_call(call, false).await
    }

    pub(crate) async fn kill(&self, call: &str) -> Result<runner_v1::ToolCall, Status> {
        self.stop_call(call, true).await
    }

    async fn stop_call(&self, call: &str, kill: bool) -> Result<runner_v1::ToolCall, Status> {
        let workspace = self.workspace.clone();
        let request = runner_v1::CancelToolCallRequest { name: name(call), kill, workspace, ..Default::default() };
        self.client.clone().cancel_tool_call(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn commit(&self, call: &str, grant: runner_v1::Grant) -> Result<runner_v1::ToolCall, Status> {
        let name = if call.contains('/') { call.to_owned() } else { name(call) };
        let request = runner_v1::CommitEffectRequest { name, grant: Some(grant), fence: None };
        self.client.clone().commit_effect(request).await.map(tonic::Response::into_inner)
    }

    pub(crate) async fn discard(&self, call: &str) -> Result<runner_v1::ToolCall, Status> {
        let request = runner_v1::DiscardEffectRequest { name: name(call), ..Default::default() };
        self.client.clone().discard_effect(request).await.map(tonic::Response::into_inner)
    }

    /// The result of a call that has a reference to it, from an offset on.
    pub(crate) async fn read_blob(&self, call: &str, digest: &str, offset: usize) -> Result<Vec<u8>, Status> {
        let offset = i64::try_from(offset).unwrap();
        let request = runner_v1::ReadBlobRequest { name: name(call), digest: digest.to_owned(), offset };
        let mut pieces = self.client.clone().read_blob(request).await?.into_inner();
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.message().await? {
            assert_eq!(piece.offset, offset + i64::try_from(bytes.len()).unwrap());
            assert!((1..=65_536).contains(&piece.data.len()));
            bytes.extend(piece.data);
        }
        Ok(bytes)
    }

    pub(crate) async fn acknowledge(&self, call: &str) {
        let request = runner_v1::AcknowledgeToolCallsRequest { names: vec![name(call)], fence: None };
        self.client.clone().acknowledge_tool_calls(request).await.unwrap();
    }

    /// The calls that have ended and are not acknowledged.
    pub(crate) async fn unacknowledged(&self) -> Vec<String> {
        let request = runner_v1::WatchUnacknowledgedToolCallsRequest::default();
        let mut watch = self.client.clone().watch_unacknowledged_tool_calls(request).await.unwrap().into_inner();
        let mut names = Vec::new();
        loop {
            match watch.message().await.unwrap().expect("a heartbeat comes first").names {
                heartbeat if heartbeat.is_empty() => return names,
                more => names.extend(more),
            }
        }
    }

    /// The subject and contents of a waiting call.
    pub(crate) async fn effect(&self, call: &str) -> Result<(Subject, Vec<u8>, BTreeMap<String, Vec<u8>>), Status> {
        let request = runner_v1::GetEffectRequest { name: name(call) };
        let mut chunks = self.client.clone().get_effect(request).await?.into_inner();
        let (mut subject, mut contents) = (Vec::new(), BTreeMap::<String, Vec<u8>>::new());
        while let Some(chunk) = chunks.message().await? {
            match chunk.content.unwrap() {
                runner_v1::get_effect_response::Content::Subject(bytes) => subject.extend(bytes),
                runner_v1::get_effect_response::Content::Chunk(chunk) => {
                    contents.entry(chunk.digest).or_default().extend(chunk.data);
                }
            }
        }
        Ok((Subject::parse(&subject).unwrap(), subject, contents))
    }
}

pub(crate) fn state(call: &runner_v1::ToolCall) -> State {
    call.state()
}

pub(crate) fn reason(call: &runner_v1::ToolCall) -> &str {
    call.failure.as_ref().map_or("", |failure| &failure.reason)
}

pub(crate) fn refusal(status: &Status) -> String {
    belay_service_kit::status::reason(status).unwrap_or_else(|| panic!("not a status of Belay: {status}"))
}

/// The text of the scripted step `fill`: no two pieces of it are the same.
pub(crate) fn filled(length: usize) -> String {
    (0..length)
        .map(|at| char::from(b'a' + u8::try_from((at + at / 26 + at / 65_536) % 26).expect("less than 26")))
        .collect()
}
