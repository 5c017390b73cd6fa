//! Somebody works in the workspace in the worst moment: after the row, before the files.

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

/// Just before a commit is carried out, a person saves `file`.
struct Meddled(Arc<dyn Place>);

struct Meddler;

impl Places for Meddler {
    fn resolve(&self, path: &Path) -> Result<PathBuf, OpenError> {
        RealPlaces.resolve(path)
    }

    fn make(&self, path: &Path) -> Result<(), OpenError> {
        RealPlaces.make(path)
    }

    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn Place>, OpenError> {
        Ok(Arc::new(Meddled(RealPlaces.open(path, forbidden)?)))
    }
}

impl Place for Meddled {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn sweep(&self, keep: &dyn Fn(&str) -> bool) -> Result<(), IoFailure> {
        self.0.sweep(keep)
    }

    fn view(&self, id: &str) -> Result<Box<dyn View>, ViewError> {
        self.0.view(id)
    }

    fn effect(&self, view: &dyn View) -> Result<Manifest, EffectError> {
        self.0.effect(view)
    }

    fn stage(&self, view: Box<dyn View>, manifest: &Manifest) -> Result<Staged, CommitError> {
        self.0.stage(view, manifest)
    }

    fn check(&self, staged: &Staged) -> Result<(), CommitError> {
        self.0.check(staged)
    }

    fn apply(&self, staged: &Staged) -> Result<(), CommitError> {
        fs::write(self.path().join("file"), "saved meanwhile").unwrap();
        self.0.apply(staged)
    }

    fn discard(&self, staged: &Staged) -> Result<(), CommitError> {
        self.0.discard(staged)
    }

    fn finish(&self, staged: &Staged) -> Result<(), CommitError> {
        self.0.finish(staged)
    }
}

/// S2-FR-055: a save that slips in between the row and the renames is kept, the call is a conflict, and the ledger says so for good.
#[tokio::test]
async fn a_save_that_slips_in_is_kept() {
    for policy in [FREE, ASK] {
        let mut bench = Bench::new();
        bench.places = Arc::new(Meddler);
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
