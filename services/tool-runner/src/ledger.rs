//! The durable record of calls.
//!
//! A row holds the state of a call: started, waiting for approval, or ended; a tombstone prevents a call that was cancelled before it
//! arrived. The row of an ended call with a staged effect is the commit point of that effect: before it is written nothing has happened,
//! after it everything has. Rows are deleted once the executor has acknowledged them and their effects are synced: see `acknowledgements`.
//!
//! The ledger also keeps the highest fencing token of every shard, so that a restarted runner still rejects a replaced executor; the nonces
//! of spent grants until those grants have expired; and the last policy.

mod entry;
mod rows;
mod tables;

use belay_reasons::StoreFault;
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use belay_defects::{Defect, is_planted};
use belay_group_commit::{CommitError, GroupCommit};
use belay_proto::{
    runner_v1,
    stores::{Service, Stores},
};
use belay_sqlite::{CheckReport, Location, Readers, SqliteError, StoreSize, Threads};
use data_encoding::BASE64;
use serde_json::json;
use thiserror::Error;
use tokio::sync::watch;

pub(crate) use entry::{
    Contents, Entry, HeldCall, JudgementInput, LayerNote, LayerSet, PendingApproval, Row, SealedSecrets, SpentGrant,
    StepEffect, WorkspaceEffect, WriteOutcome,
};
use tables::{SCHEMA, TABLES};

use crate::{
    Secrets,
    json_of::json_of,
    lock::lock,
    secrets::{CallSecrets, Part, Sealer},
};

/// Reads every row of a ledger, whether or not a process has it open; `None` when there is none. Names also the rows that a start has set aside.
///
/// # Errors
/// [`SqliteError`] when it cannot be opened.
pub fn check(location: &Location) -> Result<Option<CheckReport>, SqliteError> {
    belay_sqlite::check(location, &SCHEMA, &TABLES, |connection, report| {
        let mut aside = connection.prepare("SELECT name FROM set_aside ORDER BY name")?;
        for name in aside.query_map([], |row| row.get::<_, String>(0))? {
            report
                .structure
                .push(format!("the row of call `{}` was damaged, and is in table `set_aside` since a start", name?));
        }
        Ok(())
    })
}

/// Measures a ledger, whether or not a process has it open; `None` when there is none.
///
/// # Errors
/// [`SqliteError`] when it cannot be opened or read.
pub fn measure(location: &Location) -> Result<Option<StoreSize>, SqliteError> {
    let counts = [("calls", "SELECT count(*) FROM call"), ("waiting", "SELECT count(*) FROM held")];
    belay_sqlite::measure(location, &SCHEMA, &counts)
}

/// Why the ledger cannot be opened.
#[derive(Debug, Error)]
pub enum LedgerError {
    /// Its file cannot be used.
    #[error("the call ledger cannot be opened")]
    Store(#[from] SqliteError),
    /// The key that sealed rows in it is missing.
    #[error(
        "calls in ledger.db were sealed with another key than the one in seal.key: restore that file from a backup. If there is none, \
         move ledger.db away: calls that wait for approval then run again, and the outcomes of earlier calls are lost"
    )]
    KeyLost,
}

/// Why a write failed, as far as is known.
pub type LedgerFailure = CommitError<SqliteError>;

/// An open ledger.
#[derive(Debug)]
pub struct Ledger {
    /// The identity of the file.
    file_id: String,
    /// The identity of the content: changes when the operator accepts an older copy of the file.
    id: String,
    stores: Arc<Stores>,
    contents: Contents,
    threads: Threads,
    readers: Arc<Readers>,
    secrets: Secrets,
    sealer: Arc<Sealer>,
    /// Ended calls whose rows the next commit deletes.
    pending_deletes: Arc<Mutex<Vec<String>>>,
    /// Whether the write-ahead log was emptied after the last executions were forgotten.
    log_is_empty: Arc<AtomicBool>,
    /// The first failed write, after which nothing more is written.
    broken: Arc<watch::Sender<Option<SqliteError>>>,
    writer: GroupCommit<Entry, WriteOutcome, SqliteError>,
}

