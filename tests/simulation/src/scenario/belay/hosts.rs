//! The three services as processes: their `main` on the simulated machine.

use std::collections::BTreeMap;
use std::error::Error;
use std::future::{Future, pending};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belay_approval_gate::RunnerClient;
use belay_blobs::Folder;
use belay_executor::{ExecutionReader, ExecutionRegistry, ReaderParts, Runner};
use belay_grant::{Keys, SigningKey};
use belay_journal::{
    Committed, Done, ExecutionKey, JournalWriter as _, Opened, OpenedToRead, Operation, Refused, StoreError,
};
use belay_journal_memory::LostAnswers;
use belay_journal_sqlite::SqliteWriter;
use belay_policy::Policies;
use belay_proto::runner_v1::{self, EnforcementReport};
use belay_proto::v1;
use belay_service_kit::{Access, Clock, Hosted, Ids, Principal, Service, Shutdown, Trigger, host};
use belay_sqlite::{Location, SqliteError, Synchronous, Threads};
use belay_telemetry::Telemetry;
use belay_tool_runner::{Allowed, Calls, Enforcement, GateChannel, Ledger, LedgerError, Registry, Secrets, Workspaces};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tonic::transport::{Channel, Endpoint};
use turmoil::fs::shim::std::fs;

use super::archive::Archive;
use super::backup::Backup;
use super::bugs::{Bugs, Memory};
use super::damage::Damaged;
use super::knobs::Knobs;
use super::outside::Outside;
use super::people::PERSON_NAME;
use super::retention::{self, Taken};
use super::shared_journal::{SharedJournal, SharedWriter, is_fenced};
use super::slow_journal::{SlowWriter, slow};
use super::webhooks::{self, Mailbox};
use super::workspaces::{self, Change, ModelDirectories};
use super::{EXECUTOR, GATE, RUNNER, tools};
use crate::blob_disk::BlobDisk;
use crate::checker::Checker;
use crate::{disk, kill_points, machine, net, trace, vfs};

const EXECUTOR_PORT: u16 = 7000;
const READER_PORT: u16 = 7001;
const RUNNER_PORT: u16 = 7100;
const PEOPLE_PORT: u16 = 7200;
const SERVICES_PORT: u16 = 7201;

/// The runner's endpoint.
pub(super) const RUNNER_URI: &str = "http://runner:7100";
/// The executor's endpoint.
pub(super) const EXECUTOR_URI: &str = "http://executor:7000";
/// The endpoint of the reader of the executor's journal.
pub(super) const READER_URI: &str = "http://executor:7001";
/// The gate's endpoint for people.
pub(super) const PEOPLE_URI: &str = "http://gate:7200";
/// The gate's endpoint for services.
pub(super) const SERVICES_URI: &str = "http://gate:7201";

/// The folder of the runner's own workspaces.
const OWN_WORKSPACES: &str = "/work";
/// A workspace that several executions use at once.
pub(super) const SHARED_WORKSPACE: &str = "/shared/one";

/// The workspace that the runner makes for an execution that names none.
pub(super) fn own_workspace(execution: &str) -> Option<PathBuf> {
    match execution.split('/').collect::<Vec<_>>()[..] {
        ["namespaces", namespace, "executions", id] => Some(Path::new(OWN_WORKSPACES).join(namespace).join(id)),
        _ => None,
    }
}

const FOLDER: &str = "/data";

/// The path of an execution's workspace.
pub(super) fn workspace(execution: &v1::Execution) -> PathBuf {
    let namespace = execution.name.split('/').nth(1).unwrap_or_default();
    match execution.workspace.as_str() {
        "" => [OWN_WORKSPACES, namespace, &execution.made_folder].iter().collect(),
        directory => directory.into(),
    }
}

