//! Writes to a store, and their outcomes.

use thiserror::Error;

use crate::{
    DeleteRequest, ExecutionKey, ExecutionSummary, Fence, Folder, InboxChanges, LimitChange, NewExecution, OutboxKey,
    OutboxMessage, ScheduleRow, Snapshot, TakenMessage, Transition, UsageChange,
};

/// A write to make durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreWrite {
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
        /// The changes of its limits over executions, in order.
        limits: Vec<LimitChange>,
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
        /// The changes of its limits over executions, in order.
        limits: Vec<LimitChange>,
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
        /// The request for it.
        request: DeleteRequest,
        /// The writer's fence.
        fence: Fence,
    },
    /// Removes some of a deleted execution's events; repeated until it returns [`StoreWriteOutcome::Erased`] with `complete`.
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
    /// Writes a schedule. Its revision is the next one, which is 1 for a new schedule; or the row is there already.
    PutSchedule {
        /// The row.
        schedule: ScheduleRow,
        /// The writer's fence.
        fence: Fence,
    },
    /// Deletes a schedule of this revision. One that is not there changes nothing.
    DeleteSchedule {
        /// The namespace's id.
        namespace: String,
        /// The schedule's id.
        id: String,
        /// Its revision.
        revision: u64,
        /// The writer's fence.
        fence: Fence,
    },
    /// Gives limits that were got after `latest`, which is now, in microseconds since the Unix epoch, this time: theirs comes from a clock that was ahead.
    ResetLimitTimes {
        /// The latest time that there can be.
        latest: i64,
        /// The writer's fence, for any shard.
        fence: Fence,
    },
    /// Removes the messages from before a time for webhooks that there are no more.
    DropMessages {
        /// The webhooks that there are.
        known: Vec<String>,
        /// The time, in microseconds since the Unix epoch.
        before: i64,
    },
}

/// The outcome of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreWriteOutcome {
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
    /// The summary is replaced; or the message is removed or postponed, or there was none; or the schedule is written or deleted.
    Changed,
}

/// The reason why a write was refused. It changed nothing.
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
    /// The store's data of the execution are damaged. The message names the row.
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
        /// From when on it can be used again, in microseconds since the Unix epoch; `None` while the deletion is in progress.
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
    /// A limit over executions has no room, or another execution waits for it.
    #[error("the limit `{key}` is full")]
    LimitFull {
        /// The key.
        key: String,
    },
    /// The stored schedule has another revision than the one before; 0 when there is none.
    #[error("the schedule has changed: its revision is {stored}")]
    ScheduleChanged {
        /// The revision that is stored.
        stored: u64,
    },
    /// The new folder has users, or a deletion removes it.
    #[error("folder `{0}` is in use")]
    FolderInUse(String),
    /// The last execution that used the folder was deleted.
    #[error("folder `{0}` is removed with the last execution that used it")]
    FolderGone(String),
}
