//! The calls of tools that an execution has made, as clients list them.

use belay_proto::v1::{self, tool_call::State};
use serde_json::json;
use tonic::Code;

use crate::support::*;

/// The fields of a call that the tests compare.
fn brief(call: &v1::ToolCall) -> (String, i32, i32, State, String) {
    let reason = call.failure.as_ref().map(|failure| failure.reason.clone()).unwrap_or_default();
    (call.step_id.clone(), call.attempt, call.operation, call.state(), reason)
}

fn made(step: &str, attempt: i32, operation: i32, state: State, reason: &str) -> (String, i32, i32, State, String) {
    (step.into(), attempt, operation, state, reason.into())
}

// Every attempt's calls are listed with what they failed with and when; also those that were discarded, which use up no attempt.
#[tokio::test]
async fn every_call_of_every_attempt_is_listed() {
    let world = World::new().await;
    let executor = world.executor().await;
    world.runner.set(|seen| {
        seen.conflicts.insert("b".into(), 2);
        seen.results.insert("c".into(), json!({"text": "x".repeat(40_000)}));
    });
    let name = executor.run("a: fails_once; b after a; c after b").await;
    let ended = executor.end(&name).await;
    assert_eq!(ended.state(), v1::execution::State::Completed);
    let all = executor.tool_calls(&name, 0).await.unwrap();
    let expected = [
        made("a", 1, 1, State::Failed, "TOOL_FAILED"),
        made("a", 2, 1, State::Completed, ""),
        made("b", 1, 1, State::Cancelled, "CONFLICT"),
        made("b", 1, 2, State::Cancelled, "CONFLICT"),
        made("b", 1, 3, State::Completed, ""),
        made("c", 1, 1, State::Completed, ""),
    ];
    assert_eq!(all.iter().map(brief).collect::<Vec<_>>(), expected);
    let micros = |time: &Option<pbjson_types::Timestamp>| belay_proto::micros(time.as_ref().unwrap());
    for call in &all {
        assert!(call.name.starts_with(&format!("{name}/steps/{}/calls/", call.step_id)), "{}", call.name);
        assert!(micros(&call.request_time) <= micros(&call.end_time), "{call:?}");
        assert_eq!((call.tool.as_str(), call.approval.as_str()), ("work", ""));
    }
    let large = &all[5];
    assert!(large.result_blob.as_ref().is_some_and(|blob| blob.size_bytes == large.result_bytes));
    assert!(all[1].result_blob.is_none() && all[1].result_bytes > 0, "{:?}", all[1]);

    // Pages of every size are the same list, and so is each step's part of it.
    for page_size in [1, 2, 5, 6, 7] {
        assert_eq!(executor.tool_calls(&name, page_size).await.unwrap(), all, "{page_size}");
    }
    for (step, part) in [("a", &all[..2]), ("b", &all[2..5]), ("c", &all[5..])] {
        for page_size in [1, 0] {
            assert_eq!(executor.tool_calls(&format!("{name}/steps/{step}"), page_size).await.unwrap(), part);
        }
    }

    // They are the same from the journal alone.
    executor.kill().await;
    assert_eq!(world.executor().await.tool_calls(&name, 0).await.unwrap(), all);
}

#[tokio::test]
async fn a_call_that_has_not_ended_says_what_it_waits_for() {
    let world = World::new().await;
    let executor = world.executor().await;
    world.runner.set(|seen| seen.stuck.extend(["b".to_owned()]));
    let name = executor.run("a: effect; b; c after a").await;
    let approval = world.gate.pending_approval("a").await;
    world.runner.until("b is called", |seen| seen.asked_to_run >= 2).await;
    executor
        .until(&name, "its approval is known", |execution| {
            execution.steps.iter().any(|step| !step.approvals.is_empty())
        })
        .await;
    let calls = executor.tool_calls(&name, 1).await.unwrap();
    let mut briefs: Vec<_> = calls.iter().map(brief).collect();
    briefs.sort_by(|a, b| a.0.cmp(&b.0));
    assert_eq!(briefs, [made("a", 1, 1, State::AwaitingApproval, ""), made("b", 1, 1, State::Requested, "")]);
    assert!(calls.iter().all(|call| call.end_time.is_none()));
    let of_a = &executor.tool_calls(&format!("{name}/steps/a"), 0).await.unwrap()[0];
    assert_eq!(of_a.approval, approval.name);
    assert_eq!(executor.tool_calls(&format!("{name}/steps/c"), 0).await.unwrap(), []);

    world.gate.decide(&approval.name, v1::approval::State::Denied, "not now");
    executor
        .until(&name, "a has failed", |execution| {
            execution.steps.iter().any(|step| step.state() == v1::step::State::Failed)
        })
        .await;
    let of_a = executor.tool_calls(&format!("{name}/steps/a"), 0).await.unwrap();
    assert_eq!(of_a.iter().map(brief).collect::<Vec<_>>(), [made("a", 1, 1, State::Denied, "APPROVAL_DENIED")]);
}

#[tokio::test]
async fn a_list_of_calls_that_is_asked_for_wrongly_is_refused_by_field() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a").await;
    executor.end(&name).await;
    let missing = executor.tool_calls(&format!("{name}/steps/b"), 0).await.unwrap_err();
    assert_eq!((missing.code(), missing.message().contains("no step `b`")), (Code::NotFound, true), "{missing}");
    let nobody = executor.tool_calls("namespaces/default/executions/nobody", 0).await.unwrap_err();
    assert_eq!(nobody.code(), Code::NotFound);
    for (parent, page_size, page_token, field) in [
        ("", 0, "", "parent: "),
        ("namespaces/default", 0, "", "parent: "),
        ("namespaces/default/executions/x/steps/", 0, "", "parent: "),
        (&name, -1, "", "page_size: "),
        (&name, 0, "soon", "page_token: "),
    ] {
        let request = v1::ListToolCallsRequest { parent: parent.into(), page_size, page_token: page_token.into() };
        let refused = executor.client.clone().list_tool_calls(request).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().starts_with(field), "{refused}");
    }
}
