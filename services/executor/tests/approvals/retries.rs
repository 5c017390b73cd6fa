//! Executions that continue after their end, steps that are changed by hand, and plans that change.

use belay_proto::v1::{self, execution::State, execution_event::Kind, step};
use serde_json::json;

use belay_service_kit::status;
use tonic::Status;

use crate::support::World;

fn refusal<T: std::fmt::Debug>(answer: Result<T, Status>) -> (String, String) {
    let status = answer.unwrap_err();
    (status::reason(&status).unwrap_or_default(), status.message().to_owned())
}

fn document(text: &str) -> Option<v1::PlanDocument> {
    Some(v1::PlanDocument { text: text.into(), ..Default::default() })
}

const PLAN: &str = "id: p\nsteps:\n- {id: a, tool: work}\n- {id: b, tool: work, depends_on: [a]}\n- {id: c, tool: work, depends_on: [b]}\n";

/// An execution fails, continues after its end without repeating what has completed, also after a restart and with another plan; waiting requests and
/// watches see its second end.
#[tokio::test]
async fn an_execution_goes_on_after_its_end() {
    let world = World::new().await;
    world.runner.set(|seen| drop(seen.failures.insert("b".into(), "BROKEN".into())));
    let executor = world.executor().await;
    let name = executor.run("a; b after a; c after b").await;
    assert_eq!(executor.end(&name).await.state(), State::Partial);
    executor.kill().await;

    let executor = world.executor().await;
    let mut client = executor.client.clone();
    let listed =
        client.list_executions(v1::ListExecutionsRequest { parent: "namespaces/default".into(), ..Default::default() });
    assert!(listed.await.unwrap().into_inner().executions[0].end_time.is_some(), "a reader is shown its end");
    world.runner.set(|seen| seen.failures.clear());
    let request = v1::RetryExecutionRequest {
        name: name.clone(),
        reason: "mended".into(),
        request_id: "r".into(),
        ..Default::default()
    };
    let gone_on = client.retry_execution(request.clone()).await.unwrap().into_inner();
    assert!(gone_on.end_time.is_none() && gone_on.failure.is_none(), "{gone_on:?}");
    client.retry_execution(request.clone()).await.expect("the same again changes nothing");
    let wait = v1::WaitExecutionRequest { name: name.clone(), ..Default::default() };
    let ended = client.wait_execution(wait).await.unwrap().into_inner();
    assert_eq!(ended.state(), State::Completed);
    assert_eq!(executor.end(&name).await.state(), State::Completed, "a watch goes past the first end");
    let other = v1::RetryExecutionRequest { from_step: "a".into(), ..request };
    assert_eq!(refusal(client.retry_execution(other.clone()).await).0, "REQUEST_ID_REUSED");
    let nothing = v1::RetryExecutionRequest { name: name.clone(), ..Default::default() };
    assert_eq!(refusal(client.retry_execution(nothing).await).0, "NOTHING_TO_RETRY");

    let worked = world.runner.seen().worked;
    let of = |step: &str| worked.iter().filter(|call| call.contains(&format!("/steps/{step}/"))).count();
    assert_eq!((of("a"), of("b"), of("c")), (1, 2, 1), "{worked:?}");
    let events = executor.events(&name).await;
    let ends = events.iter().filter(|event| matches!(event.kind, Some(Kind::ExecutionFinished(_)))).count();
    let retried = events.iter().find_map(|event| match &event.kind {
        Some(Kind::ExecutionRetried(retried)) => Some((event.actor.clone().unwrap(), retried.clone())),
        _ => None,
    });
    let (actor, retried) = retried.unwrap();
    assert_eq!((ends, retried.step_ids.join(" "), retried.reason.as_str()), (2, "b c".to_owned(), "mended"));
    assert!(!actor.principal.is_empty() && actor.request_id == "r");
    assert_eq!(executor.step(&name, "b").await.unwrap().failed_attempts.len(), 1, "what was tried before is kept");
}

