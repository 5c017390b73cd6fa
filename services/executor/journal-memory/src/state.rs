//! State of the store, and the change that each operation makes. An operation is checked completely before its first change.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::AtomicUsize},
};

use belay_journal::{
    Change, Deletion, ExecutionKey, ExecutionRow, ExecutionSummary, Fence, Folder, InboxChanges, InboxMessage,
    InboxRow, LimitChange, LimitEntry, NewExecution, OutboxKey, OutboxMessage, OutboxRow, Refused, SHARDS, ScheduleRow,
    Snapshot, StoreWrite, StoreWriteOutcome, TakenMessage, Transition, UsageChange, UsageRow, removed_up_to,
    start_request,
};
use belay_proto::stores::Stores;
use tokio::sync::watch;

/// An execution with everything that it takes with it when it is deleted.
#[derive(Debug)]
pub(crate) struct ExecutionEntry {
    pub(crate) row: ExecutionRow,
    /// With the token that each was written with.
    pub(crate) transitions: Vec<(Transition, i64)>,
    pub(crate) seal_key: Option<Vec<u8>>,
    pub(crate) snapshot: Option<Snapshot>,
    /// The id of the folder that it works in.
    folder: Option<String>,
}

impl ExecutionEntry {
    fn last_sequence(&self) -> u64 {
        self.transitions.last().map_or(0, |(transition, _)| transition.last_sequence())
    }
}

/// The whole store, as its writers and readers share it.
#[derive(Clone, Debug)]
pub(crate) struct SharedStore {
    state: Arc<Mutex<State>>,
    pub(crate) stores: Arc<Stores>,
    /// How many transitions readers were given.
    pub(crate) transitions_read: Arc<AtomicUsize>,
    /// Changes with every commit.
    pub(crate) writes: watch::Sender<()>,
}

impl SharedStore {
    pub(crate) fn new(stores: Stores) -> Self {
        Self {
            state: Arc::default(),
            stores: Arc::new(stores),
            transitions_read: Arc::default(),
            writes: watch::Sender::default(),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Everything that is stored.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) executions: BTreeMap<ExecutionKey, ExecutionEntry>,
    /// Deletions, and how many transitions of each are left.
    pub(crate) deletions: BTreeMap<ExecutionKey, (Deletion, usize)>,
    /// Committed transitions, by their positions.
    pub(crate) log: BTreeMap<i64, Change>,
    /// The messages for webhooks.
    pub(crate) outbox: BTreeMap<OutboxKey, OutboxRow>,
    last_message: i64,
    /// The messages between executions, by recipient and sender.
    pub(crate) inboxes: BTreeMap<(ExecutionKey, ExecutionKey), InboxRow>,
    /// Schedules, by namespace and id.
    pub(crate) schedules: BTreeMap<(String, String), ScheduleRow>,
    /// Use of budgets, by namespace and window.
    usage: BTreeMap<(String, i64, i64), UsageRow>,
    /// Limits over executions, by namespace and key.
    pub(crate) limits: BTreeMap<(String, String), Vec<LimitEntry>>,
    /// The position of what was committed last.
    pub(crate) position: i64,
    last_key: i64,
    /// The token of the last opening, which is the newest of every shard.
    fence: i64,
}

type Outcome = Result<StoreWriteOutcome, Refused>;

impl State {
    pub(crate) fn raise_fence(&mut self) -> i64 {
        self.fence += 1;
        self.fence
    }

    pub(crate) fn newest_token(&self) -> i64 {
        self.fence
    }

    pub(crate) fn named(&self, namespace: &str, id: &str) -> Option<&ExecutionEntry> {
        let named =
            |stored: &&ExecutionEntry| stored.row.execution.namespace == namespace && stored.row.execution.id == id;
        self.executions.values().find(named)
    }

