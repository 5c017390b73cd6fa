//! The executor as a process, and a client of it.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Stdio,
};

use belay_executor::Settings;
use belay_proto::v1::{
    self, executor_service_client::ExecutorServiceClient, payload::Content as Payload, start_execution_request::Source,
    watch_execution_response::Content,
};
use belay_service_kit::{net, program};
use clap::Parser as _;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};
use tonic::{Status, transport::Channel};

use super::TIMEOUT;

/// The folder of an executor that [`Executor::program`] starts.
const FOLDER: &str = "BELAY_TEST_EXECUTOR";

/// The executor's process, which other tests start and kill.
#[test]
#[ignore = "started by other tests"]
fn child() {
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    let socket = |name: &str| format!("unix:{}", folder.join(name).display());
    let arguments =
        ["executor", "--listen", &socket("executor"), "--runner", &socket("runner"), "--gate", &socket("gate")];
    let state = ["--state-dir".into(), folder.join("state").into_os_string()];
    let settings = Settings::parse_from(arguments.into_iter().map(OsString::from).chain(state));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let _ = program::end(runtime.block_on(belay_executor::serve(settings)));
}

/// A running executor; dropping this value kills it.
pub(crate) struct Executor {
    /// `None` for an executor in this process.
    pub(crate) child: Option<Child>,
    pub(crate) client: ExecutorServiceClient<Channel>,
}

impl Executor {
    pub(crate) async fn start(folder: &Path) -> Self {
        let socket = |name: &str| format!("unix:{}", folder.join(name).display());
        let mut child =
            Self::program(folder).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let mut said = Vec::new();
        loop {
            match lines.next_line().await.unwrap() {
                Some(line) if line.contains("The executor is listening") => break,
                Some(line) => said.push(line),
                None => panic!("the executor did not start: {said:?}"),
            }
        }
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let at = Self::at(&socket("executor").parse().unwrap());
        Self { child: Some(child), ..at }
    }

