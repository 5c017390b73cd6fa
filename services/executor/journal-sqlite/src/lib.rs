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

mod error;
mod head;
mod inbox;
mod intervals;
mod limits;
mod list;
mod outbox;
mod queries;
mod reader;
mod rows;
mod schedules;
mod schema;
mod sealed;
mod tail;
mod usage;
mod writer;

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use belay_journal::{ExecutionKey, OpenedStore, OpenedToRead, SHARDS, StoreError};
use belay_proto::stores::Service;
use belay_sqlite::{CheckReport, DamagedRow, Lane, Location, READERS, SqliteError, StoreSize, Threads};
use rusqlite::{Connection, OptionalExtension as _};

pub use intervals::Intervals;
pub use sealed::SealedTransition;
pub use writer::SqliteWriter;

use crate::{
    error::store_error,
    head::Head,
    queries::Queries,
    reader::SqliteReader,
    schema::META,
    tail::{Tail, heads_after},
};

/// An open journal on SQLite.
pub type Journal = OpenedStore<SqliteWriter>;

/// Opens a journal, and creates it if it does not exist. The fence increases, so that the store rejects the previous owner.
///
/// # Errors
/// [`StoreError`] when it is in use, damaged, full, or of another format.
pub fn open(
    location: &Location,
    threads: Threads,
    new_store_id: impl FnOnce() -> String,
) -> Result<Journal, StoreError> {
    open_with(location, threads, Intervals::default(), new_store_id)
}

/// [`open`] with other intervals. A journal may be opened with others than it was written with.
///
/// # Errors
/// As [`open`].
pub fn open_with(
    location: &Location,
    threads: Threads,
    intervals: Intervals,
    new_store_id: impl FnOnce() -> String,
) -> Result<Journal, StoreError> {
    let store = belay_sqlite::open(location, &schema::SCHEMA).map_err(store_error)?;
    let failed = |error: rusqlite::Error| store_error(error.into());
    let (store_id, fence, heads, last, stores) = {
        let connection = store.writer.lock().expect("a new connection's lock is not poisoned");
        let (store_id, fence, heads) = begin(&connection, location.accepted, new_store_id).map_err(store_error)?;
        let last_row = rows::last_row(&connection).map_err(failed)?;
        // The sequence remembers keys that are no longer used, too.
        let last_key = "SELECT max(coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'execution'), 0),
                                   coalesce((SELECT max(exec) FROM execution), 0))";
        let last_key = connection.query_row(last_key, [], |row| row.get(0)).map_err(failed)?;
        let stores = belay_sqlite::positions(&connection, location, Service::Executor, &store_id, last_row)
            .map_err(store_error)?;
        (store_id, fence, heads, (last_row, last_key), stores)
    };
    let heads = Arc::new(RwLock::new(heads));
    let queries = Arc::new(Queries::new(Arc::clone(&store.readers), Arc::clone(&heads)));
    let reader = || Arc::new(SqliteReader::new(Arc::clone(&queries), Lane::new(threads, READERS / 2)));
    let (reader, client_reader) = (reader(), reader());
    let fences = [fence; SHARDS as usize];
    let writer = SqliteWriter::new(store, threads, heads, fences, intervals, last, Arc::clone(&stores));
    Ok(OpenedStore { writer, reader, client_reader, store_id, stores, fence })
}

/// Opens a journal to read it, beside the process that owns it or without one. `None` when there is none.
///
/// # Errors
/// [`StoreError`] when it cannot be opened: another format, damaged, no right to read it.
///
/// # Panics
/// Outside a runtime of tokio.
pub fn open_to_read(location: &Location, threads: Threads) -> Result<Option<OpenedToRead>, StoreError> {
    let Some(store) = belay_sqlite::open_to_read(location, &schema::SCHEMA).map_err(store_error)? else {
        return Ok(None);
    };
    let position = belay_sqlite::own_position(&store.readers.connection(), Service::Executor).map_err(store_error)?;
    let Some(position) = position else { return Ok(None) };
    // Before the first read, so that no write after it is missed.
    let writes = belay_sqlite::log_writes(location);
    let identity = position.identity();
    let queries = Arc::new(Queries::beside_owner(Tail::of(store, identity.clone())));
    Ok(Some(OpenedToRead {
        reader: Arc::new(SqliteReader::new(queries, Lane::new(threads, READERS))),
        identity,
        writes,
    }))
}

