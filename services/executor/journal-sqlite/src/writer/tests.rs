use std::collections::BTreeMap;

use belay_journal::{DeleteRequest, JournalReader};
use belay_sqlite::Location;

use super::*;
use crate::rows::read_labels;

/// Appends `count` rows to one execution (made when `expected` is 0) and some to others, then reads the one back.
pub(crate) async fn append_rows(
    writer: &mut SqliteWriter,
    reader: &dyn JournalReader,
    fence: i64,
    count: u64,
    expected: &mut u64,
) {
    let fence = Fence { shard: 3, token: fence };
    let transition = |first_sequence, count| Transition {
        first_sequence,
        count,
        version: 1,
        shown: vec![1; 40],
        sealed: None,
        facts: None,
    };
    if *expected == 0 {
        for id in ["one", "other"] {
            let execution = NewExecution { namespace: "n".into(), id: id.into(), shard: 3, ..new() };
            let create = StoreWrite::Create {
                execution,
                transition: transition(1, 1),
                summary: ExecutionSummary::default(),
                seal_key: None,
                outbox: Vec::new(),
                inbox: Default::default(),
                folder: Some(Folder::New(id.into())),
                limits: Vec::new(),
                fence,
            };
            assert!(writer.commit(&[create]).await.unwrap()[0].is_ok());
        }
        *expected = 1;
    }
    let key = async |id: &str| reader.find("n", id).await.unwrap().unwrap().key;
    let (one, other) = (key("one").await, key("other").await);
    let others = reader.read(other, 0, usize::MAX).await.unwrap().last().map_or(0, Transition::last_sequence);
    // Enough on the side that checkpoints fall everywhere.
    let mut batch: Vec<StoreWrite> = (1..=97)
        .map(|n| StoreWrite::Append {
            key: other,
            transition: transition(others + n, 1),
            summary: None,
            seal_key: None,
            outbox: Vec::new(),
            usage: Vec::new(),
            inbox: Default::default(),
            limits: Vec::new(),
            fence,
        })
        .collect();
    for n in 1..=count {
        let summary = (n % 11 == 5).then(ExecutionSummary::default);
        batch.push(StoreWrite::Append {
            key: one,
            transition: transition(*expected + n, 1),
            summary,
            seal_key: None,
            outbox: Vec::new(),
            usage: Vec::new(),
            inbox: Default::default(),
            limits: Vec::new(),
            fence,
        });
    }
    assert!(writer.commit(&batch).await.unwrap().iter().all(Result::is_ok));
    *expected += count;
    let sequences: Vec<u64> = reader.read(one, 0, usize::MAX).await.unwrap().iter().map(|t| t.first_sequence).collect();
    assert_eq!(sequences, (1..=*expected).collect::<Vec<_>>());
    assert_eq!(
        reader.read(one, *expected / 2, 3).await.unwrap().first().map(|t| t.first_sequence),
        Some(*expected / 2 + 1).filter(|first| first <= expected)
    );
}

fn new() -> NewExecution {
    NewExecution {
        namespace: String::new(),
        id: String::new(),
        shard: 0,
        created_at: 0,
        plan_id: String::new(),
        labels: BTreeMap::new(),
        principal: String::new(),
        request_id: String::new(),
        request_hash: String::new(),
        parent: None,
    }
}

const LENGTH: u64 = 205;

fn opened(location: &Location) -> crate::Journal {
    crate::open(location, Threads::Inline, || "a store".into()).unwrap()
}

/// An execution with so many transitions that has ended. Each transition takes so many bytes.
async fn ended_execution(opened: &mut crate::Journal, bytes: usize) -> ExecutionKey {
    let fence = Fence { shard: 3, token: opened.fence };
    let shown = vec![b'x'; bytes];
    let transition = |first_sequence| Transition {
        first_sequence,
        count: 1,
        version: 1,
        shown: shown.clone(),
        sealed: None,
        facts: None,
    };
    let execution = NewExecution { namespace: "n".into(), id: "ended".into(), shard: 3, ..new() };
    let (summary, seal_key) = (ExecutionSummary::default(), None);
    let create = StoreWrite::Create {
        execution,
        transition: transition(1),
        summary,
        seal_key,
        outbox: Vec::new(),
        inbox: Default::default(),
        folder: None,
        limits: Vec::new(),
        fence,
    };
    assert!(opened.writer.commit(&[create]).await.unwrap()[0].is_ok());
    let key = opened.reader.find("n", "ended").await.unwrap().unwrap().key;
    let ends = |sequence| {
        let ended = ExecutionSummary { ended: true, ended_at: Some(1), ..ExecutionSummary::default() };
        (sequence == LENGTH).then_some(ended)
    };
    let append = |sequence| StoreWrite::Append {
        key,
        transition: transition(sequence),
        summary: ends(sequence),
        seal_key: None,
        outbox: Vec::new(),
        usage: Vec::new(),
        inbox: Default::default(),
        limits: Vec::new(),
        fence,
    };
    let appends: Vec<StoreWrite> = (2..=LENGTH).map(append).collect();
    assert!(opened.writer.commit(&appends).await.unwrap().iter().all(Result::is_ok));
    key
}

