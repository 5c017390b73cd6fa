//! An executor that only reads, beside the one that drives the executions of the same state directory.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use belay_e2e::{
    Client, Process, Service, Services,
    client::{name, retry, serving},
    runner::reason,
};
use belay_proto::v1::{self, execution::State, step::State as StepState, watch_execution_response::Content};
use tonic::Code;

const PLAN: &str = "
id: long
parallelism: 2
steps:
- {id: first, tool: write_file, arguments: {path: a.txt, content: hello}}
- {id: go, wait: {signal: go}, depends_on: [first]}
- {id: said, tool: run_terminal, arguments: {command: [sh, -c, 'echo out; echo err >&2']}, depends_on: [go]}
- {id: last, tool: noop, arguments: {output: 7}, depends_on: [said]}
";

/// An executor that only reads what the services of a folder write.
struct Reader {
    process: Process,
    client: Client,
    log: PathBuf,
}

impl Reader {
    fn launch(folder: &Path, state_dir: &Path) -> Self {
        let (socket, log) = (folder.join("reader.sock"), folder.join("reader.log"));
        let listen = format!("unix:{}", socket.display());
        let arguments = ["--listen", &listen, "--state-dir", state_dir.to_str().unwrap(), "--read-only"];
        Self { process: Process::start("executor", &arguments, &log), client: Client::new(&socket), log }
    }

    async fn start(folder: &Path, services: &Services) -> Self {
        let reader = Self::launch(folder, &services.state(Service::Executor));
        serving(&folder.join("reader.sock"), "belay.v1.ExecutorService").await;
        reader
    }

    async fn wait(&self, id: &str) -> v1::Execution {
        let longest_wait = Some(belay_proto::duration(Duration::from_secs(60)));
        let request = v1::WaitExecutionRequest { name: name(id), longest_wait };
        self.client.raw().wait_execution(request).await.expect("it can be waited for").into_inner()
    }
}

/// The answers of methods that look at an execution, one after the other.
async fn looked(client: &Client, id: &str) -> Vec<String> {
    let (name, mut raw) = (name(id), client.raw());
    let mut all = Vec::new();
    macro_rules! ask {
        ($method:ident, $request:ident { $($field:ident: $value:expr),* }) => {
            let mut request = v1::$request::default();
            $(request.$field = $value.into();)*
            let answer = raw.$method(request).await.unwrap_or_else(|error| panic!("{}: {error}", stringify!($method)));
            all.push(format!("{} {:#?}", stringify!($method), answer.into_inner()));
        };
    }
    ask!(get_execution, GetExecutionRequest { name: name.clone(), view: v1::ExecutionView::Full });
    ask!(get_step, GetStepRequest { name: format!("{name}/steps/said"), view: v1::StepView::Full });
    ask!(list_steps, ListStepsRequest { parent: name.clone(), view: v1::StepView::Full });
    ask!(list_events, ListEventsRequest { parent: name.clone() });
    ask!(list_tool_calls, ListToolCallsRequest { parent: name.clone() });
    ask!(list_artifacts, ListArtifactsRequest { parent: name.clone() });
    ask!(list_audit_entries, ListAuditEntriesRequest { parent: name.clone() });
    ask!(explain_execution, ExplainExecutionRequest { name: name.clone() });
    ask!(get_timeline, GetTimelineRequest { name: name.clone() });
    ask!(compare_executions, CompareExecutionsRequest { before: name.clone(), after: name.clone() });
    ask!(list_executions, ListExecutionsRequest { parent: "namespaces/default" });
    ask!(list_namespaces, ListNamespacesRequest { page_size: 100 });
    all
}

