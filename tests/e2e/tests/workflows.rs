//! Public workflows of hundreds of tasks, which others have written and published, are carried out to their end: every task once, and after all
//! that it depends on.
//!
//! They come from WfCommons (<https://wfcommons.org>), whose archive PyPI has; `workflows/fetch` fetches it once, and `workflows/tasks.py` reads
//! the tasks. Its licence is the LGPL, so nothing of it is in this repository. Without a registry or without Python the workflows are skipped by name;
//! with `CI=true` they fail.

use std::{
    collections::{BTreeMap, HashMap},
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use belay_e2e::{Client, Services, belay::repository, folded_execution::FoldedExecution};
use belay_proto::v1::{ExecutionEvent, execution::State, execution_event::Kind};
use serde_json::{Value, json};

/// By each task's name, the names of those that it depends on.
type Tasks = BTreeMap<String, Vec<String>>;

/// How many tasks run at once.
const PARALLELISM: usize = 16;

/// A published workflow.
struct Workflow {
    name: &'static str,
    /// Its name at WfCommons.
    published: &'static str,
    /// How many tasks and dependencies it has.
    tasks: usize,
    dependencies: usize,
    /// Whether each task is a command that reads the files of the tasks before it and writes its own, instead of a `noop`.
    with_files: bool,
}

const WORKFLOWS: [Workflow; 3] = [
    // 1000Genome: the mutations of 22 chromosomes, and how they overlap.
    Workflow {
        name: "genome",
        published: "1000genome-chameleon-22ch-250k-001",
        tasks: 902,
        dependencies: 1166,
        with_files: false,
    },
    // SoyKB: the resequencing of soybeans; one task waits for 500 others.
    Workflow {
        name: "soykb",
        published: "soykb-chameleon-50fastq-20ch-001",
        tasks: 676,
        dependencies: 1674,
        with_files: false,
    },
    // Montage: mosaics of the sky in three colours.
    Workflow {
        name: "montage",
        published: "montage-chameleon-2mass-015d-001",
        tasks: 310,
        dependencies: 798,
        with_files: true,
    },
];

/// Reads a line of each file that is named after the first, and writes into the first how many there were. A file that is not there fails the task.
const READ_AND_WRITE: &str = r#"out=$1; shift; for before; do read -r line <"$before"; done; echo "$#" >"$out""#;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let filters: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    let is_chosen = |name: &str| filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()));
    let chosen: Vec<&Workflow> = WORKFLOWS.iter().filter(|workflow| is_chosen(workflow.name)).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        // None of them is ignored beforehand.
        if !arguments.iter().any(|argument| argument == "--ignored") {
            chosen.iter().for_each(|workflow| println!("{}: test", workflow.name));
        }
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen.len());
    let must_run = env::var_os("CI").is_some_and(|value| value == "true");
    let archive = if chosen.is_empty() { Err(String::new()) } else { fetched() };
    let [mut passed, mut failed, mut skipped] = [0; 3];
    for workflow in chosen {
        match &archive {
            Ok(archive) => {
                let is_done = catch_unwind(AssertUnwindSafe(|| run(workflow, archive))).is_ok();
                let verdict = if is_done { "ok" } else { "FAILED" };
                println!("test {} ... {verdict}", workflow.name);
                *(if is_done { &mut passed } else { &mut failed }) += 1;
            }
            Err(why) if must_run => {
                println!("cannot be skipped with CI=true: {why}\ntest {} ... FAILED", workflow.name);
                failed += 1;
            }
            Err(why) => {
                println!("test {} ... ignored, {why}", workflow.name);
                skipped += 1;
            }
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {skipped} ignored; 0 measured; 0 filtered out\n"
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The archive with the workflows, which is fetched once; the error is why it is not here.
fn fetched() -> Result<PathBuf, String> {
    let folder = repository().join("target/workflows");
    let mut fetch = Command::new(repository().join("tests/e2e/workflows/fetch"));
    let output = fetch.arg(&folder).output().map_err(|error| format!("workflows/fetch cannot be run: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        // An archive that is not the pinned one is no reason to skip anything.
        assert!(!said.contains("DO NOT MATCH THE HASHES"), "{said}");
        return Err(format!("WfCommons cannot be fetched from PyPI: {}", said.lines().last().unwrap_or_default()));
    }
    let archives = fs::read_dir(&folder).map_err(|error| error.to_string())?;
    let mut archives = archives.filter_map(|entry| Some(entry.ok()?.path()));
    archives
        .find(|path| path.extension().is_some_and(|extension| extension == "gz"))
        .ok_or_else(|| "it is not there".to_owned())
}

/// The tasks of a workflow.
fn read(archive: &Path, published: &str) -> Tasks {
    let script = repository().join("tests/e2e/workflows/tasks.py");
    let output = Command::new("python3").arg(script).arg(archive).arg(published).output().expect("python3 runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the script prints tasks")
}

/// The workflow as a plan: a step for each task, by the task's name, with the task's dependencies.
fn plan(workflow: &Workflow, tasks: &Tasks) -> String {
    let step = |(task, before): (&String, &Vec<String>)| -> Value {
        match workflow.with_files {
            false => json!({"id": task, "tool": "noop", "depends_on": before}),
            true => {
                let words = ["sh", "-euc", READ_AND_WRITE, "task"].into_iter().chain([task.as_str()]);
                let command: Vec<&str> = words.chain(before.iter().map(String::as_str)).collect();
                json!({"id": task, "tool": "run_terminal", "arguments": {"command": command}, "depends_on": before})
            }
        }
    };
    let steps: Vec<Value> = tasks.iter().map(step).collect();
    json!({"id": workflow.name, "parallelism": PARALLELISM, "steps": steps}).to_string()
}

/// Carries the workflow out, and checks what its events say.
fn run(workflow: &Workflow, archive: &Path) {
    let tasks = read(archive, workflow.published);
    assert_eq!(tasks.len(), workflow.tasks, "tasks");
    assert_eq!(tasks.values().map(Vec::len).sum::<usize>(), workflow.dependencies, "dependencies");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let folder = tempfile::tempdir().expect("a folder");
        let services = Services::under(folder.path(), "{terminal_commands: auto}").await;
        let client = Client::new(&services.socket());
        let workspace = services.workspace("w");
        client.start_in(workflow.name, &plan(workflow, &tasks), &workspace).await;
        let picture = client.watch_to_the_end(workflow.name).await;
        assert_eq!(picture.state(), Some(State::Completed), "{:?}", picture.events().last());
        picture.assert_equals(&client.get(workflow.name).await);
        check(&tasks, &picture);
        if workflow.with_files {
            for (task, before) in &tasks {
                let written =
                    fs::read_to_string(workspace.join(task)).unwrap_or_else(|error| panic!("{task}: {error}"));
                assert_eq!(written, format!("{}\n", before.len()), "{task}");
            }
        }
    });
}

/// Every task was started, called and completed once, and not started before all that it depends on had completed.
fn check(tasks: &Tasks, picture: &FoldedExecution) {
    let numbers = |is: fn(&Kind) -> bool| -> HashMap<&str, i64> {
        let of_kind = |event: &&ExecutionEvent| event.kind.as_ref().is_some_and(is);
        let mut numbers = HashMap::new();
        for event in picture.events().iter().filter(of_kind) {
            let known = numbers.insert(event.step_id.as_str(), event.sequence);
            assert_eq!(known, None, "{} twice: {event:?}", event.step_id);
        }
        assert_eq!(numbers.len(), tasks.len());
        numbers
    };
    let started = numbers(|kind| matches!(kind, Kind::StepStarted(_)));
    let completed = numbers(|kind| matches!(kind, Kind::StepCompleted(_)));
    numbers(|kind| matches!(kind, Kind::ToolCallRequested(_)));
    numbers(|kind| matches!(kind, Kind::ToolCallCompleted(_)));
    for (task, before) in tasks {
        for dependency in before {
            assert!(
                completed[dependency.as_str()] < started[task.as_str()],
                "{task} was started before {dependency} had completed"
            );
        }
    }
}
