//! The queries of the reader. They block.

use std::sync::{Arc, LazyLock, MutexGuard, PoisonError};

use belay_journal::{
    AwaitedLimit, Changes, Cursor, Deletion, ExecutionKey, ExecutionRow, InboxRow, LimitClaim, LimitStanding,
    OutboxRow, Page, Position, Query, Refused, ScheduleRow, StartRequest, StoreError, StoredExecution,
    StoredTransition, Transition, UsageRow,
};
use belay_sqlite::{DamagedRow, Readers, SqliteError};
use rusqlite::{Connection, OptionalExtension as _, Params};

use crate::{
    error::store_error,
    head::Heads,
    inbox, limits, list, outbox,
    rows::{self, COLUMNS, RowResult, execution_row, recorded_head},
    schedules,
    schema::{LOG, WAYPOINT},
    tail::Tail,
    usage,
};

pub(crate) struct Queries {
    readers: Arc<Readers>,
    heads: Heads,
    /// The end of the log of a journal that another process writes; `None` where this one writes, and keeps the heads.
    tail: Option<Tail>,
}

impl Queries {
    pub(crate) fn new(readers: Arc<Readers>, heads: Heads) -> Self {
        Self { readers, heads, tail: None }
    }

    /// The queries of a journal that another process writes.
    pub(crate) fn beside_owner(tail: Tail) -> Self {
        Self { readers: tail.readers(), heads: Heads::default(), tail: Some(tail) }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.readers.connection()
    }

    fn rows(&self, tail: &str, values: impl Params) -> Result<Vec<RowResult<ExecutionRow>>, StoreError> {
        let read = || -> Result<Vec<RowResult<ExecutionRow>>, rusqlite::Error> {
            let connection = self.connection();
            let mut statement = connection.prepare_cached(&format!("SELECT {} FROM execution {tail}", *COLUMNS))?;
            statement.query_map(values, execution_row)?.collect()
        };
        read().map_err(failed)
    }
}

/// The row of the log with this key.
static ROW: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT previous, first_seq, count, version, shown, sealed, facts, exec, {}, fence FROM log WHERE id = ?1",
        LOG.intact()
    )
});

fn one(mut rows: Vec<RowResult<ExecutionRow>>) -> Result<Option<ExecutionRow>, StoreError> {
    rows.pop().transpose().map_err(damaged)
}

fn damaged(row: DamagedRow) -> StoreError {
    StoreError::Damaged(row.to_string())
}

fn failed(error: rusqlite::Error) -> StoreError {
    store_error(SqliteError::from(error))
}

impl Queries {
    pub(crate) fn find(&self, namespace: &str, id: &str) -> Result<Option<ExecutionRow>, StoreError> {
        one(self.rows("WHERE namespace = ?1 AND id = ?2", [namespace, id])?)
    }

    pub(crate) fn get(&self, key: ExecutionKey) -> Result<Option<ExecutionRow>, StoreError> {
        one(self.rows("WHERE exec = ?1", [key.0])?)
    }

    pub(crate) fn list(&self, query: &Query) -> Result<Page, StoreError> {
        list::page(&self.connection(), query).map_err(failed)
    }

    pub(crate) fn namespaces(&self, after: &str, limit: usize) -> Result<Vec<String>, StoreError> {
        rows::namespaces(&self.connection(), after, limit).map_err(failed)
    }

    pub(crate) fn load(&self, key: ExecutionKey, version: Option<u32>) -> Result<StoredExecution, StoreError> {
        let row = self.get(key)?.ok_or(StoreError::Missing(key))?;
        let snapshot = match version {
            None => None,
            Some(version) => match rows::snapshot(&self.connection(), key).map_err(failed)? {
                Ok(found) => found.filter(|snapshot| snapshot.version == version),
                // The events have everything.
                Err(damaged) => {
                    rows::report(&damaged);
                    None
                }
            },
        };
        let transitions = match &snapshot {
            None => self.read(key, 0, usize::MAX)?,
            Some(snapshot) => {
                let mut transitions = self.read(key, 0, 1)?;
                transitions.extend(self.read(key, snapshot.sequence, usize::MAX)?);
                transitions
            }
        };
        let seal_key = self.seal_key(key)?;
        // A deletion takes all of it at once, and this reads it piece by piece.
        match seal_key.is_none() && !rows::exists(&self.connection(), key).map_err(failed)? {
            true => Err(StoreError::Missing(key)),
            false => Ok(StoredExecution { row, seal_key, snapshot, transitions }),
        }
    }