    /// This test program as an executor with its state and its sockets in a folder.
    pub(crate) fn program(folder: &Path) -> Command {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "support::executor::child", "--ignored", "--nocapture"]).env(FOLDER, folder);
        command
    }

    /// An executor that already listens at this address.
    pub(crate) fn at(address: &net::Address) -> Self {
        Self { child: None, client: ExecutorServiceClient::new(net::connect_lazy(address)) }
    }

    /// SIGKILL.
    pub(crate) async fn kill(self) {
        self.child.expect("it is a program").kill().await.unwrap();
    }

    pub(crate) async fn run(&self, steps: &str) -> String {
        self.run_in(v1::ApprovalMode::Wait, steps).await
    }

    /// Starts a plan; returns the execution's name.
    pub(crate) async fn run_in(&self, mode: v1::ApprovalMode, steps: &str) -> String {
        self.start_execution(v1::StartExecutionRequest { approval_mode: mode.into(), ..plan(steps) }).await
    }

    /// Starts an execution; returns its name.
    pub(crate) async fn start_execution(&self, request: v1::StartExecutionRequest) -> String {
        self.client.clone().start_execution(request).await.unwrap().into_inner().name
    }

    pub(crate) async fn get(&self, name: &str) -> Result<v1::Execution, Status> {
        let request = v1::GetExecutionRequest { name: name.to_owned(), view: v1::ExecutionView::Full.into() };
        self.client.clone().get_execution(request).await.map(tonic::Response::into_inner)
    }

    /// Its steps with their outputs, on pages of this size.
    pub(crate) async fn steps(&self, name: &str, page_size: i32) -> Vec<v1::Step> {
        let (mut steps, mut page_token) = (Vec::new(), String::new());
        loop {
            let view = v1::StepView::Full.into();
            let request = v1::ListStepsRequest { parent: name.to_owned(), page_size, page_token, view };
            let page = self.client.clone().list_steps(request).await.unwrap().into_inner();
            steps.extend(page.steps);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return steps;
            }
        }
    }

    /// Reads a step with its output.
    pub(crate) async fn step(&self, name: &str, step: &str) -> Result<v1::Step, Status> {
        let request = v1::GetStepRequest { name: format!("{name}/steps/{step}"), ..Default::default() };
        self.client.clone().get_step(request).await.map(tonic::Response::into_inner)
    }

    /// The output of a step, also when it is a blob.
    /// The calls of an execution or a step, read in pages of this size; 0 for the default.
    pub(crate) async fn tool_calls(&self, parent: &str, page_size: i32) -> Result<Vec<v1::ToolCall>, Status> {
        let (mut calls, mut page_token) = (Vec::new(), String::new());
        loop {
            let request = v1::ListToolCallsRequest { parent: parent.to_owned(), page_size, page_token };
            let page = self.client.clone().list_tool_calls(request).await?.into_inner();
            calls.extend(page.tool_calls);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                return Ok(calls);
            }
        }
    }

    pub(crate) async fn output(&self, name: &str, step: &str) -> serde_json::Value {
        let step = self.step(name, step).await.unwrap();
        let text = match step.output.expect("the step has completed").content.expect("it is set") {
            Payload::Json(text) => text.into_bytes(),
            Payload::Blob(blob) => {
                let text = self.read_blob(name, &blob, 0).await.unwrap();
                assert_eq!((text.len() as i64, blob.size_bytes), (step.output_bytes, step.output_bytes));
                text
            }
        };
        serde_json::from_slice(&text).unwrap()
    }

    /// Reads a blob from an offset on.
    pub(crate) async fn read_blob(&self, name: &str, blob: &v1::BlobRef, offset: i64) -> Result<Vec<u8>, Status> {
        let digits = blob.digest.strip_prefix("hmac-sha256:").expect("it names its algorithm");
        let request = v1::ReadBlobRequest { name: format!("{name}/blobs/{digits}"), offset };
        let mut pieces = self.client.clone().read_blob(request).await?.into_inner();
        let mut bytes = Vec::new();
        while let Some(piece) = pieces.message().await? {
            assert_eq!(piece.offset, offset + bytes.len() as i64);
            assert!((1..=65_536).contains(&piece.data.len()));
            bytes.extend(piece.data);
        }
        Ok(bytes)
    }

    /// The execution in BASIC view.
    pub(crate) async fn summary(&self, name: &str) -> v1::Execution {
        let request = v1::GetExecutionRequest { name: name.to_owned(), view: v1::ExecutionView::Basic.into() };
        self.client.clone().get_execution(request).await.unwrap().into_inner()
    }

    /// Returns the execution as soon as it meets a condition, which is checked after each event and each heartbeat.
    pub(crate) async fn until(&self, name: &str, what: &str, is: impl Fn(&v1::Execution) -> bool) -> v1::Execution {
        let watched = async {
            let mut stream = self.watch(name, false).await;
            loop {
                let execution = self.get(name).await.unwrap();
                if is(&execution) {
                    return execution;
                }
                stream.message().await.unwrap().unwrap_or_else(|| panic!("it ended: {execution:?}"));
            }
        };
        let met = tokio::time::timeout(TIMEOUT, watched).await;
        match met {
            Ok(execution) => execution,
            Err(_) => panic!("timed out waiting for {what}; {:?}", self.get(name).await),
        }
    }

    /// Returns the execution once all that can run has, and the rest waits for approval.
    pub(crate) async fn until_awaiting_approval(&self, name: &str) -> v1::Execution {
        let waits = |execution: &v1::Execution| execution.state() == v1::execution::State::AwaitingApproval;
        self.until(name, "a wait for approval", waits).await
    }

    /// Waits for the end of the execution, which must be COMPLETED.
    pub(crate) async fn assert_completes(&self, name: &str) {
        assert_eq!(self.end(name).await.state(), v1::execution::State::Completed);
    }

    /// Waits for the end by one request, and not by a watch: a thousand of these would send heartbeats faster than a busy machine reads them.
    pub(crate) async fn end(&self, name: &str) -> v1::Execution {
        let waited = async {
            loop {
                let request = v1::WaitExecutionRequest { name: name.to_owned(), longest_wait: None };
                if self.client.clone().wait_execution(request).await.unwrap().into_inner().end_time.is_some() {
                    return self.get(name).await.unwrap();
                }
            }
        };
        let ended = tokio::time::timeout(TIMEOUT, waited).await;
        match ended {
            Ok(execution) => execution,
            Err(_) => panic!("timed out waiting for its end; {:?}", self.get(name).await),
        }
    }

    pub(crate) async fn watch(
        &self,
        name: &str,
        include_earlier_events: bool,
    ) -> tonic::Streaming<v1::WatchExecutionResponse> {
        let heartbeat_interval = Some(pbjson_types::Duration { seconds: 0, nanos: 100_000_000 });
        let request = v1::WatchExecutionRequest {
            name: name.to_owned(),
            heartbeat_interval,
            include_earlier_events,
            ..Default::default()
        };
        self.client.clone().watch_execution(request).await.unwrap().into_inner()
    }

    /// All its events, once it has ended.
    pub(crate) async fn events(&self, name: &str) -> Vec<v1::ExecutionEvent> {
        self.end(name).await;
        let mut stream = self.watch(name, true).await;
        let mut events = Vec::new();
        while let Some(message) = stream.message().await.unwrap() {
            if let Some(Content::Event(event)) = message.content {
                events.push(event);
            }
        }
        events
    }

    pub(crate) async fn pause(&self, name: &str) {
        let request = v1::PauseExecutionRequest { name: name.to_owned(), ..Default::default() };
        self.client.clone().pause_execution(request).await.unwrap();
    }

    pub(crate) async fn resume(&self, name: &str) {
        let request = v1::ResumeExecutionRequest { name: name.to_owned(), ..Default::default() };
        self.client.clone().resume_execution(request).await.unwrap();
    }

    pub(crate) async fn cancel(&self, name: &str) {
        let request = v1::CancelExecutionRequest { name: name.to_owned(), ..Default::default() };
        self.client.clone().cancel_execution(request).await.unwrap();
    }
}

