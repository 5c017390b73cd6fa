//! Executions that wait for approval leave memory; decisions for executions that this executor does not drive.

use belay_reasons::StoreFault;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use belay_blobs::Folder;
use belay_executor::{ExecutionRegistry, Gate, MasterKey, Parts, Redactor, Runner, Thresholds};
use belay_journal::{JournalWriter, StoreError};
use belay_proto::v1;
use belay_service_kit::{Access, Clock, Ids, Shutdown, SystemClock, net, shutdown::Trigger};
use belay_settings::Retention;
use belay_sqlite::{Location, Threads};
use belay_telemetry::Telemetry;
use futures::future::join_all;

use crate::support::{Executor, Server, TIMEOUT, World};

/// An executor in this process, so that the test can inspect its memory.
pub(crate) struct Inside {
    pub(crate) executions: Arc<ExecutionRegistry>,
    pub(crate) executor: Executor,
    server: Server,
    trigger: Trigger,
}

pub(crate) async fn inside(world: &World) -> Inside {
    inside_with(world, Arc::new(SystemClock), Thresholds::default()).await
}

/// The same with a wall clock that the test sets.
pub(crate) async fn inside_with(world: &World, clock: Arc<dyn Clock>, thresholds: Thresholds) -> Inside {
    inside_on(world, clock, thresholds, |parts| parts).await
}

