//! The registry of executions: those in memory, loading those that are not, and the state they share.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use belay_execution::{Event, Execution, Timestamp};
use belay_journal::{Done, ExecutionKey, ExecutionRow, Fence, JournalReader, Opened, Operation, Refused, StoreError};
use belay_proto::{runner_v1, stores::Position, v1};
use belay_reasons as reasons;
use belay_redaction::{MasterKey, Redactor};
use belay_service_kit::{Clock, Ids, Limit, Shutdown, SteadyClock, status};
use belay_settings::ExecutorLimits;
use belay_sqlite::{CommitError, GroupCommit, Threads};
use belay_telemetry::Telemetry;
use tokio::sync::{Notify, mpsc, watch};
use tonic::{Code, Status};

use crate::{
    acknowledge,
    availability::Availability,
    decisions::{self, GateNotice, UnownedDecisions},
    driver::{Command, Driver},
    event_feed::{EventFeed, EventFeeds},
    gate::Gate,
    names::ExecutionName,
    runner::Runner,
    secrets::{Secrets, SecretsError, Vault},
    thresholds::Thresholds,
    wire,
};

/// The parts of the service, including everything that a simulation replaces.
pub struct Parts {
    /// The store of executions.
    pub journal: Opened,
    /// Where blocking work runs.
    pub threads: Threads,
    /// The client of the tool runner.
    pub runner: Runner,
    /// The client of the approval gate.
    pub gate: Gate,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness for ids and keys.
    pub ids: Ids,
    /// Detects secrets.
    pub redactor: Redactor,
    /// Wraps the key of each execution; see [`crate::open_seal_key`].
    pub master_key: MasterKey,
    /// Exports spans.
    pub telemetry: Telemetry,
    /// Signals the shutdown.
    pub shutdown: Shutdown,
    /// The limits. Beyond them a request gets RESOURCE_EXHAUSTED with a delay.
    pub limits: ExecutorLimits,
    /// The sizes and durations at which it changes how it works.
    pub thresholds: Thresholds,
}

/// A commit that failed for its whole batch.
pub(crate) type Failed = CommitError<Arc<StoreError>>;

/// The executions of this process and the state they share.
pub struct ExecutionRegistry {
    pub(crate) runner: Runner,
    pub(crate) gate: Gate,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Ids,
    pub(crate) vault: Arc<Vault>,
    pub(crate) telemetry: Telemetry,
    /// Runs reads of the store.
    threads: Threads,
    pub(crate) shutdown: Shutdown,
    pub(crate) thresholds: Thresholds,
    pub(crate) reader: Arc<dyn JournalReader>,
    writer: GroupCommit<Operation, Result<Done, Refused>, Arc<StoreError>>,
    fence: i64,
    /// The identity of the journal: another one when it was accepted although it is behind.
    pub(crate) journal: Arc<str>,
    /// Limits the executions in memory that a start may add to.
    in_memory: Limit,
    /// Limits the requests that wait for something to happen.
    pub(crate) watchers: Limit,
    live: Mutex<HashMap<ExecutionKey, mpsc::UnboundedSender<Command>>>,
    /// Names of executions that are being created: they are not in `live` yet, and must not be loaded meanwhile.
    creating: Mutex<HashSet<ExecutionName>>,
    created: Notify,
    /// Executions that this process has driven since its start and that have not ended, in memory or not.
    driven: Mutex<HashSet<ExecutionKey>>,
    /// How far the times of executions that left memory are ahead of the clock, in microseconds; only of those that are.
    ahead: Mutex<HashMap<ExecutionKey, i64>>,
    /// Decisions about executions that this process does not drive.
    unowned: Mutex<UnownedDecisions>,
    feeds: Mutex<EventFeeds>,
    timers: Mutex<BinaryHeap<Reverse<(i64, ExecutionKey)>>>,
    timer_set: Notify,
    acknowledge: mpsc::UnboundedSender<(i32, String)>,
    notices: mpsc::UnboundedSender<GateNotice>,
    /// Since when services do not answer.
    pub(crate) availability: Availability,
    /// Why the store failed, once it has.
    broken: watch::Sender<Option<Arc<StoreError>>>,
}

