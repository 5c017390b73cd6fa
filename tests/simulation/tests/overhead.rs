//! The time that a step costs beyond its tool's own, in virtual time: executor and tool runner as they are, every byte between them a
//! millisecond on its way, and a clock that moves only when nothing but a timer is left to wait for.
//!
//! How long the machine computes is not in it: the benchmarks measure that. What is in it is every timer, poll and back-off that could
//! stand between a result and the next call, and every round trip.

use std::{io, path::Path, sync::Arc, time::Duration};

use belay_executor::{ExecutionRegistry, Gate, MasterKey, Redactor};
use belay_grant::{Keys, SignedBytes, SigningKey};
use belay_policy::{Policies, RevisedPolicies};
use belay_proto::{
    runner_v1,
    v1::{
        self, execution_event::Kind, executor_service_client::ExecutorServiceClient, start_execution_request::Source,
        watch_execution_response::Content,
    },
};
use belay_service_kit::{Access, Clock, HostedServices, Ids, Shutdown, Trigger};
use belay_settings::{ExecutorLimits, RunnerLimits};
use belay_sqlite::{Location, Threads};
use belay_telemetry::Telemetry;
use belay_tool_runner::{
    AllowedWorkspaces, Calls, Enforcement, HostDirectories, Ledger, Registry, Secrets, Tool, Workspaces, tools::Noop,
};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split},
    sync::mpsc,
    time::Instant,
};
use tonic::transport::{Channel, Endpoint, Uri};

/// How long a message is on its way between executor and runner.
const LATENCY: Duration = Duration::from_millis(1);

/// There and back.
const ROUND_TRIP: i64 = 2_000;

const STEPS: usize = 100;

/// tokio's clock, which stands still while anything can be done.
#[derive(Debug)]
struct VirtualClock(Instant);

impl Clock for VirtualClock {
    fn now_micros(&self) -> i64 {
        1_700_000_000_000_000 + i64::try_from(self.0.elapsed().as_micros()).expect("a test is short")
    }
}

/// Carries bytes, each of which arrives `latency` after it was sent, whatever else is on its way.
fn carry(mut from: ReadHalf<DuplexStream>, mut to: WriteHalf<DuplexStream>, latency: Duration) {
    let (sent, mut under_way) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            if sent.send((Instant::now() + latency, bytes[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((arrives, bytes)) = under_way.recv().await {
            tokio::time::sleep_until(arrives).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
}

/// Serves in this runtime, and gives a channel to it on which everything takes `latency`.
fn serve(hosted: HostedServices, callers: Access, latency: Duration, stop: &Shutdown) -> Channel {
    let (offer, offered) = mpsc::unbounded_channel::<io::Result<DuplexStream>>();
    let incoming = futures::stream::unfold(offered, |mut offered| async {
        let connection = offered.recv().await?;
        Some((connection, offered))
    });
    tokio::spawn(belay_service_kit::host::serve(incoming, hosted, callers, stop.clone()));
    Endpoint::from_static("http://test").connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
        let ((near, out), (far, served)) = (duplex(1 << 20), duplex(1 << 20));
        let ((from_client, to_client), (from_server, to_server)) = (split(out), split(far));
        carry(from_client, to_server, latency);
        carry(from_server, to_client, latency);
        let accepted = offer.send(Ok(served)).map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused));
        async { accepted.map(|()| TokioIo::new(near)) }
    }))
}

