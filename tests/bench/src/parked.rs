//! Many parked executions: how long the executor takes to start beside them, what it needs in memory, and how fast it lists and continues
//! them.
//!
//! Four executions are accepted as usual: two park, one for a signal and one for a time, one is paused, and one is cancelled. The others are
//! copies of these, stored by the journal's own writer, since accepting a million would only measure accepting.

use std::{path::Path, time::Duration};

use belay_bench::stats;
use belay_journal::{
    ExecutionRow, Fence, JournalReader, JournalWriter, NewExecution, OpenedStore, StoreWrite, StoreWriteOutcome,
    Transition,
};
use belay_proto::v1::{self, executor_service_client::ExecutorServiceClient, step_spec, wait_step};
use belay_service_kit::{Clock as _, SystemClock, net};
use belay_sqlite::{Location, Threads};
use serde::Serialize;
use tonic::transport::Channel;

use crate::{
    Result,
    belay::{Belay, NAMESPACE},
    place::Place,
    proc,
    subject::Load,
};

/// The signal that four of ten executions wait for.
const SIGNAL: &str = "go";

/// How many operations are stored at once.
const BATCH: u32 = 1000;

/// How many different values the label `team` has.
const TEAMS: u32 = 100;

/// How long the others wait: longer than the measurement.
const A_DAY: i64 = 24 * 3600;

/// How many pages are asked for of each kind.
const PAGES: usize = 20;

/// How many executions are the first ones of a list.
const FIRST: usize = 100;

/// How long a page may be, as a program that walks a list asks.
const PAGE_SIZE: i32 = 100;

/// How many executions are continued.
const SIGNALLED: u32 = 100;

/// When the executor's memory is read after its start: it has looked at its timers by then, and at what it owes to the other services.
const SETTLED_AFTER: Duration = Duration::from_secs(5);

/// A round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ParkedRound {
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
    pub(crate) order_by: &'static str,
    pub(crate) parent: &'static str,
    /// Until 100 executions have come, or the end: a page may have fewer, or none, although there is a next one.
    pub(crate) first_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) slowest_ms: f64,
    /// How many executions the pages had.
    pub(crate) listed: usize,
}

/// The filters of lists: they match all executions, many, few, one and none.
const FILTERS: [&str; 24] = [
    "",
    "state = RUNNING",
    "state = COMPLETED",
    "state != RUNNING",
    "state = PAUSED OR state = CANCELLED",
    "waits_for = SIGNAL",
    "waits_for = APPROVAL",
    "waits_for != RESUME",
    "plan_id = bench",
    "plan_id != bench",
    "plan_id = nobody",
    "failure_reason = TOOL_FAILED",
    "labels.team = t7",
    "labels.team = nobody",
    "labels.team != t7",
    "labels.team:*",
    "labels.ticket = n77",
    "labels.nobody:*",
    "id = parked-77",
    "id = \"parked-77*\"",
    "id = \"nobody*\"",
    "labels.team = t7 AND state = PAUSED",
    "labels.team = t7 AND plan_id != parked",
    "state = RUNNING AND waits_for = TIME AND labels.team = t6",
];

/// The orders of lists; an empty one is that of creation, the newest first.
const ORDERS: [&str; 3] = ["", "create_time", "end_time desc"];

impl ParkedRound {
    pub(crate) fn slowest_list_ms(&self) -> f64 {
        self.pages.iter().map(|list| list.first_ms).fold(0.0, f64::max)
    }
}

/// Fills a new store with so many parked executions, and starts Belay on it.
///
/// # Errors
/// When an execution does not park, a list has others than it should, or a signal does not continue its execution.
pub(crate) async fn measure(binaries: &Path, root: &Path, executions: u32) -> Result<ParkedRound> {
    let place = Place::new(root)?;
    let mut belay = Belay::start(binaries, &place).await?;
    let now = SystemClock.now_micros();
    let until = wait_step::Condition::UntilTime(belay_proto::timestamp(now + A_DAY * 1_000_000));
    let mut names = Vec::new();
    for condition in [wait_step::Condition::Signal(SIGNAL.into()), until] {
        names.push(belay.begin_plan(waiting_plan(condition)).await?);
    }
    let journal = Location::file(place.file("executor").join("journal.db"));
    for _ in 0..2 {
        names.push(belay.begin_paused(Load::of_nothing(1, 1)).await?);
    }
    belay.cancel(&names[3]).await?;
    let runtime = tokio::runtime::Handle::current();
    let fill = move || runtime.block_on(fill(&journal, &names, executions, now));
    let started = belay.without_executor(&place, async || tokio::task::spawn_blocking(fill).await?).await?;
    tokio::time::sleep(SETTLED_AFTER).await;
    let started_kib = proc::resident_kib(&[belay.executor_pid()])?;

    let client = ExecutorServiceClient::new(net::connect_lazy(&place.socket("executor.sock")));
    let mut pages = Vec::new();
    for (filter, order_by, parent) in lists() {
        pages.push(list(client.clone(), filter, order_by, parent).await?);
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
    Ok(ParkedRound {
        executions,
        start_ms: started.as_secs_f64() * 1000.0,
        started_kib,
        used_kib: proc::resident_kib(&[belay.executor_pid()])?,
        pages,
        signal_p99_ms: millis(stats::percentile(&mut signalled, 99)),
    })
}

fn lists() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let orders = FILTERS.into_iter().flat_map(|filter| ORDERS.map(|order| (filter, order)));
    orders.flat_map(|(filter, order)| [NAMESPACE, "namespaces/-"].map(|parent| (filter, order, parent)))
}

