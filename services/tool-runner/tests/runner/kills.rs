//! The runner is killed at every change that it makes to a workspace, and again during recovery; every effect still happens exactly once.

use std::{
    env, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use belay_proto::{runner_v1, v1::tool_call::State};
use belay_tool_runner::{HostDirectories, WorkspaceDirectories as _, WorkspaceDirectory};
use belay_workspace::{Call, IoFailure, OpenError, Order, Seam};
use futures::future::join_all;
use serde_json::{Value, json};
use tonic::Code;

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
    bench.directories = Arc::new(HookedDirectories(Deadly(Arc::new(Dies { at: number, seen: AtomicUsize::new(0) }))));
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
        Arc::new(HookedDirectories(OnUnknown)),
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

/// Opens nothing while it fails.
#[derive(Clone, Default)]
struct Unopenable(Arc<AtomicBool>);

impl Hooks for Unopenable {
    fn open(&self, path: &Path, forbidden: &[PathBuf]) -> Result<Arc<dyn WorkspaceDirectory>, OpenError> {
        if self.0.load(Ordering::SeqCst) {
            let source = io::Error::from_raw_os_error(5);
            return Err(OpenError::Io(IoFailure { doing: "opening", path: path.display().to_string(), source }));
        }
        HostDirectories.open(path, forbidden)
    }
}

/// A workspace in which a killed runner has left the view of call `a`.
async fn with_a_lost_view() -> Bench {
    let bench = Bench::new();
    bench.put("log", "");
    bench.put("old", "1");
    for at in 1.. {
        assert!(!die(bench.path(), at, FREE).await.success(), "no view is left at any change");
        if bench.left_over().iter().any(|left| left.starts_with("views/")) {
            return bench;
        }
    }
    unreachable!("there are fewer changes")
}

/// B-06, B-07: a call that is cancelled after its runner was killed leaves nothing in its workspace.
#[tokio::test]
async fn a_cancelled_call_leaves_no_view_also_of_a_killed_runner() {
    let bench = with_a_lost_view().await;
    let runner = bench.start(FREE).await;
    let end = runner.cancel("a").await.unwrap();
    assert_eq!((state(&end), reason(&end)), (State::Cancelled, "CANCELLED"));
    assert_eq!(bench.left_over(), [""; 0]);
    assert_eq!(bench.text("old"), "1");
    assert_eq!(bench.signals.runs(), 0);
}

/// So does one of which the ledger knows that it had started, though its outcome stays unknown.
#[tokio::test]
async fn a_cancelled_call_of_unknown_outcome_leaves_no_view() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let call = runner.spawn(runner.request("a", REACH, json!([["wait"]])));
    bench.signals.has_run(1).await;
    runner.lose().await;
    assert!(call.await.unwrap().is_err());
    // A runner that is killed does not get to remove it.
    std::fs::create_dir_all(bench.workspace().join(".belay/views/lost/upper")).unwrap();
    let runner = bench.start(FREE).await;
    assert_eq!(state(&runner.cancel("a").await.unwrap()), State::OutcomeUnknown);
    assert_eq!(bench.left_over(), [""; 0]);
}

/// A MANUAL call has run when its change is held for approval: cancelled then, it leaves nothing in its workspace, and its outcome is not known, so that it
/// is not made again automatically.
#[tokio::test]
async fn a_cancelled_change_of_a_manual_call_is_of_unknown_outcome() {
    let bench = Bench::new();
    let policy = FREE.replace("rules: [", "rules: [{id: changes, on: effect, tools: [reach], decide: prompt}, ");
    let runner = bench.start(&policy).await;
    let held = runner.run("a", REACH, json!([["write", "new", "x"]])).await;
    assert_eq!((state(&held), bench.signals.runs()), (State::AwaitingApproval, 1), "{held:?}");
    let end = runner.cancel("a").await.unwrap();
    assert_eq!((state(&end), reason(&end)), (State::OutcomeUnknown, "OUTCOME_UNKNOWN"), "{end:?}");
    assert_eq!(bench.left_over(), [""; 0]);
    assert!(!bench.workspace().join("new").exists());
    // A call that is made again finds the same end, and does not run.
    assert_eq!(state(&runner.run("a", REACH, json!([["write", "new", "x"]])).await), State::OutcomeUnknown);
    assert_eq!(bench.signals.runs(), 1);
}

/// A workspace that is gone holds up no cancellation; one that cannot be opened now does, until it can be, or until the call is killed.
#[tokio::test]
async fn a_cancellation_waits_only_for_a_workspace_that_can_be_opened_later() {
    for end in ["opens", "killed", "gone", "opened by another"] {
        let mut bench = with_a_lost_view().await;
        let failing = Unopenable(Arc::new(AtomicBool::new(true)));
        bench.directories = Arc::new(HookedDirectories(failing.clone()));
        let runner = bench.start(FREE).await;
        for _ in 0..2 {
            let refused = runner.cancel("a").await.unwrap_err();
            assert_eq!((refused.code(), refusal(&refused)), (Code::Unavailable, "WORKSPACE_FAILED".into()));
            assert_eq!(runner.get("a").await.unwrap_err().code(), Code::NotFound, "it is not cancelled yet");
        }
        let mut other = None;
        match end {
            "opens" => failing.0.store(false, Ordering::SeqCst),
            "gone" => std::fs::remove_dir_all(bench.workspace()).unwrap(),
            "opened by another" => {
                other = Some(belay_workspace::Workspace::open(&bench.workspace(), &[]).unwrap());
                failing.0.store(false, Ordering::SeqCst);
            }
            _ => {}
        }
        let cancelled = if end == "killed" { runner.kill("a").await } else { runner.cancel("a").await };
        assert_eq!(state(&cancelled.unwrap()), State::Cancelled, "{end}");
        assert_eq!(bench.left_over().is_empty(), ["opens", "gone"].contains(&end), "{end}");
        drop(other);
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
