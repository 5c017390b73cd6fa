//! The limits of a runner.

use std::{sync::Arc, time::Duration};

use belay_proto::v1::tool_call::State;
use belay_service_kit::status;
use belay_tool_runner::{View, WorkspaceDirectory};
use belay_workspace::{EffectError, Manifest, Stop};
use serde_json::json;
use tokio::sync::watch;
use tonic::Code;

use crate::{
    hooks::{HookedDirectories, Hooks},
    support::*,
};

#[tokio::test]
async fn a_runner_rejects_calls_beyond_its_limit_and_keeps_nothing_of_them() {
    let mut bench = Bench::new();
    bench.max_calls = 2;
    let runner = bench.start(FREE).await;
    let wait = |call: &str| runner.request(call, CHANGE, json!([["wait"], ["write", call, "x"]]));
    let running = [runner.spawn(wait("a")), runner.spawn(wait("b"))];
    bench.signals.has_run(2).await;

    let refused = runner.call(wait("c")).await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused)), (Code::ResourceExhausted, "LIMIT_REACHED".to_owned()));
    assert_eq!(status::fact(&refused, "limit").as_deref(), Some("services.runner.calls"));
    assert!(status::retry_after(&refused).is_some_and(|delay| !delay.is_zero()), "{refused:?}");
    assert_eq!(refusal(&runner.get("c").await.unwrap_err()), "CALL_NOT_FOUND");

    // Attaching and cancelling are never limited.
    let attached = runner.spawn(wait("a"));
    assert_eq!(state(&runner.cancel("b").await.unwrap()), State::Cancelled);
    let admitted = runner.spawn(wait("c"));
    bench.signals.has_run(3).await;
    bench.signals.resume.add_permits(3);
    let [a, b] = running;
    for (call, ended) in
        [(a, State::Completed), (b, State::Cancelled), (attached, State::Completed), (admitted, State::Completed)]
    {
        assert_eq!(state(&call.await.unwrap().unwrap()), ended);
    }
}

/// Examines effects until it is stopped.
#[derive(Clone)]
struct Thorough(Arc<watch::Sender<usize>>);

impl Hooks for Thorough {
    fn effect(&self, place: &dyn WorkspaceDirectory, view: &dyn View, stop: Stop<'_>) -> Result<Manifest, EffectError> {
        self.0.send_modify(|begun| *begun += 1);
        while !stop() {
            std::thread::yield_now();
        }
        place.effect(view, stop)
    }
}

/// An endless examination ends with the time limit or the cancellation of its call, and leaves no trace.
#[tokio::test]
async fn examining_an_effect_obeys_the_time_limit_and_cancellation() {
    let begun = Arc::new(watch::Sender::new(0));
    let mut bench = Bench::new();
    bench.directories = Arc::new(HookedDirectories(Thorough(Arc::clone(&begun))));
    let runner = bench.start(FREE).await;
    let before = bench.tree();
    let todo = || json!([["say", "hello"], ["write", "new", "x"]]);
    let mut limited = runner.request("late", CHANGE, todo());
    // So long that the command has ended before, on a busy machine too.
    limited.timeout = Some(belay_proto::duration(Duration::from_secs(2)));
    let late = runner.call(limited).await.unwrap();
    assert_eq!((state(&late), reason(&late)), (State::TimedOut, "TIMEOUT"));
    assert_eq!(*begun.borrow(), 1, "it was the examination that took too long");
    let failure = late.failure.unwrap();
    assert!(failure.message.contains("2s") && failure.message.contains("`attempt_timeout`"), "{failure:?}");
    assert_eq!(failure.last_output.unwrap().stdout, "hello", "its output is kept");

    let cancelled = runner.spawn(runner.request("cancelled", CHANGE, todo()));
    begun.subscribe().wait_for(|begun| *begun == 2).await.unwrap();
    assert_eq!(state(&runner.cancel("cancelled").await.unwrap()), State::Cancelled);
    assert_eq!(state(&cancelled.await.unwrap().unwrap()), State::Cancelled);
    assert_eq!(bench.tree(), before);
    bench.cleared().await;
}

#[tokio::test]
async fn a_refused_effect_keeps_the_calls_output() {
    let bench = Bench::new();
    let policy = "file_write: auto\nrules: [{id: no, on: effect, paths: [secret], decide: deny}]\n";
    let runner = bench.start(policy).await;
    let refused = runner.run("a", CHANGE, json!([["say", "hello"], ["write", "secret", "x"]])).await;
    assert_eq!((state(&refused), reason(&refused)), (State::Denied, "POLICY_DENIED"));
    assert_eq!(refused.failure.unwrap().last_output.unwrap().stdout, "hello");
}
