//! Checks when an execution starts, and values that are passed on.

use std::sync::Arc;

use belay_defects::{Defect, assert_attack_needs};
use belay_proto::v1;
use belay_service_kit::{Access, Clock as _, Principal, Role, Shutdown, SystemClock, host, net};
use tonic::{Code, Request};

use crate::{
    memory::inside,
    support::{Executor, World, plan},
};

// The workspace is checked before anything exists, and kept as the runner knows it.
#[tokio::test]
async fn a_workspace_is_checked_at_the_runner() {
    let world = World::new().await;
    let executor = world.executor().await;
    let start = |workspace: &str| {
        let request = v1::StartExecutionRequest { workspace: workspace.to_owned(), ..plan("a") };
        let mut client = executor.client.clone();
        async move { client.start_execution(request).await }
    };
    let refused = start("/nowhere").await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert_eq!(refused.message(), "workspace: there is no folder /nowhere");
    let listed = executor
        .client
        .clone()
        .list_executions(v1::ListExecutionsRequest { parent: "namespaces/default".to_owned(), ..Default::default() })
        .await
        .unwrap();
    assert!(listed.into_inner().executions.is_empty());
    assert_eq!(start("/link").await.unwrap().into_inner().workspace, "/real");
}

/// B-19, S2-X-18: that the policy approves is for those to choose who may approve.
#[test]
fn a_planner_cannot_have_the_policy_approve() {
    assert_attack_needs(Defect::AutoForEveryone, "a planner has the policy approve", || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(start_with_auto_as_a_planner())
    });
}

async fn start_with_auto_as_a_planner() -> Result<(), String> {
    let world = World::new().await;
    let inside = inside(&world).await;
    // Served by this thread, which may have the defect.
    let socket = world.folder.path().join("for-planner");
    let incoming = net::UnixSocket::bind(&socket).unwrap().incoming();
    let (_trigger, shutdown) = Shutdown::new();
    let callers = Access::Unauthenticated(Principal::person("bot", [Role::Planner]));
    tokio::spawn(host::serve(incoming, belay_executor::hosted(Arc::clone(&inside.executions)), callers, shutdown));
    let mut client = Executor::at(&net::Address::Unix(socket)).client;
    client.start_execution(plan("a")).await.expect("a planner starts what asks");
    let request = v1::StartExecutionRequest { approval_mode: v1::ApprovalMode::Auto.into(), ..plan("b") };
    let answer = client.start_execution(request).await;
    inside.stop();
    match answer {
        Ok(started) => Err(format!("a planner has the policy approve in {}", started.into_inner().name)),
        Err(refused) => {
            assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}");
            assert!(refused.message().contains("AUTO"), "{refused:?}");
            Ok(())
        }
    }
}

// B-11: a call belongs to the trace that its execution was started in.
#[tokio::test]
async fn calls_carry_the_trace_of_their_execution() {
    let world = World::new().await;
    let executor = world.executor().await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let mut request = Request::new(plan("a"));
    request.metadata_mut().insert("traceparent", trace.parse().unwrap());
    let name = executor.client.clone().start_execution(request).await.unwrap().into_inner().name;
    executor.end(&name).await;
    assert_eq!(Vec::from_iter(world.runner.seen().traces), [trace]);
}

/// A start that names no namespace is refused, and so is the check of a plan: neither guesses one.
#[tokio::test]
async fn a_start_names_its_namespace() {
    let world = World::new().await;
    let executor = world.executor().await;
    let mut client = executor.client.clone();
    for parent in ["", "default", "namespaces/", "namespaces/A"] {
        let start = v1::StartExecutionRequest { parent: parent.to_owned(), ..plan("a") };
        let document = v1::PlanDocument { text: "id: p".into(), ..Default::default() };
        let source = Some(v1::validate_plan_request::Source::Document(document));
        let check = v1::ValidatePlanRequest { parent: parent.to_owned(), source };
        let refused = [
            client.start_execution(start).await.map(drop).unwrap_err(),
            client.validate_plan(check).await.map(drop).unwrap_err(),
        ];
        for status in refused {
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
            assert!(status.message().starts_with("parent: "), "{status}");
        }
    }
}

// B-15: who changes what they have not seen is told so; a repetition of a request is none.
#[tokio::test]
async fn a_control_changes_only_what_its_caller_has_seen() {
    let world = World::new().await;
    let executor = world.executor().await;
    let name = executor.run("a: prompt_call").await;
    let seen = executor.until_awaiting_approval(&name).await.etag;
    let pause = |etag: &str, request_id: &str| {
        let (mut client, name) = (executor.client.clone(), name.clone());
        let (etag, request_id) = (etag.to_owned(), request_id.to_owned());
        let request = v1::PauseExecutionRequest { name, etag, request_id, ..Default::default() };
        async move { client.pause_execution(request).await.map(tonic::Response::into_inner) }
    };
    let refused = pause("\"1\"", "once").await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    assert!(refused.message().contains(&format!("its etag is {seen}, not \"1\"")), "{refused}");
    let paused = pause(&seen, "once").await.unwrap();
    assert_eq!(paused.state(), v1::execution::State::Paused);
    assert_ne!(paused.etag, seen);
    assert_eq!(pause(&seen, "once").await.unwrap().etag, paused.etag, "the same request again");
    assert_eq!(pause(&seen, "twice").await.unwrap_err().code(), Code::Aborted);
}