/// The folder of the runner's own at a path.
pub(super) fn made_folder(path: &str) -> runner_v1::MadeFolder {
    let mut ids = path.rsplit('/').map(str::to_owned);
    let (id, namespace) = (ids.next().unwrap_or_default(), ids.next().unwrap_or_default());
    runner_v1::MadeFolder { namespace, id }
}

const JOURNAL: &str = "journal.db";
/// The supervisor's delay before it restarts a failed process.
const RESTART_AFTER: Duration = Duration::from_millis(30);
/// The same for one that failed at once, as on a full disk: each of its starts reads the whole store, which costs the simulated disk seconds when nothing is synced.
const RESTART_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// The interval and the timeout of HTTP/2 keep-alive pings. Belay's own channels have 20 s.
const KEEP_ALIVE: Duration = Duration::from_millis(400);

/// Work that blocks, and all that runs beside it, is interrupted as the seed says.
const THREADS: Threads = Threads::Interleaved(machine::PAUSES);

type Outcome = Result<(), Box<dyn Error>>;

/// The wall clock of the executing machine, which may be wrong.
#[derive(Debug, Clone, Copy)]
struct WallClock;

impl Clock for WallClock {
    fn now_micros(&self) -> i64 {
        now_micros() + machine::clock_ahead()
    }
}

/// The true time in microseconds since the Unix epoch, whatever the machine's wall clock says.
pub(super) fn now_micros() -> i64 {
    let since_epoch = turmoil::since_epoch().unwrap_or_default();
    i64::try_from(since_epoch.as_micros()).expect("a simulation ends before the year 292471")
}

/// The shard of the execution with this name.
pub(super) fn shard(execution: &str) -> i32 {
    let shard = match execution.split('/').collect::<Vec<_>>()[..] {
        ["namespaces", namespace, "executions", id] => belay_executor::shard_of(namespace, id),
        _ => 0,
    };
    i32::try_from(shard).expect("there are 64")
}

/// What the processes of the services need across restarts.
#[derive(Debug, Clone)]
pub(super) struct Site {
    pub(super) bugs: Bugs,
    pub(super) outside: Outside,
    pub(super) checker: Checker,
    /// For ids and keys.
    pub(super) seed: u64,
    pub(super) owners: Owners,
    /// The policy at the gate's first start, and at all later ones.
    pub(super) policies: [Arc<str>; 2],
    pub(super) inventory: Inventory,
    pub(super) knobs: Knobs,
    pub(super) archive: Archive,
    pub(super) damaged: Damaged,
    /// What retention has deleted.
    pub(super) taken: Taken,
    /// What the receiver of webhooks has got.
    pub(super) mailbox: Mailbox,
    /// The backup that is put back.
    pub(super) backup: Backup,
    /// The simulation's own seed.
    pub(super) number: u64,
}

impl Site {
    /// Records a violation: lost stores are accepted, so no store may be reported as behind.
    fn behind(&self, why: String) -> Box<dyn Error> {
        self.checker.violation(format_args!("a store is said to be behind: {why}"));
        why.into()
    }

    fn signing_key(&self) -> SigningKey {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&self.seed.to_le_bytes());
        SigningKey::from_bytes(&seed)
    }

    /// The keys that may sign grants.
    pub(super) fn keys(&self) -> Keys {
        Keys::new([self.signing_key().verifying_key()])
    }
}

/// The changes in each workspace.
pub(super) type Inventoried = BTreeMap<PathBuf, Vec<Change>>;

/// Reads the workspaces on the runner's disk, when requested, instead of running the runner.
#[derive(Debug, Clone, Default)]
pub(super) struct Inventory(Arc<Mutex<Stock>>);

#[derive(Debug, Default)]
struct Stock {
    is_due: bool,
    found: Option<Inventoried>,
}

impl Inventory {
    fn stock(&self) -> MutexGuard<'_, Stock> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests the inventory: from its next start on, the runner's host runs only this.
    pub(super) fn request(&self) {
        self.stock().is_due = true;
    }

