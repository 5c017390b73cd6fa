//! Steps that wait for a time, a signal or a person's answer, across losses of the executor.

use std::time::Duration;

use belay_e2e::{Client, Service, Services, belay::Home, client::name};
use belay_proto::v1::{self, execution::State, execution_event::Kind, payload::Content, step, waiting_reason};
use tonic::Code;

fn signal(execution: &str, signal: &str, payload: &str, request_id: &str) -> v1::SignalExecutionRequest {
    let payload = Some(v1::Payload { content: Some(Content::Json(payload.into())) });
    v1::SignalExecutionRequest { name: name(execution), signal: signal.into(), payload, request_id: request_id.into() }
}

/// Polls until the step is in this state.
async fn until(client: &Client, execution: &str, step: usize, state: step::State) -> v1::Execution {
    loop {
        let found = client.get(execution).await;
        if found.steps[step].state() == state {
            return found;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A waiting step holds no slot and no memory; its time and its signals survive the loss of the executor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_survive_the_loss_of_the_executor() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "
id: waits
steps:
  - {id: soon, wait: {for: 1500ms}}
  - {id: go, wait: {signal: go}}
  - {id: early, wait: {signal: early}, depends_on: [soon]}
  - {id: beside, tool: noop, arguments: {output: done}}
  - {id: last, tool: noop, arguments: {output: '${go.result.n}, ${early.result}'}}
";
    client.start("waits", plan).await;
    let waiting = until(&client, "waits", 3, step::State::Completed).await;
    let states: Vec<_> = waiting.steps[..3].iter().map(v1::Step::state).collect();
    assert_eq!(states, [step::State::Waiting, step::State::Waiting, step::State::Pending]);
    let kinds: Vec<_> = waiting.waiting.iter().map(v1::WaitingReason::kind).collect();
    assert_eq!(kinds[..2], [waiting_reason::Kind::Time, waiting_reason::Kind::Signal]);
    assert_eq!(waiting.waiting[1].next_command, "belay executions signal waits go");

    // Before its step starts; the same request twice is one signal.
    for _ in 0..2 {
        client.raw().signal_execution(signal("waits", "early", "\"kept\"", "r1")).await.unwrap();
    }
    let other = client.raw().signal_execution(signal("waits", "early", "\"other\"", "r1")).await.unwrap_err();
    assert_eq!(other.code(), Code::AlreadyExists);
    services.restart(Service::Executor).await;
    until(&client, "waits", 2, step::State::Completed).await;
    services.restart(Service::Executor).await;
    let send = || async { client.raw().signal_execution(signal("waits", "go", r#"{"n": 7}"#, "r2")).await };
    belay_e2e::client::retry(send).await.unwrap();
    let picture = client.watch_to_the_end("waits").await;
    let ended = client.get("waits").await;
    picture.assert_equals(&ended);
    assert_eq!(ended.state(), State::Completed);
    let outputs: Vec<_> = client.steps("waits").await.into_iter().filter_map(|step| step.output?.content).collect();
    let json = |text: &str| Content::Json(text.to_owned());
    assert_eq!(outputs, [json("null"), json(r#"{"n":7}"#), json("\"kept\""), json("\"done\""), json("\"7, kept\"")]);
    assert_eq!(picture.count(|kind| matches!(kind, Kind::SignalReceived(_))), 2);
    let by: Vec<_> = picture.events().iter().filter_map(|event| event.actor.as_ref()).collect();
    assert!(by.iter().filter(|actor| actor.request_id.starts_with('r') && !actor.principal.is_empty()).count() == 2);

    let late = client.raw().signal_execution(signal("waits", "go", "1", "r3")).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_ends_with_its_execution_or_its_time_limit() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    client.start("limit", "{id: p, steps: [{id: a, wait: {signal: never}, timeout: 300ms}]}").await;
    let picture = client.watch_to_the_end("limit").await;
    let failed = client.get("limit").await;
    assert_eq!(
        (picture.state(), failed.steps[0].failure.as_ref().unwrap().reason.as_str()),
        (Some(State::Failed), "STEP_TIMEOUT")
    );
    client.start("stop", "{id: p, steps: [{id: a, wait: {for: 300h}}]}").await;
    until(&client, "stop", 0, step::State::Waiting).await;
    let cancel = v1::CancelExecutionRequest { name: name("stop"), ..Default::default() };
    client.raw().cancel_execution(cancel).await.unwrap();
    assert_eq!(client.watch_to_the_end("stop").await.state(), Some(State::Cancelled));
}

#[test]
fn a_person_sends_a_signal() {
    let home = Home::new();
    let plan = home.file(
        "p.yaml",
        "{id: p, steps: [{id: go, wait: {signal: go}}, {id: a, tool: noop, arguments: {output: '${go.result.n}'}}]}",
    );
    let _server = home.serve();
    let mut run = home.start(["run", &plan, "--id", "e1", "-o", "jsonl"]);
    run.wait_for("waitStarted");
    let shown = home.run(["executions", "get", "e1"]);
    assert!(shown.out.contains("waiting for the signal `go`"), "{shown:?}");
    for (arguments, told) in [
        (["go", "--payload", "{"], "payload.json: is not JSON"),
        (["a b", "--payload", "1"], "signal: must be 1 to 128 letters"),
    ] {
        let refused = home.run([&["executions", "signal", "e1"][..], &arguments].concat());
        assert!(refused.code == 2 && refused.talk.contains(told), "{refused:?}");
    }
    let sent = home.run(["executions", "signal", "e1", "go", "--payload", r#"{"n": 7}"#]);
    assert_eq!(sent.code, 0, "{sent:?}");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let events = belay_e2e::belay::events(&ended.out);
    let received = events.iter().find(|event| event.get("signalReceived").is_some()).unwrap();
    assert_eq!(
        (&received["signalReceived"]["payload"]["n"], &received["execution"]),
        (&7.into(), &"namespaces/default/executions/e1".into())
    );
    let completed = events.iter().find(|event| event.get("toolCallCompleted").is_some()).unwrap();
    assert_eq!(completed["toolCallCompleted"]["result"], 7);
    assert_eq!(completed["call"], "namespaces/default/executions/e1/steps/a/calls/1.1");
}

/// A form is answered once, by the command line, although the server is killed while it waits and right after the answer.
#[test]
fn a_form_of_a_server_that_is_killed_is_answered_once() {
    let home = Home::new();
    let plan = home.file(
        "p.yaml",
        "
id: asks
steps:
  - id: ask
    wait:
      form:
        title: Which version?
        schema: {type: object, required: [version], properties: {version: {type: string, pattern: '^[0-9.]+$'}}}
  - {id: note, tool: noop, arguments: {output: '${ask.result.version}'}}
",
    );
    let server = home.serve();
    let mut run = home.start(["run", &plan, "--id", "e1", "--approve", "prompt", "-o", "jsonl"]);
    run.wait_for("approvalRequested");
    let (_, execution) = home.json(&["executions", "get", "e1"]);
    assert_eq!(execution["waiting"][0]["kind"], "KIND_FORM", "{execution}");
    let next = execution["waiting"][0]["nextCommand"].as_str().unwrap().to_owned();
    let id = next.strip_prefix("belay approvals answer ").expect("it says what to type").to_owned();
    let (_, waiting) = home.json(&["executions", "list", "--filter", "waits_for = FORM"]);
    assert_eq!(waiting["executions"][0]["name"], "namespaces/default/executions/e1", "{waiting}");
    let listed = home.run(["approvals", "list", "--state", "pending"]);
    assert!(listed.out.contains("e1/ask") && listed.out.contains("Which version?"), "{listed:?}");
    run.kill();
    server.kill();

    let server = home.serve();
    let answer =
        |value: &str, more: &[&str]| home.run([&["approvals", "answer", &id, "--value", value], more].concat());
    let refused = answer(r#"{"version": "one"}"#, &[]);
    assert!(refused.code == 2 && refused.talk.contains("/version: "), "{refused:?}");
    let answered = answer(r#"{"version": "1.2"}"#, &["--request-id", "r1"]);
    assert!(answered.code == 0 && answered.out.contains("answered Which version?"), "{answered:?}");
    server.kill();

    let _server = home.serve();
    let again = answer(r#"{"version": "1.2"}"#, &["--request-id", "r1"]);
    assert_eq!(again.code, 0, "the same request: {again:?}");
    let second = answer(r#"{"version": "1.3"}"#, &[]);
    assert!(second.code == 2 && second.talk.contains("ALREADY_DECIDED"), "{second:?}");
    let ended = home.run(["executions", "watch", "e1"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let events = home.events("e1");
    let ends: Vec<_> = events.iter().filter_map(|event| event.get("waitEnded")).collect();
    let [end] = ends[..] else { panic!("it ends once: {ends:?}") };
    assert_eq!((&end["cause"], &end["answer"]["version"]), (&"CAUSE_ANSWERED".into(), &"1.2".into()));
    let note = events.iter().find_map(|event| event.get("toolCallCompleted")).unwrap();
    assert_eq!(note["result"], "1.2");
}

/// Without a terminal nobody is asked: the step fails at once and says why.
#[test]
fn a_form_fails_at_once_where_nobody_is_asked() {
    let home = Home::new();
    let plan = home.file("p.yaml", "{id: p, steps: [{id: ask, wait: {form: {title: 'Now?', schema: {}}}}]}");
    let ended = home.run(["run", &plan]);
    assert_eq!(ended.code, 33, "{ended:?}");
    assert!(ended.talk.contains("NON_INTERACTIVE") && ended.talk.contains("answer the form `Now?`"), "{ended:?}");
}
