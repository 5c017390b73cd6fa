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
//!    disk is not known until the store is opened again. After [`StoreError::OutcomeUnknown`] the writer continues: such a batch is committed
//!    before the next commit of this writer, or never, and [`StoreWrite::outcome`] tells which.
//! 4. The events of one execution have no gaps: an append names the sequence it begins with, and the store checks it.
//! 5. An operation whose fence is lower than the highest the store has seen for its shard is refused.
//! 6. An execution has at most one key, which is stored together with the first transition that it seals.
//! 7. A reader sees every committed operation, and nothing else.
//! 8. What was changed on the disk is never returned: a read of the execution that it belongs to fails with [`StoreError::Damaged`], an append to it
//!    is refused, and lists leave it out. Everything else can be used.
//! 9. A deleted execution is gone for every reader when the deletion is committed, and with it its key, without which nothing that it sealed can
//!    be opened. A [`Deletion`] stays in its place: its events are removed in small steps ([`StoreWrite::Erase`]), and when it is closed
//!    ([`StoreWrite::CloseDeletion`]), the store's files have none of the execution's bytes. Until its name is free again, a repetition of the request that
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
//! 15. A schedule is written and deleted whole, only as the revision after the one that is stored ([`ScheduleRow::revision`]): of two writers that have read
//!     the same, one is refused ([`Refused::ScheduleChanged`]). A write that is repeated changes nothing more.
//! 16. Who holds a limit over executions and who waits for it follows from the changes that were committed ([`LimitChange`]), also those of other writers. A transition
//!     that takes a limit which has no room, or before its turn, is refused ([`Refused::LimitFull`]) and changes nothing. An execution that is deleted leaves
//!     its starts in the windows of rates, under the keys of those limits.
//!
//! Owners. An embedded store has one owner, which holds all shards from [`OpenedStore::fence`] on until the store is opened again; nothing has to be
//! claimed or renewed, because the fence rises in the same step in which the store's lock is taken. A store that several executors share, such as
//! PostgreSQL, adds to this port: claiming shards, which raises the fence of each of them; a lease for each claim, renewed by its owner and
//! claimable by others once it has run out; and a shard in [`JournalReader::claimable`] and [`JournalReader::due`], so that an owner sees its own. The
//! fence is what keeps an execution whole (guarantee 5): a lease only decides when another owner may try.

mod changes;
pub mod conformance;
mod deletion;
mod error;
mod evidence;
mod folder;
mod inbox;
mod limit;
mod outbox;
mod query;
mod record;
mod schedule;
mod usage;
mod write;

use std::{pin::Pin, sync::Arc};

use belay_proto::stores::Stores;

pub use belay_reasons::StoreFault;
pub use changes::{Change, Changes, Cursor};
pub use deletion::{DeleteRequest, Deletion, StartRequest, start_request};
pub use error::StoreError;
pub use evidence::Evidence;
pub use folder::Folder;
pub use inbox::{InboxChanges, InboxContent, InboxMessage, InboxRow, TakenMessage};
pub use limit::{
    AwaitedLimit, LimitBound, LimitChange, LimitClaim, LimitEntry, LimitStanding, MAX_LIMIT_EXECUTIONS, standing,
};
pub use outbox::{OutboxKey, OutboxMessage, OutboxRow};
pub use query::{AnyOf, Comparison, Condition, MAX_EXAMINED, Order, OrderBy, Page, Position, Query};
pub use record::{
    ExecutionKey, ExecutionRow, ExecutionSummary, Fence, NewExecution, ParentStep, Snapshot, StepCounts,
    StoredExecution, StoredTransition, Transition, Waits,
};
pub use schedule::ScheduleRow;
pub use usage::{UsageAmounts, UsageChange, UsageLimit, UsageRow, removed_up_to};
pub use write::{Refused, StoreWrite, StoreWriteOutcome};

/// The number of shards. An execution never changes its shard; owners hold shards.
pub const SHARDS: u32 = 64;

