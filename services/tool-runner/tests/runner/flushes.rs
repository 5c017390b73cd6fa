//! The number of flushes per call that changes files, and which rows stay until the disk has the rest.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use belay_proto::{runner_v1, v1::tool_call::State};
use belay_tool_runner::{HostDirectories, StagedEffect, WorkspaceDirectory};
use belay_workspace::{Call, CommitError, OpenError, Order, Seam};
use rusqlite::Connection;
use serde_json::json;

use crate::{hooks::*, support::*};

/// A disk that preserves the order of changes, counts syncs, and can fail them.
#[derive(Default)]
struct Counts {
    syncs: AtomicUsize,
    is_lost: AtomicBool,
}

impl Seam for Counts {
    fn alive(&self, call: &Call<'_>) -> bool {
        self.syncs.fetch_add(usize::from(call.name.contains("sync")), Ordering::SeqCst);
        !self.is_lost.load(Ordering::SeqCst)
    }

    fn order(&self, _: Order) -> Order {
        Order::Kept
    }
}

#[derive(Clone, Default)]
struct CountingDirectories(Arc<Counts>);

impl Hooks for CountingDirectories {
    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn WorkspaceDirectory>, OpenError> {
        open_on(path, forbidden, self.0.clone())
    }
}

/// Applies effects only while the power is on.
#[derive(Clone, Default)]
struct PowerSwitch(Arc<AtomicBool>);

