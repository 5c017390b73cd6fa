//! Results: large ones, byte for byte, and the shapes that other planners expect.

use std::fs;

use belay_e2e::Home;
use serde_json::{Value, json};

const POLICY: &str = "terminal_commands: auto\nnon_interactive_policy: auto\n";

/// A command that prints half a megabyte, a read of a file of one, and a step that gets what both returned.
const PLAN: &str = "id: large
steps:
  - {id: print, tool: run_terminal, arguments: {command: [seq, '1', '90000']}}
  - {id: read, tool: read_file, arguments: {path: large.txt}}
  - {id: write, tool: write_file, arguments: {path: copy.txt, content: '${print.result.stdout}${read.result.content}'}}
";

/// B-09: large results come through runner, executor, store and client whole, and templates read them. Each command has services of its own.
#[test]
fn a_large_result_is_read_byte_for_byte() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    // 1 MiB in lines that differ, some of them with characters of several bytes.
    let mut text: String = (0..).map(|line| format!("line {line}: größe \"{}\"\n", line * 7)).take(50_000).collect();
    text.truncate(text.floor_char_boundary(1 << 20));
    fs::write(home.path("w/large.txt"), &text).unwrap();
    home.file("plan.yaml", PLAN);
    home.file("policy.yaml", POLICY);
    let run = ["run", "plan.yaml", "--workspace", "w", "--id", "e1", "--policy", "policy.yaml", "--approve", "auto"];
    let ended = home.run(run);
    assert_eq!(ended.code, 0, "{}{}", ended.out, ended.talk);
    let numbers: String = (1..=90_000).map(|number| format!("{number}\n")).collect();

    let result = |step: &str| -> Value {
        let (code, found) = home.json(&["executions", "get", "e1", "--step", step]);
        assert_eq!(code, 0);
        found["output"].clone()
    };
    let printed = result("print");
    assert!(printed["stdout"] == numbers && printed["stdout_bytes"] == numbers.len(), "it is what the command wrote");
    let read = result("read");
    assert!(text.len() > (1 << 20) - 4 && read["content"] == text, "it is what the file has");
    assert!(fs::read_to_string(home.path("w/copy.txt")).unwrap() == numbers + &text, "templates read both");
}

/// A plan whose second step fails in its last attempt, too, and what does not depend on it.
const SHAPES: &str = "id: shapes
steps:
  - {id: make, title: Making, tool: noop, arguments: {output: {n: 4}}}
  - {id: use, tool: noop, depends_on: [make], arguments: {output: '${make.result.n}'}}
  - {id: break, tool: run_terminal, retry: {max_attempts: 2, backoff: [1ms]}, arguments: {command: [sh, -c, 'echo 429; exit 3']}}
  - {id: after, tool: noop, depends_on: [break], arguments: {}}
";

/// The objects on the lines of an output.
fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

/// S2-X-24, S2-X-26: the lines of a stage from a run, and the same from what is recorded.
#[test]
fn the_lines_of_a_stage_come_as_they_happen_and_again() {
    let home = Home::new();
    home.file("plan.yaml", SHAPES);
    home.file("policy.yaml", POLICY);
    let run = ["run", "plan.yaml", "--id", "e1", "--policy", "policy.yaml", "--approve", "auto", "--as", "executor"];
    let ended = home.run(run);
    assert_eq!(ended.code, 30, "{}{}", ended.out, ended.talk);
    let stage = lines(&ended.out);
    let types = |step: &str| -> Vec<&str> {
        stage.iter().filter(|line| line["step_id"] == step).map(|line| line["type"].as_str().unwrap()).collect()
    };
    assert_eq!(types("make"), ["step_start", "tool_call", "tool_result", "step_complete"]);
    assert_eq!(
        types("break"),
        ["step_start", "tool_call", "tool_result", "tool_call", "tool_result", "step_complete"],
        "two attempts are one step"
    );
    assert_eq!(types("after"), ["step_complete"], "skipped");
    let of = |step: &str, kind: &str| {
        stage.iter().find(|line| line["step_id"] == step && line["type"] == kind).expect("it has such a line").clone()
    };
    let start = of("make", "step_start");
    assert_eq!((&start["task"], &start["step"], &start["title"]), (&json!(1), &json!(1), &json!("Making")));
    let call = of("use", "tool_call");
    assert_eq!((&call["tool"], &call["params"]), (&json!("noop"), &json!({"output": 4})));
    let result = of("use", "tool_result");
    assert_eq!((&result["status"], &result["output"]), (&json!("success"), &json!(4)));
    let complete = of("break", "step_complete");
    assert_eq!((&complete["status"], &complete["error_code"]), (&json!("failed"), &json!("ACODE-EXEC-002")));
    assert!(complete["duration_ms"].is_u64());
    let last = stage.last().unwrap();
    assert_eq!((&last["type"], &last["status"]), (&json!("stage_complete"), &json!("failed")));
    assert_eq!(ended.code, 30, "as the stage's exit code");

    for again in [&["executions", "events", "e1", "--as", "executor"][..], &["executions", "watch", "e1", "--as", "s2"]]
    {
        assert_eq!(lines(&home.run(again).out), stage, "{again:?}");
    }
}

