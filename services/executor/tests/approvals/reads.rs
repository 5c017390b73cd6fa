//! Reads are small unless more is asked for, and run beside the driver.

use std::sync::{Arc, Condvar, Mutex};

use belay_executor::{Parts, Thresholds};
use belay_journal::{BatchOutcome, JournalWriter, StoreWrite};
use belay_proto::v1::{self, ExecutionView, step::State, watch_execution_response::Content};
use belay_service_kit::SystemClock;
use prost::Message as _;
use serde_json::json;
use tonic::Code;

use crate::{
    memory::inside_on,
    support::{World, plan},
};

/// Steps `s0` to `s39`, each with a result of nearly a megabyte.
const LARGE: usize = 40;
const LARGE_BYTES: usize = 900_000;

async fn with_large_results() -> (World, String) {
    let world = World::new().await;
    let steps: Vec<String> = (0..LARGE).map(|n| format!("s{n}")).collect();
    world.runner.set(|seen| {
        for step in &steps {
            seen.results.insert(step.clone(), json!({"text": "x".repeat(LARGE_BYTES), "of": step}));
        }
    });
    (world, steps.join("; "))
}

// B-09, B-22: forty results of a megabyte are an ordinary execution. Its answers do not grow with them; each result is read for itself or on pages.
#[tokio::test]
async fn large_results_are_read_step_by_step() {
    let (world, steps) = with_large_results().await;
    let executor = world.executor().await;
    let name = executor.run(&steps).await;
    let ended = executor.end(&name).await;
    assert_eq!((ended.state(), ended.steps.len()), (v1::execution::State::Completed, LARGE));
    assert!(ended.encoded_len() < 40_000, "the FULL view has {} bytes", ended.encoded_len());
    assert!(ended.steps.iter().all(|step| step.output.is_none() && step.output_bytes > 900_000));

    let listed = executor.steps(&name, 0).await;
    assert_eq!(
        listed.iter().map(|step| step.step_id.as_str()).collect::<Vec<_>>(),
        steps.split("; ").collect::<Vec<_>>()
    );
    assert!(listed.iter().all(|step| step.encoded_len() < 500), "a large output is a reference");
    assert_eq!(executor.step(&name, "s39").await.unwrap(), listed[39]);
    let output = executor.output(&name, "s39").await;
    assert_eq!(output, json!({"text": "x".repeat(LARGE_BYTES), "of": "s39"}));

    // Every event comes to a watcher, one of them after the other.
    let events = executor.events(&name).await;
    assert_eq!(events.last().unwrap().sequence, ended.last_sequence);
    assert_eq!(
        events.iter().map(|event| event.sequence).collect::<Vec<_>>(),
        (1..=ended.last_sequence).collect::<Vec<_>>()
    );
    let bytes: usize = events.iter().map(prost::Message::encoded_len).sum();
    assert!(bytes < 100_000, "the events have {bytes} bytes");
    let stored = std::fs::metadata(world.folder.path().join("state/journal.db-wal")).unwrap().len();
    assert!(stored < 4_000_000, "the journal's log has {stored} bytes");
}

#[tokio::test]
async fn answers_are_small_unless_more_is_asked_for() {
    let world = World::new().await;
    let executor = world.executor().await;
    let mut client = executor.client.clone();
    let started = client.start_execution(plan("a: prompt_call; b after a")).await.unwrap().into_inner();
    let name = started.name.clone();
    let is_basic = |execution: &v1::Execution| {
        execution.plan.is_none()
            && execution.steps.is_empty()
            && !execution.etag.is_empty()
            && execution.totals.is_some()
    };
    assert!(is_basic(&started), "{started:?}");
    executor.until_awaiting_approval(&name).await;
    let get = |view: ExecutionView| v1::GetExecutionRequest { name: name.clone(), view: view.into() };
    let basic = client.get_execution(get(ExecutionView::Unspecified)).await.unwrap().into_inner();
    assert!(is_basic(&basic) && !basic.waiting.is_empty(), "{basic:?}");
    let full = client.get_execution(get(ExecutionView::Full)).await.unwrap().into_inner();
    assert_eq!((full.steps.len(), full.plan.as_ref().map(|plan| plan.steps.len())), (2, Some(2)));
    let (plan, steps) = (None, Vec::new());
    assert_eq!(v1::Execution { plan, steps, ..full.clone() }, basic, "the views differ in nothing else");
    for (view, steps) in [(ExecutionView::Unspecified, 0), (ExecutionView::Full, 2)] {
        let request = v1::WatchExecutionRequest { name: name.clone(), view: view.into(), ..Default::default() };
        let first = client.watch_execution(request).await.unwrap().into_inner().message().await.unwrap();
        let Some(Content::Snapshot(snapshot)) = first.unwrap().content else { panic!("the snapshot comes first") };
        assert_eq!(snapshot.steps.len(), steps);
    }
    executor.pause(&name).await;
    let resume = v1::ResumeExecutionRequest { name: name.clone(), ..Default::default() };
    assert!(is_basic(&client.resume_execution(resume).await.unwrap().into_inner()));
    let signal = v1::SignalExecutionRequest { name: name.clone(), signal: "go".into(), ..Default::default() };
    assert!(is_basic(&client.signal_execution(signal).await.unwrap().into_inner()));
    let wait = v1::WaitExecutionRequest { name: name.clone(), longest_wait: Some(Default::default()) };
    assert!(is_basic(&client.wait_execution(wait).await.unwrap().into_inner()));
    executor.cancel(&name).await;
    assert!(executor.end(&name).await.end_time.is_some());
}

