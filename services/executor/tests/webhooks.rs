//! Messages for a receiver that is away: what it costs that they wait, and what becomes of them when it is back.

use std::{sync::Arc, time::Duration};

use belay_blobs::Folder;
use belay_executor::{ExecutionRegistry, Gate, MasterKey, Parts, Redactor, Runner, Thresholds, Webhook, shard_of};
use belay_journal::{
    ExecutionSummary, Fence, JournalReader, JournalWriter as _, NewExecution, OpenedStore, OutboxMessage, StoreWrite,
    StoreWriteOutcome, Transition,
};
use belay_journal_memory::Memory;
use belay_service_kit::{Clock, Ids, Shutdown, net};
use belay_sqlite::Threads;
use belay_telemetry::Telemetry;
use belay_webhooks::{Receiver, Secret};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::Instant,
};

const START: i64 = 1_700_000_000_000_000;
const DAY: Duration = Duration::from_secs(86_400);

/// The runtime's simulated time, and as far ahead as a clock that is set wrong.
#[derive(Debug)]
struct SimulatedClock {
    start: Instant,
    ahead: std::sync::Mutex<Duration>,
}

impl SimulatedClock {
    fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), ahead: Default::default() })
    }

    fn set_ahead(&self, ahead: Duration) {
        *self.ahead.lock().unwrap() = ahead;
    }
}

impl Clock for SimulatedClock {
    fn now_micros(&self) -> i64 {
        let passed = self.start.elapsed() + *self.ahead.lock().unwrap();
        START + i64::try_from(passed.as_micros()).unwrap()
    }
}

/// An executor on a journal in memory, with one webhook.
struct World {
    folder: tempfile::TempDir,
    memory: Memory,
    clock: Arc<SimulatedClock>,
    url: String,
}

impl World {
    /// A journal with this many messages, stored now and to be sent at `next_at`, microseconds from the start. The receiver is a port on which
    /// nobody listens.
    async fn new(messages: usize, next_at: Option<i64>) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            memory: Memory::new("a store"),
            clock: SimulatedClock::new(),
            url: format!("http://127.0.0.1:{port}/hook"),
        };
        let OpenedStore { mut writer, reader, fence, .. } = world.memory.open();
        let shard = shard_of("default", "one");
        let message = |number: usize| OutboxMessage {
            webhook: "alerts".into(),
            id: format!("m{number}"),
            body: "{}".into(),
            created_at: START,
        };
        let create = StoreWrite::Create {
            execution: NewExecution {
                namespace: "default".into(),
                id: "one".into(),
                shard,
                created_at: START,
                plan_id: "p".into(),
                labels: Default::default(),
                principal: "unix:0".into(),
                request_id: String::new(),
                request_hash: String::new(),
                parent: None,
            },
            transition: Transition {
                first_sequence: 1,
                count: 1,
                version: 1,
                shown: Vec::new(),
                sealed: None,
                facts: None,
            },
            summary: ExecutionSummary { ended: true, ended_at: Some(START), ..ExecutionSummary::default() },
            seal_key: None,
            outbox: (0..messages).map(message).collect(),
            inbox: Default::default(),
            limits: Vec::new(),
            fence: Fence { shard, token: fence },
            folder: None,
        };
        let created = writer.commit(&[create]).await.unwrap();
        assert!(matches!(created[0], Ok(StoreWriteOutcome::Created(_))), "{created:?}");
        if let Some(next_at) = next_at {
            let rows = reader.outbox("alerts", i64::MAX, messages).await.unwrap();
            let postpone = |row: &belay_journal::OutboxRow| StoreWrite::PostponeMessage {
                key: row.key,
                attempts: 1,
                next_at: START + next_at,
            };
            let postponed: Vec<_> = rows.iter().map(postpone).collect();
            assert!(writer.commit(&postponed).await.unwrap().iter().all(Result::is_ok));
        }
        world
    }

    /// Starts the executor. It stops when what this returns is dropped.
    fn start(&self, give_up_after: Duration) -> (Arc<ExecutionRegistry>, Arc<dyn JournalReader>, impl Sized) {
        let journal = self.memory.open();
        let reader = Arc::clone(&journal.reader);
        let channel = |name: &str| net::connect_lazy(&net::Address::Unix(self.folder.path().join(name)));
        let secret = Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let (trigger, shutdown) = Shutdown::new();
        let registry = ExecutionRegistry::new(Parts {
            journal,
            blobs: Arc::new(Folder::new(self.folder.path().join("blobs"))),
            threads: Threads::Inline,
            runner: Runner::new(channel("runner"), None).unwrap(),
            gate: Gate::new(channel("gate"), None).unwrap(),
            clock: Arc::<SimulatedClock>::clone(&self.clock),
            ids: Ids::seeded(1),
            redactor: Redactor::new(),
            master_key: MasterKey::new([7; 32]),
            telemetry: Telemetry::off(|bytes| bytes.fill(1)),
            shutdown,
            limits: Default::default(),
            retention: Default::default(),
            budgets: Default::default(),
            webhooks: vec![Webhook {
                name: "alerts".into(),
                events: Vec::new(),
                give_up_after,
                receiver: Receiver::new(&self.url, secret, Duration::from_secs(10)).unwrap(),
            }],
            models: belay_executor::Models::default(),
            thresholds: Thresholds::default(),
        });
        (registry, reader, trigger)
    }

    /// Starts a receiver that accepts everything.
    async fn receiver(&self) {
        let address = self.url.trim_start_matches("http://").trim_end_matches("/hook").to_owned();
        let listener = TcpListener::bind(address).await.unwrap();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let mut read = [0; 4096];
                    let _ = stream.read(&mut read).await;
                    let _ =
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
                });
            }
        });
    }
}

