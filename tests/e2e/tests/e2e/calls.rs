//! Steps that make several calls, with the real services.

use std::{fs, time::Duration};

use belay_e2e::{Home, belay::CommandEnd};
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

fn run(home: &Home, id: &str, approve: &str) -> CommandEnd {
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
    let results = result["stepOutputs"]["look"].as_array().unwrap_or_else(|| panic!("{result:#}"));
    assert_eq!(results[..7], [0, 1, 2, 3, 4, 5, 6].map(|n| json!(n)), "{result:#}");
    assert_eq!(results[7]["content"], "now", "{result:#}");
    assert_eq!(result["stepOutputs"]["told"], 6, "{result:#}");
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

/// The plan of a step whose calls have one effect: commands work on what a file tool and a command before them have changed.
fn whole(calls: &Value, more: Value) -> Value {
    let mut step = json!({"id": "make", "effects": "per_step", "calls": calls});
    let fields = more.as_object().cloned().unwrap_or_default();
    step.as_object_mut().expect("it is an object").extend(fields);
    json!({"id": "whole", "parallelism": 1, "steps": [
        step,
        {"id": "after", "tool": "list_directory", "arguments": {"path": "."}, "depends_on": ["make"]},
    ]})
}

fn shell(script: &str) -> Value {
    json!({"tool": "run_terminal", "arguments": {"command": ["sh", "-c", script]}})
}

/// B-34: file tools and commands of a step see what those before them have changed, nobody else does, and all of it is approved and committed as one, also
/// where the workspace belongs to another user than the runner's.
#[test]
fn the_calls_of_a_step_have_one_effect() {
    let home = home();
    for (name, text) in [("f", "base\n"), ("d/old", "old")] {
        fs::create_dir_all(home.path("w").join(name).parent().unwrap()).unwrap();
        fs::write(home.path("w").join(name), text).unwrap();
    }
    if rustix::process::geteuid().is_root() {
        for name in ["w", "w/f", "w/d", "w/d/old"] {
            std::os::unix::fs::chown(home.path(name), Some(1000), Some(1000)).unwrap();
        }
    }
    let calls = json!([
        {"tool": "write_file", "arguments": {"path": "a.txt", "content": "a"}},
        shell("set -e; printf b >> a.txt; echo one >> f; rm -r d; mkdir -m 700 p; echo p > p/q; ln -s f link"),
        shell("set -e; printf c >> a.txt; echo two >> f; mkdir d; echo new > d/new; test ! -e d/old; rm link; cat p/q >> p/r"),
        {"tool": "read_file", "arguments": {"path": "a.txt"}},
    ]);
    home.file("plan.json", whole(&calls, json!({})).to_string());
    let server = home.serve();
    let with = ["--workspace", "w", "--approve", "prompt", "--id", "whole", "--detach"];
    let started = home.run(["run", "plan.json"].iter().chain(&with));
    assert_eq!(started.code, 0, "{started:?}");
    let waiting = until(|| {
        let (_, listed) = home.json(&["approvals", "list"]);
        listed["approvals"].as_array().filter(|approvals| approvals.len() == 1).map(|approvals| approvals[0].clone())
    });
    assert_eq!(waiting["stepId"], "make~4", "{waiting:#}");
    assert_eq!(fs::read_to_string(home.path("w/f")).unwrap(), "base\n", "nothing is committed");
    assert!(!home.path("w/a.txt").exists());
    // What was kept outlives the loss of all services.
    server.kill();
    let server = home.serve();
    let id = waiting["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let shown = home.run(["approvals", "show", id.as_str()]);
    for part in ["a.txt", "d/new", "d/old", "p/r"] {
        assert!(shown.out.contains(part), "{part}: {shown:?}");
    }
    let approved = home.run(["approve", id.as_str(), "--yes"]);
    assert_eq!(approved.code, 0, "{approved:?}");
    let ended = home.run(["executions", "watch", "whole"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(fs::read_to_string(home.path("w/a.txt")).unwrap(), "abc");
    assert_eq!(fs::read_to_string(home.path("w/f")).unwrap(), "base\none\ntwo\n");
    assert_eq!(fs::read_to_string(home.path("w/p/r")).unwrap(), "p\n");
    assert!(home.path("w/d/new").exists() && !home.path("w/d/old").exists() && !home.path("w/link").exists());
    let (_, result) = home.json(&["executions", "result", "whole"]);
    let (_, execution) = home.json(&["executions", "get", "whole"]);
    assert_eq!(execution["steps"][0]["stepId"], "make", "{execution:#}");
    assert!(result["stepOutputs"]["after"].to_string().contains("a.txt"), "{result:#}");
    until(|| fs::read_dir(home.path("w/.belay/layers")).unwrap().next().is_none().then_some(()));
    drop(server);
}

/// When a call fails, nothing of the step is committed, and a retry makes all calls again. What a person saves meanwhile is not lost.
#[test]
fn a_step_with_one_effect_is_committed_whole_or_not_at_all() {
    let home = home();
    let calls = json!([
        {"tool": "write_file", "arguments": {"path": "a.txt", "content": "a"}},
        shell("test -e there && cat there >> a.txt"),
    ]);
    home.file("plan.json", whole(&calls, json!({})).to_string());
    let ran = run(&home, "whole", "auto");
    assert_eq!(ran.code, 30, "{ran:?}");
    assert!(!home.path("w/a.txt").exists(), "the first call is not committed by itself");
    fs::write(home.path("w/there"), "now").unwrap();
    let ran = home.run(["executions", "retry", "whole"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert_eq!(fs::read_to_string(home.path("w/a.txt")).unwrap(), "anow", "both calls were made again");
    assert!(ran.out.contains("commits what its calls have changed"), "{ran:?}");

    // A person saves a file that the step has changed, while a call of it runs.
    let calls = json!([
        {"tool": "write_file", "arguments": {"path": "there", "content": "by the step"}},
        shell("sleep 2"),
    ]);
    home.file("plan.json", whole(&calls, json!({})).to_string());
    let server = home.serve();
    let with = ["--workspace", "w", "--approve", "auto", "--id", "saved", "--detach"];
    assert_eq!(home.run(["run", "plan.json"].iter().chain(&with)).code, 0);
    until(|| (state(&states(&home, "saved"), "make~1") == "RUNNING").then_some(()));
    fs::write(home.path("w/there"), "by a person").unwrap();
    let ended = home.run(["executions", "watch", "saved"]);
    assert_eq!(ended.code, 30, "{ended:?}");
    assert!(ended.out.contains("changed by someone else"), "{ended:?}");
    assert_eq!(fs::read_to_string(home.path("w/there")).unwrap(), "by a person");
    let retried = home.run(["executions", "retry", "saved"]);
    assert_eq!(retried.code, 0, "{retried:?}");
    assert_eq!(fs::read_to_string(home.path("w/there")).unwrap(), "by the step");
    drop(server);
}

#[test]
fn what_one_effect_cannot_be_given_is_refused_by_field() {
    let home = home();
    let one = json!([{"tool": "noop", "arguments": {}}]);
    for (more, field) in [
        (json!({"effects": "at_once"}), "effects: must be per_call or per_step"),
        (
            json!({"postconditions": [{"condition": "1 == 1"}]}),
            "postconditions: is for calls that commit their own effects",
        ),
        (json!({"calls": null, "tool": "noop"}), "effects: is for steps with `calls`"),
    ] {
        home.file("plan.json", whole(&one, more).to_string());
        let refused = home.run(["plan", "validate", "plan.json"]);
        assert_ne!(refused.code, 0, "{refused:?}");
        assert!(format!("{}{}", refused.out, refused.talk).contains(field), "{field}: {refused:?}");
    }
}
