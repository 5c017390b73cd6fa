//! The ledger fails at the worst moment: when a tool has done its work.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use belay_proto::{runner_v1, v1::tool_call::State};
use belay_sqlite::Location;
use belay_tool_runner::{StagedEffect, WorkspaceDirectory};
use belay_workspace::{CommitError, IoFailure};
use rusqlite::{Connection, params};
use serde_json::json;
use tonic::Code;

use crate::{hooks::*, support::*};

/// Every change needs approval before it runs, and not again after.
const FIRST: &str = "file_write: auto\nrules: [{id: first, on: intent, tools: [change], decide: prompt}]\n";

/// A ledger that no runner has open.
fn ledger(bench: &Bench) -> Connection {
    Connection::open(bench.path().join("state/ledger.db")).unwrap()
}

/// A bench whose ledger rejects the rows that match a condition.
async fn refusing(policy: &str, rows: &str) -> Bench {
    let bench = Bench::new();
    bench.start(policy).await.lose().await;
    for (trigger, event) in [("no_insert", "INSERT"), ("no_update", "UPDATE")] {
        let refuse = format!(
            "CREATE TRIGGER {trigger} BEFORE {event} ON call WHEN {rows} BEGIN SELECT RAISE(ABORT, 'the disk is full'); END"
        );
        ledger(&bench).execute_batch(&refuse).unwrap();
    }
    bench
}

fn repair(bench: &Bench) {
    ledger(bench).execute_batch("DROP TRIGGER no_insert; DROP TRIGGER no_update").unwrap();
}

/// Remembers the last effect that was to be applied.
#[derive(Clone, Default)]
struct Remembers(Arc<Mutex<Option<StagedEffect>>>);

impl Hooks for Remembers {
    fn check(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        *self.0.lock().unwrap() = Some(staged.clone());
        place.check(staged)
    }
}

/// Expects the error for a call whose outcome is in doubt.
async fn unavailable(runner: &Runner, request: runner_v1::CallToolRequest) {
    let refused = runner.call(request).await.expect_err("the outcome is in doubt");
    assert_eq!((refused.code(), refusal(&refused).as_str()), (Code::Unavailable, "LEDGER_UNAVAILABLE"), "{refused}");
}

/// B-01: a failed write of a commit is reported as such, and the runner starts nothing more. After a restart the truth is known: it did not
/// happen, and the call can run again.
#[tokio::test]
async fn a_commit_that_was_not_written_did_not_happen() {
    let bench = refusing(FREE, "NEW.staged IS NOT NULL").await;
    let todo = json!([["write", "a", "x"]]);
    let runner = bench.start(FREE).await;
    let failed = {
        let calls = Arc::clone(runner.calls.as_ref().unwrap());
        async move { calls.failed().await }
    };
    unavailable(&runner, runner.request("a", CHANGE, todo.clone())).await;
    failed.await;
    assert_eq!(bench.tree().len(), 0);
    unavailable(&runner, runner.request("a", CHANGE, todo.clone())).await;
    unavailable(&runner, runner.request("b", CHANGE, todo.clone())).await;
    assert_eq!(refusal(&runner.get("c").await.unwrap_err()), "LEDGER_UNAVAILABLE", "its row may have been written");
    assert_eq!(bench.signals.runs(), 1);
    runner.lose().await;
    repair(&bench);
    let runner = bench.start(FREE).await;
    assert_eq!(state(&runner.run("a", CHANGE, todo).await), State::Completed);
    assert_eq!((bench.text("a").as_str(), bench.signals.runs()), ("x", 2));
    bench.cleared().await;
}