/// How many attempts are recorded, each of which was one operation of the journal; and how many messages wait.
async fn attempts(reader: &dyn JournalReader) -> (u32, usize) {
    let rows = reader.outbox("alerts", i64::MAX, 10_000).await.unwrap();
    (rows.iter().map(|row| row.attempts).sum(), rows.len())
}

/// S2-NFR-003: five hundred messages for a receiver that is away cost as many attempts, and as many operations of the journal, as one, beside the
/// first that were sent at once; when it is back, all of them come.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_away_is_not_asked_once_for_every_message() {
    let world = World::new(500, None).await;
    let (_registry, reader, _trigger) = world.start(DAY);
    tokio::time::sleep(Duration::from_secs(600)).await;
    let (tried, waiting) = attempts(&*reader).await;
    assert_eq!(waiting, 500);
    assert!((20..=40).contains(&tried), "{tried} attempts in ten minutes");

    world.receiver().await;
    // The longest delay between two attempts, and that of the messages that were tried.
    tokio::time::sleep(Duration::from_secs(130)).await;
    assert_eq!(attempts(&*reader).await.1, 0);
}

/// A message whose time an earlier process has set with a clock that was a year ahead is sent at the next start.
#[tokio::test(start_paused = true)]
async fn a_clock_that_was_ahead_does_not_delay_a_message() {
    let year = i64::try_from((DAY * 365).as_micros()).unwrap();
    let world = World::new(1, Some(year)).await;
    world.receiver().await;
    let (_registry, reader, _trigger) = world.start(DAY);
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(attempts(&*reader).await.1, 0);
}

/// A clock that jumps forward for a moment, while the receiver is away, loses no message. One that stays away loses all in the end.
#[tokio::test(start_paused = true)]
async fn a_message_is_given_up_after_its_time_and_enough_attempts() {
    let world = World::new(40, None).await;
    let (_registry, reader, _trigger) = world.start(3 * DAY);
    tokio::time::sleep(Duration::from_secs(1)).await;
    world.clock.set_ahead(400 * DAY);
    tokio::time::sleep(Duration::from_secs(3)).await;
    world.clock.set_ahead(Duration::ZERO);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(attempts(&*reader).await.1, 40, "none is given up");
    world.clock.set_ahead(400 * DAY);
    tokio::time::sleep(Duration::from_secs(1_200)).await;
    assert_eq!(attempts(&*reader).await.1, 0, "those that were never sent are given up, too");
}
