//! The conformance suite that every store has to pass.

mod common;
mod inbox;
mod outbox;

use std::collections::BTreeMap;

use common::{
    append, close, commit, create, create_in, created, delete, ended, erase, new_execution, summary, transition, update,
};

use crate::{
    AnyOf, Change, Changes, Comparison, Condition, Cursor, DeleteRequest, Deletion, Done, ExecutionKey, ExecutionRow,
    ExecutionSummary, Fence, Folder, JournalWriter, Loaded, MAX_EXAMINED, NewExecution, Opened, Operation, Order,
    OrderBy, Page, ParentStep, Position, Query, Refused, Snapshot, StartRequest, StepCounts, StoreError,
    StoredTransition, Transition, Waits, start_request,
};

/// Checks a store's guarantees. `open` opens the same store each time, after the previous handle was dropped.
///
/// # Panics
/// When a guarantee does not hold; the message names it.
pub async fn check<W: JournalWriter>(open: &mut dyn FnMut() -> Opened<W>) {
    let mut store = open();
    let key = creates_and_finds(&mut store).await;
    keeps_parents(&mut store, key).await;
    refuses_what_exists(&mut store, key).await;
    appends_without_a_gap(&mut store, key).await;
    refuses_one_and_keeps_the_others(&mut store, key).await;
    reads_in_pages(&mut store).await;
    lists_by_filter(&mut store).await;
    lists_page_by_page(&mut store).await;
    finds_what_to_drive(&mut store).await;
    lists_namespaces(&mut store).await;
    keeps_one_key(&mut store).await;
    keeps_the_last_snapshot(&mut store).await;
    finds_what_has_ended(&mut store).await;
    outbox::keeps_messages_with_their_transition(&mut store).await;
    follows_what_is_committed(&mut store).await;
    keeps_folders_in_use(&mut store).await;
    deletes_in_steps(&mut store).await;

    let (fence, store_id) = (store.fence, store.store_id.clone());
    let (before, changes, latest) =
        (everything(&store).await, changes(&store, 1000).await, store.reader.latest().await.unwrap());
    drop(store);
    let mut store = open();
    assert_eq!(everything(&store).await, before, "what was committed is there after opening again");
    assert_eq!(self::changes(&store, 1000).await, changes, "in its order");
    assert_eq!(store.reader.latest().await.unwrap(), latest, "a cursor stays valid");
    assert_eq!(store.store_id, store_id, "a store keeps its identity");
    assert!(store.fence > fence, "the fence rises whenever the store is opened");
    assert_eq!(store.reader.newest_token().await.unwrap(), store.fence, "readers know the newest owner");
    refuses_an_older_fence(&mut store, key, fence).await;
    outbox::has_what_is_left(&store).await;
    continues_a_deletion(&mut store).await;
    continues_after_opening_again(&mut store, key).await;
    inbox::keeps_messages_until_they_are_taken(&mut store).await;
}

async fn creates_and_finds<W: JournalWriter>(store: &mut Opened<W>) -> ExecutionKey {
    let fence = store.fence;
    let answers = commit(store, vec![create(new_execution("one", "request", "hash", 10), fence)]).await;
    let key = created(&answers[0]);
    let row = store.reader.find("default", "one").await.unwrap().expect("what was created is found by its name");
    assert_eq!((row.key, &row.summary, row.revision), (key, &summary(2), 2));
    assert_eq!(row.execution, new_execution("one", "request", "hash", 10));
    assert_eq!(store.reader.get(key).await.unwrap(), Some(row));
    assert_eq!(store.reader.find("other", "one").await.unwrap(), None, "names are per namespace");
    assert_eq!(store.reader.get(ExecutionKey(key.0 + 1)).await.unwrap(), None);
    key
}

/// What a store knows of the step whose plan an execution carries out.
async fn keeps_parents<W: JournalWriter>(store: &mut Opened<W>, parent: ExecutionKey) {
    let parent = ParentStep { execution: parent, execution_id: "one".into(), step_id: "step".into() };
    let child = NewExecution { parent: Some(parent), ..new_execution("child", "", "", 11) };
    let fence = store.fence;
    let key = created(&commit(store, vec![create(child.clone(), fence)]).await[0]);
    assert_eq!(store.reader.get(key).await.unwrap().unwrap().execution, child);
    assert_eq!(commit(store, vec![update(key, 3, ended(12), fence)]).await, vec![Ok(Done::Appended)]);
    let row = store.reader.find("default", "child").await.unwrap().unwrap();
    assert_eq!((row.execution, row.summary), (child, ended(12)), "a summary changes nothing of it");
}

