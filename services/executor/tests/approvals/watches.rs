//! Watches of all executions: what comes first, what changes, what is forgotten, and where they resume.

use std::{collections::BTreeMap, time::Duration};

use belay_proto::v1::{self, execution::State, watch_executions_response::Content, watch_reset::Reason};
use belay_service_kit::cursor::{Cursor, Source, WatchIdentity};
use tonic::{Code, Status, Streaming};

use crate::support::*;

/// A client's knowledge of the executions, from the messages of its watches.
#[derive(Default)]
struct Dashboard {
    known: BTreeMap<String, State>,
    removed: Vec<(String, bool)>,
    /// The executions that came, in order.
    sent: Vec<String>,
    cursor: String,
    messages: usize,
    resets: Vec<Reason>,
    is_listed: bool,
}

impl Dashboard {
    fn take(&mut self, message: v1::WatchExecutionsResponse) {
        self.messages += 1;
        if !message.cursor.is_empty() {
            self.cursor = message.cursor;
        }
        match message.content.expect("a message has content") {
            Content::Execution(execution) => {
                self.sent.push(execution.name.clone());
                self.known.insert(execution.name.clone(), execution.state());
            }
            Content::Removed(removed) => {
                self.known.remove(&removed.name);
                self.removed.push((removed.name, removed.deleted));
            }
            Content::Listed(_) => self.is_listed = true,
            Content::Reset(reset) => {
                self.resets.push(reset.reason());
                self.known.clear();
            }
            Content::Heartbeat(_) => {}
        }
    }

    /// Takes messages until this is so.
    async fn until(&mut self, messages: &mut Messages, what: &str, is: impl Fn(&Self) -> bool) {
        let taking = async {
            while !is(self) {
                self.take(messages.message().await.unwrap().expect("the watch goes on"));
            }
        };
        let taken = tokio::time::timeout(Duration::from_secs(60), taking).await;
        assert!(taken.is_ok(), "{what}: {:?}", self.known);
    }

    fn is(&self, name: &str, state: State) -> bool {
        self.known.get(name) == Some(&state)
    }
}

type Messages = Streaming<v1::WatchExecutionsResponse>;

async fn watch_as(executor: &Executor, request: v1::WatchExecutionsRequest) -> Result<Messages, Status> {
    executor.client.clone().watch_executions(request).await.map(tonic::Response::into_inner)
}

async fn watch(executor: &Executor, filter: &str, cursor: &str) -> Messages {
    let heartbeat_interval = Some(pbjson_types::Duration { seconds: 0, nanos: 100_000_000 });
    let (parent, filter, cursor) = ("namespaces/-".to_owned(), filter.to_owned(), cursor.to_owned());
    watch_as(executor, v1::WatchExecutionsRequest { parent, filter, cursor, heartbeat_interval, ..Default::default() })
        .await
        .unwrap()
}

async fn delete(executor: &Executor, name: &str) {
    let request = v1::DeleteExecutionRequest { name: name.to_owned(), ..Default::default() };
    executor.client.clone().delete_execution(request).await.unwrap();
}

// S2-FR-053: every execution comes first, then what changes, and each deletion.
#[tokio::test]
async fn a_dashboard_follows_all_executions() {
    let world = World::new().await;
    let executor = world.executor().await;
    let ended = executor.run("a").await;
    executor.end(&ended).await;
    let waiting = executor.run("a: effect").await;
    executor.until_awaiting_approval(&waiting).await;

    let (mut board, mut messages) = (Dashboard::default(), watch(&executor, "", "").await);
    board.until(&mut messages, "the list", |board| board.is_listed).await;
    assert_eq!((board.known.len(), board.sent.len()), (2, 2), "each once");
    assert!(board.is(&ended, State::Completed) && board.is(&waiting, State::AwaitingApproval), "{:?}", board.known);

    let later = executor.run("a").await;
    board.until(&mut messages, "one that is started later", |board| board.is(&later, State::Completed)).await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    board.until(&mut messages, "its end", |board| board.is(&waiting, State::Completed)).await;
    assert_eq!(board.removed, []);
    delete(&executor, &ended).await;
    board.until(&mut messages, "the deletion", |board| !board.removed.is_empty()).await;
    assert_eq!(board.removed, [(ended, true)]);

    // The heartbeats tell the place; nothing else comes while nothing changes.
    let (before, cursor) = (board.messages, board.cursor.clone());
    board.until(&mut messages, "a heartbeat", |board| board.messages > before && board.cursor != cursor).await;
    assert_eq!((board.known.len(), board.removed.len(), board.resets), (2, 1, vec![]));
}