    /// Whether it was taken.
    pub(super) fn is_taken(&self) -> bool {
        self.stock().found.is_some()
    }

    /// What was found.
    pub(super) fn take(&self) -> Option<Inventoried> {
        self.stock().found.take()
    }
}

/// What is known of the owners of a journal that was copied.
#[derive(Debug)]
pub(super) struct OwnersCopy {
    newest_fence: i64,
    names: BTreeMap<ExecutionKey, String>,
    stored: BTreeMap<(String, i64), Write>,
}

/// When a transition was stored, and by whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    /// True time in microseconds since the Unix epoch.
    pub(super) at: i64,
    /// The fence of the executor that stored it.
    pub(super) fence: i64,
}

/// The owners of the journal so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Owners(Arc<Mutex<Owned>>);

#[derive(Debug, Default)]
struct Owned {
    newest_fence: i64,
    runners: u64,
    gates: u64,
    /// The number of times the gate has lost its store.
    gate_losses: u64,
    executors: u64,
    /// Whether every executor that starts from now on drives all executions.
    drives_all: bool,
    /// A copy of the journal and its log, until it is restored.
    journal_copy: Option<[Vec<u8>; 2]>,
    /// The copy was restored, and no executor has opened it yet: the operator asks each one to accept it.
    accepting: bool,
    last_operation: Option<Operation>,
    /// The names of the executions in the journal.
    names: BTreeMap<ExecutionKey, String>,
    /// How each transition was stored, by the execution's name and the sequence of its last event.
    stored: BTreeMap<(String, i64), Write>,
}

impl Owners {
    fn with<R>(&self, work: impl FnOnce(&mut Owned) -> R) -> R {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The true time at which an event was stored, in microseconds since the Unix epoch; `None` when it is not known.
    pub(super) fn stored_at(&self, execution: &str, sequence: i64) -> Option<i64> {
        self.stored(execution, sequence).map(|stored| stored.at)
    }

    /// How an event was stored; `None` when it is not known.
    pub(super) fn stored(&self, execution: &str, sequence: i64) -> Option<Write> {
        self.with(|owned| {
            let after = owned.stored.range((execution.to_owned(), sequence)..).next();
            after.filter(|((name, _), _)| name == execution).map(|(_, stored)| *stored)
        })
    }

    /// Commits a batch of the owner, and keeps its last operation beyond the machine's end.
    pub(super) async fn remembering(&self, batch: &[Operation], commit: impl Future<Output = Committed>) -> Committed {
        let last = batch.iter().rfind(|operation| is_fenced(operation)).cloned();
        let now = now_micros();
        self.with(|owned| {
            if last.is_some() {
                owned.last_operation = last;
            }
            for operation in batch {
                // Recorded before the result is known: an operation that failed but was stored is not written again.
                if let Operation::Append { key, transition, .. } = operation
                    && let Some(name) = owned.names.get(key)
                {
                    let sequence = |number: u64| (name.clone(), i64::try_from(number).unwrap_or(i64::MAX));
                    // What was tried in their place before was not stored.
                    let first = sequence(transition.first_sequence);
                    owned.stored.retain(|key, _| key.0 != first.0 || key.1 < first.1);
                    let stored = Write { at: now, fence: owned.newest_fence };
                    owned.stored.insert(sequence(transition.last_sequence()), stored);
                }
            }
        });
        let answers = commit.await?;
        self.with(|owned| {
            for (operation, answer) in batch.iter().zip(&answers) {
                if let (Operation::Create { execution, .. }, Ok(Done::Created(key))) = (operation, answer) {
                    let name = format!("namespaces/{}/executions/{}", execution.namespace, execution.id);
                    owned.names.insert(*key, name);
                }
            }
        });
        Ok(answers)
    }

    /// What is known now.
    pub(super) fn copy(&self) -> OwnersCopy {
        self.with(|owned| OwnersCopy {
            newest_fence: owned.newest_fence,
            names: owned.names.clone(),
            stored: owned.stored.clone(),
        })
    }

    /// The journal is what it was then. An executor is asked to accept it or not.
    pub(super) fn restore(&self, copy: OwnersCopy, is_accepted: bool) {
        let OwnersCopy { newest_fence, names, stored } = copy;
        self.with(|owned| {
            (owned.newest_fence, owned.names, owned.stored, owned.last_operation) = (newest_fence, names, stored, None);
            owned.accepting = is_accepted;
        });
    }

    /// Has executors drive all executions from their next start on, whatever they did before, and keep all.
    pub(super) fn drive_all(&self) {
        self.with(|owned| owned.drives_all = true);
    }

    fn drives_all(&self, bugs: &Bugs) -> bool {
        !bugs.drives_some || self.is_over()
    }

    /// Whether executors start only so that what is stored can be read.
    fn is_over(&self) -> bool {
        self.with(|owned| owned.drives_all)
    }

    /// The fence of the executor that opened the journal last.
    pub(super) fn newest_fence(&self) -> i64 {
        self.with(|owned| owned.newest_fence)
    }
}

/// A channel to `uri`, like Belay's own, with shorter timeouts.
pub(super) fn channel(uri: &'static str) -> Channel {
    Endpoint::from_static(uri)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true)
        .connect_timeout(KEEP_ALIVE)
        .connect_with_connector_lazy(net::Connector)
}

