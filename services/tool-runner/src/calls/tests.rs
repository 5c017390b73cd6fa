//! What is promised about calls, with a tool that counts how often it runs.

use std::{
    path::Path,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering},
};

use belay_service_kit::SystemClock;
use belay_sqlite::{Location, Threads};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::*;
use crate::{Annotations, Tool, ToolSpec};

/// Runs until it is let, and counts.
struct Scripted {
    recovery: Recovery,
    runs: Arc<AtomicUsize>,
    let_go: Arc<Semaphore>,
}

impl Tool for Scripted {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "scripted",
            aliases: &["script"],
            description: "",
            parameters: r#"{"type": "object", "properties": {"n": {"type": "integer"}}}"#,
            result: r#"{"type": "integer"}"#,
            recovery: self.recovery,
            touches: crate::Touches::Nothing,
            kind: belay_policy::ToolKind::Other,
            default_timeout: Duration::from_secs(60),
            annotations: Annotations::default(),
        }
    }

    fn call(&self, invocation: Invocation) -> Pin<Box<dyn Future<Output = ToolResult> + Send>> {
        let (runs, let_go) = (Arc::clone(&self.runs), Arc::clone(&self.let_go));
        Box::pin(async move {
            runs.fetch_add(1, Ordering::SeqCst);
            let_go.acquire().await.expect("never closed").forget();
            Ok(invocation.arguments.get("result").cloned().unwrap_or(json!(1)))
        })
    }
}

struct Bench {
    calls: Arc<Calls>,
    runs: Arc<AtomicUsize>,
    let_go: Arc<Semaphore>,
}

