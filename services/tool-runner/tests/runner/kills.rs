//! The runner dies at every change it makes to a workspace, again while it recovers, and every effect still happens exactly once.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use belay_proto::v1::{self, tool_call::State};
use belay_tool_runner::Place;
use belay_workspace::{Call, OpenError, Order, Seam};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{places::*, support::*};

const FOLDER: &str = "BELAY_TEST_FOLDER";
const DIES_AT: &str = "BELAY_TEST_DIES_AT";
const POLICY: &str = "BELAY_TEST_POLICY";

/// Dies before the change of this number.
struct Dies {
    at: usize,
    seen: AtomicUsize,
}

impl Seam for Dies {
    fn alive(&self, _: &Call<'_>) -> bool {
        if self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.at {
            std::process::abort();
        }
        true
    }

    fn order(&self, _: Order) -> Order {
        Order::Kept
    }
}

#[derive(Clone)]
struct Deadly(Arc<Dies>);

impl Hand for Deadly {
    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn Place>, OpenError> {
        open_on(path, forbidden, self.0.clone())
    }
}

fn todo() -> Value {
    json!([["append", "log", "once\n"], ["write", "new/file", "x"], ["remove", "old"]])
}

/// Makes the call, and commits it if it is asked to.
async fn make_the_call(bench: &Bench, policy: &str) -> v1::ToolCall {
    let runner = bench.start(policy).await;
    let call = runner.run("a", CHANGE, todo()).await;
    let end = match state(&call) {
        State::AwaitingApproval => runner.commit("a", bench.sign(&bench.grant(&call))).await.unwrap(),
        _ => call,
    };
    runner.lose().await;
    end
}

/// The process that dies; run by the other test, with what to do in its environment.
#[tokio::test]
#[ignore = "it is the process that `an_effect_happens_exactly_once` kills"]
async fn child() {
    let number = env::var(DIES_AT).unwrap().parse().unwrap();
    let mut bench = Bench::in_folder(env::var_os(FOLDER).unwrap().as_ref());
    bench.places = Arc::new(InHand(Deadly(Arc::new(Dies { at: number, seen: AtomicUsize::new(0) }))));
    make_the_call(&bench, &env::var(POLICY).unwrap()).await;
}

async fn die(folder: &Path, at: usize, policy: &str) -> ExitStatus {
    let mut child = Command::new(env::current_exe().unwrap());
    child
        .args(["--exact", "kills::child", "--ignored"])
        .envs([(DIES_AT, at.to_string()), (POLICY, policy.to_owned())])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    tokio::task::spawn_blocking(move || child.status().unwrap()).await.unwrap()
}

/// Whether there is a change of this number.
async fn killed_at(at: usize, policy: &str) -> bool {
    let bench = Bench::new();
    bench.put("log", "");
    bench.put("old", "1");
    if die(bench.path(), at, policy).await.success() {
        return false;
    }
    let thoroughly = at.is_multiple_of(3);
    if thoroughly {
        // And once more, somewhere in its recovery.
        die(bench.path(), 1 + at * 7 % 13, policy).await;
    }
    for _ in 0..if thoroughly { 2 } else { 1 } {
        let end = make_the_call(&bench, policy).await;
        assert_eq!((state(&end), reason(&end)), (State::Completed, ""), "killed at {at}");
        assert_eq!((bench.text("log").as_str(), bench.text("new/file").as_str()), ("once\n", "x"), "killed at {at}");
        assert_eq!(bench.tree().into_keys().collect::<Vec<_>>(), ["log", "new", "new/file"], "killed at {at}");
    }
    assert!(!thoroughly || bench.left_over().is_empty(), "killed at {at}: {:?}", bench.left_over());
    true
}

/// B-01, S2-FR-058, S2-NFR-005: killed before each of its changes to the disk, and a second time while it recovers, the runner commits what was
/// asked exactly once, wholly, and spends one grant on it.
#[tokio::test]
async fn an_effect_happens_exactly_once() {
    const AT_ONCE: usize = 8;
    for policy in [FREE, ASK] {
        let mut points = 0;
        for first in (1..).step_by(AT_ONCE) {
            let killed = join_all((first..first + AT_ONCE).map(|at| killed_at(at, policy))).await;
            points += killed.iter().filter(|killed| **killed).count();
            if killed.contains(&false) {
                break;
            }
        }
        assert!(points > 20, "only {points} points under {policy}");
    }
}