/// Runs a process, and restarts it when it fails.
async fn supervise(name: &str, process: impl Future<Output = Outcome>) -> turmoil::Result {
    let begun = tokio::time::Instant::now();
    if let Err(error) = process.await {
        trace::event(format_args!("{name}: {error}"));
    }
    let at_once = begun.elapsed() < RESTART_AFTER;
    tokio::time::sleep(if at_once { RESTART_AGAIN_AFTER } else { RESTART_AFTER }).await;
    machine::exit();
    pending().await
}

/// The tool runner; at the end, the inventory of its disk instead.
pub(super) async fn runner(site: Site) -> turmoil::Result {
    if site.inventory.stock().is_due {
        let stock = site.outside.workspaces().into_iter().map(|path| {
            let changes = workspaces::changes(&path)?;
            Ok((path, changes))
        });
        let found = stock.collect::<std::io::Result<_>>()?;
        site.inventory.stock().found = Some(found);
        return pending().await;
    }
    site.backup.attend(RUNNER).await;
    supervise(RUNNER, run_runner(site)).await
}

/// The approval gate.
pub(super) async fn gate(site: Site) -> turmoil::Result {
    site.backup.attend(GATE).await;
    supervise(GATE, run_gate(site)).await
}

/// The executor.
pub(super) async fn executor(site: Site) -> turmoil::Result {
    site.backup.attend(EXECUTOR).await;
    supervise(EXECUTOR, run_executor(site)).await
}

