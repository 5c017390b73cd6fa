//! The plans of docs/examples do what they say, each with the command that stands in it.

use std::{fs, path::PathBuf, process::Command};

use belay_e2e::{
    Home,
    belay::{RunningCommand, count, repository},
};
use serde_json::Value;

fn example(name: &str) -> String {
    repository().join("docs/examples").join(name).display().to_string()
}

/// A home with a workspace `w`.
fn home() -> Home {
    let home = Home::new();
    fs::create_dir(home.path("w")).unwrap();
    home
}

/// The id of the approval that a run waits for.
fn waits_for(run: &mut RunningCommand) -> String {
    let line = run.wait_for("; next: belay approvals ");
    line.trim_end().rsplit(' ').next().unwrap().to_owned()
}

fn read(home: &Home, name: &str) -> String {
    fs::read_to_string(home.path("w").join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn step<'a>(execution: &'a Value, id: &str) -> &'a Value {
    let steps = execution["steps"].as_array().unwrap();
    steps.iter().find(|step| step["stepId"] == id).unwrap_or_else(|| panic!("{id}: {execution}"))
}

/// S2-FR-059, S2-FR-060, S2-FR-067, S2-X-31, S3-16: a command that finds the database away is tried again after 2 s and 4 s, its attempts are counted, and the plan continues.
#[test]
fn a_migration_outlasts_the_restart_of_its_database() {
    let home = home();
    let ended = home.run(["run", &example("migration.yaml"), "--workspace", "w", "--approve", "auto", "--id", "m"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let (_, execution) = home.json(&["executions", "get", "m"]);
    assert_eq!(step(&execution, "migrate")["attempt"], 3, "{execution}");
    let events = home.events("m");
    assert_eq!(count(&events, "stepRetryScheduled", "migrate"), 2);
    let delays: Vec<_> = events.iter().filter_map(|event| event["stepRetryScheduled"]["delay"].as_str()).collect();
    assert_eq!(delays, ["2s", "4s"]);
    assert_eq!(read(&home, "migrations/APPLIED"), "2\n");
}

/// S2-FR-049, S2-FR-051, S2-FR-052: each deletion waits for a person, who sees the file; what is approved goes, and what is denied stays.
#[test]
fn deletions_wait_for_a_person() {
    let home = home();
    for file in ["OldAuthService.cs", "OldAuthController.cs"] {
        home.file(&format!("w/{file}"), "deprecated\n");
    }
    let files = r#"files=["OldAuthService.cs", "OldAuthController.cs"]"#;
    let plan = example("deletion.yaml");
    let arguments = ["run", &plan, "--workspace", "w", "--input", files, "--approve", "prompt", "--id"];
    let mut run = home.start(arguments.iter().chain(&["first"]));
    for file in ["OldAuthService.cs", "OldAuthController.cs"] {
        let approval = waits_for(&mut run);
        let shown = home.run(["approvals", "show", &approval]);
        assert!(shown.out.contains(&format!("deletes  {file}")), "{}", shown.out);
        assert!(home.path("w").join(file).exists(), "nothing is deleted before the decision");
        let decided = match file {
            "OldAuthService.cs" => home.run(["approve", &approval, "--yes"]),
            _ => home.run(["deny", &approval, "--reason", "the mobile app needs it"]),
        };
        assert_eq!(decided.code, 0, "{decided:?}");
    }
    let ended = run.end();
    assert_eq!(ended.code, 33, "{ended:?}");
    assert!(!home.path("w/OldAuthService.cs").exists() && home.path("w/OldAuthController.cs").exists());
    assert!(!home.path("w/DELETED").exists(), "nothing is recorded that did not happen");

    home.file("w/OldAuthService.cs", "deprecated\n");
    let ended = home.run(["run", &plan, "--workspace", "w", "--input", files, "--approve", "auto"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(read(&home, "DELETED"), "[\"OldAuthService.cs\",\"OldAuthController.cs\"]\n");
}

#[test]
fn what_is_not_there_gives_way_and_what_is_not_needed_is_skipped() {
    let home = home();
    home.file("w/README.md", "# One\n\nText.\n\n## Two\n");
    let plan = example("fallback.yaml");
    let run = |longer: &str| home.run(["run", &plan, "--workspace", "w", "--approve", "auto", "--input", longer]);
    let ended = run("longer_than=1000");
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.out.contains("its condition is false") && !home.path("w/SUMMARY.txt").exists(), "{ended:?}");
    let ended = run("longer_than=10");
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(read(&home, "SUMMARY.txt"), "# One\n## Two\n");
}

/// The form is in the inbox, its answer is checked, and the steps after it have the answer.
#[test]
fn a_form_is_answered_by_a_person() {
    let home = home();
    let mut run = home.start(["run", &example("form.yaml"), "--workspace", "w", "--approve", "prompt"]);
    let form = waits_for(&mut run);
    let refused = home.run(["approvals", "answer", &form, "--value", r#"{"version": "one"}"#]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.talk.contains("version"), "{refused:?}");
    let answered = home.run(["approvals", "answer", &form, "--value", r#"{"version": "1.4", "channel": "beta"}"#]);
    assert_eq!(answered.code, 0, "{answered:?}");
    let ended = run.end();
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(read(&home, "ANNOUNCEMENT.md"), "# 1.4\n\nReleased in the channel beta.\n");
}

/// S3-01, S3-02, S3-10, S3-13: the plan of an agent that researches and codes, with the fields and tools that it names; each step has what the one before it made.
#[test]
fn what_is_researched_becomes_a_program_and_its_report() {
    let home = home();
    fs::create_dir(home.path("w/docs")).unwrap();
    home.file("w/docs/a.md", "An approval.\nNothing.\nApprovals.\n");
    home.file("w/docs/b.md", "No approval, no commit.\n");
    let plan = example("research-to-code/plan.yaml");
    let ended = home.run(["run", &plan, "--workspace", "w", "--approve", "auto"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!(read(&home, "REPORT.md"), "approval: [[\"docs/a.md\",1],[\"docs/b.md\",1]]\n");
}

/// S2-FR-001, S2-FR-007: a task plan as its planner writes it: what was completed before is skipped, and the rest runs task by task.
#[test]
fn a_task_plan_of_an_executor_stage_runs() {
    let home = home();
    let ended = home.run(["run", &example("task-plan.json"), "--workspace", "w", "--approve", "auto", "--id", "t"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let (_, execution) = home.json(&["executions", "get", "t"]);
    assert_eq!(step(&execution, "folder")["state"], "STATE_SKIPPED", "{execution}");
    assert_eq!(read(&home, "validators/email.txt"), "has one @\nhas a dot after it\n");
}

/// The folder of a crate that cargo has fetched to build Belay.
fn fetched(name: &str) -> Option<PathBuf> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    let registries = fs::read_dir(cargo_home.join("registry/src")).ok()?;
    registries.flatten().map(|registry| registry.path().join(name)).find(|folder| folder.is_dir())
}

/// The jobs of a public project that knows nothing of Belay, with its own commands.
#[test]
fn the_jobs_of_a_public_project_run_as_a_plan() {
    let version = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let version = version.split("name = \"shlex\"\nversion = \"").nth(1).unwrap().split('"').next().unwrap();
    let name = format!("shlex-{version}");
    let plan = fs::read_to_string(example("shlex-ci.yaml")).unwrap();
    assert!(plan.contains(&format!("/{name} ")), "the command in the example names the version that is built with");
    let Some(folder) = fetched(&name) else {
        return eprintln!("the_jobs_of_a_public_project_run_as_a_plan: skipped, since cargo has no folder {name} here");
    };
    if !Command::new("cargo").args(["clippy", "--version"]).output().is_ok_and(|output| output.status.success()) {
        return eprintln!("the_jobs_of_a_public_project_run_as_a_plan: skipped, since there is no cargo clippy here");
    }
    let home = Home::new();
    // Programs installed by rustup find their toolchain by the home, which is another one here.
    let mut run = home.belay(["run", &example("shlex-ci.yaml"), "--copy-of"]);
    run.arg(&folder).args(["--approve", "auto", "--id", "ci"]).envs(toolchain_homes());
    let ended = RunningCommand::start(run).end();
    assert_eq!(ended.code, 0, "{ended:?}");
    let (_, execution) = home.json(&["executions", "get", "ci"]);
    let copy = PathBuf::from(execution["workspace"].as_str().unwrap());
    let report = fs::read_to_string(copy.join("CI.md")).unwrap();
    assert_eq!(report, "stable: completed\nno default features: completed\n");
    for job in ["stable-test", "no-default-features"] {
        let printed = step(&execution, job)["output"]["stdout"].to_string();
        assert!(printed.contains("test result: ok. "), "{job}: {printed}");
    }
    assert!(copy.join("target/stable/doc/shlex/index.html").exists());
}

/// Where rustup and cargo are, for a process with another home.
fn toolchain_homes() -> Vec<(&'static str, PathBuf)> {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return Vec::new() };
    [("RUSTUP_HOME", ".rustup"), ("CARGO_HOME", ".cargo")]
        .into_iter()
        .map(|(name, folder)| (name, std::env::var_os(name).map_or_else(|| home.join(folder), PathBuf::from)))
        .collect()
}
