//! A million parked executions: how long the executor takes to start beside them, what it keeps in memory, and how long a page of a list takes.
//!
//! `cargo test --release -p belay-executor --test scale -- --ignored --nocapture a_million`. The number of executions is in `BELAY_SCALE`.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use belay_executor::{ExecutionRegistry, Gate, MasterKey, Parts, Redactor, Runner, Thresholds};
use belay_journal::{
    AnyOf, Comparison, Condition, ExecutionSummary, Fence, JournalReader, NewExecution, Opened, Operation, Order,
    OrderBy, Query, StepCounts, Transition, Waits,
};
use belay_proto::v1::{execution::State, waiting_reason::Kind};
use belay_service_kit::{Ids, Shutdown, SystemClock, net};
use belay_sqlite::{Location, Threads};
use belay_telemetry::Telemetry;
use tokio::time::Instant;

/// The limits of a release build.
const START: Duration = Duration::from_secs(3);
const RESIDENT_MIB: u64 = 300;
const PAGE: Duration = Duration::from_millis(20);

/// The file of the store, for the process that measures.
const STORE: &str = "BELAY_SCALE_STORE";

fn count() -> usize {
    std::env::var("BELAY_SCALE").map_or(1_000_000, |count| count.parse().expect("a number"))
}

fn open(path: &Path) -> Opened {
    belay_journal_sqlite::open(&Location::file(path), || "a store".into()).unwrap()
}

/// Parked executions: nine of ten until somebody resumes or approves them, one of ten until a time that is far away. A thousand have ended.
fn fill(path: &Path, count: usize) {
    let Opened { mut writer, fence, .. } = open(path);
    let began = Instant::now();
    for from in (0..count).step_by(1024) {
        let batch = (from..count.min(from + 1024)).map(|index| {
            let ended = index % (count / 1000).max(1) == 7;
            let (state, kind) = match index % 10 {
                _ if ended => (State::Failed, None),
                0 => (State::Running, Some(Kind::Timer)),
                1..6 => (State::Paused, Some(Kind::Resume)),
                _ => (State::AwaitingApproval, Some(Kind::Approval)),
            };
            let created_at = 1_700_000_000_000_000 + index as i64 * 1000;
            let wake_at = (index % 10 == 0 && !ended).then_some(4_000_000_000_000_000 + index as i64);
            let labels = BTreeMap::from([
                ("team".to_owned(), format!("team-{}", index % 7)),
                ("ticket".to_owned(), format!("ticket-{index}")),
            ]);
            Operation::Create {
                execution: NewExecution {
                    namespace: "default".into(),
                    id: format!("execution-{index}"),
                    shard: u32::try_from(index % 64).unwrap(),
                    created_at,
                    plan_id: format!("plan-{}", index % 20),
                    labels,
                    principal: "person:owner".into(),
                    request_id: String::new(),
                    request_hash: String::new(),
                },
                transition: Transition { first_sequence: 1, count: 4, version: 1, shown: vec![7; 600], sealed: None },
                summary: ExecutionSummary {
                    state: state.into(),
                    ended,
                    wake_at,
                    parked: !ended,
                    waits_for: kind.map_or(Waits::default(), |kind| Waits::default().with(kind.into())),
                    updated_at: created_at,
                    ended_at: ended.then_some(created_at + 1),
                    failure_reason: ended.then(|| format!("REASON_{}", index % 3)),
                    steps: StepCounts { total: 3, completed: 1, ..StepCounts::default() },
                },
                seal_key: None,
                fence: Fence { shard: u32::try_from(index % 64).unwrap(), token: fence },
            }
        });
        assert!(writer.commit(batch.collect()).unwrap().iter().all(Result::is_ok));
    }
    drop(writer);
    let size = std::fs::metadata(path).unwrap().len() / (1024 * 1024);
    println!("{count} executions written in {:.1?}, {size} MiB", began.elapsed());
}

#[test]
#[ignore = "takes minutes; run by hand"]
fn a_million_parked_executions() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("journal.db");
    fill(&path, count());
    // In a process of its own, whose memory is the executor's.
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "measured", "--nocapture"])
        .env(STORE, &path)
        .status()
        .unwrap();
    assert!(status.success());
}

/// How many MiB of this process are in memory, and were at most.
fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let mib = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() / 1024
    };
    (mib("VmRSS:"), mib("VmHWM:"))
}

