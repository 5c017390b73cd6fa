//! How much a runner takes on.

use std::{sync::Arc, time::Duration};

use belay_proto::v1::tool_call::State;
use belay_service_kit::status;
use belay_tool_runner::{Place, View};
use belay_workspace::{EffectError, Manifest, Stop};
use serde_json::json;
use tokio::sync::watch;
use tonic::Code;

use crate::{
    places::{Hand, InHand},
    support::*,
};

#[tokio::test]
async fn a_runner_takes_on_as_many_calls_as_it_may_and_keeps_nothing_of_any_other() {
    let mut bench = Bench::new();
    bench.max_calls = 2;
    let runner = bench.start(FREE).await;
    let wait = |call: &str| runner.request(call, CHANGE, json!([["wait"], ["write", call, "x"]]));
    let running = [runner.spawn(wait("a")), runner.spawn(wait("b"))];
    bench.stage.has_run(2).await;

    let refused = runner.call(wait("c")).await.unwrap_err();
    assert_eq!((refused.code(), refusal(&refused)), (Code::ResourceExhausted, "LIMIT_REACHED".to_owned()));
    assert_eq!(status::fact(&refused, "limit").as_deref(), Some("services.runner.calls"));
    assert!(status::retry_after(&refused).is_some_and(|delay| !delay.is_zero()), "{refused:?}");
    assert_eq!(refusal(&runner.get("c").await.unwrap_err()), "CALL_NOT_FOUND");

    // One that is there is attached to, and what decides about calls is always heard.
    let attached = runner.spawn(wait("a"));
    assert_eq!(state(&runner.cancel("b").await.unwrap()), State::Cancelled);
    let taken_on = runner.spawn(wait("c"));
    bench.stage.has_run(3).await;
    bench.stage.let_go.add_permits(3);
    let [a, b] = running;
    for (call, ended) in
        [(a, State::Completed), (b, State::Cancelled), (attached, State::Completed), (taken_on, State::Completed)]
    {
        assert_eq!(state(&call.await.unwrap().unwrap()), ended);
    }
}

/// Looks at effects for as long as it may.
#[derive(Clone)]
struct Thorough(Arc<watch::Sender<usize>>);

impl Hand for Thorough {
    fn effect(&self, place: &dyn Place, view: &dyn View, stop: Stop<'_>) -> Result<Manifest, EffectError> {
        self.0.send_modify(|begun| *begun += 1);
        while !stop() {
            std::thread::yield_now();
        }
        place.effect(view, stop)
    }
}

/// An effect that takes for ever to examine ends with its call's time, or when the call is cancelled, and nothing of it is left.
#[tokio::test]
async fn examining_an_effect_obeys_the_time_limit_and_cancellation() {
    let begun = Arc::new(watch::Sender::new(0));
    let mut bench = Bench::new();
    bench.places = Arc::new(InHand(Thorough(Arc::clone(&begun))));
    let runner = bench.start(FREE).await;
    let before = bench.tree();
    let todo = || json!([["say", "hello"], ["write", "new", "x"]]);
    let mut limited = runner.request("late", CHANGE, todo());
    limited.timeout = Some(belay_proto::duration(Duration::from_millis(50)));
    let late = runner.call(limited).await.unwrap();
    assert_eq!((state(&late), reason(&late)), (State::TimedOut, "TIMEOUT"));
    let failure = late.failure.unwrap();
    assert!(failure.message.contains("50ms") && failure.message.contains("`attempt_timeout`"), "{failure:?}");
    assert_eq!(failure.last_output.unwrap().stdout, "hello", "what it printed is kept");

    let cancelled = runner.spawn(runner.request("cancelled", CHANGE, todo()));
    begun.subscribe().wait_for(|begun| *begun == 2).await.unwrap();
    assert_eq!(state(&runner.cancel("cancelled").await.unwrap()), State::Cancelled);
    assert_eq!(state(&cancelled.await.unwrap().unwrap()), State::Cancelled);
    assert_eq!(bench.tree(), before);
    bench.cleared().await;
}

/// What a call printed is kept when its effect is refused after it.
#[tokio::test]
async fn a_refused_effect_keeps_the_calls_output() {
    let bench = Bench::new();
    let policy = "file_write: auto\nrules: [{id: no, on: effect, paths: [secret], decide: deny}]\n";
    let runner = bench.start(policy).await;
    let refused = runner.run("a", CHANGE, json!([["say", "hello"], ["write", "secret", "x"]])).await;
    assert_eq!((state(&refused), reason(&refused)), (State::Denied, "POLICY_DENIED"));
    assert_eq!(refused.failure.unwrap().last_output.unwrap().stdout, "hello");
}
