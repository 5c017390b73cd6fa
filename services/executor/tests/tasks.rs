//! The tasks that the executor keeps for all executions: a panic in one of them costs a moment, and nothing of what it does.

#[path = "approvals/support/mod.rs"]
#[expect(dead_code, unused_imports, reason = "the other tests use the rest")]
mod support;

use std::{sync::Arc, time::Duration};

use belay_defects::{Defect, plant};
use belay_executor::{ExecutionRegistry, Gate, MasterKey, Parts, Redactor, Runner, Thresholds};
use belay_proto::v1::{self, execution::State};
use belay_service_kit::{Access, Ids, Shutdown, SystemClock, net};
use belay_settings::Retention;
use belay_sqlite::{Location, Threads};
use belay_telemetry::Telemetry;

use support::{Executor, Server, World};

#[tokio::test]
async fn each_task_continues_after_a_panic() {
    plant(Defect::TasksPanic);
    let world = World::new().await;
    let folder = world.folder.path();
    let channel = |name: &str| net::connect_lazy(&net::Address::Unix(folder.join(name)));
    let (_trigger, shutdown) = Shutdown::new();
    let executions = ExecutionRegistry::new(Parts {
        journal: belay_journal_sqlite::open(&Location::file(folder.join("journal.db")), Threads::Real, || {
            "store".into()
        })
        .unwrap(),
        blobs: Arc::new(belay_blobs::Folder::new(folder.join("blobs"))),
        threads: Threads::Real,
        runner: Runner::new(channel("runner"), None).unwrap(),
        gate: Gate::new(channel("gate"), None).unwrap(),
        clock: Arc::new(SystemClock),
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
        // An execution that waits for a time leaves memory.
        thresholds: Thresholds { park_after: Duration::ZERO, ..Thresholds::default() },
    });
    let socket = folder.join("inside");
    let access = Access::unauthenticated_person("planner");
    let _server = Server::start(&socket, belay_executor::hosted(Arc::clone(&executions)), access).await;
    executions.drive_all().await.unwrap();
    let executor = Executor::at(&net::Address::Unix(socket));

    // Timers.
    let retried = executor.run("a: fails_once").await;
    executor.assert_completes(&retried).await;
    // Decisions, notices and acknowledgements.
    let approved = executor.run("b: effect").await;
    let approval = world.gate.pending_approval("b").await;
    world.gate.approve(&approval.name);
    assert_eq!(executor.end(&approved).await.state(), State::Completed);
    world.gate.until("the spent grant", |seen| seen.consumed.contains(&approval.name)).await;
    world.runner.until("the acknowledgement", |seen| seen.acknowledged.contains(&approval.call)).await;
    // Deletions.
    let request = v1::DeleteExecutionRequest { name: approved.clone(), ..Default::default() };
    assert!(executor.client.clone().delete_execution(request).await.unwrap().into_inner().complete);
}
