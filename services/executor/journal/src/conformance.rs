//! The conformance suite that every store has to pass.

use std::collections::BTreeMap;

use crate::{
    Done, ExecutionKey, ExecutionSummary, Fence, Filter, NewExecution, Opened, Operation, Refused, Transition,
};

/// Checks a store's guarantees. `open` opens the same store each time, after the previous handle was dropped.
///
/// # Panics
/// When a guarantee does not hold; the message names it.
pub fn check(open: &mut dyn FnMut() -> Opened) {
    let mut store = open();
    let key = creates_and_finds(&mut store);
    refuses_what_exists(&mut store, key);
    appends_without_a_gap(&mut store, key);
    refuses_one_and_keeps_the_others(&mut store, key);
    reads_in_pages(&mut store);
    lists_by_filter(&mut store);
    lists_namespaces(&mut store);
    keeps_one_key(&mut store);

    let (fence, store_id) = (store.fence, store.store_id.clone());
    let before = everything(&store);
    drop(store);
    let mut store = open();
    assert_eq!(everything(&store), before, "what was committed is there after opening again");
    assert_eq!(store.store_id, store_id, "a store keeps its identity");
    assert!(store.fence > fence, "the fence rises whenever the store is opened");
    refuses_an_older_fence(&mut store, key, fence);
    continues_after_opening_again(&mut store, key);
}

fn summary(state: i32) -> ExecutionSummary {
    ExecutionSummary { state, ..ExecutionSummary::default() }
}

fn transition(first_sequence: u64, count: u32) -> Transition {
    let shown = format!("{first_sequence}+{count};").into_bytes();
    Transition {
        first_sequence,
        count,
        version: 1,
        shown,
        sealed: first_sequence.is_multiple_of(2).then(|| vec![7; 3]),
    }
}

fn new_execution(id: &str, request_id: &str, request_hash: &str, created_at: i64) -> NewExecution {
    NewExecution {
        namespace: "default".into(),
        id: id.into(),
        shard: 7,
        created_at,
        plan_id: "plan".into(),
        labels: BTreeMap::from([("id".into(), id.into())]),
        principal: "somebody".into(),
        request_id: request_id.into(),
        request_hash: request_hash.into(),
    }
}

fn create(execution: NewExecution, fence: i64) -> Operation {
    let fence = Fence { shard: execution.shard, token: fence };
    Operation::Create { execution, transition: transition(1, 2), summary: summary(2), seal_key: None, fence }
}

fn append(key: ExecutionKey, transition: Transition, fence: i64) -> Operation {
    Operation::Append { key, transition, summary: None, seal_key: None, fence: Fence { shard: 7, token: fence } }
}

fn commit(store: &mut Opened, batch: Vec<Operation>) -> Vec<Result<Done, Refused>> {
    let count = batch.len();
    let answers = store.writer.commit(batch).expect("the batch is committed");
    assert_eq!(answers.len(), count, "every operation is answered");
    answers
}

fn created(answer: &Result<Done, Refused>) -> ExecutionKey {
    match answer {
        Ok(Done::Created(key)) => *key,
        other => panic!("an execution is created, not {other:?}"),
    }
}

fn creates_and_finds(store: &mut Opened) -> ExecutionKey {
    let fence = store.fence;
    let answers = commit(store, vec![create(new_execution("one", "request", "hash", 10), fence)]);
    let key = created(&answers[0]);
    let row = store.reader.find("default", "one").unwrap().expect("what was created is found by its name");
    assert_eq!((row.key, &row.summary), (key, &summary(2)));
    assert_eq!(row.execution, new_execution("one", "request", "hash", 10));
    assert_eq!(store.reader.get(key).unwrap(), Some(row));
    assert_eq!(store.reader.find("other", "one").unwrap(), None, "names are per namespace");
    assert_eq!(store.reader.get(ExecutionKey(key.0 + 1)).unwrap(), None);
    key
}

/// B-15: starting twice with one request id yields one execution.
fn refuses_what_exists(store: &mut Opened, existing: ExecutionKey) {
    let fence = store.fence;
    let answers = commit(
        store,
        vec![
            create(new_execution("one", "", "", 11), fence),
            create(new_execution("two", "request", "hash", 11), fence),
            create(new_execution("three", "request", "another", 11), fence),
        ],
    );
    assert_eq!(answers[0], Err(Refused::IdTaken { id: "one".into(), existing }));
    assert_eq!(answers[1], Err(Refused::RequestIdUsed { existing, same_request: true }));
    assert_eq!(answers[2], Err(Refused::RequestIdUsed { existing, same_request: false }));
    assert_eq!(store.reader.find("default", "two").unwrap(), None, "a refused operation changes nothing");
}

