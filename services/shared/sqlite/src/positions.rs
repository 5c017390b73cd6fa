//! The positions of a store and of the other services' stores: a few rows in one page, updated by every commit.

use std::{collections::BTreeMap, sync::Arc};

use belay_proto::stores::{Position, Service, Stores};
use rusqlite::{Connection, params};

use crate::Location;

/// The table, in every store.
pub(crate) const TABLE: &str = "
    CREATE TABLE position (
        service     TEXT PRIMARY KEY,
        store_id    TEXT NOT NULL,
        generation  INTEGER NOT NULL,
        -- Of others' only: how many commits there were when the process opened the store that was heard of last.
        opened      INTEGER NOT NULL,
        number      INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

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
) -> Result<Arc<Stores>, rusqlite::Error> {
    connection.execute(
        "INSERT INTO position (service, store_id, generation, opened, number) VALUES (?1, ?2, 0, 0, 0) ON CONFLICT (service) DO NOTHING",
        params![service.as_str(), store_id],
    )?;
    if let Some(generation) = location.accepted {
        connection.execute(
            "UPDATE position SET generation = max(generation + 1, ?2) WHERE service = ?1",
            params![service.as_str(), generation],
        )?;
    }
    let mut known = connection
        .prepare("SELECT service, store_id, generation, opened, number FROM position")?
        .query_map([], |row| {
            let position =
                Position { store_id: row.get(1)?, generation: row.get(2)?, opened: row.get(3)?, commit: row.get(4)? };
            Ok((row.get::<_, String>(0)?, position))
        })?
        // A later version may have services that this one does not know.
        .filter_map(|row| row.map(|(name, position)| Some((name.parse().ok()?, position))).transpose())
        .collect::<Result<BTreeMap<Service, Position>, _>>()?;
    let mut own = known.remove(&service).expect("it was just written");
    own.commit = own.commit.max(last_row);
    own.opened = own.commit;
    Ok(Arc::new(Stores::new(service, own, known)))
}

/// Counts a commit, inside its transaction, and stores the new positions of others. Returns the commit's number, for
/// [`Stores::committed`] once it is durable.
///
/// # Errors
/// When the store cannot be written.
pub fn count_commit(transaction: &Connection, stores: &Stores) -> Result<i64, rusqlite::Error> {
    store_updates(transaction, stores)?;
    transaction
        .prepare_cached("UPDATE position SET number = number + 1 WHERE service = ?1 RETURNING number")?
        .query_row([stores.service().as_str()], |row| row.get(0))
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
    }
    Ok(())
}
