//! Limits over executions.

use super::common::{append, commit, create, created, delete, ended, new_execution, transition, update};
use crate::{
    AwaitedLimit, ExecutionKey, Fence, JournalWriter, LimitBound, LimitChange, LimitClaim, OpenedStore, Refused,
    StoreWrite, StoreWriteOutcome, Transition,
};

fn at_once(key: &str, most: u32) -> LimitClaim {
    LimitClaim { key: key.into(), bound: LimitBound::AtOnce(most) }
}

fn rate(key: &str, starts: u32, window: i64) -> LimitClaim {
    LimitClaim { key: key.into(), bound: LimitBound::Rate { starts, window } }
}

fn request(claim: &LimitClaim) -> LimitChange {
    LimitChange::Request { claims: vec![claim.clone()] }
}

fn acquire(claim: &LimitClaim, at: i64) -> LimitChange {
    LimitChange::Acquire { claims: vec![claim.clone()], at }
}

/// The operation with these changes.
fn with(mut operation: StoreWrite, changes: Vec<LimitChange>) -> StoreWrite {
    match &mut operation {
        StoreWrite::Create { limits, .. } | StoreWrite::Append { limits, .. } => *limits = changes,
        other => panic!("{other:?} changes no limits"),
    }
    operation
}

fn next(transition: Transition, key: ExecutionKey, fence: i64, changes: Vec<LimitChange>) -> StoreWrite {
    with(append(key, transition, fence), changes)
}

async fn stands<W: JournalWriter>(
    store: &OpenedStore<W>,
    execution: ExecutionKey,
    claim: &LimitClaim,
    at: i64,
) -> (bool, Vec<ExecutionKey>, Vec<ExecutionKey>, Option<i64>) {
    let standing = store.reader.limit_standing("default", Some(execution), claim, at).await.unwrap();
    (standing.is_free, standing.holders, standing.ahead, standing.frees_at)
}

/// Guarantee 16: a limit is had in the order of the requests and never by more than may, also with several writers; a refused transition changes nothing.
pub(super) async fn keeps_the_order<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let deploy = at_once("deploy", 1);
    let full = || Err(Refused::LimitFull { key: "deploy".into() });
    let own = |id: &str| new_execution(id, &format!("limit-{id}"), "hash", 900);
    let start = |id: &str, changes| with(create(own(id), fence), changes);
    let both = || vec![request(&deploy), acquire(&deploy, 10)];
    // One that is refused is not there. A repeated request is told what it has started, also while the limit is full.
    let batch = vec![
        start("limit-a", both()),
        start("limit-b", both()),
        start("limit-b", vec![request(&deploy)]),
        start("limit-c", vec![request(&deploy)]),
        start("limit-a", both()),
    ];
    let answers = commit(store, batch).await;
    let (first, second, third) = (created(&answers[0]), created(&answers[2]), created(&answers[3]));
    assert_eq!(answers[1], full());
    assert_eq!(answers[4], Err(Refused::RequestIdUsed { existing: first, same_request: true }));
    assert_eq!(stands(store, third, &deploy, 10).await, (false, vec![first], vec![second], None));
    let new = store.reader.limit_standing("default", None, &deploy, 10).await.unwrap();
    assert_eq!(new.ahead, [second, third], "a new one comes after all that wait");
    let other = store.reader.limit_standing("team", None, &deploy, 10).await.unwrap();
    assert!(other.is_free && other.holders.is_empty(), "the limits of a namespace are its own");
    assert_eq!(store.reader.limits_held(first).await.unwrap(), ["deploy"]);
    assert_eq!(store.reader.limits_held(second).await.unwrap(), [""; 0]);
    let awaited = AwaitedLimit { namespace: "default".into(), key: "deploy".into(), next: second };
    assert_eq!(store.reader.awaited_limits(("", ""), 10).await.unwrap(), [awaited]);
    assert_eq!(store.reader.awaited_limits(("default", "deploy"), 10).await.unwrap(), []);

    // No other execution has its turn, and the turn comes with the end of the one that holds the limit.
    let batch = vec![
        next(transition(3, 1), third, fence, vec![acquire(&at_once("deploy", 9), 20)]),
        next(transition(3, 1), second, fence, vec![acquire(&deploy, 20)]),
        next(transition(3, 1), first, fence, vec![LimitChange::Release { at: 20 }]),
        next(transition(3, 1), third, fence, vec![acquire(&deploy, 20)]),
        next(transition(3, 1), second, fence, vec![acquire(&deploy, 20)]),
    ];
    let appended = || Ok(StoreWriteOutcome::Appended);
    assert_eq!(commit(store, batch).await, [full(), full(), appended(), full(), appended()]);
    assert_eq!(store.reader.read(third, 0, 10).await.unwrap().len(), 1, "the events that were refused are not there");
    assert_eq!(stands(store, third, &deploy, 20).await, (false, vec![second], Vec::new(), None));
    // One that does not wait any more gives its turn away, and asks again behind the others.
    let batch = vec![
        next(transition(4, 1), first, fence, vec![request(&deploy)]),
        next(transition(3, 1), third, fence, vec![LimitChange::Release { at: 30 }, request(&deploy)]),
    ];
    assert_eq!(commit(store, batch).await, [appended(), appended()]);
    assert_eq!(store.reader.next_in_limit("default", "deploy").await.unwrap(), Some(first));
    assert_eq!(store.reader.next_in_limit("default", "none").await.unwrap(), None);
}