async fn runner(folder: &Path, clock: Arc<VirtualClock>, stop: &Shutdown, max_calls: Option<u32>) -> Channel {
    let key = SigningKey::from_bytes(&[7; 32]);
    let registry = Registry::new([Box::new(Noop) as Box<dyn Tool>]).unwrap();
    let secrets = Secrets::new(Redactor::new(), MasterKey::new([8; 32]), registry.clone(), || [1; 32]);
    let location = Location::file(folder.join("ledger.db"));
    let mut limits = RunnerLimits::default();
    if let Some(max_calls) = max_calls {
        limits.calls.value = max_calls;
    }
    let calls = Calls::recover(belay_tool_runner::Parts {
        registry,
        ledger: Ledger::open(&location, Threads::Inline, secrets, || "ledger".into()).unwrap(),
        clock,
        keys: Keys::new([key.verifying_key()]),
        workspaces: Workspaces { own: folder.join("own"), allowed: AllowedWorkspaces::Any, forbidden: Vec::new() },
        directories: Arc::new(HostDirectories),
        enforcement: Enforcement::reported(runner_v1::EnforcementReport::default()),
        telemetry: Telemetry::off(|bytes| bytes.fill(1)),
        threads: Threads::Inline,
        limits,
        thresholds: belay_tool_runner::Thresholds::default(),
    })
    .await
    .unwrap();
    let signed = SignedBytes::policy(&key, RevisedPolicies { revision: 1, policies: Policies::preset() }.to_bytes());
    let policy =
        v1::SignedPolicy { revision: 1, body: signed.body, signature: signed.signature, key_id: signed.key_id };
    calls.policy().offer(policy).await.unwrap();
    serve(belay_tool_runner::hosted(calls, stop.clone()), Access::unauthenticated_executor(), LATENCY, stop)
}

/// An executor with its runner.
struct Inside {
    client: ExecutorServiceClient<Channel>,
    _stops: Trigger,
    _folder: tempfile::TempDir,
}

/// Both, on one folder. The runner takes `max_calls` on at once.
async fn inside(max_calls: Option<u32>) -> Inside {
    let own = tempfile::tempdir().unwrap();
    let folder = own.path().canonicalize().unwrap();
    let clock = Arc::new(VirtualClock(Instant::now()));
    let (trigger, stop): (Trigger, Shutdown) = Shutdown::new();
    let runner = runner(&folder, clock.clone(), &stop, max_calls).await;
    let nowhere =
        Endpoint::from_static("http://nowhere").connect_with_connector_lazy(tower::service_fn(|_: Uri| async {
            Err::<TokioIo<DuplexStream>, _>(io::Error::from(io::ErrorKind::ConnectionRefused))
        }));
    let location = Location::file(folder.join("journal.db"));
    let mut limits = ExecutorLimits::default();
    (limits.executions.value, limits.watchers.value) = (2, 2);
    let executions = ExecutionRegistry::new(belay_executor::Parts {
        journal: belay_journal_sqlite::open(&location, Threads::Inline, || "store".into()).unwrap(),
        blobs: Arc::new(belay_blobs::Folder::new(folder.join("blobs"))),
        threads: Threads::Inline,
        runner: belay_executor::Runner::new(runner, None).unwrap(),
        gate: Gate::new(nowhere, None).unwrap(),
        clock,
        ids: Ids::seeded(1),
        redactor: Redactor::new(),
        master_key: MasterKey::new([7; 32]),
        telemetry: Telemetry::off(|bytes| bytes.fill(1)),
        shutdown: stop.clone(),
        limits,
        retention: Default::default(),
        budgets: Default::default(),
        webhooks: Vec::new(),
        models: belay_executor::Models::default(),
        thresholds: belay_executor::Thresholds::default(),
    });
    executions.drive_all().await.unwrap();
    let client = ExecutorServiceClient::new(serve(
        belay_executor::hosted(Arc::clone(&executions)),
        Access::unauthenticated_person("test"),
        Duration::ZERO,
        &stop,
    ));
    Inside { client, _stops: trigger, _folder: own }
}

/// Starts a plan (YAML); the name of its execution.
async fn start(inside: &Inside, plan: &str) -> String {
    let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text: plan.into() };
    let request = v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        source: Some(Source::Document(document)),
        ..Default::default()
    };
    inside.client.clone().start_execution(request).await.unwrap().into_inner().name
}

