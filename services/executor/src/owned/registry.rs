//! The registry of executions: those in memory, and the state that they and the executor's tasks share.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use belay_blobs::BlobStore;
use belay_execution::Timestamp;
use belay_group_commit::CommitError;
use belay_journal::{
    ExecutionKey, Fence, JournalWriter, OpenedStore, Refused, StoreError, StoreWrite, StoreWriteOutcome,
};
use belay_journal_sqlite::SqliteWriter;
use belay_proto::{runner_v1, stores::Stores};
use belay_reading::explanation::{Blocker, BlockerKind};
use belay_reasons as reasons;
use belay_redaction::{MasterKey, Redactor};
use belay_service_kit::{Clock, Ids, Limit, Shutdown, SteadyClock, status};
use belay_settings::{ExecutorLimits, NamespaceBudgets as NamespaceBudgetSettings, Retention};
use belay_sqlite::Threads;
use belay_telemetry::Telemetry;
use tokio::sync::{Notify, Semaphore, mpsc, watch};
use tonic::{Code, Status};

use crate::{
    approvals::{gate::Gate, unowned_decisions::UnownedDecisions},
    feeds::{EventFeed, ExecutionReader, Follower, LiveWaits},
    models::Models,
    names::ExecutionName,
    observe::{availability::Availability, measures::Measures},
    owned::{
        limit_turns::LimitTurns,
        messages::{Command, Delivery, GateNotice},
        namespace_usage::NamespaceBudgets,
        ownership::Ownership,
        queue::{Queue, QueueReceiver, queue},
        schedule_changes::ScheduleChanges,
        steps_in_memory::StepsInMemory,
        wake_ups::WakeUps,
    },
    runners::{in_doubt::CallsInDoubt, runner::Runner},
    store::{
        blobs::Blobs,
        commits::{self, BatchError, Commits, Write},
        journal_reads::{JournalReads, store_reason},
        secrets::Sealer,
    },
    thresholds::Thresholds,
    upkeep::{deletion_rounds::DeletionRounds, webhooks::Webhook},
};

/// The parts of the service, including everything that a simulation replaces.
pub struct Parts<W = SqliteWriter> {
    /// The store of executions.
    pub journal: OpenedStore<W>,
    /// The store of their blobs.
    pub blobs: Arc<dyn BlobStore>,
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
    /// Wraps the key of each execution; see [`crate::SealKeyFile`].
    pub master_key: MasterKey,
    /// Exports spans.
    pub telemetry: Telemetry,
    /// Signals the shutdown.
    pub shutdown: Shutdown,
    /// The limits. Beyond them a request gets RESOURCE_EXHAUSTED with a delay.
    pub limits: ExecutorLimits,
    /// Retention of executions that have ended.
    pub retention: Retention,
    /// Budgets of the namespaces, which limit their executions.
    pub budgets: NamespaceBudgetSettings,
    /// Webhooks that are told what happens to executions.
    pub webhooks: Vec<Webhook>,
    /// Models that steps may ask.
    pub models: Models,
    /// The sizes and durations at which it changes how it works.
    pub thresholds: Thresholds,
}

impl<W> Parts<W> {
    /// The parts with what is made of the journal in its place.
    #[must_use]
    pub fn map_journal<V>(self, map: impl FnOnce(OpenedStore<W>) -> OpenedStore<V>) -> Parts<V> {
        let Self {
            journal,
            blobs,
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
            retention,
            budgets,
            webhooks,
            models,
            thresholds,
        } = self;
        Parts {
            journal: map(journal),
            blobs,
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
            retention,
            budgets,
            webhooks,
            models,
            thresholds,
        }
    }
}

/// How many executions request something from the gate again at the same time.
pub(crate) const COMPARISONS: u32 = 64;

