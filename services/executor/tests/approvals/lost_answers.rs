//! A journal whose answers are lost.

use std::sync::Arc;

use belay_executor::{Parts, Thresholds};
use belay_journal_memory::LostAnswers;
use belay_service_kit::SystemClock;

use crate::{memory::inside_on, support::World};

// B-08, B-15: whatever answers of the journal are lost, an execution completes, and nothing is made or committed twice.
#[tokio::test]
async fn an_execution_completes_once_while_answers_of_the_journal_are_lost() {
    for seed in 0..4 {
        let world = World::new().await;
        let lossy =
            |parts: Parts| parts.map_journal(|journal| journal.map_writer(|writer| LostAnswers::new(writer, seed, 8)));
        let inside = inside_on(&world, Arc::new(SystemClock), Thresholds::default(), lossy).await;
        let name = inside.executor.run("a; b: effect after a; c after b").await;
        let approval = world.gate.pending_approval("b").await;
        world.gate.approve(&approval.name);
        inside.executor.assert_completes(&name).await;
        let seen = world.runner.seen();
        assert_eq!((seen.worked.len(), seen.committed), (3, vec![approval.call]), "seed {seed}");
        let sequences: Vec<i64> = inside.executor.events(&name).await.iter().map(|event| event.sequence).collect();
        assert!(sequences.iter().copied().eq(1..=sequences.last().copied().unwrap()), "seed {seed}: {sequences:?}");
        inside.stop();
    }
}
