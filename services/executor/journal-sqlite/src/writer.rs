//! The writer: a batch is one transaction, and each operation is checked completely before its first change.

mod delete;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, LazyLock, MutexGuard, PoisonError},
};

use belay_defects::{Defect, is_planted};
use belay_journal::{
    BatchOutcome, ExecutionKey, ExecutionSummary, Fence, Folder, JournalWriter, LimitChange, NewExecution, Refused,
    SHARDS, Snapshot, StepCounts, StoreError, StoreWrite, StoreWriteOutcome, Transition, UsageChange,
};
use belay_proto::stores::Stores;
use belay_sqlite::{DamagedRow, SqliteError, Store, Threads};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::{
    error::store_error,
    head::{Head, Heads},
    inbox,
    intervals::Intervals,
    limits, outbox,
    rows::{self, RowResult, read_labels, recorded_head, write_labels},
    schedules,
    schema::{EXECUTION, HEAD, LOG, META, SEAL_KEY, SNAPSHOT, WAYPOINT},
    usage,
};

/// The writer of a journal on SQLite.
pub struct SqliteWriter {
    store: Store,
    threads: Threads,
    heads: Heads,
    /// The highest fence seen for each shard.
    fences: [i64; SHARDS as usize],
    rows_since_checkpoint: u64,
    /// The key of the log's last row, which serves as the number of the last commit: a counter in a row of its own would add a page to each commit.
    last_row: i64,
    /// The key of the last execution.
    last_key: i64,
    intervals: Intervals,
    stores: Arc<Stores>,
    /// A deletion was closed, and the write-ahead log may still have what was deleted.
    log_has_deleted: bool,
    /// A commit failed, so the state on disk is not known.
    broken: bool,
}

impl SqliteWriter {
    pub(crate) fn new(
        store: Store,
        threads: Threads,
        heads: Heads,
        fences: [i64; SHARDS as usize],
        intervals: Intervals,
        (last_row, last_key): (i64, i64),
        stores: Arc<Stores>,
    ) -> Self {
        let rows_since_checkpoint = heads.read().unwrap_or_else(PoisonError::into_inner).len() as u64;
        Self {
            store,
            threads,
            heads,
            fences,
            rows_since_checkpoint,
            intervals,
            last_row,
            last_key,
            stores,
            log_has_deleted: false,
            broken: false,
        }
    }
}

impl JournalWriter for SqliteWriter {
    fn blocks(&self) -> bool {
        self.threads.are_real()
    }

    fn commit(&mut self, batch: &[StoreWrite]) -> impl Future<Output = BatchOutcome> + Send {
        std::future::ready(self.write(batch))
    }
}

impl SqliteWriter {
    fn write(&mut self, batch: &[StoreWrite]) -> BatchOutcome {
        if self.broken {
            return Err(StoreError::Broken);
        }
        self.store.make_room();
        let may_empty_log = batch
            .iter()
            .any(|operation| matches!(operation, StoreWrite::CloseDeletion { .. } | StoreWrite::DropDeletions { .. }));
        let connection = self.store.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut transaction = Transaction {
            connection,
            heads: &self.heads,
            fences: &self.fences,
            intervals: self.intervals,
            stores: &self.stores,
            changed: HashMap::new(),
            deleted: HashSet::new(),
            rows: 0,
            last_row: self.last_row,
            last_key: self.last_key,
        };
        let committed = transaction.run(batch, self.rows_since_checkpoint);
        self.last_row = transaction.last_row;
        self.last_key = transaction.last_key;
        let deleted = std::mem::take(&mut transaction.deleted);
        let committed = committed.map_err(SqliteError::from).and_then(|committed| {
            let has_deleted =
                |answer: &_| matches!(answer, Ok(StoreWriteOutcome::Closed | StoreWriteOutcome::Dropped(1..)));
            self.log_has_deleted |= committed.0.iter().any(has_deleted);
            // When a reader is in the way, the next of these operations tries again.
            if self.log_has_deleted && may_empty_log {
                self.log_has_deleted = !belay_sqlite::empty_log(&transaction.connection)?;
            }
            self.store.check_in_place()?;
            self.stores.committed(self.last_row);
            Ok(committed)
        });
        match committed {
            Ok((answers, changed, since_checkpoint)) => {
                let mut heads = self.heads.write().unwrap_or_else(PoisonError::into_inner);
                if since_checkpoint == 0 {
                    heads.clear();
                } else {
                    heads.extend(changed);
                    for key in deleted {
                        heads.remove(&key);
                    }
                }
                self.rows_since_checkpoint = since_checkpoint;
                Ok(answers)
            }
            Err(error) => {
                self.broken = true;
                Err(store_error(error))
            }
        }
    }
}