/// Makes this process the owner, and restores the heads that the previous owner had only in memory.
fn begin(
    connection: &Connection,
    accepted: Option<i64>,
    new_store_id: impl FnOnce() -> String,
) -> Result<(String, i64, HashMap<ExecutionKey, Head>), SqliteError> {
    // The fence of an accepted store that is behind has to be above that of its previous owner: seconds since the Unix epoch are more than any
    // number of starts, and increase from one acceptance to the next.
    let least = accepted.map_or(1, |micros| micros.div_euclid(1_000_000));
    let stored = format!("SELECT store_id, fence, heads_upto, {} FROM meta", META.intact());
    let stored = connection.query_row(&stored, [], |row| {
        if !row.get::<_, bool>(3)? {
            return Ok(None);
        }
        Ok(Some((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)))
    });
    let (store_id, fence, upto) = match stored.optional()? {
        None => {
            let store_id = new_store_id();
            connection.execute(&META.insert(), rusqlite::params![1, store_id, least, 0])?;
            (store_id, least, 0)
        }
        Some(None) => return Err(SqliteError::Row(META.damaged(1))),
        Some(Some((store_id, fence, upto))) => {
            let fence = least.max(fence + 1);
            // In one statement: the power may fail after any.
            let sum = META.sum_of(["one", "store_id", "?1", "heads_upto"]);
            connection.execute(&format!("UPDATE meta SET fence = ?1, sum = {sum}"), [fence])?;
            (store_id, fence, upto)
        }
    };
    Ok((store_id, fence, heads_after(connection, upto)?))
}

/// Reads every row of a journal, whether or not a process has it open; `None` when there is none.
///
/// # Errors
/// [`StoreError`] when it cannot be opened.
pub fn check(location: &Location) -> Result<Option<CheckReport>, StoreError> {
    belay_sqlite::check(location, &schema::SCHEMA, &schema::TABLES, |connection, report| {
        for row in &mut report.rows {
            if let Some(name) = execution_of(connection, row)? {
                row.affects = format!("execution {name}");
            }
        }
        let labels: i64 = connection.query_row(
            "SELECT count(*) FROM label LEFT JOIN execution USING (exec)
             WHERE execution.exec IS NULL OR label.namespace <> execution.namespace OR label.created_at <> execution.created_at
                   OR label.ended_at IS NOT execution.ended_at
                   OR instr(char(30) || labels, char(30) || key || char(31) || value || char(30)) = 0",
            [],
            |row| row.get(0),
        )?;
        if labels > 0 {
            let what = format!("{labels} rows of table `label` do not fit to their executions: lists by label lack these");
            report.structure.push(what);
        }
        Ok(())
    })
    .map_err(store_error)
}

