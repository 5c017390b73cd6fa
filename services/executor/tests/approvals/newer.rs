//! Replies of services that are newer than the executor.

use belay_proto::{
    runner_v1,
    v1::{self, approval::State, payload::Content},
};
use serde_json::json;

use crate::support::{World, kinds};

type Change = fn(&mut runner_v1::ToolCall);

/// B-21: nothing follows from a reply with what the executor does not know. It was read as the nearest value that it knows: a blob as `null`, an
/// unknown state as a failure, an unknown verdict as a denial.
#[tokio::test]
async fn nothing_follows_from_a_reply_that_the_executor_does_not_understand() {
    let world = World::new().await;
    let executor = world.executor().await;
    let replies: [(&str, Change); 6] = [
        ("work", |call| {
            let blob = v1::BlobRef { digest: "sha256:x".into(), size_bytes: 1, ..Default::default() };
            call.result = Some(v1::Payload { content: Some(Content::Blob(blob)) });
        }),
        ("work", |call| call.result = Some(v1::Payload::default())),
        ("work", |call| call.state = 99),
        ("work", |call| call.receipt.get_or_insert_default().decision.get_or_insert_default().verdict = 99),
        ("effect", |call| call.approval_need.as_mut().expect("it is held").kind = 99),
        ("effect", |call| {
            let need = call.approval_need.as_mut().expect("it is held");
            need.effect.get_or_insert_default().changes[0].kind = 99;
        }),
    ];
    for (number, (does, newer)) in replies.into_iter().enumerate() {
        world.runner.set(|seen| (seen.asked_to_run, seen.newer_reply) = (0, Some(newer)));
        let name = executor.run(&format!("a: {does} r{number}")).await;
        world.runner.until("the call is sent again", |seen| seen.asked_to_run >= 3).await;
        let waiting = executor.get(&name).await.unwrap();
        let step = &waiting.steps[0];
        assert_eq!(step.state(), v1::step::State::Running, "reply {number}: {waiting:?}");

        world.runner.set(|seen| seen.newer_reply = None);
        if does == "effect" {
            let approval = world.gate.pending_approval("a").await;
            world.gate.decide(&approval.name, State::Approved, "");
        }
        let events = executor.events(&name).await;
        assert_eq!(kinds(&events).last().map(String::as_str), Some("executionFinished"));
        let ended = executor.get(&name).await.unwrap();
        assert_eq!(ended.state(), v1::execution::State::Completed, "reply {number}");
        let step = executor.step(&name, "a").await.unwrap();
        let Some(Content::Json(result)) = step.output.and_then(|output| output.content) else {
            panic!("reply {number}: {ended:?}")
        };
        assert_eq!(serde_json::from_str::<serde_json::Value>(&result).unwrap(), json!({"done": true}));
    }
}

/// B-21: an approval in a state that the executor does not know was pending for it.
#[tokio::test]
async fn nothing_follows_from_an_approval_that_the_executor_does_not_understand() {
    let world = World::new().await;
    let executor = world.executor().await;
    world.gate.set(|seen| seen.newer_state = Some(99));
    let name = executor.run("a: effect").await;
    world.gate.until("the approval is asked for again", |seen| seen.created >= 3).await;
    let waiting = executor.get(&name).await.unwrap();
    assert!(waiting.steps[0].approvals.is_empty(), "{waiting:?}");
    world.gate.set(|seen| seen.newer_state = None);
    let approval = world.gate.pending_approval("a").await;
    executor.until(&name, "the approval", |execution| execution.steps[0].approvals == [approval.name.as_str()]).await;
    world.gate.approve(&approval.name);
    executor.assert_completes(&name).await;
}
