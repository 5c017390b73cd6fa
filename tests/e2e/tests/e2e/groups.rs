//! Plans with groups of steps, and with a working memory.

use belay_e2e::Home;
use serde_json::json;

const COMPLETED: &str = "STATE_COMPLETED";

/// S3-01: the steps of groups run in the order of their groups, with what those say; the working memory is read by templates, shown, and replaced at the start.
#[test]
fn groups_of_steps_run_with_the_memory_that_they_are_given() {
    let home = Home::new();
    home.file(
        "plan.yaml",
        r#"
id: study
memory: {topic: CEL, sources: [documentation]}
parallelism: 4
steps:
  - {id: read, tool: noop, arguments: {output: "${inputs.memory.topic}"}}
  - id: checks
    depends_on: [read]
    condition: size(${inputs.memory.sources}) > 0
    retry: {max_attempts: 2, backoff: [10ms]}
    steps:
      - {id: facts, tool: noop, arguments: {output: "${read.result} has ${inputs.memory.sources[0]}", fail: not yet, fail_attempts: 1}}
      - {id: links, tool: noop}
      - {id: alarm, tool: noop, run_when: failure, depends_on: [facts, links]}
  - {id: report, tool: noop, depends_on: [checks], arguments: {output: "${facts.result}"}}
"#,
    );
    let graph = home.run(["plan", "graph", "plan.yaml"]);
    assert!(graph.code == 0 && graph.out.contains("after read"), "{graph:?}");
    let ended = home.run(["run", "plan.yaml", "--id", "study"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let (_, execution) = home.json(&["executions", "get", "study"]);
    assert_eq!(execution["inputs"]["memory"], json!({"topic": "CEL", "sources": ["documentation"]}), "{execution:#}");
    let states: Vec<_> = execution["steps"].as_array().unwrap().iter().map(|step| &step["state"]).collect();
    assert_eq!(states, [COMPLETED, COMPLETED, COMPLETED, "STATE_SKIPPED", COMPLETED], "{execution:#}");
    assert_eq!(execution["steps"][4]["output"], "CEL has documentation");

    let memory = r#"memory={"topic":"gRPC","sources":[]}"#;
    let ended = home.run(["run", "plan.yaml", "--id", "other", "--input", memory]);
    assert_eq!(ended.code, 0, "a condition skips: {ended:?}");
    let (_, execution) = home.json(&["executions", "get", "other"]);
    assert_eq!(execution["steps"][0]["output"], "gRPC");
    assert_eq!(execution["steps"][1]["skipReason"], "SKIP_REASON_CONDITION_FALSE", "{execution:#}");
    let refused = home.run(["run", "plan.yaml", "--input", "memory=[]"]);
    assert!(refused.code == 2 && refused.talk.contains("memory"), "{refused:?}");
}

/// A group that fails fast starts no more of its steps once one has failed. What runs goes on, what runs after failures does as well, people see why a step was
/// skipped, and a retry makes what the failure kept from starting.
#[test]
fn a_group_that_fails_fast_starts_no_more_of_its_steps() {
    let home = Home::new();
    let plan = home.file(
        "plan.yaml",
        "
id: checked
parallelism: 2
steps:
  - id: checks
    fail_fast: true
    steps:
      - {id: running, wait: {signal: go}}
      - {id: types, tool: noop, arguments: {fail: no such type, fail_attempts: 1}}
      - {id: unit, tool: noop, depends_on: [running]}
      - {id: each, tool: noop, for_each: [1, 2], depends_on: [unit]}
      - {id: clean, tool: noop, run_when: always, depends_on: [unit]}
  - {id: publish, tool: noop, depends_on: [checks]}
  - {id: alarm, tool: noop, run_when: failure, depends_on: [each]}
",
    );
    let graph = home.run(["plan", "graph", "plan.yaml"]);
    assert!(graph.code == 0 && graph.out.contains("of the group checks, which fails fast"), "{graph:?}");
    let server = home.serve();
    let mut run = home.start(["run", &plan, "--id", "x"]);
    let why = "types failed, and no step of the group checks starts after that";
    run.wait_for(&format!("skipped: {why}"));
    assert_eq!(home.run(["executions", "signal", "x", "go"]).code, 0);
    let ended = run.end();
    assert_eq!(ended.code, 30, "{ended:?}");
    let (_, execution) = home.json(&["executions", "get", "x"]);
    let ends = |execution: &serde_json::Value| {
        let steps = execution["steps"].as_array().unwrap().iter();
        let word = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let end = |step: &serde_json::Value| match word(&step["skippedGroup"]) {
            group if group.is_empty() => word(&step["state"]),
            group => format!("{} {} {group}", word(&step["skipReason"]), word(&step["skippedBecause"])),
        };
        steps.map(end).collect::<Vec<_>>()
    };
    let by_group = "SKIP_REASON_STOP_ON_ERROR types checks";
    let (skipped, failed) = ("STATE_SKIPPED", "STATE_FAILED");
    assert_eq!(
        ends(&execution),
        [COMPLETED, failed, by_group, by_group, COMPLETED, skipped, COMPLETED],
        "{execution:#}"
    );
    let shown = home.run(["executions", "get", "x"]);
    assert!(shown.out.contains(why), "{shown:?}");

    let retried = home.run(["executions", "retry", "x"]);
    assert_eq!(retried.code, 0, "{retried:?}");
    let (_, execution) = home.json(&["executions", "get", "x"]);
    let alarm = "STATE_SKIPPED";
    let mut expected = vec![COMPLETED; 6];
    expected.extend([alarm, COMPLETED, COMPLETED]);
    assert_eq!(ends(&execution), expected, "what the failure kept from starting is made: {execution:#}");
    server.signal(rustix::process::Signal::TERM);
    server.end();
}
