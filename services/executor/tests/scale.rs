//! Parked executions stay in the journal, however many there are. What a million of them cost is measured by the bench.

use std::sync::Arc;

use belay_blobs::Folder;
use belay_executor::{ExecutionRegistry, Gate, MasterKey, Parts, Redactor, Runner, Thresholds};
use belay_journal::{
    ExecutionSummary, Fence, JournalWriter as _, NewExecution, OpenedStore, StoreWrite, Transition, Waits,
};
use belay_proto::v1::{execution::State, waiting_reason::Kind};
use belay_service_kit::{Clock as _, Ids, Shutdown, SystemClock, net};
use belay_sqlite::{Location, Threads};
use belay_telemetry::Telemetry;

const EXECUTIONS: i64 = 5_000;

/// An hour, in microseconds.
const HOUR: i64 = 3_600_000_000;

/// Executions that wait for a person, and every tenth for a time that is hours away.
fn parked(now: i64, fence: i64) -> Vec<StoreWrite> {
    let parked = |number: i64| {
        let shard = u32::try_from(number % 64).unwrap();
        let wake_at = (number % 10 == 0).then_some(now + HOUR + number);
        let (state, kind) = match wake_at {
            Some(_) => (State::Running, Kind::Timer),
            None => (State::Paused, Kind::Resume),
        };
        StoreWrite::Create {
            execution: NewExecution {
                namespace: "default".into(),
                id: format!("execution-{number}"),
                shard,
                created_at: now,
                plan_id: "plan".into(),
                labels: [].into(),
                principal: "person:owner".into(),
                request_id: String::new(),
                request_hash: String::new(),
                parent: None,
            },
            transition: Transition {
                first_sequence: 1,
                count: 4,
                version: 1,
                shown: vec![7; 600],
                sealed: None,
                facts: None,
            },
            summary: ExecutionSummary {
                state: state.into(),
                wake_at,
                parked: true,
                waits_for: Waits::default().with(kind.into()),
                updated_at: now,
                ..ExecutionSummary::default()
            },
            seal_key: None,
            outbox: Vec::new(),
            inbox: Default::default(),
            folder: None,
            limits: Vec::new(),
            fence: Fence { shard, token: fence },
        }
    };
    (0..EXECUTIONS).map(parked).collect()
}

/// B-23: an executor that starts beside parked executions reads none of them; their events here could not even be decoded.
#[tokio::test]
async fn nothing_of_what_is_parked_is_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemClock.now_micros();
    let mut journal =
        belay_journal_sqlite::open(&Location::file(folder.path().join("journal.db")), Threads::Real, || {
            "a store".into()
        })
        .unwrap();
    let OpenedStore { writer, fence, .. } = &mut journal;
    assert!(writer.commit(&parked(now, *fence)).await.unwrap().iter().all(Result::is_ok));
    let reader = Arc::clone(&journal.reader);
    let channel = |name: &str| net::connect_lazy(&net::Address::Unix(folder.path().join(name)));
    let (_trigger, shutdown) = Shutdown::new();
    let executions = ExecutionRegistry::new(Parts {
        journal,
        blobs: Arc::new(Folder::new(folder.path().join("blobs"))),
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
        retention: Default::default(),
        budgets: Default::default(),
        webhooks: Vec::new(),
        models: belay_executor::Models::default(),
        thresholds: Thresholds::default(),
    });
    assert_eq!(executions.drive_all().await.unwrap(), 0, "none needs a driver");
    assert_eq!(reader.claimable(belay_journal::ExecutionKey(0), 10).await.unwrap(), []);
    assert_eq!(reader.next_wake(now).await.unwrap(), Some(now + HOUR), "one time is enough to wait for all of them");
    // The loops of the executor have had their first turn.
    tokio::task::yield_now().await;
    assert_eq!(executions.in_memory(), 0);
}
