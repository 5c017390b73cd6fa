//! The messages for webhooks.

use super::common::{append, close, commit, create, created, delete, ended, erase, new_execution, transition, update};
use crate::{
    ExecutionKey, JournalWriter, OpenedStore, OutboxMessage, OutboxRow, Refused, StoreWrite, StoreWriteOutcome,
};

fn message(webhook: &str, id: &str, created_at: i64) -> OutboxMessage {
    let body = format!("{{\"about\":\"{id}\"}}");
    OutboxMessage { webhook: webhook.into(), id: id.into(), body, created_at }
}

/// The operation with these messages.
fn with(operation: StoreWrite, messages: Vec<OutboxMessage>) -> StoreWrite {
    match operation {
        StoreWrite::Create { execution, transition, summary, seal_key, folder, fence, .. } => StoreWrite::Create {
            execution,
            transition,
            summary,
            seal_key,
            outbox: messages,
            inbox: Default::default(),
            folder,
            limits: Vec::new(),
            fence,
        },
        StoreWrite::Append { key, transition, summary, seal_key, fence, .. } => StoreWrite::Append {
            key,
            transition,
            summary,
            seal_key,
            outbox: messages,
            inbox: Default::default(),
            usage: Vec::new(),
            limits: Vec::new(),
            fence,
        },
        other => panic!("{other:?} has no messages"),
    }
}

async fn ids<W: JournalWriter>(store: &OpenedStore<W>, webhook: &str, until: i64, limit: usize) -> Vec<String> {
    let rows = store.reader.outbox(webhook, until, limit).await.unwrap();
    rows.into_iter().map(|row| row.message.id).collect()
}

async fn one<W: JournalWriter>(store: &OpenedStore<W>, webhook: &str, id: &str) -> OutboxRow {
    let rows = store.reader.outbox(webhook, i64::MAX, 100).await.unwrap();
    rows.into_iter().find(|row| row.message.id == id).expect("the message is there")
}

