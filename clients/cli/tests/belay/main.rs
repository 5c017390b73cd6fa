//! The `belay` binary against a scripted server: its output and its exit codes.

mod approvals;
mod completion;
mod forms;
mod gate;
mod next;
mod screens;
mod server;
mod signals;
mod terminal;
mod views;
mod whole;

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use belay_proto::v1::{
    ErrorClass, Execution, ExecutionEvent, ExecutionFinished, ExecutionRemoved, ExecutionResumed, ExecutionStarted,
    Failure, PlanViolation, StepTotals, ToolCall, WaitingReason, WatchExecutionsResponse, WatchListed,
    execution::State, execution_event::Kind, tool_call, waiting_reason, watch_executions_response::Content as All,
};
use rustix::process::{Pid, Signal, kill_process};
use server::{Server, World, accepted, event};

fn belay(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
    // By the environment, which the commands to type next do not repeat.
    command.args(arguments).env("BELAY_SERVER", server.address()).stdin(Stdio::null());
    command.env_remove("BELAY_TOKEN").env("NO_COLOR", "1");
    command
}

fn run(server: &Server, arguments: &[&str]) -> Output {
    belay(server, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The path of a plan; what it says is the script's business.
fn plan(server: &Server) -> String {
    let path = server.path("plan.yaml");
    std::fs::write(&path, "id: p\nsteps:\n  - nonsense\n").unwrap();
    path.to_str().unwrap().to_owned()
}

fn finished(state: State, class: Option<ErrorClass>) -> Kind {
    let failure = class.map(|class| Failure {
        error_class: class.into(),
        message: "outside workspace".to_owned(),
        reason: "PATH_OUTSIDE".to_owned(),
        ..Failure::default()
    });
    let totals = Some(StepTotals { total: 1, ..Default::default() });
    Kind::ExecutionFinished(Box::new(ExecutionFinished { state: state.into(), failure, totals, ..Default::default() }))
}

fn life(end: Kind) -> Vec<ExecutionEvent> {
    vec![
        event(1, Kind::ExecutionCreated(Box::default())),
        event(2, Kind::ExecutionStarted(ExecutionStarted {})),
        event(3, Kind::ExecutionResumed(ExecutionResumed::default())),
        event(4, end),
    ]
}

fn story(end: Kind) -> World {
    World { story: Some((accepted("e1"), life(end))), ..Default::default() }
}

/// A server with an execution that has started and not ended.
fn under_way() -> World {
    let mut events = life(finished(State::Completed, None));
    events.truncate(2);
    World { executions: vec![(accepted("e1"), events)], ..Default::default() }
}

fn sequences(output: &Output) -> Vec<String> {
    let value = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
    text(&output.stdout).lines().map(|line| value(line)["sequence"].as_str().unwrap().to_owned()).collect()
}

// B-02: through broken connections, every event comes once and in order.
#[test]
fn a_run_loses_and_doubles_nothing_when_the_connection_breaks() {
    let server = Server::start(World { breaks: vec![1, 3], ..story(finished(State::Completed, None)) });
    let output = run(&server, &["run", &plan(&server), "-o", "jsonl"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(sequences(&output), ["1", "2", "3", "4"]);
    assert_eq!(server.world().watches, ["all", "1", "3"]);
    assert_eq!(text(&output.stderr).matches("connection lost (the line was cut)").count(), 2);
}

// S2-X-26: the exit code tells the error's class.
#[test]
fn a_failed_execution_is_told_last_and_in_the_exit_code() {
    let server = Server::start(story(finished(State::Failed, Some(ErrorClass::SandboxViolation))));
    let output = run(&server, &["run", &plan(&server)]);
    assert_eq!(output.status.code(), Some(32));
    assert!(text(&output.stderr).ends_with(
        "✗ p failed · no step has finished\n  outside workspace (PATH_OUTSIDE)\n  execution e1\nnext: belay executions get e1\n      belay executions retry e1\n\
         code: PATH_OUTSIDE\n"
    ));
    let output = run(&server, &["executions", "watch", "e1", "-o", "json"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(32), ""));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&value["state"], &value["failure"]["code"]), (&"STATE_FAILED".into(), &"PATH_OUTSIDE".into()));
}

#[test]
fn a_refused_plan_ends_with_2_and_its_line() {
    let violation =
        PlanViolation { field: "steps[0]".to_owned(), message: "must be an object".to_owned(), line: 3, column: 5 };
    let server = Server::start(World { violations: vec![violation], ..Default::default() });
    let plan = plan(&server);
    for arguments in [&["run", &plan][..], &["plan", "validate", &plan], &["run", "--dry-run", &plan]] {
        let output = run(&server, arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
        let screen = text(&output.stderr);
        assert!(
            screen.contains(&format!(
                "{plan}:3:5: steps[0]: must be an object\n      3 |   - nonsense\n        |     ^\n"
            )),
            "{screen}"
        );
    }
    let output = run(&server, &["plan", "validate", &plan, "-o", "json"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), ""));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&value["code"], &value["violations"][0]["line"]), (&"PLAN_REFUSED".into(), &3.into()));
}