fn location(file: &str, synchronous: Synchronous, max_batch: usize) -> Location {
    fs::create_dir_all(FOLDER).and_then(|()| fs::sync_dir("/")).expect("turmoil's folders do not fail");
    let vfs = Some(vfs::NAME.to_string_lossy().into_owned());
    Location { path: Path::new(FOLDER).join(file), vfs, synchronous, accepted: None, max_batch }
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
    let registry = Registry::new(tools::all(&site.outside))?;
    // A new seed each time, so that no nonce is generated twice.
    let ids = Ids::seeded(site.seed.wrapping_mul(41).wrapping_add(run));
    let secrets =
        Secrets::new(REDACTOR.clone(), belay_executor::MasterKey::new([7; 32]), registry.clone(), move || {
            ids.next_key()
        });
    // A ledger that was lost on purpose is accepted, as an operator would do.
    let accepted = matches!(site.bugs.calls, Memory::Lost).then(now_micros);
    let location = Location { accepted, ..location(&file, site.bugs.ledger, site.knobs.store_batch) };
    if site.bugs.damages_a_row {
        site.damaged.damage_one(&location.path, site.seed)?;
    }
    let opened = Ledger::open(&location, THREADS, secrets, || id);
    let ledger = opened.inspect_err(|error| {
        use SqliteError as E;
        // What SQLite's adapter says of a value that is not what it should be; a disk that fails says something else.
        let is_about_a_row = matches!(error, LedgerError::Store(E::Other(why)) if why.starts_with("Conversion error"));
        let is_broken =
            matches!(error, LedgerError::KeyLost | LedgerError::Store(E::Corrupt(_) | E::Locked | E::Newer { .. }));
        if is_broken || is_about_a_row {
            site.checker.violation(format_args!("the ledger cannot be opened: {error}"));
        }
    })?;
    disk::make_folder(Path::new(SHARED_WORKSPACE)).map_err(std::io::Error::from)?;
    let calls = Calls::recover(belay_tool_runner::Parts {
        registry,
        ledger,
        clock: Arc::new(WallClock),
        keys: site.keys(),
        workspaces: Workspaces {
            own: OWN_WORKSPACES.into(),
            allowed: Allowed::Roots(vec![SHARED_WORKSPACE.into()]),
            forbidden: vec![FOLDER.into()],
        },
        directories: Arc::new(ModelDirectories::new(site.bugs.workspaces, &site.outside)),
        enforcement: Enforcement::reported(EnforcementReport::default()),
        threads: THREADS,
        thresholds: site.knobs.runner,
        telemetry: no_spans(site.seed),
        limits: Default::default(),
    })
    .await?;
    let policy = Arc::clone(calls.policy());
    let gate = GateChannel::new(site.bugs.channel(channel(SERVICES_URI), calls.stores()), None)?;
    let delays = Ids::seeded(site.seed.wrapping_mul(43).wrapping_add(run));
    tokio::spawn(async move { policy.follow_gate(gate, &delays).await });
    let (_trigger, stop) = Shutdown::new();
    let access = Access::Unauthenticated(Principal::Service(Service::SameUser));
    let hosted = belay_tool_runner::hosted(Arc::clone(&calls), stop.clone());
    tokio::select! {
        biased;
        error = calls.failed() => Err(match error {
            SqliteError::Behind(why) => site.behind(why),
            error => error.into(),
        }),
        served = serve(RUNNER_PORT, hosted, access, stop) => served,
    }
}

async fn run_gate(site: Site) -> Outcome {
    let run = site.owners.with(|owned| {
        owned.gates += 1;
        owned.gates
    });
    let losses = gate_losses(&site, run)?;
    // A store that was lost on purpose is accepted, as an operator would do.
    let accepted = (losses > 0).then(now_micros);
    let location = location(&gate_file(losses), Synchronous::Full, site.knobs.store_batch);
    let location = Location { accepted, ..location };
    let store = belay_approval_gate::Store::open(&location, THREADS, || format!("store-{losses}"));
    let store = store.inspect_err(|belay_approval_gate::StoreError(error)| {
        if matches!(error, SqliteError::Corrupt(_) | SqliteError::Locked | SqliteError::Newer { .. }) {
            site.checker.violation(format_args!("the gate's store cannot be opened: {error}"));
        }
    })?;
    let runner = site.bugs.channel(channel(RUNNER_URI), store.stores());
    let policies = Policies::from_yaml(&site.policies[usize::from(run > 1)]);
    let policies = policies.map_err(|violations| format!("{violations:?}"))?;
    let (_trigger, shutdown) = Shutdown::new();
    let gate = belay_approval_gate::Gate::open(belay_approval_gate::Parts {
        store,
        key: site.signing_key(),
        policies,
        runner: RunnerClient::new(runner, None)?,
        clock: Arc::new(WallClock),
        // A new seed each time, so that no nonce is generated twice.
        ids: Ids::seeded(site.seed.wrapping_mul(31).wrapping_add(run)),
        redactor: REDACTOR.clone(),
        telemetry: no_spans(site.seed),
        shutdown: shutdown.clone(),
        limits: Default::default(),
    })
    .await?;
    trace::count("gate starts");
    let people = Access::unauthenticated_person(PERSON_NAME);
    let services = Access::Unauthenticated(Principal::Service(Service::SameUser));
    tokio::try_join!(
        serve(PEOPLE_PORT, belay_approval_gate::hosted(Arc::clone(&gate)), people, shutdown.clone()),
        serve(SERVICES_PORT, belay_approval_gate::hosted_for_services(Arc::clone(&gate)), services, shutdown),
        async { Err::<(), Box<dyn Error>>(site.behind(gate.failed().await.to_string())) },
    )?;
    Ok(())
}