    pub(crate) fn stored(
        &self,
        key: ExecutionKey,
        first_sequence: u64,
    ) -> Result<Option<StoredTransition>, StoreError> {
        match self.written(key, first_sequence - 1, 1) {
            Ok(mut found) => Ok(found.pop().filter(|found| found.transition.first_sequence == first_sequence)),
            Err(StoreError::Missing(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn read(&self, key: ExecutionKey, after: u64, limit: usize) -> Result<Vec<Transition>, StoreError> {
        Ok(self.written(key, after, limit)?.into_iter().map(|written| written.transition).collect())
    }

    fn written(&self, key: ExecutionKey, after: u64, limit: usize) -> Result<Vec<StoredTransition>, StoreError> {
        if let Some(tail) = &self.tail {
            tail.catch_up(&self.heads).map_err(store_error)?;
        }
        // Locked before the connection: the writer holds its connection, in a simulation the same one, when it takes this lock.
        let known = self.heads.read().unwrap_or_else(PoisonError::into_inner).get(&key).copied();
        let read = || -> Result<RowResult<Vec<StoredTransition>>, rusqlite::Error> {
            let connection = self.connection();
            // A row is visible with its commit, and the heads in memory follow a moment later.
            let head = match (known, recorded_head(&connection, key)?) {
                (Some(known), Ok(Some(recorded))) if recorded.last_sequence > known.last_sequence => recorded,
                // Deleted, which a reader beside the owner may not know yet.
                (_, Ok(None)) => return Ok(Ok(Vec::new())),
                (Some(known), _) => known,
                (None, Ok(Some(recorded))) => recorded,
                (None, Err(damaged)) => return Ok(Err(damaged)),
            };
            if head.last_sequence <= after {
                return Ok(Ok(Vec::new()));
            }
            let far_enough = i64::try_from(after.saturating_add(limit as u64)).unwrap_or(i64::MAX);
            static ENTRY: LazyLock<String> = LazyLock::new(|| {
                let intact = WAYPOINT.intact();
                format!(
                    "SELECT log, {intact} FROM waypoint WHERE exec = ?1 AND first_seq > ?2 ORDER BY first_seq LIMIT 1"
                )
            });
            let entry: Option<(i64, bool)> = connection
                .prepare_cached(&ENTRY)?
                .query_row([key.0, far_enough], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            // A damaged waypoint costs the way from the end.
            let entry = entry.filter(|(_, intact)| *intact).map(|(row, _)| row);
            let mut transitions: Vec<StoredTransition> = Vec::new();
            let mut next = entry.unwrap_or(head.row);
            let mut last = entry.is_none().then_some(head.last_sequence);
            let mut statement = connection.prepare_cached(&ROW)?;
            while next != 0 {
                let read = statement.query_row([next], |row| {
                    if !row.get::<_, bool>(8)? || row.get::<_, i64>(7)? != key.0 {
                        return Ok(None);
                    }
                    let transition = Transition {
                        first_sequence: row.get(1)?,
                        count: row.get(2)?,
                        version: row.get(3)?,
                        shown: row.get(4)?,
                        sealed: row.get(5)?,
                        facts: row.get(6)?,
                    };
                    Ok(Some((row.get(0)?, StoredTransition { transition, token: row.get(9)? })))
                });
                // A row that is not where it was, is damaged, or does not fit to the next one.
                let read = read.optional()?.flatten();
                let fits = |(_, read): &(i64, StoredTransition)| {
                    last.is_none_or(|last| read.transition.last_sequence() == last)
                };
                let Some((previous, written)) = read.filter(fits) else {
                    return Ok(Err(LOG.damaged(next)));
                };
                if written.transition.last_sequence() <= after {
                    break;
                }
                last = Some(written.transition.first_sequence - 1);
                transitions.push(written);
                next = previous;
            }
            transitions.reverse();
            transitions.truncate(limit);
            Ok(Ok(transitions))
        };
        let read = read().map_err(failed)?;
        // A deletion erases events while this reads them.
        if !matches!(&read, Ok(transitions) if !transitions.is_empty())
            && !rows::exists(&self.connection(), key).map_err(failed)?
        {
            return Err(StoreError::Missing(key));
        }
        read.map_err(damaged)
    }

    pub(crate) fn changes(&self, after: Cursor, limit: usize) -> Result<Changes, StoreError> {
        if let Some(tail) = &self.tail {
            tail.check().map_err(store_error)?;
        }
        rows::changes(&self.connection(), after, at_most(limit)).map_err(failed)
    }

    pub(crate) fn latest(&self) -> Result<Cursor, StoreError> {
        if let Some(tail) = &self.tail {
            tail.check().map_err(store_error)?;
        }
        rows::last_row(&self.connection()).map(Cursor).map_err(failed)
    }

    pub(crate) fn newest_token(&self) -> Result<i64, StoreError> {
        self.connection().query_row("SELECT fence FROM meta", [], |row| row.get(0)).map_err(failed)
    }

    pub(crate) fn seal_key(&self, key: ExecutionKey) -> Result<Option<Vec<u8>>, StoreError> {
        rows::seal_key(&self.connection(), key).map_err(failed)?.map_err(damaged)
    }

    pub(crate) fn next_sealed(&self, after: ExecutionKey) -> Result<Option<ExecutionKey>, StoreError> {
        const NEXT: &str = "SELECT exec FROM seal_key WHERE exec > ?1 ORDER BY exec LIMIT 1";
        let next = self.connection().query_row(NEXT, [after.0], |row| row.get(0).map(ExecutionKey));
        next.optional().map_err(failed)
    }

    pub(crate) fn claimable(&self, after: ExecutionKey, limit: usize) -> Result<Vec<ExecutionRow>, StoreError> {
        let rows = self.rows(
            "INDEXED BY execution_claimable WHERE ended = 0 AND parked = 0 AND exec > ?1 ORDER BY exec LIMIT ?2",
            (after.0, at_most(limit)),
        )?;
        Ok(rows::intact(rows))
    }

    pub(crate) fn due(&self, after: Position, until: i64, limit: usize) -> Result<Vec<ExecutionRow>, StoreError> {
        let rows = self.rows(
            "INDEXED BY execution_due WHERE parked = 1 AND wake_at IS NOT NULL AND (wake_at, exec) > (?1, ?2) AND wake_at <= ?3
             ORDER BY wake_at, exec LIMIT ?4",
            (after.time, after.key.0, until, at_most(limit)),
        )?;
        Ok(rows::intact(rows))
    }

    pub(crate) fn next_wake(&self, after: i64) -> Result<Option<i64>, StoreError> {
        const NEXT: &str = "SELECT wake_at FROM execution INDEXED BY execution_due
                            WHERE parked = 1 AND wake_at IS NOT NULL AND wake_at > ?1 ORDER BY wake_at LIMIT 1";
        let connection = self.connection();
        let next =
            connection.prepare_cached(NEXT).and_then(|mut next| next.query_row([after], |row| row.get(0)).optional());
        next.map_err(failed)
    }

    pub(crate) fn parked_since(&self, after: Position, limit: usize) -> Result<Vec<ExecutionRow>, StoreError> {
        let rows = self.rows(
            "INDEXED BY execution_parked WHERE parked = 1 AND wake_at IS NOT NULL AND (updated_at, exec) > (?1, ?2)
             ORDER BY updated_at, exec LIMIT ?3",
            (after.time, after.key.0, at_most(limit)),
        )?;
        Ok(rows::intact(rows))
    }

    pub(crate) fn finished(
        &self,
        after: Position,
        until: Position,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, StoreError> {
        let rows = self.rows(
            "INDEXED BY execution_ended WHERE ended_at IS NOT NULL AND (ended_at, exec) > (?1, ?2) AND (ended_at, exec) <= (?3, ?4)
             ORDER BY ended_at, exec LIMIT ?5",
            (after.time, after.key.0, until.time, until.key.0, at_most(limit)),
        )?;
        Ok(rows::intact(rows))
    }

    pub(crate) fn finished_beyond(&self, keep: usize) -> Result<Option<Position>, StoreError> {
        const BEYOND: &str =
            "SELECT ended_at, exec FROM execution INDEXED BY execution_ended WHERE ended_at IS NOT NULL
                              ORDER BY ended_at DESC, exec DESC LIMIT 1 OFFSET ?1";
        let connection = self.connection();
        let beyond = connection.prepare_cached(BEYOND).and_then(|mut beyond| {
            let position = |row: &rusqlite::Row<'_>| Ok(Position { time: row.get(0)?, key: ExecutionKey(row.get(1)?) });
            beyond.query_row([at_most(keep)], position).optional()
        });
        beyond.map_err(failed)
    }

    pub(crate) fn deletion(&self, namespace: &str, id: &str) -> Result<Option<Deletion>, StoreError> {
        let found = rows::deletions(&self.connection(), "WHERE namespace = ?1 AND id = ?2", [namespace, id]);
        found.map_err(failed)?.pop().transpose().map_err(damaged)
    }

    pub(crate) fn request_used(&self, request: &StartRequest) -> Result<Option<Refused>, StoreError> {
        let StartRequest { namespace, principal, id, hash, at } = request;
        rows::request_used(&self.connection(), namespace, principal, id, hash, *at).map_err(failed)
    }

    pub(crate) fn deleted_after(&self, after: Position, limit: usize) -> Result<Vec<Deletion>, StoreError> {
        let values = (after.time, after.key.0, at_most(limit));
        let found = rows::deletions(&self.connection(), DELETED_AFTER, values).map_err(failed)?;
        Ok(found.into_iter().filter_map(|row| row.inspect_err(rows::report).ok()).collect())
    }

    pub(crate) fn outbox(&self, webhook: &str, until: i64, limit: usize) -> Result<Vec<OutboxRow>, StoreError> {
        outbox::due(&self.connection(), webhook, until, at_most(limit)).map_err(failed)
    }

    pub(crate) fn next_message(&self, webhook: &str) -> Result<Option<i64>, StoreError> {
        outbox::next(&self.connection(), webhook).map_err(failed)
    }

    pub(crate) fn outbox_len(&self, limit: usize) -> Result<usize, StoreError> {
        outbox::count(&self.connection(), at_most(limit)).map_err(failed)
    }

    pub(crate) fn inbox(&self, key: ExecutionKey, limit: usize) -> Result<Vec<InboxRow>, StoreError> {
        inbox::of(&self.connection(), key, at_most(limit)).map_err(failed)
    }

    pub(crate) fn usage(&self, namespace: &str) -> Result<Vec<UsageRow>, StoreError> {
        usage::of(&self.connection(), namespace)
    }

    pub(crate) fn limit_standing(
        &self,
        namespace: &str,
        execution: Option<ExecutionKey>,
        claim: &LimitClaim,
        at: i64,
    ) -> Result<LimitStanding, StoreError> {
        limits::standing_of(&self.connection(), namespace, execution, claim, at)
    }

    pub(crate) fn limits_held(&self, key: ExecutionKey) -> Result<Vec<String>, StoreError> {
        limits::held_by(&self.connection(), key)
    }

    pub(crate) fn awaited_limits(&self, after: (&str, &str), limit: usize) -> Result<Vec<AwaitedLimit>, StoreError> {
        limits::awaited(&self.connection(), after, at_most(limit))
    }

    pub(crate) fn next_in_limit(&self, namespace: &str, key: &str) -> Result<Option<ExecutionKey>, StoreError> {
        limits::next(&self.connection(), namespace, key)
    }

    pub(crate) fn schedule(&self, namespace: &str, id: &str) -> Result<Option<ScheduleRow>, StoreError> {
        schedules::get(&self.connection(), namespace, id)
    }

    pub(crate) fn schedules(
        &self,
        namespace: &str,
        after: (&str, &str),
        limit: usize,
    ) -> Result<Vec<ScheduleRow>, StoreError> {
        schedules::list(&self.connection(), namespace, after, at_most(limit))
    }

    pub(crate) fn recipients(&self, after: ExecutionKey, limit: usize) -> Result<Vec<ExecutionKey>, StoreError> {
        inbox::recipients(&self.connection(), after, at_most(limit)).map_err(failed)
    }

    pub(crate) fn open_deletions(&self, after: ExecutionKey, limit: usize) -> Result<Vec<Deletion>, StoreError> {
        let open = "INDEXED BY deletion_open WHERE reusable_at IS NULL AND exec > ?1 ORDER BY exec LIMIT ?2";
        let found = rows::deletions(&self.connection(), open, (after.0, at_most(limit))).map_err(failed)?;
        Ok(found.into_iter().filter_map(|row| row.inspect_err(rows::report).ok()).collect())
    }
}

/// The deletions after a position, in the order of their times.
const DELETED_AFTER: &str =
    "INDEXED BY deletion_deleted WHERE (deleted_at, exec) > (?1, ?2) ORDER BY deleted_at, exec LIMIT ?3";

fn at_most(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, RwLock};

    use belay_journal::{
        ExecutionKey, ExecutionSummary, Fence, JournalWriter as _, NewExecution, StoreWrite, Transition,
    };
    use belay_sqlite::{Location, Threads};

    use super::{DELETED_AFTER, Queries};
    use crate::{head::Head, schema::SCHEMA};

    /// A row is visible with its commit, and the heads in memory follow a moment later: whoever has read the row reads its events.
    #[tokio::test]
    async fn the_events_that_a_row_names_are_read_before_the_heads_in_memory_have_them() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        let mut store = crate::open(&location, Threads::Inline, || "a store".into()).unwrap();
        let fence = Fence { shard: 0, token: store.fence };
        let transition = |first_sequence| Transition {
            first_sequence,
            count: 1,
            version: 1,
            shown: vec![1],
            sealed: None,
            facts: None,
        };
        let execution = NewExecution {
            namespace: "n".into(),
            id: "e".into(),
            shard: 0,
            created_at: 1,
            plan_id: String::new(),
            labels: Default::default(),
            principal: String::new(),
            request_id: String::new(),
            request_hash: String::new(),
            parent: None,
        };
        let (outbox, summary) = (Vec::new(), ExecutionSummary::default());
        let create = StoreWrite::Create {
            execution,
            transition: transition(1),
            summary: summary.clone(),
            seal_key: None,
            outbox: outbox.clone(),
            inbox: Default::default(),
            folder: None,
            limits: Vec::new(),
            fence,
        };
        let key = ExecutionKey(1);
        let summary = Some(summary);
        let append = StoreWrite::Append {
            key,
            transition: transition(2),
            summary,
            seal_key: None,
            outbox,
            usage: Vec::new(),
            inbox: Default::default(),
            limits: Vec::new(),
            fence,
        };
        store.writer.commit(&[create, append]).await.unwrap();
        drop(store);
        let store = belay_sqlite::open(&location, &SCHEMA).unwrap();
        let behind = Head { row: 1, last_sequence: 1, rows: 1 };
        let queries = Queries::new(Arc::clone(&store.readers), Arc::new(RwLock::new([(key, behind)].into())));
        let revision = queries.get(key).unwrap().unwrap().revision;
        let read = queries.read(key, 0, 10).unwrap();
        assert_eq!((revision, read.last().map(Transition::last_sequence)), (2, Some(2)));
    }

    /// Each watcher of all executions asks for late deletions again and again: that may neither scan nor sort them.
    #[test]
    fn an_index_finds_late_deletions() {
        let folder = tempfile::tempdir().unwrap();
        let store = belay_sqlite::open(&Location::file(folder.path().join("journal")), &SCHEMA).unwrap();
        let connection = store.readers.connection();
        let explain = format!("EXPLAIN QUERY PLAN SELECT exec FROM deletion {DELETED_AFTER}");
        let mut statement = connection.prepare(&explain).unwrap();
        // Without values for its parameters: a plan does not depend on them.
        let mut rows = statement.raw_query();
        let mut steps = Vec::new();
        while let Some(row) = rows.next().unwrap() {
            steps.push(row.get::<_, String>(3).unwrap());
        }
        assert_eq!(steps.len(), 1, "{steps:?}");
        assert!(steps[0].starts_with("SEARCH deletion USING") && steps[0].contains("deletion_deleted"), "{steps:?}");
        assert!(steps[0].contains("(deleted_at>?)"), "{steps:?}");
    }
}