// S0-04, S4-33: a dry run starts nothing.
#[test]
fn a_dry_run_only_asks() {
    let server = Server::start(story(finished(State::Completed, None)));
    let output = run(&server, &["run", "--dry-run", &plan(&server)]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).ends_with("(dry run) everything is in order; nothing was run\n"));
    assert!(server.world().starts.iter().all(|start| start.validate_only));
    assert!(server.world().executions.is_empty());
}

/// A watch that has printed an event.
fn watching(server: &Server) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child =
        belay(server, &["executions", "watch", "@last"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("started") {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the watch ended before it printed an event");
    }
    (child, output)
}

fn end(mut child: Child) -> (Option<i32>, String) {
    let mut talk = String::new();
    child.stderr.take().unwrap().read_to_string(&mut talk).unwrap();
    (child.wait().unwrap().code(), talk)
}

#[test]
fn all_executions_are_followed_through_a_broken_line() {
    let message = |cursor: &str, content| WatchExecutionsResponse { cursor: cursor.to_owned(), content: Some(content) };
    let shown = |id: &str, state: State| All::Execution(Execution { state: state.into(), ..accepted(id) });
    let removed = |id: &str, deleted| {
        All::Removed(ExecutionRemoved { name: format!("namespaces/default/executions/{id}"), deleted })
    };
    let failed = Execution {
        state: State::Failed.into(),
        failure: Some(Failure { reason: "TOOL_FAILED".to_owned(), ..Default::default() }),
        ..accepted("e2")
    };
    let all = || {
        vec![
            vec![
                message("", shown("e1", State::Running)),
                message("c1", All::Listed(WatchListed {})),
                message("c2", All::Execution(failed.clone())),
                message("c3", All::Heartbeat(Default::default())),
            ],
            vec![
                message("c4", removed("e1", true)),
                message("c5", All::Listed(WatchListed {})),
                message("c6", removed("e2", false)),
            ],
        ]
    };
    for (format, expected) in [
        (
            "text",
            [
                "running            e1  p",
                "failed             e2  p    TOOL_FAILED",
                "deleted            e1",
                "no longer matches  e2",
            ],
        ),
        (
            "jsonl",
            [
                r#"{"execution":{"name":"namespaces/default/executions/e1","planId":"p","state":"STATE_RUNNING"}}"#,
                r#"{"cursor":"c1","listed":{}}"#,
                r#"{"cursor":"c2","execution":{"failure":{"code":"TOOL_FAILED","retryable":false},"name":"namespaces/default/executions/e2","planId":"p","state":"STATE_FAILED"}}"#,
                r#"{"cursor":"c4","removed":{"deleted":true,"name":"namespaces/default/executions/e1"}}"#,
            ],
        ),
    ] {
        let server = Server::start(World { all: all(), ..Default::default() });
        let arguments = ["executions", "watch", "--state", "running", "--filter", "id != x", "-o", format];
        let mut child = belay(&server, &arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        for expected in expected {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line.trim_end(), expected);
        }
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let (code, talk) = end(child);
        assert_eq!(code, Some(130), "{talk}");
        assert!(talk.contains("the connection is lost (the line was cut); trying again in 0.1s"), "{talk}");
        let asked = server.world().watches_of_all.clone();
        assert_eq!(asked[0].filter, "state = RUNNING AND id != x");
        assert_eq!(
            (asked[0].cursor.as_str(), asked[1].cursor.as_str()),
            ("", "c3"),
            "it resumes after the last message"
        );
    }
    let server = Server::start(World::default());
    for wrong in [&["executions", "watch", "e1", "--state", "failed"][..], &["executions", "watch", "--after", "3"]] {
        assert_eq!(run(&server, wrong).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn the_calls_of_an_execution_are_read_to_the_last_page() {
    let call = |step: &str, attempt, state: tool_call::State| ToolCall {
        name: format!("namespaces/default/executions/e1/steps/{step}/calls/{attempt}.1"),
        step_id: step.to_owned(),
        tool: "noop".to_owned(),
        attempt,
        operation: 1,
        state: state.into(),
        ..Default::default()
    };
    use tool_call::State::{Completed, Failed, Requested};
    let calls = vec![call("a", 1, Failed), call("a", 2, Completed), call("b", 1, Requested)];
    let server = Server::start(World { calls, ..under_way() });
    let lines = |arguments: &[&str]| {
        let shown = run(&server, arguments);
        assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
        text(&shown.stdout).lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(
        lines(&["executions", "get", "e1", "--calls"]),
        ["failed     a  attempt 1  noop", "completed  a  attempt 2  noop", "requested  b  attempt 1  noop"]
    );
    let of_b = lines(&["executions", "get", "e1", "--step", "b", "--calls"]);
    assert_eq!(of_b, ["requested  b  attempt 1  noop"]);
    let none = run(&server, &["executions", "get", "e1", "--step", "c", "--calls"]);
    assert_eq!((none.status.code(), text(&none.stdout)), (Some(0), ""));
    assert_eq!(text(&none.stderr), "no tool has been called\n");
}

// An unavailable service is not an event: `watch` and `get` report it within a second all the same.
#[test]
fn a_runner_that_is_away_is_said_while_watching_and_when_asked() {
    let server = Server::start(under_way());
    let (mut child, _output) = watching(&server);
    let away = WaitingReason {
        kind: waiting_reason::Kind::Runner.into(),
        who: "the tool runner, which does not answer".to_owned(),
        ..Default::default()
    };
    server.world().executions[0].0.waiting = vec![away];
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "waiting for the tool runner, which does not answer\n");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait().unwrap();
    let shown = run(&server, &["executions", "get", "e1"]);
    assert!(text(&shown.stdout).contains("\nwaiting for the tool runner, which does not answer\n"));
}

#[test]
fn ctrl_c_stops_the_watching_and_says_how_to_come_back() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let server = Server::start(under_way());
        let (child, _output) = watching(&server);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let told = "stopped watching e1: it continues on the server\nnext: belay executions watch e1 --after 2\n";
        assert_eq!(end(child), (Some(code), told.to_owned()));
    }
}

#[test]
fn a_closed_pipe_is_quiet() {
    let server = Server::start(under_way());
    let (mut child, output) = watching(&server);
    drop(output);
    // Another test that starts a process at this moment has the pipe's other end until that process executes its program.
    for sequence in 3..1000 {
        server.happen(event(sequence, Kind::ExecutionResumed(ExecutionResumed::default())));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(end(child), (Some(0), String::new()));
}

#[test]
fn refusals_say_what_to_type_next() {
    let server = Server::start(World {
        executions: vec![(accepted("e1"), vec![]), (accepted("e22"), vec![])],
        ..Default::default()
    });
    let refused = |arguments: &[&str]| {
        let output = run(&server, arguments);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{arguments:?}");
        text(&output.stderr).to_owned()
    };
    assert!(
        refused(&["executions", "get", "e"])
            .contains("  e22\n  e1\n  type more of the id\nnext: belay executions list\n")
    );
    assert!(
        refused(&["executions", "cancel", "e2"])
            .contains("error: the execution has ended\nnext: belay executions get e22\n")
    );
    assert!(refused(&["executions", "cancle", "e2"]).contains("did you mean `belay executions cancel`?\n"));
    let output = run(&server, &["executions", "get", "x", "-o", "json"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(2), ""));
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&value["code"], &value["nextCommand"]),
        (&"EXECUTION_NOT_FOUND".into(), &"belay executions list".into())
    );
}

#[test]
fn a_token_goes_to_a_server_over_tcp() {
    let server = Server::start(under_way());
    let mut command = Command::new(env!("CARGO_BIN_EXE_belay"));
    let output =
        command.args(["executions", "list", "--server", &server.url()]).env("BELAY_TOKEN", "t0ken").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(server.world().authorization.as_deref(), Some("Bearer t0ken"));
}

#[test]
fn belay_alone_gets_one_going_in_five_lines() {
    let output = Command::new(env!("CARGO_BIN_EXE_belay")).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stdout).lines().count(), 5);
}