impl Ledger {
    /// Opens a ledger, or creates it with the id that `new_id` returns.
    ///
    /// # Errors
    /// [`LedgerError`] when the file is in use, damaged, of a newer or older format, or sealed with another key.
    pub fn open(
        location: &Location,
        threads: Threads,
        secrets: Secrets,
        new_id: impl FnOnce() -> String,
    ) -> Result<Self, LedgerError> {
        let store = belay_sqlite::open(location, &SCHEMA)?;
        let (id, sealer, contents, last, stores) = {
            let mut connection =
                store.writer.lock().expect("the connection was just opened, so no thread has panicked with it");
            let (id, sealer) = rows::identify(&connection, &secrets, new_id)?;
            let sealer = sealer.ok_or(LedgerError::KeyLost)?;
            let mut contents = rows::read(&mut connection, &sealer).map_err(SqliteError::from)?;
            rows::set_aside(&mut connection, &sealer, &id, &mut contents).map_err(SqliteError::from)?;
            let last = rows::last_committed(&connection).map_err(SqliteError::from)?;
            let stores = belay_sqlite::positions(&connection, location, Service::Runner, &id, 0)?;
            (id, Arc::new(sealer), contents, last, stores)
        };
        let file_id = id;
        // An older copy does not know the calls made after it was copied, so it gets another identity.
        let id = match stores.own().generation {
            0 => file_id.clone(),
            generation => format!("{file_id}.{generation}"),
        };
        let readers = Arc::clone(&store.readers);
        let seals = Arc::clone(&sealer);
        let pending_deletes = Arc::<Mutex<Vec<String>>>::default();
        let deletes_of_writer = Arc::clone(&pending_deletes);
        let mut last = last;
        let broken = Arc::new(watch::Sender::new(None));
        let breaks = Arc::clone(&broken);
        let positions = Arc::clone(&stores);
        let log_is_empty = Arc::new(AtomicBool::new(true));
        let empties = Arc::clone(&log_is_empty);
        let writer =
            GroupCommit::start(threads.writer("belay-ledger"), location.max_batch, move |batch: Vec<Entry>| {
                if let Some(error) = breaks.borrow().clone() {
                    return Err(error);
                }
                store.make_room();
                let mut deletes = std::mem::take(&mut *lock(&deletes_of_writer));
                let written =
                    rows::write(&store, &seals, &positions, &deletes, &batch, &mut last).map_err(SqliteError::from);
                let written = written.and_then(|(written, number)| {
                    if batch.iter().any(|entry| matches!(entry, Entry::Forget { .. })) {
                        let connection = store.writer.lock().unwrap_or_else(PoisonError::into_inner);
                        empties.store(belay_sqlite::empty_log(&connection)?, Ordering::SeqCst);
                    }
                    store.check_in_place()?;
                    positions.committed(number);
                    Ok(written)
                });
                written.inspect_err(|error| {
                lock(&deletes_of_writer).append(&mut deletes);
                tracing::error!(%error, "Cannot write the ledger; it accepts no more writes until it is opened again");
                if !is_planted(Defect::UncommittedReportedUnknown) {
                    breaks.send_replace(Some(error.clone()));
                }
            })
            });
        Ok(Self {
            file_id,
            id,
            stores,
            contents,
            threads,
            readers,
            secrets,
            sealer,
            pending_deletes,
            log_is_empty,
            broken,
            writer,
        })
    }

