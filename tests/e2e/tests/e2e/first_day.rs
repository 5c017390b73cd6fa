//! Traps of the first day: commands that say they did something, values that are missing, results of what failed.

use std::fs;

use belay_e2e::Home;

/// A home in which the execution `bad` has failed after its first step had an output.
fn failed() -> Home {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file(
        "fails.yaml",
        "{id: p, steps: [{id: fetch, tool: noop, arguments: {output: {n: 1}}}, {id: push, depends_on: [fetch], tool: noop, arguments: {fail: no}}]}",
    );
    let ended = home.run(["run", "fails.yaml", "--workspace", "w", "--id", "bad"]);
    assert_eq!(ended.code, 30, "{ended:?}");
    home
}

/// Without a server nothing would carry out what a retry starts and nobody watches, so it is refused, and nothing is changed.
#[test]
fn a_retry_that_nobody_watches_needs_a_server() {
    let home = failed();
    for retry in
        [&["executions", "retry", "bad", "--detach"][..], &["executions", "retry", "--state", "PARTIAL", "--yes"]]
    {
        let refused = home.run(retry);
        assert_eq!(refused.code, 2, "{retry:?}: {refused:?}");
        assert!(refused.talk.contains("needs a server") && refused.talk.contains("belay serve"), "{}", refused.talk);
        assert_eq!(home.json(&["executions", "get", "bad"]).1["state"], "STATE_PARTIAL");
    }
    // Who asks for a dry run gets no real one, also where an execution goes on with another plan.
    home.file("dry.yaml", "{id: p, dry_run: true, steps: [{id: fetch, tool: noop, arguments: {output: {n: 1}}}]}");
    let dry = home.run(["executions", "retry", "bad", "--plan", "dry.yaml"]);
    assert!(dry.code == 2 && dry.talk.contains("asks for a dry run"), "{dry:?}");
    assert_eq!(home.json(&["executions", "get", "bad"]).1["state"], "STATE_PARTIAL");
    let watched = home.run(["executions", "retry", "bad"]);
    assert_eq!(watched.code, 30, "{watched:?}");
    let _server = home.serve();
    let done = home.run(["executions", "retry", "--state", "PARTIAL", "--yes"]);
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.out.contains("1 execution retried") || done.talk.contains("1 execution retried"), "{done:?}");
}

/// A failed execution has the output of its last steps, says that it failed, and exits as it did.
#[test]
fn the_result_of_what_failed_says_so() {
    let home = failed();
    for more in [&[][..], &["--wait"]] {
        let result = home.run([&["executions", "result", "bad"], more].concat());
        assert_eq!((result.code, result.out.trim()), (30, "{\n  \"n\": 1\n}"), "{more:?}: {result:?}");
        assert!(
            result.talk.contains("execution bad is partly completed")
                || result.talk.contains("execution bad is partial"),
            "{}",
            result.talk
        );
        assert!(result.talk.contains("next: belay why bad"), "{}", result.talk);
    }
    let as_json = home.run(["executions", "result", "bad", "--as", "skills", "-o", "json"]);
    assert_eq!(as_json.code, 30, "{as_json:?}");
}

/// A join reads the branch that ran: what is missing matters only where it is needed, in conditions and in templates, and null is a default.
#[test]
fn what_is_missing_has_a_place() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file(
        "plan.yaml",
        "id: p
inputs: {which: {default: foo}, note: {default: null, schema: {type: [string, 'null']}}}
steps:
  - {id: foo, tool: noop, condition: \"${inputs.which} == 'foo'\", arguments: {output: {n: 1}}}
  - {id: bar, tool: noop, condition: \"${inputs.which} == 'bar'\", arguments: {output: {n: 2}}}
  - {id: join, tool: noop, run_when: always, depends_on: [foo, bar], arguments: {output: \"${foo.result.n ?? bar.result.n ?? 0}\"}}
  - {id: said, tool: noop, run_when: always, arguments: {output: \"got ${bar.result.n ?? 'x'}\"}, condition: \"${bar.state} == 'skipped' || ${bar.result.n} > 5\"}
"
        .replace("'x'", "\\\"nothing\\\"")
        .as_str(),
    );
    let ended = home.run(["run", "plan.yaml", "--workspace", "w", "--id", "foo"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let outputs = |id: &str| {
        let (_, shown) = home.json(&["executions", "get", id]);
        [2, 3].map(|place| shown["steps"][place]["output"].clone())
    };
    assert_eq!(outputs("foo"), [serde_json::json!(1), serde_json::json!("got nothing")]);
    let ended = home.run(["run", "plan.yaml", "--workspace", "w", "--id", "bar", "--input", "which=bar"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(outputs("bar")[0], 2);
    home.file(
        "needs.yaml",
        "{id: p, steps: [{id: a, tool: noop, condition: false}, {id: b, tool: noop, run_when: always, depends_on: [a], condition: '${a.result.n} > 1'}]}",
    );
    let needed = home.run(["run", "needs.yaml", "--workspace", "w", "-o", "json"]);
    assert!(needed.out.contains("UNRESOLVED_REFERENCE") && needed.out.contains("step `a` has no output"), "{needed:?}");
}

/// The labels of a plan are those of its executions, also of one that carries out a step's plan; what a start gives comes first.
#[test]
fn a_plan_gives_its_executions_labels() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file(
        "plan.yaml",
        "{id: p, labels: {team: a, kind: whole}, steps: [{id: s, plan: {id: q, labels: {team: b, part: inner}, steps: [{id: c, tool: noop}]}}]}",
    );
    let ended = home.run(["run", "plan.yaml", "--workspace", "w", "--id", "e1", "--label", "team=mine"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let expected = serde_json::json!({"team": "mine", "kind": "whole"});
    assert_eq!(home.json(&["executions", "get", "e1"]).1["labels"], expected);
    let inner = home.json(&["executions", "list", "--filter", "labels.part = inner AND parent:*"]).1.to_string();
    assert!(inner.contains(r#""kind":"whole""#) && inner.contains(r#""team":"mine""#), "{inner}");
}

/// S2-X-22: one setting is printed as a script reads it, and one that does not exist is refused with the one that was meant.
#[test]
fn one_setting_is_shown() {
    let home = Home::new();
    let one = home.run(["config", "show", "services.executor.steps"]);
    assert_eq!((one.code, one.out.trim()), (0, "200000"), "{one:?}");
    let some = home.json(&["config", "show", "services.executor"]).1;
    let keys: Vec<&str> = some["settings"].as_array().unwrap().iter().map(|row| row["key"].as_str().unwrap()).collect();
    assert!(keys.len() >= 3 && keys.iter().all(|key| key.starts_with("services.executor.")), "{keys:?}");
    let none = home.run(["config", "show", "services.executor.step"]);
    assert!(none.code == 2 && none.talk.contains("did you mean `services.executor.steps`?"), "{none:?}");
}
