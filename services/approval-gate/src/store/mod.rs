//! The gate's store: approvals, grants and policies. The gate returns and shows only committed data.
//!
//! Each change is decided inside its transaction, on the current row: of several concurrent decisions, exactly one succeeds.

mod operations;
mod read;
mod schema;
mod write;

use belay_reasons::StoreFault;
use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use belay_group_commit::{CommitError, GroupCommit};
use belay_proto::{
    gate_v1, runner_v1,
    stores::{Service, Stores},
    v1::{self, Approval},
};
use belay_sqlite::{CheckReport, Lane, Location, READERS, Readers, SqliteError, StoreSize, Threads};
use rusqlite::{Connection, OptionalExtension as _};
use thiserror::Error;
use tokio::sync::watch;

use crate::{
    decide::{self, Refusal},
    feed::{ChangeFeed, Head},
};

use self::{
    operations::{Change, Op, Reply},
    schema::{SCHEMA, TABLES},
};
pub(crate) use operations::{ApprovalContent, NewApproval, RequestId};
pub(crate) use read::{Filter, Position};

/// Reads every row of a gate's store, whether or not a process has it open; `None` when there is none.
///
/// # Errors
/// [`StoreError`] when it cannot be opened.
pub fn check(location: &Location) -> Result<Option<CheckReport>, StoreError> {
    let report = belay_sqlite::check(location, &SCHEMA, &TABLES, |connection, report| {
        for row in
            report.rows.iter_mut().filter(|row| ["approval", "body", "grant", "answer"].contains(&row.table.as_str()))
        {
            let key = row.key.parse::<i64>().unwrap_or(0);
            let name =
                connection.query_row("SELECT name FROM approval WHERE key = ?1", [key], |row| row.get::<_, String>(0));
            if let Some(name) = name.optional()? {
                row.affects = format!("approval {name}");
            }
        }
        Ok(())
    });
    Ok(report?)
}

/// Measures a gate's store, whether or not a process has it open; `None` when there is none.
///
/// # Errors
/// [`StoreError`] when it cannot be opened or read.
pub fn measure(location: &Location) -> Result<Option<StoreSize>, StoreError> {
    let counts = [
        ("approvals", "SELECT count(*) FROM approval"),
        ("pending", "SELECT count(*) FROM approval WHERE state = 1"),
        ("grants", "SELECT count(*) FROM grant"),
    ];
    Ok(belay_sqlite::measure(location, &SCHEMA, &counts)?)
}