/// B-01, S2-NFR-005: a disk may keep a row although the write failed. The runner does not guess; the next start finds both row and files,
/// or neither.
#[tokio::test]
async fn a_commit_in_doubt_happens_as_a_whole_or_not_at_all() {
    for appears in [true, false] {
        let mut bench = refusing(FREE, "NEW.ended").await;
        let remembers = Remembers::default();
        bench.directories = Arc::new(HookedDirectories(remembers.clone()));
        let todo = json!([["write", "a", "x"]]);
        let runner = bench.start(FREE).await;
        unavailable(&runner, runner.request("a", CHANGE, todo.clone())).await;
        assert_eq!(bench.tree().len(), 0);
        let call = runner.get("a").await.unwrap();
        runner.lose().await;
        repair(&bench);
        if appears {
            let StagedEffect { id, plan } = remembers.0.lock().unwrap().clone().unwrap();
            let call = runner_v1::ToolCall { state: State::Completed.into(), ..call };
            let workspace = bench.workspace().canonicalize().unwrap();
            let workspace = workspace.to_str().unwrap().as_bytes();
            let row = "INSERT INTO call (name, digest, ended, call, workspace, staged_id, staged, sum)
                       VALUES (?1, '', 1, ?2, ?3, ?4, ?5, row_sum('call.sum', ?1, '', 1, ?2, NULL, ?3, ?4, ?5, NULL))";
            let call = (call.name.clone(), prost::Message::encode_to_vec(&call));
            let ledger = ledger(&bench);
            belay_sqlite::add_row_sum(&ledger).unwrap();
            ledger.execute(row, params![call.0, call.1, workspace, id, plan]).unwrap();
        }
        let runner = bench.start(FREE).await;
        if appears {
            assert_eq!(state(&runner.get("a").await.unwrap()), State::Completed);
            assert_eq!(bench.text("a"), "x", "a completed call has its effect");
        } else {
            assert_eq!(refusal(&runner.get("a").await.unwrap_err()), "CALL_NOT_FOUND");
            assert_eq!(state(&runner.run("a", CHANGE, todo).await), State::Completed);
            assert_eq!(bench.tree().keys().collect::<Vec<_>>(), ["a"]);
        }
        bench.cleared().await;
    }
}

/// A workspace whose disk does not take as many commits that are applied again, with this error of the system.
#[derive(Clone)]
struct RefusedRedos(Arc<AtomicUsize>, i32);

impl Hooks for RefusedRedos {
    fn redo(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)) {
            Ok(_) => {
                let source = io::Error::from_raw_os_error(self.1);
                Err(CommitError::Io(IoFailure { doing: "applying", path: staged.id.clone(), source }))
            }
            Err(_) => place.redo(staged),
        }
    }
}

/// C1: a commit that the disk does not take at the start of a runner, because it is full, fails or is read-only, waits until it does. It is not given up: the executor may
/// have stored that the call completed.
#[tokio::test]
async fn a_commit_waits_for_the_disk_at_the_start() {
    let (enospc, eio, erofs) = (28, 5, 30);
    for error in [enospc, eio, erofs] {
        let (mut bench, refusing) = (Bench::new(), RefusedRedos(Arc::default(), error));
        bench.directories = Arc::new(HookedDirectories(refusing.clone()));
        let todo = json!([["write", "a", "x"]]);
        let runner = bench.start(FREE).await;
        assert_eq!(state(&runner.run("a", CHANGE, todo.clone()).await), State::Completed);
        runner.lose().await;
        refusing.0.store(1, Ordering::SeqCst);
        let runner = bench.start(FREE).await;
        assert_eq!(state(&runner.get("a").await.unwrap()), State::Running, "its effect is not in place");
        assert_eq!(state(&runner.run("a", CHANGE, todo).await), State::Completed);
        assert_eq!((bench.text("a").as_str(), bench.signals.runs(), refusing.0.load(Ordering::SeqCst)), ("x", 1, 0));
    }
}

/// A workspace on a file system that takes no commit while it is read-only.
#[derive(Clone, Default)]
struct ReadOnly(Arc<AtomicBool>);

impl Hooks for ReadOnly {
    fn check(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        if self.0.load(Ordering::SeqCst) {
            let source = io::ErrorKind::ReadOnlyFilesystem.into();
            return Err(CommitError::Io(IoFailure { doing: "checking", path: staged.id.clone(), source }));
        }
        place.check(staged)
    }
}

/// A read-only file system is no fault of a call, which ends as cancelled to be made again, and takes no approval away.
#[tokio::test]
async fn a_read_only_file_system_is_waited_for() {
    for policy in [FREE, ASK] {
        let (mut bench, read_only) = (Bench::new(), ReadOnly::default());
        bench.directories = Arc::new(HookedDirectories(read_only.clone()));
        let runner = bench.start(policy).await;
        read_only.0.store(true, Ordering::SeqCst);
        let call = runner.run("a", CHANGE, json!([["write", "a", "x"]])).await;
        if policy == FREE {
            assert_eq!((state(&call), reason(&call)), (State::Cancelled, "WORKSPACE_READ_ONLY"));
            assert!(call.failure.unwrap().message.contains("file system of the workspace is read-only"));
            continue;
        }
        let grant = bench.sign(&bench.grant(&call));
        let refused = runner.commit("a", grant.clone()).await.unwrap_err();
        assert_eq!((refused.code(), refusal(&refused)), (Code::Unavailable, "WORKSPACE_READ_ONLY".into()));
        assert_eq!(runner.get("a").await.unwrap(), call, "it waits as before");
        read_only.0.store(false, Ordering::SeqCst);
        assert_eq!(state(&runner.commit("a", grant).await.unwrap()), State::Completed);
        assert_eq!((bench.text("a").as_str(), bench.signals.runs()), ("x", 1));
    }
}