impl ExecutionRegistry {
    /// Opens the registry on a store. No execution runs until [`Self::drive_all`], a start or a resume.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts {
            journal,
            threads,
            runner,
            gate,
            clock,
            ids,
            redactor,
            master_key,
            telemetry,
            shutdown,
            limits,
            thresholds,
        } = parts;
        let Opened { mut writer, reader, stores, fence, .. } = journal;
        let Position { store_id, generation, .. } = stores.own();
        let journal = if generation == 0 { store_id } else { format!("{store_id}.{generation}") };
        let writer = GroupCommit::start(threads, "belay-journal", thresholds.max_batch, move |batch| {
            writer.commit(batch).map_err(Arc::new)
        });
        let (acknowledge, acknowledged) = mpsc::unbounded_channel();
        let (notices, notice_receiver) = mpsc::unbounded_channel();
        let registry = Arc::new(Self {
            runner,
            gate,
            clock: Arc::new(SteadyClock::new(clock)),
            ids,
            vault: Arc::new(Vault { redactor, master_key }),
            telemetry,
            threads,
            shutdown,
            thresholds,
            reader,
            writer,
            fence,
            journal: journal.into(),
            in_memory: Limit::new("services.executor.executions", "executions in memory", limits.executions.value),
            watchers: Limit::new("services.executor.watchers", "waiting requests", limits.watchers.value),
            live: Mutex::default(),
            creating: Mutex::default(),
            created: Notify::new(),
            driven: Mutex::default(),
            ahead: Mutex::default(),
            unowned: Mutex::default(),
            feeds: Mutex::new(EventFeeds::new(thresholds.max_recent)),
            timers: Mutex::default(),
            timer_set: Notify::new(),
            acknowledge,
            notices,
            availability: Availability::default(),
            broken: watch::Sender::new(None),
        });
        tokio::spawn(acknowledge::send(registry.runner.clone(), fence, acknowledged, thresholds.acknowledge_batch));
        let (runner, shutdown) = (registry.runner.clone(), registry.shutdown.clone());
        tokio::spawn(acknowledge::resend_lost(Arc::downgrade(&registry), runner, shutdown));
        tokio::spawn(wake_in_time(Arc::downgrade(&registry)));
        let this = Arc::downgrade(&registry);
        tokio::spawn(async move {
            let behind = stores.behind().await;
            if let Some(this) = this.upgrade() {
                this.fail(Arc::new(StoreError::Behind(behind.to_string())));
            }
        });
        tokio::spawn(decisions::run_outbox(registry.gate.clone(), notice_receiver));
        let shutdown = registry.shutdown.clone();
        tokio::spawn(decisions::run_inbox(Arc::downgrade(&registry), registry.gate.clone(), shutdown));
        registry
    }

    /// Takes over every execution that has not ended. Parked executions stay out of memory until they are due.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    pub async fn drive_all(self: &Arc<Self>) -> Result<usize, StoreError> {
        let early = lock(&self.unowned).claim_all();
        let unfinished = self.read(|reader| reader.unfinished()).await?;
        let count = unfinished.len();
        let (now, mut parked) = (self.clock.now_micros(), 0);
        for row in unfinished {
            match row.summary.wake_at {
                _ if !row.summary.parked => self.load(row),
                Some(wake_at) => {
                    // The clock may have been set back since this was stored: the driver knows the time of the last event, and parks the
                    // execution again. Spaced out, so that a start does not load all of them at once.
                    let look_at = now + RECHECK_AFTER_MICROS + parked * RECHECK_SPACING_MICROS;
                    parked += 1;
                    self.set_timer(wake_at.min(look_at), row.key);
                }
                None => {}
            }
        }
        for approval in early {
            decisions::deliver(self, approval).await;
        }
        Ok(count)
    }

    /// Returns the reason when the store has failed: nothing can be made durable any more, so the process should stop.
    pub async fn broken(&self) -> Arc<StoreError> {
        let mut broken = self.broken.subscribe();
        match broken.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().expect("waited for"),
            Err(_) => std::future::pending().await,
        }
    }

    /// Pauses every execution that this process drives and discards their running calls, so that nothing continues automatically at the
    /// next start. Returns when that is done.
    pub async fn pause_all(self: &Arc<Self>, principal: &str, reason: &str) {
        let keys: Vec<ExecutionKey> = lock(&self.driven).iter().copied().collect();
        for key in keys {
            match self.read(move |reader| reader.get(key)).await {
                Ok(Some(row)) if !row.summary.ended => {
                    let (reply, received) = tokio::sync::oneshot::channel();
                    let (principal, reason) = (principal.to_owned(), reason.to_owned());
                    self.send(row, Command::PauseAndDrain { principal, reason, reply }).await;
                    // An error means that the execution ended first.
                    drop(received.await);
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "An execution could not be paused"),
            }
        }
    }

    /// How many executions are in memory; parked ones are not.
    pub fn in_memory(&self) -> usize {
        self.live().len()
    }

    /// Checks whether one more execution may be started.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with a delay when as many are in memory as the settings allow.
    pub(crate) fn check_capacity(&self) -> Result<(), Status> {
        self.in_memory.check(self.in_memory())
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.now_micros())
    }

    pub(crate) fn fence(&self, shard: u32) -> Fence {
        Fence { shard, token: self.fence }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<ExecutionKey, mpsc::UnboundedSender<Command>>> {
        lock(&self.live)
    }

    /// Reads from the store on a blocking thread.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&dyn JournalReader) -> T + Send + 'static,
    ) -> T {
        let reader = Arc::clone(&self.reader);
        self.threads.run(move || work(reader.as_ref())).await
    }

    /// Commits an operation to the store.
    pub(crate) async fn commit(&self, operation: Operation) -> Result<Result<Done, Refused>, Failed> {
        let done = self.writer.commit(operation).await;
        if let Err(CommitError::Failed(error)) = &done {
            self.fail(Arc::clone(error));
        }
        done
    }

    /// Records a failure after which nothing can be made durable or carried out; [`Self::broken`] returns it.
    pub(crate) fn fail(&self, error: Arc<StoreError>) {
        let first = self.broken.send_if_modified(|broken| {
            broken.is_none() && {
                *broken = Some(Arc::clone(&error));
                true
            }
        });
        if first {
            tracing::error!(%error, "The executor cannot continue, and acknowledges nothing from now on");
        }
    }

    /// Returns the row of an execution.
    pub(crate) async fn find(&self, name: &ExecutionName) -> Result<ExecutionRow, Status> {
        let (namespace, id) = (name.namespace.clone(), name.id.clone());
        let row = self.read(move |reader| reader.find(&namespace, &id)).await.map_err(|error| unreadable(&error))?;
        row.ok_or_else(|| {
            status::error(Code::NotFound, reasons::EXECUTION_NOT_FOUND, format!("There is no execution `{}`.", name.id))
                .with("name", name)
                .into()
        })
    }

    /// Reads an execution from the store, with the secrets to hide in it.
    pub(crate) async fn replay(&self, key: ExecutionKey) -> Result<(Execution, Secrets), Status> {
        let (events, secrets) = self.events(key).await?;
        // The error may quote the plan.
        let damaged =
            |illegal| corrupt(&self.vault.shown(format!("The execution's events are inconsistent: {illegal}.")));
        Ok((Execution::replay(events).map_err(damaged)?, secrets))
    }

    /// Reads an execution's events from the store, with the secrets to hide in them.
    pub(crate) async fn events(&self, key: ExecutionKey) -> Result<(Vec<Event>, Secrets), Status> {
        let vault = Arc::clone(&self.vault);
        let events = self.read(move |reader| {
            let transitions = reader.read(key, 0, usize::MAX).map_err(|error| unreadable(&error))?;
            let wrapped = || reader.seal_key(key).map_err(|error| unreadable(&error));
            let (messages, secrets) = vault.open(&transitions, wrapped)?;
            // The error may quote the plan.
            let damaged = |what: String| corrupt(&vault.shown(what));
            let events: Vec<_> = wire::to_events(messages)
                .collect::<Result<_, _>>()
                .map_err(|error| damaged(format!("The execution cannot be read: {error}.")))?;
            Ok((events, secrets))
        });
        events.await
    }

    /// The event feed of an execution.
    pub(crate) fn feed(&self, key: ExecutionKey) -> Arc<EventFeed> {
        lock(&self.feeds).of(key)
    }

    /// The executions driven here that may wait for an approval: those that are parked, and those in memory.
    pub(crate) async fn waiting(&self) -> Result<Vec<ExecutionRow>, StoreError> {
        let mut unfinished = self.read(|reader| reader.unfinished()).await?;
        let drives_all = lock(&self.unowned).drives_all();
        let (live, driven) = (self.live(), lock(&self.driven));
        unfinished.retain(|row| {
            live.contains_key(&row.key) || row.summary.parked && (drives_all || driven.contains(&row.key))
        });
        Ok(unfinished)
    }

    /// Sends a command to an execution, loading it into memory if needed.
    pub(crate) async fn send(self: &Arc<Self>, row: ExecutionRow, command: Command) {
        let name = ExecutionName { namespace: row.execution.namespace.clone(), id: row.execution.id.clone() };
        loop {
            let created = self.created.notified();
            if !lock(&self.creating).contains(&name) {
                break;
            }
            created.await;
        }
        let mut live = self.live();
        // A driver unloads under this lock and only with an empty queue, so a command that was sent is received.
        if let Some(sender) = live.get(&row.key) {
            drop(sender.send(command));
            return;
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        drop(sender.send(command));
        live.insert(row.key, sender);
        drop(live);
        self.spawn(row, receiver);
    }

    fn spawn(self: &Arc<Self>, row: ExecutionRow, commands: mpsc::UnboundedReceiver<Command>) {
        lock(&self.driven).insert(row.key);
        // This process drives the execution from now on, so it takes the decisions that were kept for it.
        let decided = lock(&self.unowned).claim(row.key);
        for approval in decided {
            self.try_send(row.key, Command::Decided { approval: Box::new(approval) });
        }
        Driver::spawn_from_store(Arc::clone(self), row, commands);
    }

    /// Returns the decision when this process drives its execution. Otherwise returns `None` and keeps it, undelivered, in case this
    /// process takes over the execution.
    pub(crate) fn unless_unowned(&self, key: ExecutionKey, approval: v1::Approval) -> Option<v1::Approval> {
        let mut unowned = lock(&self.unowned);
        let driven = lock(&self.driven).contains(&key);
        unowned.keep(key, driven, approval)
    }

    /// Queues a notice to the gate.
    pub(crate) fn notify_gate(&self, notice: GateNotice) {
        // An error means that the service is stopping.
        drop(self.notices.send(notice));
    }

    /// Sends a command to an execution if it is in memory, and returns whether it is.
    pub(crate) fn try_send(&self, key: ExecutionKey, command: Command) -> bool {
        self.live().get(&key).is_some_and(|sender| sender.send(command).is_ok())
    }

    fn load(self: &Arc<Self>, row: ExecutionRow) {
        let mut live = self.live();
        if live.contains_key(&row.key) {
            return;
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        live.insert(row.key, sender);
        drop(live);
        self.spawn(row, receiver);
    }

    /// Reserves the name of an execution that is about to be stored, until the returned value is dropped.
    pub(crate) fn reserve_name(&self, name: &ExecutionName) -> ReservedName<'_> {
        lock(&self.creating).insert(name.clone());
        ReservedName { registry: self, name: name.clone() }
    }

    /// Registers a new execution, and returns its command queue.
    pub(crate) fn register(&self, key: ExecutionKey) -> mpsc::UnboundedReceiver<Command> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.live().insert(key, sender);
        lock(&self.driven).insert(key);
        receiver
    }

    /// Removes an execution from memory. Returns `false` when a command is queued for it.
    pub(crate) fn unload(&self, key: ExecutionKey, ended: bool, commands: &mpsc::UnboundedReceiver<Command>) -> bool {
        let mut live = self.live();
        if !commands.is_empty() {
            return false;
        }
        live.remove(&key);
        if ended {
            lock(&self.driven).remove(&key);
        }
        true
    }

    /// Removes an execution and its queued commands from memory; their callers get an error.
    pub(crate) fn evict(&self, key: ExecutionKey) {
        self.live().remove(&key);
    }

    /// Remembers how far the time of an execution that leaves memory is ahead of the clock.
    pub(crate) fn keep_ahead(&self, key: ExecutionKey, ahead: i64) {
        let mut kept = lock(&self.ahead);
        match ahead {
            ..=0 => drop(kept.remove(&key)),
            ahead => drop(kept.insert(key, ahead)),
        }
    }

    /// What [`Self::keep_ahead`] remembers of an execution; 0 when that is nothing.
    pub(crate) fn ahead_of(&self, key: ExecutionKey) -> i64 {
        lock(&self.ahead).get(&key).copied().unwrap_or(0)
    }

    pub(crate) fn set_timer(&self, wake_at: i64, key: ExecutionKey) {
        lock(&self.timers).push(Reverse((wake_at, key)));
        self.timer_set.notify_one();
    }

    /// Queues the acknowledgement of a call, so that the runner may forget it.
    pub(crate) fn acknowledge(&self, shard: u32, name: String) {
        // An error means that the service is stopping; the next start acknowledges again.
        drop(self.acknowledge.send((i32::try_from(shard).unwrap_or(i32::MAX), name)));
    }

    pub(crate) fn runner_fence(&self, shard: u32) -> runner_v1::Fence {
        runner_v1::Fence { shard: i32::try_from(shard).unwrap_or(i32::MAX), token: self.fence }
    }
}

