//! How executions start: later, with inputs from a file; and how they continue after a failure or a cancellation.

use belay_e2e::Home;
use pbjson_types::Timestamp;
use serde_json::{Value, json};

const ONE: &str = "id: one\nsteps: [{id: a, tool: noop, arguments: {output: 1}}]\n";

/// A time of the contract's JSON.
fn time(value: &Value) -> Timestamp {
    serde_json::from_value(value.clone()).expect("a time in the contract's form")
}

/// Runs it to its end, and returns the execution. What it waits for is said on standard error meanwhile.
fn completed(home: &Home, arguments: &[&str]) -> Value {
    let ended = home.run(arguments.iter().chain(&["-o", "json"]));
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.talk.starts_with("waiting until "), "{ended:?}");
    serde_json::from_str(&ended.out).expect("JSON on standard output")
}

/// Whole milliseconds from one time to another.
fn milliseconds(from: &Timestamp, to: &Timestamp) -> i64 {
    (to.seconds - from.seconds) * 1_000 + i64::from(to.nanos - from.nanos) / 1_000_000
}

#[test]
fn an_execution_starts_after_a_while_or_at_a_time() {
    let home = Home::new();
    home.file("one.yaml", ONE);
    let server = home.serve();
    let later = completed(&home, &["run", "one.yaml", "--id", "later", "--after", "1s"]);
    let created = time(&later["createTime"]);
    assert!(milliseconds(&created, &time(&later["startTime"])) >= 900, "it has waited: {later}");

    // A time that lies ahead, by the server's clock.
    let at = Timestamp { seconds: time(&later["endTime"]).seconds + 3, nanos: 0 };
    let text = serde_json::to_value(at).unwrap();
    let timed = completed(&home, &["run", "one.yaml", "--id", "timed", "--at", text.as_str().unwrap()]);
    assert!(milliseconds(&at, &time(&timed["startTime"])) >= 0, "not before {at:?}: {timed}");

    // Far ahead: it is pending, says until when, and can be cancelled. Without a server it would have to be resumed.
    let far = Timestamp { seconds: at.seconds + 300 * 86_400, nanos: 0 };
    let until = serde_json::to_value(far).unwrap().as_str().unwrap().replace("+00:00", "Z");
    let started = home.run(["run", "one.yaml", "--id", "far", "--at", &until, "--detach"]);
    assert_eq!(started.code, 0, "{started:?}");
    let (_, far) = home.json(&["executions", "get", "far"]);
    assert!(far["state"] == "STATE_PENDING" && far["waiting"][0]["untilTime"] == until, "{far}");
    assert_eq!(home.run(["executions", "cancel", "far"]).code, 0);

    let beyond = home.run(["run", "one.yaml", "--at", "2999-01-01T00:00:00Z"]);
    assert!(beyond.code == 2 && beyond.talk.contains("--at: must be at most 365 days from now"), "{beyond:?}");
    let both = home.run(["run", "one.yaml", "--at", "2999-01-01T00:00:00Z", "--after", "1s"]);
    assert!(both.code == 2 && both.talk.contains("--after"), "{both:?}");
    for wrong in [["--at", "tomorrow"], ["--after", "soon"]] {
        let refused = home.run(["run", "one.yaml", wrong[0], wrong[1]]);
        assert!(refused.code == 2 && refused.talk.contains(wrong[0]), "{refused:?}");
    }
    drop(server);
}

