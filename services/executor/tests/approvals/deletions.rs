//! Deleting executions that have ended, and what is left to do when a service is away or the executor is killed.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use belay_executor::{Parts, Thresholds};
use belay_proto::v1::{self, watch_execution_response::Content};
use belay_service_kit::{Clock, status};
use belay_settings::{Retention, ValueWithOrigin};
use futures::future::join_all;
use tonic::{Code, Status};

use crate::{
    memory::{inside_on, inside_with},
    support::{Executor, GateState, World, plan},
};

fn request(name: &str) -> v1::DeleteExecutionRequest {
    v1::DeleteExecutionRequest { name: name.into(), ..v1::DeleteExecutionRequest::default() }
}

async fn delete(executor: &Executor, request: v1::DeleteExecutionRequest) -> Result<bool, (Code, String)> {
    let deleted = executor.client.clone().delete_execution(request).await;
    deleted.map(|response| response.into_inner().complete).map_err(refusal)
}

fn refusal(status: Status) -> (Code, String) {
    (status.code(), status::reason(&status).unwrap_or_else(|| status.message().to_owned()))
}

fn refused<T>(code: Code, reason: &str) -> Result<T, (Code, String)> {
    Err((code, reason.to_owned()))
}

async fn until_forgotten(world: &World, name: &str) {
    world.gate.until("the gate to forget it", |seen| seen.forgotten.iter().any(|forgotten| forgotten == name)).await;
    assert!(world.runner.seen().forgotten.iter().any(|forgotten| forgotten == name), "the runner comes first");
}

/// B-26.
#[tokio::test]
async fn a_deleted_execution_is_gone_everywhere() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: effect").await;
    let approval = world.gate.pending_approval("a").await;
    executor.until_awaiting_approval(&name).await;
    let not_ended = refused(Code::FailedPrecondition, "EXECUTION_NOT_ENDED");
    assert_eq!(delete(&executor, request(&name)).await, not_ended, "it waits for a person");
    world.gate.approve(&approval.name);
    let ended = executor.end(&name).await;
    let other = executor.run("a").await;
    executor.assert_completes(&other).await;

    let with = |etag: &str, id: &str| v1::DeleteExecutionRequest {
        etag: etag.into(),
        request_id: id.into(),
        ..request(&name)
    };
    assert_eq!(delete(&executor, with("another", "")).await, refused(Code::Aborted, "ETAG_MISMATCH"));
    assert_eq!(delete(&executor, with(&ended.etag, "once")).await, Ok(true), "both services have forgotten it");
    assert_eq!(world.runner.seen().forgotten, [name.as_str()]);
    assert_eq!(world.gate.seen().forgotten, [name.as_str()]);
    assert!(world.gate.seen().approvals.is_empty());

    assert_eq!(executor.get(&name).await.map_err(refusal), refused(Code::NotFound, "EXECUTION_NOT_FOUND"));
    let list = v1::ListExecutionsRequest { parent: "namespaces/-".into(), ..v1::ListExecutionsRequest::default() };
    let listed = executor.client.clone().list_executions(list).await.unwrap().into_inner().executions;
    assert_eq!(listed.iter().map(|execution| execution.name.as_str()).collect::<Vec<_>>(), [other.as_str()]);
    assert_eq!(delete(&executor, request(&name)).await, refused(Code::NotFound, "EXECUTION_NOT_FOUND"));
    assert_eq!(delete(&executor, with(&ended.etag, "once")).await, Ok(true), "the same request again");
    let reused = refused(Code::AlreadyExists, "REQUEST_ID_REUSED");
    assert_eq!(delete(&executor, with("", "once")).await, reused, "another request with its id");

    let (_, id) = name.rsplit_once('/').unwrap();
    let again = v1::StartExecutionRequest { execution_id: id.into(), ..plan("a") };
    let started = executor.client.clone().start_execution(again).await.map(drop).map_err(refusal);
    assert_eq!(started, refused(Code::FailedPrecondition, "EXECUTION_ID_DELETED"));
}

/// B-26: whichever service is away, and wherever the executor is killed, the deletion is completed later.
#[tokio::test]
async fn an_interrupted_deletion_is_completed_after_a_restart() {
    let cases = [(true, true, false), (true, false, false), (false, true, false), (false, false, true)];
    join_all(cases.map(|(runner, gate, in_use)| interrupted(runner, gate, in_use))).await;
}

