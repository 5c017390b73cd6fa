//! What people ask of an execution while a model works, and limits of time.

use std::{
    fs,
    sync::atomic::{AtomicUsize, Ordering},
};

use belay_e2e::{Client, belay::RunningCommand, client::name, folded_execution::FoldedExecution};
use belay_model_server::{Reply, Server};
use belay_proto::v1::{self, execution::State, execution_event::Kind};
use serde_json::{Value, json};

use super::script::{Ask, Scene, goal, held, services_with, until_asked};

/// Where a model is when something is asked of its execution.
#[derive(Clone, Copy, Debug, PartialEq)]
enum At {
    /// It answers, for as long as nothing happens to it.
    Answer,
    /// Its command runs, for as long as nothing happens to it.
    Tool,
}

const BOTH: [At; 2] = [At::Answer, At::Tool];

/// A model that appends a line, then is at this place for as long as a file is missing, then appends another line and is done.
fn waits(at: At) -> impl Fn(&Ask) -> Reply + Send + Sync + 'static {
    move |ask| match (ask.turn, at) {
        (1, _) => ask.runs("echo 1 >> log"),
        (2, At::Answer) if ask.times == 1 => held(ask.runs("echo 2 >> log"), 50),
        (2, At::Answer) => ask.runs("echo 2 >> log"),
        (2, At::Tool) => ask.runs("echo 2 >> log; echo waits; test -e go || sleep 3600"),
        _ => ask.completes(json!("done")),
    }
}

/// An execution whose model is at this place.
fn begun(at: At, more: &Value, plan_more: &Value) -> (Scene, RunningCommand) {
    let scene = Scene::new(waits(at));
    let mut plan: Value =
        serde_json::from_str(&fs::read_to_string(scene.plan(&goal(&["run_terminal"]), more)).unwrap()).unwrap();
    plan.as_object_mut().unwrap().extend(plan_more.as_object().unwrap().clone());
    let plan = scene.home.file("plan.json", plan.to_string());
    let mut server = scene.home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
    let run = scene.home.start(["run", &plan, "--workspace", "w", "--id", "x", "-o", "text"]);
    let mut run = run;
    match at {
        At::Answer => until_asked(&scene.server, 2),
        At::Tool => drop(run.wait_for("│ waits")),
    }
    drop(run);
    let _ = &mut server;
    (scene, server)
}

fn until(scene: &Scene, state: &str) -> Value {
    scene.home.json_until(&["executions", "get", "x"], |execution| execution["state"] == state)
}

/// A cancelled model is not asked on, and what its tool did is not there; so too when it is killed, and when time is over.
#[test]
fn a_model_ends_with_its_execution() {
    for at in BOTH {
        for words in [&["executions", "cancel", "x"][..], &["executions", "cancel", "x", "--kill"]] {
            let (scene, _server) = begun(at, &json!({}), &json!({}));
            assert_eq!(scene.home.run(words).code, 0);
            until(&scene, "STATE_CANCELLED");
            assert_eq!((scene.file("log").as_str(), scene.asks().len()), ("1\n", 2), "{at:?} {words:?}");
            assert_eq!(scene.step("a")["state"], "STATE_CANCELLED");
        }
        for (more, plan_more, state) in [
            (json!({"timeout": "2s"}), json!({}), "STATE_FAILED"),
            (json!({}), json!({"timeout": "2s"}), "STATE_TIMED_OUT"),
        ] {
            let (scene, _server) = begun(at, &more, &plan_more);
            until(&scene, state);
            assert_eq!((scene.file("log").as_str(), scene.asks().len()), ("1\n", 2), "{at:?} {more}");
            if state == "STATE_FAILED" {
                // That of a tool goes to the model, which has no time left to be asked.
                let code = if at == At::Answer { "TIMEOUT" } else { "STEP_TIMEOUT" };
                let step = scene.step("a");
                assert_eq!(step["failure"]["code"], code, "{at:?} {step}");
            }
        }
    }
}