/// The reserved name of an execution that is about to be stored.
pub(crate) struct ReservedName<'a> {
    registry: &'a ExecutionRegistry,
    name: ExecutionName,
}

impl Drop for ReservedName<'_> {
    fn drop(&mut self) {
        lock(&self.registry.creating).remove(&self.name);
        self.registry.created.notify_waiters();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// After how many microseconds at most a start rechecks an execution that waits for a time, whatever its row says; and the spacing between
/// several.
const RECHECK_AFTER_MICROS: i64 = 30_000_000;
const RECHECK_SPACING_MICROS: i64 = 20_000;

/// After how many microseconds an execution that is due is read again when the store could not be read.
const REREAD_AFTER_MICROS: i64 = 1_000_000;

/// Loads parked executions when they are due.
async fn wake_in_time(registry: Weak<ExecutionRegistry>) {
    loop {
        let Some(this) = registry.upgrade() else { return };
        let now = this.clock.now_micros();
        let (due, next) = {
            let mut timers = lock(&this.timers);
            let mut due = Vec::new();
            while let Some(&Reverse((_, key))) = timers.peek().filter(|Reverse((at, _))| *at <= now) {
                timers.pop();
                due.push(key);
            }
            (due, timers.peek().map(|Reverse((at, _))| *at))
        };
        for key in due {
            match this.read(move |reader| reader.get(key)).await {
                Ok(Some(row)) if !row.summary.ended => this.load(row),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "A due execution cannot be read; retrying");
                    this.set_timer(now + REREAD_AFTER_MICROS, key);
                }
            }
        }
        let wait = next
            .map_or(Duration::from_secs(3600), |next| Duration::from_micros(u64::try_from(next - now).unwrap_or(0)));
        let shutdown = this.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = this.timer_set.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

pub(crate) fn unreadable(error: &StoreError) -> Status {
    status::error(Code::Unavailable, store_reason(error), format!("The store cannot be read: {error}.")).into()
}

pub(crate) fn unwritable(error: &Failed) -> Status {
    let reason = match error {
        CommitError::Failed(error) => store_reason(error),
        CommitError::Stopped => reasons::STOPPING,
    };
    status::error(
        Code::Unavailable,
        reason,
        format!("The change could not be stored, and nothing was started or changed: {error}."),
    )
    .into()
}

fn corrupt(message: &str) -> Status {
    status::error(Code::DataLoss, reasons::STORE_CORRUPT, message).into()
}

impl From<SecretsError> for Status {
    fn from(error: SecretsError) -> Self {
        let (code, reason) = match error {
            SecretsError::KeyLost => (Code::DataLoss, reasons::SEAL_KEY_LOST),
            SecretsError::Newer(_) => (Code::FailedPrecondition, reasons::STORE_NEWER),
            SecretsError::Changed(..) | SecretsError::Misplaced(_) | SecretsError::Undecodable(_) => {
                (Code::DataLoss, reasons::STORE_CORRUPT)
            }
        };
        status::error(code, reason, format!("The execution cannot be read: {error}.")).into()
    }
}

/// The error reason of a store failure.
pub fn store_reason(error: &StoreError) -> &'static str {
    match error {
        StoreError::Locked => reasons::STORE_LOCKED,
        StoreError::Corrupt(_) => reasons::STORE_CORRUPT,
        StoreError::Full => reasons::STORE_FULL,
        StoreError::Gone => reasons::STORE_GONE,
        StoreError::Behind(_) => reasons::STORE_BEHIND,
        StoreError::Newer { .. } => reasons::STORE_NEWER,
        StoreError::Older { .. } => reasons::STORE_OLDER,
        StoreError::Superseded => reasons::FENCED,
        StoreError::Broken | StoreError::Other(_) => reasons::STORE_FAILED,
    }
}
