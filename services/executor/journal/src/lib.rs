//! The journal's port: the guarantees of a store of executions, and the conformance suite that checks them.
//!
//! The port works in batches: one [`JournalWriter::commit`] is one durable step for everything in it, however many executions it serves. It
//! does not depend on who calls it, on which thread, and how operations are batched. It is `async`: a store in another process is waited for
//! without a thread, and one in this process says whether its writer blocks and keeps its reads away from the threads that await them.
//!
//! Guarantees of a store:
//! 1. `commit` returns after the batch is on stable storage; then every operation with result `Ok` is durable.
//! 2. An operation is atomic; a refused one changes nothing and does not affect the others of its batch.
//! 3. When the batch as a whole fails, all of it or nothing was committed; the writer refuses everything after that, because the state on
//!    disk is not known until the store is opened again. After [`StoreError::OutcomeUnknown`] the writer goes on: such a batch is committed
//!    before the next commit of this writer, or never, and [`Operation::outcome`] tells which.
//! 4. The events of one execution have no gaps: an append names the sequence it begins with, and the store checks it.
//! 5. An operation whose fence is lower than the highest the store has seen for its shard is refused.
//! 6. An execution has at most one key, which is stored together with the first transition that it seals.
//! 7. A reader sees every committed operation, and nothing else.
//! 8. What was changed on the disk is never returned: a read of the execution that it belongs to fails with [`StoreError::Damaged`], an append to it
//!    is refused, and lists leave it out. Everything else can be used.
//! 9. A deleted execution is gone for every reader when the deletion is committed, and with it its key, without which nothing that it sealed can
//!    be opened. A [`Deletion`] stays in its place: its events are removed in small steps ([`Operation::Erase`]), and when it is closed
//!    ([`Operation::CloseDeletion`]), the store's files have none of the execution's bytes. Until its name is free again, a repetition of the request that
//!    started it starts nothing ([`Refused::RequestDeleted`]).
//! 10. [`JournalReader::changes`] gives each committed transition once, in an order in which nothing is ever committed before a [`Cursor`] that
//!     a reader was given. A store whose numbers are given out before they are committed has to hold back those above the first that is open.
//!
//! 11. The messages of a transition are in the outbox if and only if the transition is committed, until they are removed, or their execution is deleted.
//! 12. A message that a transition sends is in the inbox of its recipient if and only if the transition is committed, until a transition of the
//!     recipient that takes it is, or the recipient is deleted. Of several messages of one sender the last is kept. An execution of which a
//!     message stands in an inbox cannot be deleted.
//! 13. A folder goes with the deletion of the last execution that uses it, and no execution is created in a folder after that ([`Folder`]). Both are
//!     decided in the order of the commits.
//! 14. What a namespace uses in a window ([`UsageRow`]) is the sum of the changes that were committed ([`UsageChange`]), whoever wrote them. A transition
//!     that holds more than the limit allows is refused ([`Refused::OverBudget`]) and changes nothing. The row of a window goes when a later one begins, but
//!     for the last one before it; changes of it that hold nothing are dropped after that.
//!
//! Owners. An embedded store has one owner, which holds all shards from [`Opened::fence`] on until the store is opened again; nothing has to be
//! claimed or renewed, because the fence rises in the same step in which the store's lock is taken. A store that several executors share, such as
//! PostgreSQL, adds to this port: claiming shards, which raises the fence of each of them; a lease for each claim, renewed by its owner and
//! claimable by others once it has run out; and a shard in [`JournalReader::claimable`] and [`JournalReader::due`], so that an owner sees its own. The
//! fence is what keeps an execution whole (guarantee 5): a lease only decides when another owner may try.

mod changes;
pub mod conformance;
mod deletion;
mod evidence;
mod folder;
mod inbox;
mod outbox;
mod query;
mod usage;

use std::{collections::BTreeMap, pin::Pin, sync::Arc};

