//! Plans whose steps run only if something is true, or after a failure.

use std::fs;

use belay_e2e::Home;
use serde_json::Value;

/// S4-15, S2-X-02: what is true runs, what is false is skipped with a reason that people read, and an execution without failures has completed.
#[test]
fn a_plan_decides_for_itself() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("w/report.txt", "tests: 12\nfailed: 0\n");
    home.file(
        "plan.yaml",
        r#"
id: release
parallelism: 4
steps:
  - {id: read, tool: read_file, arguments: {path: report.txt}}
  - id: publish
    tool: write_file
    condition: '${read.result.content}.contains("failed: 0") && ${read.result.size_bytes} < 100'
    arguments: {path: published, content: "yes"}
  - id: revert
    tool: write_file
    condition: "!${read.result.content}.contains('failed: 0')"
    arguments: {path: reverted, content: "yes"}
  - {id: after_revert, tool: noop, depends_on: [revert]}
  - {id: alarm, tool: noop, run_when: failure, depends_on: [publish, revert]}
  - {id: tidy, tool: noop, run_when: always, arguments: {output: "${publish.state} ${revert.state}"}}
"#,
    );
    let shown = home.run(["run", "plan.yaml", "--dry-run", "--workspace", "w"]);
    assert!(shown.code == 0 && shown.out.contains("after read, if ${read.result.content}.contains"), "{shown:?}");
    let ended = home.run(["run", "plan.yaml", "--workspace", "w", "--id", "release"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("its condition is false"), "{}", ended.out);
    assert!(home.path("w/published").exists() && !home.path("w/reverted").exists());
    let (_, execution) = home.json(&["executions", "get", "release"]);
    let reasons: Vec<(&str, &str)> = execution["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| (step["stepId"].as_str().unwrap(), step["skipReason"].as_str().unwrap_or("")))
        .collect();
    let expected = [
        ("read", ""),
        ("publish", ""),
        ("revert", "SKIP_REASON_CONDITION_FALSE"),
        ("after_revert", "SKIP_REASON_DEPENDENCY_SKIPPED"),
        ("alarm", "SKIP_REASON_CONDITION_FALSE"),
        ("tidy", ""),
    ];
    assert_eq!(reasons, expected, "{execution:#}");
    assert_eq!(
        (&execution["state"], &execution["steps"][5]["output"]),
        (&Value::from("STATE_COMPLETED"), &Value::from("completed skipped"))
    );
}

/// The handlers of a failure run, know what failed, and the execution still says that it did.
#[test]
fn a_failure_has_its_handlers() {
    let home = Home::new();
    home.file(
        "plan.yaml",
        "
id: deploy
steps:
  - {id: build, tool: noop, arguments: {fail: the disk is full}}
  - {id: deploy, tool: noop, depends_on: [build]}
  - id: alarm
    tool: noop
    run_when: failure
    depends_on: [deploy]
    arguments: {output: '${build.failure.message} (${build.failure.code}), deploy ${deploy.state}'}
  - {id: tidy, tool: noop, run_when: always, depends_on: [deploy]}
",
    );
    let ended = home.run(["run", "plan.yaml", "--id", "deploy"]);
    assert_eq!(ended.code, 30, "{ended:?}");
    let (_, execution) = home.json(&["executions", "get", "deploy"]);
    assert_eq!(execution["state"], "STATE_PARTIAL");
    let output = execution["steps"][2]["output"].as_str().unwrap();
    assert!(output.contains("the disk is full") && output.ends_with(", deploy skipped"), "{output}");
    assert_eq!(execution["steps"][3]["state"], "STATE_COMPLETED");
}

/// Problems of a condition are reported before the start, by field and line, in the author's words.
#[test]
fn a_condition_that_cannot_be_is_refused() {
    let home = Home::new();
    let _server = home.serve();
    for (condition, said) in [
        ("${a.result.n} ==", "cannot be read"),
        ("${a.result.n}", ""),
        ("${a.result.n} + 1", "is a sum, and has to be true or false"),
        ("a.result.n == 1", "`a` is not known: the result of a step is written `${a.result}`"),
        ("size(${a.result}, 2) == 1", "`size` is called with 2 values, and takes 1"),
        ("now() > 1", "there is no function `now`"),
        ("'${a.result}' == 'x'", "`${a.result}` stands in quotes"),
        ("${nobody.result} == 1", "there is no step `nobody`"),
        ("'text'", "is text, and has to be true or false"),
        ("${a.result.x}.y.all(x, z)", "`z` is not known"),
    ] {
        let condition = serde_json::to_string(condition).unwrap();
        home.file(
            "plan.yaml",
            format!(
                "id: p\nsteps:\n  - {{id: a, tool: noop}}\n  - id: b\n    tool: noop\n    condition: {condition}\n"
            ),
        );
        let checked = home.run(["plan", "validate", "plan.yaml"]);
        if said.is_empty() {
            assert_eq!(checked.code, 0, "a value may be true or false: {checked:?}");
            continue;
        }
        assert_eq!(checked.code, 2, "{condition}: {checked:?}");
        assert!(
            checked.talk.contains("plan.yaml:6:16: steps[1].condition: ") && checked.talk.contains(said),
            "{condition}: {checked:?}"
        );
        assert!(!checked.talk.contains("__value"), "{checked:?}");
    }
}