/// All events of an execution of this plan (YAML).
async fn events(plan: &str) -> Vec<v1::ExecutionEvent> {
    let inside = inside(None).await;
    let name = start(&inside, plan).await;
    all_events(&inside, name).await
}

/// All events of an execution, until its end.
async fn all_events(inside: &Inside, name: String) -> Vec<v1::ExecutionEvent> {
    let request = v1::WatchExecutionRequest { name, include_earlier_events: true, ..Default::default() };
    let mut stream = inside.client.clone().watch_execution(request).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        if let Some(Content::Event(event)) = message.content {
            events.push(event);
        }
    }
    assert!(matches!(events.last().unwrap().kind, Some(Kind::ExecutionFinished(_))), "{events:?}");
    events
}

fn time(event: &v1::ExecutionEvent) -> i64 {
    belay_proto::micros(event.record_time.as_ref().expect("every event has a time"))
}

/// A chain of no-ops, each of which takes so many milliseconds.
fn chain(own: u64) -> String {
    let step = |n: usize| {
        let after = if n == 0 { String::new() } else { format!(", depends_on: [s{}]", n - 1) };
        format!("  - {{id: s{n}, tool: noop, arguments: {{sleep_ms: {own}}}{after}}}\n")
    };
    format!("id: chain\nsteps:\n{}", (0..STEPS).map(step).collect::<String>())
}

/// S2-NFR-001, S2-NFR-002: a step costs one round trip to the runner and nothing else; the next call is requested in the moment in which
/// the result arrives.
#[tokio::test(start_paused = true)]
async fn nothing_but_a_round_trip_stands_between_two_tools() {
    for own in [0, 7] {
        let events = events(&chain(own)).await;
        let at = |wanted: fn(&Kind) -> bool| -> Vec<i64> {
            events.iter().filter(|event| event.kind.as_ref().is_some_and(wanted)).map(time).collect()
        };
        let requested = at(|kind| matches!(kind, Kind::ToolCallRequested(_)));
        let completed = at(|kind| matches!(kind, Kind::ToolCallCompleted(_)));
        assert_eq!((requested.len(), completed.len()), (STEPS, STEPS));
        let own = i64::try_from(own).unwrap() * 1_000;
        // The first call makes the connection as well.
        for step in 1..STEPS {
            assert_eq!(requested[step], completed[step - 1], "step {step} is requested at once");
            assert_eq!(completed[step] - requested[step], own + ROUND_TRIP, "step {step} is there and back at once");
        }
        assert_eq!(time(events.last().unwrap()), completed[STEPS - 1], "and then it is over");
    }
}

/// S2-NFR-009: a step of twelve attempts makes twelve calls, each on record under a name of its own.
#[tokio::test(start_paused = true)]
async fn a_step_makes_as_many_calls_as_it_has_attempts() {
    let plan = "id: p
steps:
  - {id: a, tool: noop, arguments: {fail: not yet, fail_attempts: 11}, retry: {max_attempts: 12, backoff: [1h]}}
";
    let events = events(plan).await;
    let calls = |wanted: fn(&Kind) -> bool| -> Vec<String> {
        let wanted = events.iter().filter(|event| event.kind.as_ref().is_some_and(wanted));
        wanted.map(|event| format!("{}/calls/{}.{}", event.step_id, event.attempt, event.operation)).collect()
    };
    let expected: Vec<String> = (1..=12).map(|attempt| format!("a/calls/{attempt}.1")).collect();
    assert_eq!(calls(|kind| matches!(kind, Kind::ToolCallRequested(_))), expected);
    assert_eq!(calls(|kind| matches!(kind, Kind::ToolCallFailed(_))), expected[..11]);
    assert_eq!(calls(|kind| matches!(kind, Kind::ToolCallCompleted(_))), expected[11..]);
}