fn start_request_of(id: &str, hash: &str, at: i64) -> StartRequest {
    let (namespace, principal) = ("default".into(), common::PRINCIPAL.into());
    StartRequest { namespace, principal, id: id.into(), hash: hash.into(), at }
}

/// B-15: starting twice with one request id yields one execution.
async fn refuses_what_exists<W: JournalWriter>(store: &mut Opened<W>, existing: ExecutionKey) {
    let fence = store.fence;
    let answers = commit(
        store,
        vec![
            create(new_execution("one", "", "", 11), fence),
            create(new_execution("two", "request", "hash", 11), fence),
            create(new_execution("three", "request", "another", 11), fence),
        ],
    )
    .await;
    assert_eq!(answers[0], Err(Refused::IdTaken { id: "one".into(), existing }));
    assert_eq!(answers[1], Err(Refused::RequestIdUsed { existing, same_request: true }));
    assert_eq!(answers[2], Err(Refused::RequestIdUsed { existing, same_request: false }));
    assert_eq!(store.reader.find("default", "two").await.unwrap(), None, "a refused operation changes nothing");
    let used = async |of: StartRequest| store.reader.request_used(&of).await.unwrap();
    let request = start_request_of("request", "hash", 11);
    assert_eq!(used(request.clone()).await, Some(Refused::RequestIdUsed { existing, same_request: true }));
    let another = StartRequest { hash: "another".into(), ..request.clone() };
    assert_eq!(used(another).await, Some(Refused::RequestIdUsed { existing, same_request: false }));
    let others = [
        StartRequest { namespace: "other".into(), ..request.clone() },
        StartRequest { principal: "another".into(), ..request.clone() },
        StartRequest { id: "another".into(), ..request },
    ];
    for other in others {
        assert_eq!(used(other).await, None);
    }
}