use belay_proto::stores::Stores;
use thiserror::Error;

pub use changes::{Change, Changes, Cursor};
pub use deletion::{DeleteRequest, Deletion, StartRequest, start_request};
pub use evidence::Evidence;
pub use folder::Folder;
pub use inbox::{InboxChanges, InboxContent, InboxMessage, InboxRow, TakenMessage};
pub use outbox::{OutboxKey, OutboxMessage, OutboxRow};
pub use query::{AnyOf, Comparison, Condition, MAX_EXAMINED, Order, OrderBy, Page, Position, Query};
pub use usage::{UsageAmounts, UsageChange, UsageLimit, UsageRow, removed_up_to};

/// The number of shards. An execution never changes its shard; owners hold shards.
pub const SHARDS: u32 = 64;

/// The number that identifies an execution within a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecutionKey(pub i64);

/// The fencing token with which an owner writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    /// The shard.
    pub shard: u32,
    /// Increases with every change of owner.
    pub token: i64,
}

/// A transition: events of one execution that were decided together, in their stored form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The sequence of the first event.
    pub first_sequence: u64,
    /// The number of events; at least 1.
    pub count: u32,
    /// The version of the events' encoding.
    pub version: u32,
    /// The redacted events: length-delimited `belay.v1.ExecutionEvent`.
    pub shown: Vec<u8>,
    /// What `shown` leaves out, sealed; `None` when it is complete.
    pub sealed: Option<Vec<u8>>,
    /// What only services need to know, in a form of the writer's own, with an execution's first events and with those that change its plan; `None` with
    /// all others. It is stored beside `shown` because that is what clients get.
    pub facts: Option<Vec<u8>>,
}

impl Transition {
    /// The sequence of the last event.
    pub fn last_sequence(&self) -> u64 {
        self.first_sequence + u64::from(self.count) - 1
    }
}

/// A transition as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTransition {
    /// The transition.
    pub transition: Transition,
    /// The token of the fence that it was written with.
    pub token: i64,
}

/// The state of an execution after some of its events, so that reading it need not begin with the first. Disposable: a store may drop it, and
/// a reader that does not know its version ignores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The sequence of the last event that is in it.
    pub sequence: u64,
    /// The version of the events' encoding up to there.
    pub version: u32,
    /// The state, in a form of the writer's own.
    pub content: Vec<u8>,
    /// Whether the content is sealed with the execution's key.
    pub is_sealed: bool,
}

/// What an execution is loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// Its row.
    pub row: ExecutionRow,
    /// Its wrapped key; `None` when no transition of it is sealed.
    pub seal_key: Option<Vec<u8>>,
    /// The snapshot to begin with.
    pub snapshot: Option<Snapshot>,
    /// Its transitions in order: all of them, or, with a snapshot, the first and those with events after the snapshot.
    pub transitions: Vec<Transition>,
}

impl Loaded {
    /// What only services need to know, beside the event with this sequence.
    pub fn facts(&self, sequence: u64) -> Option<&[u8]> {
        let at = self.transitions.partition_point(|transition| transition.last_sequence() < sequence);
        self.transitions.get(at)?.facts.as_deref()
    }
}

/// What an execution waits for while it is parked: a set of kinds, by the numbers of `belay.v1.WaitingReason.Kind`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Waits(pub u32);

impl Waits {
    /// The set with one more kind. A number that does not fit into the set, which the contract does not have, is left out.
    #[must_use]
    pub fn with(self, kind: i32) -> Self {
        Self(self.0 | u32::try_from(kind).ok().and_then(|kind| 1_u32.checked_shl(kind)).unwrap_or(0))
    }

    /// Whether the kind is in the set.
    pub fn contains(self, kind: i32) -> bool {
        Self::default().with(kind).0 & self.0 != 0
    }

    /// The kinds in the set, in the order of their numbers.
    pub fn kinds(self) -> impl Iterator<Item = i32> {
        (0..32).filter(move |kind| self.contains(*kind))
    }
}

