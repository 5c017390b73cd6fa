//! Requests to start, list, pause and cancel executions.

use belay_e2e::{
    Client, Service, Services,
    client::{name, retry},
};
use belay_proto::v1::{
    self, execution::State, execution_event::Kind, start_execution_request::Source, step::State as Step,
};
use tonic::Code;

const SLOW: &str = "
id: slow
steps:
  - {id: a, tool: noop, arguments: {sleep_ms: 600000}}
  - {id: b, tool: noop}
";

fn list() -> v1::ListExecutionsRequest {
    v1::ListExecutionsRequest { parent: "namespaces/default".to_owned(), ..Default::default() }
}

fn start(id: &str, request_id: &str, plan: &str) -> v1::StartExecutionRequest {
    let document = v1::PlanDocument { format: v1::PlanFormat::Yaml.into(), text: plan.into() };
    v1::StartExecutionRequest {
        parent: "namespaces/default".into(),
        execution_id: id.into(),
        request_id: request_id.into(),
        source: Some(Source::Document(document)),
        ..v1::StartExecutionRequest::default()
    }
}

/// B-15: starting twice with one request id yields one execution.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_id_starts_one_execution() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let first = client.raw().start_execution(start("", "once", SLOW)).await.unwrap().into_inner();
    let again = client.raw().start_execution(start("", "once", SLOW)).await.unwrap().into_inner();
    assert_eq!(first.uid, again.uid);
    services.restart(Service::Executor).await;
    let later = retry(|| async { client.raw().start_execution(start("", "once", SLOW)).await }).await.unwrap();
    assert_eq!(first.uid, later.uid, "also after a restart");

    let other =
        client.raw().start_execution(start("", "once", "{id: other, steps: [{id: a, tool: noop}]}")).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    let id = first.name.rsplit('/').next().unwrap();
    let taken = client.raw().start_execution(start(id, "", SLOW)).await.unwrap_err();
    assert_eq!(taken.code(), Code::AlreadyExists);
    assert!(taken.message().contains(id), "{}", taken.message());
    let listed = client.raw().list_executions(list()).await.unwrap().into_inner();
    assert_eq!(listed.executions.len(), 1);
}

/// S4-27: a cancelled execution stops its running call, skips the rest, and ends CANCELLED.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelling_stops_what_runs_and_skips_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("slow", SLOW).await;
    let cancel = v1::CancelExecutionRequest {
        name: name("slow"),
        reason: "enough".into(),
        request_id: "c".into(),
        ..Default::default()
    };
    client.raw().cancel_execution(cancel.clone()).await.unwrap();
    let picture = client.watch_to_the_end("slow").await;
    assert_eq!(picture.state(), Some(State::Cancelled));
    assert_eq!(picture.count(|kind| matches!(kind, Kind::ToolCallCancelled(_))), 1);
    let execution = client.get("slow").await;
    picture.assert_equals(&execution);
    assert_eq!(execution.steps[0].state(), Step::Cancelled);
    assert_eq!(execution.steps[1].state(), Step::Skipped);
    assert_eq!(execution.steps[1].skip_reason(), v1::SkipReason::Cancelled);

    client.raw().cancel_execution(cancel).await.expect("the same request again is answered, not refused");
    // The same id for something else is an error, not a silence.
    let pause = v1::PauseExecutionRequest { name: name("slow"), request_id: "c".into(), ..Default::default() };
    assert_eq!(client.raw().pause_execution(pause).await.unwrap_err().code(), Code::AlreadyExists);
    let another = v1::CancelExecutionRequest { name: name("slow"), ..Default::default() };
    let status = client.raw().cancel_execution(another).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "what has ended cannot be cancelled");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_that_discards_calls_burns_no_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "{id: p, steps: [{id: a, tool: noop, arguments: {sleep_ms: 1500, output: done}}]}";
    let started = client.start("p", plan).await;
    let stale = v1::PauseExecutionRequest { name: name("p"), etag: "old".into(), ..Default::default() };
    assert_eq!(client.raw().pause_execution(stale).await.unwrap_err().code(), Code::Aborted);
    let pause =
        v1::PauseExecutionRequest { name: name("p"), etag: started.etag, discard_calls: true, ..Default::default() };
    let paused = client.raw().pause_execution(pause).await.unwrap().into_inner();
    assert_eq!(paused.state(), State::Paused);
    assert_eq!(paused.waiting[0].kind(), v1::waiting_reason::Kind::Resume);
    client.raw().resume_execution(v1::ResumeExecutionRequest { name: name("p"), ..Default::default() }).await.unwrap();
    let picture = client.watch_to_the_end("p").await;
    let calls: Vec<(i32, i32)> = picture
        .events()
        .iter()
        .filter(|event| matches!(event.kind, Some(Kind::ToolCallRequested(_))))
        .map(|event| (event.attempt, event.operation))
        .collect();
    assert_eq!(calls, [(1, 1), (1, 2)]);
    let execution = client.get("p").await;
    assert_eq!((execution.state(), execution.steps[0].attempt), (State::Completed, 1));
    picture.assert_equals(&execution);
}

