//! The two services as processes: what their `main` does, on the simulated machine.

use std::error::Error;
use std::future::{Future, pending};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_executor::{Executions, Runner};
use belay_journal::{JournalWriter, Opened, Operation, Refused, StoreError};
use belay_service_kit::{Access, Clock, Hosted, Ids, Shutdown, host};
use belay_sqlite::{Location, SqliteError, Synchronous, Threads};
use belay_tool_runner::{Calls, Ledger, LedgerError, Registry};
use tonic::transport::{Channel, Endpoint};
use turmoil::fs::shim::std::fs;

use super::bugs::{Bugs, Memory, WritesBehind};
use super::outside::Outside;
use super::{EXECUTOR, EXECUTOR_PORT, RUNNER_PORT, tools};
use crate::checker::Checker;
use crate::{machine, net, trace, vfs};

const FOLDER: &str = "/data";
/// How long a supervisor waits before it starts a process again that failed.
const RESTART_AFTER: Duration = Duration::from_millis(30);
/// How long a connection may be silent before the other side is asked whether it is there, and how long the answer may take.
/// Belay's own channels ask after 20 s.
const KEEP_ALIVE: Duration = Duration::from_millis(400);

type Outcome = Result<(), Box<dyn Error>>;

/// Simulated time as Belay's clock.
#[derive(Debug, Clone, Copy)]
struct SimulatedClock;

impl Clock for SimulatedClock {
    fn now_micros(&self) -> i64 {
        now_micros()
    }
}

/// Microseconds since the Unix epoch, on the machine that is executing.
pub(super) fn now_micros() -> i64 {
    let since_epoch = turmoil::since_epoch().unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).expect("a simulation ends before the year 292471")
}

/// What the processes of both services need, run after run.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) bugs: Bugs,
    pub(super) outside: Outside,
    pub(super) checker: Checker,
    /// For ids.
    pub(super) seed: u64,
    pub(super) owners: Owners,
}

/// Who has owned the journal so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners(Arc<Mutex<Owned>>);

#[derive(Debug, Default)]
struct Owned {
    newest_fence: i64,
    runners: u64,
    last_operation: Option<Operation>,
}