/// Guarantee 16: a start counts in the window of its rate, also after the end and the deletion of its execution, and not beyond.
pub(super) async fn counts_starts<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let fence = store.fence;
    let hourly = rate("hourly", 2, 100);
    let start = |id: &str, at| {
        with(create(new_execution(id, "", "", 900), fence), vec![request(&hourly), acquire(&hourly, at)])
    };
    let batch = vec![start("rate-a", 1_000), start("rate-b", 1_040), start("rate-c", 1_099), start("rate-d", 1_100)];
    let answers = commit(store, batch).await;
    let [first, second] = [created(&answers[0]), created(&answers[1])];
    assert_eq!(answers[2], Err(Refused::LimitFull { key: "hourly".into() }));
    let fourth = created(&answers[3]);
    let batch = vec![
        with(update(first, 3, ended(500), fence), vec![LimitChange::Release { at: 1_105 }]),
        with(update(second, 3, ended(500), fence), vec![LimitChange::Release { at: 1_105 }]),
        delete(second, "", fence),
    ];
    assert!(commit(store, batch).await.iter().all(Result::is_ok));
    let new =
        async |store: &OpenedStore<W>, at| store.reader.limit_standing("default", None, &hourly, at).await.unwrap();
    let standing = new(store, 1_105).await;
    assert_eq!((standing.is_free, standing.holders, standing.frees_at), (false, vec![fourth], Some(1_140)));
    assert!(new(store, 1_140).await.is_free);

    // The clock was ahead.
    let ahead = vec![with(update(fourth, 3, ended(500), fence), vec![LimitChange::Release { at: 1_105 }])];
    assert!(commit(store, ahead).await.iter().all(Result::is_ok));
    assert_eq!(new(store, 1_000).await.frees_at, Some(1_140), "none of them is over yet");
    let reset = |token| StoreWrite::ResetLimitTimes { latest: 1_000, fence: Fence { shard: 0, token } };
    let answers = commit(store, vec![reset(fence - 1)]).await;
    assert!(matches!(answers[..], [Err(Refused::Fenced { .. })]), "an owner that was replaced: {answers:?}");
    assert_eq!(commit(store, vec![reset(fence)]).await, [Ok(StoreWriteOutcome::Changed)]);
    assert_eq!(new(store, 1_000).await.frees_at, Some(1_100), "they count from now on");
}

/// The entries that [`keeps_the_order`] has left are there after opening again.
pub(super) async fn has_what_is_left<W: JournalWriter>(store: &mut OpenedStore<W>) {
    let deploy = at_once("deploy", 1);
    let standing = store.reader.limit_standing("default", None, &deploy, 40).await.unwrap();
    assert_eq!((standing.is_free, standing.holders.len(), standing.ahead.len()), (false, 1, 2));
    assert_eq!(store.reader.next_in_limit("default", "deploy").await.unwrap(), standing.ahead.first().copied());
}