/// The executions of this process and the state they share.
pub struct ExecutionRegistry {
    pub(crate) runner: Runner,
    pub(crate) gate: Gate,
    pub(crate) ids: Arc<Ids>,
    /// Looks at executions, for requests and for what it shares with them.
    pub(crate) reading: Arc<ExecutionReader>,
    /// Reads of the journal for drivers, timers and decisions.
    pub(crate) reads: JournalReads,
    pub(crate) ownership: Ownership,
    writer: Commits,
    pub(crate) fence: i64,
    /// Limits the executions in memory that a start may add to.
    in_memory: Limit,
    /// Limits the steps of the executions in memory.
    pub(crate) steps: StepsInMemory,
    live: Mutex<HashMap<ExecutionKey, mpsc::UnboundedSender<Command>>>,
    /// Names of executions that are being created: they are not in `live` yet, and must not be loaded meanwhile.
    creating: Mutex<HashSet<ExecutionName>>,
    created: Notify,
    /// How far the times of executions that left memory are ahead of the clock, in microseconds; only of those that are.
    ahead: Mutex<HashMap<ExecutionKey, i64>>,
    /// Decisions about executions that this process does not drive.
    unowned: Mutex<UnownedDecisions>,
    /// Executions that this process drives no more, since their drivers failed again and again: the answer to requests for them, and their
    /// feeds, by which readers see why they wait.
    set_aside: Mutex<HashMap<ExecutionKey, (Status, Arc<EventFeed>)>>,
    pub(crate) calls_in_doubt: CallsInDoubt,
    /// The budgets of namespaces.
    pub(crate) budgets: NamespaceBudgets,
    pub(crate) measures: Measures,
    pub(crate) webhooks: Vec<Webhook>,
    pub(crate) models: Models,
    /// Changes with every commit of messages for webhooks.
    pub(crate) outbox_changed: watch::Sender<()>,
    pub(crate) wake_ups: WakeUps,
    pub(crate) deletions: DeletionRounds,
    pub(crate) schedules: ScheduleChanges,
    pub(crate) limit_turns: Arc<LimitTurns>,
    /// Acknowledgements for the runner: shard and call.
    pub(crate) acknowledgements: Arc<Queue<(i32, String)>>,
    pub(crate) notices: Arc<Queue<GateNotice>>,
    /// The turns of executions that request something from the gate again.
    pub(crate) comparisons: Arc<Semaphore>,
    /// The positions of the stores.
    pub(crate) stores: Arc<Stores>,
    /// Why the store failed, once it has.
    broken: watch::Sender<Option<Arc<StoreError>>>,
}

impl ExecutionRegistry {
    /// The registry on a store, and the ends of its queues to the gate and the runner.
    pub(crate) fn open<W: JournalWriter>(
        parts: Parts<W>,
    ) -> (Arc<Self>, QueueReceiver<GateNotice>, QueueReceiver<(i32, String)>) {
        let Parts {
            journal,
            blobs,
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
            retention: _,
            budgets,
            webhooks,
            models,
            thresholds,
        } = parts;
        let OpenedStore { writer, reader, client_reader, stores, fence, .. } = journal;
        let sealer = Arc::new(Sealer { redactor, master_key });
        let read_by = |reader| JournalReads::new(reader, &sealer, &blobs, threads);
        let follower = Arc::new(Follower::new(read_by(client_reader), thresholds.max_recent));
        let writer = commits::start(writer, Arc::clone(&reader), Arc::clone(&follower), thresholds.max_batch);
        let ownership = Ownership::new(Arc::clone(&reader), fence);
        let (acknowledgements, to_acknowledge) = queue();
        let (notices, to_notify) = queue();
        let registry = Arc::new(Self {
            runner,
            gate,
            ids: Arc::new(ids),
            reads: read_by(reader),
            reading: Arc::new(ExecutionReader {
                follower,
                blobs: Blobs::new(Arc::clone(&blobs), threads),
                sealer: Arc::clone(&sealer),
                clock: Arc::new(SteadyClock::new(clock)),
                telemetry,
                shutdown,
                thresholds,
                journal: stores.own().identity().into(),
                watchers: Limit::new("services.executor.watchers", "waiting requests", limits.watchers.value),
                availability: Availability::default(),
                driven: Arc::default(),
                budgets: budgets.clone(),
            }),
            ownership,
            writer,
            fence,
            in_memory: Limit::new("services.executor.executions", "executions in memory", limits.executions.value),
            steps: StepsInMemory::new(limits.steps.value),
            live: Mutex::default(),
            creating: Mutex::default(),
            created: Notify::new(),
            ahead: Mutex::default(),
            unowned: Mutex::default(),
            set_aside: Mutex::default(),
            calls_in_doubt: CallsInDoubt::default(),
            budgets: NamespaceBudgets::new(budgets),
            measures: Measures::new(),
            webhooks,
            models,
            outbox_changed: watch::Sender::default(),
            wake_ups: WakeUps::new(),
            deletions: DeletionRounds::new(),
            schedules: ScheduleChanges::default(),
            limit_turns: Arc::default(),
            acknowledgements: Arc::new(acknowledgements),
            notices: Arc::new(notices),
            comparisons: Arc::new(Semaphore::new(COMPARISONS as usize)),
            stores,
            broken: watch::Sender::new(None),
        });
        (registry, to_notify, to_acknowledge)
    }

