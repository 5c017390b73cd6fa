//! The durable half of the memory of calls.
//!
//! A row says what is known of a call: that it has begun, that it waits for a decision, or how it ended; a tombstone forbids one that
//! never arrived. A row that says how a call ended and carries a staged effect is the commit point of that effect: before it nothing
//! happened, after it everything did. Rows go when the executor has acknowledged them and nothing is left to be done for them: see
//! `acknowledgements`.
//!
//! The highest fence of every shard is kept too, so that a runner that restarts does not listen to an owner that was replaced while it
//! was away; the nonces of spent grants, until those would have expired anyway; and the last policy.

mod rows;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use belay_defects::{Defect, is_planted};
use belay_grant::Change;
use belay_policy::Verdict;
use belay_proto::{
    stores::{Service, Stores},
    v1,
};
use belay_sqlite::{CommitError, GroupCommit, Location, Schema, SqliteError, Threads};
use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tokio::sync::watch;

use crate::{
    Secrets, Staged,
    contents::Content,
    secrets::{CallSecrets, Sealer},
};

const SCHEMA: Schema = Schema {
    // "BLYL"
    application_id: 0x424C_594C,
    format: 5,
    earlier_lacks: "columns of this format",
    create: "
        CREATE TABLE meta (one INTEGER PRIMARY KEY CHECK (one = 1), ledger_id TEXT NOT NULL, seal_key BLOB NOT NULL) STRICT;
        CREATE TABLE fence (shard INTEGER PRIMARY KEY, token INTEGER NOT NULL) STRICT;
        CREATE TABLE call (
            name      TEXT PRIMARY KEY,
            digest    TEXT NOT NULL,
            ended     INTEGER NOT NULL,
            -- As it is shown, and sealed as it is where that differs.
            call      BLOB NOT NULL,
            sealed    BLOB,
            -- A staged effect and the folder it belongs to: its plan as text, or sealed where a name in it may be a secret.
            workspace BLOB,
            staged_id TEXT,
            staged    ANY,
            -- In which order effects were put in place, and are again after a crash.
            committed INTEGER,
            CHECK ((workspace IS NULL) = (staged IS NULL) AND (staged IS NULL) = (staged_id IS NULL))
        ) STRICT, WITHOUT ROWID;
        -- What a call that waits for a decision waits with.
        CREATE TABLE held (
            id       INTEGER PRIMARY KEY,
            name     TEXT NOT NULL UNIQUE,
            subject  BLOB NOT NULL,
            -- Both sealed.
            waits    BLOB NOT NULL,
            contents BLOB NOT NULL
        ) STRICT;
        -- Rows of calls that could not be read, as they were found.
        CREATE TABLE set_aside (
            name      TEXT PRIMARY KEY,
            why       TEXT NOT NULL,
            digest    ANY,
            ended     ANY,
            call      ANY,
            sealed    ANY,
            workspace ANY,
            staged_id ANY,
            staged    ANY
        ) STRICT, WITHOUT ROWID;
        CREATE TABLE spent (nonce TEXT PRIMARY KEY, expires INTEGER NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE policy (
            one       INTEGER PRIMARY KEY CHECK (one = 1),
            revision  INTEGER NOT NULL,
            body      BLOB NOT NULL,
            signature BLOB NOT NULL,
            key_id    TEXT NOT NULL
        ) STRICT;
    ",
};

/// Why the ledger cannot be opened.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// Its file cannot be used.
    #[error("the ledger of calls cannot be opened")]
    Store(#[from] SqliteError),
    /// The key to what is sealed in it is gone.
    #[error(
        "calls in ledger.db are sealed, and the key to them is not the one in seal.key: put that back from a backup. Without one, move \
         ledger.db away: calls that wait for a decision run again then, and no outcome of before is known any more"
    )]
    KeyLost,
}

/// Why something was not written, as far as is known.
pub type LedgerFailure = CommitError<SqliteError>;

/// What the ledger is told.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A call starts, is held, is forbidden, or ends: the row is what is known of it now.
    Call(Box<Row>),
    /// Nothing but what goes with every entry: see [`Ledger::let_go`].
    LetGo,
    /// A call that starts over: its row goes.
    Forgotten { name: String },
    /// A shard has a newer owner.
    Fence { shard: i32, token: i64 },
    /// A newer policy holds.
    Policy(v1::SignedPolicy),
    /// Grants that expired before this time, in seconds since 1970, need not be remembered any more.
    Expired { before: i64 },
}