impl Owners {
    fn with<R>(&self, work: impl FnOnce(&mut Owned) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The fence of the executor that opened the journal last.
    pub(super) fn newest_fence(&self) -> i64 {
        self.with(|owned| owned.newest_fence)
    }
}

/// A channel to `uri`, as Belay makes its own, only less patient.
pub(super) fn channel(uri: &'static str) -> Channel {
    Endpoint::from_static(uri)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .connect_timeout(KEEP_ALIVE)
        .connect_with_connector_lazy(net::Connector)
}

/// Runs a process, and when it fails starts it again.
async fn supervise(name: &str, process: impl Future<Output = Outcome>) -> turmoil::Result {
    if let Err(error) = process.await {
        trace::event(format_args!("{name}: {error}"));
    }
    tokio::time::sleep(RESTART_AFTER).await;
    machine::exit();
    pending().await
}

/// The tool runner.
pub(super) async fn runner(site: Site) -> turmoil::Result {
    supervise("runner", run_runner(site)).await
}

/// The executor.
pub(super) async fn executor(site: Site) -> turmoil::Result {
    supervise(EXECUTOR, run_executor(site)).await
}

fn location(file: &str, synchronous: Synchronous) -> Location {
    fs::create_dir_all(FOLDER).and_then(|()| fs::sync_dir("/")).expect("turmoil's folders do not fail");
    Location { path: Path::new(FOLDER).join(file), vfs: Some(vfs::NAME.to_string_lossy().into_owned()), synchronous }
}

async fn run_runner(site: Site) -> Outcome {
    let run = site.owners.with(|owned| {
        owned.runners += 1;
        owned.runners
    });
    let (file, id) = match site.bugs.calls {
        Memory::Kept => ("calls.db".to_owned(), format!("ledger-{run}")),
        Memory::Lost => (format!("calls-{run}.db"), format!("ledger-{run}")),
        Memory::Replaced => (format!("calls-{run}.db"), "the-one-ledger".to_owned()),
    };
    let opened = Ledger::open(&location(&file, site.bugs.ledger), Threads::Inline, || id);
    let ledger = opened.inspect_err(|LedgerError(error)| {
        if matches!(error, SqliteError::Corrupt(_) | SqliteError::Locked | SqliteError::Newer { .. }) {
            site.checker.violation(format_args!("the ledger cannot be opened: {error}"));
        }
    })?;
    let registry = Registry::new(tools::all(&site.outside))?;
    let clock = Arc::new(SimulatedClock);
    let parts = belay_tool_runner::Parts { registry, ledger, clock };
    let calls = Calls::recover(parts).await?;
    let (_trigger, stop) = Shutdown::new();
    serve(RUNNER_PORT, belay_tool_runner::hosted(calls, stop.clone()), stop).await
}

/// Compiled once: an executor starts again and again.
static REDACTOR: std::sync::LazyLock<belay_executor::Redactor> = std::sync::LazyLock::new(belay_executor::Redactor::new);

async fn run_executor(site: Site) -> Outcome {
    let journal = open_journal(&site).inspect_err(|error| {
        if matches!(error, StoreError::Corrupt(_) | StoreError::Locked | StoreError::Newer { .. }) {
            site.checker.violation(format_args!("the journal cannot be opened: {error}"));
        }
    })?;
    let ids = Ids::seeded(site.seed.wrapping_add(journal.fence.cast_unsigned()));
    let (_trigger, shutdown) = Shutdown::new();
    let executions = Executions::new(belay_executor::Parts {
        journal,
        threads: Threads::Inline,
        runner: Runner::new(channel("http://runner:7100"), None)?,
        clock: Arc::new(SimulatedClock),
        ids,
        redactor: REDACTOR.clone(),
        master_key: belay_executor::MasterKey::new([7; 32]),
        shutdown: shutdown.clone(),
    });
    executions.drive_all().await?;
    trace::count("executor starts");
    tokio::select! {
        biased;
        reason = executions.broken() => Err(reason.to_string().into()),
        served = serve(EXECUTOR_PORT, belay_executor::hosted(Arc::clone(&executions)), shutdown) => served,
    }
}

fn open_journal(site: &Site) -> Result<Opened, StoreError> {
    let mut journal = belay_journal_sqlite::open(&location("journal.db", site.bugs.journal), || "store".to_owned())?;
    let (before, stale) = site.owners.with(|owned| {
        let before = std::mem::replace(&mut owned.newest_fence, journal.fence);
        (before, owned.last_operation.take())
    });
    match stale {
        _ if journal.fence <= before => {
            let now = journal.fence;
            site.checker.violation(format_args!("fence {before} is gone: the journal opens with {now}"));
        }
        Some(operation) => refuse_stale(&mut *journal.writer, operation, &site.checker)?,
        None => {}
    }
    let writer: Box<dyn JournalWriter> = match site.bugs.writes_behind {
        true => Box::new(WritesBehind::new(journal.writer)),
        false => journal.writer,
    };
    let owners = site.owners.clone();
    journal.writer = Box::new(Remembered { writer, owners });
    Ok(journal)
}

/// An owner that was replaced and does not know it writes once more what it wrote last. S2-NFR-005, B-08.
fn refuse_stale(writer: &mut dyn JournalWriter, operation: Operation, checker: &Checker) -> Result<(), StoreError> {
    match writer.commit(vec![operation])?.as_slice() {
        [Err(Refused::Fenced { .. })] => trace::count("stale owners refused"),
        answers => checker.violation(format_args!("the write of an owner that was replaced was answered {answers:?}")),
    }
    Ok(())
}

/// Remembers the last operation beyond the machine's end.
struct Remembered {
    writer: Box<dyn JournalWriter>,
    owners: Owners,
}

impl JournalWriter for Remembered {
    fn commit(&mut self, batch: Vec<Operation>) -> Result<Vec<Result<belay_journal::Done, Refused>>, StoreError> {
        let last = batch.last().cloned();
        self.owners.with(|owned| owned.last_operation = last);
        self.writer.commit(batch)
    }
}

async fn serve(port: u16, service: Hosted, shutdown: Shutdown) -> Outcome {
    let incoming = net::listen(port).await?;
    host::serve(incoming, service, Access::Everybody("simulation".into()), shutdown).await?;
    Ok(())
}