/// The writer of a store. One exists at a time.
pub trait JournalWriter: Send + 'static {
    /// Whether a commit blocks the thread that awaits it, so that it needs one of its own.
    fn blocks(&self) -> bool;

    /// Makes the batch durable, in order, and returns the result of each operation. It is awaited to its end.
    ///
    /// # Errors
    /// [`StoreError`] when the batch as a whole failed; see guarantee 3.
    fn commit(&mut self, batch: &[StoreWrite]) -> impl Future<Output = BatchOutcome> + Send;
}

/// The outcome of a batch: of each operation, in order.
pub type BatchOutcome = Result<Vec<Result<StoreWriteOutcome, Refused>>, StoreError>;

/// A read that is under way. It is boxed, since readers are chosen when a store is opened; it costs less than any read does.
pub type Reading<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// The reader of a store. No read blocks the thread that awaits it, and each sees the store at one moment. One that is dropped is given up.
pub trait JournalReader: Send + Sync {
    /// Reads an execution by its name.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read; the same for all methods.
    fn find(&self, namespace: &str, id: &str) -> Reading<'_, Option<ExecutionRow>>;

    /// Reads an execution by its key.
    fn get(&self, key: ExecutionKey) -> Reading<'_, Option<ExecutionRow>>;

    /// Returns a page of the executions that match a query. Reads at most [`MAX_EXAMINED`] executions, or as many as the page is long, beside those
    /// that the store passes over without reading them: the page may be shorter than `limit`, and even empty, although there is a next one.
    fn list(&self, query: &Query) -> Reading<'_, Page>;

    /// The namespaces that have executions, in order, those after `after` and at most `limit` of them.
    fn namespaces(&self, after: &str, limit: usize) -> Reading<'_, Vec<String>>;

    /// Everything that an execution is loaded from, read together. With `snapshot`, its snapshot of that version is used, if it has one that is
    /// intact. [`StoreError::Missing`] when there is no such execution.
    fn load(&self, key: ExecutionKey, snapshot: Option<u32>) -> Reading<'_, StoredExecution>;

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

    /// How an execution stands in a limit at a time in microseconds since the Unix epoch. `None` stands for one that is yet to be created.
    fn limit_standing(
        &self,
        namespace: &str,
        execution: Option<ExecutionKey>,
        claim: &LimitClaim,
        at: i64,
    ) -> Reading<'_, LimitStanding>;

    /// The keys of the limits that an execution holds.
    fn limits_held(&self, key: ExecutionKey) -> Reading<'_, Vec<String>>;

    /// The limits for which executions wait, each with the execution whose turn it is, in the order of namespaces and keys: those after `after`, a namespace
    /// and a key, at most `limit`.
    fn awaited_limits(&self, after: (&str, &str), limit: usize) -> Reading<'_, Vec<AwaitedLimit>>;

    /// The execution whose turn in a limit it is; `None` when none waits.
    fn next_in_limit(&self, namespace: &str, key: &str) -> Reading<'_, Option<ExecutionKey>>;

    /// Reads a schedule by its name.
    fn schedule(&self, namespace: &str, id: &str) -> Reading<'_, Option<ScheduleRow>>;

    /// The schedules of a namespace, or of all when it is empty, in the order of namespaces and ids: those after `after`, a namespace and an id, at most
    /// `limit`.
    fn schedules(&self, namespace: &str, after: (&str, &str), limit: usize) -> Reading<'_, Vec<ScheduleRow>>;

    /// The executions whose inboxes are not empty, in the order of their keys: those after `after`, at most `limit`.
    fn recipients(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionKey>>;

    /// The deletions that are not closed, in the order of their keys: those after `after`, at most `limit`.
    fn open_deletions(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<Deletion>>;
}

/// An open store.
pub struct OpenedStore<W> {
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

impl<W> OpenedStore<W> {
    /// The store with another writer around its own.
    #[must_use]
    pub fn map_writer<V>(self, wrap: impl FnOnce(W) -> V) -> OpenedStore<V> {
        let Self { writer, reader, client_reader, store_id, stores, fence } = self;
        OpenedStore { writer: wrap(writer), reader, client_reader, store_id, stores, fence }
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
