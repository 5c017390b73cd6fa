//! Schedules.

use std::sync::LazyLock;

use belay_journal::{Refused, ScheduleRow, StoreError, StoreWriteOutcome};
use belay_sqlite::{DamagedRow, SqliteError};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::{error::store_error, rows, schema::SCHEDULE};

const COLUMNS: &str = "namespace, id, revision, content, state";

/// A row, or that it is damaged.
type ScheduleRead = Result<ScheduleRow, DamagedRow>;
type Outcome = Result<StoreWriteOutcome, Refused>;

/// Writes a row whose revision is the next one, or that is there already, if the writer `may`.
pub(crate) fn put(
    connection: &Connection,
    schedule: &ScheduleRow,
    may: Result<(), Refused>,
) -> Result<Outcome, rusqlite::Error> {
    if let Err(refused) = may {
        return Ok(Err(refused));
    }
    static PUT: LazyLock<String> =
        LazyLock::new(|| SCHEDULE.insert().replacen("INSERT INTO", "INSERT OR REPLACE INTO", 1));
    let stored = match one(connection, &schedule.namespace, &schedule.id)?.transpose() {
        Ok(stored) => stored,
        Err(damaged) => return Ok(Err(Refused::Damaged(damaged.to_string()))),
    };
    let revision = stored.as_ref().map_or(0, |stored| stored.revision);
    if revision + 1 != schedule.revision && stored.as_ref() != Some(schedule) {
        return Ok(Err(Refused::ScheduleChanged { stored: revision }));
    }
    let ScheduleRow { namespace, id, revision, content, state } = schedule;
    connection.prepare_cached(&PUT)?.execute(params![namespace, id, revision, content, state])?;
    Ok(Ok(StoreWriteOutcome::Changed))
}

/// Deletes a row of this revision, if the writer `may`. A damaged one goes whatever its revision is: nothing else can be done with it.
pub(crate) fn delete(
    connection: &Connection,
    (namespace, id): (&str, &str),
    revision: u64,
    may: Result<(), Refused>,
) -> Result<Outcome, rusqlite::Error> {
    if let Err(refused) = may {
        return Ok(Err(refused));
    }
    match one(connection, namespace, id)? {
        Some(Ok(stored)) if stored.revision != revision => {
            Ok(Err(Refused::ScheduleChanged { stored: stored.revision }))
        }
        Some(_) | None => {
            const DELETE: &str = "DELETE FROM schedule WHERE namespace = ?1 AND id = ?2";
            connection.prepare_cached(DELETE)?.execute(params![namespace, id])?;
            Ok(Ok(StoreWriteOutcome::Changed))
        }
    }
}

/// The row with this name.
pub(crate) fn get(connection: &Connection, namespace: &str, id: &str) -> Result<Option<ScheduleRow>, StoreError> {
    let found = one(connection, namespace, id).map_err(|error| store_error(SqliteError::from(error)))?;
    found.transpose().map_err(|damaged| StoreError::Damaged(damaged.to_string()))
}

/// The rows of a namespace, or of all, in their order: fewer than `limit` only when there are no more. Damaged ones are left out, and others come in their
/// place.
pub(crate) fn list(
    connection: &Connection,
    namespace: &str,
    after: (&str, &str),
    limit: i64,
) -> Result<Vec<ScheduleRow>, StoreError> {
    static PAGE: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT {COLUMNS}, {} FROM schedule WHERE (namespace, id) > (?2, ?3) AND (?1 = '' OR namespace = ?1)
             ORDER BY namespace, id",
            SCHEDULE.intact()
        )
    });
    let read = || -> Result<Vec<ScheduleRow>, rusqlite::Error> {
        let mut page = connection.prepare_cached(&PAGE)?;
        let rows = page.query_map(params![namespace, after.0, after.1], row)?;
        let intact = rows.filter_map(|read| read.map(|row| row.inspect_err(rows::report).ok()).transpose());
        intact.take(usize::try_from(limit).unwrap_or(usize::MAX)).collect()
    };
    read().map_err(|error| store_error(SqliteError::from(error)))
}

fn one(connection: &Connection, namespace: &str, id: &str) -> Result<Option<ScheduleRead>, rusqlite::Error> {
    static ONE: LazyLock<String> = LazyLock::new(|| {
        format!("SELECT {COLUMNS}, {} FROM schedule WHERE namespace = ?1 AND id = ?2", SCHEDULE.intact())
    });
    connection.prepare_cached(&ONE)?.query_row([namespace, id], row).optional()
}

fn row(row: &Row<'_>) -> Result<ScheduleRead, rusqlite::Error> {
    let (namespace, id): (String, String) = (row.get(0)?, row.get(1)?);
    if !row.get::<_, bool>(5)? {
        return Ok(Err(SCHEDULE.damaged(format!("{namespace}/{id}"))));
    }
    Ok(Ok(ScheduleRow { namespace, id, revision: row.get(2)?, content: row.get(3)?, state: row.get(4)? }))
}
