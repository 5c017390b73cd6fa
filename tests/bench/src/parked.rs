//! Many parked executions: how long the executor takes to start beside them, what it needs in memory, and how fast it lists and continues
//! them.
//!
//! Two executions are accepted and park as usual: one waits for a signal, one for a time. The others are copies of these two, stored by the
//! journal's own writer, since accepting a million would only measure accepting.

use std::{path::Path, time::Duration};

use belay_bench::stats;
use belay_journal::{ExecutionRow, Fence, JournalReader, JournalWriter, NewExecution, Opened, Operation, Transition};
use belay_proto::v1::{self, executor_service_client::ExecutorServiceClient, step_spec, wait_step};
use belay_service_kit::{Clock as _, SystemClock, net};
use belay_sqlite::Location;
use serde::Serialize;
use tonic::transport::Channel;

use crate::{Result, belay::Belay, place::Place, proc};

const NAMESPACE: &str = "namespaces/default";

/// The signal that half of the executions wait for.
const SIGNAL: &str = "go";

/// How many operations are stored at once.
const BATCH: u32 = 1000;

/// How many different values the label `team` has.
const TEAMS: u32 = 100;

/// How long the others wait: longer than the measurement.
const A_DAY: i64 = 24 * 3600;

/// How many pages are asked for of each kind.
const PAGES: usize = 40;

/// How long a page may be, as a program that walks a list asks.
const PAGE_SIZE: i32 = 100;

/// How many executions are continued.
const SIGNALLED: usize = 100;

/// When the executor's memory is read after its start: it has looked at its timers by then, and at what it owes to the other services.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// One round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Parked {
    pub(crate) executions: u32,
    /// From the start of the executor's process to the first healthy answer, in milliseconds.
    pub(crate) start_ms: f64,
    /// The executor's memory after its start.
    pub(crate) started_kib: u64,
    /// The same after all lists and signals.
    pub(crate) used_kib: u64,
    /// The slowest page of each kind of list, in milliseconds.
    pub(crate) pages: Vec<List>,
    /// From a signal to the end of the execution that it continues, the 99th of 100, in milliseconds.
    pub(crate) signal_p99_ms: f64,
}

/// Pages of one list.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct List {
    pub(crate) filter: &'static str,
    pub(crate) p50_ms: f64,
    pub(crate) slowest_ms: f64,
    /// How many executions the pages had.
    pub(crate) listed: usize,
}

/// What is listed: filters that match many executions, few, and one.
const LISTS: [(&str, &str); 8] = [
    ("", ""),
    ("", "create_time"),
    ("state = RUNNING", ""),
    ("labels.team = t7", ""),
    ("waits_for = SIGNAL", ""),
    ("waits_for = APPROVAL", ""),
    ("id = \"parked-9999*\"", ""),
    ("state = RUNNING AND labels.team = t7 AND waits_for = TIME", "create_time"),
];

impl Parked {
    pub(crate) fn slowest_page_ms(&self) -> f64 {
        self.pages.iter().map(|list| list.slowest_ms).fold(0.0, f64::max)
    }
}

/// Fills a new store with so many parked executions, and starts Belay on it.
///
/// # Errors
/// When an execution does not park, a list has others than it should, or a signal does not continue its execution.
pub(crate) async fn measure(binaries: &Path, root: &Path, executions: u32) -> Result<Parked> {
    let place = Place::new(root)?;
    let mut belay = Belay::start(binaries, &place).await?;
    let now = SystemClock.now_micros();
    let until = wait_step::Condition::Until(belay_proto::timestamp(now + A_DAY * 1_000_000));
    let mut names = Vec::new();
    for condition in [wait_step::Condition::Signal(SIGNAL.into()), until] {
        names.push(belay.begin_plan(waiting_plan(condition)).await?);
    }
    let journal = Location::file(place.file("executor").join("journal.db"));
    let fill = move || fill(&journal, &names, executions, now);
    let started = belay.without_executor(&place, async || tokio::task::spawn_blocking(fill).await?).await?;
    tokio::time::sleep(SETTLED_AFTER).await;
    let started_kib = proc::resident_kib(&[belay.executor_pid()])?;

    let client = ExecutorServiceClient::new(net::connect_lazy(&place.socket("executor.sock")));
    let mut pages = Vec::new();
    for (filter, order_by) in LISTS {
        pages.push(list(client.clone(), filter, order_by).await?);
    }
    let mut signalled = Vec::new();
    for number in 0..SIGNALLED {
        let name = format!("{NAMESPACE}/executions/parked-{}", spread(number, executions));
        let began = SystemClock.now_micros();
        let signal = v1::SignalExecutionRequest { name: name.clone(), signal: SIGNAL.into(), ..Default::default() };
        client.clone().signal_execution(signal).await?;
        belay.finish(std::slice::from_ref(&name), 1).await?;
        signalled.push(u64::try_from(SystemClock.now_micros() - began).unwrap_or(0));
    }
    Ok(Parked {
        executions,
        start_ms: started.as_secs_f64() * 1000.0,
        started_kib,
        used_kib: proc::resident_kib(&[belay.executor_pid()])?,
        pages,
        signal_p99_ms: millis(stats::percentile(&mut signalled, 99)),
    })
}