/// S4-03: values for a plan from a file, from flags, and its defaults; readers see them.
#[test]
fn a_plan_gets_its_inputs_from_a_file_and_from_flags() {
    let home = Home::new();
    home.file(
        "plan.yaml",
        "id: p
inputs:
  version: {schema: {type: string}}
  rows: {schema: {type: integer}}
  mode: {default: quick}
steps:
  - {id: a, tool: noop, arguments: {output: '${inputs.version} ${inputs.rows} ${inputs.mode}'}}
",
    );
    home.file("inputs.json", r#"{"version": "1.4", "rows": 3}"#);
    let (code, ended) =
        home.json(&["run", "plan.yaml", "--id", "e1", "--input-file", "inputs.json", "--input", "version=2"]);
    assert_eq!(code, 0, "{ended}");
    let (_, found) = home.json(&["executions", "get", "e1"]);
    assert_eq!(found["steps"][0]["output"], "2 3 quick", "a flag comes before the file");
    assert_eq!(found["inputs"], json!({"version": "2", "rows": 3, "mode": "quick"}), "readers see the values");

    let refused = |file: &str, content: &str| {
        home.file(file, content);
        let ended = home.run(["run", "plan.yaml", "--input-file", file]);
        assert_eq!(ended.code, 2, "{ended:?}");
        ended.talk
    };
    assert!(refused("list.json", "[1]").contains("the inputs in list.json are not a JSON object"));
    assert!(refused("broken.json", "{").contains("the inputs in broken.json are not JSON"));
    assert!(refused("wrong.json", r#"{"version": "1", "rows": "x"}"#).contains("rows"));
    assert!(refused("few.json", r#"{"rows": 1}"#).contains("version"));
    let missing = home.run(["run", "plan.yaml", "--input-file", "none.json"]);
    assert!(missing.code == 2 && missing.talk.contains("the inputs in none.json cannot be read"), "{missing:?}");
}

/// S2-X-22: what failed is skipped, and what depends on it runs.
#[test]
fn an_execution_that_failed_goes_on_without_its_failed_step() {
    let home = Home::new();
    home.file(
        "plan.yaml",
        "id: p
steps:
  - {id: a, tool: noop, arguments: {output: 1}}
  - {id: b, tool: noop, depends_on: [a], arguments: {fail: broken}}
  - {id: c, tool: noop, depends_on: [b], arguments: {output: 3}}
",
    );
    assert_eq!(home.run(["run", "plan.yaml", "--id", "e1"]).code, 30);
    let resumed = home.run(["executions", "resume", "e1", "--skip-failed-step"]);
    assert_eq!(resumed.code, 0, "{resumed:?}");
    let (_, found) = home.json(&["executions", "get", "e1"]);
    let states: Vec<&Value> = found["steps"].as_array().unwrap().iter().map(|step| &step["state"]).collect();
    assert_eq!(states, ["STATE_COMPLETED", "STATE_SKIPPED", "STATE_COMPLETED"]);
    assert_eq!(found["steps"][0]["attempt"], 1, "what completed did not run again");
    assert_eq!((&found["state"], &found["steps"][2]["output"]), (&json!("STATE_COMPLETED"), &json!(3)));
}

/// The command that `belay why` suggests continues an execution that was cancelled or ran out of time.
#[test]
fn what_was_stopped_goes_on_with_the_command_that_why_names() {
    let home = Home::new();
    home.file(
        "wait.yaml",
        "id: w\nsteps:\n  - {id: s, wait: {signal: go}}\n  - {id: t, tool: noop, depends_on: [s]}\n",
    );
    home.file("late.yaml", "id: l\ntimeout: 300ms\nsteps: [{id: s, wait: {signal: go}}]\n");
    let server = home.serve();
    assert_eq!(home.run(["run", "wait.yaml", "--id", "cut", "--detach"]).code, 0);
    assert_eq!(home.run(["executions", "cancel", "cut"]).code, 0);
    assert_eq!(home.run(["run", "late.yaml", "--id", "late"]).code, 34);
    for id in ["cut", "late"] {
        let (_, why) = home.json(&["why", id]);
        assert_eq!(why["nextCommand"], format!("belay executions retry {id}"));
    }
    let mut retried = home.start(["executions", "retry", "cut"]);
    retried.wait_for_talk("waiting for the signal");
    assert_eq!(home.run(["executions", "signal", "cut", "go"]).code, 0);
    let ended = retried.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    drop(server);
}