    pub(crate) fn perform(&mut self, operation: StoreWrite) -> Outcome {
        if let Some(fence) = fence_of(&operation) {
            self.check_fence(fence)?;
        }
        match operation {
            StoreWrite::Create { execution, transition, summary, seal_key, outbox, inbox, folder, limits, fence } => {
                let created = self.create(execution, transition, summary, seal_key, (folder, &limits), fence)?;
                if let StoreWriteOutcome::Created(key) = created {
                    self.change_limits(key, limits);
                    self.keep_messages(key, outbox);
                    self.change_inboxes(key, inbox);
                }
                Ok(created)
            }
            StoreWrite::Append { key, transition, summary, seal_key, outbox, inbox, usage, limits, fence } => {
                let appended = self.append(key, transition, summary, seal_key, (&usage, &limits), fence)?;
                self.change_usage(&usage);
                self.change_limits(key, limits);
                self.keep_messages(key, outbox);
                self.change_inboxes(key, inbox);
                Ok(appended)
            }
            StoreWrite::Summarize { key, summary, .. } => {
                self.stored(key)?.row.summary = summary;
                Ok(StoreWriteOutcome::Changed)
            }
            StoreWrite::TakeMessages { key, taken, .. } => {
                self.change_inboxes(key, InboxChanges { sent: Vec::new(), taken });
                Ok(StoreWriteOutcome::Changed)
            }
            StoreWrite::KeepSnapshot { key, snapshot, .. } => {
                let stored = self.stored(key)?;
                let last = stored.last_sequence();
                if snapshot.sequence > last {
                    return Err(Refused::Gap { first: snapshot.sequence, last });
                }
                stored.snapshot = Some(snapshot);
                Ok(StoreWriteOutcome::Kept)
            }
            StoreWrite::Delete { key, deleted_at, request, .. } => {
                if !self.stored(key)?.row.summary.ended {
                    return Err(Refused::NotEnded(key));
                }
                if let Some(&(parent, _)) = self.inboxes.keys().find(|(_, from)| *from == key) {
                    return Err(Refused::Unrecorded { key, parent });
                }
                let ExecutionEntry { row, transitions, folder, .. } =
                    self.executions.remove(&key).ok_or(Refused::Missing(key))?;
                let NewExecution { namespace, id, shard, principal, request_id, .. } = row.execution;
                let folder = folder.filter(|folder| !self.is_in_use(&namespace, folder));
                let start_request = start_request(&principal, &request_id);
                let deletion = Deletion {
                    key,
                    namespace,
                    id,
                    shard,
                    deleted_at,
                    request,
                    start_request,
                    folder,
                    reusable_at: None,
                };
                self.deletions.insert(key, (deletion, transitions.len()));
                self.outbox.retain(|_, row| row.execution != key);
                self.inboxes.retain(|(to, _), _| *to != key);
                self.position += 1;
                Ok(StoreWriteOutcome::Deleted)
            }
            StoreWrite::Erase { key, max_transitions, .. } => {
                let (_, left) = self.deletions.get_mut(&key).ok_or(Refused::Missing(key))?;
                *left = left.saturating_sub(max_transitions);
                Ok(StoreWriteOutcome::Erased { complete: *left == 0 })
            }
            StoreWrite::CloseDeletion { key, reusable_at, .. } => {
                let (deletion, left) = self.deletions.get_mut(&key).ok_or(Refused::Missing(key))?;
                if *left > 0 {
                    return Err(Refused::NotErased(key));
                }
                deletion.reusable_at = Some(reusable_at);
                self.log.retain(|_, change| change.key != key);
                Ok(StoreWriteOutcome::Closed)
            }
            StoreWrite::DropDeletions { now, latest } => {
                for (deletion, _) in self.deletions.values_mut() {
                    deletion.reusable_at = deletion.reusable_at.map(|at| at.min(latest));
                }
                let before = self.deletions.len();
                self.deletions.retain(|_, (deletion, _)| deletion.reusable_at.is_none_or(|at| at > now));
                Ok(StoreWriteOutcome::Dropped(before - self.deletions.len()))
            }
            StoreWrite::RemoveMessage { key } => {
                self.outbox.remove(&key);
                Ok(StoreWriteOutcome::Changed)
            }
            StoreWrite::PostponeMessage { key, attempts, next_at } => {
                if let Some(row) = self.outbox.get_mut(&key) {
                    (row.attempts, row.next_at) = (attempts, next_at);
                }
                Ok(StoreWriteOutcome::Changed)
            }
            StoreWrite::RescheduleMessages { webhook, latest, now } => {
                let rows = self.outbox.values_mut();
                for row in rows.filter(|row| row.message.webhook == webhook && row.next_at > latest) {
                    row.message.created_at = row.message.created_at.min(now);
                    row.next_at = now;
                }
                Ok(StoreWriteOutcome::Changed)
            }
            StoreWrite::PutSchedule { schedule, .. } => {
                let place = (schedule.namespace.clone(), schedule.id.clone());
                let stored = self.schedules.get(&place);
                let revision = stored.map_or(0, |stored| stored.revision);
                if revision + 1 != schedule.revision && stored != Some(&schedule) {
                    return Err(Refused::ScheduleChanged { stored: revision });
                }
                self.schedules.insert(place, schedule);
                Ok(StoreWriteOutcome::Changed)
            }
            StoreWrite::DeleteSchedule { namespace, id, revision, .. } => {
                let place = (namespace, id);
                match self.schedules.get(&place) {
                    Some(stored) if stored.revision != revision => {
                        return Err(Refused::ScheduleChanged { stored: stored.revision });
                    }
                    Some(_) | None => self.schedules.remove(&place),
                };
                Ok(StoreWriteOutcome::Changed)
            }
            StoreWrite::ResetLimitTimes { latest, .. } => {
                for entry in self.limits.values_mut().flatten() {
                    entry.held_at = entry.held_at.map(|held_at| held_at.min(latest));
                }
                Ok(StoreWriteOutcome::Changed)
            }
            StoreWrite::DropMessages { known, before } => {
                let count = self.outbox.len();
                self.outbox.retain(|_, row| row.message.created_at >= before || known.contains(&row.message.webhook));
                Ok(StoreWriteOutcome::Dropped(count - self.outbox.len()))
            }
        }
    }

