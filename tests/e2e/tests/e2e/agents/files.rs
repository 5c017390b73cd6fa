//! Files that a plan names by patterns, and that the model is shown with its task.

use std::fs;

use belay_e2e::belay::count;
use serde_json::{Value, json};

use super::script::{Scene, goal};

/// A folder with these files, each of which holds its path.
fn with_files(scene: &Scene, paths: &[String]) {
    for path in paths {
        let place = scene.home.path("w").join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, path).unwrap();
    }
}

/// What the model was shown, in its order: each path or pattern.
fn shown(task: &str) -> Vec<&str> {
    let names = task.split("<file ").skip(1).map(|part| part.split('>').next().unwrap_or_default());
    names.collect()
}

/// A goal with these files.
fn of(files: &Value) -> Value {
    json!({"model": "m", "task": "Sum it up.", "files": files})
}

/// S2-FR-018: what patterns match is found and read as the policy lets it, and shown in order, once, up to the limit; what is not shown is said.
#[test]
fn a_model_is_shown_the_files_that_patterns_match() {
    let scene = Scene::new(|ask| ask.completes(json!(ask.task)));
    let named = ["README.md", "src/b.rs", "src/a/c.rs", "src/a.rs", "src/kept/d.rs", ".git/e.rs"].map(str::to_owned);
    with_files(&scene, &named);
    let many: Vec<String> = (0..70).map(|n| format!("many/{n:02}")).collect();
    with_files(&scene, &many);
    scene.home.file(
        "policy.yaml",
        "rules: [{id: kept, on: intent, tools: [read_file], paths: ['**/kept/**'], decide: deny, reason: not for models}]\n",
    );
    let files = json!(["**/*.rs", "./README.md", "none/**/*.py", "*.md", "many/*", "src/a.rs"]);
    let ended = scene.run(&of(&files), &json!({}), &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let task = scene.step("a")["output"].as_str().unwrap().to_owned();
    let mut expected = vec![
        r#"path="src/a/c.rs""#.to_owned(),
        r#"path="src/b.rs""#.to_owned(),
        r#"path="src/kept/d.rs" not_read="true""#.to_owned(),
        r#"path="./README.md""#.to_owned(),
        r#"pattern="none/**/*.py" not_read="true""#.to_owned(),
    ];
    expected.extend(many[..61].iter().map(|path| format!(r#"path="{path}""#)));
    expected.extend([r#"pattern="many/*" not_read="true""#.to_owned(), r#"path="src/a.rs""#.to_owned()]);
    assert_eq!(shown(&task), expected);
    assert!(task.starts_with("Sum it up.\n\n<file path=\"src/a/c.rs\">\nsrc/a/c.rs\n</file>\n\n"), "{task}");
    assert!(task.contains("POLICY_DENIED: ") && task.contains("not for models"), "{task}");
    assert!(task.contains("No file matches `none/**/*.py`."), "{task}");
    let rest: Vec<String> = many[61..].iter().map(|path| format!("\"{path}\"")).collect();
    assert!(task.contains(&format!("Not shown: 9 more files match:\n{}\n</file>", rest.join("\n"))), "{task}");
}

/// A plan with patterns is shown as it is written, and refused where one is none.
#[test]
fn patterns_are_shown_and_checked_before_anything_runs() {
    let scene = Scene::new(|ask| ask.completes(json!("done")));
    with_files(&scene, &["src/a.rs".to_owned()]);
    let plan = scene.plan(&of(&json!(["src/*.rs"])), &json!({}));
    let preview = scene.home.run(scene.words(&plan, &["--dry-run", "-o", "json"]));
    let shown: Value = serde_json::from_str(&preview.out).unwrap_or_else(|_| panic!("{preview:?}"));
    let planned = shown["plannedCalls"].as_array().unwrap().iter().find(|call| call["tool"] == "find_files").unwrap();
    assert_eq!(
        (&planned["arguments"], &planned["field"]),
        (&json!({"pattern": "src/*.rs"}), &json!("/steps/0/agent/files/0"))
    );
    assert!(!preview.out.contains("src/a.rs") && scene.asks().is_empty(), "{preview:?}");
    let plan = scene.plan(&of(&json!(["src/[a"])), &json!({}));
    let refused = scene.home.run(["plan", "validate", &plan, "--config", "config.yaml"]);
    assert!(refused.talk.contains("steps[0].agent.files[0]: `src/[a` is not a valid glob"), "{refused:?}");
    let listed = scene.home.run(["tools", "list"]);
    assert!(listed.out.contains("find_files"), "{listed:?}");
}

/// S2-FR-057: which files are read was decided when they were found: processes that are killed afterwards look for nothing again, whatever is in the folder by then.
#[test]
fn what_was_found_is_not_looked_for_again() {
    let scene = Scene::new(|ask| ask.completes(json!(ask.task)));
    let home = &scene.home;
    with_files(&scene, &["src/a.rs", "src/b.rs"].map(str::to_owned));
    home.file(
        "policy.yaml",
        "rules: [{id: ask, on: intent, tools: [read_file], paths: ['src/a.rs'], decide: prompt}]\n",
    );
    let serve = || home.serve_with(&["--config", "config.yaml", "--policy", "policy.yaml"]);
    let server = serve();
    let mut agent = goal(&[]);
    agent["files"] = json!(["src/*.rs"]);
    let plan = scene.plan(&agent, &json!({}));
    assert_eq!(home.run(["run", &plan, "--workspace", "w", "--id", "x", "--approve", "prompt", "--detach"]).code, 0);
    let waits = home.json_until(&["approvals", "list"], |list| list["approvals"][0]["name"].is_string());
    server.kill();
    with_files(&scene, &["src/0.rs".to_owned()]);
    fs::remove_file(home.path("w/src/b.rs")).unwrap();
    let _server = serve();
    let asked = waits["approvals"][0]["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    assert_eq!(home.run(["approve", asked.as_str(), "--yes"]).code, 0);
    let watched = home.run(["executions", "watch", "x"]);
    assert_eq!(watched.code, 0, "{watched:?}");
    let events = home.events("x");
    assert_eq!((count(&events, "toolCallCompleted", "a~0"), scene.asks().len()), (1, 1));
    let looked = events.iter().filter(|event| event["toolCallRequested"]["tool"] == "find_files").count();
    assert_eq!(looked, 1, "{events:?}");
    let task = scene.step("a")["output"].as_str().unwrap().to_owned();
    assert_eq!(shown(&task)[0], r#"path="src/a.rs""#);
    assert!(shown(&task).len() == 2 && shown(&task)[1].starts_with(r#"path="src/b.rs""#), "{task}");
    assert!(!task.contains("0.rs"), "{task}");
}

/// S2-FR-018: what the model is told is the file beside the plan, byte for byte, also where it is larger than what stands in events.
#[test]
fn the_task_stands_in_a_file_beside_the_plan() {
    let scene = Scene::new(|ask| ask.completes(json!("done")));
    let text = "# Fix é\n\n- all of it\n".repeat(3_000);
    fs::create_dir(scene.home.path("prompts")).unwrap();
    scene.home.file("prompts/fix.md", &text);
    let mut agent = goal(&[]);
    agent["task"] = json!({"file": "prompts/fix.md"});
    let ended = scene.run(&agent, &json!({}), &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(scene.asks()[0].task.contains(text.trim()), "{}", scene.asks()[0].task.len());
    agent["task"] = json!({"file": "prompts/fxi.md"});
    let refused = scene.home.run(["plan", "validate", &scene.plan(&agent, &json!({})), "--config", "config.yaml"]);
    assert!(refused.talk.contains("steps[0].agent.task") && refused.talk.contains("`prompts/fix.md`?"), "{refused:?}");
}

/// The model is told of the tools of groups, which the execution's plan has in their place, also in a plan within.
#[test]
fn a_group_is_told_as_its_tools() {
    let scene = Scene::new(|ask| ask.completes(json!("done")));
    let agent = goal(&["group:reading", "group:writing", "run_terminal"]);
    let ended = scene.run(&agent, &json!({}), &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let expected = [
        "read_file",
        "write_file",
        "run_terminal",
        "list_directory",
        "find_files",
        "search_code",
        "modify_file",
        "delete_file",
    ];
    let told = |ask: usize| -> Vec<Value> {
        let told = &scene.asks()[ask].body["tools"];
        told.as_array().unwrap().iter().map(|tool| tool["function"]["name"].clone()).collect()
    };
    assert_eq!(told(0)[..expected.len()], expected);
    assert_eq!(scene.execution()["plan"]["steps"][0]["agent"]["tools"], json!(expected));

    let within = json!({"id": "q", "steps": [{"id": "b", "agent": agent}]});
    let plan = json!({"id": "p", "steps": [{"id": "a", "plan": within}]});
    let plan = scene.home.file("outer.json", plan.to_string());
    let words = ["run", &plan, "--workspace", "w", "--config", "config.yaml", "--policy", "policy.yaml"];
    let ended = scene.home.run(words);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(told(1)[..expected.len()], expected);
}
