//! The messages between executions.

use super::common::{append, commit, create, created, delete, ended, new_execution, summary, transition, update};
use crate::{
    ExecutionKey, ExecutionSummary, Fence, InboxChanges, InboxContent, InboxMessage, InboxRow, JournalWriter,
    OpenedStore, Refused, StoreWrite, StoreWriteOutcome, TakenMessage,
};

/// The operation with these changes of inboxes.
fn with(operation: StoreWrite, changes: InboxChanges) -> StoreWrite {
    match operation {
        StoreWrite::Create { execution, transition, summary, seal_key, outbox, folder, fence, .. } => {
            StoreWrite::Create {
                execution,
                transition,
                summary,
                seal_key,
                outbox,
                inbox: changes,
                folder,
                limits: Vec::new(),
                fence,
            }
        }
        StoreWrite::Append { key, transition, summary, seal_key, outbox, fence, .. } => StoreWrite::Append {
            key,
            transition,
            summary,
            seal_key,
            outbox,
            inbox: changes,
            usage: Vec::new(),
            limits: Vec::new(),
            fence,
        },
        other => panic!("{other:?} changes no inbox"),
    }
}

fn sent(to: ExecutionKey, revision: u64) -> InboxChanges {
    let message = InboxMessage { to, revision, content: InboxContent::ChildEnded };
    InboxChanges { sent: vec![message], taken: Vec::new() }
}

fn row(to: ExecutionKey, from: ExecutionKey, revision: u64) -> InboxRow {
    InboxRow { to, from, revision, content: InboxContent::ChildEnded }
}

/// Guarantee 12: a message is there with its transition, until it is taken or its recipient is deleted; whoever sent it stays as long.
pub(super) async fn keeps_messages_until_they_are_taken<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let answers = commit(store, vec![create(new_execution("parent", "", "", 700), fence)]).await;
    let parent = created(&answers[0]);
    let children = vec![
        create(new_execution("child-1", "", "", 700), fence),
        // It has nothing to do, and ends as it is created.
        with(create(new_execution("child-2", "", "", 700), fence), sent(parent, 2)),
        with(create(new_execution("child-1", "", "", 700), fence), sent(parent, 2)),
        with(create(new_execution("orphan", "", "", 700), fence), sent(ExecutionKey(987_654), 2)),
    ];
    let answers = commit(store, children).await;
    let (first, second) = (created(&answers[0]), created(&answers[1]));
    assert!(matches!(answers[2], Err(Refused::IdTaken { .. })), "{answers:?}");
    let inbox = async |store: &OpenedStore<W>| store.reader.inbox(parent, 10).await.unwrap();
    assert_eq!(inbox(store).await, [row(parent, second, 2)], "with its transition, and none of what was refused");
    assert_eq!(store.reader.recipients(ExecutionKey(0), 10).await.unwrap(), [parent], "none to what is not there");
    assert_eq!(store.reader.recipients(parent, 10).await.unwrap(), []);

    let batch = vec![
        with(update(first, 3, ended(710), fence), sent(parent, 3)),
        with(append(first, transition(9, 1), fence), sent(parent, 9)),
        with(update(first, 4, summary(2), fence), InboxChanges::default()),
        with(update(first, 5, ended(720), fence), sent(parent, 5)),
    ];
    let answers = commit(store, batch).await;
    assert_eq!(answers[1], Err(Refused::Gap { first: 9, last: 3 }));
    assert_eq!(inbox(store).await, [row(parent, first, 5), row(parent, second, 2)], "the last of each sender");
    assert_eq!(store.reader.inbox(parent, 1).await.unwrap().len(), 1);

    let unrecorded = Err(Refused::Unrecorded { key: first, parent });
    assert_eq!(commit(store, vec![delete(first, "", fence)]).await, vec![unrecorded.clone()]);
    let taken = |revision| InboxChanges { sent: Vec::new(), taken: vec![TakenMessage { from: first, revision }] };
    let batch = vec![with(append(parent, transition(9, 1), fence), taken(5)), delete(first, "", fence)];
    let answers = commit(store, batch).await;
    assert_eq!(answers, [Err(Refused::Gap { first: 9, last: 2 }), unrecorded], "what is refused takes nothing");
    let batch = vec![with(append(parent, transition(3, 1), fence), taken(3))];
    assert_eq!(commit(store, batch).await, [Ok(StoreWriteOutcome::Appended)]);
    assert_eq!(inbox(store).await, [row(parent, first, 5), row(parent, second, 2)], "a later message stays");
    let batch = vec![with(append(parent, transition(4, 1), fence), taken(5)), delete(first, "", fence)];
    assert_eq!(commit(store, batch).await, [Ok(StoreWriteOutcome::Appended), Ok(StoreWriteOutcome::Deleted)]);
    assert_eq!(inbox(store).await, [row(parent, second, 2)]);

    // Parked without an event, and nothing waits for the message.
    let shard = Fence { shard: 7, token: fence };
    let parked = ExecutionSummary { parked: true, ..summary(2) };
    let summarize = StoreWrite::Summarize { key: parent, summary: parked.clone(), fence: shard };
    let all = [second, first].map(|from| TakenMessage { from, revision: 9 });
    let take = StoreWrite::TakeMessages { key: parent, taken: all.to_vec(), fence: shard };
    let answers = commit(store, vec![summarize, take.clone(), take]).await;
    assert_eq!(
        answers,
        [Ok(StoreWriteOutcome::Changed), Ok(StoreWriteOutcome::Changed), Ok(StoreWriteOutcome::Changed)]
    );
    assert_eq!(store.reader.get(parent).await.unwrap().unwrap().summary, parked);
    assert_eq!((inbox(store).await, store.reader.recipients(ExecutionKey(0), 10).await.unwrap()), (vec![], vec![]));
    let missing = StoreWrite::Summarize { key: ExecutionKey(987_654), summary: parked, fence: shard };
    assert_eq!(commit(store, vec![missing]).await, [Err(Refused::Missing(ExecutionKey(987_654)))]);

    // With the recipient its messages go.
    let batch = vec![
        with(update(second, 3, ended(730), fence), sent(parent, 3)),
        update(parent, 5, ended(730), fence),
        delete(parent, "", fence),
        delete(second, "", fence),
    ];
    let answers = commit(store, batch).await;
    assert_eq!(
        answers,
        [
            Ok(StoreWriteOutcome::Appended),
            Ok(StoreWriteOutcome::Appended),
            Ok(StoreWriteOutcome::Deleted),
            Ok(StoreWriteOutcome::Deleted)
        ]
    );
}