/// A pause that discards calls ends what the model says or its tool does, and nothing of it is done; then it is asked, or the tool runs, once more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_model_goes_on() {
    for at in BOTH {
        let script = waits(at);
        let asked = AtomicUsize::new(0);
        let server = Server::start(move |received| {
            let mut ask = Ask::new(received);
            ask.times = if ask.turn == 2 { asked.fetch_add(1, Ordering::Relaxed) + 1 } else { 1 };
            script(&ask)
        });
        let folder = tempfile::tempdir().unwrap();
        let (services, _) = services_with(folder.path(), &server).await;
        let workspace = services.workspace("w");
        let client = Client::new(&services.socket());
        let plan = json!({"id": "p", "steps": [{"id": "a", "agent": goal(&["run_terminal"])}]}).to_string();
        client.start_in("x", &plan, &workspace).await;
        let mut stream = client.watch("x", "").await.unwrap();
        let mut watched = FoldedExecution::default();
        let calls = if at == At::Answer { 3 } else { 4 };
        while watched.count(|kind| matches!(kind, Kind::ToolCallRequested(_))) < calls
            || (at == At::Tool && watched.output_chunks() == 0)
        {
            watched.read(stream.message().await.unwrap().expect("the watch goes on"));
        }
        let server = tokio::task::spawn_blocking(move || {
            until_asked(&server, 2);
            server
        });
        let server = server.await.unwrap();
        let pause = v1::PauseExecutionRequest { name: name("x"), discard_calls: true, ..Default::default() };
        client.raw().pause_execution(pause).await.unwrap();
        fs::write(workspace.join("go"), "").unwrap();
        while client.get("x").await.state() != State::Paused {
            tokio::task::yield_now().await;
        }
        assert_eq!(fs::read_to_string(workspace.join("log")).unwrap(), "1\n");
        let resume = v1::ResumeExecutionRequest { name: name("x"), ..Default::default() };
        client.raw().resume_execution(resume).await.unwrap();
        let picture = client.watch_to_the_end("x").await;
        assert_eq!(picture.state(), Some(State::Completed), "{at:?}");
        assert_eq!(fs::read_to_string(workspace.join("log")).unwrap(), "1\n2\n", "{at:?}");
        assert_eq!(server.received().len(), if at == At::Answer { 4 } else { 3 }, "{at:?}");
        assert_eq!(
            picture.count(|kind| matches!(kind, Kind::StepRetryScheduled(_) | Kind::ToolCallFailed(_))),
            0,
            "no attempt is used up"
        );
        picture.assert_equals(&client.get("x").await);
    }
}

/// A turn that waits for its next attempt can be answered by a person, or skipped; what failed runs again from the first turn, or is left out.
#[test]
fn people_may_answer_for_a_model() {
    let scene = Scene::new(|ask| match ask.turn {
        1 => Reply::json("429 Too Many Requests", "{}").with("retry-after: 3600"),
        _ => ask.completes(json!(ask.told())),
    });
    let _server = scene.home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
    let home = &scene.home;
    let steps = json!([
        {"id": "a", "agent": goal(&["run_terminal"])},
        {"id": "b", "tool": "noop", "depends_on": ["a"]},
    ]);
    let plan = home.file("plan.json", json!({"id": "p", "steps": steps}).to_string());
    let done = |words: &[&str]| assert_eq!(home.run(words).code, 0, "{words:?}");
    let waits = |id: &str| {
        let waits = |execution: &Value| execution.to_string().contains("BACKING_OFF");
        drop(home.json_until(&["executions", "get", id], waits));
    };
    let start = |id: &str| {
        done(&["run", &plan, "--workspace", "w", "--id", id, "--detach"]);
        waits(id);
    };
    start("calls");
    let command = json!({"command": ["sh", "-c", "echo by-hand >> log; echo seen"]});
    let answer = json!({"calls": [{"id": "t0001c001", "tool": "run_terminal", "arguments": command}]});
    done(&["executions", "set-output", "calls", "a~0", &answer.to_string()]);
    done(&["executions", "watch", "calls"]);
    assert_eq!(scene.file("log"), "by-hand\n");

    start("words");
    done(&["executions", "set-output", "words", "a~0", "\"I cannot.\""]);
    done(&["executions", "watch", "words"]);
    let told = scene.asks().last().unwrap().told();
    assert_eq!(told, ["Call a tool, or complete_step if the task is done."]);

    start("skips");
    let early = home.run(["executions", "set-output", "skips", "a", "1"]);
    assert!(early.code == 2 && early.talk.contains("WRONG_STATE"), "{early:?}");
    done(&["executions", "skip", "skips", "a~0"]);
    assert_eq!(home.run(["executions", "watch", "skips"]).code, 30);
    let retried = home.start(["executions", "retry", "skips"]);
    waits("skips");
    drop(retried);
    done(&["executions", "retry-step", "skips", "a~0", "--cancel"]);
    assert_eq!(home.run(["executions", "watch", "skips"]).code, 30);
    let asked = scene.asks().len();
    let resumed = home.run(["executions", "resume", "skips", "--skip-failed-step"]);
    assert_eq!(scene.asks().len(), asked, "what is skipped is not tried again: {resumed:?}");
    let (_, execution) = home.json(&["executions", "get", "skips"]);
    let steps = execution["steps"].as_array().unwrap().iter();
    let states: Vec<_> = steps.map(|step| step["state"].as_str().unwrap()).collect();
    assert_eq!(states[..2], ["STATE_SKIPPED", "STATE_COMPLETED"], "{execution}");
}