    fn check_fence(&self, Fence { shard, token }: Fence) -> Result<(), Refused> {
        let newest = if shard < SHARDS { self.fence } else { i64::MAX };
        if token < newest { Err(Refused::Fenced { shard, yours: token, newest }) } else { Ok(()) }
    }

    fn stored(&mut self, key: ExecutionKey) -> Result<&mut ExecutionEntry, Refused> {
        self.executions.get_mut(&key).ok_or(Refused::Missing(key))
    }

    /// Whether an execution uses a folder.
    fn is_in_use(&self, namespace: &str, folder: &str) -> bool {
        let uses = |stored: &ExecutionEntry| {
            stored.row.execution.namespace == namespace && stored.folder.as_deref() == Some(folder)
        };
        self.executions.values().any(uses)
    }

    fn check_folder(&self, namespace: &str, folder: &Folder) -> Result<(), Refused> {
        let removes = |(deletion, _): &(Deletion, usize)| {
            deletion.reusable_at.is_none()
                && deletion.namespace == namespace
                && deletion.folder.as_deref() == Some(folder.id())
        };
        let is_in_use = self.is_in_use(namespace, folder.id());
        match folder {
            Folder::New(id) if is_in_use || self.deletions.values().any(removes) => {
                Err(Refused::FolderInUse(id.clone()))
            }
            Folder::Shared(id) if !is_in_use => Err(Refused::FolderGone(id.clone())),
            Folder::New(_) | Folder::Shared(_) => Ok(()),
        }
    }