/// S4-09, S4-23, S4-24, S4-25, S4-30, S4-31, S3-01, S3-05, S3-07, S3-16, S0-13: one execution in the shapes of the planners.
#[test]
fn a_result_has_the_shape_that_its_planner_expects() {
    let home = Home::new();
    home.file("plan.yaml", SHAPES);
    home.file("policy.yaml", POLICY);
    let run = ["run", "plan.yaml", "--id", "e1", "--policy", "policy.yaml", "--approve", "auto"];
    assert_eq!(home.run(run).code, 30);
    let shape = |shape: &str| {
        let (code, value) = home.json(&["executions", "result", "e1", "--as", shape]);
        assert_eq!(code, 30, "it exits as the execution ended");
        value
    };
    let skills = shape("skills");
    assert_eq!((&skills["status"], &skills["finalResult"]), (&json!("partial"), &json!(4)));
    let step = &skills["stepResults"]["use"];
    assert_eq!((&step["input"], &step["output"], &step["skillId"]), (&json!({"output": 4}), &json!(4), &json!("noop")));
    let error = &skills["stepResults"]["break"]["error"];
    assert_eq!((&error["code"], &error["recoverable"]), (&json!("SKILL_EXECUTION_FAILED"), &json!(true)));
    let metrics = &skills["metrics"];
    assert_eq!(
        (&metrics["totalSteps"], &metrics["completedSteps"], &metrics["failedSteps"], &metrics["skippedSteps"]),
        (&json!(4), &json!(2), &json!(1), &json!(1))
    );
    assert_eq!(metrics["skillsInvoked"], json!({"noop": 2, "run_terminal": 2}));

    // S4-10, S4-13: a start, an end, and an entry for each step, the skipped one included.
    let entries = skills["audit"]["entries"].as_array().unwrap();
    let says = |word: &str| entries.iter().any(|entry| entry["message"].as_str().unwrap().contains(word));
    assert!(says("started") && says("failed") && says("completed"), "{entries:#?}");
    for step in skills["stepResults"].as_object().unwrap().keys() {
        assert!(entries.iter().any(|entry| entry["stepId"] == step.as_str()), "{step}: {entries:#?}");
    }
    assert!(entries.iter().any(|entry| entry["level"] == "error" && entry["timestamp"].is_string()));

    let agent = shape("agent");
    assert_eq!(agent["plan"]["status"], "FAILED");
    let made: Vec<&Value> = agent["artifacts"].as_array().unwrap().iter().map(|one| &one["content"]).collect();
    assert_eq!(made, [&json!({"n": 4}), &json!(4)]);
    assert_eq!(agent["artifacts"][1]["provenance"]["depends_on"], json!([agent["artifacts"][0]["artifact_id"]]));

    let prompt = shape("quota_aware");
    assert_eq!(
        (&prompt["success"], &prompt["output"], &prompt["exit_code"]),
        (&json!(false), &json!("429\n"), &json!(3))
    );
    assert_eq!(shape("supervisor")["metadata"]["retry_count"], 1);
    assert_eq!(shape("executor")["exit_code"], 30);

    let plain = home.run(["executions", "result", "e1"]);
    assert_eq!((plain.code, plain.out.as_str()), (30, "4\n"), "{}", plain.talk);
    let waited = home.run(["executions", "result", "e1", "--wait", "-o", "json"]);
    assert_eq!(waited.code, 30);
    let own: Value = serde_json::from_str(&waited.out).unwrap();
    assert_eq!((&own["result"], &own["stepOutputs"]["make"]), (&json!(4), &json!({"n": 4})));
}

