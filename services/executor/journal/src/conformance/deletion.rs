//! Deletions: of executions with what names them, of their events in steps, and of the folders that they have used.

use super::{
    common::{
        PRINCIPAL, append, close, commit, create, create_in, created, delete, ended, erase, new_execution,
        start_request_of, transition, update,
    },
    contents::{EVERYTHING, everything, one},
};
use crate::{
    Condition, DeleteRequest, Deletion, ExecutionKey, Folder, JournalWriter, NewExecution, OpenedStore, Position,
    Query, Refused, StoreError, StoreWrite, StoreWriteOutcome, start_request,
};

/// An execution with a label, a key, a request id and 205 transitions that has ended.
async fn long_and_ended<W: JournalWriter>(store: &mut OpenedStore<W>, id: &str) -> ExecutionKey {
    let fence = store.fence;
    let mut operation = create(new_execution(id, &format!("request of {id}"), "hash", 500), fence);
    if let StoreWrite::Create { seal_key, .. } = &mut operation {
        *seal_key = Some(b"a key".to_vec());
    }
    let key = created(&commit(store, vec![operation]).await[0]);
    let appends = (3..206).map(|first| append(key, transition(first, 1), fence)).collect();
    assert!(commit(store, appends).await.iter().all(Result::is_ok));
    assert_eq!(commit(store, vec![delete(key, "", fence)]).await, vec![Err(Refused::NotEnded(key))]);
    assert!(commit(store, vec![update(key, 206, ended(1_000_040), fence)]).await[0].is_ok());
    key
}

/// B-26: a folder goes with the last execution that uses it, and nothing is created in it from then on.
pub(super) async fn keeps_folders_in_use<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let named = |id: &str| new_execution(id, "", "", 560);
    let new = |id: &str, folder: &str| create_in(named(id), Some(Folder::New(folder.into())), fence);
    let shared = |id: &str, folder: &str| create_in(named(id), Some(Folder::Shared(folder.into())), fence);
    let in_use = || vec![Err(Refused::FolderInUse("origin".into()))];
    let gone = || vec![Err(Refused::FolderGone("origin".into()))];

    assert_eq!(commit(store, vec![shared("early", "origin")]).await, gone(), "no execution uses it yet");
    let answers = commit(store, vec![new("origin", "origin"), shared("fork", "origin")]).await;
    let (origin, fork) = (created(&answers[0]), created(&answers[1]));
    assert_eq!(commit(store, vec![new("another", "origin")]).await, in_use());
    assert_eq!(store.reader.find("default", "another").await.unwrap(), None, "a refusal changes nothing");
    let elsewhere = NewExecution { namespace: "elsewhere".into(), ..named("elsewhere") };
    let refused = commit(store, vec![create_in(elsewhere, Some(Folder::Shared("origin".into())), fence)]).await;
    assert_eq!(refused, gone(), "a folder is one of its namespace");

    // The deletion of the first leaves the folder to the second; the first name in the folder of another is another folder.
    let folder =
        async |store: &OpenedStore<W>, id: &str| store.reader.deletion("default", id).await.unwrap().unwrap().folder;
    let answers = commit(store, vec![update(origin, 3, ended(1_000_041), fence), delete(origin, "", fence)]).await;
    assert_eq!(answers, vec![Ok(StoreWriteOutcome::Appended), Ok(StoreWriteOutcome::Deleted)]);
    assert_eq!(folder(store, "origin").await, None, "the fork works in it");
    assert_eq!(commit(store, vec![new("another", "origin")]).await, in_use());
    let second = created(&commit(store, vec![shared("second", "origin")]).await[0]);

    // In one batch: the order of the operations decides.
    let answers = commit(
        store,
        vec![
            update(fork, 3, ended(1_000_042), fence),
            update(second, 3, ended(1_000_043), fence),
            delete(fork, "", fence),
            delete(second, "", fence),
            shared("late", "origin"),
        ],
    )
    .await;
    assert!(answers[..4].iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers[4..], gone());
    assert_eq!((folder(store, "fork").await, folder(store, "second").await), (None, Some("origin".into())));
    assert_eq!(commit(store, vec![new("another", "origin")]).await, in_use(), "it is being removed");
    for key in [origin, fork, second] {
        let answers = commit(store, vec![erase(key, 1000, fence), close(key, 0, fence)]).await;
        assert_eq!(answers, vec![Ok(StoreWriteOutcome::Erased { complete: true }), Ok(StoreWriteOutcome::Closed)]);
    }
    assert_eq!(commit(store, vec![shared("late", "origin")]).await, gone(), "it is removed");
    assert!(matches!(
        commit(store, vec![StoreWrite::DropDeletions { now: 0, latest: i64::MAX }]).await[..],
        [Ok(StoreWriteOutcome::Dropped(3))]
    ));
    let again = created(&commit(store, vec![new("origin", "origin")]).await[0]);
    let answers = commit(
        store,
        vec![
            update(again, 3, ended(1_000_044), fence),
            delete(again, "", fence),
            erase(again, 1000, fence),
            close(again, 0, fence),
            StoreWrite::DropDeletions { now: 0, latest: i64::MAX },
        ],
    )
    .await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// B-26: a deletion takes an execution with its key and everything that names it, at once; its events follow in steps.
