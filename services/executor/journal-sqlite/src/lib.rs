//! The journal on SQLite: an append-only log in which each row points to the previous row of its execution.
//!
//! The log has no index on the execution. Such an index would dirty one page for each execution in a batch, and a commit writes whole pages.
//! Instead each row names the execution's previous row. The entry points are stored in three places, from new to old:
//!
//! - *heads* in memory: the last row of every execution that was written to since the last checkpoint;
//! - `execution.last_log`, brought up to date at every checkpoint (once in [`Intervals::checkpoint_rows`]) and whenever an execution
//!   parks or ends;
//! - *waypoints*: one row in [`Intervals::waypoint_rows`] of an execution, so that a reader can enter a long one in the middle.
//!
//! After a crash the heads are found again by reading the rows above `meta.heads_upto`.

mod list;
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

/// The intervals of checkpoints and waypoints. They affect only the cost of opening and reading.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// The number of log rows between checkpoints; it bounds how much opening reads.
    pub checkpoint_rows: u64,
    /// The number of an execution's rows between waypoints, at least 1; it bounds how much reading a few events reads.
    pub waypoint_rows: u64,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { checkpoint_rows: 4096, waypoint_rows: 64 }
    }
}

/// Opens a journal, and creates it if it does not exist. The fence increases, so that the store rejects the previous owner.
///
/// # Errors
/// [`StoreError`] when it is in use, damaged, full, or of another format.
pub fn open(location: &Location, new_store_id: impl FnOnce() -> String) -> Result<Opened, StoreError> {
    open_with(location, Intervals::default(), new_store_id)
}

/// [`open`] with other intervals. A journal may be opened with others than it was written with.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    location: &Location,
    intervals: Intervals,
    new_store_id: impl FnOnce() -> String,
) -> Result<Opened, StoreError> {
    let store = belay_sqlite::open(location, &schema::SCHEMA).map_err(store_error)?;
    let failed = |error: rusqlite::Error| store_error(error.into());
    let (store_id, fence, heads, last_row, stores) = {
        let connection = store.writer.lock().expect("a new connection's lock is not poisoned");
        let (store_id, fence, heads) = begin(&connection, location.accepted, new_store_id).map_err(failed)?;
        let last_row =
            connection.query_row("SELECT coalesce(max(id), 0) FROM log", [], |row| row.get(0)).map_err(failed)?;
        let stores =
            belay_sqlite::positions(&connection, location, Service::Executor, &store_id, last_row).map_err(failed)?;
        (store_id, fence, heads, last_row, stores)
    };
    let heads = Arc::new(RwLock::new(heads));
    let reader = reader::SqliteReader::new(Arc::clone(&store.readers), Arc::clone(&heads));
    let writer =
        writer::SqliteWriter::new(store, heads, [fence; SHARDS as usize], intervals, last_row, Arc::clone(&stores));
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

/// Makes this process the owner, and restores the heads that the previous owner had only in memory.
fn begin(
    connection: &Connection,
    accepted: Option<i64>,
    new_store_id: impl FnOnce() -> String,
) -> Result<(String, i64, HashMap<ExecutionKey, Head>), rusqlite::Error> {
    // The fence of an accepted store that is behind has to be above that of its previous owner: seconds since the Unix epoch are more than any
    // number of starts, and increase from one acceptance to the next.
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
        // The stored count is older than these rows, unless it was updated in between.
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

    /// Heads after the last checkpoint are restored, wherever the checkpoint was.
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

    /// The intervals decide what reading costs and not what is read, also where a journal was written with others.
    #[test]
    fn a_journal_reads_the_same_with_any_intervals() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        let mut expected = 0;
        for (opening, (checkpoint_rows, waypoint_rows)) in
            (0..).zip([(1, 1), (2, 1), (7, 3), (4096, 64), (1, 5), (31, 2), (90, 64), (97, 1), (3, 17)])
        {
            let intervals = Intervals { checkpoint_rows, waypoint_rows };
            let Opened { mut writer, reader, fence, .. } =
                open_with(&location, intervals, || "a store".into()).unwrap();
            for _ in 0..3 {
                writer::tests::append_rows(writer.as_mut(), reader.as_ref(), fence, opening * 11 % 29, &mut expected);
            }
        }
    }
}