/// Beyond what the runner takes on, calls wait, say so, and burn no attempt.
#[tokio::test(start_paused = true)]
async fn calls_beyond_the_runners_limit_wait_and_burn_no_attempt() {
    const ALLOWED: usize = 4;
    const ALL: usize = 12;
    let inside = inside(Some(4)).await;
    let steps: String =
        (0..ALL).map(|n| format!("  - {{id: s{n}, tool: noop, arguments: {{sleep_ms: 10000}}}}\n")).collect();
    let name = start(&inside, &format!("id: many\nparallelism: {ALL}\nsteps:\n{steps}")).await;
    let is_limit = |reason: &v1::WaitingReason| {
        reason.kind() == v1::waiting_reason::Kind::Limit && reason.who.contains("services.runner.calls")
    };
    let mut most_waiting = 0;
    let ended = loop {
        let request = v1::GetExecutionRequest { name: name.clone(), view: v1::ExecutionView::Full.into() };
        let execution = inside.client.clone().get_execution(request).await.unwrap().into_inner();
        let waiting = execution.steps.iter().filter(|step| step.waiting.as_ref().is_some_and(is_limit)).count();
        assert_eq!(execution.waiting.iter().filter(|reason| is_limit(reason)).count(), waiting.min(1));
        most_waiting = most_waiting.max(waiting);
        if execution.end_time.is_some() {
            break execution;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(most_waiting, ALL - ALLOWED);
    assert_eq!((ended.state(), ended.waiting.len()), (v1::execution::State::Completed, 0), "{ended:?}");
    assert!(ended.steps.iter().all(|step| step.attempt == 1), "{ended:?}");
    let events = all_events(&inside, name).await;
    let of = |wanted: fn(&Kind) -> bool| events.iter().filter(|event| event.kind.as_ref().is_some_and(wanted)).count();
    assert_eq!(of(|kind| matches!(kind, Kind::ToolCallRequested(_))), ALL, "each call is made once");
    assert_eq!(of(|kind| matches!(kind, Kind::ToolCallCompleted(_))), ALL);
}

/// Executions and watchers beyond an executor's limit are refused with a delay, and taken on once there is room.
#[tokio::test(start_paused = true)]
async fn an_executor_takes_on_as_many_executions_and_watchers_as_it_may() {
    let inside = inside(None).await;
    let plan = "{id: p, steps: [{id: a, tool: noop, arguments: {sleep_ms: 60000}}]}";
    let names = [start(&inside, plan).await, start(&inside, plan).await];
    let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text: plan.into() };
    let request = v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        source: Some(Source::Document(document)),
        ..Default::default()
    };
    let refused = inside.client.clone().start_execution(request).await.unwrap_err();
    assert_eq!(belay_service_kit::status::reason(&refused).as_deref(), Some("LIMIT_REACHED"), "{refused:?}");
    assert!(belay_service_kit::status::retry_after(&refused).is_some_and(|delay| !delay.is_zero()));
    assert_eq!(belay_service_kit::status::fact(&refused, "limit").as_deref(), Some("services.executor.executions"));

    let watch = |name: &str| {
        let request =
            v1::WatchExecutionRequest { name: name.to_owned(), include_earlier_events: true, ..Default::default() };
        let mut client = inside.client.clone();
        async move { client.watch_execution(request).await.map(tonic::Response::into_inner) }
    };
    let watchers = [watch(&names[0]).await.unwrap(), watch(&names[0]).await.unwrap()];
    let refused = watch(&names[1]).await.unwrap_err();
    assert_eq!(belay_service_kit::status::fact(&refused, "limit").as_deref(), Some("services.executor.watchers"));
    drop(watchers);
    // Its place is free once the stream's reset has arrived.
    while watch(&names[1]).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for name in names {
        all_events(&inside, name).await;
    }
    // An execution leaves memory a moment after its end was observed.
    let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text: plan.into() };
    let request = v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        source: Some(Source::Document(document)),
        ..Default::default()
    };
    while inside.client.clone().start_execution(request.clone()).await.is_err() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}
