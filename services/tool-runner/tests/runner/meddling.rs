//! What goes wrong in the worst moment: after the row, before the files.

use std::{fs, sync::Arc};

use belay_proto::v1::tool_call::State;
use belay_tool_runner::{Place, RealPlaces, Staged};
use belay_workspace::CommitError;
use serde_json::json;

use crate::{places::*, support::*};

/// What happens just before a commit is carried out.
#[derive(Clone, Copy)]
enum Meddler {
    /// A person saves `file`.
    Saves,
    /// The runner itself has a fault.
    Breaks,
}

impl Hand for Meddler {
    fn apply(&self, place: &dyn Place, staged: &Staged) -> Result<(), CommitError> {
        match self {
            Self::Saves => fs::write(place.path().join("file"), "saved meanwhile").unwrap(),
            Self::Breaks => panic!("a fault"),
        }
        place.apply(staged)
    }
}

/// A save that slips in between the row and the renames is kept, the call is a conflict, and the ledger says so for good.
#[tokio::test]
async fn a_save_that_slips_in_is_kept() {
    for policy in [FREE, ASK] {
        let mut bench = Bench::new();
        bench.places = Arc::new(InHand(Meddler::Saves));
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

/// B-01, S2-NFR-005: after a fault between the row and the renames nobody is told a guess, and the next start carries out what the row says.
#[tokio::test]
async fn a_fault_after_the_row_is_put_right_at_the_next_start() {
    for policy in [FREE, ASK] {
        let mut bench = Bench::new();
        bench.places = Arc::new(InHand(Meddler::Breaks));
        let todo = json!([["write", "a", "x"]]);
        let runner = bench.start(policy).await;
        let mut end = runner.run("a", CHANGE, todo.clone()).await;
        if state(&end) == State::AwaitingApproval {
            end = runner.commit("a", bench.sign(&bench.grant(&end))).await.unwrap();
        }
        assert_eq!((state(&end), reason(&end)), (State::OutcomeUnknown, "OUTCOME_UNKNOWN"));
        runner.lose().await;
        bench.places = Arc::new(RealPlaces);
        let runner = bench.start(policy).await;
        assert_eq!(bench.text("a"), "x", "it is there before anybody asks");
        assert_eq!(state(&runner.run("a", CHANGE, todo).await), State::Completed);
        assert_eq!(bench.left_over(), Vec::<String>::new());
    }
}