fn appends_without_a_gap(store: &mut Opened, key: ExecutionKey) {
    let fence = store.fence;
    let answers = commit(store, vec![append(key, transition(3, 1), fence), append(key, transition(4, 4), fence)]);
    assert_eq!(answers, vec![Ok(Done::Appended), Ok(Done::Appended)]);
    for (first, last) in [(10, 7), (7, 7), (1, 7)] {
        let answers = commit(store, vec![append(key, transition(first, 1), fence)]);
        assert_eq!(answers, vec![Err(Refused::Gap { first, last })]);
    }
    let missing = ExecutionKey(999_999);
    assert_eq!(commit(store, vec![append(missing, transition(2, 1), fence)]), vec![Err(Refused::Missing(missing))]);
    let read = store.reader.read(key, 0, 100).unwrap();
    assert_eq!(read, vec![transition(1, 2), transition(3, 1), transition(4, 4)]);
    assert_eq!(store.reader.read(key, 2, 100).unwrap(), read[1..]);
    assert_eq!(
        store.reader.read(key, 5, 100).unwrap(),
        read[2..],
        "a transition that holds a later event is given whole"
    );
    assert_eq!(store.reader.read(key, 7, 100).unwrap(), vec![]);
}

fn refuses_one_and_keeps_the_others(store: &mut Opened, key: ExecutionKey) {
    let fence = store.fence;
    let parked = ExecutionSummary { state: 4, ended: false, wake_at: Some(77), parked: true };
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
                fence: Fence { shard: 7, token: fence },
            },
        ],
    );
    assert_eq!(answers, vec![Ok(Done::Appended), Err(Refused::Gap { first: 99, last: 8 }), Ok(Done::Appended)]);
    assert_eq!(store.reader.get(key).unwrap().unwrap().summary, parked);
    assert!(store.reader.unfinished().unwrap().iter().any(|row| row.key == key));
}

