//! Protected paths whose names are hidden: what people and policies decide about is the path as it is.

use std::fs;

use belay_e2e::{Home, folder::content};
use serde_json::{Value, json};

/// A home with a workspace `w` that looks like a project in use: every folder that the attacks write to is there already.
fn project() -> Home {
    let home = Home::new();
    for folder in
        [".git/hooks", ".vscode", ".github/workflows", ".cursor", "password=Abc123xyz/.git/hooks", "token=abc123XYZ9"]
    {
        fs::create_dir_all(home.path("w").join(folder)).unwrap();
    }
    home.file("w/.git/config", "[core]\n\tbare = false\n");
    home
}

/// A step that writes the file which a variable names, so that its path is a secret of the call.
fn by_variable(name: &str, path: &str) -> Value {
    let script = format!("printf '#!/bin/sh\\necho RAN\\n' > \"${name}\"; chmod +x \"${name}\"");
    json!({"tool": "run_terminal", "arguments": {"command": ["sh", "-c", script], "env": {name: path}}})
}

/// A step that writes the file which an argument of a command names.
fn by_argument(path: &str) -> Value {
    let script = "echo RAN > \"$2\"";
    json!({"tool": "run_terminal", "arguments": {"command": ["sh", "-c", script, "x", "--password", path]}})
}

/// A step that writes a file whose content says that the path is a secret.
fn by_content(path: &str) -> Value {
    json!({"tool": "write_file", "arguments": {"path": path, "content": format!("API_TOKEN=\"{path}\"\n")}})
}

/// A step that writes a file whose path reads like an assignment.
fn by_path(path: &str) -> Value {
    json!({"tool": "write_file", "arguments": {"path": path, "content": "RAN\n"}})
}

/// B-29, B-03, S2-X-18: a name that is taken for a secret hides no protected path. `--approve auto` does not commit it unasked.
#[test]
fn a_protected_path_that_is_hidden_is_not_committed_unasked() {
    let home = project();
    let before = content(&home.path("w"));
    let attacks = [
        by_variable("API_TOKEN", ".git/hooks/pre-commit"),
        by_variable("API_TOKEN", ".vscode/tasks.json"),
        by_variable("API_TOKEN", ".github/workflows/ci.yml"),
        by_variable("API_TOKEN", ".git/config"),
        by_variable("API_TOKEN", ".mcp.json"),
        by_variable("DB_PASSWORD", ".envrc"),
        by_variable("CLIENT_SECRET", "CLAUDE.md"),
        by_variable("API_TOKEN", "Jenkinsfile"),
        by_argument(".envrc"),
        by_argument(".git/hooks/post-checkout"),
        by_content("CLAUDE.md"),
        by_path("token=abc123XYZ9/CLAUDE.md"),
        by_path("password=Abc123xyz/.git/hooks/pre-commit"),
    ];
    for (number, attack) in attacks.into_iter().enumerate() {
        let mut step = attack;
        step["id"] = json!("attack");
        let plan = home.file("plan.json", json!({"id": "p", "steps": [step]}).to_string());
        let id = format!("e{number}");
        let ended = home.run(["run", plan.as_str(), "--workspace", "w", "--approve", "auto", "--id", &id]);
        assert_eq!(ended.code, 33, "{step}: {}", ended.talk);
        assert!(ended.talk.contains("is protected or flagged"), "{step}: {}", ended.talk);
        assert_eq!(content(&home.path("w")), before, "{step}: the workspace is as it was");
    }
}

