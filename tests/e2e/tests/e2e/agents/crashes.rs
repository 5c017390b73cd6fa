//! Processes are killed while a model answers, and while a tool runs for it.

use std::{collections::BTreeMap, fs, time::Duration};

use belay_e2e::{Client, Service, belay::count, folded_execution::FoldedExecution};
use belay_model_server::{Reply, Server};
use belay_proto::v1::{execution::State, execution_event::Kind};
use rand::{Rng as _, SeedableRng as _, rngs::SmallRng};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::script::{Ask, Scene, goal, held, services_with, until_asked};

/// Turns, each of which appends its line.
const TURNS: usize = 3;

/// A model that appends a line in each turn, and then is done.
fn appends(ask: &Ask) -> Reply {
    if ask.turn > TURNS { ask.completes(json!("done")) } else { ask.runs(&format!("echo {} >> log", ask.turn)) }
}

fn lines() -> String {
    (1..=TURNS).map(|turn| format!("{turn}\n")).collect()
}

/// The codes of the failed attempts of a step.
fn lost(events: &[Value], step: &str) -> Vec<String> {
    let failed = events.iter().filter(|event| event["stepId"] == step).filter_map(|event| event.get("toolCallFailed"));
    failed.map(|failed| failed["failure"]["code"].as_str().unwrap_or_default().to_owned()).collect()
}

/// S2-FR-057, B-01: whatever part of an answer has come when the server is killed, nothing of it is acted on: the turn is said to be lost, the model is asked again with the same bytes, and no
/// tool runs twice. What was answered is not asked for again.
#[test]
fn a_turn_that_is_lost_is_asked_again() {
    for (turn, percent) in [(1, 0), (2, 30), (2, 99), (4, 60)] {
        let scene = Scene::new(move |ask| {
            let reply = appends(ask);
            if (ask.turn, ask.times) == (turn, 1) { held(reply, percent) } else { reply }
        });
        let home = &scene.home;
        let serve = || home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
        let server = serve();
        let plan = scene.plan(&goal(&["run_terminal"]), &json!({}));
        let run = home.start(["run", &plan, "--workspace", "w", "--id", "x", "--detach"]);
        assert_eq!(run.end().code, 0);
        until_asked(&scene.server, turn);
        server.kill();
        let before: String = (1..turn).map(|turn| format!("{turn}\n")).collect();
        assert_eq!(scene.file("log"), before);
        let _server = serve();
        assert_eq!(home.run(["executions", "watch", "x"]).code, 0);
        assert_eq!(scene.file("log"), lines(), "turn {turn}");
        let events = home.events("x");
        let asked = format!("a~{}", (turn - 1) * 2);
        assert_eq!(lost(&events, &asked), ["MODEL_TURN_LOST"], "turn {turn}");
        assert_eq!(count(&events, "toolCallFailed", ""), 1);
        let received = scene.server.received();
        assert_eq!(received.len(), TURNS + 2, "only what was lost is asked again");
        assert_eq!(received[turn - 1].body, received[turn].body, "the same journal gives the same bytes");
    }
}

/// Runs a plan at a server that is killed whenever the model has been asked these numbers of times; at the end the execution has completed.
fn killed_at(scene: &Scene, plan: &str, kills: &[usize], looks: impl Fn()) {
    let home = &scene.home;
    let serve = || home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
    let mut server = serve();
    assert_eq!(home.run(["run", plan, "--workspace", "w", "--id", "x", "--detach"]).code, 0);
    for &asked in kills {
        until_asked(&scene.server, asked);
        server.kill();
        looks();
        server = serve();
    }
    let watched = home.run(["executions", "watch", "x"]);
    assert_eq!(watched.code, 0, "{watched:?}");
    drop(server);
}

/// A run in the middle of which the server is killed has asked the model the same as one that nothing has disturbed, also where that is hidden, or too long for an event.
#[test]
fn what_a_model_is_asked_does_not_tell_of_a_restart() {
    // Put together here, so that no file of this repository has it.
    let key = format!("AKIA{}", "QXOSLB2JMC4XZP7T");
    let bodies = |kills: &[usize]| {
        let is_killed = !kills.is_empty();
        let scene = Scene::with("messages", "window: 1000000", "", move |ask| {
            let of_key = || ("read_file", json!({"path": "key"}));
            let looks = [("read_file", json!({"path": "long"})), ("read_file", json!({"path": "gone"})), of_key()];
            let reply = match ask.turn {
                1 => ask.says("Look.", &looks),
                2 => ask.calls("write_file", json!({"path": "big", "content": "z".repeat(300_000)})),
                3 => ask.says(&"word ".repeat(40_000), &[of_key()]),
                4 => ask.says("Hm.", &[]),
                _ => ask.completes(json!("done")),
            };
            if is_killed && ask.times == 1 && ask.turn > 1 { held(reply, 50) } else { reply }
        });
        fs::write(scene.home.path("w/long"), "a line of it\n".repeat(10_000)).unwrap();
        fs::write(scene.home.path("w/key"), format!("aws_access_key_id = {key}\n")).unwrap();
        let plan = scene.plan(&goal(&["read_file", "write_file"]), &json!({}));
        killed_at(&scene, &plan, kills, || ());
        let mut bodies: Vec<String> = scene.server.received().into_iter().map(|received| received.body).collect();
        bodies.dedup();
        assert!(bodies[1..].iter().all(|body| body.contains(&key)), "the model reads what the file has");
        bodies
    };
    let undisturbed = bodies(&[]);
    assert_eq!(undisturbed.len(), 5);
    assert!(undisturbed == bodies(&[2, 4, 6, 8]));
}