pub(super) async fn deletes_in_steps<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let key = long_and_ended(store, "deleted").await;
    let neighbour = long_and_ended(store, "neighbour").await;
    let before = everything(store).await;

    let answers = commit(
        store,
        vec![
            delete(key, "x", fence - 1),
            erase(key, 1, fence),
            delete(key, "x", fence),
            delete(key, "x", fence),
            append(key, transition(207, 1), fence),
        ],
    )
    .await;
    let expected = vec![
        Err(Refused::Fenced { shard: 7, yours: fence - 1, newest: fence }),
        Err(Refused::Missing(key)),
        Ok(StoreWriteOutcome::Deleted),
        Err(Refused::Missing(key)),
        Err(Refused::Missing(key)),
    ];
    assert_eq!(answers, expected);
    is_gone(store, key).await;
    let others: Vec<_> = before.into_iter().filter(|(row, ..)| row.key != key).collect();
    assert_eq!(everything(store).await, others, "nothing else has changed");

    let deletion = Deletion {
        key,
        namespace: "default".into(),
        id: "deleted".into(),
        shard: 7,
        deleted_at: 600,
        request: DeleteRequest { id: "x".into(), hash: "hash".into() },
        start_request: start_request(PRINCIPAL, "request of deleted"),
        folder: None,
        reusable_at: None,
    };
    assert_eq!(store.reader.deletion("default", "deleted").await.unwrap(), Some(deletion.clone()));
    assert_eq!(store.reader.deletion("other", "deleted").await.unwrap(), None);
    assert_eq!(store.reader.open_deletions(ExecutionKey(0), 10).await.unwrap(), vec![deletion.clone()]);
    assert_eq!(store.reader.open_deletions(key, 10).await.unwrap(), vec![]);
    let since = async |time, limit| store.reader.deleted_after(Position { time, key: ExecutionKey(0) }, limit).await;
    assert_eq!(since(600, 10).await.unwrap(), vec![deletion.clone()]);
    assert_eq!(since(601, 10).await.unwrap(), vec![]);
    assert_eq!(since(0, 0).await.unwrap(), vec![]);
    let place = Position { time: 600, key };
    assert_eq!(store.reader.deleted_after(place, 10).await.unwrap(), vec![], "after itself");
    assert_eq!(commit(store, vec![close(key, 700, fence)]).await, vec![Err(Refused::NotErased(key))]);
    let again = create(new_execution("deleted", "", "", 10_000), fence);
    let refused = |reusable_at| Err(Refused::IdDeleted { id: "deleted".into(), reusable_at });
    assert_eq!(commit(store, vec![again.clone()]).await, vec![refused(None)]);
    // B-15: a repetition of the request that started it starts nothing, under whichever name, for as long as the execution's own name is not free.
    let repeated = |at| create(new_execution("another", "request of deleted", "hash", at), fence);
    let repetition = || Err(Refused::RequestDeleted { namespace: "default".into(), id: "deleted".into() });
    assert_eq!(commit(store, vec![repeated(10_000)]).await, vec![repetition()]);
    let used = async |store: &OpenedStore<W>, at| {
        store.reader.request_used(&start_request_of("request of deleted", "hash", at)).await.unwrap()
    };
    assert_eq!(used(store, 10_000).await, repetition().err());

    let mut steps = 1;
    while commit(store, vec![erase(key, 50, fence)]).await != vec![Ok(StoreWriteOutcome::Erased { complete: true })] {
        steps += 1;
        assert!(steps < 100);
    }
    assert!((5..=6).contains(&steps), "205 transitions in steps of 50: {steps}");
    assert_eq!(
        commit(store, vec![erase(key, 50, fence)]).await,
        vec![Ok(StoreWriteOutcome::Erased { complete: true })],
        "again"
    );
    assert_eq!(everything(store).await, others);
    let answers = commit(
        store,
        vec![close(key, 10_001, fence), again.clone(), StoreWrite::DropDeletions { now: 10_000, latest: i64::MAX }],
    )
    .await;
    assert_eq!(answers, vec![Ok(StoreWriteOutcome::Closed), refused(Some(10_001)), Ok(StoreWriteOutcome::Dropped(0))]);
    assert_eq!(commit(store, vec![repeated(10_000)]).await, vec![repetition()]);
    assert_eq!((used(store, 10_000).await, used(store, 10_001).await), (repetition().err(), None));
    assert_eq!(store.reader.open_deletions(ExecutionKey(0), 10).await.unwrap(), vec![], "it is closed");
    let closed = store.reader.deletion("default", "deleted").await.unwrap().expect("its name is not free yet");
    assert_eq!(closed, Deletion { reusable_at: Some(10_001), ..deletion });
    let late = store.reader.deleted_after(Position { time: 599, key }, 10).await.unwrap();
    assert_eq!(late, vec![closed], "also a closed one");

    let reused = create(new_execution("deleted", "request of deleted", "another hash", 10_001), fence);
    let reused = created(&commit(store, vec![reused]).await[0]);
    assert!(reused > neighbour, "a key is never used again");
    assert_eq!(store.reader.read(reused, 0, 10).await.unwrap(), vec![transition(1, 2)], "it begins anew");
    assert_eq!(store.reader.deletion("default", "deleted").await.unwrap(), None);

    assert_eq!(commit(store, vec![delete(neighbour, "", fence)]).await, vec![Ok(StoreWriteOutcome::Deleted)]);
    let answers = commit(store, vec![erase(neighbour, 1000, fence), close(neighbour, 20_000, fence)]).await;
    assert_eq!(answers, vec![Ok(StoreWriteOutcome::Erased { complete: true }), Ok(StoreWriteOutcome::Closed)]);
    assert_eq!(
        commit(store, vec![StoreWrite::DropDeletions { now: 19_999, latest: i64::MAX }]).await,
        vec![Ok(StoreWriteOutcome::Dropped(0))]
    );
    // A clock that was ahead does not reserve a name for longer.
    let at = |now, latest| StoreWrite::DropDeletions { now, latest };
    let answers = commit(store, vec![at(14_000, 15_000), at(14_999, 15_999), at(15_000, 16_000)]).await;
    assert_eq!(
        answers,
        vec![Ok(StoreWriteOutcome::Dropped(0)), Ok(StoreWriteOutcome::Dropped(0)), Ok(StoreWriteOutcome::Dropped(1))]
    );
    assert_eq!(store.reader.deletion("default", "neighbour").await.unwrap(), None);

    // Continued after the store is opened again.
    let interrupted = long_and_ended(store, "interrupted").await;
    assert_eq!(commit(store, vec![delete(interrupted, "", fence)]).await, vec![Ok(StoreWriteOutcome::Deleted)]);
    assert_eq!(
        commit(store, vec![erase(interrupted, 50, fence)]).await,
        vec![Ok(StoreWriteOutcome::Erased { complete: false })]
    );
}