/// How many steps of an execution are in which final state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepCounts {
    /// All steps.
    pub total: u32,
    /// Completed steps.
    pub completed: u32,
    /// Failed steps.
    pub failed: u32,
    /// Skipped steps.
    pub skipped: u32,
    /// Cancelled steps.
    pub cancelled: u32,
}

/// The summary of an execution, for queries without reading its events. Written when it is created, parks, wakes and ends, but not per step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecutionSummary {
    /// The execution's state, as the number of `belay.v1.Execution.State`.
    pub state: i32,
    /// Whether it has ended.
    pub ended: bool,
    /// When to load it, in microseconds since the Unix epoch; `None` when only an external event continues it.
    pub wake_at: Option<i64>,
    /// Whether it waits for a time or a person, in memory or not, so that a starting executor need not load it before `wake_at`.
    pub parked: bool,
    /// What it waits for while it is parked; empty while it is not.
    pub waits_for: Waits,
    /// A digest of what it asks people at the gate while it is parked, by which the gate's list is compared with it; 0 when it asks nothing.
    pub asks: u64,
    /// The time of its last event when the summary was written, in microseconds since the Unix epoch.
    pub updated_at: i64,
    /// When it ended, in microseconds since the Unix epoch.
    pub ended_at: Option<i64>,
    /// The reason of the failure that it ended with.
    pub failure_reason: Option<String>,
    /// Its steps when the summary was written. They change without the summary being written while the execution runs.
    pub steps: StepCounts,
}

impl ExecutionSummary {
    /// Whether the store should have `newer` instead of this one. What changes with every step is not worth a write.
    pub fn is_outdated_by(&self, newer: &Self) -> bool {
        let comparable = Self { updated_at: newer.updated_at, steps: newer.steps, ..self.clone() };
        comparable != *newer
    }
}

/// The step whose plan an execution carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParentStep {
    /// The execution that the step belongs to.
    pub execution: ExecutionKey,
    /// The id of that execution, which is in the same namespace.
    pub execution_id: String,
    /// The id of the step.
    pub step_id: String,
}

/// An execution to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewExecution {
    /// The namespace's id.
    pub namespace: String,
    /// The execution's id, unique in its namespace.
    pub id: String,
    /// The shard it belongs to.
    pub shard: u32,
    /// When it is created, in microseconds since the Unix epoch.
    pub created_at: i64,
    /// The plan's id, for lists.
    pub plan_id: String,
    /// Labels, for lists.
    pub labels: BTreeMap<String, String>,
    /// The authenticated principal that starts it.
    pub principal: String,
    /// The caller's request id; empty when there is none.
    pub request_id: String,
    /// The digest of the request, which distinguishes a repeated request from another one with the same request id.
    pub request_hash: String,
    /// The step whose plan it carries out; `None` for an execution that a request has started.
    pub parent: Option<ParentStep>,
}

impl NewExecution {
    /// The name of the step whose plan it carries out, `namespaces/*/executions/*/steps/*`.
    pub fn parent_step(&self) -> Option<String> {
        let ParentStep { execution_id, step_id, .. } = self.parent.as_ref()?;
        Some(format!("namespaces/{}/executions/{execution_id}/steps/{step_id}", self.namespace))
    }
}

