//! Deleting executions with the command: what goes, what stays, and what is refused.

use std::{
    fs,
    path::{Path, PathBuf},
};

use belay_e2e::{Home, belay::RunningCommand};
use serde_json::Value;

/// Deleting a file needs approval.
const PLAN: &str = "
id: with-secret
steps:
  - {id: kept, tool: write_file, arguments: {path: kept.txt, content: SECRET}}
  - {id: passing, tool: write_file, arguments: {path: passing.txt, content: SECRET}}
  - {id: gone, tool: delete_file, depends_on: [kept, passing], arguments: {path: passing.txt}}
";

/// In two parts, so that it is not taken for one of this repository's.
const SECRET: [&str; 2] = ["ghp_", "Lg81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk"];

fn plan(home: &Home) -> String {
    home.file("secret.yaml", PLAN.replace("SECRET", &SECRET.concat()))
}

/// A run of the plan that waits for its approval, and the approval's id.
fn waiting(home: &Home, plan: &str, id: &str) -> (RunningCommand, String) {
    let mut run = home.start(["run", plan, "--id", id, "--approve", "prompt"]);
    let line = run.wait_for("waiting for approval; next: belay approvals show ");
    let approval = line.trim_end().rsplit(' ').next().unwrap().to_owned();
    (run, approval)
}

/// Runs the plan to its end, and approves what it asks.
fn run(home: &Home, plan: &str, id: &str) {
    let (run, approval) = waiting(home, plan, id);
    assert_eq!(home.run(["approve", &approval, "--yes"]).code, 0);
    assert_eq!(run.end().code, 0);
}

/// Every file below a folder whose name begins so that contains a text.
fn files_with(folder: &Path, prefix: &str, text: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_with(&path, prefix, text));
        } else if path.file_name().unwrap().to_str().unwrap().starts_with(prefix) {
            let bytes = fs::read(&path).unwrap_or_default();
            if bytes.windows(text.len()).any(|window| window == text.as_bytes()) {
                found.push(path);
            }
        }
    }
    found
}

/// B-26: after the deletion, no file of the three services has the secret, and ledger and gate do not have the execution's id. What other
/// executions left, and folders of people, stay.
#[test]
fn a_deleted_execution_leaves_no_secret_and_no_directory() {
    let home = Home::new();
    let plan = plan(&home);
    fs::create_dir(home.path("mine")).unwrap();
    let _server = home.serve();
    let id = "to-be-deleted";
    run(&home, &plan, id);
    let named = home.run(["run", &plan, "--id", "in-a-folder-of-mine", "--workspace", "mine", "--approve", "fail"]);
    assert_ne!(named.code, 0, "its deletion needs approval");

    let made = home.state().join("workspaces/default").join(id);
    assert!(made.join("kept.txt").exists(), "{}", made.display());
    assert!(!files_with(&home.state(), "gate.db", id).is_empty(), "the gate has its approval");

    let refused = home.run(["executions", "delete", id]);
    assert_eq!(refused.code, 2);
    assert!(refused.talk.contains("--yes") && refused.talk.contains("NO_TERMINAL"), "{}", refused.talk);
    let (code, deleted) = home.json(&["executions", "delete", id, "in-a-folder-of-mine", "--yes"]);
    assert_eq!((code, &deleted["complete"]), (0, &Value::Bool(true)), "{deleted}");
    assert_eq!(deleted["deleted"].as_array().unwrap().len(), 2);

    assert!(!made.exists(), "the runner made it for this execution");
    assert!(home.path("mine/kept.txt").exists(), "a folder that a person named stays");
    assert_eq!(files_with(&home.state(), "", &SECRET.concat()), Vec::<PathBuf>::new());
    for store in ["ledger.db", "gate.db"] {
        assert_eq!(files_with(&home.state(), store, id), Vec::<PathBuf>::new());
    }
    let gone = home.run(["executions", "get", id]);
    assert!(gone.talk.contains("EXECUTION_NOT_FOUND"), "{}", gone.talk);
    let again = home.run(["run", &plan, "--id", id, "--approve", "fail"]);
    assert_eq!(again.code, 2);
    assert!(again.talk.contains("EXECUTION_ID_DELETED") && again.talk.contains("in 15 min"), "{}", again.talk);
    assert_eq!(home.run(["store", "check"]).code, 0);
}