/// B-01: the outcome of a call without effect on a workspace is returned even if it could not be written.
#[tokio::test]
async fn the_outcome_of_a_manual_call_is_returned_though_it_was_not_written() {
    let bench = refusing(FREE, "NEW.ended").await;
    let runner = bench.start(FREE).await;
    assert_eq!(state(&runner.run("a", SEND, json!([])).await), State::Completed);
    runner.lose().await;
    repair(&bench);
    let runner = bench.start(FREE).await;
    assert_eq!(state(&runner.get("a").await.unwrap()), State::OutcomeUnknown, "the ledger only knows that it started");
}

/// An approved call whose end cannot be written keeps waiting, as its row says: it can be discarded or resumed once the disk has space.
#[tokio::test]
async fn an_approved_call_whose_end_was_not_written_still_waits() {
    for todo in [json!([]), json!([["fail"]]), json!([["write", "a", "x"]])] {
        let bench = refusing(FIRST, "NEW.ended").await;
        let runner = bench.start(FIRST).await;
        let held = runner.run("a", CHANGE, todo.clone()).await;
        assert_eq!(state(&held), State::AwaitingApproval);
        let grant = bench.sign(&bench.grant(&held));
        let mut request = runner.request("a", CHANGE, todo.clone());
        request.grant = Some(grant.clone());
        unavailable(&runner, request.clone()).await;
        assert_eq!(bench.tree().len(), 0);
        runner.lose().await;
        repair(&bench);
        let runner = bench.start(FIRST).await;
        assert_eq!(runner.get("a").await.unwrap(), held, "{todo}");
        let end = runner.call(request).await.unwrap();
        assert_ne!(state(&end), State::AwaitingApproval, "{end:?}");
        assert_eq!(runner.get("a").await.unwrap(), end);
        bench.cleared().await;
    }
}

/// B-20: a flipped bit is never a result: a call whose name it damages is found all the same, and any other one is in doubt.
#[tokio::test]
async fn a_flipped_bit_is_never_a_result() {
    for (set, expected) in [
        ("name = replace(name, 'ended', 'endee')", State::Completed),
        ("digest = digest || 'x'", State::OutcomeUnknown),
        ("ended = 0", State::OutcomeUnknown),
        ("sum = sum + 1", State::OutcomeUnknown),
    ] {
        let bench = Bench::new();
        let runner = bench.start(ASK).await;
        assert_eq!(state(&runner.run("ended", KEEP, json!([])).await), State::Completed);
        runner.lose().await;
        let ledger = ledger(&bench);
        assert_eq!(ledger.execute(&format!("UPDATE call SET {set} WHERE name = ?1"), [name("ended")]).unwrap(), 1);
        drop(ledger);
        let runner = bench.start(ASK).await;
        assert_eq!(state(&runner.get("ended").await.unwrap()), expected, "{set}");
        runner.lose().await;
    }
}

/// B-20: whatever is damaged of an approval that a call waits for, nothing is committed on it, and the call can end.
#[tokio::test]
async fn a_call_whose_approval_is_damaged_does_not_wait_for_it() {
    for set in ["subject = x'ff'", "waits = x'ff'", "contents = x'ff'", "name = 'nobody'"] {
        let bench = Bench::new();
        let runner = bench.start(ASK).await;
        let held = runner.run("held", CHANGE, json!([["write", "a", "x"]])).await;
        runner.lose().await;
        let damage = format!("UPDATE held SET {set} WHERE name = ?1");
        assert_eq!(ledger(&bench).execute(&damage, [name("held")]).unwrap(), 1);
        let runner = bench.start(ASK).await;
        let found = runner.get("held").await.unwrap();
        assert_eq!((state(&found), reason(&found)), (State::OutcomeUnknown, "OUTCOME_UNKNOWN"), "{set}");
        let grant = bench.sign(&bench.grant(&held));
        assert_eq!(runner.commit("held", grant).await.unwrap(), found);
        assert_eq!(bench.tree().len(), 0);
        runner.acknowledge("held").await;
        runner.stop().await;
        let left = ledger(&bench).query_row("SELECT count(*) FROM held", [], |row| row.get::<_, i64>(0)).unwrap();
        assert_eq!(left, i64::from(set.starts_with("name")), "{set}");
    }
}