/// S4-26, S4-27: an execution that was cancelled or ran out of time has a result, too.
#[test]
fn a_result_says_that_it_was_cut_short() {
    let home = Home::new();
    home.file(
        "slow.yaml",
        "id: slow\ntimeout: 200ms\nsteps:\n  - {id: s, tool: noop, arguments: {sleep_ms: 600000}}\n",
    );
    home.file("wait.yaml", "id: wait\nsteps:\n  - {id: s, wait: {signal: go}}\n");
    let _server = home.serve();
    assert_eq!(home.run(["run", "slow.yaml", "--id", "late"]).code, 34);
    assert_eq!(home.run(["run", "wait.yaml", "--id", "kept", "--detach"]).code, 0);
    let (_, going) = home.json(&["executions", "result", "kept", "--as", "skills"]);
    assert_eq!((&going["status"], &going["stepResults"]["s"]["skillId"]), (&json!("running"), &json!("wait")));
    let waiting = home.start(["executions", "result", "kept", "--as", "skills", "--wait"]);
    assert_eq!(home.run(["executions", "cancel", "kept"]).code, 0);
    let ended = waiting.end();
    assert_eq!(ended.code, 1, "{}", ended.talk);
    let cancelled: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&cancelled["status"], &cancelled["stepResults"]["s"]["status"]),
        (&json!("cancelled"), &json!("skipped"))
    );
    let (_, late) = home.json(&["executions", "result", "late", "--as", "skills"]);
    assert_eq!((&late["status"], &late["error"]["code"]), (&json!("timeout"), &json!("TIMEOUT")));
}

/// Two executions differ in what their plans, inputs and steps differ in, also in a large output; one does not differ from itself.
#[test]
fn two_executions_are_compared() {
    let home = Home::new();
    let plan = |fails: &str, more: &str| {
        format!(
            "id: p\ninputs: {{n: {{}}, password: {{}}}}\nsteps:\n  - {{id: make, tool: noop, arguments: {{output: '${{inputs.n}}'}}}}\n  \
             - {{id: half, tool: noop, arguments: {{output: \"{}\"}}}}\n  \
             - {{id: large, tool: noop, arguments: {{output: ['${{half.result}}', '${{half.result}}']}}}}\n  - {{id: check, tool: noop, depends_on: [make], arguments: {{{fails}}}}}\n{more}",
            "x".repeat(20_000)
        )
    };
    home.file("a.yaml", plan("", "  - {id: old, tool: noop}\n"));
    home.file("b.yaml", plan("fail: no", "  - {id: new, tool: noop}\n"));
    let _server = home.serve();
    let run =
        |file: &str, id: &str, inputs: [&str; 4]| home.run(["run", file, "--id", id].into_iter().chain(inputs)).code;
    assert_eq!(run("a.yaml", "e1", ["--input", "n=1", "--input", "password=horse-battery-1"]), 0);
    assert_eq!(run("b.yaml", "e2", ["--input", "n=2", "--input", "password=horse-battery-2"]), 30);
    let (code, found) = home.json(&["executions", "diff", "e1", "e2"]);
    assert_eq!(code, 0);
    assert_eq!((&found["addedSteps"], &found["removedSteps"]), (&json!(["new"]), &json!(["old"])));
    let planned = json!([{"stepId": "check", "changes": [
        {"path": ["tool", "arguments", "fail"], "afterValue": "no", "afterBytes": "4"},
    ]}]);
    assert_eq!(found["plannedStepChanges"], planned);
    let inputs = json!([{"path": ["n"], "beforeValue": "1", "beforeBytes": "3", "afterValue": "2", "afterBytes": "3"}]);
    assert_eq!(found["inputChanges"], inputs, "whether two secrets are equal is not told");
    let steps: Vec<&Value> = found["stepChanges"].as_array().unwrap().iter().map(|step| &step["stepId"]).collect();
    assert_eq!(steps, ["make", "check"], "the large output is the same, though each execution has its own key");
    assert!(found["stepChanges"][0]["changes"][0]["afterValue"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!((&found["before"]["planId"], &found["after"]["state"]), (&json!("p"), &json!("STATE_PARTIAL")));
    let text = home.run(["executions", "diff", "e1", "e2"]);
    assert!(text.out.contains("~ check  state: completed → failed"), "{}", text.out);
    let same = home.run(["executions", "diff", "e1", "e1"]);
    assert!(same.code == 0 && same.out.contains("no difference: 5 steps alike"), "{same:?}");
    let missing = home.run(["executions", "diff", "e1", "nothing"]);
    assert!(missing.code == 2 && missing.talk.contains("EXECUTION_NOT_FOUND"), "{missing:?}");
}
