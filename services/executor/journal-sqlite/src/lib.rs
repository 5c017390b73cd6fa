//! The journal on SQLite: an append-only log whose rows point back at each other.
//!
//! The log has no index on the execution. Such an index would dirty one page for each execution in a batch, and pages are what a commit
//! writes. Instead each row names the execution's row before it, and the way in is kept in three places, from new to old:
//!
//! - *heads* in memory: the last row of every execution that was written to since the last checkpoint;
//! - `execution.last_log`, brought up to date at every checkpoint (once in [`writer::CHECKPOINT_EVERY`] rows) and whenever an execution
//!   parks or ends;
//! - *waypoints*: every [`writer::WAYPOINT_EVERY`]th row of an execution, so that a reader can enter a long one in the middle.
//!
//! After a crash the heads are found again by reading the rows above `meta.heads_upto`.

mod reader;
mod rows;
mod schema;
mod writer;

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use belay_journal::{ExecutionKey, Opened, SHARDS, StoreError};
use belay_proto::stores::Service;
use belay_sqlite::{Location, SqliteError};
use rusqlite::Connection;

/// Opens a journal, making it if it is not there. The fence rises, so that whoever held it before can write no more.
///
/// # Errors
/// [`StoreError`] when it is in use, damaged, full or newer.
pub fn open(location: &Location, new_store_id: impl FnOnce() -> String) -> Result<Opened, StoreError> {
    let store = belay_sqlite::open(location, &schema::SCHEMA).map_err(store_error)?;
    let failed = |error: rusqlite::Error| store_error(error.into());
    let (store_id, fence, heads, last_row, stores) = {
        let connection = store.writer.lock().expect("nobody has panicked with a connection just opened");
        let (store_id, fence, heads) = begin(&connection, location.accepted, new_store_id).map_err(failed)?;
        let last_row =
            connection.query_row("SELECT coalesce(max(id), 0) FROM log", [], |row| row.get(0)).map_err(failed)?;
        let stores =
            belay_sqlite::positions(&connection, location, Service::Executor, &store_id, last_row).map_err(failed)?;
        (store_id, fence, heads, last_row, stores)
    };
    let heads = Arc::new(RwLock::new(heads));
    let reader = reader::SqliteReader::new(Arc::clone(&store.reader), Arc::clone(&heads));
    let writer = writer::SqliteWriter::new(store, heads, [fence; SHARDS as usize], last_row, Arc::clone(&stores));
    Ok(Opened { writer: Box::new(writer), reader: Arc::new(reader), store_id, stores, fence })
}

/// The last row of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    row: i64,
    last_sequence: u64,
    /// How many rows it has.
    rows: u64,
}

type Heads = Arc<RwLock<HashMap<ExecutionKey, Head>>>;

/// Makes this opening the owner, and finds the heads that the last one had in memory only.
fn begin(
    connection: &Connection,
    accepted: Option<i64>,
    new_store_id: impl FnOnce() -> String,
) -> Result<(String, i64, HashMap<ExecutionKey, Head>), rusqlite::Error> {
    // A store that is accepted though it is behind has to win over the owner that it was: seconds since the Unix epoch are more than any
    // number of starts, and than the seconds of any time before.
    let least = accepted.map_or(1, |micros| micros.div_euclid(1_000_000));
    connection.execute(
        "INSERT INTO meta (one, store_id, fence, heads_upto) VALUES (1, ?1, ?2, 0)
         ON CONFLICT (one) DO UPDATE SET fence = max(fence + 1, ?2)",
        rusqlite::params![new_store_id(), least],
    )?;
    let (store_id, fence, upto) = connection.query_row("SELECT store_id, fence, heads_upto FROM meta", [], |row| {
        Ok((row.get(0)?, row.get(1)?, row.get::<_, i64>(2)?))
    })?;
    let mut heads = HashMap::new();
    let mut rows = connection.prepare("SELECT exec, max(id), count(*) FROM log WHERE id > ?1 GROUP BY exec")?;
    let mut rows = rows.query([upto])?;
    while let Some(row) = rows.next()? {
        let (key, last, newer): (i64, i64, u64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let last_sequence: u64 = connection
            .prepare_cached("SELECT first_seq + count - 1 FROM log WHERE id = ?1")?
            .query_row([last], |row| row.get(0))?;
        // The row's own count is older than these rows, except where it was brought up to date in between.
        let (recorded, recorded_rows): (i64, u64) = connection
            .prepare_cached("SELECT last_log, log_rows FROM execution WHERE exec = ?1")?
            .query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let counted: u64 = if recorded <= upto {
            newer
        } else {
            connection
                .prepare_cached("SELECT count(*) FROM log WHERE id > ?1 AND exec = ?2")?
                .query_row([recorded, key], |row| row.get(0))?
        };
        heads.insert(ExecutionKey(key), Head { row: last, last_sequence, rows: recorded_rows + counted });
    }
    Ok((store_id, fence, heads))
}

fn store_error(error: SqliteError) -> StoreError {
    match error {
        SqliteError::Locked => StoreError::Locked,
        SqliteError::Corrupt(what) => StoreError::Corrupt(what),
        SqliteError::Full => StoreError::Full,
        SqliteError::Gone => StoreError::Gone,
        SqliteError::Behind(what) => StoreError::Behind(what),
        SqliteError::Newer { found, known } => StoreError::Newer { found, known },
        SqliteError::Older { found, known, lacks } => StoreError::Older { found, known, lacks },
        SqliteError::Other(what) => StoreError::Other(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// S2-FR-037, S2-FR-054, S2-FR-055, S2-FR-056: calls, results and progress are events, and events persist.
    #[test]
    fn behaves_like_a_journal() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        belay_journal::conformance::check(&mut || open(&location, || "a store".into()).unwrap());
    }

    /// The way an un-checkpointed head is found again, with checkpoints at every place they can fall.
    #[test]
    fn heads_are_found_again_wherever_the_last_checkpoint_was() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        let mut expected = 0;
        for opening in 0..60 {
            let store = open(&location, || "a store".into()).unwrap();
            let Opened { mut writer, reader, fence, .. } = store;
            writer::tests::append_rows(writer.as_mut(), reader.as_ref(), fence, opening * 7 % 53, &mut expected);
        }
    }
}