/// An undecodable row does not stop the runner: it is set aside unchanged, and the outcome of its call is unknown.
#[tokio::test]
async fn an_undecodable_row_is_set_aside() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    for call in ["active", "ended", "good", "newer"] {
        assert_eq!(state(&runner.run(call, KEEP, json!([])).await), State::Completed);
    }
    assert_eq!(state(&runner.run("held", CHANGE, json!([["write", "a", "x"]])).await), State::AwaitingApproval);
    assert_eq!(state(&runner.run("not-run", SEND, json!([])).await), State::AwaitingApproval);
    runner.lose().await;
    let damage = |set: &str, call: &str| {
        let damaged = ledger(&bench).execute(&format!("UPDATE call SET {set} WHERE name = ?1"), [name(call)]).unwrap();
        assert_eq!(damaged, 1);
    };
    damage("call = x'0affffff', ended = 0", "active");
    damage("call = (SELECT call FROM call WHERE name LIKE '%/good/%')", "ended");
    damage("call = x'ff'", "held");
    damage("call = x'ff'", "not-run");
    // Interrupted, with a recovery class that no version has: field 8 is 99.
    damage("call = CAST(call || x'4063' AS BLOB), ended = 0", "newer");
    for start in 0..2 {
        let runner = bench.start(ASK).await;
        // The tool of `held` has run: it may have reached out, and its grant may be spent.
        for call in ["active", "ended", "held", "newer"] {
            let found = runner.get(call).await.unwrap();
            assert_eq!(
                (state(&found), reason(&found)),
                (State::OutcomeUnknown, "OUTCOME_UNKNOWN"),
                "{call}, start {start}"
            );
        }
        assert_eq!(state(&runner.get("good").await.unwrap()), State::Completed);
        // It had not happened, so it can be sent again.
        assert_eq!(refusal(&runner.get("not-run").await.unwrap_err()), "CALL_NOT_FOUND");
        runner.lose().await;
    }
    let aside: Vec<(String, Vec<u8>)> = ledger(&bench)
        .prepare("SELECT name, call FROM set_aside ORDER BY name")
        .unwrap()
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .unwrap()
        .collect::<Result<_, _>>()
        .unwrap();
    assert_eq!(
        aside.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(),
        ["active", "ended", "held", "newer", "not-run"].map(name)
    );
    assert_eq!((aside[0].1.as_slice(), aside[2].1.as_slice()), (&b"\x0a\xff\xff\xff"[..], &b"\xff"[..]));
    let location = Location::file(bench.path().join("state/ledger.db"));
    let checked = belay_tool_runner::check(&location).unwrap().expect("there is a ledger");
    assert_eq!((checked.rows.len(), checked.structure.len()), (0, 5), "{checked:?}");
    for (said, call) in checked.structure.iter().zip(["active", "ended", "held", "newer", "not-run"]) {
        assert!(said.contains(&name(call)) && said.contains("`set_aside`"), "{said}");
    }

    // Acknowledged, they are forgotten like any other call.
    let runner = bench.start(ASK).await;
    for call in ["active", "ended", "held", "newer"] {
        runner.acknowledge(call).await;
    }
    runner.stop().await;
    let runner = bench.start(ASK).await;
    assert_eq!(refusal(&runner.get("active").await.unwrap_err()), "CALL_NOT_FOUND");
    assert_eq!(runner.unacknowledged().await, [name("good")]);
}

/// S2-NFR-005: a call whose acknowledgement was lost in a crash is listed again by the next runner; one that waits for approval is not
/// listed.
#[tokio::test]
async fn unacknowledged_calls_are_listed() {
    let bench = Bench::new();
    let runner = bench.start(ASK).await;
    runner.run("a", KEEP, json!([])).await;
    runner.run("b", KEEP, json!([])).await;
    runner.run("held", CHANGE, json!([["write", "a", "x"]])).await;
    let location = Location::file(bench.path().join("state/ledger.db"));
    let size = belay_tool_runner::measure(&location).unwrap().expect("there is a ledger");
    assert_eq!(size.counts, [("calls", 3), ("waiting", 1)], "while the runner has it open");
    assert_eq!(runner.unacknowledged().await, ["a", "b"].map(name));
    runner.acknowledge("a").await;
    assert_eq!(runner.unacknowledged().await, [name("b")]);
    runner.lose().await;
    let runner = bench.start(ASK).await;
    assert_eq!(runner.unacknowledged().await, ["a", "b"].map(name), "the row was not deleted yet");
    runner.acknowledge("a").await;
    runner.acknowledge("b").await;
    runner.stop().await;
    let runner = bench.start(ASK).await;
    assert_eq!(runner.unacknowledged().await, [""; 0]);
}