/// Without a server the command starts the services itself, and they complete the deletion before it ends.
#[test]
fn deleting_needs_no_server() {
    let home = Home::new();
    let plan =
        home.file("quick.yaml", "id: quick\nsteps: [{id: a, tool: write_file, arguments: {path: f, content: x}}]\n");
    assert_eq!(home.run(["run", &plan, "--id", "quick"]).code, 0);
    let made = home.state().join("workspaces/default/quick");
    assert!(made.join("f").exists());
    let deleted = home.run(["executions", "delete", "@last", "--yes"]);
    assert_eq!((deleted.code, deleted.out.trim()), (0, "1 execution deleted"), "{}", deleted.talk);
    assert!(!made.exists());
    assert_eq!(home.json(&["executions", "list"]).1["executions"].as_array().map_or(0, Vec::len), 0);
}

#[test]
fn what_has_not_ended_is_not_deleted() {
    let home = Home::new();
    let plan = plan(&home);
    let _server = home.serve();
    run(&home, &plan, "ended");
    let (run, approval) = waiting(&home, &plan, "waits");
    let refused = home.run(["executions", "delete", "ended", "waits", "--yes"]);
    assert_eq!(refused.code, 2);
    assert!(
        refused.talk.contains("EXECUTION_NOT_ENDED") && refused.talk.contains("executions cancel waits"),
        "{}",
        refused.talk
    );
    assert_eq!(home.run(["executions", "get", "ended"]).code, 0, "nothing was deleted");
    assert_eq!(home.run(["approve", &approval, "--yes"]).code, 0);
    assert_eq!(run.end().code, 0);
}

/// B-26: with the command, and by the settings of a server.
#[test]
fn old_executions_go_by_command_and_by_the_settings() {
    let home = Home::new();
    let plan =
        home.file("quick.yaml", "id: quick\nsteps: [{id: a, tool: write_file, arguments: {path: f, content: x}}]\n");
    for id in ["one", "two", "three", "four"] {
        assert_eq!(home.run(["run", &plan, "--id", id]).code, 0);
    }
    let left = || -> Vec<String> {
        let listed = home.json(&["executions", "list"]).1;
        let listed = listed["executions"].as_array().cloned().unwrap_or_default();
        listed.iter().map(|execution| execution["name"].as_str().unwrap().rsplit('/').next().unwrap().into()).collect()
    };
    assert_eq!(home.run(["store", "prune", "--yes"]).code, 2, "which ones?");
    let kept = home.run(["store", "prune", "--older-than", "1d"]);
    assert!(kept.code == 0 && kept.out.contains("nothing to delete"), "{}", kept.out);
    let would = home.run(["store", "prune", "--keep", "2", "--dry-run"]);
    assert!(would.code == 0 && would.out.contains("2 executions would be deleted; nothing was"), "{}", would.out);
    assert!(would.out.contains("one") && would.out.contains("two") && !would.out.contains("three"), "{}", would.out);
    let (code, would) = home.json(&["store", "prune", "--keep", "3", "--dry-run"]);
    assert_eq!((code, would["wouldDelete"].clone()), (0, serde_json::json!(["namespaces/default/executions/one"])));
    let refused = home.run(["store", "prune", "--keep", "2"]);
    assert!(refused.code == 2 && refused.talk.contains("--yes"), "{}", refused.talk);
    assert_eq!(left(), ["four", "three", "two", "one"]);
    let pruned = home.run(["store", "prune", "--keep", "2", "--yes"]);
    assert_eq!((pruned.code, pruned.out.trim()), (0, "2 executions deleted"), "{}", pruned.talk);
    assert_eq!(left(), ["four", "three"]);

    fs::create_dir_all(home.path("config/belay")).unwrap();
    fs::write(home.path("config/belay/config.yaml"), "retention: {keep_last: 1}\n").unwrap();
    let shown = home.run(["config", "show"]).out;
    assert!(shown.contains("retention.keep_last") && shown.contains("retention.finished_for"), "{shown}");
    let count = |of: &str| home.json(&["store", "stats"]).1["stores"][0]["counts"][of].clone();
    assert_eq!((count("executions"), count("deletions")), (2.into(), 0.into()));
    let mut server = home.serve_with(&[]);
    server.wait_for_talk("the retention settings do not keep were deleted");
    assert_eq!(left(), ["four"]);
    // The server may still be forgetting `three`.
    while count("deletions") != 0 {}
    let stats = home.run(["store", "stats"]);
    assert_eq!((stats.code, count("executions")), (0, 1.into()), "beside a running server");
    for words in ["journal.db", "1 execution, ", "ledger.db", "gate.db", "1 directory made for executions", "total"] {
        assert!(stats.out.contains(words), "{words}: {}", stats.out);
    }
    let stats = home.json(&["store", "stats"]).1;
    assert!(stats["stores"][0]["tableBytes"]["log"].as_u64().is_some_and(|bytes| bytes > 0), "{stats}");
    assert!(stats["totalBytes"].as_u64() > stats["stores"][0]["fileBytes"].as_u64(), "{stats}");
}
