//! Snapshots of executions.

use super::common::{append, close, commit, create, created, delete, ended, erase, new_execution, transition};
use crate::{
    ExecutionKey, Fence, JournalWriter, OpenedStore, Refused, Snapshot, StoreError, StoreWrite, StoreWriteOutcome,
    StoredExecution,
};

/// The last snapshot is kept, by its owner and while there is an execution, and only of events that are stored.
pub(super) async fn keeps_the_last_snapshot<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let keep = |key, sequence, content: &[u8], token| {
        let snapshot = Snapshot { sequence, version: 3, content: content.to_vec(), is_sealed: sequence > 1 };
        StoreWrite::KeepSnapshot { key, snapshot, fence: Fence { shard: 7, token } }
    };
    let answers = commit(store, vec![create(new_execution("snapped", "", "", 500), fence)]).await;
    let key = created(&answers[0]);
    assert_eq!(store.reader.load(key, Some(3)).await.unwrap().snapshot, None);
    let missing = ExecutionKey(999_999);
    let answers = commit(
        store,
        vec![
            keep(key, 1, b"first", fence),
            keep(key, 2, b"second", fence),
            keep(key, 3, b"of an event that is not stored", fence),
            keep(key, 2, b"stale", fence - 1),
            keep(missing, 1, b"of nothing", fence),
        ],
    )
    .await;
    let expected = vec![
        Ok(StoreWriteOutcome::Kept),
        Ok(StoreWriteOutcome::Kept),
        Err(Refused::Gap { first: 3, last: 2 }),
        Err(Refused::Fenced { shard: 7, yours: fence - 1, newest: fence }),
        Err(Refused::Missing(missing)),
    ];
    assert_eq!(answers, expected);
    let kept = Snapshot { sequence: 2, version: 3, content: b"second".to_vec(), is_sealed: true };
    let row = store.reader.get(key).await.unwrap().unwrap();
    let loaded = |snapshot, first: &[u64]| StoredExecution {
        row: row.clone(),
        seal_key: None,
        snapshot,
        transitions: first.iter().map(|&first| transition(first, if first == 1 { 2 } else { 1 })).collect(),
    };
    assert_eq!(store.reader.load(key, Some(3)).await.unwrap(), loaded(Some(kept.clone()), &[1]));
    assert_eq!(store.reader.load(key, Some(2)).await.unwrap(), loaded(None, &[1]), "it is of another version");
    let answers = commit(store, vec![append(key, transition(3, 1), fence), append(key, transition(4, 1), fence)]).await;
    assert_eq!(answers, vec![Ok(StoreWriteOutcome::Appended), Ok(StoreWriteOutcome::Appended)]);
    assert_eq!(store.reader.load(key, Some(3)).await.unwrap(), loaded(Some(kept), &[1, 3, 4]));
    assert_eq!(store.reader.load(key, None).await.unwrap(), loaded(None, &[1, 3, 4]), "all without a snapshot");
    let end = StoreWrite::Append {
        key,
        transition: transition(5, 1),
        summary: Some(ended(510)),
        seal_key: None,
        outbox: Vec::new(),
        inbox: Default::default(),
        usage: Vec::new(),
        limits: Vec::new(),
        fence: Fence { shard: 7, token: fence },
    };
    let answers = commit(store, vec![end, delete(key, "", fence), keep(key, 3, b"of a deleted one", fence)]).await;
    assert_eq!(
        answers,
        vec![Ok(StoreWriteOutcome::Appended), Ok(StoreWriteOutcome::Deleted), Err(Refused::Missing(key))]
    );
    let gone = store.reader.load(key, Some(3)).await;
    assert!(matches!(gone, Err(StoreError::Missing(missing)) if missing == key), "it goes with its execution");
    let answers = commit(
        store,
        vec![erase(key, 1000, fence), close(key, 0, fence), StoreWrite::DropDeletions { now: 0, latest: i64::MAX }],
    )
    .await;
    assert_eq!(
        answers,
        vec![
            Ok(StoreWriteOutcome::Erased { complete: true }),
            Ok(StoreWriteOutcome::Closed),
            Ok(StoreWriteOutcome::Dropped(1))
        ]
    );
}
