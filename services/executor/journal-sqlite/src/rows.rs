//! Queries that the reader and the writer share.

use std::{collections::BTreeMap, sync::LazyLock};

use belay_journal::{
    Change, Changes, Cursor, DeleteRequest, Deletion, ExecutionKey, ExecutionRow, ExecutionSummary, NewExecution,
    ParentStep, Refused, Snapshot, StepCounts, Waits, start_request,
};
use belay_proto::stores::Service;
use belay_sqlite::DamagedRow;
use rusqlite::{Connection, OptionalExtension as _, Params, Row};

use crate::{
    head::Head,
    schema::{DELETION, EXECUTION, HEAD, LOG, SEAL_KEY, SNAPSHOT},
};

/// The columns of an execution, in the order of [`execution_row`].
pub(crate) static COLUMNS: LazyLock<String> = LazyLock::new(|| {
    format!(
        "execution.exec, execution.namespace, id, shard, execution.created_at, plan_id, labels, principal,
         coalesce(request_id, ''), request_hash, state, ended, wake_at, parked, waits_for, asks, updated_at, execution.ended_at, failure_reason,
         steps, completed, failed, skipped, cancelled, parent, parent_id, parent_step, {}, CASE WHEN {} THEN last_seq ELSE 0 END",
        EXECUTION.intact(),
        // The log says the rest of an execution whose head is damaged.
        HEAD.intact()
    )
});

/// A stored row, or which one is damaged.
pub(crate) type RowResult<T> = Result<T, DamagedRow>;

/// The rows that are intact. The others are named in the log of the service.
pub(crate) fn intact(rows: Vec<RowResult<ExecutionRow>>) -> Vec<ExecutionRow> {
    rows.into_iter().filter_map(|row| row.inspect_err(report).ok()).collect()
}

pub(crate) fn report(damaged: &DamagedRow) {
    tracing::error!(%damaged, "A row of journal.db is set aside");
}

pub(crate) fn execution_row(row: &Row<'_>) -> Result<RowResult<ExecutionRow>, rusqlite::Error> {
    if !row.get::<_, bool>(27)? {
        return Ok(Err(EXECUTION.damaged(row.get::<_, i64>(0)?)));
    }
    intact_row(row).map(Ok)
}

fn intact_row(row: &Row<'_>) -> Result<ExecutionRow, rusqlite::Error> {
    Ok(ExecutionRow {
        key: ExecutionKey(row.get(0)?),
        execution: NewExecution {
            namespace: row.get(1)?,
            id: row.get(2)?,
            shard: row.get(3)?,
            created_at: row.get(4)?,
            plan_id: row.get(5)?,
            labels: read_labels(&row.get::<_, String>(6)?),
            principal: row.get(7)?,
            request_id: row.get(8)?,
            request_hash: row.get(9)?,
            parent: match row.get::<_, Option<i64>>(24)? {
                Some(key) => {
                    Some(ParentStep { execution: ExecutionKey(key), execution_id: row.get(25)?, step_id: row.get(26)? })
                }
                None => None,
            },
        },
        summary: ExecutionSummary {
            state: row.get(10)?,
            ended: row.get(11)?,
            wake_at: row.get(12)?,
            parked: row.get(13)?,
            waits_for: Waits(row.get(14)?),
            asks: row.get::<_, i64>(15)?.cast_unsigned(),
            updated_at: row.get(16)?,
            ended_at: row.get(17)?,
            failure_reason: row.get(18)?,
            steps: StepCounts {
                total: row.get(19)?,
                completed: row.get(20)?,
                failed: row.get(21)?,
                skipped: row.get(22)?,
                cancelled: row.get(23)?,
            },
        },
        revision: row.get(28)?,
    })
}

