//! The messages for webhooks.

use std::sync::LazyLock;

use belay_journal::{ExecutionKey, OutboxKey, OutboxMessage, OutboxRow};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::schema::OUTBOX;

const COLUMNS: &str = "id, exec, webhook, message, body, created_at, attempts, next_at";

/// The messages of a webhook whose time is at most `until`, in the order of their times and keys. Damaged ones are left out: the check of the store
/// names them.
pub(crate) fn due(
    connection: &Connection,
    webhook: &str,
    until: i64,
    limit: i64,
) -> Result<Vec<OutboxRow>, rusqlite::Error> {
    static DUE: LazyLock<String> = LazyLock::new(|| {
        let intact = OUTBOX.intact();
        format!(
            "SELECT {COLUMNS} FROM outbox INDEXED BY outbox_next WHERE webhook = ?1 AND next_at <= ?2 AND {intact}
             ORDER BY next_at, id LIMIT ?3"
        )
    });
    connection.prepare_cached(&DUE)?.query_map(params![webhook, until, limit], row)?.collect()
}

/// The earliest time of a message of a webhook.
pub(crate) fn next(connection: &Connection, webhook: &str) -> Result<Option<i64>, rusqlite::Error> {
    static NEXT: LazyLock<String> = LazyLock::new(|| {
        let intact = OUTBOX.intact();
        format!(
            "SELECT next_at FROM outbox INDEXED BY outbox_next WHERE webhook = ?1 AND {intact} ORDER BY next_at, id LIMIT 1"
        )
    });
    connection.prepare_cached(&NEXT)?.query_row([webhook], |row| row.get(0)).optional()
}

/// How many messages there are, counted up to `limit`.
pub(crate) fn count(connection: &Connection, limit: i64) -> Result<usize, rusqlite::Error> {
    const COUNT: &str = "SELECT count(*) FROM (SELECT 1 FROM outbox LIMIT ?1)";
    connection.prepare_cached(COUNT)?.query_row([limit], |row| row.get(0))
}

/// Stores the messages of a transition.
pub(crate) fn insert(
    connection: &Connection,
    execution: ExecutionKey,
    messages: &[OutboxMessage],
) -> Result<(), rusqlite::Error> {
    // The number of the last one that ever was: a removal that is repeated must not find another message.
    const LAST: &str = "SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'outbox'), 0)";
    for message in messages {
        let last: i64 = connection.prepare_cached(LAST)?.query_row([], |row| row.get(0))?;
        let (key, next_at) = (OutboxKey(last + 1), message.created_at);
        put(connection, &OutboxRow { key, execution, message: message.clone(), attempts: 0, next_at })?;
    }
    Ok(())
}

/// Sends a message later. One that is not there any more, or is damaged, stays as it is.
pub(crate) fn postpone(
    connection: &Connection,
    key: OutboxKey,
    attempts: u32,
    next_at: i64,
) -> Result<(), rusqlite::Error> {
    static ONE: LazyLock<String> =
        LazyLock::new(|| format!("SELECT {COLUMNS} FROM outbox WHERE id = ?1 AND {}", OUTBOX.intact()));
    if let Some(kept) = connection.prepare_cached(&ONE)?.query_row([key.0], row).optional()? {
        put(connection, &OutboxRow { attempts, next_at, ..kept })?;
    }
    Ok(())
}

/// Gives the messages of a webhook whose time is after `latest` the time `now`, and those stored after `now` too.
pub(crate) fn reschedule(connection: &Connection, webhook: &str, latest: i64, now: i64) -> Result<(), rusqlite::Error> {
    static RESCHEDULE: LazyLock<String> = LazyLock::new(|| {
        let columns = OUTBOX.columns.iter().map(|column| match *column {
            "created_at" => "min(created_at, ?3)",
            "next_at" => "?3",
            kept => kept,
        });
        format!(
            "UPDATE outbox INDEXED BY outbox_next SET created_at = min(created_at, ?3), next_at = ?3, sum = {}
             WHERE webhook = ?1 AND next_at > ?2 AND {}",
            OUTBOX.sum_of(columns),
            OUTBOX.intact()
        )
    });
    connection.prepare_cached(&RESCHEDULE)?.execute(params![webhook, latest, now]).map(drop)
}

/// Removes a message, if it is there.
pub(crate) fn remove(connection: &Connection, key: OutboxKey) -> Result<(), rusqlite::Error> {
    connection.prepare_cached("DELETE FROM outbox WHERE id = ?1")?.execute([key.0]).map(drop)
}

/// Removes the messages of an execution.
pub(crate) fn remove_all(connection: &Connection, execution: ExecutionKey) -> Result<(), rusqlite::Error> {
    connection.prepare_cached("DELETE FROM outbox WHERE exec = ?1")?.execute([execution.0]).map(drop)
}

/// Removes the messages from before a time for webhooks that are not among these, and returns how many there were.
pub(crate) fn drop_unknown(connection: &Connection, known: &[String], before: i64) -> Result<usize, rusqlite::Error> {
    const WEBHOOKS: &str = "SELECT DISTINCT webhook FROM outbox";
    const DROP: &str = "DELETE FROM outbox WHERE webhook = ?1 AND created_at < ?2";
    let mut webhooks = connection.prepare_cached(WEBHOOKS)?;
    let found = webhooks.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let mut dropped = 0;
    for webhook in found.iter().filter(|webhook| !known.contains(webhook)) {
        dropped += connection.prepare_cached(DROP)?.execute(params![webhook, before])?;
    }
    Ok(dropped)
}

fn put(connection: &Connection, row: &OutboxRow) -> Result<(), rusqlite::Error> {
    static PUT: LazyLock<String> =
        LazyLock::new(|| OUTBOX.insert().replacen("INSERT INTO", "INSERT OR REPLACE INTO", 1));
    let OutboxRow { key, execution, message, attempts, next_at } = row;
    let OutboxMessage { webhook, id, body, created_at } = message;
    let values = params![key.0, execution.0, webhook, id, body, created_at, attempts, next_at];
    connection.prepare_cached(&PUT)?.execute(values).map(drop)
}

fn row(row: &Row<'_>) -> Result<OutboxRow, rusqlite::Error> {
    Ok(OutboxRow {
        key: OutboxKey(row.get(0)?),
        execution: ExecutionKey(row.get(1)?),
        message: OutboxMessage { webhook: row.get(2)?, id: row.get(3)?, body: row.get(4)?, created_at: row.get(5)? },
        attempts: row.get(6)?,
        next_at: row.get(7)?,
    })
}