/// The number of an execution that waits for the signal; those that are taken are far apart.
fn spread(number: usize, executions: u32) -> u32 {
    let step = executions / u32::try_from(SIGNALLED).unwrap_or(u32::MAX);
    u32::try_from(number).unwrap_or(0) * step / 2 * 2
}

/// A plan of one step that waits.
fn waiting_plan(condition: wait_step::Condition) -> v1::Plan {
    let wait = v1::WaitStep { condition: Some(condition) };
    let step = v1::StepSpec { id: "wait".into(), kind: Some(step_spec::Kind::Wait(wait)), ..Default::default() };
    v1::Plan { id: "parked".into(), steps: vec![step], ..Default::default() }
}

/// Stores copies of the executions with these names, in turns.
fn fill(journal: &Location, names: &[String], executions: u32, now: i64) -> Result<()> {
    let Opened { mut writer, reader, fence, .. } = belay_journal_sqlite::open(journal, || "unused".into())?;
    let templates: Vec<(ExecutionRow, Transition)> =
        names.iter().map(|name| template(reader.as_ref(), name)).collect::<Result<_>>()?;
    for first in (0..executions).step_by(BATCH as usize) {
        let numbers = first..executions.min(first + BATCH);
        let created = numbers.map(|number| {
            let (row, transition) = &templates[number as usize % templates.len()];
            let execution = NewExecution {
                id: format!("parked-{number}"),
                created_at: now + i64::from(number),
                labels: [("team".to_owned(), format!("t{}", number % TEAMS))].into(),
                request_id: String::new(),
                ..row.execution.clone()
            };
            Operation::Create {
                fence: Fence { shard: execution.shard, token: fence },
                execution,
                transition: transition.clone(),
                summary: row.summary.clone(),
                seal_key: None,
            }
        });
        store(writer.as_mut(), created.collect())?;
    }
    Ok(())
}

/// An execution that has parked in its first transition.
fn template(reader: &dyn JournalReader, name: &str) -> Result<(ExecutionRow, Transition)> {
    let id = name.rsplit('/').next().unwrap_or(name);
    let row = reader.find("default", id)?.ok_or("an execution is not in the journal")?;
    let [transition] = <[_; 1]>::try_from(reader.read(row.key, 0, usize::MAX)?)
        .map_err(|all| format!("an execution parked after {} transitions", all.len()))?;
    if !row.summary.parked {
        return Err("an execution did not park".into());
    }
    Ok((row, transition))
}

fn store(writer: &mut dyn JournalWriter, batch: Vec<Operation>) -> Result<()> {
    for result in writer.commit(batch)? {
        result?;
    }
    Ok(())
}

async fn list(
    mut client: ExecutorServiceClient<Channel>,
    filter: &'static str,
    order_by: &'static str,
) -> Result<List> {
    let (mut micros, mut listed, mut page_token) = (Vec::new(), 0, String::new());
    for _ in 0..PAGES {
        let request = v1::ListExecutionsRequest {
            parent: NAMESPACE.into(),
            page_size: PAGE_SIZE,
            page_token,
            filter: filter.into(),
            order_by: order_by.into(),
        };
        let began = SystemClock.now_micros();
        let page = client.list_executions(request).await?.into_inner();
        micros.push(u64::try_from(SystemClock.now_micros() - began).unwrap_or(0));
        listed += page.executions.len();
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let slowest_ms = millis(micros.iter().max().copied());
    Ok(List { filter, p50_ms: millis(stats::percentile(&mut micros, 50)), slowest_ms, listed })
}

fn millis(micros: Option<u64>) -> f64 {
    micros.map_or(0.0, |micros| micros as f64 / 1000.0)
}