/// The program is each service when the service's name comes first; the flags are the service's then.
#[test]
fn the_name_of_a_service_makes_the_program_that_service() {
    let belay = |arguments: &[&str]| Command::new(env!("CARGO_BIN_EXE_belay")).args(arguments).output().unwrap();
    for (service, flag) in
        [("executor", "--runner"), ("tool-runner", "--workspace-root"), ("approval-gate", "--service-listen")]
    {
        let help = belay(&[service, "--help"]);
        let shown = text(&help.stdout);
        assert_eq!(help.status.code(), Some(0), "{shown}");
        assert!(shown.contains(&format!("Usage: belay {service} ")) && shown.contains(flag), "{shown}");
        let missing = belay(&[service]);
        assert_eq!(missing.status.code(), Some(2), "{}", text(&missing.stderr));
        assert!(text(&missing.stderr).contains("--state-dir <STATE_DIR>"), "{}", text(&missing.stderr));
        let late = belay(&["--namespace", "n", service]);
        let message = format!("`belay {service}` is the service as a process of its own: its name comes first");
        assert!(late.status.code() == Some(2) && text(&late.stderr).contains(&message), "{}", text(&late.stderr));
    }
    assert!(!text(&belay(&["--help"]).stdout).contains("tool-runner"), "the everyday help is for clients");
}
