//! Commits to a store that loses answers.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use belay_journal::{
    Change, Cursor, DeleteRequest, ExecutionKey, ExecutionSummary, Fence, NewExecution, OpenedStore, Snapshot,
    Transition,
};
use belay_journal_memory::{LostAnswers, Memory};
use belay_redaction::{MasterKey, Redactor};
use tokio::task::JoinSet;

use super::*;
use crate::store::secrets::Sealer;

const TRANSITIONS: u64 = 6;
const EXECUTIONS: u64 = 3;

fn transition(first_sequence: u64, shown: &str) -> Transition {
    Transition { first_sequence, count: 1, version: 1, shown: shown.into(), sealed: None, facts: None }
}

fn create(id: &str, request_id: &str, shown: &str, fence: Fence) -> StoreWrite {
    let execution = NewExecution {
        namespace: "n".into(),
        id: id.into(),
        shard: fence.shard,
        created_at: 1,
        plan_id: String::new(),
        labels: BTreeMap::new(),
        principal: String::new(),
        request_id: request_id.into(),
        request_hash: "hash".into(),
        parent: None,
    };
    let summary = ExecutionSummary::default();
    StoreWrite::Create {
        execution,
        transition: transition(1, shown),
        summary,
        seal_key: None,
        outbox: Vec::new(),
        inbox: Default::default(),
        folder: None,
        limits: Vec::new(),
        fence,
    }
}

fn append(key: ExecutionKey, transition: Transition, fence: Fence) -> StoreWrite {
    let ended = transition.first_sequence == TRANSITIONS;
    let summary = ended.then(|| ExecutionSummary { ended, ended_at: Some(1), ..ExecutionSummary::default() });
    StoreWrite::Append {
        key,
        transition,
        summary,
        seal_key: None,
        outbox: Vec::new(),
        inbox: Default::default(),
        usage: Vec::new(),
        limits: Vec::new(),
        fence,
    }
}

fn follower(reader: &Arc<dyn JournalReader>) -> Arc<Follower> {
    let sealer = Sealer { redactor: Redactor::new(), master_key: MasterKey::new([7; 32]) };
    Arc::new(Follower::of(Arc::clone(reader), Arc::new(sealer)))
}

/// Two who want the same: each request to create, each transition and each deletion. What they are told is what they see of the store.
///
/// Returns what was told of each event of an execution: what it is.
async fn contend(commits: Commits, number: u64, fence: Fence) -> (ExecutionKey, Vec<String>) {
    let (id, request) = (format!("e{number}"), format!("r{number}"));
    let both = |operation: [StoreWrite; 2]| {
        let [left, right] = operation.map(|operation| commits.commit(operation.into()));
        async { <[_; 2]>::from(tokio::join!(left, right)).map(|answer| answer.expect("the store does not fail")) }
    };
    let mut told = Vec::new();
    let answers = both(["a", "b"].map(|who| create(&id, &request, &format!("{number}/1/{who}"), fence))).await;
    let (key, who) = match answers {
        [Ok(StoreWriteOutcome::Created(key)), Err(Refused::RequestIdUsed { existing, same_request: true })]
            if key == existing =>
        {
            (key, "a")
        }
        [Err(Refused::RequestIdUsed { existing, same_request: true }), Ok(StoreWriteOutcome::Created(key))]
            if key == existing =>
        {
            (key, "b")
        }
        other => panic!("one of two requests creates {id}: {other:?}"),
    };
    told.push(format!("{number}/1/{who}"));
    for sequence in 2..=TRANSITIONS {
        let shown = |who: &str| format!("{number}/{sequence}/{who}");
        let answers = both(["a", "b"].map(|who| append(key, transition(sequence, &shown(who)), fence))).await;
        let is_gap = |refused: &Refused| *refused == Refused::Gap { first: sequence, last: sequence };
        told.push(match &answers {
            [Ok(StoreWriteOutcome::Appended), Err(refused)] if is_gap(refused) => shown("a"),
            [Err(refused), Ok(StoreWriteOutcome::Appended)] if is_gap(refused) => shown("b"),
            other => panic!("one of two appends to {id} at {sequence}: {other:?}"),
        });
        let snapshot = Snapshot { sequence, version: 1, content: Vec::new(), is_sealed: false };
        let kept = commits.commit(StoreWrite::KeepSnapshot { key, snapshot, fence }.into()).await;
        assert_eq!(kept.unwrap(), Ok(StoreWriteOutcome::Kept));
    }
    if number.is_multiple_of(2) {
        return (key, told);
    }
    let delete = |deleted_at| StoreWrite::Delete { key, deleted_at, request: DeleteRequest::default(), fence };
    match both([delete(1), delete(2)]).await {
        [Ok(StoreWriteOutcome::Deleted), Err(Refused::Missing(_))]
        | [Err(Refused::Missing(_)), Ok(StoreWriteOutcome::Deleted)] => {}
        other => panic!("one of two deletes {id}: {other:?}"),
    }
    for max_transitions in [2, 100] {
        let erased = commits.commit(StoreWrite::Erase { key, max_transitions, fence }.into()).await.unwrap();
        // Repeated erasing may erase more.
        assert!(matches!(erased, Ok(StoreWriteOutcome::Erased { .. })), "{erased:?}");
    }
    let closed = commits.commit(StoreWrite::CloseDeletion { key, reusable_at: 9, fence }.into()).await;
    assert_eq!(closed.unwrap(), Ok(StoreWriteOutcome::Closed));
    (key, Vec::new())
}

