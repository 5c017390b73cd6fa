//! Schedules.

use super::common::commit;
use crate::{Fence, JournalWriter, OpenedStore, Refused, ScheduleRow, StoreWrite, StoreWriteOutcome};

fn row(namespace: &str, id: &str, revision: u64) -> ScheduleRow {
    let (content, state) = (vec![1, 0, 255], revision.to_string().into_bytes());
    ScheduleRow { namespace: namespace.into(), id: id.into(), revision, content, state }
}

fn put(schedule: ScheduleRow, token: i64) -> StoreWrite {
    StoreWrite::PutSchedule { schedule, fence: Fence { shard: 3, token } }
}

fn delete(id: &str, revision: u64, token: i64) -> StoreWrite {
    let (namespace, id) = ("a".into(), id.into());
    StoreWrite::DeleteSchedule { namespace, id, revision, fence: Fence { shard: 3, token } }
}

async fn names<W: JournalWriter>(
    store: &OpenedStore<W>,
    namespace: &str,
    after: (&str, &str),
    limit: usize,
) -> Vec<String> {
    let rows = store.reader.schedules(namespace, after, limit).await.unwrap();
    rows.into_iter().map(|row| format!("{}/{}", row.namespace, row.id)).collect()
}

/// Guarantee 15: a schedule is written and deleted whole, and only by who knows its last revision.
pub(super) async fn keeps_whole_rows<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let changed = |stored| Err(Refused::ScheduleChanged { stored });
    let done = || Ok(StoreWriteOutcome::Changed);
    let rows = [row("b", "x", 1), row("a", "y", 1), row("a", "x", 1)];
    let batch = rows.map(|row| put(row, fence)).into_iter().chain([put(row("a", "z", 2), fence)]).collect();
    assert_eq!(commit(store, batch).await, [done(), done(), done(), changed(0)]);
    let other = ScheduleRow { state: vec![9], ..row("a", "x", 1) };
    let batch = vec![
        put(row("a", "x", 1), fence),
        put(other, fence),
        put(row("a", "x", 3), fence),
        put(row("a", "x", 2), fence),
        put(row("a", "x", 2), fence),
        put(row("a", "x", 3), fence - 1),
    ];
    let fenced = Err(Refused::Fenced { shard: 3, yours: fence - 1, newest: fence });
    assert_eq!(commit(store, batch).await, [done(), changed(1), changed(1), done(), done(), fenced]);
    assert_eq!(store.reader.schedule("a", "x").await.unwrap(), Some(row("a", "x", 2)));
    assert_eq!(store.reader.schedule("b", "y").await.unwrap(), None);
    assert_eq!(names(store, "", ("", ""), 10).await, ["a/x", "a/y", "b/x"]);
    assert_eq!(names(store, "", ("a", "x"), 1).await, ["a/y"]);
    assert_eq!(names(store, "a", ("", ""), 10).await, ["a/x", "a/y"]);
    assert_eq!(names(store, "b", ("b", "x"), 10).await, Vec::<String>::new());
    let batch = vec![delete("y", 2, fence), delete("y", 1, fence), delete("y", 1, fence)];
    assert_eq!(commit(store, batch).await, [changed(1), done(), done()]);
}

/// After the store was opened again.
pub(super) async fn has_what_is_left<W: JournalWriter>(store: &mut OpenedStore<W>) {
    assert_eq!(names(store, "", ("", ""), 10).await, ["a/x", "b/x"]);
    assert_eq!(store.reader.schedule("a", "x").await.unwrap(), Some(row("a", "x", 2)));
    let again = commit(store, vec![put(row("a", "y", 1), store.fence)]).await;
    assert_eq!(again, [Ok(StoreWriteOutcome::Changed)], "a deleted name is free");
}
