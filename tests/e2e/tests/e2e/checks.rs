//! Plans that say what has to hold before and after a step's call, and which output it has.

use std::fs;

use belay_e2e::Home;

/// S4-08, S4-20: the checks of a step are asked around its call, each failure is named by its check, and no call is made that a precondition forbids.
#[test]
fn a_step_is_checked_before_and_after_its_call() {
    let plan = |before: &str, after: &str, output: &str| {
        format!(
            r#"
id: bundle
steps:
  - id: bundle
    tool: run_terminal
    arguments: {{command: [sh, -c, "mkdir -p dist && echo hello > dist/app.js"]}}
    retry: {{max_attempts: 3, backoff: [1m, 1m]}}
    preconditions: [{{file: {before}}}, {{condition: "1 < 2"}}, {{command: [test, -f, source.js]}}]
    output_schema: {{type: object, required: [{output}]}}
    postconditions: [{{condition: "${{bundle.result.exit_code}} == 0"}}, {{command: [test, -s, {after}]}}]
  - {{id: after, tool: noop, arguments: {{output: "${{bundle.result.exit_code}}"}}}}
"#
        )
    };
    for (before, after, output, code, is_made) in [
        ("source.js", "dist/app.js", "stdout", "", true),
        ("missing.js", "dist/app.js", "stdout", "PRECONDITION_FAILED", false),
        ("source.js", "dist/other.js", "stdout", "POSTCONDITION_FAILED", true),
        ("source.js", "dist/app.js", "stdin", "INVALID_OUTPUT", true),
    ] {
        let home = Home::new();
        fs::create_dir(home.path("w")).unwrap();
        home.file("w/source.js", "x");
        home.file("plan.yaml", plan(before, after, output));
        let ended = home.run(["run", "plan.yaml", "--workspace", "w", "--approve", "auto", "--id", "bundle"]);
        assert_eq!(ended.code, if code.is_empty() { 0 } else { 30 }, "{ended:?}");
        assert_eq!(home.path("w/dist/app.js").exists(), is_made, "{ended:?}");
        let (_, execution) = home.json(&["executions", "get", "bundle"]);
        if code.is_empty() {
            assert_eq!(
                execution["steps"][1]["output"], 0,
                "later steps have the output of the call, not of a check: {execution:#}"
            );
        } else {
            assert_eq!(execution["steps"][0]["failure"]["code"], code, "{execution:#}");
        }
    }
}
