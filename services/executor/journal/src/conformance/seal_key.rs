//! The keys with which secrets are sealed.

use super::common::{append, commit, create, created, new_execution, transition};
use crate::{ExecutionKey, JournalWriter, OpenedStore, Refused, StoreWrite, StoreWriteOutcome};

/// A key comes with the transition that needs it, all or nothing, and stays the only one.
pub(super) async fn keeps_one_key<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let with_key = |mut operation: StoreWrite, bytes: &[u8]| {
        if let StoreWrite::Create { seal_key, .. } | StoreWrite::Append { seal_key, .. } = &mut operation {
            *seal_key = Some(bytes.to_vec());
        }
        operation
    };
    let at_once = with_key(create(new_execution("sealed", "", "", 400), fence), b"first");
    let refused = with_key(create(new_execution("sealed", "", "", 400), fence), b"other");
    let answers =
        commit(store, vec![at_once, refused, create(new_execution("sealed-later", "", "", 401), fence)]).await;
    let (first, later) = (created(&answers[0]), created(&answers[2]));
    assert_eq!(answers[1], Err(Refused::IdTaken { id: "sealed".into(), existing: first }));
    assert_eq!(store.reader.seal_key(first).await.unwrap().as_deref(), Some(b"first".as_slice()));
    assert_eq!(store.reader.seal_key(later).await.unwrap(), None);
    assert_eq!(sealed(store).await, [first]);

    let answers = commit(
        store,
        vec![
            with_key(append(first, transition(3, 1), fence), b"other"),
            with_key(append(later, transition(9, 1), fence), b"gap"),
            with_key(append(later, transition(3, 1), fence), b"later"),
            with_key(append(later, transition(4, 1), fence), b"again"),
            with_key(append(later, transition(4, 1), fence - 1), b"stale"),
            append(later, transition(4, 1), fence),
        ],
    )
    .await;
    let expected = vec![
        Err(Refused::HasSealKey(first)),
        Err(Refused::Gap { first: 9, last: 2 }),
        Ok(StoreWriteOutcome::Appended),
        Err(Refused::HasSealKey(later)),
        Err(Refused::Fenced { shard: 7, yours: fence - 1, newest: fence }),
        Ok(StoreWriteOutcome::Appended),
    ];
    assert_eq!(answers, expected);
    assert_eq!(store.reader.seal_key(first).await.unwrap().as_deref(), Some(b"first".as_slice()));
    assert_eq!(store.reader.seal_key(later).await.unwrap().as_deref(), Some(b"later".as_slice()));
    assert_eq!(sealed(store).await, [first, later]);
    assert_eq!(store.reader.read(later, 2, 10).await.unwrap(), vec![transition(3, 1), transition(4, 1)]);
}

/// The executions that have a key.
async fn sealed<W: JournalWriter>(store: &OpenedStore<W>) -> Vec<ExecutionKey> {
    let (mut found, mut after) = (Vec::new(), ExecutionKey(i64::MIN));
    while let Some(next) = store.reader.next_sealed(after).await.unwrap() {
        found.push(next);
        after = next;
    }
    found
}
