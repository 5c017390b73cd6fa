//! Limits over executions: one row for each execution that waits for one, holds it, or has started in its window.

use std::sync::LazyLock;

use belay_defects::{Defect, is_planted};
use belay_journal::{
    AwaitedLimit, ExecutionKey, LimitChange, LimitClaim, LimitEntry, LimitStanding, MAX_LIMIT_EXECUTIONS, Refused,
    StoreError, standing,
};
use belay_sqlite::{DamagedRow, SqliteError};
use rusqlite::{Connection, OptionalExtension as _, Params, Row, params};

use crate::{error::store_error, schema::LIMIT_ENTRY};

const COLUMNS: &str = "position, exec, held_at, window, released, limit_key";

/// A row with its key, or that it is damaged.
type EntryRead = Result<(LimitEntry, String), DamagedRow>;

/// Why the changes of an execution of this namespace cannot be made; `None` when they can. `execution` is `None` for one that is about to be created.
pub(crate) fn check(
    connection: &Connection,
    namespace: &str,
    execution: Option<ExecutionKey>,
    changes: &[LimitChange],
) -> Result<Option<Refused>, rusqlite::Error> {
    if is_planted(Defect::LimitsIgnored) {
        return Ok(None);
    }
    let asks = changes.iter().any(|change| matches!(change, LimitChange::Request { .. }));
    for change in changes {
        let LimitChange::Acquire { claims, at } = change else { continue };
        if let Some(execution) = execution.filter(|_| !asks)
            && let Err(damaged) = own_places(connection, execution, claims.len())?
        {
            return Ok(Some(Refused::Damaged(damaged)));
        }
        for claim in claims {
            // One that waits before it is enough.
            match stands(connection, namespace, execution, claim, *at, 1)? {
                Ok(LimitStanding { is_free: true, .. }) => {}
                Ok(_) => return Ok(Some(Refused::LimitFull { key: claim.key.clone() })),
                Err(damaged) => return Ok(Some(Refused::Damaged(damaged.to_string()))),
            }
        }
    }
    Ok(None)
}

/// Whether an execution has its place in each of its limits, so that nothing is held without a row that says so.
fn own_places(
    connection: &Connection,
    execution: ExecutionKey,
    limits: usize,
) -> Result<Result<(), String>, rusqlite::Error> {
    let places = all_open_entries(connection, execution)?;
    if let Some(Err(damaged)) = places.iter().find(|place| place.is_err()) {
        return Ok(Err(damaged.to_string()));
    }
    let lost = || format!("execution {} has lost its place in a limit over executions", execution.0);
    Ok(if places.len() == limits { Ok(()) } else { Err(lost()) })
}