async fn appends_without_a_gap<W: JournalWriter>(store: &mut Opened<W>, key: ExecutionKey) {
    let fence = store.fence;
    let answers = commit(store, vec![append(key, transition(3, 1), fence), append(key, transition(4, 4), fence)]).await;
    assert_eq!(answers, vec![Ok(Done::Appended), Ok(Done::Appended)]);
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

async fn refuses_one_and_keeps_the_others<W: JournalWriter>(store: &mut Opened<W>, key: ExecutionKey) {
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
            Operation::Append {
                key,
                transition: transition(9, 1),
                summary: Some(parked.clone()),
                seal_key: None,
                outbox: Vec::new(),
                inbox: Default::default(),
                fence: Fence { shard: 7, token: fence },
            },
        ],
    )
    .await;
    assert_eq!(answers, vec![Ok(Done::Appended), Err(Refused::Gap { first: 99, last: 8 }), Ok(Done::Appended)]);
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
async fn reads_in_pages<W: JournalWriter>(store: &mut Opened<W>) {
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

const EVERYTHING: Query =
    Query { namespace: None, filter: Vec::new(), order: Order::NEWEST_FIRST, after: None, limit: 1000 };

/// Every page of a query.
async fn pages<W: JournalWriter>(store: &Opened<W>, query: &Query) -> Vec<Page> {
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

async fn all<W: JournalWriter>(store: &Opened<W>) -> Vec<ExecutionRow> {
    pages(store, &EVERYTHING).await.into_iter().flat_map(|page| page.rows).collect()
}

fn one(condition: Condition) -> Vec<AnyOf> {
    vec![AnyOf(vec![condition])]
}

/// Whatever the filter, the order and the page: what a list contains is what matches.
async fn lists_by_filter<W: JournalWriter>(store: &mut Opened<W>) {
    let fence = store.fence;
    for index in 0_i64..48 {
        let mut execution = new_execution(&format!("list-{index}"), "", "", 100 + index / 2);
        execution.namespace = ["lists", "other-lists"][usize::from(index % 3 == 2)].into();
        execution.plan_id = format!("plan-{}", index % 4);
        if index % 5 != 0 {
            execution.labels.insert("team".into(), ["a", "b"][usize::from(index % 2 == 0)].into());
        }
        if index % 7 == 3 {
            let (execution_id, step_id) = (format!("parent-{}", index % 2), "s".into());
            execution.parent = Some(ParentStep { execution: ExecutionKey(1), execution_id, step_id });
        }
        let key = created(&commit(store, vec![create(execution, fence)]).await[0]);
        let (ended, waits) = (index % 4 == 0, Waits(u32::try_from(index % 4).unwrap()));
        let summary = ExecutionSummary {
            state: i32::try_from(index % 6).unwrap(),
            ended,
            waits_for: if ended { Waits::default() } else { waits },
            ended_at: ended.then_some(1000 - index),
            failure_reason: (index % 8 == 0).then(|| format!("REASON_{}", index % 3)),
            ..ExecutionSummary::default()
        };
        assert_eq!(commit(store, vec![update(key, 3, summary.clone(), fence)]).await, vec![Ok(Done::Appended)]);
        // Some go on after their end, and some of these end again.
        if index % 12 == 4 {
            let goes_on = ExecutionSummary { ended: false, ended_at: None, failure_reason: None, ..summary.clone() };
            assert_eq!(commit(store, vec![update(key, 4, goes_on, fence)]).await, vec![Ok(Done::Appended)]);
        }
        if index % 24 == 4 {
            let again = ExecutionSummary { ended_at: Some(2000 + index), ..summary };
            assert_eq!(commit(store, vec![update(key, 5, again, fence)]).await, vec![Ok(Done::Appended)]);
        }
    }
    let text = str::to_owned;
    let conditions = [
        Condition::State(true, 3),
        Condition::State(false, 3),
        Condition::State(true, 99),
        Condition::WaitsFor(true, 1),
        Condition::WaitsFor(false, 1),
        Condition::PlanId(true, text("plan-2")),
        Condition::PlanId(false, text("plan-2")),
        Condition::FailureReason(true, text("REASON_1")),
        Condition::FailureReason(false, text("REASON_1")),
        Condition::Label(true, text("team"), text("a")),
        Condition::Label(false, text("team"), text("a")),
        Condition::Label(true, text("team"), text("no such value")),
        Condition::HasLabel(text("team")),
        Condition::HasLabel(text("tea")),
        Condition::Id(true, text("list-7")),
        Condition::Id(false, text("list-7")),
        Condition::IdPrefix(text("list-1")),
        Condition::IdPrefix(text("list_")),
        Condition::Parent(text("parent-1")),
        Condition::Parent(text("parent-2")),
        Condition::HasParent(true),
        Condition::HasParent(false),
        Condition::CreateTime(Comparison::AtLeast, 110),
        Condition::CreateTime(Comparison::Less, 110),
        Condition::CreateTime(Comparison::Equal, 110),
        Condition::CreateTime(Comparison::NotEqual, 110),
        Condition::EndTime(Comparison::Greater, 980),
        Condition::EndTime(Comparison::AtMost, 980),
    ];
    let mut filters = vec![Vec::new()];
    filters.extend(conditions.iter().cloned().map(one));
    for pair in conditions.windows(2) {
        filters.push(vec![AnyOf(pair.to_vec())]);
        filters.push(pair.iter().map(|condition| AnyOf(vec![condition.clone()])).collect());
    }
    filters
        .extend(conditions.windows(7).map(|seven| vec![AnyOf(vec![seven[0].clone()]), AnyOf(vec![seven[6].clone()])]));
    let rows = all(store).await;
    assert!(rows.iter().filter(|row| row.execution.id.starts_with("list-")).count() == 48, "everything is in a list");
    for filter in filters {
        for namespace in [None, Some("lists"), Some("other-lists"), Some("nobody")] {
            for order in [OrderBy::CreateTime, OrderBy::EndTime]
                .into_iter()
                .flat_map(|by| [true, false].map(|descending| Order { by, descending }))
            {
                let query =
                    Query { namespace: namespace.map(text), filter: filter.clone(), order, after: None, limit: 1000 };
                let mut expected: Vec<_> = rows.iter().filter(|row| query.matches(row)).cloned().collect();
                let place = |row: &ExecutionRow| query.position(row).expect("it matches");
                expected.sort_by(|left, right| order.compare(place(left), place(right)));
                for limit in [1000, 7] {
                    let found: Vec<_> = pages(store, &Query { limit, ..query.clone() })
                        .await
                        .into_iter()
                        .flat_map(|page| page.rows)
                        .collect();
                    assert_eq!(found, expected, "{query:?}");
                }
            }
        }
    }
}

/// A page that would take long ends early, and the next one continues.
async fn lists_page_by_page<W: JournalWriter>(store: &mut Opened<W>) {
    let fence = store.fence;
    let many = MAX_EXAMINED + 10;
    for from in (0..many).step_by(512) {
        let batch = (from..many.min(from + 512)).map(|index| {
            let execution = new_execution(&format!("many-{index}"), "", "", 5000);
            create(NewExecution { namespace: "many".into(), ..execution }, fence)
        });
        assert!(commit(store, batch.collect()).await.iter().all(Result::is_ok));
    }
    // No index serves an inequality of ids.
    let filter =
        vec![AnyOf(vec![Condition::IdPrefix("many-3".into())]), AnyOf(vec![Condition::Id(false, "many-7".into())])];
    let query = Query { namespace: Some("many".into()), filter, limit: 10_000, ..EVERYTHING };
    let found: usize = pages(store, &query).await.iter().map(|page| page.rows.len()).sum();
    assert_eq!(found, (0..many).filter(|index| index.to_string().starts_with('3')).count());
    let filter = vec![
        AnyOf(vec![Condition::Label(false, "id".into(), "many-7".into())]),
        AnyOf(vec![Condition::State(false, 2)]),
    ];
    let query = Query { filter, limit: 10, ..query };
    assert!(pages(store, &query).await.iter().all(|page| page.rows.is_empty()), "all are in state 2");
    let filter = one(Condition::Label(false, "id".into(), "many-0".into()));
    let pages = pages(store, &Query { filter, limit: 10_000, ..query }).await;
    assert_eq!(pages.iter().map(|page| page.rows.len()).sum::<usize>(), many - 1);
}

/// What an executor drives when it starts, and what it loads later.
async fn finds_what_to_drive<W: JournalWriter>(store: &mut Opened<W>) {
    let fence = store.fence;
    let before: Vec<_> = store.reader.claimable(ExecutionKey(0), 10_000).await.unwrap();
    assert!(
        before.is_sorted_by_key(|row| row.key) && before.iter().all(|row| !row.summary.ended && !row.summary.parked)
    );
    let (first, rest) = before.split_first().expect("some are neither ended nor parked");
    assert_eq!(store.reader.claimable(ExecutionKey(0), 1).await.unwrap(), std::slice::from_ref(first));
    assert_eq!(store.reader.claimable(first.key, 10_000).await.unwrap(), rest);

    let mut keys = Vec::new();
    for (index, wake_at) in [Some(9_000_030), Some(9_000_010), None, Some(9_000_010)].into_iter().enumerate() {
        let key = created(
            &commit(store, vec![create(new_execution(&format!("parked-{index}"), "", "", 400), fence)]).await[0],
        );
        let updated_at = 9_000_000 - i64::try_from(index).unwrap();
        let parked = ExecutionSummary { state: 4, wake_at, parked: true, updated_at, ..ExecutionSummary::default() };
        assert_eq!(commit(store, vec![update(key, 3, parked, fence)]).await, vec![Ok(Done::Appended)]);
        keys.push(key);
    }
    assert_eq!(
        store.reader.claimable(ExecutionKey(0), 10_000).await.unwrap(),
        before,
        "the parked ones are not driven"
    );
    let from = Position::after(9_000_000);
    let due = async |after, until, limit| -> Vec<ExecutionKey> {
        store.reader.due(after, until, limit).await.unwrap().iter().map(|row| row.key).collect()
    };
    assert_eq!(due(from, 9_000_009, 10).await, []);
    assert_eq!(due(from, 9_000_030, 10).await, [keys[1], keys[3], keys[0]]);
    assert_eq!(due(from, 9_000_030, 1).await, [keys[1]]);
    assert_eq!(due(Position { time: 9_000_010, key: keys[1] }, 9_000_030, 10).await, [keys[3], keys[0]]);
    assert_eq!(store.reader.next_wake(9_000_000).await.unwrap(), Some(9_000_010));
    assert_eq!(store.reader.next_wake(9_000_010).await.unwrap(), Some(9_000_030));
    assert_eq!(store.reader.next_wake(9_000_030).await.unwrap(), None);
    let parked = async |after| -> Vec<ExecutionKey> {
        store.reader.parked_since(after, 10).await.unwrap().iter().map(|row| row.key).collect()
    };
    assert_eq!(
        parked(Position::after(8_999_990)).await,
        [keys[3], keys[1], keys[0]],
        "without one that no time continues"
    );
    assert_eq!(parked(Position::after(8_999_998)).await, [keys[1], keys[0]]);

    let ended = ExecutionSummary { state: 6, ended: true, ended_at: Some(5), ..ExecutionSummary::default() };
    assert!(commit(store, vec![update(keys[1], 4, ended, fence)]).await[0].is_ok());
    assert_eq!(due_keys(store, from).await, [keys[3], keys[0]], "what has ended is not due");
}

async fn due_keys<W: JournalWriter>(store: &Opened<W>, after: Position) -> Vec<ExecutionKey> {
    store.reader.due(after, 9_000_030, 10).await.unwrap().iter().map(|row| row.key).collect()
}

async fn lists_namespaces<W: JournalWriter>(store: &mut Opened<W>) {
    for namespace in ["team-b", "team-a", "team-b"] {
        let id = format!("namespace-{}", all(store).await.len());
        let execution = NewExecution { namespace: namespace.into(), ..new_execution(&id, "", "", 300) };
        created(&commit(store, vec![create(execution, store.fence)]).await[0]);
    }
    assert_eq!(
        store.reader.namespaces("", 10).await.unwrap(),
        ["default", "lists", "many", "other-lists", "team-a", "team-b"]
    );
    assert_eq!(store.reader.namespaces("other-lists", 1).await.unwrap(), ["team-a"]);
    assert_eq!(store.reader.namespaces("team-b", 10).await.unwrap(), Vec::<String>::new());
}

/// A key comes with the transition that needs it, all or nothing, and stays the only one.
async fn keeps_one_key<W: JournalWriter>(store: &mut Opened<W>) {
    let fence = store.fence;
    let with_key = |mut operation: Operation, bytes: &[u8]| {
        if let Operation::Create { seal_key, .. } | Operation::Append { seal_key, .. } = &mut operation {
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
        Ok(Done::Appended),
        Err(Refused::HasSealKey(later)),
        Err(Refused::Fenced { shard: 7, yours: fence - 1, newest: fence }),
        Ok(Done::Appended),
    ];
    assert_eq!(answers, expected);
    assert_eq!(store.reader.seal_key(first).await.unwrap().as_deref(), Some(b"first".as_slice()));
    assert_eq!(store.reader.seal_key(later).await.unwrap().as_deref(), Some(b"later".as_slice()));
    assert_eq!(sealed(store).await, [first, later]);
    assert_eq!(store.reader.read(later, 2, 10).await.unwrap(), vec![transition(3, 1), transition(4, 1)]);
}

/// The executions that have a key.
async fn sealed<W: JournalWriter>(store: &Opened<W>) -> Vec<ExecutionKey> {
    let (mut found, mut after) = (Vec::new(), ExecutionKey(i64::MIN));
    while let Some(next) = store.reader.next_sealed(after).await.unwrap() {
        found.push(next);
        after = next;
    }
    found
}

/// The last snapshot is kept, by its owner and while there is an execution, and only of events that are stored.
async fn keeps_the_last_snapshot<W: JournalWriter>(store: &mut Opened<W>) {
    let fence = store.fence;
    let keep = |key, sequence, content: &[u8], token| {
        let snapshot = Snapshot { sequence, version: 3, content: content.to_vec(), is_sealed: sequence > 1 };
        Operation::KeepSnapshot { key, snapshot, fence: Fence { shard: 7, token } }
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
        Ok(Done::Kept),
        Ok(Done::Kept),
        Err(Refused::Gap { first: 3, last: 2 }),
        Err(Refused::Fenced { shard: 7, yours: fence - 1, newest: fence }),
        Err(Refused::Missing(missing)),
    ];
    assert_eq!(answers, expected);
    let kept = Snapshot { sequence: 2, version: 3, content: b"second".to_vec(), is_sealed: true };
    let row = store.reader.get(key).await.unwrap().unwrap();
    let loaded = |snapshot, first: &[u64]| Loaded {
        row: row.clone(),
        seal_key: None,
        snapshot,
        transitions: first.iter().map(|&first| transition(first, if first == 1 { 2 } else { 1 })).collect(),
    };
    assert_eq!(store.reader.load(key, Some(3)).await.unwrap(), loaded(Some(kept.clone()), &[1]));
    assert_eq!(store.reader.load(key, Some(2)).await.unwrap(), loaded(None, &[1]), "it is of another version");
    let answers = commit(store, vec![append(key, transition(3, 1), fence), append(key, transition(4, 1), fence)]).await;
    assert_eq!(answers, vec![Ok(Done::Appended), Ok(Done::Appended)]);
    assert_eq!(store.reader.load(key, Some(3)).await.unwrap(), loaded(Some(kept), &[1, 3, 4]));
    assert_eq!(store.reader.load(key, None).await.unwrap(), loaded(None, &[1, 3, 4]), "all without a snapshot");
    let end = Operation::Append {
        key,
        transition: transition(5, 1),
        summary: Some(ended(510)),
        seal_key: None,
        outbox: Vec::new(),
        inbox: Default::default(),
        fence: Fence { shard: 7, token: fence },
    };
    let answers = commit(store, vec![end, delete(key, "", fence), keep(key, 3, b"of a deleted one", fence)]).await;
    assert_eq!(answers, vec![Ok(Done::Appended), Ok(Done::Deleted), Err(Refused::Missing(key))]);
    let gone = store.reader.load(key, Some(3)).await;
    assert!(matches!(gone, Err(StoreError::Missing(missing)) if missing == key), "it goes with its execution");
    let answers = commit(
        store,
        vec![erase(key, 1000, fence), close(key, 0, fence), Operation::DropDeletions { now: 0, latest: i64::MAX }],
    )
    .await;
    assert_eq!(answers, vec![Ok(Done::Erased { complete: true }), Ok(Done::Closed), Ok(Done::Dropped(1))]);
}

/// What retention goes by: the end of executions, whatever their namespace.
async fn finds_what_has_ended<W: JournalWriter>(store: &mut Opened<W>) {
    let fence = store.fence;
    let before = store.reader.finished(Position::START, Position::after(i64::MAX), 10_000).await.unwrap();
    assert!(before.iter().all(|row| row.summary.ended_at.is_some_and(|at| at < 1_000_000)));
    let mut keys = Vec::new();
    for (index, ended_at) in [1_000_030, 1_000_010, 1_000_020, 1_000_010].into_iter().enumerate() {
        let key = created(
            &commit(store, vec![create(new_execution(&format!("ended-{index}"), "", "", 500), fence)]).await[0],
        );
        assert!(commit(store, vec![update(key, 3, ended(ended_at), fence)]).await[0].is_ok());
        keys.push(key);
    }
    let after = Position::after(1_000_000);
    let finished = async |after, until, limit| -> Vec<ExecutionKey> {
        store.reader.finished(after, until, limit).await.unwrap().iter().map(|row| row.key).collect()
    };
    let all = [keys[1], keys[3], keys[2], keys[0]];
    assert_eq!(finished(after, Position::after(i64::MAX), 10).await, all);
    assert_eq!(finished(after, Position::after(i64::MAX), 3).await, all[..3]);
    assert_eq!(finished(after, Position::after(1_000_020), 10).await, all[..3]);
    assert_eq!(finished(after, Position { time: 1_000_010, key: keys[1] }, 10).await, all[..1]);
    assert_eq!(finished(Position { time: 1_000_010, key: keys[1] }, Position::after(1_000_010), 10).await, all[1..2]);
    for (keep, last) in [(0, Some(keys[0])), (1, Some(keys[2])), (3, Some(keys[1]))] {
        assert_eq!(
            store.reader.finished_beyond(keep).await.unwrap().map(|position| position.key),
            last,
            "keeping {keep}"
        );
    }
    assert_eq!(store.reader.finished_beyond(before.len() + 4).await.unwrap(), None, "there are no more");
}

/// All that was committed, read in pages that examine at most `limit`.
async fn changes<W: JournalWriter>(store: &Opened<W>, limit: usize) -> Vec<Change> {
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

/// Those who follow all executions get each transition once, in the order of their commits.
async fn follows_what_is_committed<W: JournalWriter>(store: &mut Opened<W>) {
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
    assert_eq!(commit(store, vec![delete(b, "", fence)]).await, vec![Ok(Done::Deleted)]);
    assert_eq!(
        store.reader.changes(start, 10).await.unwrap(),
        Changes { changes: vec![expected[0], expected[3]], next }
    );
    let answers = commit(
        store,
        vec![erase(b, 1000, fence), close(b, 0, fence), Operation::DropDeletions { now: 0, latest: i64::MAX }],
    )
    .await;
    assert_eq!(answers, vec![Ok(Done::Erased { complete: true }), Ok(Done::Closed), Ok(Done::Dropped(1))]);
    assert_eq!(store.reader.changes(start, 10).await.unwrap().changes, [expected[0], expected[3]]);
    assert!(store.reader.latest().await.unwrap() >= next, "a cursor that was given stays valid");
    assert_eq!(store.reader.changes(next, 10).await.unwrap(), Changes { changes: vec![], next });
    assert_eq!(commit(store, vec![append(a, transition(4, 1), fence)]).await, vec![Ok(Done::Appended)]);
    assert_eq!(store.reader.changes(next, 10).await.unwrap().changes, [change(a, 4, 4)]);
}

/// An execution with a label, a key, a request id and 205 transitions that has ended.
async fn long_and_ended<W: JournalWriter>(store: &mut Opened<W>, id: &str) -> ExecutionKey {
    let fence = store.fence;
    let mut operation = create(new_execution(id, &format!("request of {id}"), "hash", 500), fence);
    if let Operation::Create { seal_key, .. } = &mut operation {
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
async fn keeps_folders_in_use<W: JournalWriter>(store: &mut Opened<W>) {
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
        async |store: &Opened<W>, id: &str| store.reader.deletion("default", id).await.unwrap().unwrap().folder;
    let answers = commit(store, vec![update(origin, 3, ended(1_000_041), fence), delete(origin, "", fence)]).await;
    assert_eq!(answers, vec![Ok(Done::Appended), Ok(Done::Deleted)]);
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
        assert_eq!(answers, vec![Ok(Done::Erased { complete: true }), Ok(Done::Closed)]);
    }
    assert_eq!(commit(store, vec![shared("late", "origin")]).await, gone(), "it is removed");
    assert!(matches!(
        commit(store, vec![Operation::DropDeletions { now: 0, latest: i64::MAX }]).await[..],
        [Ok(Done::Dropped(3))]
    ));
    let again = created(&commit(store, vec![new("origin", "origin")]).await[0]);
    let answers = commit(
        store,
        vec![
            update(again, 3, ended(1_000_044), fence),
            delete(again, "", fence),
            erase(again, 1000, fence),
            close(again, 0, fence),
            Operation::DropDeletions { now: 0, latest: i64::MAX },
        ],
    )
    .await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// B-26: a deletion takes an execution with its key and everything that names it, at once; its events follow in steps.
async fn deletes_in_steps<W: JournalWriter>(store: &mut Opened<W>) {
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
        Ok(Done::Deleted),
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
        start_request: start_request(common::PRINCIPAL, "request of deleted"),
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
    let used = async |store: &Opened<W>, at| {
        store.reader.request_used(&start_request_of("request of deleted", "hash", at)).await.unwrap()
    };
    assert_eq!(used(store, 10_000).await, repetition().err());

    let mut steps = 1;
    while commit(store, vec![erase(key, 50, fence)]).await != vec![Ok(Done::Erased { complete: true })] {
        steps += 1;
        assert!(steps < 100);
    }
    assert!((5..=6).contains(&steps), "205 transitions in steps of 50: {steps}");
    assert_eq!(commit(store, vec![erase(key, 50, fence)]).await, vec![Ok(Done::Erased { complete: true })], "again");
    assert_eq!(everything(store).await, others);
    let answers = commit(
        store,
        vec![close(key, 10_001, fence), again.clone(), Operation::DropDeletions { now: 10_000, latest: i64::MAX }],
    )
    .await;
    assert_eq!(answers, vec![Ok(Done::Closed), refused(Some(10_001)), Ok(Done::Dropped(0))]);
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

    assert_eq!(commit(store, vec![delete(neighbour, "", fence)]).await, vec![Ok(Done::Deleted)]);
    let answers = commit(store, vec![erase(neighbour, 1000, fence), close(neighbour, 20_000, fence)]).await;
    assert_eq!(answers, vec![Ok(Done::Erased { complete: true }), Ok(Done::Closed)]);
    assert_eq!(
        commit(store, vec![Operation::DropDeletions { now: 19_999, latest: i64::MAX }]).await,
        vec![Ok(Done::Dropped(0))]
    );
    // A clock that was ahead does not reserve a name for longer.
    let at = |now, latest| Operation::DropDeletions { now, latest };
    let answers = commit(store, vec![at(14_000, 15_000), at(14_999, 15_999), at(15_000, 16_000)]).await;
    assert_eq!(answers, vec![Ok(Done::Dropped(0)), Ok(Done::Dropped(0)), Ok(Done::Dropped(1))]);
    assert_eq!(store.reader.deletion("default", "neighbour").await.unwrap(), None);

    // Continued after the store is opened again.
    let interrupted = long_and_ended(store, "interrupted").await;
    assert_eq!(commit(store, vec![delete(interrupted, "", fence)]).await, vec![Ok(Done::Deleted)]);
    assert_eq!(commit(store, vec![erase(interrupted, 50, fence)]).await, vec![Ok(Done::Erased { complete: false })]);
}

async fn is_gone<W: JournalWriter>(store: &Opened<W>, key: ExecutionKey) {
    assert_eq!(store.reader.get(key).await.unwrap(), None);
    assert_eq!(store.reader.find("default", "deleted").await.unwrap(), None);
    assert_eq!(store.reader.seal_key(key).await.unwrap(), None);
    assert!(matches!(store.reader.read(key, 0, 10).await, Err(StoreError::Missing(missing)) if missing == key));
    let label = Condition::Label(true, "id".into(), "deleted".into());
    assert_eq!(store.reader.list(&Query { filter: one(label), ..EVERYTHING }).await.unwrap().rows, vec![]);
}

async fn continues_a_deletion<W: JournalWriter>(store: &mut Opened<W>) {
    let fence = store.fence;
    let open = store.reader.open_deletions(ExecutionKey(0), 10).await.unwrap();
    let [Deletion { key, id, .. }] = &open[..] else { panic!("one deletion is open, not {open:?}") };
    assert_eq!(id, "interrupted");
    let answers =
        commit(store, vec![append(*key, transition(207, 1), fence), erase(*key, 10_000, fence), close(*key, 0, fence)])
            .await;
    assert_eq!(answers, vec![Err(Refused::Missing(*key)), Ok(Done::Erased { complete: true }), Ok(Done::Closed)]);
}

type Everything = Vec<(crate::ExecutionRow, Vec<Transition>, Option<Vec<u8>>)>;

async fn everything<W: JournalWriter>(store: &Opened<W>) -> Everything {
    let mut everything = Vec::new();
    for row in all(store).await {
        let transitions = store.reader.read(row.key, 0, usize::MAX).await.unwrap();
        let seal_key = store.reader.seal_key(row.key).await.unwrap();
        everything.push((row, transitions, seal_key));
    }
    everything
}

/// B-08: a stale owner's write is rejected by the store.
async fn refuses_an_older_fence<W: JournalWriter>(store: &mut Opened<W>, key: ExecutionKey, older: i64) {
    let newest = store.fence;
    let before = store.reader.read(key, 0, 100).await.unwrap();
    let answers =
        commit(store, vec![append(key, transition(10, 1), older), create(new_execution("late", "", "", 200), older)])
            .await;
    let refused = Refused::Fenced { shard: 7, yours: older, newest };
    assert_eq!(answers, vec![Err(refused.clone()), Err(refused)]);
    assert_eq!(store.reader.read(key, 0, 100).await.unwrap(), before);
}

async fn continues_after_opening_again<W: JournalWriter>(store: &mut Opened<W>, key: ExecutionKey) {
    let fence = store.fence;
    let answers =
        commit(store, vec![append(key, transition(11, 1), fence), append(key, transition(10, 1), fence)]).await;
    assert_eq!(answers, vec![Err(Refused::Gap { first: 11, last: 9 }), Ok(Done::Appended)]);
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
