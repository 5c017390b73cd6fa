//! The runner is killed at every change that it makes to a workspace, and again during recovery; every effect still happens exactly once.

use std::{
    env,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use belay_proto::{runner_v1, v1::tool_call::State};
use belay_tool_runner::WorkspaceDirectory;
use belay_workspace::{Call, OpenError, Order, Seam};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::{hooks::*, support::*};

const FOLDER: &str = "BELAY_TEST_FOLDER";
const DIES_AT: &str = "BELAY_TEST_DIES_AT";
const POLICY: &str = "BELAY_TEST_POLICY";

/// Aborts the process before the change of this number.
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

impl Hooks for Deadly {
    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn WorkspaceDirectory>, OpenError> {
        open_on(path, forbidden, self.0.clone())
    }
}

fn todo() -> Value {
    json!([["append", "log", "once\n"], ["write", "new/file", "x"], ["remove", "old"]])
}

/// Runs the call, and commits it if it needs approval.
async fn run_call(bench: &Bench, policy: &str) -> runner_v1::ToolCall {
    let runner = bench.start(policy).await;
    let call = runner.run("a", CHANGE, todo()).await;
    let end = match state(&call) {
        State::AwaitingApproval => runner.commit("a", bench.sign(&bench.grant(&call))).await.unwrap(),
        _ => call,
    };
    runner.lose().await;
    end
}

/// The process to be killed. The other test starts it, configured by environment variables.
#[tokio::test]
#[ignore = "started and killed by `an_effect_happens_exactly_once`"]
async fn child() {
    let number = env::var(DIES_AT).unwrap().parse().unwrap();
    let mut bench = Bench::in_folder(env::var_os(FOLDER).unwrap().as_ref());
    bench.directories = Arc::new(Hooked(Deadly(Arc::new(Dies { at: number, seen: AtomicUsize::new(0) }))));
    run_call(&bench, &env::var(POLICY).unwrap()).await;
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

/// A disk with unknown ordering that only loses the process.
struct Unknown;

impl Seam for Unknown {
    fn alive(&self, _: &Call<'_>) -> bool {
        true
    }

    fn order(&self, _: Order) -> Order {
        Order::Unknown
    }
}

#[derive(Clone)]
struct OnUnknown;

impl Hooks for OnUnknown {
    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn WorkspaceDirectory>, OpenError> {
        open_on(path, forbidden, Arc::new(Unknown))
    }
}

/// B-01: what a person did to a file after its call ended stays when the runner is killed: renamed and removed files do not come back. On
/// the real disk, and on one with unknown ordering.
#[tokio::test]
async fn changes_made_after_a_call_survive_a_kill() {
    for directories in [
        Arc::new(belay_tool_runner::HostDirectories) as Arc<dyn belay_tool_runner::WorkspaceDirectories>,
        Arc::new(Hooked(OnUnknown)),
    ] {
        let mut bench = Bench::new();
        bench.directories = directories;
        let runner = bench.start(FREE).await;
        for file in ["r.txt", "gone.txt"] {
            assert_eq!(state(&runner.run(file, CHANGE, json!([["write", file, "x"]])).await), State::Completed);
        }
        let at = |file: &str| bench.workspace().join(file);
        std::fs::rename(at("r.txt"), at("s.txt")).unwrap();
        std::fs::remove_file(at("gone.txt")).unwrap();
        runner.lose().await;
        let runner = bench.start(FREE).await;
        assert_eq!(bench.tree().into_keys().collect::<Vec<_>>(), ["s.txt"]);
        assert_eq!((bench.text("s.txt").as_str(), std::fs::metadata(at("s.txt")).unwrap().nlink()), ("x", 1));
        for file in ["r.txt", "gone.txt"] {
            assert_eq!(state(&runner.get(file).await.unwrap()), State::Completed, "{file}");
        }
    }
}

/// Whether the runner makes a change of this number.
async fn killed_at(at: usize, policy: &str) -> bool {
    let bench = Bench::new();
    bench.put("log", "");
    bench.put("old", "1");
    if die(bench.path(), at, policy).await.success() {
        return false;
    }
    let thoroughly = at.is_multiple_of(3);
    if thoroughly {
        // Killed again during recovery.
        die(bench.path(), 1 + at * 7 % 13, policy).await;
    }
    for _ in 0..if thoroughly { 2 } else { 1 } {
        let end = run_call(&bench, policy).await;
        assert_eq!((state(&end), reason(&end)), (State::Completed, ""), "killed at {at}");
        assert_eq!((bench.text("log").as_str(), bench.text("new/file").as_str()), ("once\n", "x"), "killed at {at}");
        assert_eq!(bench.tree().into_keys().collect::<Vec<_>>(), ["log", "new", "new/file"], "killed at {at}");
    }
    assert!(!thoroughly || bench.left_over().is_empty(), "killed at {at}: {:?}", bench.left_over());
    true
}

/// B-01, S2-FR-058, S2-NFR-005: killed before each change to the disk, and again during recovery, the runner commits the effect exactly
/// once, as a whole, and spends one grant.
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