/// Why the gate's store cannot be opened.
#[derive(Debug, Error)]
#[error("the store of approvals cannot be opened")]
pub struct StoreError(#[from] pub SqliteError);

/// Why a change may not be stored.
pub(crate) type StoreFailure = CommitError<SqliteError>;

/// Failures of a store that the log has named, one of each kind: requests that meet the same damage again and again do not fill it.
#[derive(Clone)]
struct FailureLog {
    path: Arc<Path>,
    named: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl FailureLog {
    fn new(path: &Path) -> Self {
        Self { path: path.into(), named: Arc::default() }
    }

    /// Names the failure, unless one of its kind was named. A damaged row is named where it is read. Returns whether it did.
    fn note(&self, error: &SqliteError) -> bool {
        let is_new = !matches!(error, SqliteError::Row(_))
            && self.named.lock().unwrap_or_else(PoisonError::into_inner).insert(error.reason());
        if is_new {
            tracing::error!(
                store = %self.path.display(),
                reason = error.reason(),
                %error,
                "The store of approvals cannot be used, and executions that need it wait. `belay store check` names what is damaged; \
                 docs/errors.md says what to do about the reason"
            );
        }
        is_new
    }
}

/// An open store.
pub struct Store {
    id: String,
    failures: FailureLog,
    stores: Arc<Stores>,
    writer: GroupCommit<Op, Reply, SqliteError>,
    readers: Arc<Readers>,
    reads: Lane,
    threads: Threads,
    feed: Arc<ChangeFeed>,
}

impl Store {
    /// Opens a store; if it does not exist, creates it with the id that `new_id` returns.
    ///
    /// # Errors
    /// [`StoreError`] when it is in use, damaged or newer.
    pub fn open(location: &Location, threads: Threads, new_id: impl FnOnce() -> String) -> Result<Self, StoreError> {
        let store = belay_sqlite::open(location, &SCHEMA)?;
        let (id, stores, head) = {
            let connection =
                store.writer.lock().expect("a connection just opened was never held by a thread that panicked");
            let id = write::identify(&connection, new_id)?;
            let stores = belay_sqlite::positions(&connection, location, Service::Gate, &id, 0)?;
            (id, stores, read::head(&connection)?)
        };
        let feed = Arc::new(ChangeFeed::new(head));
        let readers = Arc::clone(&store.readers);
        let publisher = Arc::clone(&feed);
        let failures = FailureLog::new(&location.path);
        // The closure owns the store, and with it the lock on its files.
        let writer = GroupCommit::start(threads.writer("belay-gate"), location.max_batch, {
            let (stores, failures) = (Arc::clone(&stores), failures.clone());
            move |batch| {
                perform(&store, &stores, &publisher, batch).inspect_err(|error| {
                    failures.note(error);
                })
            }
        });
        Ok(Self { id, failures, stores, writer, readers, reads: Lane::new(threads, READERS), threads, feed })
    }

    /// Closes the store, and returns when its file can be opened again.
    pub fn close(self) {
        let Self { writer, .. } = self;
        writer.close();
    }

    /// The random identity of this store.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The store's identity for watchers: another value when an operator has accepted it although it is behind.
    pub(crate) fn watched_as(&self) -> String {
        match self.stores.own().generation {
            0 => self.id.clone(),
            generation => format!("{}.{generation}", self.id),
        }
    }

    /// Its position, and the positions of other services' stores.
    pub fn stores(&self) -> &Arc<Stores> {
        &self.stores
    }

    pub(crate) fn follow(&self) -> watch::Receiver<Head> {
        self.feed.follow()
    }

    /// The changes after a revision, if all of them are in memory.
    pub(crate) fn recent(&self, after: i64) -> Option<Vec<Arc<Approval>>> {
        self.feed.after(after)
    }

    /// Stores a new approval, or returns the existing one with its name.
    pub(crate) async fn create(&self, new: NewApproval) -> Result<Result<Approval, Refusal>, StoreFailure> {
        match self.writer.commit(Op::Create(Box::new(new))).await? {
            Reply::Approval(Some(approval)) => Ok(Ok(approval)),
            Reply::Refused(refusal) => Ok(Err(refusal)),
            other => Err(unexpected(other)),
        }
    }

    /// Changes an approval, after expiring it if it is due by `now`. Returns `None` when no approval has this name.
    pub(crate) async fn change(
        &self,
        name: &str,
        now: i64,
        request: Option<RequestId>,
        change: impl FnOnce(&Approval) -> Result<Option<Approval>, Refusal> + Send + 'static,
    ) -> Result<Result<Option<Approval>, Refusal>, StoreFailure> {
        self.change_with(name, now, request, None, None, Box::new(change)).await
    }

    /// Cancels an approval for the executor with this fencing token. Returns `None` when no approval has this name.
    pub(crate) async fn cancel(
        &self,
        name: &str,
        now: i64,
        fence: i64,
    ) -> Result<Result<Option<Approval>, Refusal>, StoreFailure> {
        let cancel = |approval: &Approval| Ok(decide::cancel(approval));
        self.change_with(name, now, None, None, Some(fence), Box::new(cancel)).await
    }

    /// The same for the answer to a form, which is stored with the change.
    pub(crate) async fn answer(
        &self,
        name: &str,
        now: i64,
        request: Option<RequestId>,
        sealed: Vec<u8>,
        change: impl FnOnce(&Approval) -> Result<Option<Approval>, Refusal> + Send + 'static,
    ) -> Result<Result<Option<Approval>, Refusal>, StoreFailure> {
        self.change_with(name, now, request, Some(sealed), None, Box::new(change)).await
    }

    async fn change_with(
        &self,
        name: &str,
        now: i64,
        request: Option<RequestId>,
        answer: Option<Vec<u8>>,
        fence: Option<i64>,
        change: Change,
    ) -> Result<Result<Option<Approval>, Refusal>, StoreFailure> {
        self.try_change(Op::Change { name: name.to_owned(), now, request, answer, fence, change }).await
    }

    /// Returns the current state of an approval for which an executor asks that has this fencing token; `None` when there is none. A form that was
    /// answered or cancelled is asked again with `asks_again`, its revision, unless it has changed since.
    pub(crate) async fn attach(
        &self,
        name: &str,
        fence: i64,
        asks_again: Option<i64>,
    ) -> Result<Result<Option<Approval>, Refusal>, StoreFailure> {
        self.try_change(Op::Attach { name: name.to_owned(), fence, asks_again }).await
    }

    async fn try_change(&self, op: Op) -> Result<Result<Option<Approval>, Refusal>, StoreFailure> {
        match self.writer.commit(op).await? {
            Reply::Approval(approval) => Ok(Ok(approval)),
            Reply::Refused(refusal) => Ok(Err(refusal)),
            other => Err(unexpected(other)),
        }
    }

    /// The sealed answer to a form; `None` before it is answered, and once the executor has acknowledged it.
    pub(crate) async fn sealed_answer(&self, name: &str) -> Result<Option<Vec<u8>>, SqliteError> {
        let name = name.to_owned();
        self.read(move |connection| read::sealed_answer(connection, &name)).await
    }

    /// Expires every due approval.
    pub(crate) async fn lapse(&self, now: i64) -> Result<(), StoreFailure> {
        self.writer.commit(Op::Lapse { now }).await.map(drop)
    }

    /// Stores which decisions an executor has stored or used.
    pub(crate) async fn acknowledge(
        &self,
        names: gate_v1::AcknowledgeApprovalsRequest,
    ) -> Result<Result<(), Refusal>, StoreFailure> {
        match self.writer.commit(Op::Acknowledge(names)).await? {
            Reply::Done => Ok(Ok(())),
            Reply::Refused(refusal) => Ok(Err(refusal)),
            other => Err(unexpected(other)),
        }
    }

    /// Stores a grant, unless there is one already; returns the stored one.
    pub(crate) async fn keep_grant(
        &self,
        approval: &str,
        grant: runner_v1::Grant,
    ) -> Result<runner_v1::Grant, StoreFailure> {
        self.put_grant(approval, grant, false).await
    }

    /// Replaces the stored grant.
    pub(crate) async fn renew_grant(
        &self,
        approval: &str,
        grant: runner_v1::Grant,
    ) -> Result<runner_v1::Grant, StoreFailure> {
        self.put_grant(approval, grant, true).await
    }

    async fn put_grant(
        &self,
        approval: &str,
        grant: runner_v1::Grant,
        renews: bool,
    ) -> Result<runner_v1::Grant, StoreFailure> {
        match self.writer.commit(Op::Grant { approval: approval.to_owned(), grant, renews }).await? {
            Reply::Grant(grant) => Ok(grant),
            other => Err(unexpected(other)),
        }
    }

    /// The grant of an approval; `None` before it is signed.
    pub(crate) async fn grant(&self, approval: &str) -> Result<Option<runner_v1::Grant>, SqliteError> {
        let approval = approval.to_owned();
        self.read(move |connection| read::grant(connection, &approval)).await
    }

    pub(crate) async fn keep_policy(&self, policy: v1::SignedPolicy) -> Result<(), StoreFailure> {
        self.writer.commit(Op::Policy(policy)).await.map(drop)
    }

    /// Deletes the approvals of these executions. Returns `false` when their bytes are still in a file, because of a reader: to be repeated.
    pub(crate) async fn forget(&self, executions: Vec<String>) -> Result<bool, StoreFailure> {
        match self.writer.commit(Op::Forget(executions)).await? {
            Reply::Done => Ok(true),
            Reply::LogInUse => Ok(false),
            other => Err(unexpected(other)),
        }
    }

    /// Reads committed data.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, SqliteError> + Send + 'static,
    ) -> Result<T, SqliteError> {
        let readers = Arc::clone(&self.readers);
        let outcome = self.reads.run(move || read(&readers.connection())).await;
        outcome.inspect_err(|error| {
            self.failures.note(error);
        })
    }

    /// Runs blocking work on a thread of its own.
    pub(crate) async fn work<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.threads.run(work).await
    }

    /// The number of pending approvals.
    pub(crate) async fn count_open(&self) -> Result<usize, SqliteError> {
        self.read(read::count_open).await
    }

    /// The pending approval that was created first.
    pub(crate) async fn oldest_pending(&self) -> Result<Option<Approval>, SqliteError> {
        self.read(read::oldest_pending).await
    }

    pub(crate) async fn get(&self, name: &str) -> Result<Option<Approval>, SqliteError> {
        let name = name.to_owned();
        self.read(move |connection| read::find(connection, &name).map(|row| row.map(|(_, approval)| approval))).await
    }

    /// An approval with its subject and its preview.
    pub(crate) async fn get_full(&self, name: &str) -> Result<Option<Approval>, SqliteError> {
        let name = name.to_owned();
        self.read(move |connection| read::find_full(connection, &name)).await
    }

    pub(crate) async fn list(
        &self,
        filter: Filter,
        after: Position,
        limit: usize,
    ) -> Result<Vec<(Position, Approval)>, SqliteError> {
        self.read(move |connection| read::list(connection, &filter, after, limit)).await
    }

    /// The approvals that changed after a revision, in the order of their latest change.
    pub(crate) async fn changes(
        &self,
        filter: Filter,
        undelivered: bool,
        after: i64,
        limit: usize,
    ) -> Result<Vec<Approval>, SqliteError> {
        self.read(move |connection| read::changes(connection, &filter, undelivered, after, limit)).await
    }

    /// The newest policy.
    pub(crate) async fn policy(&self) -> Result<Option<v1::SignedPolicy>, SqliteError> {
        self.read(read::policy).await
    }
}

