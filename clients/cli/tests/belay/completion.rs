//! Completion in a shell: in a real bash at a terminal, and what `belay __complete` prints for the shells.

use std::{fs, net::TcpListener, process::Command};

use belay_proto::v1::{Approval, Execution, Step, approval};

use crate::{
    belay, run,
    server::{Server, World, accepted},
    terminal::AtTerminal,
    text,
};

/// A server with three executions, the steps of one, and two approvals.
fn world() -> World {
    let step = |id: &str| Step { step_id: id.to_owned(), ..Step::default() };
    let with_steps =
        Execution { steps: vec![step("build"), step("test.unit"), step("test.all")], ..accepted("nightly-1") };
    let asked = |id: &str| Approval {
        name: format!("namespaces/default/approvals/{id}"),
        state: approval::State::Pending.into(),
        ..Approval::default()
    };
    World {
        executions: [accepted("deploy-7"), with_steps, accepted("nightly-2")].map(|one| (one, Vec::new())).into(),
        approvals: vec![asked("ap1"), asked("bq2")],
        ..World::default()
    }
}

fn complete(server: &Server, line: &str) -> Vec<String> {
    let output = run(server, &["__complete", "5s", "--line", line]);
    assert!(output.status.success() && output.stderr.is_empty(), "{line}: {output:?}");
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn ids_that_a_server_knows_are_completed() {
    let server = Server::start(world());
    assert_eq!(complete(&server, "belay why "), ["nightly-2", "nightly-1", "deploy-7"], "the newest first");
    assert_eq!(complete(&server, "belay executions get nig"), ["nightly-2", "nightly-1"]);
    assert_eq!(complete(&server, "belay logs nightly-1 test"), ["test.unit", "test.all"]);
    assert_eq!(complete(&server, "belay executions get nightly-1 --step=b"), ["build"]);
    assert_eq!(complete(&server, "belay approve b"), ["bq2"]);
    for nothing in
        ["belay run ", "belay executions get --st", "belay why UPPER", "belay logs unknown ", "belay tools describe "]
    {
        assert_eq!(complete(&server, nothing), [""; 0], "{nothing}");
    }
    let words = run(&server, &["__complete", "5s", "--", "executions", "get", "d"]);
    assert_eq!(text(&words.stdout), "deploy-7\n");
}

#[test]
fn a_completion_starts_nothing_and_says_nothing() {
    let server = Server::start(World::default());
    let state = server.path("none");
    let mut alone = belay(&server, &["__complete", "5s", "--line", "belay why "]);
    let output = alone.env_remove("BELAY_SERVER").env("BELAY_STATE_DIR", &state).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    assert!(!state.exists(), "it made no state directory");
    for broken in [&["__complete"][..], &["__complete", "soon", "--line", "belay why "], &["__complete", "1s", "x"]] {
        let output = run(&server, broken);
        assert!(output.stdout.is_empty() && output.stderr.len() < 2_000, "{output:?}");
    }
    // One that accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", silent.local_addr().unwrap());
    let mut limited = Command::new("timeout");
    limited.args(["20", env!("CARGO_BIN_EXE_belay"), "__complete", "300ms", "--line", "belay why "]);
    let output = limited.env("BELAY_SERVER", address).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn bash_completes_ids_at_a_terminal() {
    let server = Server::start(world());
    let script = run(&server, &["completions", "bash"]);
    fs::write(server.path("belay.bash"), &script.stdout).unwrap();
    let mut shell = Command::new("setsid");
    shell
        .args(["--ctty", "bash", "--norc", "--noprofile", "-i"])
        .env("BELAY_SERVER", server.address())
        .env("PS1", "$ ");
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_belay")).parent().unwrap();
    shell.env("PATH", format!("{}:{}", programs.display(), std::env::var("PATH").unwrap()));
    shell.env_remove("BELAY_TOKEN").env("INPUTRC", "/dev/null").current_dir(server.path("."));
    let mut terminal = AtTerminal::start(shell);
    terminal.wait_for("$ ");
    terminal.types(". ./belay.bash; echo re''ady");
    terminal.wait_for("ready");
    terminal.wait_for("$ ");
    terminal.presses("belay why dep\t");
    terminal.wait_for("belay why dep");
    terminal.wait_for("loy-7 ");
    // Takes the line back.
    terminal.ctrl('U');
    // Both that begin so, up to where they differ; then the step of one.
    terminal.presses("belay logs nig\t");
    terminal.wait_for("htly-");
    terminal.presses("1 bu\t");
    terminal.wait_for("ild ");
    // Takes the line back.
    terminal.ctrl('U');
    // What the script knows by itself is completed as before.
    terminal.presses("belay compl\t");
    terminal.wait_for("etions ");
    // Takes the line back.
    terminal.ctrl('U');
    terminal.types("exit");
    terminal.end();
}

/// Checks the syntax of the scripts for shells that are on this machine, and names those that are not.
#[test]
fn other_shells_read_their_scripts() {
    let server = Server::start(World::default());
    for shell in ["bash", "zsh", "fish"] {
        let script = run(&server, &["completions", shell]);
        let path = server.path(shell);
        fs::write(&path, &script.stdout).unwrap();
        match Command::new(shell).arg("-n").arg(&path).output() {
            Ok(output) => assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {output:?}"),
            Err(error) => println!("skipped: {shell}: {error}"),
        }
    }
}