/// B-22, B-38: a process that drives nothing shows, explains, watches and waits like the owner: the same answers, every event once, also while the owner
/// is killed and started again; and what it is asked to change it refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_beside_the_owner_answers_as_it_does() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let owner = Client::new(&services.socket());
    let reader = Reader::start(folder.path(), &services).await;
    owner.start_in("e", PLAN, &services.workspace("w")).await;

    // It has committed what it has answered: a reader finds it at once.
    assert_eq!(reader.client.raw().get_execution(get("e")).await.unwrap().into_inner().name, name("e"));
    let watching = tokio::spawn({
        let client = reader.client.clone();
        async move { client.watch_to_the_end("e").await }
    });
    let mut stream = reader.client.watch("e", "").await.unwrap();
    until(async || {
        let steps = reader.client.steps("e").await;
        steps.iter().any(|step| step.step_id == "go" && step.state() == StepState::Waiting)
    })
    .await;
    assert_eq!(reader.client.get("e").await.state(), State::Running);
    assert_eq!(looked(&reader.client, "e").await, looked(&owner, "e").await);

    // The owner goes and comes back; nobody who reads notices.
    services.restart(Service::Executor).await;
    assert_eq!(reader.client.get("e").await.state(), State::Running, "the store is read without its owner");
    services.ready().await;
    let waiting = reader.wait("e");
    let signal = v1::SignalExecutionRequest { name: name("e"), signal: "go".into(), ..Default::default() };
    let signalled = retry(|| async { owner.raw().signal_execution(signal.clone()).await });
    let (ended, signalled) = tokio::join!(waiting, signalled);
    signalled.unwrap();
    assert_eq!(ended.state(), State::Completed, "{ended:#?}");
    let picture = watching.await.unwrap();
    picture.assert_equals(&owner.get("e").await);
    // The one stream that was open all the time has the end as well.
    let mut last = 0;
    while let Some(message) = stream.message().await.unwrap() {
        if let Some(Content::Event(event)) = message.content {
            assert_eq!(event.sequence, last + 1, "every event comes once");
            last = event.sequence;
        }
    }
    assert_eq!(last, picture.last_sequence());
    assert_eq!(looked(&reader.client, "e").await, looked(&owner, "e").await);

    // Whoever watches may go from one to the other.
    for client in [&owner, &reader.client] {
        let mut resumed = client.watch("e", picture.cursor()).await.unwrap();
        let first = resumed.message().await.unwrap().expect("there is a snapshot");
        assert!(matches!(first.content, Some(Content::Snapshot(_))), "{first:#?}");
        while let Some(message) = resumed.message().await.unwrap() {
            assert!(!matches!(message.content, Some(Content::Event(_) | Content::Reset(_))), "{message:#?}");
        }
    }

    let refused = reader.client.raw().signal_execution(signal).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "READ_ONLY".into()));
    let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text: PLAN.into() };
    let source = Some(v1::validate_plan_request::Source::Document(document));
    let validate = v1::ValidatePlanRequest { source, ..Default::default() };
    let refused = reader.client.raw().validate_plan(validate).await.unwrap_err();
    assert_eq!(reason(&refused), (Code::FailedPrecondition, "READ_ONLY".into()));
}

/// B-38: what the owner deletes is gone for a reader that has just looked at it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_shows_nothing_of_what_the_owner_has_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let owner = Client::new(&services.socket());
    let reader = Reader::start(folder.path(), &services).await;
    for id in ["kept", "gone"] {
        owner.start_in(id, "{id: p, steps: [{id: s, tool: noop}]}", &services.workspace(id)).await;
        assert_eq!(reader.wait(id).await.state(), State::Completed);
        reader.client.steps(id).await;
    }
    let delete = v1::DeleteExecutionRequest { name: name("gone"), ..Default::default() };
    owner.raw().delete_execution(delete).await.unwrap();
    let missing = reader.client.raw().get_execution(get("gone")).await.unwrap_err();
    assert_eq!(reason(&missing), (Code::NotFound, "EXECUTION_NOT_FOUND".into()));
    assert_eq!(reader.client.get("kept").await.state(), State::Completed);
}

/// Without a store, and with one that was taken away, a reader ends and says why; the owner is not touched by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_without_its_store_ends_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let nothing = folder.path().join("nothing");
    let mut reader = Reader::launch(folder.path(), &nothing);
    assert_eq!(reader.process.ended().await, Some(1));
    let log = fs::read_to_string(&reader.log).unwrap();
    assert!(log.contains("STATE_DIR_MISSING") && log.contains("journal.db does not exist"), "{log}");
    assert!(!nothing.exists(), "it creates nothing");

    let mut services = Services::start(folder.path()).await;
    let mut reader = Reader::start(folder.path(), &services).await;
    services.kill(Service::Executor).await;
    let state = services.state(Service::Executor);
    fs::rename(&state, folder.path().join("moved")).unwrap();
    assert_eq!(reader.process.ended().await, Some(1));
    let log = fs::read_to_string(&reader.log).unwrap();
    assert!(log.contains("STORE_GONE"), "{log}");
}

fn get(id: &str) -> v1::GetExecutionRequest {
    v1::GetExecutionRequest { name: name(id), view: v1::ExecutionView::Full.into() }
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let held = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), held).await.expect("it holds within a minute");
}
