//! Use of the budgets of namespaces.

use std::sync::LazyLock;

use belay_journal::{Refused, StoreError, UsageAmounts, UsageChange, UsageRow, removed_up_to};
use belay_sqlite::{DamagedRow, SqliteError};
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use crate::{error::store_error, schema::USAGE};

const COLUMNS: &str = "start_at, end_at, used_calls, used_output_bytes, used_tokens, used_cost_micros, held_calls, held_output_bytes, held_tokens, held_cost_micros";

/// A row, or that it is damaged.
type UsageRead = Result<UsageRow, DamagedRow>;

/// Why the changes cannot be made; `None` when they can.
pub(crate) fn check(connection: &Connection, changes: &[UsageChange]) -> Result<Option<Refused>, rusqlite::Error> {
    for change in changes {
        match one(connection, change)? {
            Some(Err(damaged)) => return Ok(Some(Refused::Damaged(damaged.to_string()))),
            Some(Ok(row)) if row.after(change).is_some() => {}
            None if !change.holds() || UsageRow::new(change.start, change.end).after(change).is_some() => {}
            Some(Ok(_)) | None => return Ok(Some(Refused::OverBudget { namespace: change.namespace.clone() })),
        }
    }
    Ok(None)
}

/// Makes changes that were checked.
pub(crate) fn change(connection: &Connection, changes: &[UsageChange]) -> Result<(), rusqlite::Error> {
    for change in changes {
        let row = match one(connection, change)? {
            Some(row) => row.ok(),
            None if change.holds() => {
                remove_old(connection, change)?;
                Some(UsageRow::new(change.start, change.end))
            }
            None => None,
        };
        if let Some(row) = row.and_then(|row| row.after(change)) {
            put(connection, &change.namespace, &row)?;
        }
    }
    Ok(())
}

/// The rows of a namespace, in the order of their windows.
pub(crate) fn of(connection: &Connection, namespace: &str) -> Result<Vec<UsageRow>, StoreError> {
    let failed = |error| store_error(SqliteError::from(error));
    let rows = all(connection, namespace).map_err(failed)?;
    rows.into_iter().map(|row| row.map_err(|damaged| StoreError::Damaged(damaged.to_string()))).collect()
}

fn all(connection: &Connection, namespace: &str) -> Result<Vec<UsageRead>, rusqlite::Error> {
    static ALL: LazyLock<String> = LazyLock::new(|| {
        format!("SELECT {COLUMNS}, {} FROM usage WHERE namespace = ?1 ORDER BY start_at, end_at", USAGE.intact())
    });
    let row = |found: &Row<'_>| row(namespace, found);
    connection.prepare_cached(&ALL)?.query_map([namespace], row)?.collect()
}

/// The row that a change is for.
fn one(connection: &Connection, change: &UsageChange) -> Result<Option<UsageRead>, rusqlite::Error> {
    static ONE: LazyLock<String> = LazyLock::new(|| {
        format!(
            "SELECT {COLUMNS}, {} FROM usage WHERE namespace = ?1 AND start_at = ?2 AND end_at = ?3",
            USAGE.intact()
        )
    });
    let UsageChange { namespace, start, end, .. } = change;
    let found =
        connection.prepare_cached(&ONE)?.query_row(params![namespace, start, end], |found| row(namespace, found));
    found.optional()
}

/// Removes the rows of windows that are not kept any more when the one of this change begins.
fn remove_old(connection: &Connection, change: &UsageChange) -> Result<(), rusqlite::Error> {
    const REMOVE: &str = "DELETE FROM usage WHERE namespace = ?1 AND end_at <= ?2 AND start_at <= ?3";
    let kept = all(connection, &change.namespace)?;
    if let Some(removed) = removed_up_to(change.start, kept.into_iter().filter_map(Result::ok)) {
        connection.prepare_cached(REMOVE)?.execute(params![change.namespace, change.start, removed])?;
    }
    Ok(())
}

fn put(connection: &Connection, namespace: &str, row: &UsageRow) -> Result<(), rusqlite::Error> {
    static PUT: LazyLock<String> =
        LazyLock::new(|| USAGE.insert().replacen("INSERT INTO", "INSERT OR REPLACE INTO", 1));
    let UsageRow { start, end, used, held } = row;
    let [used, held] =
        [used, held].map(|amounts| amounts.all().map(|amount| i64::try_from(amount).unwrap_or(i64::MAX)));
    let values = params![namespace, start, end, used[0], used[1], used[2], used[3], held[0], held[1], held[2], held[3]];
    connection.prepare_cached(&PUT)?.execute(values).map(drop)
}

fn row(namespace: &str, row: &Row<'_>) -> Result<UsageRead, rusqlite::Error> {
    if !row.get::<_, bool>(10)? {
        return Ok(Err(USAGE.damaged(namespace)));
    }
    let amount = |column| row.get::<_, i64>(column).map(|amount| u64::try_from(amount).unwrap_or(0));
    let amounts = |first: usize| {
        let [calls, output_bytes, tokens, cost] = [first, first + 1, first + 2, first + 3].map(amount);
        Ok::<_, rusqlite::Error>(UsageAmounts::of([calls?, output_bytes?, tokens?, cost?]))
    };
    Ok(Ok(UsageRow { start: row.get(0)?, end: row.get(1)?, used: amounts(2)?, held: amounts(6)? }))
}
