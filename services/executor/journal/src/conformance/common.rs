//! Values that the parts of the suite write.

use std::collections::BTreeMap;

use crate::{
    DeleteRequest, ExecutionKey, ExecutionSummary, Fence, Folder, JournalWriter, NewExecution, OpenedStore, Refused,
    StartRequest, StoreWrite, StoreWriteOutcome, Transition,
};

pub(super) fn summary(state: i32) -> ExecutionSummary {
    ExecutionSummary { state, ..ExecutionSummary::default() }
}

pub(super) fn transition(first_sequence: u64, count: u32) -> Transition {
    let shown = format!("{first_sequence}+{count};").into_bytes();
    Transition {
        first_sequence,
        count,
        version: 1,
        shown,
        sealed: first_sequence.is_multiple_of(2).then(|| vec![7; 3]),
        facts: (first_sequence == 1).then(|| vec![9; 4]),
    }
}

/// Principal that starts the executions.
pub(super) const PRINCIPAL: &str = "somebody";

pub(super) fn new_execution(id: &str, request_id: &str, request_hash: &str, created_at: i64) -> NewExecution {
    NewExecution {
        namespace: "default".into(),
        id: id.into(),
        shard: 7,
        created_at,
        plan_id: "plan".into(),
        labels: BTreeMap::from([("id".into(), id.into())]),
        principal: PRINCIPAL.into(),
        request_id: request_id.into(),
        request_hash: request_hash.into(),
        parent: None,
    }
}

pub(super) fn start_request_of(id: &str, hash: &str, at: i64) -> StartRequest {
    let (namespace, principal) = ("default".into(), PRINCIPAL.into());
    StartRequest { namespace, principal, id: id.into(), hash: hash.into(), at }
}

pub(super) fn create(execution: NewExecution, fence: i64) -> StoreWrite {
    create_in(execution, None, fence)
}

pub(super) fn create_in(execution: NewExecution, folder: Option<Folder>, fence: i64) -> StoreWrite {
    let fence = Fence { shard: execution.shard, token: fence };
    StoreWrite::Create {
        execution,
        transition: transition(1, 2),
        summary: summary(2),
        seal_key: None,
        outbox: Vec::new(),
        inbox: Default::default(),
        folder,
        limits: Vec::new(),
        fence,
    }
}

pub(super) fn append(key: ExecutionKey, transition: Transition, fence: i64) -> StoreWrite {
    StoreWrite::Append {
        key,
        transition,
        summary: None,
        seal_key: None,
        outbox: Vec::new(),
        inbox: Default::default(),
        usage: Vec::new(),
        limits: Vec::new(),
        fence: Fence { shard: 7, token: fence },
    }
}

pub(super) async fn commit<W: JournalWriter>(
    store: &mut OpenedStore<W>,
    batch: Vec<StoreWrite>,
) -> Vec<Result<StoreWriteOutcome, Refused>> {
    let count = batch.len();
    let answers = store.writer.commit(&batch).await.expect("the batch is committed");
    assert_eq!(answers.len(), count, "every operation is answered");
    answers
}

pub(super) fn created(answer: &Result<StoreWriteOutcome, Refused>) -> ExecutionKey {
    match answer {
        Ok(StoreWriteOutcome::Created(key)) => *key,
        other => panic!("an execution is created, not {other:?}"),
    }
}

pub(super) fn update(key: ExecutionKey, first_sequence: u64, summary: ExecutionSummary, fence: i64) -> StoreWrite {
    let fence = Fence { shard: 7, token: fence };
    StoreWrite::Append {
        key,
        transition: transition(first_sequence, 1),
        summary: Some(summary),
        seal_key: None,
        outbox: Vec::new(),
        inbox: Default::default(),
        usage: Vec::new(),
        limits: Vec::new(),
        fence,
    }
}

pub(super) fn ended(ended_at: i64) -> ExecutionSummary {
    ExecutionSummary { state: 5, ended: true, ended_at: Some(ended_at), ..ExecutionSummary::default() }
}

pub(super) fn delete(key: ExecutionKey, request_id: &str, fence: i64) -> StoreWrite {
    let request = DeleteRequest { id: request_id.into(), hash: "hash".into() };
    StoreWrite::Delete { key, deleted_at: 600, request, fence: Fence { shard: 7, token: fence } }
}

pub(super) fn erase(key: ExecutionKey, max_transitions: usize, fence: i64) -> StoreWrite {
    StoreWrite::Erase { key, max_transitions, fence: Fence { shard: 7, token: fence } }
}

pub(super) fn close(key: ExecutionKey, reusable_at: i64, fence: i64) -> StoreWrite {
    StoreWrite::CloseDeletion { key, reusable_at, fence: Fence { shard: 7, token: fence } }
}