/// The transaction of one batch.
struct Transaction<'a> {
    connection: MutexGuard<'a, Connection>,
    heads: &'a Heads,
    fences: &'a [i64; SHARDS as usize],
    intervals: Intervals,
    stores: &'a Stores,
    /// The heads as this batch leaves them.
    changed: HashMap<ExecutionKey, Head>,
    /// The executions that this batch deletes.
    deleted: HashSet<ExecutionKey>,
    rows: u64,
    /// The key of the log's last row.
    last_row: i64,
    /// The key of the last execution.
    last_key: i64,
}

type FilledBatch = (Vec<Result<StoreWriteOutcome, Refused>>, HashMap<ExecutionKey, Head>, u64);

impl Transaction<'_> {
    fn run(&mut self, batch: &[StoreWrite], rows_before: u64) -> Result<FilledBatch, rusqlite::Error> {
        self.connection.execute_batch("BEGIN IMMEDIATE")?;
        let committed = self
            .fill(batch, rows_before)
            .and_then(|committed| belay_sqlite::store_updates(&self.connection, self.stores).map(|()| committed));
        match committed {
            Ok(committed) => {
                self.connection.execute_batch("COMMIT")?;
                Ok(committed)
            }
            Err(error) => {
                // The writer is broken from here on; the rollback only lets readers continue.
                drop(self.connection.execute_batch("ROLLBACK"));
                Err(error)
            }
        }
    }

    fn fill(&mut self, batch: &[StoreWrite], rows_before: u64) -> Result<FilledBatch, rusqlite::Error> {
        let mut answers = Vec::with_capacity(batch.len());
        for operation in batch {
            let db = &self.connection;
            answers.push(match operation {
                StoreWrite::Create {
                    execution,
                    transition,
                    summary,
                    seal_key,
                    outbox,
                    inbox,
                    folder,
                    limits,
                    fence,
                } => {
                    let seal_key = seal_key.as_deref();
                    let created =
                        self.create(execution, transition, summary, seal_key, (folder.as_ref(), limits), *fence)?;
                    if let Ok(StoreWriteOutcome::Created(key)) = &created {
                        limits::change(&self.connection, &execution.namespace, *key, limits)?;
                        outbox::insert(&self.connection, *key, outbox)?;
                        inbox::send(&self.connection, *key, &inbox.sent)?;
                    }
                    created
                }
                StoreWrite::Append { key, transition, summary, seal_key, outbox, inbox, usage, limits, fence } => {
                    let namespace = match limits.is_empty() {
                        true => None,
                        false => rows::namespace(db, *key)?,
                    };
                    let limited = namespace.as_deref().map(|namespace| (namespace, limits.as_slice()));
                    let (summary, seal_key) = (summary.as_ref(), seal_key.as_deref());
                    let appended = self.append(*key, transition, summary, seal_key, (usage, limited), *fence)?;
                    if appended.is_ok() {
                        if let Some((namespace, limits)) = limited {
                            limits::change(&self.connection, namespace, *key, limits)?;
                        }
                        usage::change(&self.connection, usage)?;
                        outbox::insert(&self.connection, *key, outbox)?;
                        inbox::send(&self.connection, *key, &inbox.sent)?;
                        inbox::take(&self.connection, *key, &inbox.taken)?;
                    }
                    appended
                }
                StoreWrite::Summarize { key, summary, fence } => self.summarize(*key, summary, *fence)?,
                StoreWrite::TakeMessages { key, taken, fence } => match self.check_fence(*fence) {
                    Ok(()) => {
                        inbox::take(&self.connection, *key, taken)?;
                        Ok(StoreWriteOutcome::Changed)
                    }
                    Err(refused) => Err(refused),
                },
                StoreWrite::KeepSnapshot { key, snapshot, fence } => self.keep_snapshot(*key, snapshot, *fence)?,
                StoreWrite::Delete { key, deleted_at, request, fence } => {
                    self.delete(*key, *deleted_at, request, *fence)?
                }
                StoreWrite::Erase { key, max_transitions, fence } => self.erase(*key, *max_transitions, *fence)?,
                StoreWrite::CloseDeletion { key, reusable_at, fence } => {
                    self.close_deletion(*key, *reusable_at, *fence)?
                }
                StoreWrite::DropDeletions { now, latest } => {
                    Ok(StoreWriteOutcome::Dropped(self.drop_deletions(*now, *latest)?))
                }
                StoreWrite::RemoveMessage { key } => {
                    outbox::remove(db, *key)?;
                    Ok(StoreWriteOutcome::Changed)
                }
                StoreWrite::PostponeMessage { key, attempts, next_at } => {
                    outbox::postpone(&self.connection, *key, *attempts, *next_at)?;
                    Ok(StoreWriteOutcome::Changed)
                }
                StoreWrite::RescheduleMessages { webhook, latest, now } => {
                    outbox::reschedule(&self.connection, webhook, *latest, *now)?;
                    Ok(StoreWriteOutcome::Changed)
                }
                StoreWrite::PutSchedule { schedule, fence } => schedules::put(db, schedule, self.check_fence(*fence))?,
                StoreWrite::DeleteSchedule { namespace, id, revision, fence } => {
                    schedules::delete(db, (namespace, id), *revision, self.check_fence(*fence))?
                }
                StoreWrite::ResetLimitTimes { latest, fence } => match self.check_fence(*fence) {
                    Ok(()) => {
                        limits::reset_times(db, *latest)?;
                        Ok(StoreWriteOutcome::Changed)
                    }
                    Err(refused) => Err(refused),
                },
                StoreWrite::DropMessages { known, before } => {
                    Ok(StoreWriteOutcome::Dropped(outbox::drop_unknown(&self.connection, known, *before)?))
                }
            });
        }
        if !self.deleted.is_empty() {
            belay_sqlite::keep_number(&self.connection, self.stores, self.last_row)?;
        }
        let mut since_checkpoint = rows_before + self.rows;
        if since_checkpoint >= self.intervals.checkpoint_rows {
            self.checkpoint()?;
            since_checkpoint = 0;
        }
        Ok((answers, std::mem::take(&mut self.changed), since_checkpoint))
    }

    fn check_fence(&self, fence: Fence) -> Result<(), Refused> {
        let newest = self.fences.get(fence.shard as usize).copied().unwrap_or(i64::MAX);
        if fence.token < newest && !is_planted(Defect::NoFence) {
            return Err(Refused::Fenced { shard: fence.shard, yours: fence.token, newest });
        }
        Ok(())
    }

    fn create(
        &mut self,
        execution: &NewExecution,
        transition: &Transition,
        summary: &ExecutionSummary,
        seal_key: Option<&[u8]>,
        (folder, limits): (Option<&Folder>, &[LimitChange]),
        fence: Fence,
    ) -> Result<Result<StoreWriteOutcome, Refused>, rusqlite::Error> {
        if let Err(refused) = self.check_fence(fence) {
            return Ok(Err(refused));
        }
        if transition.first_sequence != 1 {
            return Ok(Err(Refused::Gap { first: transition.first_sequence, last: 0 }));
        }
        // The request id is checked first, because a repeated request usually has the same execution id too.
        let NewExecution { namespace, principal, request_id, request_hash, created_at, .. } = execution;
        let used = rows::request_used(&self.connection, namespace, principal, request_id, request_hash, *created_at)?;
        if let Some(refused) = used {
            return Ok(Err(refused));
        }
        let taken: Option<i64> = self
            .connection
            .prepare_cached("SELECT exec FROM execution WHERE namespace = ?1 AND id = ?2")?
            .query_row([&execution.namespace, &execution.id], |row| row.get(0))
            .optional()?;
        if let Some(existing) = taken {
            return Ok(Err(Refused::IdTaken { id: execution.id.clone(), existing: ExecutionKey(existing) }));
        }
        if let Some(folder) = folder
            && let Err(refused) = self.check_folder(&execution.namespace, folder)?
        {
            return Ok(Err(refused));
        }
        if let Err(refused) = self.check_id_is_free(execution)? {
            return Ok(Err(refused));
        }
        // After what a repeated request is told.
        if let Some(refused) = limits::check(&self.connection, &execution.namespace, None, limits)? {
            return Ok(Err(refused));
        }
        let key = self.insert_execution(execution, summary, folder)?;
        let head = self.log(key, Head { row: 0, last_sequence: 0, rows: 0 }, transition, fence)?;
        self.record_head(key, head)?;
        self.keep_seal_key(key, seal_key)?;
        Ok(Ok(StoreWriteOutcome::Created(key)))
    }

    fn append(
        &mut self,
        key: ExecutionKey,
        transition: &Transition,
        summary: Option<&ExecutionSummary>,
        seal_key: Option<&[u8]>,
        (usage, limited): (&[UsageChange], Option<(&str, &[LimitChange])>),
        fence: Fence,
    ) -> Result<Result<StoreWriteOutcome, Refused>, rusqlite::Error> {
        if let Err(refused) = self.check_fence(fence) {
            return Ok(Err(refused));
        }
        let refused = |damaged: DamagedRow| Ok(Err(Refused::Damaged(damaged.to_string())));
        let head = match self.head(key)? {
            Ok(Some(Head { row, last_sequence: Head::DAMAGED, .. })) => return refused(LOG.damaged(row)),
            Ok(Some(head)) => head,
            Ok(None) => return Ok(Err(Refused::Missing(key))),
            Err(damaged) => return refused(damaged),
        };
        if transition.first_sequence != head.last_sequence + 1 {
            return Ok(Err(Refused::Gap { first: transition.first_sequence, last: head.last_sequence }));
        }
        if seal_key.is_some() {
            match rows::seal_key(&self.connection, key)? {
                Ok(None) => {}
                Ok(Some(_)) => return Ok(Err(Refused::HasSealKey(key))),
                Err(damaged) => return refused(damaged),
            }
        }
        if let Some(refused) = usage::check(&self.connection, usage)? {
            return Ok(Err(refused));
        }
        if let Some((namespace, limits)) = limited
            && let Some(refused) = limits::check(&self.connection, namespace, Some(key), limits)?
        {
            return Ok(Err(refused));
        }
        if let Some(summary) = summary
            && !self.update_summary(key, summary)?
        {
            return refused(EXECUTION.damaged(key.0));
        }
        let head = self.log(key, head, transition, fence)?;
        if summary.is_some() {
            self.record_head(key, head)?;
        }
        self.keep_seal_key(key, seal_key)?;
        Ok(Ok(StoreWriteOutcome::Appended))
    }

    fn summarize(
        &mut self,
        key: ExecutionKey,
        summary: &ExecutionSummary,
        fence: Fence,
    ) -> Result<Result<StoreWriteOutcome, Refused>, rusqlite::Error> {
        if let Err(refused) = self.check_fence(fence) {
            return Ok(Err(refused));
        }
        if !rows::exists(&self.connection, key)? {
            return Ok(Err(Refused::Missing(key)));
        }
        if !self.update_summary(key, summary)? {
            return Ok(Err(Refused::Damaged(EXECUTION.damaged(key.0).to_string())));
        }
        if let Ok(Some(head)) = self.head(key)? {
            self.record_head(key, head)?;
        }
        Ok(Ok(StoreWriteOutcome::Changed))
    }

    fn keep_snapshot(
        &self,
        key: ExecutionKey,
        snapshot: &Snapshot,
        fence: Fence,
    ) -> Result<Result<StoreWriteOutcome, Refused>, rusqlite::Error> {
        static INSERT: LazyLock<String> =
            LazyLock::new(|| SNAPSHOT.insert().replacen("INSERT INTO", "INSERT OR REPLACE INTO", 1));
        if let Err(refused) = self.check_fence(fence) {
            return Ok(Err(refused));
        }
        let Snapshot { sequence, version, content, is_sealed } = snapshot;
        let refused = |damaged: DamagedRow| Ok(Err(Refused::Damaged(damaged.to_string())));
        match self.head(key)? {
            Ok(Some(Head { row, last_sequence: Head::DAMAGED, .. })) => return refused(LOG.damaged(row)),
            Ok(Some(Head { last_sequence: last, .. })) if *sequence > last => {
                return Ok(Err(Refused::Gap { first: *sequence, last }));
            }
            Ok(Some(_)) => {}
            Ok(None) => return Ok(Err(Refused::Missing(key))),
            Err(damaged) => return refused(damaged),
        }
        self.connection.prepare_cached(&INSERT)?.execute(params![key.0, sequence, version, content, is_sealed])?;
        Ok(Ok(StoreWriteOutcome::Kept))
    }

    fn insert_execution(
        &mut self,
        execution: &NewExecution,
        summary: &ExecutionSummary,
        folder: Option<&Folder>,
    ) -> Result<ExecutionKey, rusqlite::Error> {
        static INSERT: LazyLock<String> = LazyLock::new(|| EXECUTION.insert());
        let StepCounts { total, completed, failed, skipped, cancelled } = summary.steps;
        let (key, parent) = (ExecutionKey(self.last_key + 1), execution.parent.as_ref());
        self.connection.prepare_cached(&INSERT)?.execute(params![
            key.0,
            execution.namespace,
            execution.id,
            execution.shard,
            folder.map(Folder::id),
            execution.created_at,
            execution.plan_id,
            write_labels(&execution.labels),
            execution.principal,
            (!execution.request_id.is_empty()).then_some(&execution.request_id),
            execution.request_hash,
            parent.map(|parent| parent.execution.0),
            parent.map(|parent| &parent.execution_id),
            parent.map(|parent| &parent.step_id),
            summary.state,
            summary.ended,
            summary.wake_at,
            summary.parked,
            summary.waits_for.0,
            summary.asks.cast_signed(),
            summary.updated_at,
            summary.ended_at,
            summary.failure_reason,
            total,
            completed,
            failed,
            skipped,
            cancelled,
        ])?;
        self.last_key = key.0;
        for (label, value) in &execution.labels {
            self.connection
                .prepare_cached(
                    "INSERT INTO label (namespace, key, value, created_at, exec, ended_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?
                .execute(params![
                    execution.namespace,
                    label,
                    value,
                    execution.created_at,
                    key.0,
                    summary.ended_at
                ])?;
        }
        Ok(key)
    }

    /// Returns `false` when the row is damaged; then it is unchanged.
    fn update_summary(&self, key: ExecutionKey, summary: &ExecutionSummary) -> Result<bool, rusqlite::Error> {
        static UPDATE: LazyLock<String> = LazyLock::new(|| {
            let first = EXECUTION.columns.iter().position(|column| *column == "state").expect("the first that changes");
            let number = |index: usize| format!("?{}", index - first + 2);
            let changes = EXECUTION.columns.iter().enumerate().skip(first);
            let changes: Vec<String> = changes.map(|(index, column)| format!("{column} = {}", number(index))).collect();
            let values = EXECUTION.columns.iter().enumerate();
            let values = values.map(|(index, column)| if index < first { (*column).to_owned() } else { number(index) });
            let (sum, intact) = (EXECUTION.sum_of(values), EXECUTION.intact());
            format!("UPDATE execution SET {}, sum = {sum} WHERE exec = ?1 AND {intact}", changes.join(", "))
        });
        let StepCounts { total, completed, failed, skipped, cancelled } = summary.steps;
        let changed = self.connection.prepare_cached(&UPDATE)?.execute(params![
            key.0,
            summary.state,
            summary.ended,
            summary.wake_at,
            summary.parked,
            summary.waits_for.0,
            summary.asks.cast_signed(),
            summary.updated_at,
            summary.ended_at,
            summary.failure_reason,
            total,
            completed,
            failed,
            skipped,
            cancelled,
        ])?;
        if changed == 1 {
            self.end_labels(key, summary.ended_at)?;
        }
        Ok(changed == 1)
    }

    /// Keeps the end of an execution beside its labels, if it has any.
    fn end_labels(&self, key: ExecutionKey, ended_at: Option<i64>) -> Result<(), rusqlite::Error> {
        const LABELS: &str = "SELECT namespace, created_at, labels FROM execution WHERE exec = ?1 AND labels <> ''";
        const END: &str = "UPDATE label SET ended_at = ?6
            WHERE namespace = ?1 AND key = ?2 AND value = ?3 AND created_at = ?4 AND exec = ?5 AND ended_at IS NOT ?6";
        let labelled = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let found: Option<(String, i64, String)> =
            self.connection.prepare_cached(LABELS)?.query_row([key.0], labelled).optional()?;
        let Some((namespace, created_at, labels)) = found else { return Ok(()) };
        let mut end = self.connection.prepare_cached(END)?;
        for (label, value) in read_labels(&labels) {
            end.execute(params![namespace, label, value, created_at, key.0, ended_at])?;
        }
        Ok(())
    }

    fn keep_seal_key(&self, key: ExecutionKey, wrapped: Option<&[u8]>) -> Result<(), rusqlite::Error> {
        if let Some(wrapped) = wrapped {
            self.connection.prepare_cached(&SEAL_KEY.insert())?.execute(params![key.0, wrapped])?;
        }
        Ok(())
    }

    /// Adds a row to the log, and a waypoint where one is due.
    fn log(
        &mut self,
        key: ExecutionKey,
        head: Head,
        transition: &Transition,
        fence: Fence,
    ) -> Result<Head, rusqlite::Error> {
        static INSERT: LazyLock<String> = LazyLock::new(|| LOG.insert());
        let row = self.last_row + 1;
        self.connection.prepare_cached(&INSERT)?.execute(params![
            row,
            key.0,
            head.row,
            transition.first_sequence,
            transition.count,
            transition.version,
            fence.token,
            transition.shown,
            transition.sealed,
            transition.facts,
        ])?;
        let head = Head { row, last_sequence: transition.last_sequence(), rows: head.rows + 1 };
        if head.rows.is_multiple_of(self.intervals.waypoint_rows) {
            self.connection.prepare_cached(&WAYPOINT.insert())?.execute(params![
                key.0,
                transition.first_sequence,
                row
            ])?;
        }
        self.rows += 1;
        self.last_row = row;
        self.changed.insert(key, head);
        Ok(head)
    }

    fn head(&self, key: ExecutionKey) -> Result<RowResult<Option<Head>>, rusqlite::Error> {
        if self.deleted.contains(&key) {
            return Ok(Ok(None));
        }
        if let Some(head) = self.changed.get(&key) {
            return Ok(Ok(Some(*head)));
        }
        if let Some(head) = self.heads.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Ok(Some(*head)));
        }
        recorded_head(&self.connection, key)
    }

    fn record_head(&self, key: ExecutionKey, head: Head) -> Result<(), rusqlite::Error> {
        static UPDATE: LazyLock<String> = LazyLock::new(|| {
            let sum = HEAD.sum_of(["?1", "?2", "?3", "?4"]);
            format!(
                "UPDATE execution SET last_log = ?2, last_seq = ?3, log_rows = ?4, head_sum = {sum} WHERE exec = ?1"
            )
        });
        self.connection.prepare_cached(&UPDATE)?.execute(params![key.0, head.row, head.last_sequence, head.rows])?;
        Ok(())
    }

    /// Stores the heads in the executions' rows, so that they can be dropped from memory.
    fn checkpoint(&mut self) -> Result<(), rusqlite::Error> {
        let mut heads = self.heads.read().unwrap_or_else(PoisonError::into_inner).clone();
        heads.extend(&self.changed);
        for (key, head) in heads {
            self.record_head(key, head)?;
        }
        let sum = META.sum_of(["one", "store_id", "fence", "?1"]);
        let update = format!("UPDATE meta SET heads_upto = ?1, sum = {sum} WHERE {}", META.intact());
        match self.connection.execute(&update, [self.last_row])? {
            1 => Ok(()),
            // Damaged since it was opened.
            changed => Err(rusqlite::Error::StatementChangedRows(changed)),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