/// One operation to make durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Creates an execution and stores its first events.
    Create {
        /// The row.
        execution: NewExecution,
        /// Its first events.
        transition: Transition,
        /// Its summary after them.
        summary: ExecutionSummary,
        /// Its key, wrapped, when these events are the first that it seals.
        seal_key: Option<Vec<u8>>,
        /// The messages for webhooks that these events cause.
        outbox: Vec<OutboxMessage>,
        /// The messages to other executions.
        inbox: InboxChanges,
        /// The folder that it works in; `None` when a directory was named.
        folder: Option<Folder>,
        /// The writer's fence.
        fence: Fence,
    },
    /// Appends events to an execution.
    Append {
        /// The execution.
        key: ExecutionKey,
        /// The events.
        transition: Transition,
        /// Its summary, if that changes.
        summary: Option<ExecutionSummary>,
        /// Its key, wrapped, when these events are the first that it seals.
        seal_key: Option<Vec<u8>>,
        /// The messages for webhooks that these events cause.
        outbox: Vec<OutboxMessage>,
        /// The messages to other executions, and those of others that these events record.
        inbox: InboxChanges,
        /// The changes of what namespaces use of their budgets, at most one for each window.
        usage: Vec<UsageChange>,
        /// The writer's fence.
        fence: Fence,
    },
    /// Replaces an execution's summary: it is parked, or is not any more, without an event.
    Summarize {
        /// The execution.
        key: ExecutionKey,
        /// The summary.
        summary: ExecutionSummary,
        /// The writer's fence.
        fence: Fence,
    },
    /// Removes messages from an execution's inbox that nothing of it waits for. What is not there changes nothing.
    TakeMessages {
        /// The execution.
        key: ExecutionKey,
        /// The messages.
        taken: Vec<TakenMessage>,
        /// The writer's fence.
        fence: Fence,
    },
    /// Keeps a snapshot of an execution instead of the one before. One of events that are not stored is refused as [`Refused::Gap`].
    KeepSnapshot {
        /// The execution.
        key: ExecutionKey,
        /// The snapshot.
        snapshot: Snapshot,
        /// The writer's fence.
        fence: Fence,
    },
    /// Deletes an execution that has ended. Its name cannot be used until the [`Deletion`] is closed, and no execution can be created in the folder
    /// that goes with it.
    Delete {
        /// The execution.
        key: ExecutionKey,
        /// When, in microseconds since the Unix epoch.
        deleted_at: i64,
        /// Who asked for it.
        request: DeleteRequest,
        /// The writer's fence.
        fence: Fence,
    },
    /// Removes some of a deleted execution's events; repeated until it returns [`Done::Erased`] with `complete`.
    Erase {
        /// The deleted execution.
        key: ExecutionKey,
        /// The maximum number of transitions to remove.
        max_transitions: usize,
        /// The writer's fence.
        fence: Fence,
    },
    /// Closes a deletion: the events are removed, and the other services have forgotten the execution.
    CloseDeletion {
        /// The deleted execution.
        key: ExecutionKey,
        /// From when on its name may be used again, in microseconds since the Unix epoch.
        reusable_at: i64,
        /// The writer's fence.
        fence: Fence,
    },
    /// Removes closed deletions whose names may be used again by now, at most 1,000 of them.
    DropDeletions {
        /// Now, in microseconds since the Unix epoch.
        now: i64,
        /// The latest time that a name can be reserved until, in microseconds since the Unix epoch. A deletion with a later one, which was closed while
        /// the clock was ahead, gets this one.
        latest: i64,
    },
    /// Removes a message from the outbox: it was delivered, or given up. One that is not there changes nothing.
    RemoveMessage {
        /// The message.
        key: OutboxKey,
    },
    /// Sends a message later. One that is not there changes nothing.
    PostponeMessage {
        /// The message.
        key: OutboxKey,
        /// How many attempts have failed.
        attempts: u32,
        /// When to send it, in microseconds since the Unix epoch.
        next_at: i64,
    },
    /// Gives the messages of a webhook whose time is after `latest` the time `now`, and those of them that were stored after `now` as well: their
    /// times come from a clock that was ahead.
    RescheduleMessages {
        /// The webhook.
        webhook: String,
        /// The latest time that a message can have, in microseconds since the Unix epoch.
        latest: i64,
        /// Now, in microseconds since the Unix epoch.
        now: i64,
    },
    /// Removes the messages from before a time for webhooks that there are no more.
    DropMessages {
        /// The webhooks that there are.
        known: Vec<String>,
        /// The time, in microseconds since the Unix epoch.
        before: i64,
    },
}