fn gate_file(losses: u64) -> String {
    format!("gate-{losses}.db")
}

/// The number of times the gate has lost its store; if the scenario loses it, about every second start does.
fn gate_losses(site: &Site, run: u64) -> Result<u64, rusqlite::Error> {
    let losses = site.owners.with(|owned| owned.gate_losses);
    let is_lost = site.bugs.gate == Memory::Lost && run > 1 && (site.seed >> (run % 64)) & 1 == 1;
    if !is_lost {
        return Ok(losses);
    }
    let path = Path::new(FOLDER).join(gate_file(losses));
    if fs::exists(&path) {
        site.archive.take_over(&path)?;
    }
    trace::event("the gate has lost its store");
    trace::count("stores of the gate lost");
    site.owners.with(|owned| owned.gate_losses += 1);
    Ok(losses + 1)
}

/// Compiled once, because an executor starts many times.
static REDACTOR: std::sync::LazyLock<belay_executor::Redactor> =
    std::sync::LazyLock::new(belay_executor::Redactor::new);

/// No spans are collected; trace ids come from the seed.
fn no_spans(seed: u64) -> Telemetry {
    let ids = Ids::seeded(seed.wrapping_mul(37));
    Telemetry::off(move |bytes| ids.fill(bytes))
}

/// An executor that drives executions, whether or not it can be reached.
struct Running {
    executions: Arc<ExecutionRegistry>,
    /// A reader of its journal that drives nothing, on the same machine.
    reader: Option<Arc<ExecutionReader>>,
    shutdown: Shutdown,
    _trigger: Trigger,
}

/// The executor. In some scenarios another replaces it while it runs; it does not notice, and nobody can reach it any more.
async fn run_executor(site: Site) -> Outcome {
    let journal = SharedJournal::default();
    let first = start_executor(&site, &journal).await?;
    if !site.bugs.replaces_executors {
        return serve_executor(&site, &first).await;
    }
    let mut random = StdRng::seed_from_u64(site.seed.wrapping_add(site.owners.newest_fence().cast_unsigned()));
    let alone = Duration::from_millis(random.random_range(0..2000));
    if let Ok(ended) = tokio::time::timeout(alone, serve_executor(&site, &first)).await {
        return ended;
    }
    let second = start_executor(&site, &journal).await?;
    trace::event("another executor has replaced this one, which does not notice that");
    trace::count("executors replaced");
    serve_executor(&site, &second).await
}