impl PowerSwitch {
    fn is_off(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

impl Hooks for PowerSwitch {
    fn check(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        if self.is_off() { Ok(()) } else { place.check(staged) }
    }

    fn apply(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        if self.is_off() { Ok(()) } else { place.apply(staged) }
    }

    fn finish(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        if self.is_off() { Ok(()) } else { place.finish(staged) }
    }
}

/// The calls with a row in the ledger.
fn rows(bench: &Bench) -> Vec<String> {
    let ledger = Connection::open(bench.path().join("state/ledger.db")).unwrap();
    let mut rows = ledger.prepare("SELECT name FROM call ORDER BY name").unwrap();
    let names = rows.query_map([], |row| row.get::<_, String>(0)).unwrap();
    names.map(|name| name.unwrap().split('/').nth(5).unwrap().to_owned()).collect()
}

/// S2-NFR-005: one sync of the file and one of the ledger for each call that writes one file, acknowledged or not.
#[tokio::test]
async fn a_call_that_writes_a_file_costs_two_flushes() {
    const CALLS: usize = 20;
    let mut bench = Bench::new();
    let counted = CountingDirectories::default();
    bench.directories = Arc::new(HookedDirectories(counted.clone()));
    let runner = bench.start(FREE).await;
    runner.run("first", CHANGE, json!([["write", "first", "x"]])).await;
    runner.acknowledge("first").await;
    let now = || (counted.0.syncs.load(Ordering::SeqCst), bench.ledger_commits());
    let before = now();
    for n in 0..CALLS {
        let call = format!("c{n}");
        let end = runner.run(&call, CHANGE, json!([["write", format!("{n}.txt"), n.to_string()]])).await;
        assert_eq!(state(&end), State::Completed);
        runner.acknowledge(&call).await;
    }
    let (syncs, commits) = now();
    assert!((CALLS..=CALLS + 1).contains(&(syncs - before.0)), "{} syncs", syncs - before.0);
    // Deletes wait for at most five seconds, which a slow machine may take.
    assert!((CALLS..=CALLS + 2).contains(&(commits - before.1)), "{} commits", commits - before.1);
    assert!(rows(&bench).len() <= 3, "{:?}", rows(&bench));
    runner.stop().await;
    assert_eq!(rows(&bench), Vec::<String>::new());
    let left = std::fs::read_dir(bench.workspace().join(".belay/commits")).unwrap().count();
    assert_eq!(left, 0, "commits are left over");
}

/// S2-NFR-005: an acknowledged row stays until its effect is synced, and is deleted with the next commit after that.
#[tokio::test]
async fn a_row_stays_until_its_effect_is_synced() {
    let mut bench = Bench::new();
    bench.directories = Arc::new(HookedDirectories(CountingDirectories::default()));
    let runner = bench.start(FREE).await;
    runner.run("a", CHANGE, json!([["write", "a", "x"]])).await;
    runner.acknowledge("a").await;
    runner.run("b", KEEP, json!([])).await;
    assert_eq!(rows(&bench), ["a", "b"]);
    runner.acknowledge("b").await;
    runner.run("c", CHANGE, json!([["remove", "a"]])).await;
    assert_eq!(rows(&bench), ["c"], "one sync covers both");
    runner.acknowledge("c").await;
    runner.stop().await;
    assert_eq!(rows(&bench), Vec::<String>::new());
}

/// S2-NFR-005: while its row is there because of that, the call does not run again, not even for an executor that has lost the acknowledgement; and
/// a deleted execution is not forgotten.
#[tokio::test]
async fn a_call_whose_effect_is_not_synced_is_neither_made_again_nor_forgotten() {
    let mut bench = Bench::new();
    let counted = CountingDirectories::default();
    bench.directories = Arc::new(HookedDirectories(counted.clone()));
    let runner = bench.start(FREE).await;
    let todo = json!([["append", "a", "x"]]);
    runner.run("a", CHANGE, todo.clone()).await;
    runner.acknowledge("a").await;
    let newer = Some(runner_v1::Fence { shard: 0, token: 1 });
    let again = runner_v1::CallToolRequest { fence: newer, ..runner.request("a", CHANGE, todo) };
    assert_eq!(refusal(&runner.call(again).await.unwrap_err()), "CALL_ACKNOWLEDGED");
    assert_eq!((bench.text("a").as_str(), rows(&bench)), ("x", vec!["a".to_owned()]));

    bench.cleared().await;
    counted.0.is_lost.store(true, Ordering::SeqCst);
    let execution =
        runner_v1::DeletedExecution { name: "namespaces/default/executions/e".into(), fence: newer, made_folder: None };
    let request = runner_v1::ForgetExecutionsRequest { executions: vec![execution] };
    let done = runner.client.clone().forget_executions(request).await.unwrap().into_inner();
    assert_eq!((done.forgotten, rows(&bench)), (Vec::new(), vec!["a".to_owned()]));
    runner.stop().await;
}

/// S2-NFR-005: after a failed sync the row stays, and the next start redoes the effect.
#[tokio::test]
async fn a_row_stays_when_its_workspace_cannot_be_synced() {
    let mut bench = Bench::new();
    let counted = CountingDirectories::default();
    bench.directories = Arc::new(HookedDirectories(counted.clone()));
    let runner = bench.start(FREE).await;
    runner.run("a", CHANGE, json!([["write", "a", "x"]])).await;
    bench.cleared().await;
    runner.acknowledge("a").await;
    counted.0.is_lost.store(true, Ordering::SeqCst);
    runner.stop().await;
    assert_eq!(rows(&bench), ["a"]);
    bench.directories = Arc::new(HostDirectories);
    let runner = bench.start(FREE).await;
    assert_eq!(state(&runner.get("a").await.unwrap()), State::Completed);
    runner.acknowledge("a").await;
    runner.stop().await;
    assert_eq!((bench.text("a").as_str(), rows(&bench)), ("x", Vec::new()));
}

/// S2-NFR-005, B-01: acknowledged effects that a power failure undid are redone at the next start in the order of their commits: each is
/// based on the one before.
#[tokio::test]
async fn effects_lost_in_a_power_failure_are_redone_in_order() {
    let mut bench = Bench::new();
    let power = PowerSwitch::default();
    bench.directories = Arc::new(HookedDirectories(power.clone()));
    bench.put("f", "1");
    let runner = bench.start(ASK).await;
    let commit = async |call: &str, held: &runner_v1::ToolCall| {
        let end = runner.commit(call, bench.sign(&bench.grant(held))).await.unwrap();
        assert_eq!(state(&end), State::Completed);
        runner.acknowledge(call).await;
    };
    let waits = runner.run("a", CHANGE, json!([["write", "f", "3"]])).await;
    let away = runner.run("b", CHANGE, json!([["write", "f", "2"]])).await;
    commit("b", &away).await;
    let back = runner.run("c", CHANGE, json!([["write", "f", "1"]])).await;
    power.0.store(true, Ordering::SeqCst);
    commit("c", &back).await;
    commit("a", &waits).await;
    assert_eq!(bench.text("f"), "2");
    runner.lose().await;
    bench.directories = Arc::new(HostDirectories);
    let runner = bench.start(ASK).await;
    assert_eq!(bench.text("f"), "3");
    for call in ["a", "c"] {
        assert_eq!(state(&runner.get(call).await.unwrap()), State::Completed, "{call}");
    }
    for call in ["a", "b", "c"] {
        runner.acknowledge(call).await;
    }
    runner.stop().await;
    assert_eq!(rows(&bench), Vec::<String>::new());
}

/// An acknowledgement does not wait for a write: it goes with the next commit.
#[tokio::test]
async fn an_acknowledgement_has_no_commit_of_its_own() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    runner.run("a", KEEP, json!([])).await;
    let before = bench.ledger_commits();
    runner.acknowledge("a").await;
    assert_eq!(refusal(&runner.get("a").await.unwrap_err()), "CALL_NOT_FOUND");
    assert_eq!(refusal(&runner.call(runner.request("a", KEEP, json!([]))).await.unwrap_err()), "CALL_ACKNOWLEDGED");
    assert_eq!(bench.ledger_commits(), before);
    runner.run("b", KEEP, json!([])).await;
    assert_eq!((bench.ledger_commits() - before, rows(&bench)), (1, vec!["b".to_owned()]));
}

/// B-01: a MANUAL call that failed before it started has ended for good; no restart makes its outcome unknown.
#[tokio::test]
async fn a_manual_call_that_did_not_start_stays_ended() {
    let mut bench = Bench::new();
    bench.directories = Arc::new(HookedDirectories(CountingDirectories::default()));
    let runner = bench.start(FREE).await;
    let workspace = bench.workspace();
    let mut request = runner.request("a", REACH, json!([]));
    request.workspace = workspace.join("never").to_str().unwrap().to_owned();
    let end = runner.call(request.clone()).await.unwrap();
    assert_eq!((state(&end), bench.signals.runs()), (State::Failed, 0));
    runner.lose().await;
    let runner = bench.start(FREE).await;
    assert_eq!(runner.call(request).await.unwrap(), end);
    assert_eq!(bench.signals.runs(), 0);
}

/// A command that could not be started because others have used up what it needs has had no effect, also outside of the workspace: the executor makes the
/// call again, and the step uses up no attempt.
#[tokio::test]
async fn a_manual_call_whose_command_could_not_be_started_now_is_made_again() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    for (name, tool, ends) in [("a", SEND, State::Cancelled), ("b", REACH, State::Cancelled)] {
        let mut request = runner.request(name, tool, json!([["unstarted"]]));
        request.workspace = bench.workspace().to_str().unwrap().to_owned();
        let end = runner.call(request).await.unwrap();
        assert_eq!((state(&end), end.failure.as_ref().unwrap().reason.as_str()), (ends, "SANDBOX_UNAVAILABLE"));
    }
    let failed = runner.call(runner.request("c", SEND, json!([["fail", "disk"]]))).await.unwrap();
    assert_eq!(state(&failed), State::Failed, "one that ran and failed is not");
}