/// Makes changes that were checked.
pub(crate) fn change(
    connection: &Connection,
    namespace: &str,
    execution: ExecutionKey,
    changes: &[LimitChange],
) -> Result<(), rusqlite::Error> {
    for change in changes {
        match change {
            LimitChange::Request { claims } => {
                for claim in claims {
                    let position = connection
                        .prepare_cached("SELECT coalesce(max(position), 0) + 1 FROM limit_entry")?
                        .query_row([], |row| row.get(0))?;
                    let window = claim.bound.window();
                    let entry = LimitEntry { position, execution, held_at: None, window, released: false };
                    put(connection, namespace, &claim.key, &entry)?;
                }
            }
            LimitChange::Acquire { claims, at } => {
                for (entry, key) in open_entries(connection, execution)? {
                    put(connection, namespace, &key, &LimitEntry { held_at: Some(*at), ..entry })?;
                }
                for claim in claims {
                    remove_over(connection, namespace, &claim.key, *at)?;
                }
            }
            LimitChange::Release { at } => {
                let entries = open_entries(connection, execution)?;
                const DELETE: &str = "DELETE FROM limit_entry WHERE exec = ?1 AND released = 0";
                connection.prepare_cached(DELETE)?.execute([execution.0])?;
                for (entry, key) in entries {
                    let entry = LimitEntry { released: true, ..entry };
                    if !entry.is_over(*at) {
                        put(connection, namespace, &key, &entry)?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// Gives limits that were got after `latest` this time.
pub(crate) fn reset_times(connection: &Connection, latest: i64) -> Result<(), rusqlite::Error> {
    static LATER: LazyLock<String> = LazyLock::new(|| {
        format!("SELECT {COLUMNS}, {}, namespace FROM limit_entry WHERE held_at > ?1", LIMIT_ENTRY.intact())
    });
    let mut later = connection.prepare_cached(&LATER)?;
    let rows: Vec<(EntryRead, String)> =
        later.query_map([latest], |found| Ok((row(found)?, found.get(7)?)))?.collect::<Result<_, _>>()?;
    for (read, namespace) in rows {
        if let Ok((entry, key)) = read {
            put(connection, &namespace, &key, &LimitEntry { held_at: Some(latest), ..entry })?;
        }
    }
    Ok(())
}

/// How an execution stands in a limit.
pub(crate) fn standing_of(
    connection: &Connection,
    namespace: &str,
    execution: Option<ExecutionKey>,
    claim: &LimitClaim,
    at: i64,
) -> Result<LimitStanding, StoreError> {
    intact(stands(connection, namespace, execution, claim, at, MAX_LIMIT_EXECUTIONS))
}

/// The keys of the limits that an execution holds.
pub(crate) fn held_by(connection: &Connection, execution: ExecutionKey) -> Result<Vec<String>, StoreError> {
    let entries: Result<Vec<_>, DamagedRow> =
        all_open_entries(connection, execution).map_err(failed)?.into_iter().collect();
    let entries = entries.map_err(|damaged| StoreError::Damaged(damaged.to_string()))?;
    Ok(entries.into_iter().filter(|(entry, _)| entry.held_at.is_some()).map(|(_, key)| key).collect())
}

/// The limits for which executions wait, those after a namespace and a key.
pub(crate) fn awaited(
    connection: &Connection,
    after: (&str, &str),
    limit: i64,
) -> Result<Vec<AwaitedLimit>, StoreError> {
    // The first position of each, whose row is read with it: SQLite takes bare columns from the row with the minimum.
    const AWAITED: &str = "SELECT namespace, limit_key, exec, min(position) FROM limit_entry
         WHERE held_at IS NULL AND (namespace, limit_key) > (?1, ?2)
         GROUP BY namespace, limit_key ORDER BY namespace, limit_key LIMIT ?3";
    let read = || -> Result<Vec<AwaitedLimit>, rusqlite::Error> {
        let mut page = connection.prepare_cached(AWAITED)?;
        let rows = page.query_map(params![after.0, after.1, limit], |row| {
            Ok(AwaitedLimit { namespace: row.get(0)?, key: row.get(1)?, next: ExecutionKey(row.get(2)?) })
        })?;
        rows.collect()
    };
    read().map_err(failed)
}

/// The execution whose turn it is in a limit.
pub(crate) fn next(connection: &Connection, namespace: &str, key: &str) -> Result<Option<ExecutionKey>, StoreError> {
    const NEXT: &str = "SELECT exec FROM limit_entry WHERE namespace = ?1 AND limit_key = ?2 AND held_at IS NULL
         ORDER BY position LIMIT 1";
    let read = || connection.prepare_cached(NEXT)?.query_row([namespace, key], |row| row.get(0)).optional();
    Ok(read().map_err(failed)?.map(ExecutionKey))
}

/// How an execution stands, of which at most `ahead` that wait before it are read.
fn stands(
    connection: &Connection,
    namespace: &str,
    execution: Option<ExecutionKey>,
    claim: &LimitClaim,
    at: i64,
    ahead: usize,
) -> Result<Result<LimitStanding, DamagedRow>, rusqlite::Error> {
    static HELD: LazyLock<String> = LazyLock::new(|| {
        let intact = LIMIT_ENTRY.intact();
        format!(
            "SELECT {COLUMNS}, {intact} FROM limit_entry WHERE namespace = ?1 AND limit_key = ?2 AND held_at IS NOT NULL"
        )
    });
    static AHEAD: LazyLock<String> = LazyLock::new(|| {
        let intact = LIMIT_ENTRY.intact();
        format!(
            "SELECT {COLUMNS}, {intact} FROM limit_entry
             WHERE namespace = ?1 AND limit_key = ?2 AND held_at IS NULL AND position < ?3 ORDER BY position LIMIT ?4"
        )
    });
    const OWN: &str = "SELECT min(position) FROM limit_entry
         WHERE exec = ?1 AND namespace = ?2 AND limit_key = ?3 AND held_at IS NULL";
    let own: Option<i64> = match execution {
        Some(execution) => {
            connection.prepare_cached(OWN)?.query_row(params![execution.0, namespace, claim.key], |row| row.get(0))?
        }
        None => None,
    };
    let before = own.unwrap_or(i64::MAX);
    let ahead = i64::try_from(ahead).unwrap_or(i64::MAX);
    let mut reads = entries(connection, &HELD, [namespace, &claim.key])?;
    reads.extend(entries(connection, &AHEAD, params![namespace, claim.key, before, ahead])?);
    let read: Result<Vec<LimitEntry>, DamagedRow> = reads.into_iter().map(|read| Ok(read?.0)).collect();
    Ok(read.map(|entries| standing(entries.into_iter(), execution, claim.bound, at)))
}

/// The rows of an execution that has not ended, those that are intact: what is done with the others was refused before.
fn open_entries(
    connection: &Connection,
    execution: ExecutionKey,
) -> Result<Vec<(LimitEntry, String)>, rusqlite::Error> {
    Ok(all_open_entries(connection, execution)?.into_iter().filter_map(Result::ok).collect())
}

/// The rows of an execution that has not ended.
fn all_open_entries(connection: &Connection, execution: ExecutionKey) -> Result<Vec<EntryRead>, rusqlite::Error> {
    static OPEN: LazyLock<String> = LazyLock::new(|| {
        let intact = LIMIT_ENTRY.intact();
        format!("SELECT {COLUMNS}, {intact} FROM limit_entry WHERE exec = ?1 AND released = 0")
    });
    entries(connection, &OPEN, [execution.0])
}

/// Removes the rows of a limit that are over.
fn remove_over(connection: &Connection, namespace: &str, key: &str, at: i64) -> Result<(), rusqlite::Error> {
    const REMOVE: &str = "DELETE FROM limit_entry
         WHERE namespace = ?1 AND limit_key = ?2 AND released = 1 AND held_at <= ?3 - window";
    connection.prepare_cached(REMOVE)?.execute(params![namespace, key, at]).map(drop)
}

fn entries(connection: &Connection, sql: &str, parameters: impl Params) -> Result<Vec<EntryRead>, rusqlite::Error> {
    connection.prepare_cached(sql)?.query_map(parameters, row)?.collect()
}

fn put(connection: &Connection, namespace: &str, key: &str, entry: &LimitEntry) -> Result<(), rusqlite::Error> {
    static PUT: LazyLock<String> =
        LazyLock::new(|| LIMIT_ENTRY.insert().replacen("INSERT INTO", "INSERT OR REPLACE INTO", 1));
    let LimitEntry { position, execution, held_at, window, released } = entry;
    let values = params![position, namespace, key, execution.0, held_at, window, i64::from(*released)];
    connection.prepare_cached(&PUT)?.execute(values).map(drop)
}

fn row(row: &Row<'_>) -> Result<EntryRead, rusqlite::Error> {
    let position: i64 = row.get(0)?;
    if !row.get::<_, bool>(6)? {
        return Ok(Err(LIMIT_ENTRY.damaged(position)));
    }
    let entry = LimitEntry {
        position,
        execution: ExecutionKey(row.get(1)?),
        held_at: row.get(2)?,
        window: row.get(3)?,
        released: row.get(4)?,
    };
    Ok(Ok((entry, row.get(5)?)))
}

fn intact<T>(read: Result<Result<T, DamagedRow>, rusqlite::Error>) -> Result<T, StoreError> {
    read.map_err(failed)?.map_err(|damaged| StoreError::Damaged(damaged.to_string()))
}

fn failed(error: rusqlite::Error) -> StoreError {
    store_error(SqliteError::from(error))
}

#[cfg(test)]
mod tests {
    use belay_journal::LimitBound;

    use super::*;
    use crate::schema::SCHEMA;

    /// A turn that comes by a row that was changed on the disk, or is gone, is none.
    #[test]
    fn nothing_is_held_without_an_intact_row() {
        let connection = Connection::open_in_memory().unwrap();
        belay_sqlite::add_row_sum(&connection).unwrap();
        connection.execute_batch(SCHEMA.create).unwrap();
        let claims = vec![LimitClaim { key: "k".into(), bound: LimitBound::AtOnce(1) }];
        let (first, second) = (ExecutionKey(1), ExecutionKey(2));
        for execution in [first, second] {
            change(&connection, "n", execution, &[LimitChange::Request { claims: claims.clone() }]).unwrap();
        }
        let acquire = [LimitChange::Acquire { claims, at: 5 }];
        let refused = |execution| check(&connection, "n", Some(execution), &acquire).unwrap();
        assert_eq!(refused(first), None);
        assert_eq!(refused(second), Some(Refused::LimitFull { key: "k".into() }));
        connection.execute("UPDATE limit_entry SET window = 7 WHERE exec = 1", []).unwrap();
        assert!(matches!(refused(first), Some(Refused::Damaged(_))));
        connection.execute("DELETE FROM limit_entry WHERE exec = 1", []).unwrap();
        assert!(matches!(refused(first), Some(Refused::Damaged(why)) if why.contains("lost its place")));
        assert_eq!(refused(second), None);
    }
}