/// The outcome of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// Created, under this key.
    Created(ExecutionKey),
    /// Appended.
    Appended,
    /// The snapshot is kept.
    Kept,
    /// Deleted.
    Deleted,
    /// Events of a deleted execution were removed.
    Erased {
        /// None is left.
        complete: bool,
    },
    /// The deletion is closed.
    Closed,
    /// As many closed deletions, or messages, were removed.
    Dropped(usize),
    /// The summary is replaced; or the message is removed or postponed, or there was none.
    Changed,
}

/// Why an operation was refused. It changed nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Refused {
    /// The namespace has an execution with this id.
    #[error("execution `{id}` already exists")]
    IdTaken {
        /// The id.
        id: String,
        /// The existing execution.
        existing: ExecutionKey,
    },
    /// The namespace has seen this request id.
    #[error("the request id was used before")]
    RequestIdUsed {
        /// The execution that the request created.
        existing: ExecutionKey,
        /// Whether it was the same request.
        same_request: bool,
    },
    /// Another owner has written to the shard.
    #[error("shard {shard} has another owner: fence {yours} is older than {newest}", shard = .shard)]
    Fenced {
        /// The shard.
        shard: u32,
        /// The fence of the operation.
        yours: i64,
        /// The highest fence seen.
        newest: i64,
    },
    /// The events do not follow the stored ones.
    #[error("event {first} does not follow event {last}")]
    Gap {
        /// The sequence of the operation's first event.
        first: u64,
        /// The sequence of the last stored event.
        last: u64,
    },
    /// What the store has of the execution is damaged. The message names the row.
    #[error("{0}")]
    Damaged(String),
    /// The execution already has a key, so nothing that another key sealed could be opened.
    #[error("execution {} already has a key", .0.0)]
    HasSealKey(ExecutionKey),
    /// There is no such execution, or no such deletion.
    #[error("there is no execution with key {}", .0.0)]
    Missing(ExecutionKey),
    /// Only an execution that has ended can be deleted.
    #[error("execution {} has not ended", .0.0)]
    NotEnded(ExecutionKey),
    /// An execution whose step this one carries out has not recorded its end yet.
    #[error("execution {} has not recorded the end of execution {}, which carries out one of its steps", .parent.0, .key.0)]
    Unrecorded {
        /// The execution to delete.
        key: ExecutionKey,
        /// The one that has not recorded its end.
        parent: ExecutionKey,
    },
    /// Events of the deleted execution are left, so that its deletion cannot be closed.
    #[error("events of the deleted execution {} are left", .0.0)]
    NotErased(ExecutionKey),
    /// An execution with this id was deleted, and the id cannot be used again yet.
    #[error("execution `{id}` was deleted, and its id cannot be used again yet")]
    IdDeleted {
        /// The id.
        id: String,
        /// From when on it can be used again, in microseconds since the Unix epoch; `None` while the deletion goes on.
        reusable_at: Option<i64>,
    },
    /// The execution that this request has started was deleted.
    #[error("execution `{id}`, which this request has started, was deleted")]
    RequestDeleted {
        /// The namespace of that execution.
        namespace: String,
        /// Its id.
        id: String,
    },
    /// The events hold more of the budget of a namespace than is left of it.
    #[error("namespace `{namespace}` has not as much left of its budget")]
    OverBudget {
        /// The namespace's id.
        namespace: String,
    },
    /// The new folder has users, or a deletion removes it.
    #[error("folder `{0}` is in use")]
    FolderInUse(String),
    /// The last execution that used the folder was deleted.
    #[error("folder `{0}` is removed with the last execution that used it")]
    FolderGone(String),
}