/// Guarantee 11: a message is there with its transition, and until it is removed or its execution is deleted.
pub(super) async fn keeps_messages_with_their_transition<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    assert_eq!(store.reader.outbox_len(10).await.unwrap(), 0);
    assert_eq!(store.reader.next_message("a").await.unwrap(), None);
    let first = create(new_execution("tells", "", "", 600), fence);
    let taken = create(new_execution("tells", "", "", 600), fence);
    let batch = vec![
        with(first, vec![message("a", "m1", 600), message("b", "m2", 600)]),
        with(taken, vec![message("a", "refused", 600)]),
    ];
    let answers = commit(store, batch).await;
    let key = created(&answers[0]);
    assert!(matches!(answers[1], Err(Refused::IdTaken { .. })), "{answers:?}");
    let batch = vec![
        with(append(key, transition(3, 1), fence), vec![message("a", "m3", 500)]),
        with(append(key, transition(9, 1), fence), vec![message("a", "gap", 500)]),
    ];
    let answers = commit(store, batch).await;
    assert_eq!(answers, [Ok(StoreWriteOutcome::Appended), Err(Refused::Gap { first: 9, last: 3 })]);
    assert_eq!(
        ids(store, "a", i64::MAX, 10).await,
        ["m3", "m1"],
        "in the order of their times, and none of what was refused"
    );
    assert_eq!(ids(store, "a", 599, 10).await, ["m3"], "up to the time");
    assert_eq!(ids(store, "a", i64::MAX, 1).await, ["m3"]);
    assert_eq!(store.reader.next_message("a").await.unwrap(), Some(500));
    assert_eq!((store.reader.outbox_len(10).await.unwrap(), store.reader.outbox_len(2).await.unwrap()), (3, 2));

    let (m1, m3) = (one(store, "a", "m1").await, one(store, "a", "m3").await);
    assert_eq!((m1.execution, m1.message.clone(), m1.attempts, m1.next_at), (key, message("a", "m1", 600), 0, 600));
    let postpone = StoreWrite::PostponeMessage { key: m3.key, attempts: 2, next_at: 700 };
    assert_eq!(
        commit(store, vec![postpone.clone(), postpone]).await,
        [Ok(StoreWriteOutcome::Changed), Ok(StoreWriteOutcome::Changed)]
    );
    assert_eq!(one(store, "a", "m3").await, OutboxRow { attempts: 2, next_at: 700, ..m3.clone() });
    assert_eq!(ids(store, "a", i64::MAX, 10).await, ["m1", "m3"]);

    // Its times come from a clock that was ahead.
    let reschedule = |latest, now| StoreWrite::RescheduleMessages { webhook: "a".into(), latest, now };
    let ahead = StoreWrite::PostponeMessage { key: m3.key, attempts: 2, next_at: 90_000 };
    assert_eq!(
        commit(store, vec![ahead, reschedule(90_000, 450)]).await,
        [Ok(StoreWriteOutcome::Changed), Ok(StoreWriteOutcome::Changed)]
    );
    assert_eq!(one(store, "a", "m3").await, OutboxRow { attempts: 2, next_at: 90_000, ..m3.clone() });
    assert_eq!(commit(store, vec![reschedule(89_999, 450)]).await, [Ok(StoreWriteOutcome::Changed)]);
    let moved = OutboxMessage { created_at: 450, ..m3.message.clone() };
    assert_eq!(one(store, "a", "m3").await, OutboxRow { attempts: 2, next_at: 450, message: moved, ..m3.clone() });
    assert_eq!(one(store, "a", "m1").await, m1, "the others stay as they are");

    // Repeated with a new message between: it is not the one that is removed.
    let remove = |row: &OutboxRow| StoreWrite::RemoveMessage { key: row.key };
    let batch = vec![
        remove(&m3),
        with(append(key, transition(4, 1), fence), vec![message("a", "m4", 650)]),
        remove(&m3),
        StoreWrite::PostponeMessage { key: m3.key, attempts: 9, next_at: 9 },
    ];
    assert!(commit(store, batch).await.iter().all(Result::is_ok));
    assert_eq!(ids(store, "a", i64::MAX, 10).await, ["m1", "m4"]);
    assert!(one(store, "a", "m4").await.key > m3.key);

    let drop_unknown = |before| StoreWrite::DropMessages { known: vec!["a".into()], before };
    assert_eq!(commit(store, vec![drop_unknown(600)]).await, [Ok(StoreWriteOutcome::Dropped(0))]);
    assert_eq!(commit(store, vec![drop_unknown(601)]).await, [Ok(StoreWriteOutcome::Dropped(1))]);
    assert_eq!((ids(store, "b", i64::MAX, 10).await.len(), ids(store, "a", i64::MAX, 10).await.len()), (0, 2));

    deletes_with_the_execution(store, key).await;
}

/// An execution that is deleted takes its messages with it. What [`has_what_is_left`] finds stays.
async fn deletes_with_the_execution<W: JournalWriter>(store: &mut OpenedStore<W>, key: ExecutionKey) {
    let fence = store.fence;
    let kept = with(create(new_execution("tells-on", "", "", 610), fence), vec![message("a", "kept", 610)]);
    let kept = commit(store, vec![kept]).await;
    let postpone = StoreWrite::PostponeMessage { key: one(store, "a", "kept").await.key, attempts: 1, next_at: 900 };
    let answers = commit(store, vec![postpone, update(key, 5, ended(2_000_000), fence), delete(key, "", fence)]).await;
    assert!(kept[0].is_ok() && answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(ids(store, "a", i64::MAX, 10).await, ["kept"]);
    let batch =
        vec![erase(key, 1000, fence), close(key, 0, fence), StoreWrite::DropDeletions { now: 0, latest: i64::MAX }];
    assert!(commit(store, batch).await.iter().all(Result::is_ok));
}

/// Whether the message is there after opening again.
pub(super) async fn has_what_is_left<W: JournalWriter>(store: &OpenedStore<W>) {
    let kept = one(store, "a", "kept").await;
    assert_eq!((kept.attempts, kept.next_at, kept.message), (1, 900, message("a", "kept", 610)));
}
