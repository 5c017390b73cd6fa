//! Transitions: appended without a gap, one refused without the others, and read in pages.

use super::common::{append, commit, create, created, new_execution, transition};
use crate::{
    ExecutionKey, ExecutionSummary, Fence, JournalWriter, OpenedStore, Refused, StepCounts, StoreWrite,
    StoreWriteOutcome, StoredTransition, Waits,
};

pub(super) async fn appends_without_a_gap<W: JournalWriter>(store: &mut OpenedStore<W>, key: ExecutionKey) {
    let fence = store.fence;
    let answers = commit(store, vec![append(key, transition(3, 1), fence), append(key, transition(4, 4), fence)]).await;
    assert_eq!(answers, vec![Ok(StoreWriteOutcome::Appended), Ok(StoreWriteOutcome::Appended)]);
    for (first, last) in [(10, 7), (7, 7), (1, 7)] {
        let answers = commit(store, vec![append(key, transition(first, 1), fence)]).await;
        assert_eq!(answers, vec![Err(Refused::Gap { first, last })]);
    }
    let missing = ExecutionKey(999_999);
    assert_eq!(
        commit(store, vec![append(missing, transition(2, 1), fence)]).await,
        vec![Err(Refused::Missing(missing))]
    );
    let read = store.reader.read(key, 0, 100).await.unwrap();
    assert_eq!(read, vec![transition(1, 2), transition(3, 1), transition(4, 4)]);
    assert_eq!(store.reader.read(key, 2, 100).await.unwrap(), read[1..]);
    assert_eq!(
        store.reader.read(key, 5, 100).await.unwrap(),
        read[2..],
        "a transition that holds a later event is given whole"
    );
    assert_eq!(store.reader.read(key, 7, 100).await.unwrap(), vec![]);
    for first_sequence in [1, 2, 3, 4, 5, 8] {
        let written = read.iter().find(|transition| transition.first_sequence == first_sequence).cloned();
        let expected = written.map(|transition| StoredTransition { transition, token: fence });
        assert_eq!(store.reader.stored(key, first_sequence).await.unwrap(), expected, "at {first_sequence}");
    }
    assert_eq!(store.reader.stored(missing, 1).await.unwrap(), None);
}

pub(super) async fn refuses_one_and_keeps_the_others<W: JournalWriter>(store: &mut OpenedStore<W>, key: ExecutionKey) {
    let fence = store.fence;
    let parked = ExecutionSummary {
        state: 4,
        ended: false,
        wake_at: Some(77),
        parked: true,
        waits_for: Waits::default().with(1).with(3),
        asks: u64::MAX - 1,
        updated_at: 70,
        ended_at: None,
        failure_reason: Some("A_REASON".into()),
        steps: StepCounts { total: 5, completed: 1, failed: 2, skipped: 3, cancelled: 4 },
    };
    let answers = commit(
        store,
        vec![
            append(key, transition(8, 1), fence),
            append(key, transition(99, 1), fence),
            StoreWrite::Append {
                key,
                transition: transition(9, 1),
                summary: Some(parked.clone()),
                seal_key: None,
                outbox: Vec::new(),
                inbox: Default::default(),
                usage: Vec::new(),
                limits: Vec::new(),
                fence: Fence { shard: 7, token: fence },
            },
        ],
    )
    .await;
    assert_eq!(
        answers,
        vec![
            Ok(StoreWriteOutcome::Appended),
            Err(Refused::Gap { first: 99, last: 8 }),
            Ok(StoreWriteOutcome::Appended)
        ]
    );
    let row = store.reader.get(key).await.unwrap().unwrap();
    assert_eq!(row.summary, parked);
    let events = store.reader.read(key, 0, usize::MAX).await.unwrap();
    let last = events.last().unwrap().last_sequence();
    assert!(
        (2..=last).contains(&row.revision),
        "the row names an event that agrees with its summary: {}",
        row.revision
    );
}

/// Long executions, written beside each other, come back whole and in order whatever the page.
pub(super) async fn reads_in_pages<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let mut long = Vec::new();
    for id in ["long-a", "long-b"] {
        long.push(created(&commit(store, vec![create(new_execution(id, "", "", 20), fence)]).await[0]));
    }
    let mut next = 3;
    for batch in 0..40 {
        let mut operations = Vec::new();
        for index in 0..20 {
            let count = 1 + (batch + index) % 3;
            operations.extend(long.iter().map(|&key| append(key, transition(next, count), fence)));
            next += u64::from(count);
        }
        assert!(commit(store, operations).await.iter().all(Result::is_ok));
    }
    for key in long {
        for limit in [1, 7, 64, 1000] {
            let (mut after, mut count) = (0, 0);
            loop {
                let page = store.reader.read(key, after, limit).await.unwrap();
                assert!(page.len() <= limit, "a page is no longer than asked for");
                let Some(last) = page.last() else { break };
                for transition in &page {
                    assert_eq!(transition.first_sequence, after + 1, "pages follow each other without a gap");
                    after = transition.last_sequence();
                    count += 1;
                }
                assert_eq!(after, last.last_sequence());
            }
            assert_eq!((after, count), (next - 1, 801));
        }
        let tail = store.reader.read(key, next - 2, 10).await.unwrap();
        assert_eq!(tail.len(), 1, "the last transition is found from near the end");
    }
}