async fn interrupted(runner_away: bool, gate_away: bool, in_use: bool) {
    let mut world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a; b").await;
    executor.assert_completes(&name).await;
    if runner_away {
        world.stop_runner();
    }
    if gate_away {
        world.stop_gate();
    }
    if in_use {
        world.runner.set(|seen| seen.in_use = Some(name.clone()));
    }
    assert_eq!(delete(&executor, request(&name)).await, Ok(false), "it is not complete");
    let gone = refused(Code::NotFound, "EXECUTION_NOT_FOUND");
    assert_eq!(executor.get(&name).await.map_err(refusal), gone, "it is gone for its readers all the same");
    executor.kill().await;
    if runner_away {
        world.start_runner().await;
    }
    if gate_away {
        world.start_gate().await;
    }
    world.runner.set(|seen| seen.in_use = None);
    let executor = world.executor().await;
    until_forgotten(&world, &name).await;
    assert_eq!(executor.get(&name).await.map_err(refusal), gone);
}

/// A wall clock that the test sets.
#[derive(Debug)]
struct Manual(AtomicI64);

impl Clock for Manual {
    fn now_micros(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A new execution under an old name is another one: it makes its calls, and does not get the results of the old one's.
#[tokio::test]
async fn an_id_can_be_used_again_after_a_while() {
    let world = World::new().await;
    let clock = Arc::new(Manual(AtomicI64::new(1_700_000_000_000_000)));
    let inside = inside_with(&world, Arc::<Manual>::clone(&clock), Thresholds::default()).await;
    let executor = &inside.executor;
    let start = || v1::StartExecutionRequest { execution_id: "nightly".into(), ..plan("a") };
    let started = executor.client.clone().start_execution(start()).await.unwrap().into_inner();
    executor.assert_completes(&started.name).await;
    assert_eq!(delete(executor, request(&started.name)).await, Ok(true));
    let refuse = async || executor.client.clone().start_execution(start()).await.unwrap_err();
    assert!(refuse().await.message().contains("in 15 min"), "{}", refuse().await);
    clock.0.fetch_add((14 * 60 + 30) * 1_000_000, Ordering::SeqCst);
    assert!(refuse().await.message().contains("again in 3"), "{}", refuse().await);
    clock.0.fetch_add(40 * 1_000_000, Ordering::SeqCst);
    let again = executor.client.clone().start_execution(start()).await.unwrap().into_inner();
    assert_eq!(again.name, started.name);
    assert_ne!(again.uid, started.uid);
    executor.assert_completes(&again.name).await;
    let worked = world.runner.seen().worked;
    assert_eq!((worked.len(), &worked[0]), (2, &worked[1]), "the call of the same name was made again");
    inside.stop();
}

/// B-15: a request that is repeated, because its answer was lost, starts nothing again, also when what it started has ended and was deleted meanwhile.
#[tokio::test]
async fn a_request_that_is_repeated_after_a_deletion_starts_nothing() {
    let world = World::new().await;
    let clock = Arc::new(Manual(AtomicI64::new(1_700_000_000_000_000)));
    let inside = inside_with(&world, Arc::<Manual>::clone(&clock), Thresholds::default()).await;
    let executor = &inside.executor;
    let start = async |id: &str| {
        let request = v1::StartExecutionRequest { request_id: id.into(), ..plan("a") };
        executor.client.clone().start_execution(request).await.map(|started| started.into_inner().name)
    };
    let started = start("once").await.unwrap();
    executor.assert_completes(&started).await;
    assert_eq!(delete(executor, request(&started)).await, Ok(true));
    assert_eq!(start("once").await.map_err(refusal), refused(Code::NotFound, "EXECUTION_DELETED"));
    clock.0.fetch_add(14 * 60 * 1_000_000, Ordering::SeqCst);
    let again = start("once").await.unwrap_err();
    assert_eq!(status::fact(&again, "name"), Some(started), "{again}");
    assert_eq!(world.runner.seen().worked.len(), 1, "it ran once");
    let other = start("another").await.unwrap();
    executor.assert_completes(&other).await;
    inside.stop();
}

/// B-26: a fork works in the folder of its origin, which goes with the last of them. An execution that gets the name of the deleted
/// origin meanwhile does not work among the fork's files.
#[tokio::test]
async fn a_name_that_is_used_again_beside_a_fork_has_another_folder() {
    let world = World::new().await;
    let clock = Arc::new(Manual(AtomicI64::new(1_700_000_000_000_000)));
    let inside = inside_with(&world, Arc::<Manual>::clone(&clock), Thresholds::default()).await;
    let executor = &inside.executor;
    let start = async || {
        let request = v1::StartExecutionRequest { execution_id: "nightly".into(), ..plan("a; b") };
        let started = executor.client.clone().start_execution(request).await.unwrap().into_inner();
        executor.assert_completes(&started.name).await;
        started
    };
    let origin = start().await;
    let fork = v1::ForkExecutionRequest {
        name: origin.name.clone(),
        execution_id: "fork".into(),
        from_step: "b".into(),
        ..Default::default()
    };
    let fork = executor.client.clone().fork_execution(fork).await.unwrap().into_inner();
    executor.assert_completes(&fork.name).await;
    assert_eq!((origin.made_folder.as_str(), fork.made_folder.as_str()), ("nightly", "nightly"));
    assert_eq!(delete(executor, request(&origin.name)).await, Ok(true));
    assert_eq!(world.runner.seen().removed_folders, Vec::<String>::new(), "the fork works there");

    clock.0.fetch_add(16 * 60 * 1_000_000, Ordering::SeqCst);
    let again = start().await;
    assert_eq!((&again.name, again.made_folder.clone()), (&origin.name, format!("nightly.{}", again.uid)));
    let folders = world.runner.seen().folders;
    let of = |name: &str| folders.iter().filter(|(of, _)| of == name).map(|(_, folder)| folder.clone()).collect();
    let (first, second): (Vec<String>, Vec<String>) = (of(&origin.name), of(&fork.name));
    assert_eq!(first, ["nightly", "nightly", &again.made_folder, &again.made_folder]);
    assert_eq!(second, ["nightly"]);
    assert_eq!(delete(executor, request(&fork.name)).await, Ok(true));
    assert_eq!(delete(executor, request(&again.name)).await, Ok(true));
    assert_eq!(world.runner.seen().removed_folders, ["nightly".to_owned(), again.made_folder]);
    inside.stop();
}

/// A watcher of an execution that is deleted gets a clear end.
#[tokio::test]
async fn a_watch_of_a_deleted_execution_ends() {
    let world = World::new().await;
    let steps: Vec<String> = (0..120).map(|step| format!("s{step}")).collect();
    world.runner.set(|seen| {
        for step in &steps {
            seen.results.insert(step.clone(), serde_json::json!("x".repeat(30_000)));
        }
    });
    let clock = Arc::new(Manual(AtomicI64::new(1_700_000_000_000_000)));
    let thresholds = Thresholds { watch_page: 1, ..Thresholds::default() };
    let inside = inside_with(&world, clock, thresholds).await;
    let name = inside.executor.run(&steps.join("; ")).await;
    inside.executor.end(&name).await;
    // More than the connection buffers, so the server has not read all events when the execution is deleted.
    let mut watch = inside.executor.watch(&name, true).await;
    assert!(matches!(watch.message().await.unwrap().unwrap().content, Some(Content::Snapshot(_))));
    assert_eq!(delete(&inside.executor, request(&name)).await, Ok(true));
    let end = loop {
        match watch.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("it ends as if every event had been sent"),
            Err(status) => break refusal(status),
        }
    };
    assert_eq!(end, (Code::NotFound, "EXECUTION_DELETED".to_owned()));
    inside.stop();
}

/// B-26: executions go by age and by count, the oldest end first; what has not ended stays however old it is.
#[tokio::test]
async fn retention_deletes_what_is_older_and_what_is_more() {
    let world = World::new().await;
    let clock = Arc::new(Manual(AtomicI64::new(1_700_000_000_000_000)));
    let start = async |retention| {
        let change = |parts: Parts| Parts { retention, ..parts };
        inside_on(&world, Arc::<Manual>::clone(&clock), Thresholds::default(), change).await
    };
    let hours = |hours: i64| clock.0.fetch_add(hours * 3_600_000_000, Ordering::SeqCst);
    let inside = start(Retention::default()).await;
    let parked = inside.executor.run("p: effect").await;
    world.gate.pending_approval("p").await;
    let mut names = Vec::new();
    for _ in 0..5 {
        let name = inside.executor.run("a").await;
        inside.executor.assert_completes(&name).await;
        names.push(name);
        hours(1);
    }
    inside.stop();
    // They ended 5, 4, 3, 2 and 1 hours ago.
    let set = |finished_for, keep_last| Retention {
        finished_for: ValueWithOrigin { value: finished_for, ..Retention::default().finished_for },
        keep_last: ValueWithOrigin { value: keep_last, ..Retention::default().keep_last },
    };
    for (retention, kept) in [
        (set(Some(100 * 3600), Some(5)), 5),
        (set(Some(4 * 3600 + 1800), None), 4),
        (set(None, Some(3)), 3),
        (set(Some(3600 + 1800), Some(2)), 1),
        (set(None, Some(0)), 0),
    ] {
        let inside = start(retention).await;
        let gone = names.len() - kept;
        let forgotten = |seen: &GateState| names[..gone].iter().all(|name| seen.forgotten.contains(name));
        world.gate.until("the gate to forget the old ones", forgotten).await;
        for (index, name) in names.iter().enumerate() {
            assert_eq!(inside.executor.get(name).await.is_ok(), index >= gone, "{index} of {kept}");
        }
        assert!(inside.executor.get(&parked).await.is_ok(), "it has not ended");
        inside.stop();
    }
}