async fn start_executor(site: &Site, shared: &SharedJournal) -> Result<Running, Box<dyn Error>> {
    let journal = open_journal(site, shared).await.inspect_err(|error| {
        if matches!(error, StoreError::Corrupt(_) | StoreError::Locked | StoreError::Newer { .. }) {
            site.checker.violation(format_args!("the journal cannot be opened: {error}"));
        }
    })?;
    // After a restore, fences are given again.
    let history = u64::from(site.backup.restores()) << 32;
    let ids = Ids::seeded(site.seed.wrapping_add(journal.fence.cast_unsigned()).wrapping_add(history));
    let beside = OpenedToRead {
        reader: Arc::clone(&journal.client_reader),
        identity: journal.stores.own().identity(),
        writes: shared.writes(),
    };
    let channel = |uri| site.bugs.channel(channel(uri), &journal.stores);
    let (runner, gate) = (channel(RUNNER_URI), channel(SERVICES_URI));
    let (trigger, shutdown) = Shutdown::new();
    let retains = site.bugs.retains && !site.owners.is_over();
    let retention = if retains { retention::settings(site.seed) } else { Default::default() };
    let webhooks = site.bugs.webhooks.then(|| webhooks::webhook(site.number, &site.mailbox)).into_iter().collect();
    let executions = ExecutionRegistry::new(belay_executor::Parts {
        journal,
        blobs: Arc::new(Folder::on(BlobDisk, Path::new(FOLDER).join("blobs"))),
        threads: THREADS,
        runner: Runner::new(runner, None)?,
        gate: belay_executor::Gate::new(gate, None)?,
        clock: Arc::new(WallClock),
        ids,
        redactor: REDACTOR.clone(),
        master_key: belay_executor::MasterKey::new([7; 32]),
        telemetry: no_spans(site.seed),
        shutdown: shutdown.clone(),
        limits: site.knobs.limits(),
        retention,
        webhooks,
        thresholds: site.knobs.executor,
    });
    let reader = match site.bugs.reads_beside() {
        true => Some(start_reader(site, beside, shutdown.clone()).await?),
        false => None,
    };
    if site.bugs.webhooks {
        tokio::spawn(site.mailbox.clone().watch(shared.clone()));
    }
    if site.owners.drives_all(&site.bugs) {
        executions.drive_all().await?;
    }
    trace::count("executor starts");
    Ok(Running { executions, reader, shutdown, _trigger: trigger })
}

/// Starts a reader of the executor's journal: it shares the store with it, and its reader of the store.
async fn start_reader(
    site: &Site,
    journal: OpenedToRead,
    shutdown: Shutdown,
) -> Result<Arc<ExecutionReader>, StoreError> {
    let (reader, follow) = ExecutionReader::beside_owner(ReaderParts {
        journal,
        blobs: Arc::new(Folder::on(BlobDisk, Path::new(FOLDER).join("blobs"))),
        threads: THREADS,
        clock: Arc::new(WallClock),
        ids: Ids::seeded(site.seed.wrapping_mul(41)),
        redactor: REDACTOR.clone(),
        master_key: belay_executor::MasterKey::new([7; 32]),
        telemetry: no_spans(site.seed),
        shutdown,
        max_watchers: site.knobs.limits().watchers.value,
        thresholds: site.knobs.executor,
    })
    .await?;
    let checker = site.checker.clone();
    tokio::spawn(async move {
        let error = follow.await;
        checker.violation(format_args!("the journal is followed no more: {error}"));
    });
    Ok(reader)
}