    /// See [`JournalReader::request_used`](belay_journal::JournalReader::request_used).
    pub(crate) fn request_used(
        &self,
        namespace: &str,
        principal: &str,
        request_id: &str,
        hash: &str,
        at: i64,
    ) -> Option<Refused> {
        let request = start_request(principal, request_id)?;
        let has_started = |ExecutionEntry { row, .. }: &&ExecutionEntry| {
            let NewExecution { namespace: of, principal: by, request_id: with, .. } = &row.execution;
            (of.as_str(), by.as_str(), with.as_str()) == (namespace, principal, request_id)
        };
        if let Some(ExecutionEntry { row, .. }) = self.executions.values().find(has_started) {
            let same_request = row.execution.request_hash == hash;
            return Some(Refused::RequestIdUsed { existing: row.key, same_request });
        }
        let had_started = |(deletion, _): &&(Deletion, usize)| {
            (deletion.namespace.as_str(), deletion.start_request.as_ref()) == (namespace, Some(&request))
                && deletion.reusable_at.is_none_or(|reusable_at| reusable_at > at)
        };
        let (Deletion { namespace, id, .. }, _) = self.deletions.values().find(had_started)?;
        Some(Refused::RequestDeleted { namespace: namespace.clone(), id: id.clone() })
    }

    fn create(
        &mut self,
        execution: NewExecution,
        transition: Transition,
        summary: ExecutionSummary,
        seal_key: Option<Vec<u8>>,
        (folder, limits): (Option<Folder>, &[LimitChange]),
        fence: Fence,
    ) -> Outcome {
        if transition.first_sequence != 1 {
            return Err(Refused::Gap { first: transition.first_sequence, last: 0 });
        }
        // The request id is checked first, because a repeated request usually has the same execution id too.
        let NewExecution { namespace, principal, request_id, request_hash, created_at, .. } = &execution;
        if let Some(refused) = self.request_used(namespace, principal, request_id, request_hash, *created_at) {
            return Err(refused);
        }
        if let Some(ExecutionEntry { row, .. }) = self.named(&execution.namespace, &execution.id) {
            return Err(Refused::IdTaken { id: execution.id, existing: row.key });
        }
        if let Some(folder) = &folder {
            self.check_folder(&execution.namespace, folder)?;
        }
        self.check_limits(&execution.namespace, None, limits)?;
        let named = |(deletion, _): &&(Deletion, usize)| {
            (&deletion.namespace, &deletion.id) == (&execution.namespace, &execution.id)
        };
        if let Some((Deletion { key, reusable_at, .. }, _)) = self.deletions.values().find(named) {
            if reusable_at.is_none_or(|at| at > execution.created_at) {
                return Err(Refused::IdDeleted { id: execution.id, reusable_at: *reusable_at });
            }
            let key = *key;
            self.deletions.remove(&key);
        }
        self.last_key += 1;
        let key = ExecutionKey(self.last_key);
        self.record(key, &transition);
        let row = ExecutionRow { key, execution, summary, revision: transition.last_sequence() };
        let transitions = vec![(transition, fence.token)];
        let folder = folder.map(|folder| folder.id().to_owned());
        self.executions.insert(key, ExecutionEntry { row, transitions, seal_key, snapshot: None, folder });
        Ok(StoreWriteOutcome::Created(key))
    }

    fn append(
        &mut self,
        key: ExecutionKey,
        transition: Transition,
        summary: Option<ExecutionSummary>,
        seal_key: Option<Vec<u8>>,
        (usage, limits): (&[UsageChange], &[LimitChange]),
        fence: Fence,
    ) -> Outcome {
        let over = usage.iter().find(|change| change.holds() && self.usage_of(change).after(change).is_none());
        let over = over.map(|change| Refused::OverBudget { namespace: change.namespace.clone() });
        let namespace = self.stored(key)?.row.execution.namespace.clone();
        let full = self.check_limits(&namespace, Some(key), limits);
        let stored = self.stored(key)?;
        let last = stored.last_sequence();
        if transition.first_sequence != last + 1 {
            return Err(Refused::Gap { first: transition.first_sequence, last });
        }
        if seal_key.is_some() && stored.seal_key.is_some() {
            return Err(Refused::HasSealKey(key));
        }
        if let Some(over) = over {
            return Err(over);
        }
        full?;
        stored.seal_key = stored.seal_key.take().or(seal_key);
        if let Some(summary) = summary {
            stored.row.summary = summary;
            stored.row.revision = transition.last_sequence();
        }
        stored.transitions.push((transition.clone(), fence.token));
        self.record(key, &transition);
        Ok(StoreWriteOutcome::Appended)
    }