/// The plan changes while the execution waits, and after its end; what has run stays as it is. A restart finds the plan that was made of it.
#[tokio::test]
async fn a_plan_changes_and_survives_a_restart() {
    let world = World::new().await;
    world.runner.set(|seen| drop(seen.failures.insert("b".into(), "BROKEN".into())));
    let executor = world.executor().await;
    let mut client = executor.client.clone();
    let start = v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        source: Some(v1::start_execution_request::Source::Document(document(PLAN).unwrap())),
        ..Default::default()
    };
    let name = client.start_execution(start).await.unwrap().into_inner().name;
    executor.end(&name).await;
    let update = |text: &str, revision: Option<i32>| v1::UpdatePlanRequest {
        name: name.clone(),
        source: document(text).map(v1::update_plan_request::Source::Document),
        revision,
        ..Default::default()
    };
    assert_eq!(refusal(client.update_plan(update(PLAN, None)).await).0, "EXECUTION_ENDED");

    let changed = PLAN.replace("{id: a, tool: work}", "{id: a, tool: work, title: other}");
    let retry = |text: &str| v1::RetryExecutionRequest {
        name: name.clone(),
        document: document(text),
        start_paused: true,
        ..Default::default()
    };
    let (reason, message) = refusal(client.retry_execution(retry(&changed)).await);
    assert!(
        reason == "PLAN_REFUSED" && message.contains("step `a` has started or ended, and cannot change"),
        "{message}"
    );
    let (reason, message) = refusal(client.retry_execution(retry("id: p\nsteps: [{id: a, tool: none}]")).await);
    assert!(reason == "PLAN_REFUSED" && message.contains("Tool 'none' not found"), "{message}");
    let unchanged = executor.end(&name).await;
    assert_eq!((unchanged.state(), unchanged.plan_revision), (State::Partial, 0), "nothing has changed");

    let without_c =
        PLAN.replace("- {id: c, tool: work, depends_on: [b]}\n", "- {id: d, tool: work, depends_on: [b]}\n");
    let paused = client.retry_execution(retry(&without_c)).await.unwrap().into_inner();
    assert_eq!((paused.state(), paused.plan_revision), (State::Paused, 1));
    assert_eq!(refusal(client.update_plan(update(PLAN, Some(0))).await).0, "PLAN_REVISION_MISMATCH");
    executor.kill().await;

    let executor = world.executor().await;
    let mut client = executor.client.clone();
    let more = format!("{without_c}- {{id: e, tool: work, depends_on: [d]}}\n");
    client.update_plan(update(&more, Some(1))).await.unwrap();
    let output = v1::SetStepOutputRequest {
        name: format!("{name}/steps/b"),
        output: Some(v1::Payload::of_json(r#"{"n": 7}"#)),
        reason: "by hand".into(),
        ..Default::default()
    };
    client.set_step_output(output).await.unwrap();
    let skip = v1::SkipStepRequest { name: format!("{name}/steps/d"), ..Default::default() };
    client.skip_step(skip.clone()).await.unwrap();
    let (reason, message) = refusal(client.skip_step(skip).await);
    assert!(
        reason == "WRONG_STATE" && message.contains("The step is SKIPPED: only one that has not started"),
        "{message}"
    );
    client.resume_execution(v1::ResumeExecutionRequest { name: name.clone(), ..Default::default() }).await.unwrap();
    assert_eq!(executor.end(&name).await.state(), State::Completed);
    assert_eq!(executor.output(&name, "b").await, json!({"n": 7}));
    let state = async |id: &str| executor.step(&name, id).await.unwrap().state();
    assert_eq!(state("c").await, step::State::Skipped);
    assert_eq!((state("d").await, state("e").await), (step::State::Skipped, step::State::Completed));
    let worked = world.runner.seen().worked;
    assert_eq!(worked.iter().filter(|call| call.contains("/steps/b/")).count(), 1, "{worked:?}");
    assert_eq!(worked.iter().filter(|call| call.contains("/steps/e/")).count(), 1, "{worked:?}");
}
