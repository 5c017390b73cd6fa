//! Steps that run after ends that they name, and that read what became of each entry of a list.

use std::fs;

use belay_e2e::Home;
use serde_json::{Value, json};

/// A token as a forge gives them, in parts, so that it stands in no file.
fn token() -> String {
    ["ghp_", "Jo81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk"].concat()
}

/// How each step ended: its state, or why it was skipped, and because of which step.
fn ends(execution: &Value) -> Vec<(String, String)> {
    let step = |step: &Value| {
        let text = |field: &str| step[field].as_str().unwrap_or_default();
        let end = match text("skipReason") {
            "" => text("state").trim_start_matches("STATE_").to_owned(),
            reason => format!("{} {}", reason.trim_start_matches("SKIP_REASON_"), text("skippedBecause")),
        };
        (text("stepId").to_owned(), end)
    };
    execution["steps"].as_array().unwrap().iter().map(step).collect()
}

fn assert_ends(execution: &Value, expected: &[(&str, &str)]) {
    let found = ends(execution);
    let found: Vec<(&str, &str)> = found.iter().map(|(id, end)| (id.as_str(), end.as_str())).collect();
    assert_eq!(found, expected, "{execution:#}");
}

/// Branches are joined whichever ran, and people see after which ends a step runs, and why one does not.
#[test]
fn branches_are_joined() {
    let home = Home::new();
    home.file(
        "plan.yaml",
        "
id: branches
inputs: {fast: {schema: {type: boolean}}}
parallelism: 2
steps:
  - {id: quick, tool: noop, condition: '${inputs.fast}', arguments: {output: 1}}
  - {id: slow, tool: noop, condition: '!${inputs.fast}', arguments: {output: 100}}
  - id: join
    depends_on: [{step: quick, on: [success, skipped]}, {step: slow, on: [success, skipped]}]
    tool: noop
    arguments: {output: '${quick.result ?? slow.result}'}
  - {id: also, run_when: none_failed, depends_on: [quick, slow], tool: noop}
  - {id: alarm, depends_on: [{step: join, on: [failure]}], tool: noop}
",
    );
    let shown = home.run(["run", "plan.yaml", "--input", "fast=true", "--dry-run"]);
    assert!(shown.out.contains("after quick (success or skipped), after slow (success or skipped)"), "{shown:?}");
    assert!(shown.out.contains("after any end but a failure of quick, slow"), "{shown:?}");
    let drawn = home.run(["plan", "graph", "plan.yaml", "--format", "mermaid"]).out;
    assert!(drawn.contains("-.->|\"failure\"| s4") && drawn.contains("-->|\"success or skipped\"| s2"), "{drawn}");
    for (fast, output, [quick, slow]) in
        [("true", 1, ["COMPLETED", "CONDITION_FALSE "]), ("false", 100, ["CONDITION_FALSE ", "COMPLETED"])]
    {
        let ended = home.run(["run", "plan.yaml", "--input", &format!("fast={fast}"), "--id", &format!("fast-{fast}")]);
        assert_eq!(ended.code, 0, "{ended:?}");
        assert!(ended.out.contains("it runs after another end of join"), "{}", ended.out);
        let (_, execution) = home.json(&["executions", "get", &format!("fast-{fast}")]);
        assert_eq!(
            (&execution["state"], &execution["steps"][2]["output"]),
            (&"STATE_COMPLETED".into(), &output.into())
        );
        let expected = [
            ("quick", quick),
            ("slow", slow),
            ("join", "COMPLETED"),
            ("also", "COMPLETED"),
            ("alarm", "CONDITION_FALSE join"),
        ];
        assert_ends(&execution, &expected);
    }
}

