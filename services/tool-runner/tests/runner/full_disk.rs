//! The ledger cannot be written in the worst moment: when a call has done its work.

use std::sync::{Arc, Mutex};

use belay_proto::v1::tool_call::State;
use belay_tool_runner::{Place, Staged};
use belay_workspace::CommitError;
use rusqlite::{Connection, params};
use serde_json::json;

use crate::{places::*, support::*};

/// Every change is asked about before it is made, and not again.
const FIRST: &str = "file_write: auto\nrules: [{id: first, on: intent, tools: [change], decide: prompt}]\n";

/// A ledger that no runner has open.
fn ledger(bench: &Bench) -> Connection {
    Connection::open(bench.path().join("state/ledger.db")).unwrap()
}

/// A bench whose ledger refuses the rows of calls of which this holds.
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

fn mend(bench: &Bench) {
    ledger(bench).execute_batch("DROP TRIGGER no_insert; DROP TRIGGER no_update").unwrap();
}

/// Places that remember the last effect they were asked to put in place.
#[derive(Clone, Default)]
struct Remembers(Arc<Mutex<Option<Staged>>>);

impl Hand for Remembers {
    fn check(&self, place: &dyn Place, staged: &Staged) -> Result<(), CommitError> {
        *self.0.lock().unwrap() = Some(staged.clone());
        place.check(staged)
    }
}

/// B-01: a commit that could not be written down did not happen, and the ledger says so for good as soon as it can say anything.
#[tokio::test]
async fn a_commit_that_is_refused_once_has_failed() {
    let bench = refusing(FREE, "NEW.staged IS NOT NULL").await;
    let todo = json!([["write", "a", "x"]]);
    let runner = bench.start(FREE).await;
    let end = runner.run("a", CHANGE, todo.clone()).await;
    assert_eq!((state(&end), reason(&end)), (State::Failed, "LEDGER_UNAVAILABLE"));
    assert_eq!((bench.tree().len(), bench.left_over()), (0, Vec::new()));
    runner.lose().await;
    mend(&bench);
    let runner = bench.start(FREE).await;
    assert_eq!(runner.run("a", CHANGE, todo).await, end);
    assert_eq!((bench.tree().len(), bench.stage.runs()), (0, 1));
}

/// B-01, S2-NFR-005: a disk may keep a row that it said it had not written. Until another row took its place nobody is told a guess, and
/// the next start finds the files with the row, or neither.
#[tokio::test]
async fn a_commit_of_which_nothing_is_known_happens_wholly_or_not_at_all() {
    for appears in [true, false] {
        let mut bench = refusing(FREE, "NEW.ended").await;
        let remembers = Remembers::default();
        bench.places = Arc::new(InHand(remembers.clone()));
        let todo = json!([["write", "a", "x"]]);
        let runner = bench.start(FREE).await;
        let end = runner.run("a", CHANGE, todo).await;
        assert_eq!((state(&end), reason(&end)), (State::OutcomeUnknown, "LEDGER_UNAVAILABLE"));
        assert_eq!(bench.tree().len(), 0);
        runner.lose().await;
        mend(&bench);
        if appears {
            let Staged { id, plan } = remembers.0.lock().unwrap().clone().unwrap();
            let call = belay_proto::v1::ToolCall { state: State::Completed.into(), failure: None, ..end };
            let workspace = bench.workspace().canonicalize().unwrap();
            let workspace = workspace.to_str().unwrap().as_bytes();
            let row = "INSERT INTO call (name, digest, ended, call, workspace, staged_id, staged) VALUES (?1, '', 1, ?2, ?3, ?4, ?5)";
            let call = (call.name.clone(), prost::Message::encode_to_vec(&call));
            ledger(&bench).execute(row, params![call.0, call.1, workspace, id, plan]).unwrap();
        }
        let runner = bench.start(FREE).await;
        if appears {
            assert_eq!(state(&runner.get("a").await.unwrap()), State::Completed);
            assert_eq!(bench.text("a"), "x", "what is said to have been done has been done");
        } else {
            assert_eq!(refusal(&runner.get("a").await.unwrap_err()), "CALL_NOT_FOUND");
            assert_eq!(state(&runner.run("b", CHANGE, json!([["write", "b", "x"]])).await), State::Completed);
            assert_eq!(bench.tree().keys().collect::<Vec<_>>(), ["b"]);
        }
        bench.cleared().await;
    }
}

/// An approved call whose end cannot be written goes on waiting, as its row says: it may be given up, or go on, once the disk has room.
#[tokio::test]
async fn an_approved_call_whose_end_is_not_written_still_waits() {
    for todo in [json!([]), json!([["fail"]]), json!([["write", "a", "x"]])] {
        let bench = refusing(FIRST, "NEW.ended").await;
        let runner = bench.start(FIRST).await;
        let held = runner.run("a", CHANGE, todo.clone()).await;
        assert_eq!(state(&held), State::AwaitingApproval);
        let grant = bench.sign(&bench.grant(&held));
        let mut request = runner.request("a", CHANGE, todo.clone());
        request.grant = Some(grant.clone());
        assert_eq!(runner.call(request.clone()).await.unwrap(), held, "{todo}");
        assert_eq!((bench.tree().len(), runner.get("a").await.unwrap()), (0, held.clone()));
        runner.lose().await;
        mend(&bench);
        let runner = bench.start(FIRST).await;
        assert_eq!(runner.get("a").await.unwrap(), held, "{todo}");
        let end = runner.call(request).await.unwrap();
        assert_ne!(state(&end), State::AwaitingApproval, "{end:?}");
        assert_eq!(runner.get("a").await.unwrap(), end);
        bench.cleared().await;
    }
}
