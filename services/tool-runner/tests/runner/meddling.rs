//! What goes wrong in the worst moment: after the row, before the files.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use belay_proto::v1::tool_call::State;
use belay_tool_runner::{Place, Places, RealPlaces, Staged, View};
use belay_workspace::{CommitError, EffectError, IoFailure, Manifest, OpenError, ViewError};
use serde_json::json;

use crate::support::*;

#[derive(Clone, Copy)]
enum Meddler {
    /// A person saves `file`.
    Saves,
    /// The runner itself has a fault.
    Breaks,
}

/// A place in which that happens just before a commit is carried out.
struct Meddled(Meddler, Arc<dyn Place>);

impl Places for Meddler {
    fn resolve(&self, path: &Path) -> Result<PathBuf, OpenError> {
        RealPlaces.resolve(path)
    }

    fn stores_around(&self, path: &Path) -> Option<PathBuf> {
        RealPlaces.stores_around(path)
    }

    fn make(&self, path: &Path) -> Result<(), OpenError> {
        RealPlaces.make(path)
    }

    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn Place>, OpenError> {
        Ok(Arc::new(Meddled(*self, RealPlaces.open(path, forbidden)?)))
    }
}

impl Place for Meddled {
    fn path(&self) -> &Path {
        self.1.path()
    }

    fn sweep(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
        self.1.sweep(keep)
    }

    fn view(&self, id: &str) -> Result<Box<dyn View>, ViewError> {
        self.1.view(id)
    }

    fn effect(&self, view: &dyn View) -> Result<Manifest, EffectError> {
        self.1.effect(view)
    }

    fn stage(&self, view: Box<dyn View>, manifest: &Manifest) -> Result<Staged, CommitError> {
        self.1.stage(view, manifest)
    }

    fn check(&self, staged: &Staged) -> Result<(), CommitError> {
        self.1.check(staged)
    }

    fn apply(&self, staged: &Staged) -> Result<(), CommitError> {
        match self.0 {
            Meddler::Saves => fs::write(self.path().join("file"), "saved meanwhile").unwrap(),
            Meddler::Breaks => panic!("a fault"),
        }
        self.1.apply(staged)
    }

    fn redo(&self, staged: &Staged) -> Result<(), CommitError> {
        self.1.redo(staged)
    }

    fn staging_syncs(&self) -> bool {
        self.1.staging_syncs()
    }

    fn sync(&self) -> Result<(), IoFailure> {
        self.1.sync()
    }

    fn discard(&self, staged: &Staged) -> Result<(), CommitError> {
        self.1.discard(staged)
    }

    fn finish(&self, staged: &Staged) -> Result<(), CommitError> {
        self.1.finish(staged)
    }
}

/// A save that slips in between the row and the renames is kept, the call is a conflict, and the ledger says so for good.
#[tokio::test]
async fn a_save_that_slips_in_is_kept() {
    for policy in [FREE, ASK] {
        let mut bench = Bench::new();
        bench.places = Arc::new(Meddler::Saves);
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
        bench.places = Arc::new(Meddler::Breaks);
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
