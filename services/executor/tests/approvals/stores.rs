//! The executor on the journal in memory, beside the one in SQLite.

use std::{sync::Arc, time::Duration};

use belay_executor::{Parts, Thresholds};
use belay_journal_memory::Memory;
use belay_proto::v1;
use belay_service_kit::SystemClock;

use crate::{
    memory::{Inside, inside_on},
    support::{World, kinds},
};

// B-08, B-26: what an execution does follows from the port, not from SQLite: it parks, is continued by the next executor, completes and is deleted.
#[tokio::test]
async fn an_execution_goes_the_same_way_on_either_store() {
    let memory = Memory::new("store");
    let on_memory = async |world: &World| {
        let thresholds = Thresholds { park_after: Duration::ZERO, ..Thresholds::default() };
        let change = |parts: Parts| parts.map_journal(|_| memory.open());
        inside_on(world, Arc::new(SystemClock), thresholds, change).await
    };
    let on_sqlite = async |world: &World| {
        let thresholds = Thresholds { park_after: Duration::ZERO, ..Thresholds::default() };
        inside_on(world, Arc::new(SystemClock), thresholds, |parts| parts).await
    };
    let events = on(on_memory).await;
    assert_eq!(events, on(on_sqlite).await);
    assert_eq!(events.last().map(String::as_str), Some("executionFinished"), "{events:?}");
}

/// The events of an execution whose approval comes after the executor was started again, on a store that `start` opens.
async fn on(start: impl AsyncFn(&World) -> Inside) -> Vec<String> {
    let world = World::new().await;
    let inside = start(&world).await;
    let name = inside.executor.run("a; b: effect after a; c after b").await;
    let approval = world.gate.pending_approval("b").await;
    inside.until_in_memory(0).await;
    inside.stop();
    let inside = start(&world).await;
    inside.executions.drive_all().await.unwrap();
    world.gate.approve(&approval.name);
    inside.executor.assert_completes(&name).await;
    let seen = world.runner.seen();
    assert_eq!((seen.worked.len(), seen.committed), (3, vec![approval.call]));
    let events = kinds(&inside.executor.events(&name).await);
    let request = v1::DeleteExecutionRequest { name: name.clone(), ..Default::default() };
    inside.executor.client.clone().delete_execution(request).await.unwrap();
    assert_eq!(inside.executor.get(&name).await.unwrap_err().code(), tonic::Code::NotFound);
    inside.stop();
    events
}
