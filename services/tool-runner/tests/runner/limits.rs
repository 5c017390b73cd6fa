//! How much a runner takes on.

use belay_proto::v1::tool_call::State;
use belay_service_kit::status;
use serde_json::json;
use tonic::Code;

use crate::support::*;

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