/// Why a store cannot be opened, read or written.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error("the store is in use by another process")]
    Locked,
    /// Its content is damaged, or is not that of a journal.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A row of one execution is damaged; the others can be used. The message names the row.
    #[error("{0}")]
    Damaged(String),
    /// There is no such execution: it was deleted.
    #[error("there is no execution with key {}: it was deleted", .0.0)]
    Missing(ExecutionKey),
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// Its files were removed or replaced while it was open.
    #[error("the store's file was removed or replaced while it was in use")]
    Gone,
    /// Another service has seen a later position of it.
    #[error("{0}")]
    Behind(String),
    /// A newer version of Belay wrote it.
    #[error("the store has format {found}, and this version of Belay reads up to {known}")]
    Newer {
        /// The store's format.
        found: i64,
        /// The newest format known.
        known: i64,
    },
    /// An earlier, unreleased version of Belay wrote it.
    #[error(
        "the store has format {found} of an earlier version of Belay, and this version reads format {known}: it lacks {lacks}"
    )]
    Older {
        /// The store's format.
        found: i64,
        /// The format that is read.
        known: i64,
        /// What the earlier format lacks.
        lacks: &'static str,
    },
    /// Another owner has continued from a later state of this store: it was replaced, or restored from a backup.
    #[error(
        "the tool runner has accepted a later owner than this store has recorded: the store was restored from a backup, or another executor has taken over"
    )]
    Superseded,
    /// An earlier commit failed; the store has to be opened again.
    #[error("an earlier write failed, so the store accepts no more writes until it is opened again")]
    Broken,
    /// The answer to a commit was lost, as when a connection breaks: the batch was committed, was not, or still is on its way.
    #[error("the answer to the last write was lost: {0}")]
    OutcomeUnknown(String),
    /// Anything else.
    #[error("the store failed: {0}")]
    Other(String),
}

/// A stored execution without its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExecutionRow {
    /// Its key.
    pub key: ExecutionKey,
    /// The values it was created with.
    pub execution: NewExecution,
    /// Its summary.
    pub summary: ExecutionSummary,
    /// A revision that agrees with the summary: the sequence of the last event when that was written, or of a later one. Whoever is shown the
    /// row and then the execution is shown that with these events.
    pub revision: u64,
}

/// The writer of a store. One exists at a time.
pub trait JournalWriter: Send + 'static {
    /// Whether a commit blocks the thread that awaits it, so that it needs one of its own.
    fn blocks(&self) -> bool;

    /// Makes the batch durable, in order, and returns the result of each operation. It is awaited to its end.
    ///
    /// # Errors
    /// [`StoreError`] when the batch as a whole failed; see guarantee 3.
    fn commit(&mut self, batch: &[Operation]) -> impl Future<Output = Committed> + Send;
}

/// The outcome of a batch: of each operation, in order.
pub type Committed = Result<Vec<Result<Done, Refused>>, StoreError>;

/// A read that is under way. It is boxed, since readers are chosen when a store is opened; it costs less than any read does.
pub type Reading<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The reader of a store. No read blocks the thread that awaits it, and each sees the store at one moment. One that is dropped is given up.
pub trait JournalReader: Send + Sync {
    /// One execution by its name.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read; the same for all methods.
    fn find(&self, namespace: &str, id: &str) -> Reading<'_, Option<ExecutionRow>>;

    /// One execution by its key.
    fn get(&self, key: ExecutionKey) -> Reading<'_, Option<ExecutionRow>>;

    /// One page of the executions that match a query. Reads at most [`MAX_EXAMINED`] executions, or as many as the page is long, beside those that the
    /// store passes over without reading them: the page may be shorter than `limit`, and even empty, although there is a next one.
    fn list(&self, query: &Query) -> Reading<'_, Page>;

    /// The namespaces that have executions, in order, those after `after` and at most `limit` of them.
    fn namespaces(&self, after: &str, limit: usize) -> Reading<'_, Vec<String>>;

