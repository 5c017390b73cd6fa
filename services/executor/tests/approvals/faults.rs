//! Faults of the executor itself: a panic in a driver costs nothing but time, and one that comes back takes nothing from other executions.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use belay_executor::{Parts, Thresholds};
use belay_proto::v1::{self, execution::State, waiting_reason::Kind};
use belay_service_kit::{SystemClock, status};
use belay_telemetry::Telemetry;
use tonic::Code;

use crate::{
    memory::{Inside, inside_on},
    support::{World, kinds},
};

/// An executor whose drivers panic this many times, each after it has committed the end of a call and before anybody is told of that.
async fn panicking(world: &World, faults: &Arc<AtomicU32>) -> Inside {
    let left = Arc::clone(faults);
    let sink = move |span: belay_telemetry::SpanRecord| {
        let take = |left: u32| left.checked_sub(1);
        if span.name == "execute_tool work" && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok() {
            panic!("planted by the test");
        }
    };
    let change = |parts: Parts| Parts { telemetry: Telemetry::to(sink, |bytes| bytes.fill(1)), ..parts };
    inside_on(world, Arc::new(SystemClock), Thresholds::default(), change).await
}

#[tokio::test]
async fn an_execution_continues_after_a_fault_in_its_driver() {
    let world = World::new().await;
    let faults = Arc::new(AtomicU32::new(2));
    let inside = panicking(&world, &faults).await;
    let executor = &inside.executor;
    let name = executor.run("a; b: effect after a; c after b").await;
    let mut watch = executor.watch(&name, true).await;
    let approval = world.gate.pending_approval("b").await;
    world.gate.approve(&approval.name);
    assert_eq!(executor.end(&name).await.state(), State::Completed);
    assert_eq!(faults.load(Ordering::SeqCst), 0, "both faults happened");

    let worked = world.runner.seen().worked.clone();
    let steps: Vec<_> =
        worked.iter().map(|call| call.rsplit_once("/calls/").unwrap().0.rsplit('/').next().unwrap()).collect();
    assert_eq!(steps, ["a", "b", "c"], "nothing is done twice");
    let mut seen = Vec::new();
    while let Some(message) = watch.message().await.unwrap() {
        if let Some(v1::watch_execution_response::Content::Event(event)) = message.content {
            seen.push(event);
        }
    }
    assert_eq!(seen, executor.events(&name).await, "a watcher misses nothing");
    assert_eq!(kinds(&seen).iter().filter(|kind| *kind == "toolCallCompleted").count(), 3);
    inside.stop();
}

#[tokio::test]
async fn an_execution_whose_driver_fails_again_and_again_is_set_aside() {
    let world = World::new().await;
    let faults = Arc::new(AtomicU32::new(u32::MAX));
    let inside = panicking(&world, &faults).await;
    let executor = &inside.executor;
    // Each step's end is one fault.
    let name = executor.run("a; b after a; c after b; d after c; e after d").await;
    let is_aside = |execution: &v1::Execution| execution.waiting.iter().any(|reason| reason.kind() == Kind::Fault);
    let aside = executor.until(&name, "being set aside", is_aside).await;
    assert_eq!(aside.totals.unwrap().completed, 3, "three faults, and what was committed before each is there");
    faults.store(0, Ordering::SeqCst);

    let other = executor.run("a; b after a").await;
    executor.assert_completes(&other).await;
    let cancel = v1::CancelExecutionRequest { name: name.clone(), ..Default::default() };
    let refused = executor.client.clone().cancel_execution(cancel).await.unwrap_err();
    assert_eq!((refused.code(), status::reason(&refused).as_deref()), (Code::Internal, Some("EXECUTION_SET_ASIDE")));
    assert_eq!(executor.get(&name).await.unwrap(), aside, "nothing has moved");
    inside.stop();

    let inside = panicking(&world, &faults).await;
    inside.executions.drive_all().await.unwrap();
    inside.executor.assert_completes(&name).await;
    inside.stop();
}