/// An execution is neither doubled nor lost, nor is anything of it, wherever answers are lost: before a batch is committed, after that, or while it
/// is on its way. B-08, B-15.
#[tokio::test(start_paused = true)]
async fn an_operation_of_unknown_outcome_is_neither_lost_nor_repeated() {
    for seed in 0..200 {
        let memory = Memory::new("a store");
        let OpenedStore { writer, reader, fence, .. } = memory.open();
        let max_batch = [1, 2, 5, 100][usize::try_from(seed % 4).unwrap()];
        let commits = start(LostAnswers::new(writer, seed, 40), Arc::clone(&reader), follower(&reader), max_batch);
        let fence = Fence { shard: 1, token: fence };
        let mut running = JoinSet::new();
        for number in 0..EXECUTIONS {
            running.spawn(contend(commits.clone(), number, fence));
        }
        let told = running.join_all().await;
        let mut followed = reader.changes(Cursor::START, 1000).await.unwrap().changes;
        for (key, told) in told {
            let stored = reader.read(key, 0, 1000).await.unwrap_or_default();
            let shown = stored.iter().map(|transition| String::from_utf8(transition.shown.clone()).unwrap());
            assert_eq!(shown.collect::<Vec<_>>(), told, "seed {seed}");
            let of_this: Vec<Change> = followed.extract_if(.., |change| change.key == key).collect();
            assert_eq!(of_this.len(), told.len(), "seed {seed}");
        }
        assert_eq!(followed, [], "seed {seed}: nobody was told of these");
    }
}

/// Commits as long as it is left, and then loses every answer.
struct Silent<W> {
    writer: W,
    attempts: Arc<AtomicUsize>,
}

impl<W: JournalWriter> JournalWriter for Silent<W> {
    fn blocks(&self) -> bool {
        false
    }

    async fn commit(&mut self, _: &[StoreWrite]) -> BatchOutcome {
        self.attempts.fetch_add(1, Ordering::SeqCst);
        // A batch of nothing, as the store may see it.
        self.writer.commit(&[]).await?;
        Err(StoreError::OutcomeUnknown("nobody answers".into()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_never_answers_fails() {
    let OpenedStore { writer, reader, fence, .. } = Memory::new("a store").open();
    let attempts = Arc::new(AtomicUsize::new(0));
    let follower = follower(&reader);
    let commits = start(Silent { writer, attempts: Arc::clone(&attempts) }, reader, follower, 10);
    let started = tokio::time::Instant::now();
    let failed = commits.commit(create("e", "", "1", Fence { shard: 1, token: fence }).into()).await.unwrap_err();
    let BatchError::Failed(error) = failed else { panic!("the writer goes on") };
    assert!(matches!(&*error, StoreError::OutcomeUnknown(why) if why == "nobody answers"), "{error}");
    assert_eq!(attempts.load(Ordering::SeqCst), 1 + MAX_ATTEMPTS as usize);
    assert!((30..50).contains(&started.elapsed().as_secs()), "{:?}", started.elapsed());
}

/// Another owner has taken over while the outcome was unknown: what was not committed before is refused.
#[tokio::test(start_paused = true)]
async fn what_was_not_committed_before_another_owner_is_refused() {
    for seed in 0..40 {
        let memory = Memory::new("a store");
        let OpenedStore { writer, reader, fence: old, .. } = memory.open();
        let fence = Fence { shard: 1, token: old };
        let lossy = start(LostAnswers::new(writer, seed, 1000), Arc::clone(&reader), follower(&reader), 10);
        let created = tokio::spawn(async move { lossy.commit(create("e", "", "1", fence).into()).await.unwrap() });
        tokio::time::sleep(Duration::from_millis(5)).await;
        let newest = memory.open().fence;
        let row = async || reader.find("n", "e").await.unwrap();
        let was_there = row().await.is_some();
        match created.await.unwrap() {
            Ok(StoreWriteOutcome::Created(key)) => assert_eq!(row().await.map(|row| row.key), Some(key), "seed {seed}"),
            Err(refused) => {
                assert_eq!(refused, Refused::Fenced { shard: 1, yours: old, newest }, "seed {seed}");
                assert!(!was_there && row().await.is_none(), "seed {seed}");
            }
            Ok(other) => panic!("{other:?}"),
        }
    }
}