/// The same of parts that the test has changed.
pub(crate) async fn inside_on<W: JournalWriter>(
    world: &World,
    clock: Arc<dyn Clock>,
    thresholds: Thresholds,
    change: impl FnOnce(Parts) -> Parts<W>,
) -> Inside {
    let folder = world.folder.path();
    let journal = loop {
        match belay_journal_sqlite::open(&Location::file(folder.join("journal.db")), Threads::Real, || "store".into()) {
            Ok(journal) => break journal,
            // The previous executor has not closed it yet.
            Err(StoreError::Fault(StoreFault::Locked)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let channel = |name: &str| net::connect_lazy(&net::Address::Unix(folder.join(name)));
    let (trigger, shutdown) = Shutdown::new();
    let executions = ExecutionRegistry::new(change(Parts {
        journal,
        blobs: Arc::new(Folder::new(folder.join("blobs"))),
        threads: Threads::Real,
        runner: Runner::new(channel("runner"), None).unwrap(),
        gate: Gate::new(channel("gate"), None).unwrap(),
        clock,
        ids: Ids::seeded(1),
        redactor: Redactor::new(),
        master_key: MasterKey::new([7; 32]),
        telemetry: Telemetry::off(|bytes| bytes.fill(1)),
        shutdown,
        limits: Default::default(),
        retention: Retention::default(),
        budgets: Default::default(),
        webhooks: Vec::new(),
        models: belay_executor::Models::default(),
        thresholds,
    }));
    let socket = folder.join("inside");
    let server = Server::start(
        &socket,
        belay_executor::hosted(Arc::clone(&executions)),
        Access::unauthenticated_person("planner"),
    )
    .await;
    let executor = Executor::at(&net::Address::Unix(socket));
    Inside { executions, executor, server, trigger }
}

impl Inside {
    pub(crate) fn stop(self) {
        self.trigger.pull();
        self.server.stop();
    }

    /// Returns when as many executions are in memory.
    pub(crate) async fn until_in_memory(&self, count: usize) {
        let settled = async {
            while self.executions.in_memory() != count {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, settled).await.expect("they leave memory");
    }
}

/// A request to start this plan, in YAML.
fn document(plan: &str) -> v1::StartExecutionRequest {
    let document = v1::PlanDocument { text: plan.into(), format: v1::PlanFormat::Yaml.into() };
    let source = Some(v1::start_execution_request::Source::Document(document));
    v1::StartExecutionRequest { source, ..crate::support::plan("a") }
}

/// The machine's clock, set back by this number of microseconds.
#[derive(Debug, Default)]
struct SetBack(AtomicI64);

impl Clock for SetBack {
    fn now_micros(&self) -> i64 {
        SystemClock.now_micros() - self.0.load(Ordering::SeqCst)
    }
}

// Setting the clock back does not prolong a delay.
#[tokio::test]
async fn a_clock_that_is_set_back_does_not_delay_a_retry() {
    const HOUR: Duration = Duration::from_secs(3600);
    let backs_off =
        |execution: &v1::Execution| execution.steps.iter().any(|step| step.state() == v1::step::State::BackingOff);
    let set_back = |clock: &SetBack| clock.0.fetch_add(i64::try_from(HOUR.as_micros()).unwrap(), Ordering::SeqCst);
    let (world, clock) = (World::new().await, Arc::new(SetBack::default()));
    // While the service runs.
    let inside = inside_with(&world, Arc::<SetBack>::clone(&clock), Thresholds::default()).await;
    let running = inside.executor.run("a: fails_once").await;
    inside.executor.until(&running, "its backoff", backs_off).await;
    set_back(&clock);
    assert_eq!(inside.executor.end(&running).await.state(), v1::execution::State::Completed);
    // Between two lives of it, for an execution that waits in memory and for one that leaves it.
    for park_after in [Thresholds::default().park_after, Duration::ZERO] {
        let (world, clock) = (World::new().await, Arc::new(SetBack::default()));
        let inside = inside_with(&world, Arc::<SetBack>::clone(&clock), Thresholds::default()).await;
        let restarted = inside.executor.run("a: fails_once").await;
        inside.executor.until(&restarted, "its backoff", backs_off).await;
        inside.stop();
        set_back(&clock);
        let thresholds = Thresholds { park_after, ..Thresholds::default() };
        let inside = inside_with(&world, Arc::<SetBack>::clone(&clock), thresholds).await;
        inside.executions.drive_all().await.unwrap();
        assert_eq!(inside.executor.end(&restarted).await.state(), v1::execution::State::Completed);
    }
}

/// An execution that waits is late by no more than the longest sleep once the clock was set forward, whether it waits in memory or has left it: a clock
/// that was an hour behind when the executor started is put right.
#[tokio::test]
async fn what_waits_goes_on_soon_after_the_clock_was_set_forward() {
    const PLAN: &str = "{id: waiting, steps: [{id: a, wait: {for: 1h}}]}";
    for park_after in [Duration::from_secs(86_400), Duration::ZERO] {
        let (world, clock) = (World::new().await, Arc::new(SetBack::default()));
        clock.0.store(3_600_000_000, Ordering::SeqCst);
        let thresholds = Thresholds { park_after, longest_sleep: Duration::from_millis(20), ..Thresholds::default() };
        let inside = inside_with(&world, Arc::<SetBack>::clone(&clock), thresholds).await;
        inside.executions.drive_all().await.unwrap();
        let name = inside.executor.start_execution(document(PLAN)).await;
        let waits = |execution: &v1::Execution| execution.waiting.iter().any(|waiting| waiting.until_time.is_some());
        inside.executor.until(&name, "its wait", waits).await;
        // Whatever follows from its start has reached its driver by then, which sleeps.
        for _ in 0..1000 {
            inside.executor.get(&name).await.unwrap();
        }
        clock.0.store(0, Ordering::SeqCst);
        assert_eq!(inside.executor.end(&name).await.state(), v1::execution::State::Completed);
        inside.stop();
    }
}

// REQUIREMENTS section 4, number 6; B-01: a thousand questions are a thousand rows, and each decision wakes its own.
#[tokio::test]
async fn a_thousand_executions_that_wait_leave_memory_and_wake_on_their_decision() {
    const COUNT: usize = 1000;
    let world = World::new().await;
    let inside = inside(&world).await;
    inside.executions.drive_all().await.unwrap();
    let names = join_all((0..COUNT).map(|_| inside.executor.run("a: effect"))).await;
    let seen = world.gate.until("all the questions", |seen| seen.approvals.len() == COUNT).await;
    inside.until_in_memory(0).await;

    let (first, others) = names.split_first().unwrap();
    let of_first = seen.approvals.values().find(|approval| approval.execution == *first).unwrap();
    world.gate.approve(&of_first.name);
    assert_eq!(inside.executor.end(first).await.state(), v1::execution::State::Completed);
    assert_eq!(world.runner.seen().committed, [of_first.call.as_str()]);
    let waits = inside.executor.get(&others[0]).await.unwrap();
    assert_eq!(waits.state(), v1::execution::State::AwaitingApproval);
    inside.until_in_memory(0).await;

    for approval in seen.approvals.values().filter(|approval| approval.name != of_first.name) {
        world.gate.approve(&approval.name);
    }
    let ended = join_all(others.iter().map(|name| inside.executor.end(name))).await;
    assert!(ended.iter().all(|execution| execution.state() == v1::execution::State::Completed));
    assert_eq!(world.runner.seen().committed.len(), COUNT);
    inside.until_in_memory(0).await;
}

/// B-23, B-28: an execution whose step's plan waits for a person costs a row, and so does every execution above it. The end of the innermost one wakes
/// them, one after the other, whether or not the executor was restarted meanwhile.
#[tokio::test]
async fn executions_that_wait_for_those_of_their_steps_leave_memory_and_wake_on_their_end() {
    const PLAN: &str = "
id: outer
steps:
  - id: a
    plan:
      id: middle
      steps:
        - id: b
          plan: {id: inner, steps: [{id: c, tool: work, arguments: {effect: true}}]}
  - {id: after, tool: work, depends_on: [a]}
";
    let thresholds = Thresholds { park_after: Duration::from_millis(1), ..Thresholds::default() };
    for restarts in [false, true] {
        let world = World::new().await;
        let mut inside = inside_with(&world, Arc::new(SystemClock), thresholds).await;
        inside.executions.drive_all().await.unwrap();
        let outer = inside.executor.start_execution(document(PLAN)).await;
        let approval = world.gate.until("the question", |seen| seen.approvals.len() == 1).await;
        inside.until_in_memory(0).await;
        let waits = inside.executor.get(&outer).await.unwrap();
        assert_eq!(waits.waiting[0].kind(), v1::waiting_reason::Kind::Child, "{waits:?}");
        if restarts {
            inside.stop();
            inside = inside_with(&world, Arc::new(SystemClock), thresholds).await;
            inside.executions.drive_all().await.unwrap();
            inside.until_in_memory(0).await;
        }
        world.gate.approve(approval.approvals.keys().next().unwrap());
        assert_eq!(inside.executor.end(&outer).await.state(), v1::execution::State::Completed);
        assert_eq!(world.runner.seen().committed.len(), 1);
        inside.until_in_memory(0).await;
        inside.stop();
    }
}

// An executor that drives only what it was asked to leaves decisions about everything else to others, until it is asked for that.
#[tokio::test]
async fn decisions_about_what_is_not_driven_here_stay_undelivered() {
    let world = World::new().await;
    let (theirs, ours) = {
        let before = inside(&world).await;
        let names = (before.executor.run("a: effect").await, before.executor.run("b: effect").await);
        world.gate.pending_approval("b").await;
        before.until_in_memory(0).await;
        before.executor.pause(&names.1).await;
        before.until_in_memory(0).await;
        before.stop();
        names
    };
    let (about_theirs, about_ours) = (world.gate.pending_approval("a").await, world.gate.pending_approval("b").await);
    world.gate.approve(&about_theirs.name);
    world.gate.approve(&about_ours.name);

    let inside = inside(&world).await;
    inside.executor.resume(&ours).await;
    assert_eq!(inside.executor.end(&ours).await.state(), v1::execution::State::Completed);
    world.gate.until("its being stored", |seen| seen.delivered.contains(&about_ours.name)).await;
    assert!(!world.gate.seen().delivered.contains(&about_theirs.name));
    assert_eq!(world.runner.seen().committed, [about_ours.call.as_str()]);
    let untouched = inside.executor.get(&theirs).await.unwrap();
    assert_eq!(untouched.state(), v1::execution::State::AwaitingApproval);

    // Once everything is driven here, it is for this one after all.
    inside.executions.drive_all().await.unwrap();
    assert_eq!(inside.executor.end(&theirs).await.state(), v1::execution::State::Completed);
}