async fn serve_executor(site: &Site, Running { executions, reader, shutdown, .. }: &Running) -> Outcome {
    let access = Access::unauthenticated_person("simulation");
    let hosted = belay_executor::hosted(Arc::clone(executions));
    let reading = async {
        match reader {
            Some(reader) => {
                let access = Access::unauthenticated_person("simulation");
                serve(READER_PORT, belay_executor::hosted_to_read(Arc::clone(reader)), access, shutdown.clone()).await
            }
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        reason = executions.broken() => Err(match &*reason {
            StoreError::Behind(why) => site.behind(why.clone()),
            reason => reason.to_string().into(),
        }),
        served = serve(EXECUTOR_PORT, hosted, access, shutdown.clone()) => served,
        served = reading => served,
    }
}

async fn open_journal(
    site: &Site,
    shared: &SharedJournal,
) -> Result<Opened<SlowWriter<LostAnswers<SharedWriter>>>, StoreError> {
    if site.bugs.restores_journal {
        restore_journal(site);
    }
    // Until an executor has opened the copy: a start that fails has accepted nothing.
    let accepted = site.owners.with(|owned| owned.accepting).then(now_micros);
    let location = Location { accepted, ..location(JOURNAL, site.bugs.journal, site.knobs.store_batch) };
    let open = async || {
        let mut journal =
            belay_journal_sqlite::open_with(&location, THREADS, site.knobs.journal, || "store".to_owned())?;
        let (before, stale) = site.owners.with(|owned| {
            owned.accepting = false;
            let before = std::mem::replace(&mut owned.newest_fence, journal.fence);
            (before, owned.last_operation.take())
        });
        match stale {
            _ if journal.fence <= before => {
                let now = journal.fence;
                site.checker.violation(format_args!("fence {before} is gone: the journal opens with {now}"));
            }
            // Those that are replaced write themselves.
            Some(_) if site.bugs.replaces_executors => {}
            Some(operation) => refuse_stale(&mut journal.writer, operation, &site.checker).await?,
            None => {}
        }
        Ok(journal)
    };
    let Opened { store_id, stores, fence, .. } = shared.open(&site.bugs, open).await?;
    let seed = site.seed.wrapping_mul(53).wrapping_add(fence.cast_unsigned());
    let (journal, owners, checker) = (shared.clone(), site.owners.clone(), site.checker.clone());
    let taken = site.bugs.retains.then(|| site.taken.clone());
    let mailbox = site.bugs.webhooks.then(|| site.mailbox.clone());
    let writer = SharedWriter { journal, owners, fence, checker, taken, mailbox };
    // A fault like the others: those who wait for a time wait no longer than these last.
    let writer = LostAnswers::new(writer, seed, site.knobs.max_lost_answers)
        .until(|| turmoil::sim_elapsed().is_some_and(|elapsed| elapsed >= super::HORIZON));
    let (writer, reader) = slow(writer, shared.clone(), seed);
    Ok(Opened { writer, client_reader: Arc::clone(&reader), reader, store_id, stores, fence })
}

/// Copies the executor's journal at its second start, and restores the copy at its fourth.
fn restore_journal(site: &Site) {
    let files = [JOURNAL.to_owned(), format!("{JOURNAL}-wal")].map(|name| Path::new(FOLDER).join(name));
    let run = site.owners.with(|owned| {
        owned.executors += 1;
        owned.executors
    });
    machine::without_faults(|| match run {
        2 => {
            let copy = files.each_ref().map(|path| disk::read(path).unwrap_or_default());
            site.owners.with(|owned| owned.journal_copy = Some(copy));
        }
        4 => {
            let Some(copy) = site.owners.with(|owned| owned.journal_copy.take()) else { return };
            for (path, bytes) in files.iter().zip(&copy) {
                disk::replace(path, bytes).expect("a calm disk does not fail");
            }
            site.owners.with(|owned| {
                (owned.last_operation, owned.names, owned.accepting) = (None, BTreeMap::new(), true);
            });
            trace::event("the journal is replaced by a copy from before");
            trace::count("journals restored");
        }
        _ => {}
    });
}

/// A replaced owner that does not know about it repeats its last write. S2-NFR-005, B-08.
async fn refuse_stale(writer: &mut SqliteWriter, operation: Operation, checker: &Checker) -> Result<(), StoreError> {
    match writer.commit(&[operation]).await?.as_slice() {
        [Err(Refused::Fenced { .. })] => trace::count("stale owners refused"),
        answers => checker.violation(format_args!("the write of an owner that was replaced was answered {answers:?}")),
    }
    Ok(())
}

async fn serve(port: u16, service: Hosted, access: Access, shutdown: Shutdown) -> Outcome {
    let incoming = net::listen(port).await?;
    host::serve(incoming, service.map_routes(kill_points::around), access, shutdown).await?;
    Ok(())
}