    /// Whether this process drives every execution in the store.
    pub(crate) fn drives_all(&self) -> bool {
        self.reading.driven.has_all()
    }

    /// Records that this process drives an execution. Returns whether that is new.
    fn drive(&self, key: ExecutionKey) -> bool {
        self.reading.driven.add(key)
    }

    /// Returns the reason when the store has failed: nothing can be made durable any more, so the process should stop.
    pub async fn broken(&self) -> Arc<StoreError> {
        let mut broken = self.broken.subscribe();
        match broken.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().expect("waited for"),
            Err(_) => std::future::pending().await,
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
        self.reading.now()
    }

    pub(crate) fn fence(&self, shard: u32) -> Fence {
        Fence { shard, token: self.fence }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<ExecutionKey, mpsc::UnboundedSender<Command>>> {
        lock(&self.live)
    }

    /// Commits an operation to the store.
    pub(crate) async fn commit(
        &self,
        write: impl Into<Write>,
    ) -> Result<Result<StoreWriteOutcome, Refused>, BatchError> {
        let write = write.into();
        let has_messages = match &write.operation {
            StoreWrite::Create { outbox, .. } | StoreWrite::Append { outbox, .. } => !outbox.is_empty(),
            _ => false,
        };
        let done = self.writer.commit(write).await;
        match &done {
            Ok(Ok(_)) => {
                if has_messages {
                    self.outbox_changed.send_replace(());
                }
            }
            Ok(Err(_)) | Err(CommitError::Stopped) => {}
            Err(CommitError::Failed(error)) => self.fail(Arc::clone(error)),
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

    /// The event feed of an execution.
    pub(crate) fn feed(&self, key: ExecutionKey) -> Arc<EventFeed> {
        self.reading.feed(key)
    }

    /// The executions in memory.
    pub(crate) fn live_keys(&self) -> Vec<ExecutionKey> {
        self.live().keys().copied().collect()
    }

    /// Whether this process drives an execution.
    pub(crate) fn is_driven(&self, key: ExecutionKey) -> bool {
        self.reading.is_driven(key)
    }

    /// Returns the decision when this process drives its execution. Otherwise returns `None` and keeps it, undelivered, in case this
    /// process takes over the execution.
    pub(crate) fn unless_unowned(&self, key: ExecutionKey, delivery: Delivery) -> Option<Delivery> {
        let mut unowned = lock(&self.unowned);
        let driven = self.reading.driven.names(key);
        unowned.keep(key, driven, delivery)
    }

    /// Queues a notice to the gate.
    pub(crate) fn notify_gate(&self, notice: GateNotice) {
        self.notices.push(notice);
    }

    /// Waits while an execution with this name is being created.
    pub(crate) async fn until_created(&self, name: &ExecutionName) {
        loop {
            let created = self.created.notified();
            if !lock(&self.creating).contains(name) {
                return;
            }
            created.await;
        }
    }

    /// Puts an execution into memory, with its first commands. Returns its queue, for its driver; `None` when it is there already, and has got
    /// the commands.
    pub(crate) fn enter(&self, key: ExecutionKey, commands: Vec<Command>) -> Option<mpsc::UnboundedReceiver<Command>> {
        let mut live = self.live();
        // A driver unloads under this lock and only with an empty queue, so a command that was sent is received.
        if let Some(sender) = live.get(&key) {
            commands.into_iter().for_each(|command| drop(sender.send(command)));
            return None;
        }
        // Not bounded: a command is a request that waits for its reply, a decision about an approval that the execution has requested, or one of
        // few comparisons.
        let (sender, receiver) = mpsc::unbounded_channel();
        commands.into_iter().for_each(|command| drop(sender.send(command)));
        live.insert(key, sender);
        Some(receiver)
    }

    /// This process drives an execution from now on. Returns the decisions that were kept for it.
    pub(crate) fn take_on(&self, key: ExecutionKey) -> Vec<Delivery> {
        if self.drive(key) {
            // The gate may lack what it asks.
            self.notices.review_now();
        }
        lock(&self.unowned).claim(key)
    }

    /// This process drives every execution from now on. Returns the decisions that were kept for them.
    pub(crate) fn take_on_all(&self) -> Vec<Delivery> {
        let early = lock(&self.unowned).claim_all();
        self.reading.driven.add_all();
        early
    }

    /// The executions that this process has taken on, unless it drives all.
    pub(crate) fn driven(&self) -> Vec<ExecutionKey> {
        self.reading.driven.named()
    }

    /// Sends a command to an execution if it is in memory, and returns whether it is.
    pub(crate) fn try_send(&self, key: ExecutionKey, command: Command) -> bool {
        self.live().get(&key).is_some_and(|sender| sender.send(command).is_ok())
    }

    /// Reserves the name of an execution that is about to be stored, until the returned value is dropped.
    pub(crate) fn reserve_name(&self, name: &ExecutionName) -> ReservedName<'_> {
        lock(&self.creating).insert(name.clone());
        ReservedName { registry: self, name: name.clone() }
    }

    /// Registers a new execution, and returns its command queue; `None` when it was loaded from the journal already.
    pub(crate) fn register(&self, key: ExecutionKey) -> Option<mpsc::UnboundedReceiver<Command>> {
        self.drive(key);
        self.enter(key, Vec::new())
    }

    /// Removes an execution from memory. Returns `false` when a command is queued for it.
    pub(crate) fn unload(&self, key: ExecutionKey, ended: bool, commands: &mpsc::UnboundedReceiver<Command>) -> bool {
        let mut live = self.live();
        if !commands.is_empty() {
            return false;
        }
        live.remove(&key);
        if ended {
            self.reading.driven.remove(key);
        }
        self.reading.follower.driver_leaves();
        true
    }

    /// Drives an execution no more, since its drivers failed again and again. Requests for it get `status`.
    pub(crate) fn set_aside(&self, key: ExecutionKey, status: Status) {
        let feed = self.feed(key);
        feed.set_waits(LiveWaits {
            execution: vec![Blocker { since: self.now(), kind: BlockerKind::Fault }],
            steps: Vec::new(),
        });
        lock(&self.set_aside).insert(key, (status, feed));
        self.evict(key);
    }

    /// The answer to requests for an execution that is set aside; `None` for any other.
    pub(crate) fn why_aside(&self, key: ExecutionKey) -> Option<Status> {
        lock(&self.set_aside).get(&key).map(|(status, _)| status.clone())
    }

    /// Removes an execution and its queued commands from memory; their callers get an error.
    pub(crate) fn evict(&self, key: ExecutionKey) {
        self.live().remove(&key);
        self.reading.follower.driver_leaves();
    }

    /// Remembers how far the time of an execution that leaves memory is ahead of the clock.
    pub(crate) fn keep_ahead(&self, key: ExecutionKey, ahead: i64) {
        let mut kept = lock(&self.ahead);
        match ahead {
            ..=0 => drop(kept.remove(&key)),
            ahead => drop(kept.insert(key, ahead)),
        }
    }

    /// How far the time of an execution is ahead of the clock, as [`Self::keep_ahead`] remembers it; 0 when it remembers nothing.
    pub(crate) fn ahead_of(&self, key: ExecutionKey) -> i64 {
        lock(&self.ahead).get(&key).copied().unwrap_or(0)
    }

    /// Loads a parked execution at `wake_at`. Its driver has stored a time that is later than this by `ahead` microseconds.
    pub(crate) fn set_timer(&self, wake_at: i64, ahead: i64, key: ExecutionKey) {
        self.wake_ups.set(self.reading.clock.now_micros(), wake_at, key, ahead == 0 && self.drives_all());
    }

    /// Loads a parked execution at a time of the service's clock that the journal does not have.
    pub(crate) fn set_own_timer(&self, wake_at: i64, key: ExecutionKey) {
        self.wake_ups.set(self.reading.clock.now_micros(), wake_at, key, false);
    }

    /// Queues the acknowledgement of a call, so that the runner may forget it.
    pub(crate) fn acknowledge(&self, shard: u32, name: String) {
        let fence = self.runner_fence(shard);
        if let Err(name) = self.runner.link().acknowledge(fence, name) {
            self.acknowledgements.push((fence.shard, name));
        }
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

pub(crate) fn unwritable(error: &BatchError) -> Status {
    let reason = match error {
        CommitError::Failed(error) => store_reason(error),
        CommitError::Stopped => reasons::STOPPING,
    };
    let message = match error {
        CommitError::Failed(error) if matches!(**error, StoreError::OutcomeUnknown(_)) => {
            format!("It is not known whether the change was stored: {error}.")
        }
        _ => format!("The change could not be stored, and nothing was started or changed: {error}."),
    };
    status::error(Code::Unavailable, reason, message).into()
}