/// What is known of a call.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The digest of what was asked; empty for a tombstone.
    pub(crate) digest: String,
    pub(crate) ended: bool,
    pub(crate) call: v1::ToolCall,
    /// Its effect, held or committed by this very row.
    pub(crate) staged: Option<InPlace>,
    /// What it waits with; only when it waits.
    pub(crate) held: Option<Held>,
    /// The grant on which it went on.
    pub(crate) spends: Option<Spent>,
}

/// A staged effect and the workspace it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InPlace {
    pub(crate) workspace: PathBuf,
    pub(crate) staged: Staged,
}

/// What a call waits with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    /// The canonical bytes of what the decision is about.
    pub(crate) subject: Vec<u8>,
    /// On what its effect is judged again.
    pub(crate) basis: Basis,
    /// The call's result as JSON text, once it has run.
    pub(crate) result: Option<String>,
    /// What it changed, by true names: the subject has those that may be shown.
    pub(crate) changes: Vec<Change>,
    /// What can be shown of the files before and after.
    pub(crate) contents: Vec<Content>,
}

/// On what an effect is judged, apart from the effect itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Basis {
    /// What the policy said of the intent.
    pub(crate) intent: Verdict,
    /// The paths that a person's approval of the call covers; empty where nobody was asked.
    pub(crate) covered: Vec<String>,
}

/// A grant that is used up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) nonce: String,
    /// When the grant ends by itself, in seconds since 1970.
    pub(crate) expires: i64,
}

/// What came of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It is durable.
    Done,
    /// The grant was spent before: nothing of the entry was written.
    GrantSpent,
}

/// What the ledger held when it was opened.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    pub(crate) calls: Vec<Row>,
    /// Rows that have been set aside.
    unreadable: Vec<Unreadable>,
    pub(crate) fences: HashMap<i32, i64>,
    pub(crate) policy: Option<v1::SignedPolicy>,
}

/// A row that cannot be read.
#[derive(Debug)]
struct Unreadable {
    /// The call's name.
    name: String,
    /// Whether the call waited for a decision.
    held: bool,
    why: String,
}

/// An open ledger.
#[derive(Debug)]
pub struct Ledger {
    /// The identity of the file.
    file_id: String,
    /// The identity of the memory: another one when a file was accepted that is behind.
    id: String,
    stores: Arc<Stores>,
    contents: Contents,
    threads: Threads,
    reader: Arc<Mutex<Connection>>,
    secrets: Secrets,
    sealer: Arc<Sealer>,
    /// Ended calls whose rows go with the next commit.
    leaving: Arc<Mutex<Vec<String>>>,
    /// Why nothing more is written, once a write has failed.
    broken: Arc<watch::Sender<Option<SqliteError>>>,
    writer: GroupCommit<Entry, Written, SqliteError>,
}

