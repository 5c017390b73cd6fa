//! The guarantees of every call: its identity, its outcomes, and what the runner remembers of it.

use belay_proto::{
    runner_v1,
    v1::{ErrorClass, tool_call::State},
};
use belay_service_kit::status::fact;
use rusqlite::Connection;
use serde_json::json;
use tonic::Code;

use crate::support::*;

/// S2-FR-058, S2-NFR-007: sending the same name again attaches, running or ended, and the tool runs once.
#[tokio::test]
async fn the_same_call_runs_once_however_often_it_is_sent() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let request = runner.request("a", KEEP, json!([["wait"]]));
    let (first, second) = (runner.spawn(request.clone()), runner.spawn(request.clone()));
    bench.signals.resume.add_permits(5);
    for call in [first, second] {
        assert_eq!(state(&call.await.unwrap().unwrap()), State::Completed);
    }
    let later = runner.call(request.clone()).await.unwrap();
    assert_eq!((state(&later), bench.signals.runs()), (State::Completed, 1));

    let other = runner.call(runner.request("a", KEEP, json!([]))).await.unwrap_err();
    assert_eq!((other.code(), refusal(&other)), (Code::AlreadyExists, "CALL_EXISTS".into()));
    let elsewhere = runner_v1::CallToolRequest { workspace: "/elsewhere".into(), ..request.clone() };
    assert_eq!(
        refusal(&runner.call(elsewhere).await.unwrap_err()),
        "CALL_EXISTS",
        "the workspace is part of the identity"
    );

    runner.acknowledge("a").await;
    assert_eq!(runner.get("a").await.unwrap_err().code(), Code::NotFound, "an acknowledged call is forgotten");
    let late = runner.call(request.clone()).await.unwrap_err();
    assert_eq!(refusal(&late), "CALL_ACKNOWLEDGED", "a late request does not run it again");
    assert_eq!(bench.signals.runs(), 1);

    // An executor with a newer token may have restored its journal from a backup: it does not know of the acknowledgement, so its request
    // runs.
    let anew = runner_v1::CallToolRequest { fence: Some(runner_v1::Fence { shard: 0, token: 1 }), ..request };
    bench.signals.resume.add_permits(1);
    assert_eq!(state(&runner.call(anew).await.unwrap()), State::Completed);
    assert_eq!(bench.signals.runs(), 2);
}

/// B-08: every mutating method rejects a stale owner, also after a restart of the runner.
#[tokio::test]
async fn an_older_fence_is_rejected_also_after_a_restart() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let fence = |token| Some(runner_v1::Fence { shard: 7, token });
    let with =
        |call: &str, token| runner_v1::CallToolRequest { fence: fence(token), ..runner.request(call, LOOK, json!([])) };
    runner.call(with("a", 5)).await.unwrap();
    let other_shard =
        runner_v1::CallToolRequest { fence: Some(runner_v1::Fence { shard: 8, token: 1 }), ..with("b", 0) };
    runner.call(other_shard).await.expect("each shard has its own owner");
    runner.lose().await;

    let runner = bench.start(FREE).await;
    let mut client = runner.client.clone();
    let call = runner_v1::CallToolRequest { fence: fence(4), ..runner.request("c", LOOK, json!([])) };
    let grant = Some(runner_v1::Grant::default());
    let refused = [
        runner.call(call).await.unwrap_err(),
        client
            .cancel_tool_call(runner_v1::CancelToolCallRequest {
                name: name("a"),
                fence: fence(4),
                workspace: bench.workspace().to_str().unwrap().into(),
                ..Default::default()
            })
            .await
            .unwrap_err(),
        client
            .commit_effect(runner_v1::CommitEffectRequest { name: name("a"), grant, fence: fence(4) })
            .await
            .unwrap_err(),
        client
            .discard_effect(runner_v1::DiscardEffectRequest { name: name("a"), fence: fence(4), failure: None })
            .await
            .unwrap_err(),
        client
            .acknowledge_tool_calls(runner_v1::AcknowledgeToolCallsRequest { names: vec![name("a")], fence: fence(4) })
            .await
            .unwrap_err(),
    ];
    for status in refused {
        assert_eq!((refusal(&status), fact(&status, "newest").as_deref()), ("FENCED".into(), Some("5")));
    }
    runner.call(runner_v1::CallToolRequest { fence: fence(6), ..runner.request("d", LOOK, json!([])) }).await.unwrap();
}

#[tokio::test]
async fn a_cancelled_call_ends_and_an_unknown_one_gets_a_tombstone() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let running = runner.spawn(runner.request("running", KEEP, json!([["wait"]])));
    bench.signals.has_run(1).await;
    assert_eq!(state(&runner.cancel("running").await.unwrap()), State::Cancelled);
    assert_eq!(state(&running.await.unwrap().unwrap()), State::Cancelled);
    assert_eq!(state(&runner.cancel("never").await.unwrap()), State::Cancelled);
    runner.lose().await;
    let runner = bench.start(FREE).await;
    let late = runner.run("never", KEEP, json!([])).await;
    assert_eq!((state(&late), bench.signals.runs()), (State::Cancelled, 1), "a tombstone outlives the runner");
}