fn delete(key: ExecutionKey, fence: Fence) -> StoreWrite {
    let request = DeleteRequest { id: String::new(), hash: String::new() };
    StoreWrite::Delete { key, deleted_at: 5, request, fence }
}

/// Runs a statement that counts something in the file, and returns the count.
fn counted(location: &Location, statement: &str) -> i64 {
    Connection::open(&location.path).unwrap().query_row(statement, [], |row| row.get(0)).unwrap()
}

// A cursor that a watcher was given names the same place after a restart, also where the last thing that was written is a deletion.
#[tokio::test]
async fn a_deletion_has_a_number_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::file(folder.path().join("journal"));
    let mut store = opened(&location);
    let fence = Fence { shard: 3, token: store.fence };
    let key = ended_execution(&mut store, 1).await;
    let before = store.reader.latest().await.unwrap();
    assert_eq!(store.writer.commit(&[delete(key, fence)]).await.unwrap(), vec![Ok(StoreWriteOutcome::Deleted)]);
    drop(store);
    let store = opened(&location);
    assert!(store.reader.latest().await.unwrap() > before);
}

#[tokio::test]
async fn each_step_of_a_deletion_takes_as_many_events_as_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::file(folder.path().join("journal"));
    let mut store = opened(&location);
    let fence = Fence { shard: 3, token: store.fence };
    let key = ended_execution(&mut store, 64 << 10).await;
    let waypoints = "SELECT count(*) FROM waypoint";
    assert_eq!(counted(&location, waypoints), 3, "one for each 64 transitions");
    let erase = |max_transitions| StoreWrite::Erase { key, max_transitions, fence };
    let left = "SELECT count(*) FROM log";
    assert_eq!(store.writer.commit(&[delete(key, fence)]).await.unwrap(), vec![Ok(StoreWriteOutcome::Deleted)]);
    assert_eq!(
        store.writer.commit(&[erase(50)]).await.unwrap(),
        vec![Ok(StoreWriteOutcome::Erased { complete: false })]
    );
    assert_eq!((counted(&location, left), counted(&location, waypoints)), (155, 2));
    // Of 64 KiB each, at most 4 MiB.
    assert_eq!(
        store.writer.commit(&[erase(1000)]).await.unwrap(),
        vec![Ok(StoreWriteOutcome::Erased { complete: false })]
    );
    assert_eq!((counted(&location, left), counted(&location, waypoints)), (155 - 64, 1));
    let rest = [erase(1000), erase(1000)];
    let done = [false, true].map(|complete| Ok(StoreWriteOutcome::Erased { complete }));
    assert_eq!(store.writer.commit(&rest).await.unwrap(), done);
    assert_eq!((counted(&location, left), counted(&location, waypoints)), (0, 0));
}

// B-26: what was deleted stays in the write-ahead log for as long as a reader needs it, and no longer.
#[tokio::test]
async fn what_was_deleted_leaves_the_log_when_the_last_reader_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let location = Location::file(folder.path().join("journal"));
    let mut store = opened(&location);
    let fence = Fence { shard: 3, token: store.fence };
    let key = ended_execution(&mut store, 40).await;
    let log = location.path.with_file_name("journal-wal");
    let log_bytes = || std::fs::metadata(&log).unwrap().len();
    let reader = Connection::open(&location.path).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM log").unwrap();
    let close = StoreWrite::CloseDeletion { key, reusable_at: 10, fence };
    let all = [delete(key, fence), StoreWrite::Erase { key, max_transitions: 1000, fence }, close];
    assert!(store.writer.commit(&all).await.unwrap().iter().all(Result::is_ok));
    assert!(log_bytes() > 0, "a reader is in the way");
    reader.execute_batch("COMMIT").unwrap();
    let drop_none = StoreWrite::DropDeletions { now: 0, latest: i64::MAX };
    assert_eq!(store.writer.commit(&[drop_none]).await.unwrap(), vec![Ok(StoreWriteOutcome::Dropped(0))]);
    assert_eq!(log_bytes(), 0, "the next round has tried again");
}

#[test]
fn labels_come_back_as_they_were() {
    let labels = BTreeMap::from([("a".to_string(), String::new()), ("b".into(), "x=y, z".into())]);
    assert_eq!(read_labels(&write_labels(&labels)), labels);
    assert_eq!(read_labels(""), BTreeMap::new());
}
