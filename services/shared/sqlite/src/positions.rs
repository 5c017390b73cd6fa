//! The positions of a store and of the other services' stores: a few rows in one page, updated by every commit.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use belay_proto::stores::{Position, Service, Stores};
use rusqlite::{Connection, OptionalExtension as _, params};

use crate::{Location, SqliteError, Table};

/// The table, in every store.
pub(crate) const TABLE: &str = "
    CREATE TABLE position (
        service     TEXT PRIMARY KEY,
        store_id    TEXT NOT NULL,
        generation  INTEGER NOT NULL,
        -- Of others' only: how many commits there were when the process opened the store that was heard of last.
        opened      INTEGER NOT NULL,
        number      INTEGER NOT NULL,
        sum         INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
";

/// The columns that the table's checksums cover.
pub const POSITION: Table = Table {
    name: "position",
    columns: &["service", "store_id", "generation", "opened", "number"],
    sum: "sum",
    affects: "what is known of that service's store",
};

/// Reads the positions of a service's store and of the others' that it has seen; gives a new store its id. Begins a new generation when the
/// location accepts the store as it is. `last_row` is the key of the last row of a store that numbers its commits by the rows that they
/// append, and 0 for one that calls [`count_commit`].
///
/// # Errors
/// When the store cannot be read or written.
pub fn positions(
    connection: &Connection,
    location: &Location,
    service: Service,
    store_id: &str,
    last_row: i64,
) -> Result<Arc<Stores>, SqliteError> {
    // Each change is one statement: the power may fail after any.
    connection.execute(
        &format!("{} ON CONFLICT (service) DO NOTHING", POSITION.insert()),
        params![service.as_str(), store_id, 0, 0, 0],
    )?;
    let read = format!("SELECT service, store_id, generation, opened, number, {} FROM position", POSITION.intact());
    let mut known = BTreeMap::new();
    let mut statement = connection.prepare(&read)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        if !row.get::<_, bool>(5)? {
            let damaged = POSITION.damaged(&name);
            if name == service.as_str() {
                return Err(SqliteError::Row(damaged));
            }
            // That service tells its position again.
            tracing::error!(%damaged, "A row of the store is set aside");
            continue;
        }
        let position =
            Position { store_id: row.get(1)?, generation: row.get(2)?, opened: row.get(3)?, commit: row.get(4)? };
        // A later version may have services that this one does not know.
        if let Ok(service) = name.parse::<Service>() {
            known.insert(service, position);
        }
    }
    let Some(mut own) = known.remove(&service) else {
        return Err(SqliteError::Row(POSITION.damaged(service.as_str())));
    };
    if let Some(generation) = location.accepted {
        own.generation = generation.max(own.generation + 1);
        let sum = POSITION.sum_of(["service", "store_id", "?2", "opened", "number"]);
        connection.execute(
            &format!("UPDATE position SET generation = ?2, sum = {sum} WHERE service = ?1"),
            params![service.as_str(), own.generation],
        )?;
    }
    own.commit = own.commit.max(last_row);
    own.opened = own.commit;
    Ok(Arc::new(Stores::new(service, own, known)))
}

/// The position of a service's own store, read beside the process that writes it. `None` before its first start has ended.
///
/// # Errors
/// When the store cannot be read, or the row is damaged.
pub fn own_position(connection: &Connection, service: Service) -> Result<Option<Position>, SqliteError> {
    let read =
        format!("SELECT store_id, generation, opened, number, {} FROM position WHERE service = ?1", POSITION.intact());
    let position = connection.query_row(&read, [service.as_str()], |row| {
        let position =
            Position { store_id: row.get(0)?, generation: row.get(1)?, opened: row.get(2)?, commit: row.get(3)? };
        Ok((position, row.get::<_, bool>(4)?))
    });
    match position.optional()? {
        Some((_, false)) => Err(SqliteError::Row(POSITION.damaged(service.as_str()))),
        found => Ok(found.map(|(position, _)| position)),
    }
}

/// Counts a commit, inside its transaction, and stores the new positions of others. Returns the commit's number, for
/// [`Stores::committed`] once it is durable.
///
/// # Errors
/// When the store cannot be written.
pub fn count_commit(transaction: &Connection, stores: &Stores) -> Result<i64, rusqlite::Error> {
    static COUNT: LazyLock<String> = LazyLock::new(|| {
        let sum = POSITION.sum_of(["service", "store_id", "generation", "opened", "number + 1"]);
        let intact = POSITION.intact();
        format!("UPDATE position SET number = number + 1, sum = {sum} WHERE service = ?1 AND {intact} RETURNING number")
    });
    store_updates(transaction, stores)?;
    transaction.prepare_cached(&COUNT)?.query_row([stores.service().as_str()], |row| row.get(0))
}

/// Stores the number of a commit, inside its transaction, for a store that numbers its commits by the rows that they append: the row with this
/// number may be deleted before the store is opened again.
///
/// # Errors
/// When the store cannot be written.
pub fn keep_number(transaction: &Connection, stores: &Stores, number: i64) -> Result<(), rusqlite::Error> {
    let sum = POSITION.sum_of(["service", "store_id", "generation", "opened", "?2"]);
    let intact = POSITION.intact();
    let keep = format!("UPDATE position SET number = ?2, sum = {sum} WHERE service = ?1 AND number < ?2 AND {intact}");
    transaction.execute(&keep, params![stores.service().as_str(), number]).map(drop)
}

/// Stores the new positions of other services' stores, inside a commit's transaction; writes nothing when there are none.
///
/// # Errors
/// When the store cannot be written.
pub fn store_updates(transaction: &Connection, stores: &Stores) -> Result<(), rusqlite::Error> {
    for (service, Position { store_id, generation, opened, commit }) in stores.take_updates() {
        transaction
            .prepare_cached(
                "INSERT INTO position (service, store_id, generation, opened, number) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (service) DO UPDATE SET store_id = ?2, generation = ?3, opened = ?4, number = ?5",
            )?
            .execute(params![service.as_str(), store_id, generation, opened, commit])?;
        transaction.prepare_cached(&POSITION.stamp("service = ?1"))?.execute([service.as_str()])?;
    }
    Ok(())
}
