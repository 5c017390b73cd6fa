//! A pause that ends by itself.

use std::fs;

use belay_e2e::{Client, Home, Service, Services, belay::count, client::name};
use belay_proto::v1::{self, execution::State, waiting_reason::Kind};
use tonic::Code;

/// A person pauses for a while: the pause says until when, and ends by itself, with no one at a terminal.
#[test]
fn a_pause_for_a_while_ends_by_itself() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let plan =
        home.file("plan.yaml", "{id: p, steps: [{id: a, wait: {signal: go}}, {id: b, tool: noop, depends_on: [a]}]}");
    let server = home.serve();
    let run = home.start(["run", &plan, "--workspace", "w", "--id", "x"]);
    while home.json(&["executions", "get", "x"]).1["state"] != "STATE_RUNNING" {}
    let past = home.run(["executions", "pause", "x", "--until", "2020-01-01T00:00:00Z"]);
    assert!(past.code == 2 && past.talk.contains("resume_time: must be in the future"), "{past:?}");
    let paused = home.run(["executions", "pause", "x", "--for", "1s"]);
    assert_eq!(paused.code, 0, "{paused:?}");
    let (_, execution) = home.json(&["executions", "get", "x"]);
    assert!(execution["state"] != "STATE_PAUSED" || execution["waiting"][0]["untilTime"].is_string(), "{execution}");
    assert_eq!(home.run(["executions", "signal", "x", "go"]).code, 0);
    assert_eq!(run.end().code, 0);
    let events = home.events("x");
    assert_eq!((count(&events, "executionPaused", ""), count(&events, "executionResumed", "")), (1, 1));
    let resumed = events.iter().find(|event| event.get("executionResumed").is_some()).unwrap();
    assert!(resumed.get("actor").is_none(), "no person has resumed it: {resumed}");
    server.signal(rustix::process::Signal::TERM);
    server.end();
}

/// S0-15, S4-29, X1: a rate limit that is queued for later pauses the execution with the time at which it resumes, which survives the executor; a person who
/// knows better resumes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_limit_queues_an_execution_for_later() {
    let folder = tempfile::tempdir().unwrap();
    let mut services = Services::start(folder.path()).await;
    let client = Client::new(&services.socket());
    let plan = "
id: p
steps:
  - id: ask
    tool: run_terminal
    arguments: {command: [sh, -c, 'echo HTTP 429 >&2; exit 1']}
    retry: {max_attempts: 2, rate_limit: queue_for_later, by_output: true}
";
    client.start("x", plan).await;
    let paused = |execution: &v1::Execution| execution.state() == State::Paused;
    let find = async || {
        loop {
            let found = client.get("x").await;
            if paused(&found) {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let waiting = find().await.waiting.remove(0);
    assert_eq!(waiting.kind(), Kind::Resume);
    let (since, until) = (waiting.begin_time.unwrap(), waiting.until_time.unwrap());
    assert!((295..=301).contains(&(until.seconds - since.seconds)), "{since:?} {until:?}");
    services.restart(Service::Executor).await;
    assert_eq!(find().await.waiting[0].until_time.unwrap(), until, "the same time, whatever died");
    let resume = async || {
        client.raw().resume_execution(v1::ResumeExecutionRequest { name: name("x"), ..Default::default() }).await
    };
    belay_e2e::client::retry(resume).await.unwrap();
    let now = v1::RetryStepRequest {
        name: format!("{}/steps/ask", name("x")),
        change: v1::RetryChange::Now.into(),
        ..Default::default()
    };
    client.raw().retry_step(now).await.unwrap();
    let picture = client.watch_to_the_end("x").await;
    picture.assert_equals(&client.get("x").await);
    assert_eq!(picture.state(), Some(State::Failed), "the second attempt was the last");
    let far = v1::PauseExecutionRequest {
        name: name("x"),
        resume_time: Some(belay_proto::timestamp(4_000_000_000_000_000)),
        ..Default::default()
    };
    assert_eq!(client.raw().pause_execution(far).await.unwrap_err().code(), Code::InvalidArgument);
}
