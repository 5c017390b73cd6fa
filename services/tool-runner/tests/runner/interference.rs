//! Failures at the worst moment: after the row, before the renames.

use std::{fs, sync::Arc};

use belay_proto::v1::tool_call::State;
use belay_tool_runner::{HostDirectories, StagedEffect, WorkspaceDirectory};
use belay_workspace::CommitError;
use serde_json::json;

use crate::{hooks::*, support::*};

/// An event just before a commit is applied.
#[derive(Clone, Copy)]
enum Interference {
    /// Someone saves `file`.
    Saves,
    /// The runner panics.
    Breaks,
}

impl Hooks for Interference {
    fn apply(&self, place: &dyn WorkspaceDirectory, staged: &StagedEffect) -> Result<(), CommitError> {
        match self {
            Self::Saves => fs::write(place.path().join("file"), "saved meanwhile").unwrap(),
            Self::Breaks => panic!("planned"),
        }
        place.apply(staged)
    }
}

/// A save between the row and the renames is kept; the call ends with a conflict, durably.
#[tokio::test]
async fn a_save_before_the_renames_is_kept() {
    for policy in [FREE, ASK] {
        let mut bench = Bench::new();
        bench.directories = Arc::new(HookedDirectories(Interference::Saves));
        bench.put("file", "1");
        let todo = json!([["write", "a", "x"], ["write", "file", "2"]]);
        let runner = bench.start(policy).await;
        let mut end = runner.run("a", CHANGE, todo.clone()).await;
        if state(&end) == State::AwaitingApproval {
            end = runner.commit("a", bench.sign(&bench.grant(&end))).await.unwrap();
        }
        assert_eq!((state(&end), reason(&end)), (State::Cancelled, "CONFLICT"));
        assert_eq!((bench.text("file").as_str(), bench.tree().len()), ("saved meanwhile", 1));
        assert_eq!(bench.left_over(), Vec::<String>::new());
        runner.lose().await;
        let runner = bench.start(policy).await;
        assert_eq!(runner.run("a", CHANGE, todo).await, end);
    }
}

/// B-01, S2-NFR-005: after a panic between the row and the renames the outcome is unknown, and the next start applies what the row says.
#[tokio::test]
async fn a_panic_after_the_row_is_recovered_at_the_next_start() {
    for policy in [FREE, ASK] {
        let mut bench = Bench::new();
        bench.directories = Arc::new(HookedDirectories(Interference::Breaks));
        let todo = json!([["write", "a", "x"]]);
        let runner = bench.start(policy).await;
        let mut end = runner.run("a", CHANGE, todo.clone()).await;
        if state(&end) == State::AwaitingApproval {
            end = runner.commit("a", bench.sign(&bench.grant(&end))).await.unwrap();
        }
        assert_eq!((state(&end), reason(&end)), (State::OutcomeUnknown, "OUTCOME_UNKNOWN"));
        runner.lose().await;
        bench.directories = Arc::new(HostDirectories);
        let runner = bench.start(policy).await;
        assert_eq!(bench.text("a"), "x", "it is applied at startup");
        assert_eq!(state(&runner.run("a", CHANGE, todo).await), State::Completed);
        assert_eq!(bench.left_over(), Vec::<String>::new());
    }
}

/// B-06: two runners that share a workspace leave each other's staged effects alone, also when one of them starts.
#[tokio::test]
async fn another_runner_of_the_workspace_keeps_an_effect_that_waits() {
    let mut bench = Bench::new();
    let runner = bench.start(ASK).await;
    let held = runner.run("held", CHANGE, json!([["write", "a", "x"]])).await;
    assert_eq!(state(&held), State::AwaitingApproval);
    runner.lose().await;
    fs::create_dir(bench.path().join("other")).unwrap();
    bench.state = ("other", "another ledger");
    let other = bench.start(FREE).await;
    assert_eq!(state(&other.run("other", CHANGE, json!([["write", "b", "y"]])).await), State::Completed);
    other.stop().await;

    bench.state = ("state", "a ledger");
    let runner = bench.start(ASK).await;
    let done = runner.commit("held", bench.sign(&bench.grant(&held))).await.unwrap();
    assert_eq!((state(&done), bench.text("a"), bench.text("b")), (State::Completed, "x".into(), "y".into()));
}
