//! Use of the budgets of namespaces.

use super::common::{append, commit, create, created, delete, ended, new_execution, transition, update};
use crate::{
    ExecutionKey, JournalWriter, OpenedStore, Refused, StoreWrite, StoreWriteOutcome, UsageAmounts, UsageChange,
    UsageLimit, UsageRow,
};

const TEAM: &str = "team";

fn amounts(calls: u64, output_bytes: u64) -> UsageAmounts {
    UsageAmounts { calls, output_bytes, ..UsageAmounts::default() }
}

fn change(start: i64) -> UsageChange {
    UsageChange {
        namespace: TEAM.into(),
        start,
        end: start + 10,
        held: amounts(0, 0),
        released: amounts(0, 0),
        used: amounts(0, 0),
        limit: UsageLimit { calls: Some(2), output_bytes: Some(100), ..UsageLimit::default() },
    }
}

fn hold(start: i64, calls: u64, output_bytes: u64) -> UsageChange {
    UsageChange { held: amounts(calls, output_bytes), ..change(start) }
}

fn settle(start: i64, released: UsageAmounts, used: UsageAmounts) -> UsageChange {
    UsageChange { released, used, ..change(start) }
}

fn row(start: i64, used: UsageAmounts, held: UsageAmounts) -> UsageRow {
    UsageRow { start, end: start + 10, used, held }
}

/// The operation with these changes.
fn with(operation: StoreWrite, changes: Vec<UsageChange>) -> StoreWrite {
    match operation {
        StoreWrite::Append { key, transition, summary, seal_key, outbox, inbox, fence, .. } => StoreWrite::Append {
            key,
            transition,
            summary,
            seal_key,
            outbox,
            inbox,
            usage: changes,
            limits: Vec::new(),
            fence,
        },
        other => panic!("{other:?} changes no usage"),
    }
}

async fn rows<W: JournalWriter>(store: &OpenedStore<W>) -> Vec<UsageRow> {
    store.reader.usage(TEAM).await.unwrap()
}

/// Guarantee 14, B-35: the amounts change with their transitions, are never exceeded by what begins, and go when later windows begin.
pub(super) async fn adds_what_is_used<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let batch = ["uses", "uses-too"].map(|id| create(new_execution(id, "", "", 900), fence)).into();
    let answers = commit(store, batch).await;
    let [first, second] = [created(&answers[0]), created(&answers[1])];
    let next = |key: ExecutionKey, sequence, changes| with(append(key, transition(sequence, 1), fence), changes);
    let over = || Err(Refused::OverBudget { namespace: TEAM.into() });
    assert_eq!(rows(store).await, [], "nothing is used");

    let batch = vec![
        next(first, 3, vec![hold(100, 1, 60)]),
        next(second, 3, vec![hold(100, 1, 60)]),
        next(second, 3, vec![hold(100, 1, 40)]),
        next(first, 9, vec![settle(100, amounts(1, 60), amounts(1, 9))]),
        next(first, 4, vec![hold(100, 1, 0)]),
    ];
    let refused_gap = Err(Refused::Gap { first: 9, last: 3 });
    let answers = commit(store, batch).await;
    assert_eq!(
        answers,
        [Ok(StoreWriteOutcome::Appended), over(), Ok(StoreWriteOutcome::Appended), refused_gap, over()]
    );
    assert_eq!(
        rows(store).await,
        [row(100, amounts(0, 0), amounts(2, 100))],
        "and a refused transition changes nothing"
    );
    assert_eq!(store.reader.read(first, 0, 10).await.unwrap().len(), 2, "its events are not there");
    assert_eq!(store.reader.usage("default").await.unwrap(), [], "the rows of a namespace are its own");

    // More than was held is counted, and then nothing begins. A transition that ends calls and begins one is judged as a whole.
    let ends = settle(100, amounts(1, 60), amounts(1, 70));
    let both = UsageChange { held: amounts(1, 30), ..settle(100, amounts(1, 40), amounts(0, 0)) };
    let batch = vec![
        next(first, 4, vec![ends]),
        next(second, 4, vec![both.clone()]),
        next(second, 5, vec![UsageChange { held: amounts(2, 30), ..both }]),
    ];
    assert_eq!(commit(store, batch).await, [Ok(StoreWriteOutcome::Appended), Ok(StoreWriteOutcome::Appended), over()]);
    assert_eq!(rows(store).await, [row(100, amounts(1, 70), amounts(1, 30))]);
    let overrun = vec![next(second, 5, vec![settle(100, amounts(1, 30), amounts(1, 500))])];
    assert_eq!(commit(store, overrun).await, [Ok(StoreWriteOutcome::Appended)]);
    assert_eq!(rows(store).await, [row(100, amounts(2, 570), amounts(0, 0))]);

    // A limit that was raised, or is there no more.
    let raised = UsageLimit { calls: Some(3), output_bytes: None, ..UsageLimit::default() };
    let batch = vec![
        next(first, 5, vec![UsageChange { limit: raised, ..hold(100, 1, 9) }]),
        next(first, 6, vec![hold(110, 1, 9)]),
        next(first, 7, vec![settle(100, amounts(1, 9), amounts(1, 1)), hold(110, 1, 1)]),
    ];
    assert_eq!(
        commit(store, batch).await,
        [Ok(StoreWriteOutcome::Appended), Ok(StoreWriteOutcome::Appended), Ok(StoreWriteOutcome::Appended)]
    );
    let [old, newer] = [row(100, amounts(3, 571), amounts(0, 0)), row(110, amounts(0, 0), amounts(2, 10))];
    assert_eq!(rows(store).await, [old, newer], "what is in flight when a window ends is counted in that window");
    let month = UsageChange { end: 200, ..hold(100, 1, 1) };
    assert_eq!(commit(store, vec![next(first, 8, vec![month])]).await, [Ok(StoreWriteOutcome::Appended)]);
    let month = UsageRow { end: 200, ..row(100, amounts(0, 0), amounts(1, 1)) };
    assert_eq!(rows(store).await, [old, month, newer], "a window of another length is one of its own");
    let batch = vec![
        next(first, 9, vec![hold(130, 1, 1)]),
        next(first, 10, vec![settle(100, amounts(1, 1), amounts(1, 1))]),
        next(first, 11, vec![settle(90, amounts(1, 1), amounts(1, 1))]),
    ];
    assert!(commit(store, batch).await.iter().all(Result::is_ok));
    let last = row(130, amounts(0, 0), amounts(1, 1));
    assert_eq!(rows(store).await, [month, newer, last], "of those that have ended the last one is kept");
}

/// The amounts that [`adds_what_is_used`] has left are there after opening again. The deletion of an execution gives nothing back.
pub(super) async fn has_what_is_left<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let left = rows(store).await;
    assert_eq!(left.last(), Some(&row(130, amounts(0, 0), amounts(1, 1))), "opened again");
    let (found, fence) = (store.reader.find("default", "uses-too").await.unwrap().unwrap(), store.fence);
    let batch = vec![update(found.key, 6, ended(950), fence), delete(found.key, "", fence)];
    assert_eq!(commit(store, batch).await, [Ok(StoreWriteOutcome::Appended), Ok(StoreWriteOutcome::Deleted)]);
    assert_eq!(rows(store).await, left);
}