    /// Closes the ledger, and returns when its file can be opened again.
    pub fn close(self) {
        let Self { writer, .. } = self;
        writer.close();
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The identity of the file, which stays the same when an older copy is accepted.
    pub(crate) fn file_id(&self) -> &str {
        &self.file_id
    }

    /// Its position, and the positions of other services' stores that it remembers.
    pub fn stores(&self) -> &Arc<Stores> {
        &self.stores
    }

    /// Its content when it was opened, except the pending approvals, which stay on disk.
    pub(crate) fn take_contents(&mut self) -> Contents {
        std::mem::take(&mut self.contents)
    }

    /// Redacts the secrets of a call of this tool with these arguments.
    pub(crate) fn secrets_of(&self, tool: &str, arguments: &str) -> Arc<CallSecrets> {
        Arc::new(self.secrets.of_call(tool, arguments))
    }

    /// The secrets of a call that was told its own, in its context or by its output, beside those in its arguments.
    pub(crate) fn secrets_of_call(&self, call: &runner_v1::ToolCall) -> Arc<CallSecrets> {
        let secrets = self.secrets.of_call(&call.tool, &json_of(call.arguments.as_ref()));
        Arc::new(secrets.with_found(&call.secrets))
    }

    /// The secrets in the context of a call.
    pub(crate) fn secrets_in_context(&self, context: Option<&str>) -> Vec<String> {
        context.map(|context| self.secrets.in_context(context)).unwrap_or_default()
    }

    /// Seals the secrets that a call knew for the call that commits its layer.
    pub(crate) fn seal_secrets(&self, call: &str, secrets: &BTreeSet<String>) -> SealedSecrets {
        let sealed = match secrets.is_empty() {
            true => String::new(),
            false => BASE64.encode(&self.sealer.seal(call, Part::Layer, json!(secrets).to_string().as_bytes())),
        };
        SealedSecrets { call: call.to_owned(), sealed }
    }

    /// The secrets that a call knew; `None` when this ledger did not seal them.
    pub(crate) fn open_secrets(&self, SealedSecrets { call, sealed }: &SealedSecrets) -> Option<Vec<String>> {
        if sealed.is_empty() {
            return Some(Vec::new());
        }
        let sealed = BASE64.decode(sealed.as_bytes()).ok()?;
        serde_json::from_slice(&self.sealer.open(call, Part::Layer, &sealed).ok()?).ok()
    }

    /// The first failed write; `None` while there was none. A failed write may be on disk all the same, so nothing is written over it: the
    /// next opening finds out.
    pub(crate) fn failure(&self) -> Option<SqliteError> {
        self.broken.borrow().clone()
    }

    /// Returns with the cause when a write has failed, or when another service remembers a newer state of this ledger.
    pub(crate) async fn failed(&self) -> SqliteError {
        let mut broken = self.broken.subscribe();
        tokio::select! {
            biased;
            Ok(reason) = broken.wait_for(Option::is_some) => reason.clone().expect("waited for"),
            behind = self.stores.behind() => SqliteError::Fault(StoreFault::Behind(behind.to_string())),
        }
    }

    /// Makes an entry durable.
    pub(crate) async fn write(&self, entry: Entry) -> Result<WriteOutcome, LedgerFailure> {
        self.writer.commit(entry).await
    }

    /// Deletes every row about the calls of an execution. Returns `false` when their bytes are still in a file, because of a reader: to be
    /// repeated.
    pub(crate) async fn forget(&self, execution: &str) -> Result<bool, LedgerFailure> {
        self.write(Entry::Forget { execution: execution.to_owned() }).await?;
        Ok(self.log_is_empty.load(Ordering::SeqCst))
    }

    /// Deletes the rows of ended calls with the next entry that is written, before it. Returns how many deletes are pending.
    pub(crate) fn delete_later(&self, mut names: Vec<String>) -> usize {
        let mut pending_deletes = lock(&self.pending_deletes);
        pending_deletes.append(&mut names);
        pending_deletes.len()
    }

    /// Whether deletes are pending.
    pub(crate) fn has_pending_deletes(&self) -> bool {
        !lock(&self.pending_deletes).is_empty()
    }

    /// Commits the pending deletes now.
    pub(crate) async fn flush_deletes(&self) -> Result<(), LedgerFailure> {
        self.write(Entry::FlushDeletes).await.map(drop)
    }

    /// Reads the stored approval of a call that waits for one; `None` if it does not wait.
    pub(crate) async fn pending_approval(
        &self,
        name: &str,
    ) -> Result<Option<(PendingApproval, Option<WorkspaceEffect>)>, SqliteError> {
        let (readers, sealer, name) = (Arc::clone(&self.readers), Arc::clone(&self.sealer), name.to_owned());
        self.threads
            .run(move || {
                let connection = readers.connection();
                rows::pending_approval(&connection, &sealer, &name)
            })
            .await
    }

    /// The row of a call that waits for approval.
    pub(crate) async fn held_call(&self, name: &str) -> Result<Row, SqliteError> {
        let (readers, sealer, name) = (Arc::clone(&self.readers), Arc::clone(&self.sealer), name.to_owned());
        self.threads
            .run(move || {
                let connection = readers.connection();
                rows::held_call(&connection, &sealer, &name)
            })
            .await
    }

    /// Whether a grant was spent.
    pub(crate) async fn is_spent(&self, nonce: &str) -> Result<bool, SqliteError> {
        let (readers, nonce) = (Arc::clone(&self.readers), nonce.to_owned());
        self.threads
            .run(move || {
                let connection = readers.connection();
                rows::is_spent(&connection, &nonce).map_err(SqliteError::from)
            })
            .await
    }
}
