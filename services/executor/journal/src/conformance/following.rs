//! Changes that readers of all executions get.

use std::collections::BTreeMap;

use super::{
    common::{append, close, commit, create, created, delete, ended, erase, new_execution, transition, update},
    contents::{changes, everything},
};
use crate::{Change, Changes, ExecutionKey, JournalWriter, OpenedStore, StoreWrite, StoreWriteOutcome};

/// Readers that follow all executions get each transition once, in the order of their commits.
pub(super) async fn follows_what_is_committed<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let change = |key, first_sequence, last_sequence| Change { key, first_sequence, last_sequence };
    let followed = changes(store, 1000).await;
    assert_eq!(changes(store, 7).await, followed, "whatever the page");
    let mut by_execution: BTreeMap<ExecutionKey, Vec<Change>> = BTreeMap::new();
    followed.iter().for_each(|change| by_execution.entry(change.key).or_default().push(*change));
    let stored = everything(store).await.into_iter().map(|(row, transitions, _)| {
        let changes = transitions.iter().map(|t| change(row.key, t.first_sequence, t.last_sequence()));
        (row.key, changes.collect())
    });
    assert_eq!(by_execution, stored.collect(), "each transition that is stored, once");

    let fence = store.fence;
    let start = store.reader.latest().await.unwrap();
    assert_eq!(store.reader.changes(start, 10).await.unwrap(), Changes { changes: vec![], next: start });
    let answers = commit(store, ["a", "b"].map(|id| create(new_execution(id, "", "", 550), fence)).into()).await;
    let (a, b) = (created(&answers[0]), created(&answers[1]));
    let batch = vec![
        append(b, transition(3, 4), fence),
        append(a, transition(9, 1), fence),
        append(a, transition(3, 1), fence),
        update(b, 7, ended(560), fence),
    ];
    assert_eq!(commit(store, batch).await.iter().filter(|answer| answer.is_ok()).count(), 3);
    let expected = [change(a, 1, 2), change(b, 1, 2), change(b, 3, 6), change(a, 3, 3), change(b, 7, 7)];
    let Changes { changes: found, next } = store.reader.changes(start, 10).await.unwrap();
    assert_eq!(found, expected);
    assert_eq!(next, store.reader.latest().await.unwrap());
    let page = store.reader.changes(start, 2).await.unwrap();
    assert_eq!((&page.changes[..], page.next < next), (&expected[..2], true));
    assert_eq!(store.reader.changes(page.next, 2).await.unwrap().changes, expected[2..4]);

    // The last transition is that of a deleted execution, also after its events are removed.
    assert_eq!(commit(store, vec![delete(b, "", fence)]).await, vec![Ok(StoreWriteOutcome::Deleted)]);
    assert_eq!(
        store.reader.changes(start, 10).await.unwrap(),
        Changes { changes: vec![expected[0], expected[3]], next }
    );
    let answers = commit(
        store,
        vec![erase(b, 1000, fence), close(b, 0, fence), StoreWrite::DropDeletions { now: 0, latest: i64::MAX }],
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
    assert_eq!(store.reader.changes(start, 10).await.unwrap().changes, [expected[0], expected[3]]);
    assert!(store.reader.latest().await.unwrap() >= next, "a cursor that was given stays valid");
    assert_eq!(store.reader.changes(next, 10).await.unwrap(), Changes { changes: vec![], next });
    assert_eq!(commit(store, vec![append(a, transition(4, 1), fence)]).await, vec![Ok(StoreWriteOutcome::Appended)]);
    assert_eq!(store.reader.changes(next, 10).await.unwrap().changes, [change(a, 4, 4)]);
}
