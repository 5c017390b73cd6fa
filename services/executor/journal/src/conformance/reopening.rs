//! A store that is opened again: its older owner is refused, and its newer one continues.

use super::common::{append, commit, create, created, new_execution, transition};
use crate::{ExecutionKey, JournalWriter, NewExecution, OpenedStore, Refused, StoreWriteOutcome};

/// B-08: a stale owner's write is rejected by the store.
pub(super) async fn refuses_an_older_fence<W: JournalWriter>(
    store: &mut OpenedStore<W>,
    key: ExecutionKey,
    older: i64,
) {
    let newest = store.fence;
    let before = store.reader.read(key, 0, 100).await.unwrap();
    let answers =
        commit(store, vec![append(key, transition(10, 1), older), create(new_execution("late", "", "", 200), older)])
            .await;
    let refused = Refused::Fenced { shard: 7, yours: older, newest };
    assert_eq!(answers, vec![Err(refused.clone()), Err(refused)]);
    assert_eq!(store.reader.read(key, 0, 100).await.unwrap(), before);
}

pub(super) async fn continues_after_opening_again<W: JournalWriter>(store: &mut OpenedStore<W>, key: ExecutionKey) {
    let fence = store.fence;
    let answers =
        commit(store, vec![append(key, transition(11, 1), fence), append(key, transition(10, 1), fence)]).await;
    assert_eq!(answers, vec![Err(Refused::Gap { first: 11, last: 9 }), Ok(StoreWriteOutcome::Appended)]);
    for (first_sequence, is_of_this_owner) in [(9, false), (10, true)] {
        let written = store.reader.stored(key, first_sequence).await.unwrap().expect("it was written");
        assert_eq!(written.token == fence, is_of_this_owner, "at {first_sequence}");
    }
    let again = commit(store, vec![create(new_execution("again", "request", "hash", 300), fence)]).await;
    assert_eq!(again, vec![Err(Refused::RequestIdUsed { existing: key, same_request: true })]);
    // An id belongs to its principal: that of another one is another request.
    let others = NewExecution { principal: "person:other".into(), ..new_execution("others", "request", "hash", 300) };
    let others = commit(store, vec![create(others.clone(), fence), create(others, fence)]).await;
    let existing = created(&others[0]);
    assert_ne!(existing, key);
    assert_eq!(others[1], Err(Refused::RequestIdUsed { existing, same_request: true }));
}