/// B-34: what a model has done so far under `per_step` outlives the processes, and is nowhere else until it is committed.
#[test]
fn one_effect_outlives_the_processes() {
    let scene = Scene::new(|ask| {
        let reply = appends(ask);
        if ask.times == 1 && ask.turn > 1 { held(reply, 50) } else { reply }
    });
    let more = json!({"effects": "per_step", "postconditions": [{"command": ["grep", "-q", "3", "log"]}]});
    let plan = scene.plan(&goal(&["run_terminal"]), &more);
    killed_at(&scene, &plan, &[2, 4, 6], || assert_eq!(scene.file("log"), ""));
    assert_eq!(scene.file("log"), lines());
}

/// A server that is told to end does not wait for a model, and neither does a run that a person interrupts; what they were doing is done afterwards.
#[test]
fn a_model_keeps_no_process_from_ending() {
    for is_run in [true, false] {
        let scene = Scene::new(|ask| {
            let reply = ask.completes(json!("done"));
            if ask.times == 1 { held(reply, 50) } else { reply }
        });
        let home = &scene.home;
        let plan = scene.plan(&goal(&[]), &json!({}));
        let process = if is_run {
            home.start(scene.words(&plan, &["-o", "text"]))
        } else {
            let server = home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
            assert_eq!(home.run(["run", &plan, "--workspace", "w", "--id", "x", "--detach"]).code, 0);
            server
        };
        until_asked(&scene.server, 1);
        process.signal(if is_run { Signal::INT } else { Signal::TERM });
        assert_eq!(process.end().code, if is_run { 130 } else { 0 });
        let resumed = home.run(["executions", "resume", "x", "--config", "config.yaml"]);
        assert_eq!((resumed.code, scene.asks().len()), (0, 2), "{resumed:?}");
    }
}

/// A kill while a tool of the model runs, and right after an answer: the command has its effect once, and no answer is asked for twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_tool_of_a_model_runs_twice() {
    let server = Server::start(move |received| {
        let ask = Ask::new(received);
        // The command of the second turn lasts longer than its processes.
        match ask.turn {
            2 => ask.runs("echo 2 >> log; touch began; sleep 0.3"),
            _ => appends(&ask),
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let (mut services, config) = services_with(folder.path(), &server).await;
    let with_models = ["--config", config.as_str()];
    let client = Client::new(&services.socket());
    let kills: [&[Service]; 4] = [&[], &[Service::Executor], &[Service::Runner], &[Service::Executor, Service::Runner]];
    for (n, kills) in kills.into_iter().enumerate() {
        let workspace = services.workspace(&format!("w{n}"));
        let id = format!("x{n}");
        let plan = json!({"id": "p", "steps": [{"id": "a", "agent": goal(&["run_terminal"])}]}).to_string();
        let before = server.received().len();
        client.start_in(&id, &plan, &workspace).await;
        // The call of the second turn is under way.
        let mut watch = FoldedExecution::default();
        let mut stream = client.watch(&id, "").await.unwrap();
        while watch.events().iter().filter(|event| matches!(event.kind, Some(Kind::ToolCallRequested(_)))).count() < 4 {
            watch.read(stream.message().await.unwrap().expect("the watch goes on"));
        }
        for service in kills {
            services.kill(*service).await;
            match service {
                Service::Executor => services.launch_with(*service, &with_models),
                other => services.launch(*other),
            }
        }
        services.ready().await;
        let picture = client.watch_to_the_end(&id).await;
        assert_eq!(picture.state(), Some(State::Completed), "{kills:?}");
        assert_eq!(fs::read_to_string(workspace.join("log")).unwrap(), lines(), "{kills:?}");
        let mut asked = BTreeMap::<String, usize>::new();
        for received in &server.received()[before..] {
            *asked.entry(received.body.clone()).or_default() += 1;
        }
        let lost = picture.count(|kind| matches!(kind, Kind::ToolCallFailed(failed) if failed.failure.as_ref().is_some_and(|failure| failure.reason == "MODEL_TURN_LOST")));
        assert!(asked.values().all(|times| *times <= 1 + lost), "{kills:?}: {:?}", asked.values());
        picture.assert_equals(&client.get(&id).await);
    }
}

/// S2-FR-057: wherever the kills fall, each command has its effect once, and only what was lost is asked again.
#[test]
fn kills_at_any_moment_lose_and_repeat_nothing() {
    const MANY: usize = 12;
    for seed in 0..2 {
        let mut random = SmallRng::seed_from_u64(seed);
        let scene = Scene::new(|ask| {
            if ask.turn > MANY { ask.completes(json!("done")) } else { ask.runs(&format!("echo {} >> log", ask.turn)) }
        });
        let home = &scene.home;
        let serve = || home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
        let mut server = serve();
        let plan = scene.plan(&goal(&["run_terminal"]), &json!({}));
        assert_eq!(home.run(["run", &plan, "--workspace", "w", "--id", "x", "--detach"]).code, 0);
        for _ in 0..8 {
            // Somewhere in the work of a turn or two.
            std::thread::sleep(Duration::from_millis(random.random_range(1..120)));
            server.kill();
            server = serve();
        }
        let watched = home.run(["executions", "watch", "x"]);
        assert_eq!(watched.code, 0, "seed {seed}: {watched:?}");
        assert_eq!(scene.file("log"), (1..=MANY).map(|turn| format!("{turn}\n")).collect::<String>(), "seed {seed}");
        let events = home.events("x");
        let lost: usize = (0..=MANY).map(|turn| lost(&events, &format!("a~{}", turn * 2)).len()).sum();
        assert!(scene.asks().len() <= MANY + 1 + lost, "seed {seed}: {lost} were lost");
    }
}
