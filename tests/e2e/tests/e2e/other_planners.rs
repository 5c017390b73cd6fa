//! Plans in the shapes that other planners write, as people run them.

use std::fs;

use belay_e2e::{Home, belay::repository};

fn fixture(name: &str) -> String {
    fs::read_to_string(repository().join("tests/fixtures/plans").join(name)).unwrap()
}

/// S2-X-27, S2-X-31, S2-FR-024, S2-FR-025: the steps of the executor stage, with its names of fields, tools and actions, run as they stand.
#[test]
fn the_steps_of_the_executor_stage_run() {
    let home = Home::new();
    fs::create_dir_all(home.path("w/src/validators")).unwrap();
    home.file("w/src/validators/BaseValidator.ts", "export abstract class BaseValidator {}\n");
    home.file("w/src/OldAuthService.cs", "deprecated\n");
    let policy = home.file("policy.yaml", "file_write: auto\nfile_delete: auto\n");
    let plan = home.file("plan.json", fixture("executor-stage.json"));
    let ended = home.run(["run", &plan, "--workspace", "w", "--policy", &policy]);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    let written = fs::read_to_string(home.path("w/src/validators/EmailValidator.ts")).unwrap();
    assert_eq!(written, "import { BaseValidator }...");
    assert!(!home.path("w/src/OldAuthService.cs").exists());
}

/// S2-X-05, S2-X-08, S2-X-11: what the executor stage calls threats is refused by field, and so is a tool that does not exist, with the way out.
#[test]
fn the_threats_of_the_executor_stage_are_refused() {
    let home = Home::new();
    let plan = home.file("plan.json", fixture("executor-stage-threats.json"));
    let refused = home.run(["plan", "validate", &plan]);
    assert_eq!(refused.code, 2, "{}", refused.talk);
    for expected in [
        "plan.json:8:20: steps[0].args.command: \"dotnet test; curl",
        "plan.json:15:17: steps[1].args.path: `../../../etc/passwd` is outside workspace",
        "plan.json:20:15: steps[2].tool: Tool 'generate_code' not found: `belay tools list` shows the tools, and the settings can declare a program as one",
    ] {
        assert!(refused.talk.contains(expected), "{expected}:\n{}", refused.talk);
    }
}

/// S3-10, S3-12, S3-16: the operations of the executor agent's `FILESYSTEM` are Belay's file tools. Its other tools are refused by field until the settings declare
/// them; absolute paths are refused everywhere.
#[test]
fn the_tools_of_the_executor_agent_run_once_they_are_declared() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file("w/file.txt", "read me");
    let plan = home.file("plan.yaml", fixture("executor-agent.yaml"));
    let refused = home.run(["plan", "validate", &plan]);
    assert_eq!(refused.code, 2, "{}", refused.talk);
    for expected in [
        "plan.yaml:4:11: steps[0].tool: Tool 'CODE_EXEC' not found: ",
        "plan.yaml:14:13: steps[1].inputs.path: `/path/to/file.txt` is outside workspace",
        "plan.yaml:21:13: steps[2].inputs.path: `/path/to/output.txt` is outside workspace",
        "plan.yaml:25:11: steps[3].tool: Tool 'RESEARCH' not found: ",
    ] {
        assert!(refused.talk.contains(expected), "{expected}:\n{}", refused.talk);
    }

    let tools = "
tools:
  CODE_EXEC:
    command: [echo, '${code}', '${context}']
    parameters: {required: [code], properties: {code: {type: string}, context: {type: object, default: {}}}}
    output: text
    recovery: read_only
  RESEARCH:
    command: [echo, '${query}', '${sources}', '${depth}']
    parameters:
      required: [query, sources, depth]
      properties: {query: {type: string}, sources: {type: array}, depth: {enum: [shallow, medium, deep]}}
    output: text
    recovery: read_only
";
    let tools = home.file("tools.yaml", tools);
    let policy = home.file("policy.yaml", "file_write: auto\nterminal_commands: auto\n");
    let plan = home.file("plan.yaml", fixture("executor-agent.yaml").replace("/path/to/", ""));
    let ended = home.run(["run", &plan, "--workspace", "w", "--config", &tools, "--policy", &policy]);
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert_eq!(fs::read_to_string(home.path("w/output.txt")).unwrap(), "Hello, World!");
}
