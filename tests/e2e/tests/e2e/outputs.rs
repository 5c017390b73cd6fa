//! Outputs of commands and of plans, with the real services and the real sandbox.

use std::fs;

use belay_e2e::Home;
use serde_json::{Value, json};

const TOKEN: &str = concat!("ghp_", "Zx81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk");

fn home(script: &str) -> Home {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let command = json!({"shell": true, "command": script});
    let note = json!({"path": "RELEASE", "content": "${build.outputs.version}, ${build.outputs.files[1]}"});
    home.file(
        "plan.json",
        json!({"id": "release", "steps": [
            {"id": "build", "tool": "run_terminal", "arguments": command},
            {"id": "big", "tool": "noop", "condition": "size(${build.outputs.files}) > 5"},
            {"id": "note", "tool": "write_file", "arguments": note},
        ]})
        .to_string(),
    );
    home
}

/// A command hands values to later steps; a secret among them reaches a step and is shown nowhere.
#[test]
fn later_steps_read_what_a_command_has_appended() {
    let script = format!(
        "echo version=1.4-{TOKEN} >> $BELAY_OUTPUT; echo changed > built; echo '{{\"files\": [\"a\", \"b\"]}}' >> $BELAY_OUTPUT"
    );
    let home = home(&script);
    let ended = home.run(["run", "plan.json", "--workspace", "w", "--approve", "auto", "--id", "e"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let made = |name: &str| fs::read_to_string(home.path("w").join(name)).unwrap();
    assert_eq!((made("RELEASE"), made("built")), (format!("1.4-{TOKEN}, b"), "changed\n".into()));
    let (_, step) = home.json(&["executions", "get", "e", "--step", "build"]);
    assert_eq!(step["output"]["outputs"], json!({"version": "1.4-[REDACTED]", "files": ["a", "b"]}), "{step}");
    let (_, execution) = home.json(&["executions", "get", "e"]);
    let skipped = execution["steps"].as_array().unwrap().iter().find(|step| step["stepId"] == "big").unwrap();
    assert_eq!(skipped["state"], "STATE_SKIPPED", "{skipped}");
}

/// Outputs that cannot be taken fail the step, name their line, and leave nothing in the workspace.
#[test]
fn outputs_that_cannot_be_taken_commit_nothing() {
    let home = home("echo x > built; echo 'a=1\nversion 1.4' >> $BELAY_OUTPUT");
    let ended = home.run(["run", "plan.json", "--workspace", "w", "--approve", "auto", "--id", "e"]);
    assert_eq!(ended.code, 30, "{ended:?}");
    let (_, execution) = home.json(&["executions", "get", "e"]);
    let failed: &Value = execution["steps"].as_array().unwrap().iter().find(|step| step["stepId"] == "build").unwrap();
    let failure = &failed["failure"];
    assert_eq!(failure["code"], "OUTPUTS_REFUSED", "{failed}");
    assert!(failure["message"].as_str().unwrap().contains("line 2, which is neither"), "{failure}");
    assert!(!home.path("w").join("built").exists());
}

/// A plan that builds and signs, if it is to, and says what it returns. Its command knows a password that stands in no plan.
fn build() -> Value {
    let script = "echo password=$(printf 'purple%sgiraffe' 42) >> $BELAY_OUTPUT; echo version=1.4 >> $BELAY_OUTPUT";
    json!({
        "id": "build",
        "inputs": {"sign": {"schema": {"type": "boolean"}, "default": false}},
        "outputs": {
            "version": "${make.outputs.version}",
            "note": "open with ${make.outputs.password}",
            "signature": "${sign.result.path}",
            "states": ["${make.state}", "${sign.state}"],
        },
        "steps": [
            {"id": "make", "tool": "run_terminal", "arguments": {"shell": true, "command": script}},
            {"id": "sign", "tool": "noop", "condition": "${inputs.sign}", "depends_on": ["make"], "arguments": {"output": {"path": "sig"}}},
        ],
    })
}

/// The outputs of a plan are what everyone is shown of its execution; a secret among them is hidden, under whichever name it stands there.
#[test]
fn a_plan_returns_what_it_declares() {
    let home = Home::new();
    home.file("build.json", build().to_string());
    let expected = json!({
        "version": "1.4", "note": "open with [REDACTED]", "signature": null, "states": ["completed", "skipped"],
    });
    let (code, ended) = home.json(&["run", "build.json", "--approve", "auto", "--id", "e"]);
    assert_eq!((code, &ended["outputs"]), (0, &expected), "{ended}");
    let (_, got) = home.json(&["executions", "get", "e"]);
    assert_eq!(got["outputs"], expected, "{got}");
    let (_, result) = home.json(&["executions", "result", "e"]);
    assert_eq!((&result["result"], &result["stepOutputs"]["make"]["outputs"]["version"]), (&expected, &json!("1.4")));
    let printed = home.run(["executions", "result", "e"]);
    assert_eq!(serde_json::from_str::<Value>(&printed.out).unwrap(), expected, "{printed:?}");
    let run = home.run(["run", "build.json", "--approve", "auto", "--input", "sign=true"]);
    let shown = ["outputs\n", "  note       open with [REDACTED]\n", "  signature  sig\n", "  version    1.4\n"];
    assert!(run.code == 0 && shown.iter().all(|line| run.out.contains(line)), "{run:?}");
}

/// The step of the outer plan has the outputs as its result, and hands the real values on; its readers see no secret of the inner plan.
#[test]
fn the_outputs_of_a_plan_are_those_of_its_step() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    let note = json!({"path": "RELEASE", "content": "${build.result.version}: ${build.outputs.note}, ${build.outputs.signature}"});
    home.file(
        "release.json",
        json!({"id": "release", "outputs": {"from": "${build.outputs.version}", "opens": "${build.result.note}"}, "steps": [
            {"id": "build", "plan": build()},
            {"id": "note", "tool": "write_file", "arguments": note},
        ]})
        .to_string(),
    );
    let (code, ended) = home.json(&["run", "release.json", "--workspace", "w", "--approve", "auto", "--id", "e"]);
    assert_eq!(code, 0, "{ended}");
    assert_eq!(ended["outputs"], json!({"from": "1.4", "opens": "open with [REDACTED]"}), "{ended}");
    let written = fs::read_to_string(home.path("w").join("RELEASE")).unwrap();
    assert_eq!(written, "1.4: open with purple42giraffe, null");
    let (_, step) = home.json(&["executions", "get", "e", "--step", "build"]);
    let expected = json!({
        "version": "1.4", "note": "open with [REDACTED]", "signature": null, "states": ["completed", "skipped"],
    });
    assert_eq!(step["output"], expected, "{step}");
    let events = home.run(["executions", "events", "e", "-o", "jsonl"]);
    assert!(events.code == 0 && events.out.contains("open with [REDACTED]"), "{events:?}");
    assert!(!events.out.contains("purple42giraffe"), "{events:?}");
}

/// Outputs that are too large to be handed over fail the step, and not the execution that has them.
#[test]
fn outputs_that_are_too_large_for_a_step_fail_it() {
    let home = Home::new();
    let inner = json!({"id": "inner", "outputs": {"text": "${a.result}"}, "steps": [
        {"id": "a", "tool": "noop", "arguments": {"output": "x".repeat(30_000)}},
        {"id": "b", "tool": "noop", "depends_on": ["a"]},
    ]});
    let mut large = inner.clone();
    large["outputs"]["again"] = "${a.result}".into();
    for (name, plan, code) in [("small", inner, 0), ("large", large, 30)] {
        home.file("plan.json", json!({"id": "outer", "steps": [{"id": "s", "plan": plan}]}).to_string());
        let (ended, _) = home.json(&["run", "plan.json", "--approve", "auto", "--id", name]);
        assert_eq!(ended, code, "{name}");
    }
    let (_, step) = home.json(&["executions", "get", "large", "--step", "s"]);
    assert_eq!(step["failure"]["code"], "CHILD_REFUSED", "{step}");
    let message = step["failure"]["message"].as_str().unwrap();
    assert!(message.contains("have 60022 bytes, and the limit for the output of a step"), "{message}");
    let (_, children) = home.json(&["executions", "list", "--filter", "parent = large"]);
    let child = children["executions"][0]["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let (_, child) = home.json(&["executions", "get", &child]);
    assert_eq!(child["outputs"]["again"].as_str().unwrap().len(), 30_000, "a blob is read");
}
