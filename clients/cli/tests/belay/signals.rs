//! Keys that end, stop and hang up a command, typed at its controlling terminal. A signal that is sent to the process alone shows less: a
//! terminal sends it to everything that the command has started as well.

use std::thread::JoinHandle;

use rustix::{
    fs::{CWD, FileType, Mode, mknodat},
    process::Signal,
};
use serde_json::Value;

use crate::{terminal::AtTerminal, whole::Home};

/// A step that says for some seconds that it is under way, then ends well. The plan itself, which the screen shows first, does not say it.
const SLOW: &str = "
id: slow
steps:
  - {id: first, tool: noop}
  - {id: build, tool: run_terminal, arguments: {command: [sh, -c, 'for i in 1 2 3 4 5 6 7 8; do echo under\"\"way; sleep 0.3; done']}, depends_on: [first]}
  - {id: last, tool: noop, depends_on: [build]}
";

const RUN: &str = "run slow.yaml --workspace work --id e1";

fn home() -> Home {
    let home = Home::new();
    home.write("slow.yaml", SLOW);
    mknodat(CWD, home.path("alive"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    home
}

/// A shell at a terminal that can redraw; `belay` is what it finds under that name.
fn shell(home: &Home) -> AtTerminal {
    let mut environment = home.belay(&[]);
    environment.env("TERM", "xterm");
    let mut shell = AtTerminal::shell(&environment);
    shell.types(&format!("alias belay='{}'", env!("CARGO_BIN_EXE_belay")));
    shell
}

/// Runs `belay` there until its slow step is under way. The thread ends with everything that this started.
fn under_way(home: &Home) -> (AtTerminal, JoinHandle<()>) {
    shown(home, "underway")
}

/// Runs `belay` there until these words are shown. The thread ends with everything that this started.
fn shown(home: &Home, words: &str) -> (AtTerminal, JoinHandle<()>) {
    let alive = home.path("alive");
    let ended = std::thread::spawn(move || drop(std::fs::read(alive).unwrap()));
    let mut shell = shell(home);
    shell.types(&format!("belay {RUN} 9>alive; echo left\"\"=$?"));
    shell.wait_for(words);
    (shell, ended)
}

fn execution(home: &Home) -> Value {
    let output = home.run(&["executions", "get", "e1", "-o", "json"]);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Resumes the execution: it continues from where it was, and the slow step's first attempt is its only one.
fn goes_on(home: &Home) {
    let resumed = home.run(&["executions", "resume", "e1"]);
    assert_eq!(resumed.status.code(), Some(0), "{}", crate::text(&resumed.stderr));
    completed_at_first_attempt(home);
}

fn completed_at_first_attempt(home: &Home) {
    let execution = execution(home);
    assert_eq!(execution["state"], "STATE_COMPLETED", "{execution:#}");
    for step in execution["steps"].as_array().unwrap() {
        assert_eq!((&step["state"], &step["attempt"]), (&"STATE_COMPLETED".into(), &1.into()), "{step:#}");
    }
}

// S0-11, S2-FR-057
#[test]
fn ctrl_c_pauses_what_runs_and_burns_no_attempt() {
    // The signal reaches the processes of the terminal in any order: one run proves little.
    for _ in 0..3 {
        let home = home();
        let (mut shell, ended) = under_way(&home);
        shell.ctrl('C');
        let screen = shell.wait_for("left=");
        assert!(screen.contains("stopped watching e1: it is paused"), "{screen}");
        shell.wait_for("130");
        ended.join().unwrap();
        assert_eq!(execution(&home)["state"], "STATE_PAUSED");
        goes_on(&home);
    }
}

// S0-11: the second ends the process at once; what was recorded is there.
#[test]
fn ctrl_c_twice_ends_at_once_and_loses_nothing() {
    // Once while the step starts, once while it runs.
    for words in ["works in", "underway"] {
        let home = home();
        let (mut shell, ended) = shown(&home, words);
        // Keys typed together may become one signal. Typed apart, the second could reach the shell.
        shell.ctrl_twice('C');
        shell.wait_for("left=");
        shell.wait_for("130");
        ended.join().unwrap();
        let state = execution(&home)["state"].clone();
        assert!(["STATE_PAUSED", "STATE_RUNNING"].contains(&state.as_str().unwrap()), "{state}");
        goes_on(&home);
    }
}

#[test]
fn ctrl_z_stops_the_command_and_fg_goes_on() {
    let home = home();
    let (mut shell, ended) = under_way(&home);
    shell.ctrl('Z');
    shell.types("echo sto\"\"pped; fg; echo left\"\"=$?");
    shell.wait_for("stopped");
    shell.wait_for("left=");
    shell.wait_for("0");
    ended.join().unwrap();
    completed_at_first_attempt(&home);
}

// S2-FR-057: closing the window loses no work, and leaves no execution that seems to run.
#[test]
fn a_closed_terminal_pauses_what_runs() {
    let home = home();
    let (mut shell, ended) = under_way(&home);
    shell.close();
    ended.join().unwrap();
    let execution = execution(&home);
    assert_eq!(execution["state"], "STATE_PAUSED", "{execution:#}");
    goes_on(&home);
}

#[test]
fn a_server_stops_in_good_order_at_ctrl_c_and_when_its_terminal_closes() {
    for closes in [false, true] {
        let home = home();
        let mut shell = shell(&home);
        shell.types("belay serve; echo left\"\"=$?");
        shell.wait_for("keeps data in");
        let guest = home.start(&RUN.split(' ').collect::<Vec<_>>(), "underway");
        match closes {
            false => {
                shell.ctrl('C');
                shell.wait_for("left=");
                shell.wait_for("0");
            }
            true => {
                shell.close();
            }
        }
        // The guest takes the server's place, and carries on.
        assert_eq!(guest.end(), Some(0));
        completed_at_first_attempt(&home);
    }
}

#[test]
fn a_guest_leaves_and_the_server_goes_on() {
    for closes in [false, true] {
        let home = home();
        let server = home.start(&["serve"], "keeps data in");
        let (mut guest, ended) = under_way(&home);
        match closes {
            false => {
                guest.ctrl('C');
                guest.wait_for("stopped watching e1: it continues on the server");
                guest.wait_for("left=130");
            }
            true => guest.close(),
        }
        ended.join().unwrap();
        let watched = home.run(&["executions", "watch", "e1"]);
        assert_eq!(watched.status.code(), Some(0), "{}", crate::text(&watched.stderr));
        completed_at_first_attempt(&home);
        server.signal(Signal::INT);
        assert_eq!(server.end(), Some(0));
    }
}