    /// Everything that an execution is loaded from, read together. With `snapshot`, its snapshot of that version is used, if it has one that is
    /// intact. [`StoreError::Missing`] when there is no such execution.
    fn load(&self, key: ExecutionKey, snapshot: Option<u32>) -> Reading<'_, Loaded>;

    /// The transitions of an execution with events after `after`, in order, at most `limit`. [`StoreError::Missing`] when there is no such
    /// execution.
    fn read(&self, key: ExecutionKey, after: u64, limit: usize) -> Reading<'_, Vec<Transition>>;

    /// The transition of an execution that begins with this event; `None` when there is no such execution or transition.
    fn stored(&self, key: ExecutionKey, first_sequence: u64) -> Reading<'_, Option<StoredTransition>>;

    /// The transitions of all executions that were committed after `after`, in the order in which they were committed. Examines at most `limit`
    /// of them, and leaves out those of executions that were deleted since, and damaged ones; the store has no more when
    /// [`Changes::next`] is `after`.
    fn changes(&self, after: Cursor, limit: usize) -> Reading<'_, Changes>;

    /// The cursor after everything that is committed. One that is later is not from this store, or this store was restored from a backup.
    fn latest(&self) -> Reading<'_, Cursor>;

    /// The token of the newest owner of the store. An owner that finds a later one than its own has been replaced: what it knows is outdated.
    fn newest_token(&self) -> Reading<'_, i64>;

    /// The wrapped key of an execution; `None` when no transition of it is sealed.
    fn seal_key(&self, key: ExecutionKey) -> Reading<'_, Option<Vec<u8>>>;

    /// The first execution after `after`, in the order of their keys, that has a wrapped key; `None` when none has.
    fn next_sealed(&self, after: ExecutionKey) -> Reading<'_, Option<ExecutionKey>>;

