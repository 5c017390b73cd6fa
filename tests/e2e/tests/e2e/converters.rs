//! Plans that the converters of `examples/converters` have made are carried out: their commands, branches, lists and outputs do what the workflows say.

use std::{collections::BTreeMap, fs};

use belay_e2e::{Home, belay::repository};

fn plan(name: &str) -> String {
    repository().join("examples/converters/samples").join(name).display().to_string()
}

/// A home with a workspace `w` that has a folder `src` and a file VERSION.
fn home() -> Home {
    let home = Home::new();
    fs::create_dir_all(home.path("w/src")).unwrap();
    home.file("w/VERSION", "1.4\n");
    home
}

/// The text files that were written into the workspace, by name, with sorted lines.
fn written(home: &Home) -> BTreeMap<String, String> {
    let entries = fs::read_dir(home.path("w")).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: std::path::PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        (path.file_name().unwrap().to_string_lossy().into_owned(), lines.join("|"))
    };
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "txt")).map(read).collect()
}

/// Jobs, a matrix with `exclude` and `include`, outputs of jobs, variables, working directories and conditions of a GitHub workflow.
#[test]
fn a_workflow_file_of_github_runs_its_commands() {
    let home = home();
    let plan = plan("github/ci.plan.yaml");
    let run = |channel: &str| home.run(["run", &plan, "--workspace", "w", "--approve", "auto", "--input", channel]);
    let ended = run("channel=beta");
    assert_eq!(ended.code, 0, "{ended:?}");
    let hello = |suite: &str, os: &str| (format!("ran-{suite}-{os}.txt"), format!("hello from {suite} of 1.4 on {os}"));
    let mut expected =
        BTreeMap::from([hello("unit", "linux"), hello("all", "linux"), hello("slow", "linux"), hello("unit", "macos")]);
    expected.insert("slow.txt".to_owned(), String::new());
    expected.insert("report.txt".to_owned(), "tests passed, /home/belay".to_owned());
    assert_eq!(written(&home), expected);
    // Not for a beta version.
    let ended = run("channel=stable");
    assert_eq!(ended.code, 0, "{ended:?}");
    expected.insert("published.txt".to_owned(), "1.4 to stable".to_owned());
    assert_eq!(written(&home), expected);
}

/// Steps run after a failure, and after skipped steps, as on a runner of GitHub: within a job, and between jobs.
#[test]
fn steps_and_jobs_of_github_follow_failures_as_there() {
    let home = home();
    let ended = home.run(["run", &plan("github/handlers.plan.yaml"), "--workspace", "w", "--approve", "auto"]);
    assert_eq!(ended.code, 30, "{ended:?}");
    let files: Vec<String> = written(&home).into_keys().collect();
    assert_eq!(files, ["always.txt", "blue.txt", "failed.txt", "handled.txt", "second.txt", "third.txt"]);
}

/// A task's output as a list and as text, `when`, `depends` with outcomes, a nested template, and a handler at the end of an Argo workflow.
#[test]
fn a_workflow_of_argo_runs_its_tasks() {
    let home = home();
    let ended = home.run(["run", &plan("argo/pipeline.plan.yaml"), "--workspace", "w", "--approve", "auto"]);
    // One task fails, as its author wanted it to.
    assert_eq!(ended.code, 30, "{ended:?}");
    let said = ["1 of hello", "2 of hello", "after a failure", "first of either", "hello, it was heads", "one of two"];
    let name = |said: &str| said.chars().filter(char::is_ascii_alphanumeric).collect::<String>() + ".txt";
    let mut expected: BTreeMap<String, String> = said.map(|said| (name(said), said.to_owned())).into();
    for (name, text) in
        [("counted-a.txt", "counted a"), ("counted-b.txt", "counted b"), ("tidied.txt", "tidied, {{workflow.status}}")]
    {
        expected.insert(name.to_owned(), text.to_owned());
    }
    assert_eq!(written(&home), expected);
}

/// Branches, variables, a loop, a workflow within and a wait of a Conductor workflow.
#[test]
fn a_workflow_of_conductor_goes_through_its_branch() {
    let home = home();
    let plan = plan("conductor/order.plan.yaml");
    let inputs = ["--input", "order=17", "--input", "country=DE", "--id", "order", "--approve", "prompt"];
    let mut run = home.start(["run", &plan, "--workspace", "w"].iter().chain(&inputs));
    run.wait_for("waits for the signal signed");
    assert_eq!(home.run(["executions", "signal", "order", "signed"]).code, 0);
    assert_eq!(run.end().code, 0);
    let (_, execution) = home.json(&["executions", "get", "order"]);
    assert_eq!(execution["outputs"]["label"], "for 17", "{execution}");
    let state = |id: &str| {
        let steps = execution["steps"].as_array().unwrap();
        steps.iter().find(|step| step["stepId"] == id).unwrap_or_else(|| panic!("{id}: {execution}"))["state"].clone()
    };
    for (id, expected) in [
        ("invoice", "COMPLETED"),
        ("ask", "SKIPPED"),
        ("refuse", "SKIPPED"),
        ("packing~2", "COMPLETED"),
        ("failure-workflow", "SKIPPED"),
    ] {
        assert!(state(id).as_str().unwrap_or_default().ends_with(expected), "{id}: {}", state(id));
    }
}