async fn is_gone<W: JournalWriter>(store: &OpenedStore<W>, key: ExecutionKey) {
    assert_eq!(store.reader.get(key).await.unwrap(), None);
    assert_eq!(store.reader.find("default", "deleted").await.unwrap(), None);
    assert_eq!(store.reader.seal_key(key).await.unwrap(), None);
    assert!(matches!(store.reader.read(key, 0, 10).await, Err(StoreError::Missing(missing)) if missing == key));
    let label = Condition::Label(true, "id".into(), "deleted".into());
    assert_eq!(store.reader.list(&Query { filter: one(label), ..EVERYTHING }).await.unwrap().rows, vec![]);
}

pub(super) async fn continues_a_deletion<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let open = store.reader.open_deletions(ExecutionKey(0), 10).await.unwrap();
    let [Deletion { key, id, .. }] = &open[..] else { panic!("one deletion is open, not {open:?}") };
    assert_eq!(id, "interrupted");
    let answers =
        commit(store, vec![append(*key, transition(207, 1), fence), erase(*key, 10_000, fence), close(*key, 0, fence)])
            .await;
    assert_eq!(
        answers,
        vec![
            Err(Refused::Missing(*key)),
            Ok(StoreWriteOutcome::Erased { complete: true }),
            Ok(StoreWriteOutcome::Closed)
        ]
    );
}