/// The namespaces that have executions, in order, those after `after` and at most `limit` of them. Each is found by the index of names, so
/// that the cost does not grow with the executions in it.
pub(crate) fn namespaces(connection: &Connection, after: &str, limit: usize) -> Result<Vec<String>, rusqlite::Error> {
    const NEXT: &str = "SELECT min(namespace) FROM execution WHERE namespace > ?1";
    let mut statement = connection.prepare_cached(NEXT)?;
    let mut found: Vec<String> = Vec::new();
    while found.len() < limit {
        let last = found.last().map_or(after, String::as_str);
        let Some(next) = statement.query_row([last], |row| row.get::<_, Option<String>>(0))? else { break };
        found.push(next);
    }
    Ok(found)
}

/// The key of the log's last row, which no other row gets: the position remembers it when the row is deleted.
pub(crate) fn last_row(connection: &Connection) -> Result<i64, rusqlite::Error> {
    const LAST: &str = "SELECT max(coalesce((SELECT max(id) FROM log), 0),
                                   coalesce((SELECT number FROM position WHERE service = ?1), 0))";
    connection.prepare_cached(LAST)?.query_row([Service::Executor.as_str()], |row| row.get(0))
}

/// The rows of the log above `after`, of which at most `limit` are examined. Their keys rise as they are committed: there is one writer.
pub(crate) fn changes(connection: &Connection, after: Cursor, limit: i64) -> Result<Changes, rusqlite::Error> {
    static READ: LazyLock<String> = LazyLock::new(|| {
        let intact = LOG.intact();
        format!(
            "SELECT id, exec, first_seq, count, {intact}, EXISTS (SELECT 1 FROM execution WHERE execution.exec = log.exec)
             FROM log WHERE id > ?1 ORDER BY id LIMIT ?2"
        )
    });
    let mut found = Changes { changes: Vec::new(), next: after };
    let mut statement = connection.prepare_cached(&READ)?;
    let mut rows = statement.query([after.0, limit])?;
    while let Some(row) = rows.next()? {
        let id = row.get(0)?;
        found.next = Cursor(id);
        if !row.get::<_, bool>(4)? {
            report(&LOG.damaged(id));
        } else if row.get(5)? {
            let first_sequence = row.get(2)?;
            let last_sequence = first_sequence + row.get::<_, u64>(3)? - 1;
            found.changes.push(Change { key: ExecutionKey(row.get(1)?), first_sequence, last_sequence });
        }
    }
    Ok(found)
}

/// The wrapped key to the execution's secrets, if it has any.
pub(crate) fn seal_key(
    connection: &Connection,
    key: ExecutionKey,
) -> Result<RowResult<Option<Vec<u8>>>, rusqlite::Error> {
    static READ: LazyLock<String> =
        LazyLock::new(|| format!("SELECT wrapped, {} FROM seal_key WHERE exec = ?1", SEAL_KEY.intact()));
    let found = connection
        .prepare_cached(&READ)?
        .query_row([key.0], |row| Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, bool>(1)?)))
        .optional()?;
    Ok(match found {
        Some((_, false)) => Err(SEAL_KEY.damaged(key.0)),
        found => Ok(found.map(|(wrapped, _)| wrapped)),
    })
}

/// The execution's snapshot, if it has one.
pub(crate) fn snapshot(
    connection: &Connection,
    key: ExecutionKey,
) -> Result<RowResult<Option<Snapshot>>, rusqlite::Error> {
    static READ: LazyLock<String> = LazyLock::new(|| {
        format!("SELECT seq, version, content, sealed, {} FROM snapshot WHERE exec = ?1", SNAPSHOT.intact())
    });
    let found = connection.prepare_cached(&READ)?.query_row([key.0], |row| {
        if !row.get::<_, bool>(4)? {
            return Ok(Err(SNAPSHOT.damaged(key.0)));
        }
        Ok(Ok(Snapshot { sequence: row.get(0)?, version: row.get(1)?, content: row.get(2)?, is_sealed: row.get(3)? }))
    });
    Ok(found.optional()?.transpose())
}

/// The namespace of an execution; `None` when there is none with this key.
pub(crate) fn namespace(connection: &Connection, key: ExecutionKey) -> Result<Option<String>, rusqlite::Error> {
    let mut named = connection.prepare_cached("SELECT namespace FROM execution WHERE exec = ?1")?;
    named.query_row([key.0], |row| row.get(0)).optional()
}