/// The outcome of each entry reaches the step that asks for it, secrets included, and is shown without them; after a retry it is the outcome of the
/// retry.
#[test]
fn what_became_of_each_entry_is_read() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let token = token();
    let script = "test -e fixed || test $0 != b || exit 3; echo $0 $1";
    let plan = json!({"id": "entries", "parallelism": 4, "steps": [
        {
            "id": "probe",
            "for_each": ["a", "b"],
            "tool": "run_terminal",
            "arguments": {"command": ["sh", "-c", script, "${item.value}", token]},
        },
        {
            "id": "report",
            "depends_on": [{"step": "probe", "on": ["success", "failure"]}],
            "tool": "write_file",
            "arguments": {"path": "report.json", "content": "${probe.results}\n"},
        },
        {"id": "ship", "depends_on": ["probe"], "tool": "noop"},
    ]});
    let plan = home.file("plan.json", plan.to_string());
    let ended = home.run(["run", &plan, "--workspace", "w", "--approve", "auto", "--id", "entries"]);
    assert_eq!(ended.code, 30, "{ended:?}");
    let read = || -> Value {
        let text = fs::read_to_string(home.path("w/report.json")).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    };
    let results = read();
    assert_eq!(results[0]["state"], "completed", "{results:#}");
    assert_eq!(results[0]["value"]["stdout"].as_str().unwrap().trim(), format!("a {token}"), "it has the real value");
    assert_eq!((&results[0]["failure"], &results[1]["value"]), (&Value::Null, &Value::Null));
    assert_eq!((&results[1]["state"], &results[1]["failure"]["code"]), (&"failed".into(), &"COMMAND_FAILED".into()));
    let (_, execution) = home.json(&["executions", "get", "entries"]);
    assert_eq!(execution["state"], "STATE_PARTIAL");
    let expected = [
        ("probe", "FAILED"),
        ("report", "COMPLETED"),
        ("ship", "DEPENDENCY_FAILED probe"),
        ("probe~0", "COMPLETED"),
        ("probe~1", "FAILED"),
    ];
    assert_ends(&execution, &expected);
    let why = home.run(["why", "entries"]);
    assert!(why.out.contains("1 step because of it: ship"), "{why:?}");
    for shown in [
        format!("{execution:#}"),
        why.out,
        home.run(["executions", "get", "entries", "--step", "report"]).out,
        format!("{:?}", home.events("entries")),
    ] {
        assert!(!shown.contains(&token), "{shown}");
    }

    home.file("w/fixed", "");
    let retried = home.run(["executions", "retry", "entries"]);
    assert_eq!(retried.code, 0, "{retried:?}");
    let states: Vec<Value> = read().as_array().unwrap().iter().map(|entry| entry["state"].clone()).collect();
    assert_eq!(states, ["completed", "completed"]);
}

/// The steps that a fork takes over have the results of their entries; a plan that changes outcomes is carried out as it is then.
#[test]
fn forks_and_edited_plans_have_them_too() {
    let home = Home::new();
    let plan = |on: &str| {
        format!(
            "
id: way
steps:
  - {{id: each, for_each: [1, 2], tool: noop, arguments: {{output: '${{item.value}}'}}}}
  - {{id: fails, tool: noop, arguments: {{fail: no}}}}
  - {{id: go, wait: {{signal: go}}, depends_on: [each]}}
  - {{id: tell, tool: noop, depends_on: [go, {{step: fails, on: [{on}]}}], arguments: {{output: '${{each.results}}'}}}}
"
        )
    };
    home.file("plan.yaml", plan("failure"));
    let server = home.serve();
    let mut run = home.start(["run", "plan.yaml", "--id", "first"]);
    run.wait_for("signal go");
    home.file("plan.yaml", plan("failure, skipped"));
    let edited = home.run(["executions", "edit-plan", "first", "plan.yaml"]);
    assert_eq!(edited.code, 0, "{edited:?}");
    assert_eq!(home.run(["executions", "fork", "first", "--id", "second", "--detach"]).code, 0);
    for id in ["first", "second"] {
        assert_eq!(home.run(["executions", "signal", id, "go"]).code, 0);
        assert_eq!(home.run(["executions", "watch", id]).code, 30);
        let (_, step) = home.json(&["executions", "get", id, "--step", "tell"]);
        let entry = |value: u32| json!({"state": "completed", "value": value, "failure": null});
        assert_eq!(step["output"], json!([entry(1), entry(2)]), "{id}: {step:#}");
    }
    assert_eq!(run.end().code, 30);
    let (_, explained) = home.json(&["executions", "diff", "first", "second"]);
    assert_eq!(explained["plannedStepChanges"].as_array().map_or(0, Vec::len), 0, "{explained:#}");
    drop(server);
}
