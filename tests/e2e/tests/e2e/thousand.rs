//! A thousand commands at once: no thread each, and nothing waits for them.

use std::{fs, time::Duration};

use belay_e2e::{Client, Runner, Service, Services, client::name};
use belay_proto::{
    runner_v1,
    v1::{self, execution::State},
};

/// How many commands run at once, in executions of as many steps as may run at once in one.
const COMMANDS: usize = EXECUTIONS * STEPS;
const EXECUTIONS: usize = 4;
const STEPS: usize = 250;

/// More threads than all lanes of a runner have slots, with those of the runtime and the stores; a thread for each command is far more.
const MAX_THREADS: usize = 400;

/// A duration for `sleep`, in seconds, that no other process has.
fn nap() -> String {
    format!("{}.25", 3_000_000 + std::process::id())
}

/// How many of the host's processes are `sleep <nap>`.
fn sleepers(nap: &str) -> usize {
    let command = format!("sleep\0{nap}\0");
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == command.as_bytes()))
        .count()
}

/// Waits until so many of them are there.
async fn until_there_are(count: usize, nap: &str, services: &Services) {
    let counted = async {
        while sleepers(nap) != count {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let counted = tokio::time::timeout(Duration::from_secs(300), counted).await;
    counted.unwrap_or_else(|_| {
        panic!("{} commands instead of {count}:\n{}", sleepers(nap), services.log(Service::Runner))
    });
}

/// Beside a thousand commands an execution is started and carried out, files are read, other commands run, and each service answers, before
/// any of the commands ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_commands_take_no_thread_each_and_nothing_waits_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let services = Services::under(folder.path(), "{terminal_commands: auto}").await;
    let client = Client::new(&services.socket());
    let workspace = services.workspace("w");
    fs::write(workspace.join("file"), "as it was\n").unwrap();
    let nap = nap();
    // None may end by its time limit before all are there, on a busy machine too.
    let step = |n: usize| {
        format!("  - {{id: s{n}, tool: run_terminal, arguments: {{command: [sleep, '{nap}']}}, attempt_timeout: 1h}}\n")
    };
    let steps: String = (0..STEPS).map(step).collect();
    let plan = format!("id: busy\nparallelism: {STEPS}\nsteps:\n{steps}");
    for n in 0..EXECUTIONS {
        client.start_in(&format!("busy-{n}"), &plan, &workspace).await;
    }
    until_there_are(COMMANDS, &nap, &services).await;
    let threads = services.threads(Service::Runner);
    assert!(threads < MAX_THREADS, "{threads} threads beside {COMMANDS} commands");

    // None of the commands ends before all of this has.
    let quick = "
id: quick
steps:
  - {id: nothing, tool: noop}
  - {id: read, tool: read_file, arguments: {path: file}}
  - {id: write, tool: write_file, arguments: {path: new, content: here}}
  - {id: run, tool: run_terminal, arguments: {command: ['true']}}
";
    client.start_in("quick", quick, &workspace).await;
    let picture = client.watch_to_the_end("quick").await;
    assert_eq!(picture.state(), Some(State::Completed), "{:?}", picture.events().last());
    assert_eq!(fs::read_to_string(workspace.join("new")).unwrap(), "here");
    assert_eq!(client.get("busy-0").await.state(), State::Running);
    let request = runner_v1::CheckWorkspaceRequest { workspace: workspace.to_str().unwrap().into() };
    Runner::new(&services.runner()).raw().check_workspace(request).await.unwrap();
    assert_eq!(sleepers(&nap), COMMANDS);

    for n in 0..EXECUTIONS {
        let request = v1::CancelExecutionRequest { name: name(&format!("busy-{n}")), ..Default::default() };
        client.raw().cancel_execution(request).await.unwrap();
    }
    for n in 0..EXECUTIONS {
        assert_eq!(client.watch_to_the_end(&format!("busy-{n}")).await.state(), Some(State::Cancelled));
    }
    until_there_are(0, &nap, &services).await;
}
