//! Snapshots of long executions: used, disposable, and sealed like the events.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use belay_executor::Thresholds;
use belay_proto::v1;
use belay_service_kit::SystemClock;
use rusqlite::Connection;
use serde_json::json;

use crate::{
    memory::inside_on,
    support::{TIMEOUT, World, kinds},
};

/// Steps enough for a snapshot before the last of them is held for approval, which parks the execution.
fn plan() -> String {
    let steps = (1..300).map(|number| format!("s{number} after s{}", number - 1));
    let steps = ["s0".to_owned()].into_iter().chain(steps).chain(["held: effect after s299".to_owned()]);
    steps.collect::<Vec<_>>().join("; ")
}

/// Where an executor in a process of its own keeps its state.
fn state(world: &World) -> PathBuf {
    world.folder.path().join("state")
}

fn journal(folder: &Path) -> Connection {
    Connection::open(folder.join("journal.db")).unwrap()
}

/// The sequence of the last event in the snapshot, once there is one. Nothing waits for a snapshot, so nothing tells when it is stored.
async fn stored(folder: &Path) -> i64 {
    let looking = async {
        loop {
            let found =
                journal(folder).query_row("SELECT max(seq) FROM snapshot", [], |row| row.get::<_, Option<i64>>(0));
            if let Ok(Some(sequence)) = found {
                return sequence;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, looking).await.expect("a snapshot is stored")
}

/// The treatment of a stored snapshot before the executor starts again.
#[derive(Clone, Copy, Debug)]
enum SnapshotTreatment {
    Keep,
    Remove,
    /// Damages it, so that an execution restored from it would fail.
    Damage,
    /// Events that are in it are gone from the log: only an executor that does not read them can continue.
    EraseWhatIsInIt,
}

/// B-24: a snapshot is used when it can be, and the events have everything when it cannot.
#[tokio::test]
async fn a_long_execution_goes_on_from_its_snapshot_and_without_it() {
    for then in [
        SnapshotTreatment::Keep,
        SnapshotTreatment::Remove,
        SnapshotTreatment::Damage,
        SnapshotTreatment::EraseWhatIsInIt,
    ] {
        let world = World::new().await;
        let executor = world.executor().await;
        let name = executor.run(&plan()).await;
        let parked = executor.until_awaiting_approval(&name).await;
        let approval = world.gate.pending_approval("held").await;
        let sequence = stored(&state(&world)).await;
        assert_eq!(sequence, 1000, "it comes while the execution runs, and events follow");
        executor.kill().await;
        let connection = journal(&state(&world));
        match then {
            SnapshotTreatment::Keep => {}
            SnapshotTreatment::Remove => assert_eq!(connection.execute("DELETE FROM snapshot", []).unwrap(), 1),
            SnapshotTreatment::Damage => {
                assert_eq!(connection.execute("UPDATE snapshot SET content = zeroblob(100)", []).unwrap(), 1);
            }
            SnapshotTreatment::EraseWhatIsInIt => {
                let erase = "UPDATE log SET shown = zeroblob(1) WHERE first_seq BETWEEN 400 AND 900";
                assert!(connection.execute(erase, []).unwrap() > 10);
            }
        }
        drop(connection);
        let executor = world.executor().await;
        let again = executor.get(&name).await.unwrap();
        assert_eq!(
            (again.state(), &again.totals, &again.etag),
            (parked.state(), &parked.totals, &parked.etag),
            "{then:?}"
        );
        world.gate.approve(&approval.name);
        let ended = executor.end(&name).await;
        assert_eq!(ended.state(), v1::execution::State::Completed, "{then:?}");
        assert_eq!(ended.totals.unwrap().completed, 301, "{then:?}");
        assert_eq!(world.runner.seen().worked.len(), 301, "{then:?}: each step ran once");
        if !matches!(then, SnapshotTreatment::EraseWhatIsInIt) {
            let events = executor.events(&name).await;
            assert_eq!(kinds(&events).iter().filter(|kind| *kind == "stepCompleted").count(), 301, "{then:?}");
        }
    }
}

/// A snapshot has the secrets of its execution: sealed.
#[tokio::test]
async fn a_snapshot_gives_no_secret_away() {
    let secret = ["ghp_", "FAKE0fake1Belay2Not3Real4FAKE0fake1B"].concat();
    let world = World::new().await;
    world.runner.set(|seen| drop(seen.results.insert("s0".into(), json!({"token": secret}))));
    let executor = world.executor().await;
    let name = executor.run(&plan()).await;
    executor.until_awaiting_approval(&name).await;
    stored(&state(&world)).await;
    executor.kill().await;
    for file in ["journal.db", "journal.db-wal"] {
        let bytes = fs::read(world.folder.path().join("state").join(file)).unwrap_or_default();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret.as_bytes()), "{file}");
    }
    let executor = world.executor().await;
    let approval = world.gate.pending_approval("held").await;
    world.gate.approve(&approval.name);
    executor.assert_completes(&name).await;
    let output = executor.step(&name, "s0").await.unwrap().output;
    assert_eq!(output, Some(v1::Payload::of_json(r#"{"token":"[REDACTED]"}"#)), "what is secret stays known");
}

// B-24: who leaves memory is going to be loaded: its snapshot does not wait for twice the events of the one before.
#[tokio::test]
async fn an_execution_that_is_parked_has_a_snapshot() {
    let world = World::new().await;
    let thresholds = Thresholds { snapshot_events: 1, ..Thresholds::default() };
    let inside = inside_on(&world, Arc::new(SystemClock), thresholds, |parts| parts).await;
    inside.executions.drive_all().await.unwrap();
    let name = inside
        .executor
        .run("a; b after a; c after b; d after c; e after d; f after e; held: prompt_call after f")
        .await;
    let parked = inside.executor.until_awaiting_approval(&name).await;
    let last = parked.last_sequence;
    let looking = async { while stored(world.folder.path()).await != last {} };
    tokio::time::timeout(TIMEOUT, looking).await.expect("a snapshot of all of it");
    inside.stop();
}