/// Visits the transitions of all executions that have a key, those of each execution in order, whether or not a process has the journal open. Rows that
/// are damaged are left out: [`check`] names them.
///
/// # Errors
/// [`StoreError`] when it cannot be opened or read.
pub fn each_sealed(location: &Location, visit: &mut dyn FnMut(SealedTransition<'_>)) -> Result<(), StoreError> {
    sealed::each(location, visit).map_err(store_error)
}

/// Measures a journal, whether or not a process has it open; `None` when there is none.
///
/// # Errors
/// [`StoreError`] when it cannot be opened or read.
pub fn measure(location: &Location) -> Result<Option<StoreSize>, StoreError> {
    let counts = [
        ("executions", "SELECT count(*) FROM execution"),
        ("unfinished", "SELECT count(*) FROM execution WHERE ended = 0"),
        ("events", "SELECT coalesce(sum(count), 0) FROM log"),
        ("deletions", "SELECT count(*) FROM deletion WHERE reusable_at IS NULL"),
    ];
    belay_sqlite::measure(location, &schema::SCHEMA, &counts).map_err(store_error)
}

/// The name of the execution that a damaged row belongs to, where the row still tells.
fn execution_of(connection: &Connection, row: &DamagedRow) -> Result<Option<String>, rusqlite::Error> {
    let execution = match row.table.as_str() {
        "execution" | "seal_key" | "snapshot" | "waypoint" => "?1",
        "log" => "(SELECT exec FROM log WHERE id = ?1)",
        _ => return Ok(None),
    };
    let name =
        format!("SELECT 'namespaces/' || namespace || '/executions/' || id FROM execution WHERE exec = {execution}");
    connection.query_row(&name, [row.key.parse::<i64>().unwrap_or(0)], |row| row.get(0)).optional()
}

#[cfg(test)]
mod tests {
    use belay_journal::{Change, Cursor, ExecutionRow, JournalWriter as _, Order, Query, Transition};

    use super::*;

    /// S2-FR-037, S2-FR-054, S2-FR-055, S2-FR-056: calls, results and progress are events, and events persist.
    #[tokio::test]
    async fn behaves_like_a_journal() {
        for threads in [Threads::Real, Threads::Inline] {
            let folder = tempfile::tempdir().unwrap();
            let location = Location::file(folder.path().join("journal"));
            belay_journal::conformance::check(&mut || open(&location, threads, || "a store".into()).unwrap()).await;
        }
    }

    /// Heads after the last checkpoint are restored, wherever the checkpoint was.
    #[tokio::test]
    async fn heads_are_found_again_wherever_the_last_checkpoint_was() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        let mut expected = 0;
        for opening in 0..60 {
            let store = open(&location, Threads::Inline, || "a store".into()).unwrap();
            let OpenedStore { mut writer, reader, fence, .. } = store;
            writer::tests::append_rows(&mut writer, reader.as_ref(), fence, opening * 7 % 53, &mut expected).await;
        }
    }

    /// The intervals decide what reading costs and not what is read, also where a journal was written with others.
    /// B-38: also beside its owner, by one reader that stays open from owner to owner.
    #[tokio::test]
    async fn a_journal_reads_the_same_with_any_intervals() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        let mut expected = 0;
        let mut beside: Option<OpenedToRead> = None;
        assert!(open_to_read(&location, Threads::Inline).unwrap().is_none(), "and nothing is made");
        assert!(!location.path.exists());
        let mut last = Cursor(0);
        for (opening, (checkpoint_rows, waypoint_rows)) in
            (0..).zip([(1, 1), (2, 1), (7, 3), (4096, 64), (1, 5), (31, 2), (90, 64), (97, 1), (3, 17)])
        {
            let intervals = Intervals { checkpoint_rows, waypoint_rows };
            let OpenedStore { mut writer, reader, fence, .. } =
                open_with(&location, Threads::Inline, intervals, || "a store".into()).unwrap();
            for _ in 0..3 {
                writer::tests::append_rows(&mut writer, reader.as_ref(), fence, opening * 11 % 29, &mut expected).await;
                let beside = beside
                    .get_or_insert_with(|| open_to_read(&location, Threads::Inline).unwrap().expect("it is there"));
                let (mine, its) = (&beside.reader, &reader);
                let changes = mine.changes(last, 1 << 20).await.unwrap();
                assert_eq!(changes, its.changes(last, 1 << 20).await.unwrap());
                last = changes.next;
                for id in ["one", "other"] {
                    let row = its.find("n", id).await.unwrap().unwrap();
                    assert_eq!(mine.find("n", id).await.unwrap().as_ref(), Some(&row));
                    for after in [0, expected / 2, expected] {
                        let read = its.read(row.key, after, 50).await.unwrap();
                        assert_eq!(mine.read(row.key, after, 50).await.unwrap(), read);
                    }
                }
            }
        }
        // What takes its place is another journal.
        let beside = beside.unwrap();
        std::fs::rename(&location.path, folder.path().join("away")).unwrap();
        assert!(matches!(
            beside.reader.changes(last, 1).await,
            Err(StoreError::Fault(belay_journal::StoreFault::Gone))
        ));
        std::fs::copy(folder.path().join("away"), &location.path).unwrap();
        assert!(matches!(
            beside.reader.changes(last, 1).await,
            Err(StoreError::Fault(belay_journal::StoreFault::Gone))
        ));
    }

    /// B-20: flips each bit of each byte of every column of one execution, one at a time. What is read is what was written, or is refused; the other
    /// execution is read, appended to and listed all the same.
    #[tokio::test]
    async fn no_flipped_bit_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        let mut expected = 0;
        {
            let OpenedStore { mut writer, reader, fence, .. } =
                open(&location, Threads::Inline, || "a store".into()).unwrap();
            writer::tests::append_rows(&mut writer, reader.as_ref(), fence, 20, &mut expected).await;
        }
        let seen = async |opened: &Journal, id: &str| -> Result<(Option<ExecutionRow>, Vec<Transition>), StoreError> {
            let Some(row) = opened.reader.find("n", id).await? else { return Ok((None, Vec::new())) };
            let read = opened.reader.read(row.key, 0, usize::MAX).await?;
            // A head that is damaged names no revision; the log has it.
            Ok((Some(ExecutionRow { revision: 0, ..row }), read))
        };
        let (one, other) = {
            let opened = open(&location, Threads::Inline, || "a store".into()).unwrap();
            (seen(&opened, "one").await.unwrap(), seen(&opened, "other").await.unwrap())
        };
        let copy = folder.path().join("copy");
        let key = one.0.as_ref().unwrap().key.0;
        let mut damaged = 0;
        for (table, rows) in [
            (&schema::EXECUTION, "exec = ?1 AND ?2 = ?2"),
            (&schema::HEAD, "exec = ?1 AND ?2 = ?2"),
            (&schema::LOG, "exec = ?1 AND first_seq = ?2"),
        ] {
            for (index, column) in table.columns.iter().enumerate().filter(|(index, _)| *index > 0) {
                for bit in [0, 1, 5, 13, 31] {
                    std::fs::copy(&location.path, &copy).unwrap();
                    let connection = Connection::open(&copy).unwrap();
                    // As the disk would: no constraint and no index takes notice.
                    let flip = format!("SELECT {column} FROM {} WHERE {rows}", table.name);
                    let value: rusqlite::types::Value =
                        connection.query_row(&flip, [key, 12], |row| row.get(0)).unwrap();
                    use rusqlite::types::Value;
                    let flipped = match value {
                        Value::Integer(number) => Value::Integer(number ^ (1 << bit)),
                        Value::Text(text) if !text.is_empty() => {
                            let mut bytes = text.into_bytes();
                            let place = bit % bytes.len();
                            bytes[place] ^= 1;
                            Value::Text(String::from_utf8(bytes).unwrap())
                        }
                        Value::Blob(mut bytes) if !bytes.is_empty() => {
                            let place = bit % bytes.len();
                            bytes[place] ^= 1 << (bit % 8);
                            Value::Blob(bytes)
                        }
                        _ => continue,
                    };
                    let update = format!("UPDATE {} SET {column} = ?3 WHERE {rows}", table.name);
                    if connection.execute(&update, rusqlite::params![key, 12, flipped]).is_err() {
                        continue;
                    }
                    drop(connection);
                    let location = Location::file(&copy);
                    let mut opened = open(&location, Threads::Inline, || "another".into()).unwrap();
                    let case = format!("{}.{column} ({index}), bit {bit}", table.name);
                    match seen(&opened, "one").await {
                        // The name of the execution was what was damaged, and its index, which was not, does not lead here.
                        Ok((None, _)) => {}
                        Ok(found) => assert_eq!(found, one, "{case}"),
                        Err(StoreError::Damaged(what)) => {
                            damaged += 1;
                            assert!(what.contains(&format!("table `{}` is damaged", table.name)), "{case}: {what}");
                        }
                        Err(error) => panic!("{case}: {error}"),
                    }
                    if !(table.name == "log" && *column == "exec") {
                        assert_eq!(seen(&opened, "other").await.unwrap(), other, "{case}");
                    }
                    let all = Query {
                        namespace: None,
                        filter: Vec::new(),
                        order: Order::NEWEST_FIRST,
                        after: None,
                        limit: 9,
                    };
                    let listed = opened.reader.list(&all).await.unwrap().rows;
                    let is_known = |row: &ExecutionRow| {
                        let row = Some(ExecutionRow { revision: 0, ..row.clone() });
                        row == one.0 || row == other.0
                    };
                    assert!(listed.iter().all(is_known), "{case}");
                    let is_written = |change: &Change| {
                        let of = |(row, transitions): &(Option<ExecutionRow>, Vec<Transition>)| {
                            let written = |t: &Transition| {
                                (t.first_sequence, t.last_sequence()) == (change.first_sequence, change.last_sequence)
                            };
                            row.as_ref().is_some_and(|row| row.key == change.key) && transitions.iter().any(written)
                        };
                        of(&one) || of(&other)
                    };
                    let followed = opened.reader.changes(Cursor::START, 1000).await.unwrap().changes;
                    assert!(followed.iter().all(is_written), "{case}");
                    let last = other.1.last().unwrap().last_sequence();
                    let append = belay_journal::StoreWrite::Append {
                        key: other.0.as_ref().unwrap().key,
                        transition: Transition {
                            first_sequence: last + 1,
                            count: 1,
                            version: 1,
                            shown: vec![],
                            sealed: None,
                            facts: None,
                        },
                        summary: None,
                        seal_key: None,
                        outbox: Vec::new(),
                        inbox: Default::default(),
                        usage: Vec::new(),
                        limits: Vec::new(),
                        fence: belay_journal::Fence { shard: 3, token: opened.fence },
                    };
                    assert!(opened.writer.commit(&[append]).await.unwrap()[0].is_ok(), "{case}");
                    drop(opened);
                    let report = check(&location).unwrap().unwrap();
                    assert_eq!(report.rows.len(), 1, "{case}: {report:?}");
                }
            }
        }
        assert!(damaged > 60, "{damaged} flips were found by reading");
        assert_eq!(check(&location).unwrap(), Some(CheckReport::default()));
    }

    fn opened(location: &Location) -> Journal {
        open(location, Threads::Inline, || "a store".into()).unwrap()
    }

    async fn key_of(opened: &Journal, id: &str) -> ExecutionKey {
        opened.reader.find("n", id).await.unwrap().unwrap().key
    }

    /// Changes a file as a disk would: no constraint takes notice.
    fn damage(location: &Location, statement: &str) {
        assert_eq!(Connection::open(&location.path).unwrap().execute(statement, []).unwrap(), 1, "{statement}");
    }

    fn append(key: ExecutionKey, first_sequence: u64, fence: i64) -> belay_journal::StoreWrite {
        let (shown, sealed, facts) = (vec![], None, None);
        let transition = Transition { first_sequence, count: 1, version: 1, shown, sealed, facts };
        let fence = belay_journal::Fence { shard: 3, token: fence };
        belay_journal::StoreWrite::Append {
            key,
            transition,
            summary: None,
            seal_key: None,
            outbox: Vec::new(),
            inbox: Default::default(),
            usage: Vec::new(),
            limits: Vec::new(),
            fence,
        }
    }

    // B-20: whoever pages through the schedules sees a page that is not full as the last.
    #[tokio::test]
    async fn a_damaged_schedule_hides_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        {
            let OpenedStore { mut writer, fence, .. } = opened(&location);
            let put = |id: &str| belay_journal::StoreWrite::PutSchedule {
                schedule: belay_journal::ScheduleRow {
                    namespace: "n".into(),
                    id: id.into(),
                    revision: 1,
                    ..Default::default()
                },
                fence: belay_journal::Fence { shard: 3, token: fence },
            };
            let stored = writer.commit(&["a", "b", "c", "d"].map(put)).await.unwrap();
            assert!(stored.iter().all(Result::is_ok), "{stored:?}");
        }
        damage(&location, "UPDATE schedule SET revision = 7 WHERE id = 'b'");
        let reader = opened(&location).reader;
        let page = async |after: &str| -> Vec<String> {
            let rows = reader.schedules("n", ("n", after), 2).await.unwrap();
            rows.into_iter().map(|row| row.id).collect()
        };
        assert_eq!([page("").await, page("c").await], [vec!["a".to_owned(), "c".to_owned()], vec!["d".to_owned()]]);
        assert!(matches!(reader.schedule("n", "b").await, Err(StoreError::Damaged(_))));
    }

    // B-20: an execution does not continue from the row before a damaged one, whichever execution the row claims to be of.
    #[tokio::test]
    async fn nothing_is_written_after_a_damaged_row() {
        let folder = tempfile::tempdir().unwrap();
        for (victim, flip) in [
            ("one", "exec = exec | 2"),
            ("one", "exec = exec & ~1"),
            ("other", "exec = exec | 4"),
            ("one", "count = 7"),
        ] {
            let case = format!("{victim}: {flip}");
            let location = Location::file(folder.path().join(&case));
            let mut expected = 0;
            let last_of = async |journal: &Journal, id: &str| {
                let key = key_of(journal, id).await;
                (key, journal.reader.read(key, 0, usize::MAX).await.unwrap().last().unwrap().last_sequence())
            };
            let ((damaged, last), (whole, mut last_of_whole)) = {
                let mut journal = opened(&location);
                writer::tests::append_rows(
                    &mut journal.writer,
                    journal.reader.as_ref(),
                    journal.fence,
                    5,
                    &mut expected,
                )
                .await;
                let whole = if victim == "one" { "other" } else { "one" };
                (last_of(&journal, victim).await, last_of(&journal, whole).await)
            };
            assert_eq!((damaged.0 + whole.0, damaged.0 & 4), (3, 0), "what the bits that are flipped rely on");
            damage(&location, &format!("UPDATE log SET {flip} WHERE exec = {} AND first_seq = {last}", damaged.0));
            // Before and after a checkpoint, which stores what is known of the last rows.
            for _ in 0..3 {
                let intervals = Intervals { checkpoint_rows: 3, waypoint_rows: 64 };
                let mut opened = open_with(&location, Threads::Inline, intervals, || "a store".into()).unwrap();
                let fence = opened.fence;
                let content = belay_journal::Snapshot { sequence: last, version: 1, content: vec![], is_sealed: false };
                let of_this = belay_journal::Fence { shard: 3, token: fence };
                let snapshot =
                    belay_journal::StoreWrite::KeepSnapshot { key: damaged, snapshot: content, fence: of_this };
                for refused in [append(damaged, last, fence), append(damaged, last + 1, fence), snapshot] {
                    let answers = opened.writer.commit(&[refused]).await.unwrap();
                    assert!(matches!(answers[0], Err(belay_journal::Refused::Damaged(_))), "{case}: {answers:?}");
                }
                let others = [1, 2].map(|next| append(whole, last_of_whole + next, fence));
                assert!(opened.writer.commit(&others).await.unwrap().iter().all(Result::is_ok), "{case}");
                last_of_whole += 2;
            }
        }
    }

    // How much of an execution is read with one waypoint does not depend on how often the journal was opened.
    #[tokio::test]
    async fn rows_are_counted_on_after_opening_again() {
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("journal"));
        let mut expected = 0;
        for count in [20, 20, 30] {
            let OpenedStore { mut writer, reader, fence, .. } = opened(&location);
            writer::tests::append_rows(&mut writer, reader.as_ref(), fence, count, &mut expected).await;
        }
        let connection = Connection::open(&location.path).unwrap();
        let waypoints = "SELECT group_concat(first_seq) FROM waypoint JOIN execution USING (exec) WHERE id = 'one'";
        assert_eq!(connection.query_row(waypoints, [], |row| row.get::<_, String>(0)).unwrap(), "64");
    }

    // `belay store check` names what a damaged row belongs to, in the words of its owner.
    #[tokio::test]
    async fn a_check_names_the_execution_and_counts_labels_that_do_not_fit() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| Location::file(folder.path().join(name));
        let mut expected = 0;
        {
            let OpenedStore { mut writer, reader, fence, .. } = opened(&path("whole"));
            writer::tests::append_rows(&mut writer, reader.as_ref(), fence, 70, &mut expected).await;
            let labels = [("team".to_owned(), "a".to_owned())].into();
            let execution = belay_journal::NewExecution {
                namespace: "n".into(),
                id: "labelled".into(),
                shard: 3,
                created_at: 5,
                plan_id: "p".into(),
                labels,
                principal: String::new(),
                request_id: String::new(),
                request_hash: String::new(),
                parent: None,
            };
            let (shown, sealed, facts) = (vec![9; 3], None, None);
            let create = belay_journal::StoreWrite::Create {
                execution,
                transition: Transition { first_sequence: 1, count: 2, version: 1, shown, sealed, facts },
                summary: belay_journal::ExecutionSummary::default(),
                seal_key: Some(vec![4; 3]),
                outbox: Vec::new(),
                inbox: Default::default(),
                folder: Some(belay_journal::Folder::New("damaged".into())),
                limits: Vec::new(),
                fence: belay_journal::Fence { shard: 3, token: fence },
            };
            assert!(writer.commit(&[create]).await.unwrap()[0].is_ok());
        }
        for (statement, table) in [
            ("UPDATE execution SET principal = 'x' WHERE id = 'one'", "execution"),
            ("UPDATE log SET shown = x'00' WHERE id = (SELECT last_log FROM execution WHERE id = 'one')", "log"),
            (
                "UPDATE log SET shown = x'00' WHERE first_seq = 9 AND exec = (SELECT exec FROM execution WHERE id = 'one')",
                "log",
            ),
            ("UPDATE waypoint SET log = 1 WHERE exec = (SELECT exec FROM execution WHERE id = 'one')", "waypoint"),
        ] {
            let location = path(&format!("copy of {}", statement.len()));
            std::fs::copy(path("whole").path, &location.path).unwrap();
            damage(&location, statement);
            let report = check(&location).unwrap().unwrap();
            let found: Vec<_> = report.rows.iter().map(|row| (row.table.as_str(), row.affects.as_str())).collect();
            assert_eq!(found, [(table, "execution namespaces/n/executions/one")], "{statement}");
        }
        assert_eq!(check(&path("whole")).unwrap(), Some(CheckReport::default()));

        let mut visited = Vec::new();
        let mut visit =
            |one: SealedTransition<'_>| visited.push((one.id.to_owned(), one.wrapped.to_vec(), one.shown.to_vec()));
        each_sealed(&path("whole"), &mut visit).unwrap();
        assert_eq!(visited, [("labelled".to_owned(), vec![4; 3], vec![9; 3])]);
        let size = measure(&path("whole")).unwrap().unwrap();
        let counts = [("executions", 3), ("unfinished", 3), ("events", 1 + 70 + 1 + 97 + 2), ("deletions", 0)];
        assert_eq!(size.counts, counts);
        assert_eq!(measure(&path("nowhere")).unwrap(), None);

        damage(&path("whole"), "UPDATE label SET value = 'b'");
        let report = check(&path("whole")).unwrap().unwrap();
        assert_eq!(report.rows, []);
        assert_eq!(
            report.structure,
            ["1 rows of table `label` do not fit to their executions: lists by label lack these"]
        );
    }

    // A writer that blocks gets a thread of its own; in a simulation it must not.
    #[test]
    fn the_writer_blocks_where_threads_are_real() {
        let folder = tempfile::tempdir().unwrap();
        for (threads, blocks) in [(Threads::Real, true), (Threads::Inline, false)] {
            let location = Location::file(folder.path().join(format!("{threads:?}")));
            assert_eq!(open(&location, threads, || "a store".into()).unwrap().writer.blocks(), blocks);
        }
    }
}
