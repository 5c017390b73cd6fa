//! Several models at once.

use std::fs;

use belay_e2e::belay::count;
use serde_json::{Value, json};

use super::script::{Scene, goal};

/// Two models work in one workspace, side by side: neither loses what the other has written.
#[test]
fn two_models_share_a_workspace() {
    let scene = Scene::new(|ask| {
        let me = ask.task.clone();
        if ask.turn > 5 {
            ask.completes(json!(me))
        } else {
            ask.runs(&format!("echo {me} >> shared; echo {} >> of-{me}", ask.turn))
        }
    });
    let agent = |task: &str| json!({"model": "m", "task": task, "tools": ["run_terminal"]});
    let steps = json!([{"id": "a", "agent": agent("one")}, {"id": "b", "agent": agent("two")}]);
    let plan = scene.home.file("plan.json", json!({"id": "p", "parallelism": 2, "steps": steps}).to_string());
    let ended = scene.home.run(scene.words(&plan, &["-o", "text"]));
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(
        (scene.file("of-one"), scene.file("of-two")),
        ("1\n2\n3\n4\n5\n".to_owned(), "1\n2\n3\n4\n5\n".to_owned())
    );
    let shared = scene.file("shared");
    assert_eq!((shared.matches("one").count(), shared.matches("two").count()), (5, 5), "{shared}");
}

/// Twenty models of ten turns each, and what they found out is read by the step after them.
#[test]
fn twenty_models_work_at_once() {
    let scene = Scene::new(|ask| {
        let me = ask.task.clone();
        match ask.turn {
            10.. => ask.completes(json!({"of": me})),
            turn => ask.calls("write_file", json!({"path": format!("{me}/{turn}"), "content": me})),
        }
    });
    let steps = (0..20).map(
        |n| json!({"id": format!("s{n}"), "agent": {"model": "m", "task": format!("t{n}"), "tools": ["write_file"]}}),
    );
    let all: Vec<String> = (0..20).map(|n| format!("s{n}")).collect();
    let last = json!({"id": "last", "tool": "noop", "depends_on": all, "arguments": {"output": "${s19.result.of}"}});
    let steps: Vec<Value> = steps.chain([last]).collect();
    let plan = scene.home.file("plan.json", json!({"id": "p", "parallelism": 20, "steps": steps}).to_string());
    let ended = scene.home.run(scene.words(&plan, &["-o", "text"]));
    assert_eq!(ended.code, 0, "{ended:?}");
    for n in 0..20 {
        assert_eq!(fs::read_dir(scene.home.path(&format!("w/t{n}"))).unwrap().count(), 9);
    }
    assert_eq!(scene.asks().len(), 200);
    assert_eq!(scene.step("last")["output"], "t19");
    let events = scene.home.events("x");
    assert_eq!((count(&events, "toolCallCompleted", ""), count(&events, "stepFailed", "")), (200 + 180 + 20 + 1, 0));
}

/// A model may work for each entry of a list, in a plan of its own.
#[test]
fn a_model_works_for_each_entry_of_a_list() {
    let scene = Scene::new(|ask| match ask.turn {
        1 => ask.runs(&format!("echo '{}' >> log", ask.task)),
        _ => ask.completes(json!(ask.task)),
    });
    let agent = json!({"model": "m", "task": "look at ${inputs.w}", "tools": ["run_terminal"]});
    let inner = json!({"id": "q", "inputs": {"w": {}}, "steps": [{"id": "i", "agent": agent}]});
    let inputs = json!({"w": "${item.value}"});
    let each = json!({"id": "each", "for_each": "${l.result}", "plan": inner, "inputs": inputs, "depends_on": ["l"]});
    let steps = json!([{"id": "l", "tool": "noop", "arguments": {"output": ["u", "v"]}}, each]);
    let plan = scene.home.file("plan.json", json!({"id": "p", "steps": steps}).to_string());
    let ended = scene.home.run(scene.words(&plan, &["-o", "text"]));
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!((scene.file("log").as_str(), scene.asks().len()), ("look at u\nlook at v\n", 4));
}

/// The calls of one answer are all made, and more than anyone has a use for are none.
#[test]
fn an_answer_may_have_many_calls() {
    let scene = Scene::new(|ask| {
        let calls = |count: usize| -> Vec<(&str, Value)> {
            (0..count).map(|n| ("write_file", json!({"path": format!("d/{n}"), "content": "x"}))).collect()
        };
        match ask.turn {
            1 => ask.says("", &calls(120)),
            2 if ask.times == 1 => ask.says("", &calls(257)),
            _ => ask.completes(json!(ask.told().iter().filter(|told| told.contains("\"created\":true")).count())),
        }
    });
    let ended = scene.run(&goal(&["write_file"]), &json!({}), &["-o", "text"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(fs::read_dir(scene.home.path("w/d")).unwrap().count(), 120);
    assert_eq!(scene.step("a")["output"], 120, "the result of each");
}