    /// The executions that need a driver now, which are those that have neither ended nor are parked: those after `after`, in the order of
    /// their keys, at most `limit`.
    fn claimable(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionRow>>;

    /// The parked executions whose `wake_at` is at most `until`, in the order of `wake_at` and key: those after `after`, at most `limit`.
    fn due(&self, after: Position, until: i64, limit: usize) -> Reading<'_, Vec<ExecutionRow>>;

    /// The earliest `wake_at` of a parked execution that is later than `after`, in microseconds since the Unix epoch.
    fn next_wake(&self, after: i64) -> Reading<'_, Option<i64>>;

    /// The parked executions with a `wake_at` whose `updated_at` is after `after`, in the order of `updated_at` and key, at most `limit`:
    /// when that time is in the future, the clock was set back.
    fn parked_since(&self, after: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>>;

    /// The executions that have ended, in the order of their end and key: those after `after` up to and including `until`, at most `limit`.
    fn finished(&self, after: Position, until: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>>;

    /// The position, in the order of [`JournalReader::finished`], of the newest execution that is not among the `keep` that ended last; `None`
    /// when no more than `keep` have ended. Costs as many steps in an index as `keep`.
    fn finished_beyond(&self, keep: usize) -> Reading<'_, Option<Position>>;

    /// The deletion of an execution by its name, closed or not; `None` when it was dropped, or there was none.
    fn deletion(&self, namespace: &str, id: &str) -> Reading<'_, Option<Deletion>>;

    /// With what the store would refuse to create an execution for this request because of its id: [`Refused::RequestIdUsed`] or
    /// [`Refused::RequestDeleted`]. `None` when this request has started nothing.
    fn request_used(&self, request: &StartRequest) -> Reading<'_, Option<Refused>>;

    /// The deletions, closed or not, in the order of `deleted_at` and key: those after `after`, at most `limit`.
    fn deleted_after(&self, after: Position, limit: usize) -> Reading<'_, Vec<Deletion>>;

    /// The messages of a webhook whose time is at most `until`, in the order of their times and keys, at most `limit`.
    fn outbox(&self, webhook: &str, until: i64, limit: usize) -> Reading<'_, Vec<OutboxRow>>;

    /// The earliest time of a message of a webhook.
    fn next_message(&self, webhook: &str) -> Reading<'_, Option<i64>>;

    /// How many messages the outbox has, counted up to `limit`.
    fn outbox_len(&self, limit: usize) -> Reading<'_, usize>;

    /// The messages in the inbox of an execution, in the order of their senders, at most `limit`.
    fn inbox(&self, key: ExecutionKey, limit: usize) -> Reading<'_, Vec<InboxRow>>;

    /// The amounts of a namespace in the windows that are kept, in their order.
    fn usage(&self, namespace: &str) -> Reading<'_, Vec<UsageRow>>;

    /// The executions whose inboxes are not empty, in the order of their keys: those after `after`, at most `limit`.
    fn recipients(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionKey>>;

    /// The deletions that are not closed, in the order of their keys: those after `after`, at most `limit`.
    fn open_deletions(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<Deletion>>;
}

/// An open store.
pub struct Opened<W> {
    /// The writer.
    pub writer: W,
    /// The reader for the owner's own reads.
    pub reader: Arc<dyn JournalReader>,
    /// The reader for clients: however many there are, they do not delay those of the owner.
    pub client_reader: Arc<dyn JournalReader>,
    /// The store's random identity.
    pub store_id: String,
    /// Its position, and the positions of other services' stores.
    pub stores: Arc<Stores>,
    /// The fencing token of this opening, valid for all shards of an embedded store.
    pub fence: i64,
}

impl<W> Opened<W> {
    /// The store with another writer around its own.
    #[must_use]
    pub fn map_writer<V>(self, wrap: impl FnOnce(W) -> V) -> Opened<V> {
        let Self { writer, reader, client_reader, store_id, stores, fence } = self;
        Opened { writer: wrap(writer), reader, client_reader, store_id, stores, fence }
    }
}

/// A store that another process writes, opened to read it. It has no fence and takes no shard: nothing of the owner changes by it.
///
/// Guarantee 7 holds for its readers as well: what is committed can be read, at the latest a moment after the owner has the answer.
pub struct OpenedToRead {
    /// The reader.
    pub reader: Arc<dyn JournalReader>,
    /// The store's identity, [`Position::identity`](belay_proto::stores::Position::identity).
    pub identity: String,
    /// Changes when the owner has written something. A signal may come before what was written can be read, and may be missed: whoever follows the store
    /// also reads it at intervals.
    pub writes: tokio::sync::watch::Receiver<()>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_waits_has_what_was_put_in() {
        let waits = Waits::default().with(1).with(4).with(4);
        assert_eq!(waits, Waits(0b1_0010));
        assert_eq!([0, 1, 2, 4, 31].map(|kind| waits.contains(kind)), [false, true, false, true, false]);
        assert_eq!(waits.kinds().collect::<Vec<_>>(), [1, 4]);
        for unknown in [-1, 32, i32::MAX] {
            assert_eq!(waits.with(unknown), waits, "{unknown}");
            assert!(!waits.contains(unknown), "{unknown}");
        }
        assert_eq!(Waits::default().with(31).kinds().collect::<Vec<_>>(), [31]);
    }

    // A running execution does not write its summary for each step.
    #[test]
    fn a_summary_is_outdated_by_what_lists_are_found_by() {
        let old = ExecutionSummary { state: 2, updated_at: 10, ..ExecutionSummary::default() };
        let steps = StepCounts { total: 9, completed: 1, ..StepCounts::default() };
        assert!(!old.is_outdated_by(&ExecutionSummary { updated_at: 20, steps, ..old.clone() }));
        for newer in [
            ExecutionSummary { state: 3, ..old.clone() },
            ExecutionSummary { parked: true, ..old.clone() },
            ExecutionSummary { wake_at: Some(20), updated_at: 20, steps, ..old.clone() },
        ] {
            assert!(old.is_outdated_by(&newer), "{newer:?}");
        }
    }
}
