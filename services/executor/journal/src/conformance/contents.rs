//! All that a store has, as its readers see it.

use crate::{
    AnyOf, Change, Changes, Condition, Cursor, ExecutionRow, JournalWriter, OpenedStore, Order, Page, Query, Transition,
};

pub(super) const EVERYTHING: Query =
    Query { namespace: None, filter: Vec::new(), order: Order::NEWEST_FIRST, after: None, limit: 1000 };

/// Every page of a query.
pub(super) async fn pages<W: JournalWriter>(store: &OpenedStore<W>, query: &Query) -> Vec<Page> {
    let (mut pages, mut after) = (Vec::new(), query.after);
    loop {
        let page = store.reader.list(&Query { after, ..query.clone() }).await.unwrap();
        assert!(page.rows.len() <= query.limit, "a page is no longer than asked for");
        after = page.next;
        pages.push(page);
        if after.is_none() {
            return pages;
        }
    }
}

pub(super) async fn all<W: JournalWriter>(store: &OpenedStore<W>) -> Vec<ExecutionRow> {
    pages(store, &EVERYTHING).await.into_iter().flat_map(|page| page.rows).collect()
}

pub(super) fn one(condition: Condition) -> Vec<AnyOf> {
    vec![AnyOf(vec![condition])]
}

pub(super) type Everything = Vec<(ExecutionRow, Vec<Transition>, Option<Vec<u8>>)>;

pub(super) async fn everything<W: JournalWriter>(store: &OpenedStore<W>) -> Everything {
    let mut everything = Vec::new();
    for row in all(store).await {
        let transitions = store.reader.read(row.key, 0, usize::MAX).await.unwrap();
        let seal_key = store.reader.seal_key(row.key).await.unwrap();
        everything.push((row, transitions, seal_key));
    }
    everything
}

/// All that was committed, read in pages that examine at most `limit`.
pub(super) async fn changes<W: JournalWriter>(store: &OpenedStore<W>, limit: usize) -> Vec<Change> {
    let (mut all, mut after) = (Vec::new(), Cursor::START);
    loop {
        let Changes { changes, next } = store.reader.changes(after, limit).await.unwrap();
        assert!(changes.len() <= limit && next >= after, "a page is no longer than asked for");
        if next == after {
            assert_eq!(changes, [], "a page without progress is empty");
            assert!(next <= store.reader.latest().await.unwrap());
            return all;
        }
        all.extend(changes);
        after = next;
    }
}