impl Ledger {
    /// Opens a ledger, making it under the id that `new_id` gives if it is not there.
    ///
    /// # Errors
    /// [`LedgerError`] when it is in use, damaged, newer, of a format from before, or sealed with another key.
    pub fn open(
        location: &Location,
        threads: Threads,
        secrets: Secrets,
        new_id: impl FnOnce() -> String,
    ) -> Result<Self, LedgerError> {
        let store = belay_sqlite::open(location, &SCHEMA)?;
        let (id, sealer, contents, last, stores) = {
            let mut connection = store.writer.lock().expect("nobody has panicked with a connection just opened");
            let (id, sealer) = rows::identify(&connection, &secrets, new_id)?;
            let sealer = sealer.ok_or(LedgerError::KeyLost)?;
            let mut contents = rows::read(&connection, &sealer).map_err(SqliteError::from)?;
            rows::set_aside(&mut connection, &sealer, &id, &mut contents).map_err(SqliteError::from)?;
            let last = rows::last_committed(&connection).map_err(SqliteError::from)?;
            let stores =
                belay_sqlite::positions(&connection, location, Service::Runner, &id, 0).map_err(SqliteError::from)?;
            (id, Arc::new(sealer), contents, last, stores)
        };
        let file_id = id;
        // It does not remember what it did after it was copied.
        let id = match stores.own().generation {
            0 => file_id.clone(),
            generation => format!("{file_id}.{generation}"),
        };
        let reader = Arc::clone(&store.reader);
        let seals = Arc::clone(&sealer);
        let leaving = Arc::<Mutex<Vec<String>>>::default();
        let gone = Arc::clone(&leaving);
        let mut last = last;
        let broken = Arc::new(watch::Sender::new(None));
        let breaks = Arc::clone(&broken);
        let positions = Arc::clone(&stores);
        let writer = GroupCommit::start(threads, "belay-ledger", location.max_batch, move |batch| {
            if let Some(error) = breaks.borrow().clone() {
                return Err(error);
            }
            store.make_room();
            let mut going = std::mem::take(&mut *lock(&gone));
            let written = rows::write(&store, &seals, &positions, &going, &batch, &mut last).map_err(SqliteError::from);
            let written = written.and_then(|(written, number)| {
                store.check_in_place()?;
                positions.committed(number);
                Ok(written)
            });
            written.inspect_err(|error| {
                lock(&gone).append(&mut going);
                tracing::error!(%error, "The ledger cannot be written; nothing is written any more until it is opened again");
                if !is_planted(Defect::DoubtsWhatDidNotHappen) {
                    breaks.send_replace(Some(error.clone()));
                }
            })
        });
        Ok(Self { file_id, id, stores, contents, threads, reader, secrets, sealer, leaving, broken, writer })
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The identity of the file, which stays when the ledger is accepted though it is behind.
    pub(crate) fn file_id(&self) -> &str {
        &self.file_id
    }

    /// How far it has come, and what it remembers of other services' stores.
    pub fn stores(&self) -> &Arc<Stores> {
        &self.stores
    }

    /// What it held when it was opened. What a call that is held waits with stays on the disk.
    pub(crate) fn take_contents(&mut self) -> Contents {
        std::mem::take(&mut self.contents)
    }

    /// What hides the secrets of a call of this tool with these arguments.
    pub(crate) fn secrets_of(&self, tool: &str, arguments: &str) -> Arc<CallSecrets> {
        Arc::new(self.secrets.of_call(tool, arguments))
    }

    /// Why nothing more is written; `None` while all is well. A write that failed may be on the disk all the same, so nothing is written
    /// over it: what the ledger holds is found out when it is opened again.
    pub(crate) fn failure(&self) -> Option<SqliteError> {
        self.broken.borrow().clone()
    }

    /// Returns when a write has failed, or the ledger is behind what others remember of it, with the reason.
    pub(crate) async fn failed(&self) -> SqliteError {
        let mut broken = self.broken.subscribe();
        tokio::select! {
            biased;
            Ok(reason) = broken.wait_for(Option::is_some) => reason.clone().expect("waited for"),
            behind = self.stores.behind() => SqliteError::Behind(behind.to_string()),
        }
    }

    /// Makes an entry durable.
    pub(crate) async fn write(&self, entry: Entry) -> Result<Written, LedgerFailure> {
        self.writer.commit(entry).await
    }

    /// Lets the rows of ended calls go with the next entry that is written, before it. Answers how many wait for that.
    pub(crate) fn let_go(&self, mut names: Vec<String>) -> usize {
        let mut leaving = lock(&self.leaving);
        leaving.append(&mut names);
        leaving.len()
    }

    /// Whether rows wait to go.
    pub(crate) fn has_let_go(&self) -> bool {
        !lock(&self.leaving).is_empty()
    }

    /// Has them go now.
    pub(crate) async fn write_let_go(&self) -> Result<(), LedgerFailure> {
        self.write(Entry::LetGo).await.map(drop)
    }

    /// What a call waits with; nothing when it does not wait.
    pub(crate) async fn held(&self, name: &str) -> Result<Option<(Held, Option<InPlace>)>, SqliteError> {
        let (reader, sealer, name) = (Arc::clone(&self.reader), Arc::clone(&self.sealer), name.to_owned());
        self.threads
            .run(move || {
                let connection = lock(&reader);
                rows::held(&connection, &sealer, &name).map_err(SqliteError::from)
            })
            .await
    }

    /// Whether a grant was used before.
    pub(crate) async fn is_spent(&self, nonce: &str) -> Result<bool, SqliteError> {
        let (reader, nonce) = (Arc::clone(&self.reader), nonce.to_owned());
        self.threads
            .run(move || {
                let connection = lock(&reader);
                rows::is_spent(&connection, &nonce).map_err(SqliteError::from)
            })
            .await
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
