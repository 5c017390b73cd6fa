//! Executions that are created: their names, the steps that they are of, and the requests that started them.

use super::common::{commit, create, created, ended, new_execution, start_request_of, summary, update};
use crate::{
    ExecutionKey, JournalWriter, NewExecution, OpenedStore, ParentStep, Refused, StartRequest, StoreWriteOutcome,
};

pub(super) async fn creates_and_finds<W: JournalWriter>(store: &mut OpenedStore<W>) -> ExecutionKey {
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

/// A store keeps the step whose plan an execution carries out.
pub(super) async fn keeps_parents<W: JournalWriter>(store: &mut OpenedStore<W>, parent: ExecutionKey) {
    let parent = ParentStep { execution: parent, execution_id: "one".into(), step_id: "step".into() };
    let child = NewExecution { parent: Some(parent), ..new_execution("child", "", "", 11) };
    let fence = store.fence;
    let key = created(&commit(store, vec![create(child.clone(), fence)]).await[0]);
    assert_eq!(store.reader.get(key).await.unwrap().unwrap().execution, child);
    assert_eq!(commit(store, vec![update(key, 3, ended(12), fence)]).await, vec![Ok(StoreWriteOutcome::Appended)]);
    let row = store.reader.find("default", "child").await.unwrap().unwrap();
    assert_eq!((row.execution, row.summary), (child, ended(12)), "a summary changes nothing of it");
}

/// B-15: starting twice with one request id yields one execution.
pub(super) async fn refuses_what_exists<W: JournalWriter>(store: &mut OpenedStore<W>, existing: ExecutionKey) {
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