/// Long executions, written beside each other, come back whole and in order whatever the page.
fn reads_in_pages(store: &mut Opened) {
    let fence = store.fence;
    let long: Vec<ExecutionKey> = ["long-a", "long-b"]
        .iter()
        .map(|id| created(&commit(store, vec![create(new_execution(id, "", "", 20), fence)])[0]))
        .collect();
    let mut next = 3;
    for batch in 0..40 {
        let mut operations = Vec::new();
        for index in 0..20 {
            let count = 1 + (batch + index) % 3;
            operations.extend(long.iter().map(|&key| append(key, transition(next, count), fence)));
            next += u64::from(count);
        }
        assert!(commit(store, operations).iter().all(Result::is_ok));
    }
    for key in long {
        for limit in [1, 7, 64, 1000] {
            let (mut after, mut count) = (0, 0);
            loop {
                let page = store.reader.read(key, after, limit).unwrap();
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
        let tail = store.reader.read(key, next - 2, 10).unwrap();
        assert_eq!(tail.len(), 1, "the last transition is found from near the end");
    }
}

fn lists_by_filter(store: &mut Opened) {
    let fence = store.fence;
    for (index, state) in [6, 7, 6].into_iter().enumerate() {
        let execution = new_execution(&format!("list-{index}"), "", "", 100 + index as i64);
        let key = created(&commit(store, vec![create(execution, fence)])[0]);
        let ended = ExecutionSummary { state, ended: true, ..ExecutionSummary::default() };
        let operation = Operation::Append {
            key,
            transition: transition(3, 1),
            summary: Some(ended),
            seal_key: None,
            fence: Fence { shard: 7, token: fence },
        };
        assert_eq!(commit(store, vec![operation]), vec![Ok(Done::Appended)]);
    }
    let ids = |filter: Filter| -> Vec<String> {
        store.reader.list(&filter).unwrap().into_iter().map(|row| row.execution.id).collect()
    };
    let base = Filter { namespace: "default".into(), id_prefix: "list-".into(), limit: 10, ..Filter::default() };
    assert_eq!(ids(base.clone()), ["list-2", "list-1", "list-0"], "the newest come first");
    assert_eq!(ids(Filter { states: vec![6], ..base.clone() }), ["list-2", "list-0"]);
    assert_eq!(ids(Filter { created_since: Some(101), ..base.clone() }), ["list-2", "list-1"]);
    assert_eq!(ids(Filter { labels: BTreeMap::from([("id".into(), "list-1".into())]), ..base.clone() }), ["list-1"]);
    assert_eq!(ids(Filter { namespace: "nobody".into(), ..base.clone() }), Vec::<String>::new());
    assert_eq!(
        ids(Filter { id_prefix: "list_".into(), ..base.clone() }),
        Vec::<String>::new(),
        "a prefix is not a pattern"
    );
    assert_eq!(ids(Filter { limit: 2, ..base.clone() }), ["list-2", "list-1"]);
    let before = store.reader.find("default", "list-1").unwrap().map(|row| row.key);
    assert_eq!(ids(Filter { before, ..base }), ["list-0"]);
    let unfinished = store.reader.unfinished().unwrap();
    assert!(!unfinished.iter().any(|row| row.execution.id.starts_with("list-")), "what has ended is not unfinished");
    assert!(unfinished.is_sorted_by_key(|row| row.key), "the unfinished come oldest first");
}

/// A key comes with the transition that needs it, all or nothing, and stays the only one.
fn lists_namespaces(store: &mut Opened) {
    for namespace in ["team-b", "team-a", "team-b"] {
        let id =
            format!("namespace-{}", store.reader.list(&Filter { limit: 1000, ..Filter::default() }).unwrap().len());
        let execution = NewExecution { namespace: namespace.into(), ..new_execution(&id, "", "", 300) };
        created(&commit(store, vec![create(execution, store.fence)])[0]);
    }
    assert_eq!(store.reader.namespaces("", 10).unwrap(), ["default", "team-a", "team-b"]);
    assert_eq!(store.reader.namespaces("default", 1).unwrap(), ["team-a"]);
    assert_eq!(store.reader.namespaces("team-b", 10).unwrap(), Vec::<String>::new());
}

fn keeps_one_key(store: &mut Opened) {
    let fence = store.fence;
    let with_key = |mut operation: Operation, bytes: &[u8]| {
        let (Operation::Create { seal_key, .. } | Operation::Append { seal_key, .. }) = &mut operation;
        *seal_key = Some(bytes.to_vec());
        operation
    };
    let at_once = with_key(create(new_execution("sealed", "", "", 400), fence), b"first");
    let refused = with_key(create(new_execution("sealed", "", "", 400), fence), b"other");
    let answers = commit(store, vec![at_once, refused, create(new_execution("sealed-later", "", "", 401), fence)]);
    let (first, later) = (created(&answers[0]), created(&answers[2]));
    assert_eq!(answers[1], Err(Refused::IdTaken { id: "sealed".into(), existing: first }));
    assert_eq!(store.reader.seal_key(first).unwrap().as_deref(), Some(b"first".as_slice()));
    assert_eq!(store.reader.seal_key(later).unwrap(), None);

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
    );
    let expected = vec![
        Err(Refused::HasSealKey(first)),
        Err(Refused::Gap { first: 9, last: 2 }),
        Ok(Done::Appended),
        Err(Refused::HasSealKey(later)),
        Err(Refused::Fenced { shard: 7, yours: fence - 1, newest: fence }),
        Ok(Done::Appended),
    ];
    assert_eq!(answers, expected);
    assert_eq!(store.reader.seal_key(first).unwrap().as_deref(), Some(b"first".as_slice()));
    assert_eq!(store.reader.seal_key(later).unwrap().as_deref(), Some(b"later".as_slice()));
    assert_eq!(store.reader.read(later, 2, 10).unwrap(), vec![transition(3, 1), transition(4, 1)]);
}

type Everything = Vec<(crate::ExecutionRow, Vec<Transition>, Option<Vec<u8>>)>;

fn everything(store: &Opened) -> Everything {
    let rows = store.reader.list(&Filter { limit: 1000, ..Filter::default() }).unwrap();
    rows.into_iter()
        .map(|row| {
            let transitions = store.reader.read(row.key, 0, usize::MAX).unwrap();
            let seal_key = store.reader.seal_key(row.key).unwrap();
            (row, transitions, seal_key)
        })
        .collect()
}

/// B-08: a stale owner's write is rejected by the store.
fn refuses_an_older_fence(store: &mut Opened, key: ExecutionKey, older: i64) {
    let newest = store.fence;
    let before = store.reader.read(key, 0, 100).unwrap();
    let answers =
        commit(store, vec![append(key, transition(10, 1), older), create(new_execution("late", "", "", 200), older)]);
    let refused = Refused::Fenced { shard: 7, yours: older, newest };
    assert_eq!(answers, vec![Err(refused.clone()), Err(refused)]);
    assert_eq!(store.reader.read(key, 0, 100).unwrap(), before);
}

fn continues_after_opening_again(store: &mut Opened, key: ExecutionKey) {
    let fence = store.fence;
    let answers = commit(store, vec![append(key, transition(11, 1), fence), append(key, transition(10, 1), fence)]);
    assert_eq!(answers, vec![Err(Refused::Gap { first: 11, last: 9 }), Ok(Done::Appended)]);
    let again = commit(store, vec![create(new_execution("again", "request", "hash", 300), fence)]);
    assert_eq!(again, vec![Err(Refused::RequestIdUsed { existing: key, same_request: true })]);
}
