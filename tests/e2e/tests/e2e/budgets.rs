//! Budgets, with the real services.

use std::{fs, time::Duration};

use belay_e2e::{Home, belay::RunningCommand};
use serde_json::{Value, json};

fn home(plan: &Value) -> Home {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("plan.json", plan.to_string());
    home
}

fn write(id: &str) -> Value {
    json!({"id": id, "tool": "write_file", "arguments": {"path": format!("{id}.txt"), "content": id}})
}

fn files(home: &Home) -> Vec<String> {
    let names = fs::read_dir(home.path("w")).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".txt")).collect();
    names.sort();
    names
}

/// B-35: the execution is paused when its calls are used up, stays so when the server is killed, and resumes once a person has raised the budget.
#[test]
fn an_exhausted_budget_pauses_the_execution_until_a_person_raises_it() {
    let plan = |calls: u64| {
        let steps = ["a", "b", "c", "d"].map(write);
        json!({"id": "p", "parallelism": 4, "budget": {"calls": calls}, "steps": steps})
    };
    let home = home(&plan(2));
    let server = home.serve();
    let started = home.run(["run", "plan.json", "--workspace", "w", "--approve", "auto", "--id", "p", "--detach"]);
    assert_eq!(started.code, 0, "{started:?}");
    let execution = until(|| {
        let (_, execution) = home.json(&["executions", "get", "p"]);
        Some(execution).filter(|execution| execution["state"] == "STATE_PAUSED")
    });
    assert_eq!(execution["spent"]["calls"], "2", "{execution:#}");
    assert_eq!(files(&home).len(), 2);
    let shown = home.run(["executions", "get", "p"]);
    assert!(shown.out.contains("2 of 2 calls"), "{shown:?}");
    let why = home.run(["why", "p"]);
    assert!(why.out.contains("the budget of the plan is used up: 2 of 2 calls"), "{why:?}");
    assert!(why.out.contains("next: belay executions edit-plan p FILE"), "{why:?}");

    server.kill();
    let server = home.serve();
    let (_, execution) = home.json(&["executions", "get", "p"]);
    assert_eq!((&execution["state"], &execution["spent"]["calls"]), (&json!("STATE_PAUSED"), &json!("2")));
    home.file("more.json", plan(4).to_string());
    let edited = home.run(["executions", "edit-plan", "p", "more.json"]);
    assert_eq!(edited.code, 0, "{edited:?}");
    let resumed = home.run(["executions", "resume", "p"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    assert_eq!(files(&home), ["a.txt", "b.txt", "c.txt", "d.txt"]);
    let (_, execution) = home.json(&["executions", "get", "p"]);
    assert_eq!((&execution["state"], &execution["spent"]["calls"]), (&json!("STATE_COMPLETED"), &json!("4")));
    drop(server);
}

/// B-35: what the execution of a step's plan uses is taken from the budget of the outer plan; it fails when it has used up what it was given, and with
/// the outer plan's `on_exhausted: fail` all others do.
#[test]
fn the_plan_of_a_step_uses_the_budget_of_the_outer_plan() {
    let inner = json!({"id": "inner", "steps": [write("a"), write("b"), write("c")]});
    let home = home(&json!({
        "id": "outer",
        "budget": {"calls": 2, "on_exhausted": "fail"},
        "steps": [{"id": "build", "plan": inner}, {"id": "after", "run_when": "always", "depends_on": ["build"], "tool": "noop"}],
    }));
    let ran = home.run(["run", "plan.json", "--workspace", "w", "--approve", "auto", "--id", "o"]);
    assert_eq!(ran.code, 30, "{ran:?}");
    assert_eq!(files(&home), ["a.txt", "b.txt"]);
    let (_, execution) = home.json(&["executions", "get", "o"]);
    assert_eq!(execution["spent"]["calls"], "2", "{execution:#}");
    let failures: Vec<&Value> = execution["steps"].as_array().unwrap().iter().map(|step| &step["failure"]).collect();
    for failure in failures {
        assert_eq!(failure["errorClass"], "ERROR_CLASS_BUDGET_EXHAUSTED", "{execution:#}");
    }
}

/// Results of calls are counted, whatever their size, and more than there was is reported with the amount.
#[test]
fn output_beyond_the_budget_is_an_overrun() {
    let step = |id: &str| json!({"id": id, "tool": "noop", "arguments": {"output": "x".repeat(20_000)}});
    let home = home(&json!({
        "id": "p",
        "budget": {"output_bytes": 30_000, "on_exhausted": "fail"},
        "steps": [step("a"), step("b"), step("c")],
    }));
    let ran = home.run(["run", "plan.json", "--workspace", "w", "--approve", "auto", "--id", "p"]);
    assert_ne!(ran.code, 0, "{ran:?}");
    let (_, execution) = home.json(&["executions", "get", "p"]);
    let states: Vec<&Value> = execution["steps"].as_array().unwrap().iter().map(|step| &step["state"]).collect();
    assert_eq!(states, ["STATE_COMPLETED", "STATE_COMPLETED", "STATE_FAILED"], "{execution:#}");
    let spent: u64 = execution["spent"]["outputBytes"].as_str().unwrap().parse().unwrap();
    assert!((40_000..41_000).contains(&spent), "{spent}");
    let audit = home.run(["audit", "p"]);
    assert!(
        audit.out.contains(&format!("The budget of the execution is overrun: {spent} of 30000 bytes of output")),
        "{audit:?}"
    );
}

/// A call with large arguments for which nothing is left fails its step, and nothing else; and again when it is tried again.
#[test]
fn a_large_call_finds_nothing_left() {
    let home = home(&json!({
        "id": "p",
        "budget": {"calls": 1, "on_exhausted": "fail"},
        "inputs": {"big": {"default": "x".repeat(100_000)}},
        "steps": [
            {"id": "a", "tool": "noop"},
            {"id": "b", "tool": "noop", "arguments": {"output": "${inputs.big}"}, "depends_on": ["a"]},
        ],
    }));
    let ran = home.run(["run", "plan.json", "--workspace", "w", "--id", "p"]);
    assert_eq!(ran.code, 30, "{ran:?}");
    assert!(ran.out.contains("BUDGET_EXHAUSTED"), "{ran:?}");
    let again = home.run(["executions", "retry", "p"]);
    assert!(again.code == 30 && again.talk.contains("BUDGET_EXHAUSTED"), "{again:?}");
    home.file(
        "more.json",
        json!({
            "id": "p",
            "budget": {"calls": 2},
            "inputs": {"big": {"default": "x"}},
            "steps": [
                {"id": "a", "tool": "noop"},
                {"id": "b", "tool": "noop", "arguments": {"output": "${inputs.big}"}, "depends_on": ["a"]},
            ],
        })
        .to_string(),
    );
    let raised = home.run(["executions", "retry", "p", "--plan", "more.json"]);
    assert_eq!(raised.code, 0, "{raised:?}");
}

fn limit_calls(home: &Home, calls: u64) {
    home.file("config.yaml", format!("budgets: [{{namespace: default, window: day, calls: {calls}}}]\n"));
}

fn serve(home: &Home) -> RunningCommand {
    home.serve_with(&["--config", "config.yaml"])
}

/// The executions in a state.
fn in_state(home: &Home, ids: &[&str], state: &str) -> Option<Vec<Value>> {
    let found: Vec<Value> = ids.iter().map(|id| home.json(&["executions", "get", id]).1).collect();
    found.iter().all(|execution| execution["state"] == state).then_some(found)
}

fn calls(executions: &[Value]) -> u64 {
    executions.iter().map(|one| one["spent"]["calls"].as_str().map_or(0, |calls| calls.parse::<u64>().unwrap())).sum()
}

/// B-35: executions side by side, and those that carry out the plans of steps, use the budget of their namespace together. Those that find nothing left say
/// so, wait for the end of the day, and resume automatically when the operator has raised the limit.
#[test]
fn the_executions_of_a_namespace_share_its_budget_of_the_day() {
    let steps = |names: [&str; 4]| json!(names.map(write));
    let home = home(&json!({"id": "p", "parallelism": 4, "steps": steps(["a1", "a2", "a3", "a4"])}));
    let inner = json!({"id": "inner", "parallelism": 2, "steps": steps(["b1", "b2", "b3", "b4"])});
    home.file("outer.json", json!({"id": "outer", "steps": [{"id": "s", "plan": inner}]}).to_string());
    limit_calls(&home, 5);
    let server = serve(&home);
    for (plan, id) in [("plan.json", "a"), ("outer.json", "b")] {
        let started = home.run(["run", plan, "--workspace", "w", "--approve", "auto", "--id", id, "--detach"]);
        assert_eq!(started.code, 0, "{started:?}");
    }
    let child = until(|| {
        let (_, execution) = home.json(&["executions", "get", "b"]);
        let name = execution["steps"][0]["plan"]["execution"].as_str()?;
        Some(name.rsplit('/').next()?.to_owned())
    });
    let both = ["a", child.as_str()];
    let is_over = |id: &&str| {
        ["STATE_PAUSED", "STATE_COMPLETED"].map(|state| in_state(&home, &[*id], state)).into_iter().flatten().next()
    };
    let paused = until(|| both.iter().map(is_over).collect::<Option<Vec<_>>>()).concat();
    assert_eq!((calls(&paused), files(&home).len()), (5, 5), "{paused:#?}");
    let waits = paused.iter().find(|execution| execution["state"] == "STATE_PAUSED").expect("one finds nothing left");
    let waiting = &waits["waiting"][0];
    assert_eq!(waiting["kind"], "KIND_LIMIT", "{waits:#}");
    assert!(waiting["untilTime"].as_str().is_some_and(|time| time.ends_with("T00:00:00Z")), "{waits:#}");
    let id = waits["name"].as_str().unwrap().rsplit('/').next().unwrap();
    let why = home.run(["why", id]);
    let says = "namespace `default` has used its budget of the day: 5 of 5 calls; the day ends at ";
    assert!(why.out.contains(says) && why.out.contains("00:00 UTC"), "{why:?}");

    server.kill();
    let server = serve(&home);
    let third = home.run(["run", "plan.json", "--workspace", "w", "--approve", "auto", "--id", "c", "--detach"]);
    assert_eq!(third.code, 0, "{third:?}");
    let third = until(|| in_state(&home, &["c"], "STATE_PAUSED"));
    assert_eq!((calls(&third), files(&home).len()), (0, 5), "nothing was forgotten: {third:#?}");

    server.kill();
    limit_calls(&home, 100);
    let _server = serve(&home);
    let all = ["a", "b", "c"];
    let completed = until(|| in_state(&home, &all, "STATE_COMPLETED"));
    assert_eq!((calls(&completed), files(&home).len()), (12, 8), "{completed:#?}");
}

/// B-35: the executor is killed at whatever instant, and each call is counted once.
#[test]
fn the_budget_of_a_namespace_is_kept_when_the_executor_is_killed() {
    let plan = |prefix: &str| {
        let steps: Vec<Value> = (0..40).map(|n| write(&format!("{prefix}{n}"))).collect();
        json!({"id": "p", "parallelism": 4, "steps": steps})
    };
    let home = home(&plan("a"));
    home.file("other.json", plan("b").to_string());
    limit_calls(&home, 30);
    let mut server = serve(&home);
    for (plan, id) in [("plan.json", "a"), ("other.json", "b")] {
        let started = home.run(["run", plan, "--workspace", "w", "--approve", "auto", "--id", id, "--detach"]);
        assert_eq!(started.code, 0, "{started:?}");
    }
    for least in [4, 12, 20] {
        until(|| (files(&home).len() >= least).then_some(()));
        server.kill();
        server = serve(&home);
    }
    let paused = until(|| in_state(&home, &["a", "b"], "STATE_PAUSED"));
    assert_eq!(calls(&paused), 30, "{paused:#?}");
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
