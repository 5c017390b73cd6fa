//! The end of the log: what no table has of it yet.

use belay_journal::StoreFault;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use belay_journal::ExecutionKey;
use belay_proto::stores::Service;
use belay_sqlite::{ReadStore, Readers, SqliteError};
use rusqlite::Connection;

use crate::{
    head::{Head, Heads},
    rows,
    schema::LOG,
};

/// The end of the log of a journal that another process writes, as far as its heads are known here.
pub(crate) struct Tail {
    store: ReadStore,
    /// The identity of the journal when it was opened.
    identity: String,
    /// The last row of the log whose execution has its head.
    last: Mutex<i64>,
}

impl Tail {
    pub(crate) fn of(store: ReadStore, identity: String) -> Self {
        Self { store, identity, last: Mutex::new(0) }
    }

    pub(crate) fn readers(&self) -> Arc<Readers> {
        Arc::clone(&self.store.readers)
    }

    /// Checks that the journal is still the one that was opened: its files are in place, and what it held before was not replaced by an older copy.
    pub(crate) fn check(&self) -> Result<(), SqliteError> {
        self.store.check_in_place()?;
        let position = belay_sqlite::own_position(&self.store.readers.connection(), Service::Executor)?;
        if position.is_some_and(|position| position.identity() == self.identity) {
            Ok(())
        } else {
            Err(SqliteError::Fault(StoreFault::Gone))
        }
    }

    /// Adds the heads that the owner has in memory and no table has yet. Those that a table has by now are dropped.
    pub(crate) fn catch_up(&self, heads: &Heads) -> Result<(), SqliteError> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = self.store.readers.connection();
        let newest = rows::last_row(&connection)?;
        if newest <= *last {
            return Ok(());
        }
        const UPTO: &str = "SELECT heads_upto FROM meta";
        let upto: i64 = connection.prepare_cached(UPTO)?.query_row([], |row| row.get(0))?;
        let newer = heads_after(&connection, upto.max(*last))?;
        let mut heads = heads.write().unwrap_or_else(PoisonError::into_inner);
        heads.retain(|_, head| head.row > upto);
        heads.extend(newer);
        *last = newest;
        Ok(())
    }
}

/// The heads that are in the log only: of the executions with rows above `upto`.
pub(crate) fn heads_after(connection: &Connection, upto: i64) -> Result<HashMap<ExecutionKey, Head>, rusqlite::Error> {
    let mut newer: HashMap<ExecutionKey, Vec<(i64, u64)>> = HashMap::new();
    let tail = format!("SELECT id, exec, first_seq, count, {} FROM log WHERE id > ?1 ORDER BY id", LOG.intact());
    let mut tail = connection.prepare(&tail)?;
    let mut tail = tail.query([upto])?;
    while let Some(row) = tail.next()? {
        let id: i64 = row.get(0)?;
        let (owner, last_sequence) = match row.get::<_, bool>(4)? {
            true => (Some(row.get(1)?), row.get::<_, u64>(2)? + row.get::<_, u64>(3)? - 1),
            // The execution must not continue from the row before it. Its readers find the damage.
            false => {
                rows::report(&LOG.damaged(id));
                (owner_of_damaged(connection, id)?, Head::DAMAGED)
            }
        };
        if let Some(owner) = owner {
            newer.entry(ExecutionKey(owner)).or_default().push((id, last_sequence));
        }
    }
    let mut heads = HashMap::new();
    for (key, rows) in newer {
        // The stored count is older than these rows, unless it was updated in between.
        let recorded = match rows::recorded_head(connection, key)? {
            Ok(Some(recorded)) => recorded,
            // It was deleted, and these rows are not erased yet.
            Ok(None) => continue,
            // The events of an execution whose row is damaged are found by the head all the same.
            Err(_) => Head { row: 0, last_sequence: 0, rows: 0 },
        };
        let counted = rows.iter().filter(|(id, _)| *id > recorded.row).count() as u64;
        let &(row, last_sequence) = rows.last().expect("each has at least one");
        heads.insert(key, Head { row, last_sequence, rows: recorded.rows + counted });
    }
    Ok(heads)
}

/// The execution that a damaged row belongs to: the one with which its checksum holds, where a single bit of the column is damaged; else the
/// one that it names.
fn owner_of_damaged(connection: &Connection, id: i64) -> Result<Option<i64>, rusqlite::Error> {
    let named: Option<i64> = connection.query_row("SELECT exec FROM log WHERE id = ?1", [id], |row| row.get(0)).ok();
    let Some(named) = named else { return Ok(None) };
    let columns = LOG.columns.iter().map(|column| if *column == "exec" { "?2" } else { column });
    let holds = format!("SELECT sum IS {} FROM log WHERE id = ?1", LOG.sum_of(columns));
    let mut holds = connection.prepare(&holds)?;
    for bit in 0..63 {
        if holds.query_row([id, named ^ (1 << bit)], |row| row.get(0))? {
            return Ok(Some(named ^ (1 << bit)));
        }
    }
    Ok(Some(named))
}
