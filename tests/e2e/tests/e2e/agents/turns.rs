//! Forks that begin after a turn of a model.

use std::fs;

use belay_model_server::Reply;
use serde_json::{Value, json};

use super::script::{Ask, Scene, goal};

/// The settings of another model of the same server.
const LARGE: &str = "  large: {api: chat, base_url: '{url}', model: l, window: 100000}";

/// A small model that gets nowhere after it has written two files, and a large one that does it.
fn two_models(ask: &Ask) -> Reply {
    match (ask.body["model"].as_str().unwrap_or_default(), ask.turn) {
        (_, 1) => ask.runs("echo one > one"),
        ("m", 2) => ask.runs("cat one && echo two > two"),
        ("m", _) => ask.says("I do not know.", &[]),
        ("l", turn) if ask.results().last().is_some_and(|last| last.contains("all of it")) || turn > 6 => {
            ask.completes(json!("found"))
        }
        (_, _) => ask.runs("cat one two; echo all of it"),
    }
}

fn four_turns(tools: &[&str]) -> Value {
    let mut goal = goal(tools);
    goal["max_turns"] = json!(4);
    goal
}

/// The arguments with which an execution is forked.
fn fork<'a>(scene: &'a Scene, more: &[&'a str]) -> Vec<&'a str> {
    assert!(scene.home.path("config.yaml").exists());
    let words = ["executions", "fork", "x", "--config", "config.yaml", "-o", "text"];
    [&words, more].concat()
}

/// Another model goes on after a turn that the first one has had: it reads the same, with the changes that there were then, and what it makes of them is one effect.
#[test]
fn another_model_goes_on_from_a_turn() {
    let scene = Scene::with("chat", "", LARGE, two_models);
    let ended = scene.run(&four_turns(&["run_terminal"]), &json!({"effects": "per_step"}), &[]);
    assert_eq!((ended.code, scene.step("a")["failure"]["code"].clone()), (31, json!("TURN_LIMIT")), "{ended:?}");
    assert_eq!((scene.file("one"), scene.file("two")), (String::new(), String::new()), "nothing is committed");
    let asked = scene.asks();

    let forked = scene.home.run(fork(&scene, &["--at", "a:2", "--model", "large", "--id", "y"]));
    assert_eq!(forked.code, 0, "{forked:?}");
    assert!(forked.out.contains("begins with 2 turns of another execution"), "{forked:?}");
    let of_fork = scene.asks().split_off(asked.len());
    assert_eq!(of_fork.len(), 2, "no turn is asked again: {of_fork:?}");
    assert_eq!(of_fork[0].messages(), asked[2].messages(), "the third turn reads what it has read before");
    assert!(of_fork[1].told()[0].contains("one\\ntwo\\n"), "{:?}", of_fork[1].told());
    assert_eq!((scene.file("one"), scene.file("two")), ("one\n".to_owned(), "two\n".to_owned()));
    let (_, execution) = scene.home.json(&["executions", "get", "y"]);
    assert_eq!(execution["steps"][0]["output"], json!("found"));
    let events = scene.home.events("y");
    let carried = events.iter().find_map(|event| event.get("stepConversationCarriedOver")).expect("it begins with one");
    assert_eq!((carried["turns"].clone(), carried["layers"]["round"].clone()), (json!(2), json!(1)));
    let audit = scene.home.run(["audit", "y"]);
    assert!(audit.out.contains("Step `a` begins with 2 turns of another execution"), "{audit:?}");
    assert_eq!(scene.execution()["state"], "STATE_FAILED", "the first one stays as it was");
}

/// What others have changed since the turn is kept, and the model is shown both versions before it goes on; what does not conflict is taken over.
#[test]
fn others_have_changed_the_files_since_the_turn() {
    let scene = Scene::with("chat", "", LARGE, two_models);
    let ended = scene.run(&four_turns(&["run_terminal"]), &json!({"effects": "per_step"}), &[]);
    assert_eq!(ended.code, 31, "{ended:?}");
    fs::write(scene.home.path("w/one"), "theirs\n").unwrap();
    let before = scene.asks().len();
    let forked = scene.home.run(fork(&scene, &["--at", "a:2", "--model", "large", "--id", "y"]));
    assert_eq!(forked.code, 0, "{forked:?}");
    let told = scene.asks()[before].told().join(" | ");
    assert!(told.contains("your changes of these paths are dropped"), "{told}");
    assert!(told.contains(r#""theirs":{"content":"theirs\n""#) && told.contains(r#""content":"one\n""#), "{told}");
    assert_eq!((scene.file("one"), scene.file("two")), ("theirs\n".to_owned(), "two\n".to_owned()));

    // Of the same turn another fork begins, also once what there was before is committed: each has a copy.
    let again = scene.home.run(fork(&scene, &["--at", "a:1", "--model", "large", "--id", "z"]));
    assert_eq!(again.code, 0, "{again:?}");
}

/// Where each call has committed its changes, the files as they were are not kept: the fork is refused with those that have changed, and goes on where a person says so.
#[test]
fn the_files_of_a_turn_are_not_kept() {
    let scene = Scene::with("chat", "", LARGE, two_models);
    let ended = scene.run(&four_turns(&["run_terminal"]), &json!({}), &[]);
    assert_eq!(ended.code, 31, "{ended:?}");
    let words = ["--at", "a:1", "--model", "large", "--id", "y"];
    let refused = scene.home.run(fork(&scene, &words));
    assert_eq!(refused.code, 2, "{refused:?}");
    let talk = format!("{refused:?}");
    assert!(talk.contains("FILES_NOT_KEPT") && talk.contains("has changed since: `two`"), "{talk}");
    assert!(talk.contains("--on-current-files"), "{talk}");
    let forked = scene.home.run(fork(&scene, &[&words[..], &["--on-current-files"]].concat()));
    assert_eq!(forked.code, 0, "{forked:?}");
}

/// A conversation that is too large for an event is taken over too, and a secret in it that the first execution knows stays hidden in the second.
#[test]
fn a_long_conversation_is_taken_over_with_its_secrets() {
    let scene =
        Scene::with("chat", "", LARGE, |ask| match (ask.body["model"].as_str().unwrap_or_default(), ask.turn) {
            (_, 1) => {
                ask.runs("seq 9000; echo sk-ant-api03-abcdefghijklmnopqrstuvwxyz0123456789ABCDEF > kept; cat kept")
            }
            ("m", _) => ask.says("I do not know.", &[]),
            _ => ask.completes(json!("found")),
        });
    let ended = scene.run(&four_turns(&["run_terminal"]), &json!({"effects": "per_step"}), &[]);
    assert_eq!(ended.code, 31, "{ended:?}");
    let asked = scene.asks();
    let forked = scene.home.run(fork(&scene, &["--at", "a:2", "--model", "large", "--id", "y"]));
    assert_eq!(forked.code, 0, "{forked:?}");
    assert_eq!(scene.asks()[asked.len()].messages(), asked[2].messages());
    let events = scene.home.events("y");
    let carried = events.iter().find_map(|event| event.get("stepConversationCarriedOver")).expect("it begins with one");
    assert!(carried["conversation"]["blob"].is_object(), "{carried}");
    let all = format!("{events:?}");
    assert!(!all.contains("abcdefghijklmnopqrstuvwxyz0123456789ABCDEF"));
    // Nor where both versions of a changed file are shown.
    fs::write(scene.home.path("w/kept"), "theirs\n").unwrap();
    let conflict = scene.home.run(fork(&scene, &["--at", "a:2", "--model", "large", "--id", "z"]));
    assert_eq!(conflict.code, 0, "{conflict:?}");
    let told = format!("{:?}", scene.home.events("z"));
    assert!(told.contains("theirs") && !told.contains("abcdefghijklmnopqrstuvwxyz0123456789ABCDEF"), "{told}");
}

/// B-05: what a person has approved for one execution is approved for no other that takes it over: a person is asked again.
#[test]
fn what_was_approved_for_one_execution_is_asked_again_in_its_fork() {
    let scene =
        Scene::with("chat", "", LARGE, |ask| match (ask.body["model"].as_str().unwrap_or_default(), ask.turn) {
            (_, 1) => ask.calls("write_file", json!({"path": "Makefile", "content": "all:\n"})),
            ("m", _) => ask.says("I do not know.", &[]),
            _ => ask.completes(json!("done")),
        });
    scene.home.file("policy.yaml", "rules: [{id: look, on: intent, tools: [write_file], decide: prompt}, {id: kept, on: effect, paths: [Makefile], decide: prompt}]\n");
    let mut agent = goal(&["write_file"]);
    agent["max_turns"] = json!(2);
    let plan = scene.plan(&agent, &json!({"effects": "per_step"}));
    let waits = "waiting for approval; next: belay approvals show ";
    let mut run = scene.home.start(scene.words(&plan, &["--approve", "prompt", "-o", "text"]));
    let line = run.wait_for(waits);
    let asked = line.split_once(waits).and_then(|(_, rest)| rest.split_whitespace().next()).unwrap().to_owned();
    assert_eq!(scene.home.run(["approve", asked.as_str(), "--yes"]).code, 0);
    assert_eq!(run.end().code, 31);
    agent["max_turns"] = json!(3);
    let forked = [
        "executions",
        "fork",
        "x",
        "--config",
        "config.yaml",
        "-o",
        "text",
        "--at",
        "a:1",
        "--model",
        "large",
        "--id",
        "y",
    ];
    let mut forked = scene.home.start(forked);
    let line = forked.wait_for(waits);
    let asked = line.split_once(waits).and_then(|(_, rest)| rest.split_whitespace().next()).unwrap().to_owned();
    assert_eq!(scene.file("Makefile"), "", "nothing is committed unasked");
    assert_eq!(scene.home.run(["deny", asked.as_str(), "--reason", "not here"]).code, 0);
    assert_ne!(forked.end().code, 0);
    assert_eq!(scene.file("Makefile"), "");
}

/// What a person gets wrong is said by its name.
#[test]
fn a_fork_at_a_turn_that_there_is_not_is_refused() {
    let scene = Scene::with("chat", "", LARGE, two_models);
    let ended = scene.run(&four_turns(&["run_terminal"]), &json!({}), &[]);
    assert_eq!(ended.code, 31, "{ended:?}");
    for (words, says) in [
        (&["--at", "a:9"][..], "the model of step `a` has not answered turn 9 in execution `x`, whose last one is 4"),
        (&["--at", "a:4"], "turn 4 is the last that the plan allows step `a` (`agent.max_turns` is 4)"),
        (&["--at", "b:1"], "Execution `x` has no step `b`."),
        (&["--at", "a:0"], "the number of a turn from 1 on"),
        (&["--at", "a"], "write the step, a colon"),
        (&["--at", "a:1", "--from", "a"], "--from"),
        (&["--model", "large"], "name it with --from STEP or --at STEP:TURN"),
        (&["--on-current-files"], "--at"),
        (&["--at", "a:1", "--model", "larg", "--on-current-files"], "did you mean `large`?"),
    ] {
        let refused = scene.home.run(fork(&scene, words));
        let talk = format!("{refused:?}");
        assert!(refused.code == 2 && talk.contains(says), "{words:?} is not answered with {says:?}: {talk}");
    }
    let anew = scene.home.run(fork(&scene, &["--from", "a", "--model", "large", "--id", "y"]));
    assert_eq!(anew.code, 0, "a step can also begin anew with another model: {anew:?}");
}