#[tokio::test]
async fn what_is_asked_for_wrongly_is_refused_by_field() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a").await;
    executor.end(&name).await;
    let missing = executor.step(&name, "b").await.unwrap_err();
    assert_eq!((missing.code(), missing.message().contains("no step `b`")), (Code::NotFound, true), "{missing}");
    let nobody = executor.step("namespaces/default/executions/nobody", "a").await.unwrap_err();
    assert_eq!(nobody.code(), Code::NotFound);
    let list = |parent: &str, page_size, page_token: &str| v1::ListStepsRequest {
        parent: parent.into(),
        page_size,
        page_token: page_token.into(),
        ..Default::default()
    };
    for (request, field) in
        [(list("x", 0, ""), "parent"), (list(&name, -1, ""), "page_size"), (list(&name, 0, "z"), "page_token")]
    {
        let refused = executor.client.clone().list_steps(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with(&format!("{field}: ")), "{refused}");
    }
    let beyond = executor.client.clone().list_steps(list(&name, 0, "99")).await.unwrap().into_inner();
    assert!(beyond.steps.is_empty() && beyond.next_page_token.is_empty());
}

/// A journal's writer that the test can hold up.
struct HeldUp<W> {
    writer: W,
    held: Arc<(Mutex<bool>, Condvar)>,
}

impl<W: JournalWriter> JournalWriter for HeldUp<W> {
    fn blocks(&self) -> bool {
        true
    }

    async fn commit(&mut self, batch: &[StoreWrite]) -> BatchOutcome {
        drop(self.held.1.wait_while(self.held.0.lock().unwrap(), |held| *held).unwrap());
        self.writer.commit(batch).await
    }
}

// B-22: reads are not answered by the driver. While it waits for the disk they show what was committed, and what it decided meanwhile is not
// shown.
#[tokio::test]
async fn reads_are_answered_while_the_driver_waits_for_the_disk() {
    let world = World::new().await;
    let held = Arc::new((Mutex::new(false), Condvar::new()));
    let hold = |now: bool| {
        *held.0.lock().unwrap() = now;
        held.1.notify_all();
    };
    let gate = Arc::clone(&held);
    let change = |parts: Parts| parts.map_journal(|journal| journal.map_writer(|writer| HeldUp { writer, held: gate }));
    let inside = inside_on(&world, Arc::new(SystemClock), Thresholds::default(), change).await;
    let executor = &inside.executor;
    let name = executor.run("a; b: prompt_call after a").await;
    let before = executor.until_awaiting_approval(&name).await;

    hold(true);
    let paused = {
        let (mut client, name) = (executor.client.clone(), name.clone());
        tokio::spawn(async move {
            client.pause_execution(v1::PauseExecutionRequest { name, ..Default::default() }).await.unwrap().into_inner()
        })
    };
    let mut watch = executor.watch(&name, true).await;
    for _ in 0..100 {
        assert_eq!(executor.get(&name).await.unwrap(), before);
        assert_eq!(executor.step(&name, "a").await.unwrap().state(), State::Completed);
    }
    while watch.message().await.unwrap().is_some_and(|message| !matches!(message.content, Some(Content::Heartbeat(_))))
    {
    }
    assert!(!paused.is_finished());
    hold(false);
    let paused = paused.await.unwrap();
    assert_eq!(paused.state(), v1::execution::State::Paused);
    // Who was told of a change sees it.
    let after = executor.get(&name).await.unwrap();
    assert_eq!((after.etag, after.waiting), (paused.etag, paused.waiting));
    inside.stop();
}
