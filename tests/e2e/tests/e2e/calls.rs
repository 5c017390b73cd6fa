//! Steps that make several calls, with the real services.

use std::{fs, time::Duration};

use belay_e2e::{Home, belay::Ended};
use serde_json::{Value, json};

/// Ten calls, of which one fails until there is a file `there`.
fn plan() -> Value {
    let mut calls: Vec<Value> = (0..7).map(|n| json!({"tool": "noop", "arguments": {"output": n}})).collect();
    calls.push(json!({"tool": "read_file", "arguments": {"path": "there"}}));
    calls.push(json!({"tool": "write_file", "arguments": {"path": "a.txt", "content": "a"}}));
    calls.push(json!({"tool": "write_file", "arguments": {"path": "b.txt", "content": "b"}}));
    json!({"id": "ten", "parallelism": 4, "steps": [
        {"id": "look", "calls": calls},
        {"id": "told", "tool": "noop", "arguments": {"output": "${look.result[6]}"}},
    ]})
}

fn home() -> Home {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("plan.json", plan().to_string());
    home
}

fn states(home: &Home, id: &str) -> Vec<(String, String)> {
    let (_, execution) = home.json(&["executions", "get", id]);
    let steps = execution["steps"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    steps.map(|step| (text(&step["stepId"]), text(&step["state"]).replace("STATE_", ""))).collect()
}

fn state<'a>(states: &'a [(String, String)], step: &str) -> &'a str {
    states.iter().find(|(id, _)| id == step).map_or("", |(_, state)| state)
}

fn run(home: &Home, id: &str, approve: &str) -> Ended {
    home.run(["run", "plan.json", "--workspace", "w", "--approve", approve, "--id", id])
}

/// S2-NFR-009: ten calls of one step, each with an end of its own; what failed is made again, and nothing else.
#[test]
fn ten_calls_have_their_results_in_order_and_only_what_failed_is_made_again() {
    let home = home();
    let ran = run(&home, "ten", "auto");
    assert_eq!(ran.code, 30, "{ran:?}");
    assert!(ran.out.contains("1 of 10 calls failed; the first is `look~7`"), "{ran:?}");
    let before = states(&home, "ten");
    assert_eq!(before.len(), 12, "{before:?}");
    assert_eq!(
        [state(&before, "look~7"), state(&before, "look~9"), state(&before, "told")],
        ["FAILED", "COMPLETED", "SKIPPED"]
    );

    fs::write(home.path("w/there"), "now").unwrap();
    fs::remove_file(home.path("w/a.txt")).unwrap();
    let ran = home.run(["executions", "retry", "ten"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(!home.path("w/a.txt").exists(), "a call that had completed was made again");
    let (_, result) = home.json(&["executions", "result", "ten"]);
    let results = result["outputs"]["look"].as_array().unwrap_or_else(|| panic!("{result:#}"));
    assert_eq!(results[..7], [0, 1, 2, 3, 4, 5, 6].map(|n| json!(n)), "{result:#}");
    assert_eq!(results[7]["content"], "now", "{result:#}");
    assert_eq!(result["outputs"]["told"], 6, "{result:#}");
    let why = home.run(["why", "ten"]);
    assert_eq!(why.code, 0, "{why:?}");
}

/// B-25: two calls of one step wait for approval at once; one is approved and commits, the other is denied, and each by its own decision, also after
/// the server was killed between the two.
#[test]
fn each_call_is_approved_by_itself() {
    let home = home();
    for name in ["a.txt", "b.txt"] {
        fs::write(home.path("w").join(name), name).unwrap();
    }
    let calls = ["a.txt", "b.txt"].map(|path| json!({"tool": "delete_file", "arguments": {"path": path}}));
    let plan = json!({"id": "two", "parallelism": 2, "steps": [{"id": "clear", "calls": calls}]});
    home.file("plan.json", plan.to_string());
    let server = home.serve();
    let with = ["--workspace", "w", "--approve", "prompt", "--id", "two", "--detach"];
    let started = home.run(["run", "plan.json"].iter().chain(&with));
    assert_eq!(started.code, 0, "{started:?}");
    let pending = || {
        let (_, listed) = home.json(&["approvals", "list"]);
        let approvals = listed["approvals"].as_array().cloned().unwrap_or_default();
        let of = |approval: &Value| {
            let text = |name: &str| approval[name].as_str().unwrap_or_default().to_owned();
            (text("stepId"), text("name").rsplit('/').next().unwrap_or_default().to_owned())
        };
        approvals.iter().map(of).collect::<Vec<_>>()
    };
    let both = until(|| Some(pending()).filter(|pending| pending.len() == 2));
    let approval = |step: &str| {
        let found = both.iter().find(|(id, _)| id == step);
        found.unwrap_or_else(|| panic!("no approval for {step}: {both:?}")).1.clone()
    };
    let approved = home.run(["approve", approval("clear~0").as_str(), "--yes"]);
    assert_eq!(approved.code, 0, "{approved:?}");
    until(|| (!home.path("w/a.txt").exists()).then_some(()));
    assert!(home.path("w/b.txt").exists(), "the other one waits");

    server.kill();
    let server = home.serve();
    assert_eq!(state(&states(&home, "two"), "clear~1"), "AWAITING_APPROVAL");
    let denied = home.run(["deny", approval("clear~1").as_str(), "--reason", "no"]);
    assert_eq!(denied.code, 0, "{denied:?}");
    let ended = home.run(["executions", "watch", "two"]);
    assert_eq!(ended.code, 33, "{ended:?}");
    let after = states(&home, "two");
    let of = ["clear~0", "clear~1", "clear"].map(|step| state(&after, step));
    assert_eq!(of, ["COMPLETED", "FAILED", "FAILED"]);
    assert!(!home.path("w/a.txt").exists());
    assert_eq!(fs::read_to_string(home.path("w/b.txt")).unwrap(), "b.txt");
    drop(server);
}

/// Waits until there is an answer, for at most twenty seconds.
fn until<T>(answer: impl Fn() -> Option<T>) -> T {
    let begun = tokio::time::Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "waited for too long");
        std::thread::sleep(Duration::from_millis(50));
    }
}