/// The number of an execution that waits for the signal, which is every tenth; those that are taken are far apart.
fn spread(number: u32, executions: u32) -> u32 {
    number * (executions / SIGNALLED) / 10 * 10
}

/// A plan of one step that waits.
fn waiting_plan(condition: wait_step::Condition) -> v1::Plan {
    let wait = v1::WaitStep { condition: Some(condition) };
    let step = v1::StepSpec { id: "wait".into(), kind: Some(step_spec::Kind::Wait(wait)), ..Default::default() };
    v1::Plan { id: "parked".into(), steps: vec![step], ..Default::default() }
}

/// Stores copies of executions in turns: of ten, four wait for the signal, three for the time, two are paused, and one is cancelled.
async fn fill(journal: &Location, names: &[String], executions: u32, now: i64) -> Result<()> {
    const TURNS: [usize; 10] = [0, 1, 0, 2, 0, 1, 0, 2, 3, 1];
    let OpenedStore { mut writer, reader, fence, .. } =
        belay_journal_sqlite::open(journal, Threads::Inline, || "unused".into())?;
    let mut templates: Vec<(ExecutionRow, Vec<Transition>)> = Vec::new();
    for name in names {
        templates.push(template(reader.as_ref(), name).await?);
    }
    for first in (0..executions).step_by(BATCH as usize) {
        let numbers = first..executions.min(first + BATCH);
        let templates = numbers.clone().map(|number| &templates[TURNS[number as usize % TURNS.len()]]);
        let created = numbers.zip(templates.clone()).map(|(number, (row, transitions))| {
            let labels = [("team", format!("t{}", number % TEAMS)), ("ticket", format!("n{number}"))];
            let execution = NewExecution {
                id: format!("parked-{number}"),
                created_at: now + i64::from(number),
                labels: labels.map(|(key, value)| (key.to_owned(), value)).into(),
                request_id: String::new(),
                ..row.execution.clone()
            };
            StoreWrite::Create {
                limits: Vec::new(),
                fence: Fence { shard: execution.shard, token: fence },
                execution,
                transition: transitions[0].clone(),
                summary: row.summary.clone(),
                seal_key: None,
                outbox: Vec::new(),
                inbox: Default::default(),
                folder: None,
            }
        });
        let keys = store(&mut writer, created.collect()).await?;
        let later = keys.into_iter().zip(templates).flat_map(|(done, (row, transitions))| {
            let append = move |transition: &Transition| match done {
                StoreWriteOutcome::Created(key) => Some(StoreWrite::Append {
                    key,
                    transition: transition.clone(),
                    summary: None,
                    seal_key: None,
                    outbox: Vec::new(),
                    inbox: Default::default(),
                    usage: Vec::new(),
                    limits: Vec::new(),
                    fence: Fence { shard: row.execution.shard, token: fence },
                }),
                _ => None,
            };
            transitions[1..].iter().filter_map(append)
        });
        store(&mut writer, later.collect()).await?;
    }
    Ok(())
}

/// An execution that has parked or ended.
async fn template(reader: &dyn JournalReader, name: &str) -> Result<(ExecutionRow, Vec<Transition>)> {
    let id = name.rsplit('/').next().unwrap_or(name);
    let row = reader.find("default", id).await?.ok_or("an execution is not in the journal")?;
    if !row.summary.parked && !row.summary.ended {
        return Err("an execution has neither parked nor ended".into());
    }
    let transitions = reader.read(row.key, 0, usize::MAX).await?;
    Ok((row, transitions))
}

async fn store(writer: &mut impl JournalWriter, batch: Vec<StoreWrite>) -> Result<Vec<StoreWriteOutcome>> {
    Ok(writer.commit(&batch).await?.into_iter().collect::<Result<_, _>>()?)
}

async fn list(
    mut client: ExecutorServiceClient<Channel>,
    filter: &'static str,
    order_by: &'static str,
    parent: &'static str,
) -> Result<List> {
    let (mut micros, mut listed, mut page_token) = (Vec::<u64>::new(), 0, String::new());
    let mut first = None;
    while first.is_none() || micros.len() < PAGES {
        let request = v1::ListExecutionsRequest {
            parent: parent.into(),
            page_size: PAGE_SIZE,
            page_token,
            filter: filter.into(),
            order_by: order_by.into(),
            include_children: false,
        };
        let began = SystemClock.now_micros();
        let page = client.list_executions(request).await?.into_inner();
        micros.push(u64::try_from(SystemClock.now_micros() - began).unwrap_or(0));
        listed += page.executions.len();
        page_token = page.next_page_token;
        if first.is_none() && (listed >= FIRST || page_token.is_empty()) {
            first = Some(micros.iter().sum());
        }
        if page_token.is_empty() {
            break;
        }
    }
    let slowest_ms = millis(micros.iter().max().copied());
    let (first_ms, p50_ms) = (millis(first), millis(stats::percentile(&mut micros, 50)));
    Ok(List { filter, order_by, parent, first_ms, p50_ms, slowest_ms, listed })
}

fn millis(micros: Option<u64>) -> f64 {
    micros.map_or(0.0, |micros| micros as f64 / 1000.0)
}