/// A plan from steps such as `a: effect; b: effect after a; c`: the tool's instructions, and the step's dependencies.
pub(crate) fn plan(steps: &str) -> v1::StartExecutionRequest {
    let steps: Vec<String> = steps
        .split(';')
        .map(|words| {
            let (words, after) = words.split_once(" after ").unwrap_or((words, ""));
            let (id, options) = words.split_once(':').unwrap_or((words, ""));
            let options: Vec<String> = options.split_whitespace().map(|word| format!("{word}: true")).collect();
            let retry = if words.contains("fails_once") { ", retry: {max_attempts: 2, backoff: [1s]}" } else { "" };
            let (id, options) = (id.trim(), options.join(", "));
            format!("  - {{id: {id}, tool: work, depends_on: [{after}], arguments: {{{options}}}{retry}}}")
        })
        .collect();
    let text = format!("id: plan\nsteps:\n{}\n", steps.join("\n"));
    let document = v1::PlanDocument { text, format: v1::PlanFormat::Yaml.into() };
    let parent = "namespaces/default".into();
    v1::StartExecutionRequest { parent, source: Some(Source::Document(document)), ..Default::default() }
}

/// The events' kinds by the names of their fields in the contract.
pub(crate) fn kinds(events: &[v1::ExecutionEvent]) -> Vec<String> {
    let kind = |event: &v1::ExecutionEvent| {
        let value = serde_json::to_value(event).unwrap();
        let fields = value.as_object().unwrap();
        let known = ["execution", "step", "toolCall", "approval", "wait"];
        let is_kind =
            |field: &&String| known.iter().any(|prefix| field.starts_with(prefix) && fields[*field].is_object());
        fields.keys().find(is_kind).cloned().unwrap_or_default()
    };
    events.iter().map(kind).collect()
}