/// B-18, B-29: the person who is asked sees that the hidden path is protected, and each of two files with one shown name has its own content.
#[test]
fn a_person_sees_what_is_protected_and_each_content_once() {
    let home = project();
    let token = |last: char| ["gh", "p_", "0123456789abcdefghijABCDEFGHIJ45678", &last.to_string()].concat();
    let script = format!("echo payload > {}; echo harmless > {}; echo RAN > \"$API_TOKEN\"", token('A'), token('B'));
    let arguments = json!({"command": ["sh", "-c", script], "env": {"API_TOKEN": ".git/hooks/pre-commit"}});
    let step = json!({"id": "a", "tool": "run_terminal", "arguments": arguments});
    let plan = home.file("plan.json", json!({"id": "p", "steps": [step]}).to_string());
    let mut run = home.start(["run", plan.as_str(), "--workspace", "w", "--approve", "prompt", "--id", "e1"]);
    let line = run.wait_for("waiting for approval; next: belay approvals show ");
    let approval = line.trim_end().rsplit(' ').next().unwrap().to_owned();

    let shown = home.run(["approvals", "show", approval.as_str(), "--all"]).out;
    let first = shown.lines().find(|line| line.trim_start().starts_with("creates")).unwrap();
    assert!(first.contains("[protected"), "the hook comes first: {shown}");
    for words in ["is protected", "has a name that is not shown in full", "payload", "harmless"] {
        assert!(shown.contains(words), "{words:?} is not in:\n{shown}");
    }
    let (_, whole) = home.json(&["approvals", "show", approval.as_str()]);
    let files = whole["preview"]["files"].as_array().unwrap();
    let contents: Vec<&str> = files.iter().map(|file| file["unified"].as_str().unwrap()).collect();
    for text in ["+payload", "+harmless", "+RAN"] {
        assert_eq!(contents.iter().filter(|content| content.contains(text)).count(), 1, "{text}: {whole}");
    }
    // Files whose paths read alike are shown together.
    let path = files[1]["change"]["path"].as_str().unwrap();
    let both = home.run(["approvals", "show", approval.as_str(), "--path", path]).out;
    assert!(both.contains("payload") && both.contains("harmless"), "{both}");
    // What is hidden can be seen before deciding, and the approval keeps who did.
    let command = "belay approvals show ".to_owned() + &approval + " --reveal";
    assert!(shown.contains(&command), "{shown}");
    let revealed = home.run(["approvals", "show", approval.as_str(), "--reveal"]).out;
    for name in [".git/hooks/pre-commit", token('A').as_str(), token('B').as_str()] {
        assert!(revealed.contains(name), "{name} is not in:\n{revealed}");
    }
    let (_, kept) = home.json(&["approvals", "show", approval.as_str()]);
    assert_eq!(kept["reveals"].as_array().map(Vec::len), Some(4), "the call and three files: {kept}");
    assert_eq!(
        (&kept["reveals"][0]["principal"], &kept["reveals"][0]["ofCall"]),
        (&json!("person:owner"), &json!(true))
    );
    let none = home.run(["approvals", "show", approval.as_str(), "--path", "elsewhere"]);
    assert_eq!(none.code, 2, "{}", none.talk);
    assert!(none.talk.contains("does not change `elsewhere`") && none.talk.contains("--all"), "{}", none.talk);

    assert_eq!(home.run(["deny", approval.as_str(), "--reason", "no"]).code, 0);
    assert_eq!(run.end().code, 33);
}

/// B-18, B-19: of a call that has not run, who may decide sees every word before deciding, also what looks like a secret or is marked as one. It is shown to
/// nobody else, and stored nowhere but sealed.
#[test]
fn the_words_of_a_call_that_has_not_run_can_be_revealed() {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home.file(
        "config.yaml",
        "tools:
  deploy:
    command: [sh, -c, 'echo \"$0 $1\"', '{host}', '{pin}']
    recovery: manual
    output: text
    parameters: {type: object, properties: {host: {type: string}, pin: {type: string, x-secret: true}}, required: [host, pin]}
",
    );
    // A payload that reads like a token, and one that the schema hides.
    let host = ["gh", "p_", "0123456789abcdefghijABCDEFGHIJ456789"].concat() + ".example";
    let step = json!({"id": "a", "tool": "deploy", "arguments": {"host": host, "pin": "$(rm -rf all-of-it)"}});
    let plan = home.file("plan.json", json!({"id": "p", "steps": [step]}).to_string());
    let server = home.serve_with(&["--config", "config.yaml"]);
    let mut run = home.start(["run", plan.as_str(), "--workspace", "w", "--approve", "prompt", "--id", "e1"]);
    let line = run.wait_for("waiting for approval; next: belay approvals show ");
    let approval = line.trim_end().rsplit(' ').next().unwrap().to_owned();

    let shown = home.run(["approvals", "show", approval.as_str()]).out;
    assert!(shown.contains("Has not run yet.") && !shown.contains("rm -rf") && !shown.contains(&host), "{shown}");
    let told = format!(
        "hidden as secrets: 2 values in the call (github-token 1, named 1); see them: belay approvals show {approval} --reveal"
    );
    assert!(shown.contains(&told), "{told} is not in:\n{shown}");
    // Pulling the plug loses no word.
    server.kill();
    let _server = home.serve_with(&["--config", "config.yaml"]);
    for _ in 0..2 {
        let revealed = home.run(["approvals", "show", approval.as_str(), "--reveal"]).out;
        assert!(revealed.contains("rm -rf all-of-it") && revealed.contains(&host), "{revealed}");
        assert!(!revealed.contains("hidden as secrets"), "{revealed}");
    }
    let (_, kept) = home.json(&["approvals", "show", approval.as_str()]);
    let reveals = kept["reveals"].as_array().unwrap();
    assert_eq!(reveals.len(), 1, "once, however often: {kept}");
    assert_eq!((&reveals[0]["principal"], &reveals[0]["ofCall"]), (&json!("person:owner"), &json!(true)), "{kept}");
    let everywhere = format!("{kept}{}", home.run(["executions", "events", "e1", "-o", "json"]).out);
    assert!(!everywhere.contains("rm -rf") && !everywhere.contains(&host), "{everywhere}");

    assert_eq!(home.run(["approve", approval.as_str(), "--yes"]).code, 0);
    run.kill();
    let ended = home.run(["executions", "watch", "e1"]);
    assert_eq!(ended.code, 0, "it ran with its words as they are: {ended:?}");
}