    fn keep_messages(&mut self, execution: ExecutionKey, messages: Vec<OutboxMessage>) {
        for message in messages {
            self.last_message += 1;
            let (key, next_at) = (OutboxKey(self.last_message), message.created_at);
            self.outbox.insert(key, OutboxRow { key, execution, message, attempts: 0, next_at });
        }
    }

    fn change_inboxes(&mut self, key: ExecutionKey, changes: InboxChanges) {
        for InboxMessage { to, revision, content } in changes.sent {
            if self.executions.contains_key(&to) {
                self.inboxes.insert((to, key), InboxRow { to, from: key, revision, content });
            }
        }
        for TakenMessage { from, revision } in changes.taken {
            self.inboxes.retain(|place, row| *place != (key, from) || row.revision > revision);
        }
    }

    /// The row that a change is for, as it is before that.
    fn usage_of(&self, change: &UsageChange) -> UsageRow {
        let place = (change.namespace.clone(), change.start, change.end);
        self.usage.get(&place).copied().unwrap_or_else(|| UsageRow::new(change.start, change.end))
    }

    fn change_usage(&mut self, changes: &[UsageChange]) {
        for change in changes {
            let place = (change.namespace.clone(), change.start, change.end);
            let is_new = !self.usage.contains_key(&place);
            if is_new && !change.holds() {
                continue;
            }
            let Some(row) = self.usage_of(change).after(change) else { continue };
            if is_new {
                let kept = self.usage_in(&change.namespace);
                let removed = removed_up_to(change.start, kept.into_iter());
                self.usage.retain(|(namespace, start, end), _| {
                    *namespace != change.namespace
                        || *end > change.start
                        || removed.is_none_or(|removed| *start > removed)
                });
            }
            self.usage.insert(place, row);
        }
    }

    /// The rows of a namespace, in the order of their windows.
    pub(crate) fn usage_in(&self, namespace: &str) -> Vec<UsageRow> {
        self.usage.iter().filter(|((of, ..), _)| of == namespace).map(|(_, row)| *row).collect()
    }

    fn record(&mut self, key: ExecutionKey, transition: &Transition) {
        self.position += 1;
        let (first_sequence, last_sequence) = (transition.first_sequence, transition.last_sequence());
        self.log.insert(self.position, Change { key, first_sequence, last_sequence });
    }
}

fn fence_of(operation: &StoreWrite) -> Option<Fence> {
    match operation {
        StoreWrite::Create { fence, .. }
        | StoreWrite::Append { fence, .. }
        | StoreWrite::Summarize { fence, .. }
        | StoreWrite::TakeMessages { fence, .. }
        | StoreWrite::KeepSnapshot { fence, .. }
        | StoreWrite::Delete { fence, .. }
        | StoreWrite::Erase { fence, .. }
        | StoreWrite::CloseDeletion { fence, .. }
        | StoreWrite::PutSchedule { fence, .. }
        | StoreWrite::ResetLimitTimes { fence, .. }
        | StoreWrite::DeleteSchedule { fence, .. } => Some(*fence),
        StoreWrite::DropDeletions { .. }
        | StoreWrite::RemoveMessage { .. }
        | StoreWrite::PostponeMessage { .. }
        | StoreWrite::RescheduleMessages { .. }
        | StoreWrite::DropMessages { .. } => None,
    }
}
