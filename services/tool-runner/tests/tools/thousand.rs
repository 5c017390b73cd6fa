//! A thousand concurrent commands, through the runner: they do not take a thread each, and nothing waits for them.

use std::{fs, sync::Arc};

use belay_grant::{Keys, Signed, SigningKey};
use belay_policy::{Policy, Revised};
use belay_proto::v1::{
    self, call_tool_response::Event, tool_call::State, tool_runner_service_client::ToolRunnerServiceClient,
};
use belay_redaction::{MasterKey, Redactor};
use belay_service_kit::{Access, Ids, Shutdown, SystemClock, net};
use belay_settings::RunnerLimits;
use belay_sqlite::{Location, Threads};
use belay_telemetry::Telemetry;
use belay_tool_runner::{
    Allowed, Calls, HostDirectories, Ledger, Parts, Registry, Secrets, Tool, Workspaces, hosted,
    tools::{ReadFile, RunTerminal},
};
use serde_json::{Value, json};
use tokio::{runtime, task::JoinSet};
use tonic::{Streaming, transport::Channel};

use crate::{
    harness::{Test, Verdict, tests},
    support::{enforcement, nap, sleepers},
    user::USER,
};

pub(crate) const TESTS: &[Test] = tests![a_thousand_commands_need_few_threads_and_block_nothing];

/// How many commands run at once.
const COMMANDS: usize = 1000;
/// More than the slots of all lanes, the runtime and the stores need; one thread per command is far more.
const MAX_THREADS: usize = 400;

type Client = ToolRunnerServiceClient<Channel>;

/// A runner of the built-in tools in `folder` without approvals.
async fn start(folder: &std::path::Path) -> (Client, String, Arc<Calls>) {
    let (state, workspace, socket) = (folder.join("state"), folder.join("work"), folder.join("s"));
    fs::create_dir(&state).unwrap();
    fs::create_dir(&workspace).unwrap();
    fs::write(workspace.join("file"), "as it was\n").unwrap();
    let tools: [Box<dyn Tool>; 2] = [Box::new(RunTerminal::new(enforcement())), Box::new(ReadFile)];
    let registry = Registry::new(tools).unwrap();
    let (ids, key) = (Arc::new(Ids::from_system()), SigningKey::from_bytes(&[7; 32]));
    let secrets = Secrets::new(Redactor::new(), MasterKey::new([8; 32]), registry.clone(), move || ids.next_key());
    let ledger = Ledger::open(&Location::file(state.join("ledger.db")), Threads::Real, secrets, || "a ledger".into());
    let parts = Parts {
        registry,
        ledger: ledger.unwrap(),
        clock: Arc::new(SystemClock),
        keys: Keys::new([key.verifying_key()]),
        workspaces: Workspaces { own: state.join("own"), allowed: Allowed::Any, forbidden: vec![state] },
        directories: Arc::new(HostDirectories),
        enforcement: enforcement().to_proto(),
        telemetry: Telemetry::off(|bytes| bytes.fill(1)),
        threads: Threads::Real,
        limits: RunnerLimits::default(),
        thresholds: belay_tool_runner::Thresholds::default(),
    };
    let calls = Calls::recover(parts).await.unwrap();
    let policy = Policy::from_yaml("terminal_commands: auto\n").unwrap();
    let signed = Signed::policy(&key, Revised { revision: 1, policy }.to_bytes());
    let Signed { body, signature, key_id } = signed;
    calls.policy().offer(v1::SignedPolicy { revision: 1, body, signature, key_id }).await.unwrap();
    let (trigger, stop) = Shutdown::new();
    let listener = net::bind(&net::Address::Unix(socket.clone())).await.unwrap();
    let hosted = hosted(Arc::clone(&calls), stop.clone());
    tokio::spawn(async move {
        let _trigger = trigger;
        listener.serve(hosted, Access::unauthenticated_executor(), stop).await
    });
    let client = ToolRunnerServiceClient::new(net::connect_lazy(&net::Address::Unix(socket)));
    (client, workspace.to_str().unwrap().to_owned(), calls)
}

fn name(call: usize) -> String {
    format!("namespaces/default/executions/e/steps/s{call}/calls/1.1")
}

async fn call(
    mut client: Client,
    call: usize,
    tool: &str,
    arguments: Value,
    workspace: String,
) -> Streaming<v1::CallToolResponse> {
    let content = Some(v1::payload::Content::Json(arguments.to_string()));
    let request = v1::CallToolRequest {
        name: name(call),
        tool: tool.into(),
        arguments: Some(v1::Payload { content }),
        timeout: Some(belay_proto::duration(std::time::Duration::from_secs(86_400))),
        workspace,
        ..Default::default()
    };
    client.call_tool(request).await.unwrap().into_inner()
}

async fn end(mut events: Streaming<v1::CallToolResponse>) -> v1::ToolCall {
    loop {
        let event = events.message().await.unwrap().expect("a result comes last").event;
        if let Some(Event::Result(call)) = event {
            return call;
        }
    }
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

fn a_thousand_commands_need_few_threads_and_block_nothing() -> Verdict {
    if rustix::process::geteuid().as_raw() == USER {
        return Verdict::Skipped("runs as root only".to_owned());
    }
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut client, workspace, calls) = start(folder.path()).await;
        let nap = nap();
        let command = json!({"command": ["sh", "-c", format!("echo up; exec sleep {nap}")]});
        let mut starting = JoinSet::new();
        for n in 0..COMMANDS {
            let (client, command, workspace) = (client.clone(), command.clone(), workspace.clone());
            starting.spawn(async move {
                let mut events = call(client, n, "run_terminal", command, workspace).await;
                loop {
                    match events.message().await.unwrap().expect("it runs").event {
                        Some(Event::Output(_)) => return events,
                        Some(Event::Result(call)) => panic!("it ended: {call:?}"),
                        _ => {}
                    }
                }
            });
        }
        let running = starting.join_all().await;
        assert_eq!(running.len(), COMMANDS);
        // The output arrives a moment before the command sleeps.
        while sleepers(&nap).len() < COMMANDS {
            tokio::task::yield_now().await;
        }
        let busy = threads();
        assert!(busy < MAX_THREADS, "{busy} threads beside {COMMANDS} commands");

        // All commands still run while these calls complete.
        let read = end(call(client.clone(), COMMANDS, "read_file", json!({"path": "file"}), workspace.clone()).await);
        assert_eq!(read.await.state(), State::Completed);
        let quick = json!({"command": ["true"]});
        let ran = end(call(client.clone(), COMMANDS + 1, "run_terminal", quick, workspace.clone()).await);
        assert_eq!(ran.await.state(), State::Completed);
        client.check_workspace(v1::CheckWorkspaceRequest { workspace }).await.unwrap();
        assert_eq!(sleepers(&nap).len(), COMMANDS);

        let mut stopping = JoinSet::new();
        for n in 0..COMMANDS {
            let mut client = client.clone();
            stopping.spawn(async move {
                let stopped = client.cancel_tool_call(v1::CancelToolCallRequest { name: name(n), fence: None }).await;
                assert_eq!(stopped.unwrap().into_inner().state(), State::Cancelled);
            });
        }
        stopping.join_all().await;
        assert_eq!(sleepers(&nap), [0; 0]);
        calls.close().await.unwrap();
    });
    Verdict::Passed
}
