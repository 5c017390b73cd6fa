//! Queries of an executor by time: executions to drive, to load later, and that have ended.

use super::common::{commit, create, created, ended, new_execution, update};
use crate::{ExecutionKey, ExecutionSummary, JournalWriter, OpenedStore, Position, StoreWriteOutcome};

/// Executions that an executor drives when it starts, and those that it loads later.
pub(super) async fn finds_what_to_drive<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let before: Vec<_> = store.reader.claimable(ExecutionKey(0), 10_000).await.unwrap();
    assert!(
        before.is_sorted_by_key(|row| row.key) && before.iter().all(|row| !row.summary.ended && !row.summary.parked)
    );
    let (first, rest) = before.split_first().expect("some are neither ended nor parked");
    assert_eq!(store.reader.claimable(ExecutionKey(0), 1).await.unwrap(), std::slice::from_ref(first));
    assert_eq!(store.reader.claimable(first.key, 10_000).await.unwrap(), rest);

    let mut keys = Vec::new();
    for (index, wake_at) in [Some(9_000_030), Some(9_000_010), None, Some(9_000_010)].into_iter().enumerate() {
        let key = created(
            &commit(store, vec![create(new_execution(&format!("parked-{index}"), "", "", 400), fence)]).await[0],
        );
        let updated_at = 9_000_000 - i64::try_from(index).unwrap();
        let parked = ExecutionSummary { state: 4, wake_at, parked: true, updated_at, ..ExecutionSummary::default() };
        assert_eq!(commit(store, vec![update(key, 3, parked, fence)]).await, vec![Ok(StoreWriteOutcome::Appended)]);
        keys.push(key);
    }
    assert_eq!(
        store.reader.claimable(ExecutionKey(0), 10_000).await.unwrap(),
        before,
        "the parked ones are not driven"
    );
    let from = Position::after(9_000_000);
    let due = async |after, until, limit| -> Vec<ExecutionKey> {
        store.reader.due(after, until, limit).await.unwrap().iter().map(|row| row.key).collect()
    };
    assert_eq!(due(from, 9_000_009, 10).await, []);
    assert_eq!(due(from, 9_000_030, 10).await, [keys[1], keys[3], keys[0]]);
    assert_eq!(due(from, 9_000_030, 1).await, [keys[1]]);
    assert_eq!(due(Position { time: 9_000_010, key: keys[1] }, 9_000_030, 10).await, [keys[3], keys[0]]);
    assert_eq!(store.reader.next_wake(9_000_000).await.unwrap(), Some(9_000_010));
    assert_eq!(store.reader.next_wake(9_000_010).await.unwrap(), Some(9_000_030));
    assert_eq!(store.reader.next_wake(9_000_030).await.unwrap(), None);
    let parked = async |after| -> Vec<ExecutionKey> {
        store.reader.parked_since(after, 10).await.unwrap().iter().map(|row| row.key).collect()
    };
    assert_eq!(
        parked(Position::after(8_999_990)).await,
        [keys[3], keys[1], keys[0]],
        "without one that no time continues"
    );
    assert_eq!(parked(Position::after(8_999_998)).await, [keys[1], keys[0]]);

    let ended = ExecutionSummary { state: 6, ended: true, ended_at: Some(5), ..ExecutionSummary::default() };
    assert!(commit(store, vec![update(keys[1], 4, ended, fence)]).await[0].is_ok());
    assert_eq!(due_keys(store, from).await, [keys[3], keys[0]], "what has ended is not due");
}

async fn due_keys<W: JournalWriter>(store: &OpenedStore<W>, after: Position) -> Vec<ExecutionKey> {
    store.reader.due(after, 9_000_030, 10).await.unwrap().iter().map(|row| row.key).collect()
}

/// Executions that have ended, by the time of their end and whatever their namespace: retention goes by it.
pub(super) async fn finds_what_has_ended<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let before = store.reader.finished(Position::START, Position::after(i64::MAX), 10_000).await.unwrap();
    assert!(before.iter().all(|row| row.summary.ended_at.is_some_and(|at| at < 1_000_000)));
    let mut keys = Vec::new();
    for (index, ended_at) in [1_000_030, 1_000_010, 1_000_020, 1_000_010].into_iter().enumerate() {
        let key = created(
            &commit(store, vec![create(new_execution(&format!("ended-{index}"), "", "", 500), fence)]).await[0],
        );
        assert!(commit(store, vec![update(key, 3, ended(ended_at), fence)]).await[0].is_ok());
        keys.push(key);
    }
    let after = Position::after(1_000_000);
    let finished = async |after, until, limit| -> Vec<ExecutionKey> {
        store.reader.finished(after, until, limit).await.unwrap().iter().map(|row| row.key).collect()
    };
    let all = [keys[1], keys[3], keys[2], keys[0]];
    assert_eq!(finished(after, Position::after(i64::MAX), 10).await, all);
    assert_eq!(finished(after, Position::after(i64::MAX), 3).await, all[..3]);
    assert_eq!(finished(after, Position::after(1_000_020), 10).await, all[..3]);
    assert_eq!(finished(after, Position { time: 1_000_010, key: keys[1] }, 10).await, all[..1]);
    assert_eq!(finished(Position { time: 1_000_010, key: keys[1] }, Position::after(1_000_010), 10).await, all[1..2]);
    for (keep, last) in [(0, Some(keys[0])), (1, Some(keys[2])), (3, Some(keys[1]))] {
        assert_eq!(
            store.reader.finished_beyond(keep).await.unwrap().map(|position| position.key),
            last,
            "keeping {keep}"
        );
    }
    assert_eq!(store.reader.finished_beyond(before.len() + 4).await.unwrap(), None, "there are no more");
}