fn perform(
    store: &belay_sqlite::Store,
    stores: &Stores,
    feed: &ChangeFeed,
    batch: Vec<Op>,
) -> Result<Vec<Reply>, SqliteError> {
    store.make_room();
    let mut connection = store.writer.lock().unwrap_or_else(PoisonError::into_inner);
    let forgotten = |(index, op): (usize, &Op)| match op {
        Op::Forget(executions) => Some((index, executions.clone())),
        _ => None,
    };
    let (forgets, forgotten): (Vec<usize>, Vec<Vec<String>>) = batch.iter().enumerate().filter_map(forgotten).unzip();
    let write::CommittedBatch { mut answers, changes, head, number } = write::commit(&mut connection, stores, batch)?;
    if !forgets.is_empty() && !belay_sqlite::empty_log(&connection)? {
        forgets.into_iter().for_each(|index| answers[index] = Reply::LogInUse);
    }
    store.check_in_place()?;
    stores.committed(number);
    // The writer publishes, so that watchers see the changes in order.
    feed.forget(&forgotten.concat());
    feed.publish(changes, head);
    Ok(answers)
}

/// A reply that is not the one to the operation, or that it needs a damaged row.
fn unexpected(reply: Reply) -> StoreFailure {
    CommitError::Failed(match reply {
        Reply::Damaged(row) => SqliteError::Row(row),
        _ => SqliteError::Fault(StoreFault::Other("the writer returned a mismatched reply".into())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of the database that holds nothing but zeros: the log names the store once, however often it is read.
    #[tokio::test]
    async fn a_damaged_store_is_named_once() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("gate.db"));
        Store::open(&location, Threads::Real, || "a store".into()).unwrap().close();
        let store = Store::open(&location, Threads::Inline, || "a store".into()).unwrap();
        let file = std::fs::OpenOptions::new().write(true).open(&location.path).unwrap();
        let pages = file.metadata().unwrap().len() / 4096;
        for page in 1..pages {
            std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], page * 4096).unwrap();
        }
        for _ in 0..3 {
            let error = store.count_open().await.unwrap_err();
            assert!(matches!(error, SqliteError::Fault(StoreFault::Corrupt(_))), "{error:?}");
        }
        assert_eq!(store.failures.named.lock().unwrap().iter().collect::<Vec<_>>(), [&"STORE_CORRUPT"]);
        assert!(!store.failures.note(&SqliteError::Fault(StoreFault::Corrupt("again".into()))));
        assert!(store.failures.note(&SqliteError::Fault(StoreFault::Full)), "another kind");
    }
}