/// S4-02, S3-01: templates and conditions read the values that an execution was started with, or the defaults of its plan; a restart keeps them.
#[tokio::test]
async fn inputs_reach_the_steps() {
    let world = World::new().await;
    let executor = world.executor().await;
    let mut client = executor.client.clone();
    let text = "id: p\ninputs: {count: {schema: {type: integer}}, who: {default: world}, go: {default: true}}\n\
                steps:\n- {id: a, tool: work, condition: '${inputs.go}', arguments: {n: '${inputs.count}', say: 'hello ${inputs.who}'}}\n";
    let start = |inputs: Option<&str>| v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        source: Some(v1::start_execution_request::Source::Document(v1::PlanDocument {
            text: text.into(),
            ..Default::default()
        })),
        inputs: inputs.map(v1::Payload::of_json),
        start_paused: true,
        ..Default::default()
    };
    for (inputs, said) in [
        (None, "inputs.count: is required"),
        (Some(r#"{"count": "many"}"#), "inputs.count: "),
        (Some(r#"{"count": 1, "hwo": 2}"#), "inputs.hwo: the plan declares no such input; did you mean `who`?"),
        (Some("[]"), "inputs: must be a JSON object"),
    ] {
        let refused = client.start_execution(start(inputs)).await.unwrap_err();
        assert!(refused.message().contains(said), "{}", refused.message());
    }
    let name = client.start_execution(start(Some(r#"{"count": "12"}"#))).await.unwrap().into_inner().name;
    executor.kill().await;
    let executor = world.executor().await;
    executor.resume(&name).await;
    executor.assert_completes(&name).await;
    let arguments = world.runner.seen().arguments.into_values().next().unwrap();
    assert_eq!(arguments, serde_json::json!({"n": 12, "say": "hello world"}));
    let shown = executor.get(&name).await.unwrap().inputs.unwrap();
    assert_eq!(shown.as_json(), Some(r#"{"count":12,"go":true,"who":"world"}"#));
}

/// A condition of the first step is evaluated like every other, also where it reads nothing.
#[tokio::test]
async fn a_first_step_can_have_a_condition() {
    let world = World::new().await;
    let executor = world.executor().await;
    let text = "id: p\nsteps:\n- {id: a, tool: work, condition: '1 > 2'}\n- {id: b, tool: work, condition: '2 > 1'}\n";
    let request = v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        source: Some(v1::start_execution_request::Source::Document(v1::PlanDocument {
            text: text.into(),
            ..Default::default()
        })),
        ..Default::default()
    };
    let name = executor.client.clone().start_execution(request).await.unwrap().into_inner().name;
    executor.assert_completes(&name).await;
    let steps = executor.get(&name).await.unwrap().steps;
    let states: Vec<_> = steps.iter().map(v1::Step::state).collect();
    assert_eq!(states, [v1::step::State::Skipped, v1::step::State::Completed]);
}

/// An execution with a start time waits for it, in memory or not, and its time limit counts from then on.
#[tokio::test]
async fn an_execution_starts_at_its_time() {
    let world = World::new().await;
    let executor = world.executor().await;
    let mut client = executor.client.clone();
    let at = SystemClock.now_micros() + 800_000;
    let request = v1::StartExecutionRequest { start_time: Some(belay_proto::timestamp(at)), ..plan("a") };
    let waiting = client.start_execution(request).await.unwrap().into_inner();
    assert_eq!(waiting.state(), v1::execution::State::Pending);
    assert_eq!(waiting.waiting[0].kind(), v1::waiting_reason::Kind::Time);
    assert_eq!(waiting.waiting[0].until_time, Some(belay_proto::timestamp(at)));
    executor.kill().await;
    let executor = world.executor().await;
    executor.assert_completes(&waiting.name).await;
    let ended = executor.summary(&waiting.name).await;
    assert!(belay_proto::micros(&ended.start_time.unwrap()) >= at, "{ended:?}");
    let far = v1::StartExecutionRequest { start_time: Some(belay_proto::timestamp(i64::MAX / 2)), ..plan("a") };
    let refused = executor.client.clone().start_execution(far).await.unwrap_err();
    assert!(refused.message().contains("start_time: must be at most 365 days"), "{}", refused.message());
}
