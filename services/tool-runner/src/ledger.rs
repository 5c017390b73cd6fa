//! The durable half of the memory of calls.
//!
//! A row says that a call was started, and then how it ended; a tombstone forbids one that never arrived. Rows go when the executor has
//! acknowledged them. The highest fence of every shard is kept too, so that a runner that restarts does not listen to an owner that was
//! replaced while it was away.

use std::collections::HashMap;

use belay_proto::v1;
use belay_sqlite::{CommitError, GroupCommit, Location, Schema, SqliteError, Store, Threads};
use prost::Message as _;
use rusqlite::{Connection, params};
use thiserror::Error;

const SCHEMA: Schema = Schema {
    // "BLYL"
    application_id: 0x424C_594C,
    format: 1,
    create: "
        CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), ledger_id TEXT NOT NULL) STRICT;
        CREATE TABLE fence (shard INTEGER PRIMARY KEY, token INTEGER NOT NULL) STRICT;
        CREATE TABLE call (
            name    TEXT PRIMARY KEY,
            digest  TEXT NOT NULL,
            ended   INTEGER NOT NULL,
            call    BLOB NOT NULL
        ) STRICT, WITHOUT ROWID;
    ",
};

/// Why the ledger cannot be opened.
#[derive(Debug, Error)]
#[error("the ledger of calls cannot be opened")]
pub struct LedgerError(#[from] pub SqliteError);

/// What the ledger is told.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A call starts, or is forbidden, or ends: the row is what is known of it now.
    Call { digest: String, ended: bool, call: v1::ToolCall },
    /// The executor has stored these outcomes.
    Acknowledged { names: Vec<String> },
    /// A call that starts over: its row goes.
    Forgotten { name: String },
    /// A shard has a newer owner.
    Fence { shard: i32, token: i64 },
}

/// A call as the ledger knows it.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) digest: String,
    pub(crate) ended: bool,
    pub(crate) call: v1::ToolCall,
}

/// An open ledger.
#[derive(Debug)]
pub struct Ledger {
    id: String,
    known: Vec<Known>,
    fences: HashMap<i32, i64>,
    writer: GroupCommit<Entry, (), SqliteError>,
}

impl Ledger {
    /// Opens a ledger, making it under the id that `new_id` gives if it is not there.
    ///
    /// # Errors
    /// [`LedgerError`] when it is in use, damaged or newer.
    pub fn open(location: &Location, threads: Threads, new_id: impl FnOnce() -> String) -> Result<Self, LedgerError> {
        let store = belay_sqlite::open(location, &SCHEMA)?;
        let (id, known, fences) = {
            let connection = store.writer.lock().expect("nobody has panicked with a connection just opened");
            read(&connection, new_id).map_err(SqliteError::from)?
        };
        let writer =
            GroupCommit::start(threads, "belay-ledger", move |batch| write(&store, &batch).map_err(SqliteError::from));
        Ok(Self { id, known, fences, writer })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The calls that were not acknowledged when it was opened.
    pub(crate) fn take_known(&mut self) -> Vec<Known> {
        std::mem::take(&mut self.known)
    }

    pub(crate) fn fences(&self) -> HashMap<i32, i64> {
        self.fences.clone()
    }

    /// Makes an entry durable.
    pub(crate) async fn write(&self, entry: Entry) -> Result<(), CommitError<SqliteError>> {
        self.writer.commit(entry).await
    }
}

type Contents = (String, Vec<Known>, HashMap<i32, i64>);

fn read(connection: &Connection, new_id: impl FnOnce() -> String) -> Result<Contents, rusqlite::Error> {
    connection.execute("INSERT INTO meta (one, ledger_id) VALUES (1, ?1) ON CONFLICT (one) DO NOTHING", [new_id()])?;
    let id = connection.query_row("SELECT ledger_id FROM meta", [], |row| row.get(0))?;
    let fences = connection
        .prepare("SELECT shard, token FROM fence")?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<_, _>>()?;
    let known = connection
        .prepare("SELECT digest, ended, call FROM call ORDER BY name")?
        .query_map([], |row| {
            let bytes: Vec<u8> = row.get(2)?;
            let call = v1::ToolCall::decode(bytes.as_slice()).map_err(|error| {
                rusqlite::Error::FromSqlConversionFailure(2, rusqlite::types::Type::Blob, error.into())
            })?;
            Ok(Known { digest: row.get(0)?, ended: row.get(1)?, call })
        })?
        .collect::<Result<_, _>>()?;
    Ok((id, known, fences))
}

fn write(store: &Store, batch: &[Entry]) -> Result<Vec<()>, rusqlite::Error> {
    let mut connection = store.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let transaction = connection.transaction()?;
    for entry in batch {
        match entry {
            Entry::Call { digest, ended, call } => {
                transaction
                    .prepare_cached(
                        "INSERT INTO call (name, digest, ended, call) VALUES (?1, ?2, ?3, ?4)
                         ON CONFLICT (name) DO UPDATE SET digest = ?2, ended = ?3, call = ?4",
                    )?
                    .execute(params![call.name, digest, ended, call.encode_to_vec()])?;
            }
            Entry::Acknowledged { names } => {
                for name in names {
                    transaction.prepare_cached("DELETE FROM call WHERE name = ?1 AND ended")?.execute([name])?;
                }
            }
            Entry::Forgotten { name } => {
                transaction.prepare_cached("DELETE FROM call WHERE name = ?1")?.execute([name])?;
            }
            Entry::Fence { shard, token } => {
                transaction
                    .prepare_cached(
                        "INSERT INTO fence (shard, token) VALUES (?1, ?2) ON CONFLICT (shard) DO UPDATE SET token = max(token, ?2)",
                    )?
                    .execute(params![shard, token])?;
            }
        }
    }
    transaction.commit()?;
    Ok(vec![(); batch.len()])
}