async fn open(folder: &Path, recovery: Recovery) -> Bench {
    let (runs, let_go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let tool = Scripted { recovery, runs: Arc::clone(&runs), let_go: Arc::clone(&let_go) };
    let registry = Registry::new([Box::new(tool) as Box<dyn Tool>]).unwrap();
    // Whoever held the store before ends with its runtime; the lock goes a moment later.
    let ledger = loop {
        match Ledger::open(&Location::file(folder.join("ledger")), Threads::Real, || "a ledger".into()) {
            Ok(ledger) => break ledger,
            Err(crate::LedgerError(belay_sqlite::SqliteError::Locked)) => tokio::task::yield_now().await,
            Err(error) => panic!("{error:?}"),
        }
    };
    let calls = Calls::recover(Parts { registry, ledger, clock: Arc::new(SystemClock) }).await.unwrap();
    Bench { calls, runs, let_go }
}

impl Bench {
    fn order(&self, name: &str, arguments: Value) -> Result<Outcome, Status> {
        let tool = self.calls.registry.find("script").expect("an alias names the tool");
        let (arguments, workspace) = (arguments.to_string(), String::new());
        self.calls.call(Order { name: name.into(), attempt: 1, tool, arguments, timeout: None, workspace })
    }

    async fn runs_once(&self) {
        while self.runs.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// S2-FR-058, S2-NFR-007: asking again under the same name attaches, running or finished, and the body runs once.
#[tokio::test]
async fn the_same_call_runs_once_however_often_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let bench = open(folder.path(), Recovery::Idempotent).await;
    let first = bench.order("a", json!({"n": 1})).unwrap();
    let second = bench.order("a", json!({"n": 1})).unwrap();
    bench.let_go.add_permits(5);
    assert_eq!(ended(first).await.unwrap().state(), State::Completed);
    assert_eq!(ended(second).await.unwrap().state(), State::Completed);
    let later = ended(bench.order("a", json!({"n": 1})).unwrap()).await.unwrap();
    assert_eq!(later.result, Some(payload("1".into())));
    assert_eq!(bench.runs.load(Ordering::SeqCst), 1);

    let other = bench.order("a", json!({"n": 2})).map(drop).unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists, "another request under the same name is refused");
    bench.calls.acknowledge(vec!["a".into()]).await.unwrap();
    assert_eq!(bench.calls.get("a").unwrap_err().code(), Code::NotFound, "what was acknowledged is forgotten");
    let late = bench.order("a", json!({"n": 1})).map(drop).unwrap_err();
    assert_eq!(
        status::reason(&late).as_deref(),
        Some("CALL_ACKNOWLEDGED"),
        "and a request that comes late does not run it again"
    );
    assert_eq!(bench.runs.load(Ordering::SeqCst), 1);
}

/// B-08: a stale owner is refused, also after the runner was restarted.
#[tokio::test]
async fn an_older_fence_is_refused_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let fence = |token| Some(v1::Fence { shard: 7, token });
    let bench = open(folder.path(), Recovery::ReadOnly).await;
    bench.calls.admit(fence(5)).await.unwrap();
    assert_eq!(bench.calls.admit(fence(4)).await.unwrap_err().code(), Code::FailedPrecondition);
    assert!(bench.calls.admit(Some(v1::Fence { shard: 8, token: 1 })).await.is_ok(), "shards have owners of their own");
    drop(bench);
    let bench = open(folder.path(), Recovery::ReadOnly).await;
    let refused = bench.calls.admit(fence(4)).await.unwrap_err();
    assert_eq!(status::fact(&refused, "newest").as_deref(), Some("5"));
    bench.calls.admit(fence(6)).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_call_ends_and_one_that_never_arrived_is_forbidden() {
    let folder = tempfile::tempdir().unwrap();
    let bench = open(folder.path(), Recovery::Idempotent).await;
    let running = bench.order("running", json!({})).unwrap();
    bench.runs_once().await;
    assert_eq!(bench.calls.cancel("running").await.unwrap().state(), State::Cancelled);
    assert_eq!(ended(running).await.unwrap().state(), State::Cancelled);
    assert_eq!(bench.calls.cancel("never").await.unwrap().state(), State::Cancelled);
    drop(bench);
    let bench = open(folder.path(), Recovery::Idempotent).await;
    bench.let_go.add_permits(1);
    let late = ended(bench.order("never", json!({})).unwrap()).await.unwrap();
    assert_eq!(
        (late.state(), bench.runs.load(Ordering::SeqCst)),
        (State::Cancelled, 0),
        "a tombstone outlives the runner"
    );
}

/// B-01: what a lost runner leaves behind is decided by the tool's recovery class, and never guessed.
#[tokio::test]
async fn a_call_that_was_running_when_the_runner_was_lost_is_settled_by_its_class() {
    for (recovery, runs_again) in [(Recovery::Idempotent, true), (Recovery::Manual, false)] {
        let folder = tempfile::tempdir().unwrap();
        let lost = tokio::task::spawn_blocking({
            let path = folder.path().to_owned();
            // A runtime of its own, dropped with everything in it while the call runs: as near to a loss as one process gets.
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let bench = open(&path, recovery).await;
                    drop(bench.order("a", json!({})).unwrap());
                    bench.runs_once().await;
                });
            }
        });
        lost.await.unwrap();
        let bench = open(folder.path(), recovery).await;
        bench.let_go.add_permits(1);
        let end = ended(bench.order("a", json!({})).unwrap()).await.unwrap();
        let expected = if runs_again { (State::Completed, 1) } else { (State::OutcomeUnknown, 0) };
        assert_eq!((end.state(), bench.runs.load(Ordering::SeqCst)), expected, "{recovery:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn arguments_results_and_time_are_held_to_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let bench = open(folder.path(), Recovery::ReadOnly).await;
    let failure = |call: Arc<v1::ToolCall>| call.failure.clone().unwrap().error_class();
    let bad = ended(bench.order("bad", json!({"n": "many"})).unwrap()).await.unwrap();
    assert_eq!(failure(bad), ErrorClass::InvalidArguments);
    let late = ended(bench.order("late", json!({})).unwrap()).await.unwrap();
    assert_eq!((late.state(), failure(late)), (State::TimedOut, ErrorClass::Timeout));
    bench.let_go.add_permits(1);
    let odd = ended(bench.order("odd", json!({"result": "no integer"})).unwrap()).await.unwrap();
    assert_eq!(failure(odd), ErrorClass::InvalidResult);
}