#[tokio::test]
#[ignore = "the measuring process of the other test"]
async fn measured() {
    let Some(path) = std::env::var_os(STORE).map(PathBuf::from) else { return };
    let began = Instant::now();
    let journal = open(&path);
    let reader = Arc::clone(&journal.reader);
    let channel = |name: &str| net::connect_lazy(&net::Address::Unix(path.with_file_name(name)));
    let (_trigger, shutdown) = Shutdown::new();
    let executions = ExecutionRegistry::new(Parts {
        journal,
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
        thresholds: Thresholds::default(),
    });
    executions.drive_all().await.unwrap();
    let started = began.elapsed();
    // The registry looks for what is due.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (resident, peak) = resident();
    println!("start {started:.1?}, resident {resident} MiB, at most {peak} MiB, {} in memory", executions.in_memory());
    assert_eq!(executions.in_memory(), 0);

    let slowest = pages(reader.as_ref());
    if !cfg!(debug_assertions) {
        assert!(started <= START, "a start takes {started:?}");
        assert!(peak < RESIDENT_MIB, "{peak} MiB");
        assert!(slowest <= PAGE, "a page takes {slowest:?}");
    }
}

/// Reads pages of lists, prints how long they took, and returns the longest time.
fn pages(reader: &dyn JournalReader) -> Duration {
    let text = str::to_owned;
    let created = |micros: usize| 1_700_000_000_000_000 + micros as i64 * 1000;
    let middle = created(count() / 2);
    let one = |condition| vec![AnyOf(vec![condition])];
    let both = |left, right| vec![AnyOf(vec![left]), AnyOf(vec![right])];
    let label = |key: &str, value: &str| Condition::Label(true, text(key), text(value));
    let filters = [
        ("everything", vec![]),
        ("state = PAUSED", one(Condition::State(true, State::Paused.into()))),
        ("state = COMPLETED (none)", one(Condition::State(true, State::Completed.into()))),
        ("state != PAUSED", one(Condition::State(false, State::Paused.into()))),
        (
            "state = PAUSED OR state = FAILED",
            vec![AnyOf([State::Paused, State::Failed].map(|state| Condition::State(true, state.into())).to_vec())],
        ),
        ("waits_for = APPROVAL", one(Condition::WaitsFor(true, Kind::Approval.into()))),
        ("waits_for != RESUME", one(Condition::WaitsFor(false, Kind::Resume.into()))),
        ("plan_id = plan-7", one(Condition::PlanId(true, text("plan-7")))),
        ("plan_id != plan-7", one(Condition::PlanId(false, text("plan-7")))),
        ("plan_id = nobody", one(Condition::PlanId(true, text("nobody")))),
        ("failure_reason = REASON_1", one(Condition::FailureReason(true, text("REASON_1")))),
        ("failure_reason != REASON_1", one(Condition::FailureReason(false, text("REASON_1")))),
        ("labels.team = team-3", one(label("team", "team-3"))),
        ("labels.ticket = ticket-77", one(label("ticket", "ticket-77"))),
        ("labels.team = nobody", one(label("team", "nobody"))),
        ("labels.team != team-3", one(Condition::Label(false, text("team"), text("team-3")))),
        ("labels.team:*", one(Condition::HasLabel(text("team")))),
        ("labels.nobody:*", one(Condition::HasLabel(text("nobody")))),
        ("id = execution-77", one(Condition::Id(true, text("execution-77")))),
        ("id = execution-77*", one(Condition::IdPrefix(text("execution-77")))),
        ("id = nobody*", one(Condition::IdPrefix(text("nobody")))),
        ("create_time >= the middle", one(Condition::CreateTime(Comparison::AtLeast, middle))),
        ("create_time < the middle", one(Condition::CreateTime(Comparison::Less, middle))),
        ("end_time >= the middle", one(Condition::EndTime(Comparison::AtLeast, middle))),
        (
            "labels.team = team-3 AND state = PAUSED",
            both(label("team", "team-3"), Condition::State(true, State::Paused.into())),
        ),
        (
            "labels.team = team-3 AND state = FAILED",
            both(label("team", "team-3"), Condition::State(true, State::Failed.into())),
        ),
        (
            "labels.team = team-3 AND plan_id != plan-7",
            both(label("team", "team-3"), Condition::PlanId(false, text("plan-7"))),
        ),
    ];
    let mut slowest = Duration::ZERO;
    for (name, filter) in filters {
        for namespace in [Some("default"), None] {
            for by in [OrderBy::CreateTime, OrderBy::EndTime] {
                let order = Order { by, ..Order::NEWEST_FIRST };
                let mut query =
                    Query { namespace: namespace.map(text), filter: filter.clone(), order, after: None, limit: 50 };
                let (mut longest, mut found, mut pages) = (Duration::ZERO, 0, 0);
                for _ in 0..20 {
                    let began = Instant::now();
                    let page = reader.list(&query).unwrap();
                    longest = longest.max(began.elapsed());
                    found += page.rows.len();
                    pages += 1;
                    query.after = page.next;
                    if query.after.is_none() {
                        break;
                    }
                }
                println!(
                    "{longest:>10.2?} the longest of {pages} pages, {found} found: {name} {namespace:?} by {by:?}"
                );
                slowest = slowest.max(longest);
            }
        }
    }
    println!("{slowest:.2?} the longest page");
    slowest
}
