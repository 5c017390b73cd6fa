//! S3-13: `research` in a workspace with a policy and with names that are hidden. Its requests to the web are with those of the other tools without a command.

use belay_e2e::Home;

/// What a rule denies to `read_file` is not found, and a name that looks like a secret is hidden where it is shown, and is still the file's for the next step.
#[test]
fn findings_are_what_may_be_read_and_lead_to_their_files() {
    let home = Home::new();
    let name = "ghp_0123456789abcdefghijABCDEFGHIJ012345.md";
    std::fs::create_dir_all(home.path("w/private")).unwrap();
    home.file("w/private/a.md", "a needle that nobody reads\n");
    home.file(&format!("w/{name}"), "a needle\n");
    let rule = "{id: private, on: intent, tools: [read_file], paths: ['private/**'], decide: deny}";
    home.file("policy.yaml", format!("rules: [{rule}]\n"));
    let plan = home.file(
        "plan.yaml",
        "id: p\nsteps:\n  - {id: ask, tool: research, arguments: {query: needle}}\n  - {id: read, tool: read_file, depends_on: [ask], arguments: {path: '${ask.result.content.result.findings[0].path}'}}\n",
    );
    let done = home.run(["run", &plan, "--workspace", "w", "--policy", "policy.yaml", "--id", "r"]);
    assert_eq!(done.code, 0, "{done:?}");
    let outputs = home.json(&["executions", "result", "r"]).1["stepOutputs"].clone();
    assert_eq!(outputs["read"]["content"], "a needle\n", "{outputs}");
    let answer = &outputs["ask"]["content"]["result"];
    assert_eq!(answer["findings"].as_array().map(Vec::len), Some(1), "{answer}");
    assert_eq!(answer["left_out"][0]["reason"], "denied_by_policy", "{answer}");
    let shown = format!("{done:?}{}{:?}", home.json(&["executions", "get", "r"]).1, home.events("r"));
    assert!(!shown.contains(name) && shown.contains("[REDACTED]"), "{shown}");
}