/// B-01: a canceller that disconnects while the tombstone is written leaves none that has no end.
#[tokio::test]
async fn who_cancels_after_a_canceller_that_disconnected_gets_the_end() {
    let bench = Bench::new();
    bench.start(FREE).await.lose().await;
    // Rows take so long that a client can disconnect while one is written.
    let slow = "CREATE TRIGGER slow BEFORE INSERT ON call BEGIN
                    SELECT count(*) FROM (WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 3000000) SELECT i FROM n);
                END";
    Connection::open(bench.path().join("state/ledger.db")).unwrap().execute_batch(slow).unwrap();
    let runner = bench.start(FREE).await;
    let is_known = async {
        while runner.get("never").await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = runner.cancel("never") => panic!("its tombstone takes longer than a request"),
        () = is_known => {}
    }
    assert_eq!(state(&runner.cancel("never").await.unwrap()), State::Cancelled);
}

/// B-01: after a crash the recovery class of the tool decides; the outcome is never guessed.
#[tokio::test]
async fn a_call_that_was_running_at_a_crash_ends_by_its_recovery_class() {
    for (tool, expected) in [
        (LOOK, (State::Completed, 2)),
        (KEEP, (State::Completed, 2)),
        (CHANGE, (State::Completed, 2)),
        (SEND, (State::OutcomeUnknown, 1)),
    ] {
        let bench = Bench::new();
        let runner = bench.start(FREE).await;
        drop(runner.spawn(runner.request("a", tool, json!([["wait"]]))));
        bench.signals.has_run(1).await;
        runner.lose().await;
        bench.signals.resume.add_permits(1);
        let runner = bench.start(FREE).await;
        let end = runner.run("a", tool, json!([["wait"]])).await;
        assert_eq!((state(&end), bench.signals.runs()), expected, "{tool}");
    }
}

/// S2-FR-029, S2-FR-036, S2-FR-048: what is not valid by the schemas of the tool is neither run nor returned.
#[tokio::test]
async fn arguments_results_and_time_limits_are_enforced() {
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let class = |call: &runner_v1::ToolCall| call.failure.clone().unwrap().error_class();
    let bad = runner.run("bad", KEEP, json!("many")).await;
    assert_eq!((state(&bad), class(&bad)), (State::Failed, ErrorClass::InvalidArguments));
    let odd = runner.run("odd", KEEP, json!([["odd"]])).await;
    assert_eq!(class(&odd), ErrorClass::InvalidResult);
    let broken = runner.run("broken", CHANGE, json!([["panic"]])).await;
    assert_eq!(
        (class(&broken), reason(&broken)),
        (ErrorClass::Internal, "INTERNAL"),
        "a panic of a tool ends its call"
    );
    let timeout = Some(belay_proto::duration(std::time::Duration::from_millis(20)));
    let late = runner_v1::CallToolRequest { timeout, ..runner.request("late", KEEP, json!([["wait"]])) };
    let late = runner.call(late).await.unwrap();
    assert_eq!((state(&late), class(&late)), (State::TimedOut, ErrorClass::Timeout));
}

/// Output is streamed line by line while the call runs. A subscriber continues at any offset; the result comes last.
#[tokio::test]
async fn output_is_streamed_live_and_replayed() {
    use runner_v1::{attach_tool_call_response::Event as Attached, call_tool_response::Event};
    let bench = Bench::new();
    let runner = bench.start(FREE).await;
    let todo = json!([["say", "häl\n"], ["wait"], ["say", "lo\n"], ["wait"]]);
    let mut events = runner.client.clone().call_tool(runner.request("a", KEEP, todo)).await.unwrap().into_inner();
    let mut next = async || events.message().await.unwrap().and_then(|message| message.event);
    assert!(matches!(next().await, Some(Event::Started(started)) if started.name == name("a")));
    let output = |event: Option<Event>| match event {
        Some(Event::Output(chunk)) => (chunk.offset, chunk.text),
        other => panic!("{other:?}"),
    };
    assert_eq!(output(next().await), (0, "häl\n".into()));
    bench.signals.resume.add_permits(1);
    assert_eq!(output(next().await), (5, "lo\n".into()));

    let attach = runner_v1::AttachToolCallRequest { name: name("a"), stdout_offset: 4, stderr_offset: 0 };
    let mut attached = runner.client.clone().attach_tool_call(attach).await.unwrap().into_inner();
    let mut then = async || attached.message().await.unwrap().and_then(|message| message.event);
    assert!(matches!(then().await, Some(Attached::Started(_))));
    assert!(
        matches!(then().await, Some(Attached::Output(chunk)) if (chunk.offset, chunk.text.as_str()) == (4, "\nlo\n"))
    );
    bench.signals.resume.add_permits(1);
    assert!(matches!(next().await, Some(Event::Result(_))));
    assert!(matches!(then().await, Some(Attached::Result(_))));
    assert!(then().await.is_none(), "nothing follows the result");
}