/// S4-26, S2-FR-048: a call that exceeds its time limit is stopped, and an execution that exceeds its own ends TIMED_OUT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_limits_end_calls_and_executions() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client
        .start("late", "{id: late, timeout: 300ms, steps: [{id: a, tool: noop, arguments: {sleep_ms: 600000}}]}")
        .await;
    let step = "{id: a, tool: noop, attempt_timeout: 50ms, arguments: {sleep_ms: 600000}, retry: {max_attempts: 2, backoff: [10ms]}}";
    client.start("attempts", &format!("{{id: attempts, steps: [{step}]}}")).await;

    assert_eq!(client.watch_to_the_end("late").await.state(), Some(State::TimedOut));
    assert_eq!(client.watch_to_the_end("attempts").await.state(), Some(State::Failed));
    let execution = client.get("attempts").await;
    assert_eq!(execution.steps[0].attempt, 2);
    assert_eq!(execution.failure.unwrap().error_class(), v1::ErrorClass::Timeout);
}

/// S2-FR-003, S2-FR-004, S2-FR-031, S2-FR-032, S2-FR-034, S2-X-03, S2-X-31, S4-17: all steps are processed, results flow, and a success hands over to the verifier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outputs_flow_from_step_to_step() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "
        id: flow
        steps:
          - {id: last, tool: noop, arguments: {output: ['${first.result.big}', 'is ${first.result.big}']}}
          - {id: first, tool: noop, arguments: {output: {big: 9007199254740993}}}
    ";
    client.start("flow", plan).await;
    let picture = client.watch_to_the_end("flow").await;
    let execution = client.get("flow").await;
    picture.assert_equals(&execution);
    let Some(v1::payload::Content::Json(output)) = client.steps("flow").await[0].output.clone().unwrap().content else {
        panic!("inline")
    };
    assert_eq!(output, r#"[9007199254740993,"is 9007199254740993"]"#);
    let finished = picture.events().last().unwrap().kind.clone();
    let Some(Kind::ExecutionFinished(finished)) = finished else { panic!("the last event is the end") };
    assert_eq!(finished.next_stage, "verifier");
    assert_eq!(finished.totals.unwrap().completed, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_paged_and_filtered() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    for n in 0..5 {
        let mut request = start(&format!("e{n}"), "", "{id: quick, steps: [{id: a, tool: noop}]}");
        request.labels = [("parity".to_owned(), (n % 2).to_string())].into();
        client.raw().start_execution(request).await.unwrap();
        client.watch_to_the_end(&format!("e{n}")).await;
    }
    let mut ids = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListExecutionsRequest { page_size: 2, page_token, ..list() };
        let page = client.raw().list_executions(request).await.unwrap().into_inner();
        ids.extend(page.executions.into_iter().map(|execution| execution.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    assert_eq!(ids, (0..5).rev().map(|n| name(&format!("e{n}"))).collect::<Vec<_>>());
    let odd = v1::ListExecutionsRequest { filter: "labels.parity = 1".to_owned(), ..list() };
    assert_eq!(client.raw().list_executions(odd).await.unwrap().into_inner().executions.len(), 2);
    let running = v1::ListExecutionsRequest { filter: "state = RUNNING".to_owned(), ..list() };
    assert!(client.raw().list_executions(running).await.unwrap().into_inner().executions.is_empty());

    let ended = v1::ListExecutionsRequest { order_by: "end_time".to_owned(), ..list() };
    let ended = client.raw().list_executions(ended).await.unwrap().into_inner().executions;
    assert_eq!(ended.len(), 5);
    let totals = ended[0].totals.as_ref().expect("an execution that has ended has its totals");
    assert_eq!((totals.total, totals.completed), (1, 1));
    assert!(ended.iter().all(|execution| execution.end_time.is_some()));
    for (request, field) in [
        (v1::ListExecutionsRequest::default(), "parent: is required"),
        (v1::ListExecutionsRequest { filter: "state = NONE".into(), ..list() }, "filter: at character 9"),
        (v1::ListExecutionsRequest { order_by: "id".into(), ..list() }, "order_by: `id` cannot be sorted by"),
        (v1::ListExecutionsRequest { page_token: "7".into(), ..list() }, "page_token: is not valid"),
    ] {
        let status = client.raw().list_executions(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().starts_with(field), "{status}");
    }
    let elsewhere = v1::ListExecutionsRequest { parent: "namespaces/-".into(), filter: "id = \"e*\"".into(), ..list() };
    assert_eq!(client.raw().list_executions(elsewhere).await.unwrap().into_inner().executions.len(), 5);
}
