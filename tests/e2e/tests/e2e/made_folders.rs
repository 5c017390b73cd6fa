//! The folder of an execution for which no workspace was named: one for it, the executions of its steps' plans and its forks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use belay_e2e::{Home, belay::repository};
use serde_json::Value;

/// The folders that were made in the default namespace.
fn made(home: &Home) -> Vec<String> {
    let Ok(folders) = fs::read_dir(home.state().join("workspaces/default")) else { return Vec::new() };
    let mut names: Vec<String> = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn folder(home: &Home, id: &str) -> PathBuf {
    home.state().join("workspaces/default").join(id)
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn ids(executions: &Value) -> Vec<String> {
    let name = |execution: &Value| execution["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    executions["executions"].as_array().unwrap().iter().map(name).collect()
}

/// A plan of the documentation that hands its work to executions of its steps, as a newcomer runs it: without `--workspace`.
#[test]
fn the_executions_of_steps_work_in_the_folder_of_the_first() {
    let home = Home::new();
    let plan = repository().join("docs/examples/child-plan.yaml");
    let run = home.run(["run", plan.to_str().unwrap(), "--approve", "auto", "--id", "release"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(made(&home), ["release"], "one folder for all of them");
    let release = folder(&home, "release");
    assert_eq!(text(&release.join("dist/api.txt")), "the service api\n");
    assert_eq!(text(&release.join("dist/web.txt")), "the service web\n");
    assert!(text(&release.join("dist/RELEASE.md")).starts_with("The first service was checked by "));

    let (code, listed) = home.json(&["executions", "list", "--children"]);
    assert_eq!((code, ids(&listed).len()), (0, 3));
    for id in ids(&listed) {
        let (_, execution) = home.json(&["executions", "get", &id]);
        assert_eq!((execution["madeFolder"].as_str(), execution.get("workspace")), (Some("release"), None), "{id}");
        let shown = home.run(["executions", "get", &id]);
        assert!(shown.out.contains(release.to_str().unwrap()), "{shown:?}");
    }
}

/// B-26: a fork continues in the folder of its origin. The deletion of either leaves it to the other, and the deletion of the last takes it.
#[test]
fn a_folder_goes_with_the_last_execution_that_works_in_it() {
    let home = Home::new();
    let plan = home.file(
        "plan.yaml",
        "
id: p
steps:
  - {id: begin, tool: write_file, arguments: {path: begun.txt, content: 'begun'}}
  - {id: go_on, tool: run_terminal, depends_on: [begin], arguments: {command: [sh, -c, 'cat begun.txt; echo more >> more.txt']}}
",
    );
    let delete = |id: &str| {
        let deleted = home.run(["executions", "delete", id, "--yes"]);
        assert_eq!(deleted.code, 0, "{deleted:?}");
    };
    let server = home.serve();
    assert_eq!(home.run(["run", &plan, "--approve", "auto", "--id", "origin"]).code, 0);
    let forked = home.run(["executions", "fork", "origin", "--from", "go_on", "--id", "fork"]);
    assert_eq!(forked.code, 0, "{forked:?}");
    assert_eq!(made(&home), ["origin"]);
    assert_eq!(text(&folder(&home, "origin").join("more.txt")), "more\nmore\n", "both worked there");

    delete("origin");
    assert_eq!(text(&folder(&home, "origin").join("begun.txt")), "begun", "the fork has it");
    let forked = home.run(["executions", "fork", "fork", "--from", "go_on", "--id", "again"]);
    assert_eq!(forked.code, 0, "{forked:?}");
    assert_eq!(text(&folder(&home, "origin").join("more.txt")), "more\nmore\nmore\n");
    delete("fork");
    assert_eq!(made(&home), ["origin"]);
    delete("again");
    assert_eq!(made(&home), Vec::<String>::new(), "nothing works there any more");
    server.signal(rustix::process::Signal::TERM);
    server.end();
}