// S2-FR-053: a watch resumes where it broke, also after a restart: only what changed comes, and what was deleted meanwhile is told.
#[tokio::test]
async fn a_watch_resumes_after_its_cursor() {
    let world = World::new().await;
    let executor = world.executor().await;
    let [kept, deleted] = [executor.run("a").await, executor.run("a").await];
    executor.end(&kept).await;
    executor.end(&deleted).await;
    let waiting = executor.run("a: effect").await;
    executor.until_awaiting_approval(&waiting).await;
    let (mut board, mut messages) = (Dashboard::default(), watch(&executor, "", "").await);
    board.until(&mut messages, "the list", |board| board.is_listed).await;
    drop(messages);

    let started = executor.run("a").await;
    executor.end(&started).await;
    let mut messages = watch(&executor, "", &board.cursor).await;
    board.sent.clear();
    board.is_listed = false;
    board.until(&mut messages, "what changed", |board| board.is_listed).await;
    assert!(board.is(&started, State::Completed), "it has come before what there is is said to be listed");
    assert!(!board.sent.contains(&kept) && !board.sent.contains(&deleted), "what did not change comes again");
    drop(messages);

    delete(&executor, &deleted).await;
    executor.kill().await;
    let executor = world.executor().await;
    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    executor.end(&waiting).await;
    let mut messages = watch(&executor, "", &board.cursor).await;
    board
        .until(&mut messages, "the rest", |board| {
            board.is(&waiting, State::Completed) && board.removed == [(deleted.clone(), true)]
        })
        .await;
    assert_eq!(board.resets, []);
    assert!(board.is(&kept, State::Completed) && board.known.len() == 3, "{:?}", board.known);

    // A place that the journal does not have begins anew.
    let watched = WatchIdentity::executions("namespaces/-", "", false);
    let Cursor { source, place: [changes, time] } = watched.read::<2>(&board.cursor).unwrap().unwrap();
    for (foreign, reason) in [
        (Cursor { source: Source::new(&["another"]), place: [changes, time] }, Reason::Lost),
        (Cursor { source, place: [999_999_999, time] }, Reason::Lost),
        (Cursor { source, place: [changes, time - 601_000_000] }, Reason::TooOld),
    ] {
        let (mut anew, mut messages) = (Dashboard::default(), watch(&executor, "", &watched.write(&foreign)).await);
        anew.known.insert("forgotten".to_owned(), State::Running);
        anew.until(&mut messages, "the list", |board| board.is_listed).await;
        assert_eq!((anew.resets, &anew.known), (vec![reason], &board.known), "{foreign:?}");
    }
}

// S2-FR-053: an execution that leaves the filter is told once, also to a watch that resumes.
#[tokio::test]
async fn an_execution_that_leaves_the_filter_is_removed() {
    let world = World::new().await;
    let executor = world.executor().await;
    let filter = "state = AWAITING_APPROVAL";
    let waiting = executor.run("a: effect").await;
    executor.until_awaiting_approval(&waiting).await;
    let (mut board, mut messages) = (Dashboard::default(), watch(&executor, filter, "").await);
    board.until(&mut messages, "the list", |board| board.is_listed).await;
    assert_eq!(board.known, [(waiting.clone(), State::AwaitingApproval)].into());
    let (mut other, cursor) = (Dashboard::default(), board.cursor.clone());
    // One that never matches is never told about.
    let never = executor.run("b").await;
    executor.end(&never).await;

    let approval = world.gate.pending_approval("a").await;
    world.gate.approve(&approval.name);
    board.until(&mut messages, "its leaving", |board| board.known.is_empty()).await;
    executor.end(&waiting).await;
    let after_all = executor.run("c: effect").await;
    board.until(&mut messages, "another that waits", |board| board.is(&after_all, State::AwaitingApproval)).await;
    assert_eq!(board.removed, [(waiting.clone(), false)]);

    let mut messages = watch(&executor, filter, &cursor).await;
    other.until(&mut messages, "another that waits", |board| board.is(&after_all, State::AwaitingApproval)).await;
    assert!(other.removed.contains(&(waiting, false)), "{:?}", other.removed);
}

// B-22, S2-NFR-003: a watcher that does not read holds up nothing, and gets the last state of each execution when it reads.
#[tokio::test]
async fn a_watcher_that_reads_late_gets_the_last_states() {
    let world = World::new().await;
    let executor = world.executor().await;
    let mut messages = watch(&executor, "", "").await;
    let mut names = Vec::new();
    for _ in 0..100 {
        names.push(executor.run("a; b after a").await);
    }
    for name in &names {
        executor.end(name).await;
    }
    let mut board = Dashboard::default();
    let all = |board: &Dashboard| names.iter().all(|name| board.is(name, State::Completed));
    board.until(&mut messages, "all ends", all).await;
    assert_eq!(board.known.len(), 100);
}

#[tokio::test]
async fn a_watch_of_executions_that_is_asked_for_wrongly_is_refused_by_field() {
    let world = World::new().await;
    let executor = world.executor().await;
    let (mut board, mut messages) = (Dashboard::default(), watch(&executor, "", "").await);
    board.until(&mut messages, "the list", |board| board.is_listed).await;
    let right = v1::WatchExecutionsRequest { parent: "namespaces/-".into(), ..Default::default() };
    for (request, field) in [
        (v1::WatchExecutionsRequest { parent: String::new(), ..right.clone() }, "parent: "),
        (v1::WatchExecutionsRequest { parent: "namespaces/N".into(), ..right.clone() }, "parent: "),
        (v1::WatchExecutionsRequest { filter: "state".into(), ..right.clone() }, "filter: "),
        (v1::WatchExecutionsRequest { cursor: "soon".into(), ..right.clone() }, "cursor: "),
        // Of a watch with another filter.
        (v1::WatchExecutionsRequest { cursor: board.cursor, filter: "id = x".into(), ..right.clone() }, "cursor: "),
        (
            v1::WatchExecutionsRequest { heartbeat_interval: Some(Default::default()), ..right.clone() },
            "heartbeat_interval: ",
        ),
    ] {
        let refused = watch_as(&executor, request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().starts_with(field), "{refused}");
    }
}
