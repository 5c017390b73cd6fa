//! Outputs of commands, with the real services and the real sandbox.

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
