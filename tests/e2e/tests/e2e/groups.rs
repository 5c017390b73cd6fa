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