/// Whether there is an execution with this key.
pub(crate) fn exists(connection: &Connection, key: ExecutionKey) -> Result<bool, rusqlite::Error> {
    connection.prepare_cached("SELECT 1 FROM execution WHERE exec = ?1")?.exists([key.0])
}

/// Returns the execution that a request with this id has started; `None` when there is none, or the id is empty. `at` is when the request is made.
pub(crate) fn request_used(
    connection: &Connection,
    namespace: &str,
    principal: &str,
    request_id: &str,
    hash: &str,
    at: i64,
) -> Result<Option<Refused>, rusqlite::Error> {
    const STARTED: &str =
        "SELECT exec, request_hash FROM execution WHERE namespace = ?1 AND principal = ?2 AND request_id = ?3";
    const DELETED: &str = "SELECT id FROM deletion
                           WHERE namespace = ?1 AND start_request = ?2 AND (reusable_at IS NULL OR reusable_at > ?3)";
    let Some(request) = start_request(principal, request_id) else { return Ok(None) };
    let started = connection
        .prepare_cached(STARTED)?
        .query_row([namespace, principal, request_id], |row| Ok((row.get(0)?, row.get::<_, String>(1)?)))
        .optional()?;
    if let Some((existing, of)) = started {
        return Ok(Some(Refused::RequestIdUsed { existing: ExecutionKey(existing), same_request: of == hash }));
    }
    let deleted =
        connection.prepare_cached(DELETED)?.query_row((namespace, request, at), |row| row.get(0)).optional()?;
    Ok(deleted.map(|id| Refused::RequestDeleted { namespace: namespace.to_owned(), id }))
}

/// The deletions that meet a condition.
pub(crate) fn deletions(
    connection: &Connection,
    condition: &str,
    values: impl Params,
) -> Result<Vec<RowResult<Deletion>>, rusqlite::Error> {
    let read = format!(
        "SELECT exec, namespace, id, shard, deleted_at, request_id, request_hash, start_request, folder, reusable_at, {} FROM deletion {condition}",
        DELETION.intact()
    );
    let deletion = |row: &Row<'_>| {
        if !row.get::<_, bool>(10)? {
            return Ok(Err(DELETION.damaged(row.get::<_, i64>(0)?)));
        }
        Ok(Ok(Deletion {
            key: ExecutionKey(row.get(0)?),
            namespace: row.get(1)?,
            id: row.get(2)?,
            shard: row.get(3)?,
            deleted_at: row.get(4)?,
            request: DeleteRequest { id: row.get(5)?, hash: row.get(6)? },
            start_request: row.get(7)?,
            folder: row.get(8)?,
            reusable_at: row.get(9)?,
        }))
    };
    connection.prepare_cached(&read)?.query_map(values, deletion)?.collect()
}

/// The head that the execution's own row names.
pub(crate) fn recorded_head(
    connection: &Connection,
    key: ExecutionKey,
) -> Result<RowResult<Option<Head>>, rusqlite::Error> {
    static READ: LazyLock<String> = LazyLock::new(|| {
        format!("SELECT last_log, last_seq, log_rows, {} FROM execution WHERE exec = ?1", HEAD.intact())
    });
    let head = connection.prepare_cached(&READ)?.query_row([key.0], |row| {
        if !row.get::<_, bool>(3)? {
            return Ok(Err(HEAD.damaged(key.0)));
        }
        Ok(Ok(Head { row: row.get(0)?, last_sequence: row.get(1)?, rows: row.get(2)? }))
    });
    Ok(head.optional()?.transpose())
}

/// Labels as one text: `key`, unit separator, `value`, record separator, for each. Control characters cannot stand in labels.
pub(crate) fn write_labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().flat_map(|(key, value)| [key, "\u{1f}", value, "\u{1e}"]).collect()
}

pub(crate) fn read_labels(text: &str) -> BTreeMap<String, String> {
    text.split_terminator('\u{1e}')
        .filter_map(|pair| pair.split_once('\u{1f}'))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
