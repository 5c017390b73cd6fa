//! The commands that read an execution's events: what they print, and where they stop.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::Stdio,
};

use belay_proto::v1::{
    Artifact, AuditEntry, AuditLevel, Execution, ExecutionEvent, ExecutionPaused, Payload, Step, StepCompleted,
    ToolCallCompleted, artifact, audit_entry, execution::State, execution_event::Kind, step,
};
use serde_json::Value;

use crate::{
    belay, finished, life, run, sequences,
    server::{Server, World, accepted, event},
    text, under_way,
    whole::Home,
};

// B-02: through a broken connection, every event comes once and in order; nothing is waited for.
#[test]
fn the_events_so_far_are_printed_and_no_more_is_waited_for() {
    let server = Server::start(World { breaks: vec![1], ..under_way() });
    let output = run(&server, &["executions", "events", "e1", "-o", "jsonl"]);
    assert_eq!((output.status.code(), sequences(&output)), (Some(0), vec!["1".to_owned(), "2".to_owned()]));
    assert_eq!(text(&output.stderr), "connection lost (the line was cut); retrying in 0.1s\nconnected again\n");

    let output = run(&server, &["executions", "events", "@last", "--after", "1", "-o", "json"]);
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let events = value["events"].as_array().unwrap();
    assert_eq!((events.len(), &events[0]["sequence"], &events[0]["execution"]), (1, &"2".into(), &EXECUTION.into()));

    let output = run(&server, &["executions", "events", "e1"]);
    let lines: Vec<&str> = text(&output.stdout).lines().map(|line| line.rsplit("  ").next().unwrap().trim()).collect();
    assert_eq!(lines, ["accepted: plan , 0 steps", "started"]);
    assert_eq!(text(&run(&server, &["executions", "events", "e1", "--after", "2"]).stdout), "");
}

#[test]
fn the_events_of_an_execution_that_failed_are_no_failure() {
    let world = World { executions: vec![(accepted("e1"), life(finished(State::Failed, None)))], ..Default::default() };
    let server = Server::start(world);
    let output = run(&server, &["executions", "events", "e1", "-o", "jsonl"]);
    assert_eq!((output.status.code(), sequences(&output).len()), (Some(0), 4));
}

const EXECUTION: &str = "namespaces/default/executions/e1";

fn of_step(sequence: i64, step: &str, kind: Kind) -> ExecutionEvent {
    ExecutionEvent { step_id: step.to_owned(), attempt: 1, ..event(sequence, kind) }
}

/// A call of a step that returned this, and the step's end.
fn completes(sequence: i64, step: &str, result: &str) -> [ExecutionEvent; 2] {
    let result = Some(Payload::of_json(result));
    [
        of_step(sequence, step, Kind::ToolCallCompleted(ToolCallCompleted { result, receipt: None })),
        of_step(sequence + 1, step, Kind::StepCompleted(StepCompleted::default())),
    ]
}

/// An execution with the steps `a`, which has ended, and `b`, which runs.
fn half_done() -> World {
    let step =
        |id: &str, state: step::State| Step { step_id: id.to_owned(), state: state.into(), ..Default::default() };
    let steps = vec![step("a", step::State::Completed), step("b", step::State::Running)];
    let [first, second] =
        life(finished(State::Completed, None)).try_into().map(|[first, second, _, _]: [_; 4]| [first, second]).unwrap();
    let printed = r#"{"exit_code":0,"stdout":"one\n\u001b[31mtwo\n","stderr":"oops\n"}"#;
    let events = [first, second].into_iter().chain(completes(3, "a", printed)).collect();
    World { executions: vec![(Execution { steps, ..accepted("e1") }, events)], ..Default::default() }
}

// B-02, S2-X-22: through a broken connection, each output comes once.
#[test]
fn the_outputs_of_an_execution_are_followed_to_its_end() {
    let server = Server::start(World { breaks: vec![3, 4], ..half_done() });
    let mut child =
        belay(&server, &["logs", "e1", "--follow"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut shown = String::new();
    while !shown.ends_with("oops\n") {
        assert_ne!(output.read_line(&mut shown).unwrap(), 0, "{shown}");
    }
    server.happen(event(5, Kind::ExecutionPaused(ExecutionPaused::default())));
    completes(6, "b", "[1]").into_iter().for_each(|event| server.happen(event));
    server.happen(event(8, finished(State::Completed, None)));
    output.read_to_string(&mut shown).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut talk = String::new();
    child.stderr.take().unwrap().read_to_string(&mut talk).unwrap();
    assert_eq!((talk.matches("connection lost").count(), talk.matches("  paused\n").count()), (2, 1), "{talk}");
    assert_eq!(
        shown,
        "==> a  completed\n  one\n  two\n--- standard error\n  oops\n==> b  completed\n  [\n    1\n  ]\n"
    );
}

#[test]
fn the_output_of_one_step_can_be_piped() {
    let server = Server::start(half_done());
    let output = run(&server, &["logs", "e1", "a"]);
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("one\ntwo\n", "oops\n"));
    let none = run(&server, &["logs", "e1", "b"]);
    assert_eq!(
        (none.status.code(), text(&none.stdout), text(&none.stderr)),
        (Some(0), "", "b has not ended: running\n")
    );
    let none = run(&server, &["logs", "e1", "--failed"]);
    assert_eq!((none.status.code(), text(&none.stderr)), (Some(0), "no step has failed\n"));
    let unknown = run(&server, &["logs", "e1", "c"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("\nnext: belay executions get e1\n"), "{}", text(&unknown.stderr));
    let lines = run(&server, &["logs", "e1", "-o", "jsonl"]);
    let value: Value = serde_json::from_slice(&lines.stdout).unwrap();
    assert_eq!((&value["stepId"], &value["output"]["stderr"]), (&"a".into(), &"oops\n".into()));
}

/// `write` has written a file and returned something, which `read` has used.
fn with_artifacts() -> World {
    let artifact = |id: &str, kind: artifact::Kind, step: &str, path: &str, from: &[&str]| Artifact {
        name: format!("{EXECUTION}/artifacts/{id}"),
        kind: kind.into(),
        step_id: step.to_owned(),
        path: path.to_owned(),
        attempt: 1,
        derives_from: from.iter().map(|id| format!("{EXECUTION}/artifacts/{id}")).collect(),
        ..Artifact::default()
    };
    let artifacts = vec![
        artifact("5.1", artifact::Kind::File, "write", "out/a.txt", &[]),
        artifact("6", artifact::Kind::Output, "write", "", &[]),
        artifact("9", artifact::Kind::Output, "read", "", &["6"]),
    ];
    World { artifacts, ..under_way() }
}

// S3-14: what an execution has produced is listed page by page, printed, and shown with its lineage; it is named by its id, its step or its path.
#[test]
fn artifacts_are_listed_printed_and_shown_with_their_lineage() {
    let server = Server::start(World { unlisted_files: 4, ..with_artifacts() });
    let ids = |output: &std::process::Output| -> Vec<String> {
        text(&output.stdout).lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
    };
    let all = run(&server, &["artifacts", "list", "e1"]);
    assert_eq!((all.status.code(), ids(&all)), (Some(0), ["5.1", "6", "9"].map(str::to_owned).to_vec()));
    assert!(text(&all.stderr).starts_with("4 more files were committed"), "{}", text(&all.stderr));
    assert_eq!(ids(&run(&server, &["artifacts", "list", "e1", "--step", "write", "--kind", "output"])), ["6"]);
    assert_eq!(ids(&run(&server, &["artifacts", "list", "e1", "--path", "out/"])), ["5.1"]);
    let none = run(&server, &["artifacts", "list", "e1", "--step", "write", "--kind", "file", "--path", "src/"]);
    assert!(text(&none.stderr).starts_with("no file of step write with a path that begins with src/ yet\n"));
    let first = run(&server, &["artifacts", "list", "e1", "--limit", "1", "-o", "json"]);
    let value: Value = serde_json::from_slice(&first.stdout).unwrap();
    assert_eq!((&value["artifacts"][0]["kind"], &value["nextPageToken"]), (&"KIND_FILE".into(), &"1".into()));

    // Through a stream that breaks.
    for named in ["9", "read"] {
        let got = run(&server, &["artifacts", "get", "e1", named]);
        assert_eq!((got.status.code(), text(&got.stdout)), (Some(0), "{\"n\":7}\n"), "{}", text(&got.stderr));
    }
    let got = run(&server, &["artifacts", "get", "@last", "read", "-o", "json"]);
    let value: Value = serde_json::from_slice(&got.stdout).unwrap();
    assert_eq!((&value["stepId"], &value["output"]["n"]), (&"read".into(), &7.into()));

    let lineage = run(&server, &["artifacts", "lineage", "e1", "write"]);
    let shown = text(&lineage.stdout);
    assert!(
        shown.contains("derives from no other artifact\nfrom it derive, the nearest first:\n  9  output  read"),
        "{shown}"
    );
    let lines = run(&server, &["artifacts", "lineage", "e1", "out/a.txt", "-o", "jsonl"]);
    let value: Value = serde_json::from_slice(&lines.stdout).unwrap();
    assert_eq!((&value["relation"], &value["path"]), (&"self".into(), &"out/a.txt".into()));

    for wrong in ["nope", "out/b.txt", "77"] {
        let missing = run(&server, &["artifacts", "get", "e1", wrong]);
        assert_eq!(missing.status.code(), Some(2), "{wrong}");
        assert!(text(&missing.stderr).contains("\nnext: belay artifacts list e1\n"), "{}", text(&missing.stderr));
    }
}

// S4-31: the audit log is printed at the level that is wanted.
#[test]
fn the_audit_log_is_printed_at_a_level() {
    let entry = AuditEntry {
        sequence: 2,
        severity: audit_entry::Severity::Warn.into(),
        message: "Step `a` skipped: its condition does not hold".into(),
        details: r#"{"reason":"CONDITION_FALSE"}"#.into(),
        ..AuditEntry::default()
    };
    let server = Server::start(World { audit: vec![entry], ..under_way() });
    let shown = run(&server, &["audit", "e1", "--level", "minimal", "--severity", "warn", "--step", "a"]);
    assert_eq!(
        (shown.status.code(), text(&shown.stdout).trim()),
        (Some(0), "warn  Step `a` skipped: its condition does not hold")
    );
    let asked = server.world().audits.pop().unwrap();
    assert_eq!((asked.level(), asked.min_severity()), (AuditLevel::Minimal, audit_entry::Severity::Warn));
    assert_eq!(asked.parent, format!("{EXECUTION}/steps/a"));
    let line = run(&server, &["audit", "@last", "-o", "jsonl"]);
    let value: Value = serde_json::from_slice(&line.stdout).unwrap();
    assert_eq!((&value["severity"], &value["details"]["reason"]), (&"SEVERITY_WARN".into(), &"CONDITION_FALSE".into()));
    assert_eq!(server.world().audits.pop().unwrap().level(), AuditLevel::Unspecified, "the server decides");
}

/// Prints more than fits into a message, colours, and fails twice.
const FAILS: &str = "
id: fails
steps:
  - {id: write, tool: write_file, arguments: {path: new.txt, content: x}}
  - {id: large, tool: run_terminal, arguments: {command: [sh, -c, 'i=0; while [ $i -lt 6000 ]; do echo \"line $i\"; i=$((i+1)); done']}, depends_on: [write]}
  - {id: build, tool: run_terminal, arguments: {command: [sh, -c, 'printf \"\\033[31mred\\033[0m\\n\"; echo why >&2; exit 7']}, depends_on: [large], retry: {max_attempts: 2, backoff: [1ms]}}
  - {id: ship, tool: noop, depends_on: [build]}
";

#[test]
fn why_and_logs_explain_an_execution_that_failed() {
    let home = Home::new();
    home.write("fails.yaml", FAILS);
    assert_eq!(home.run(&["run", "fails.yaml", "--id", "e1", "--workspace", "work"]).status.code(), Some(30));

    let why = home.run(&["why", "e1"]);
    assert_eq!(why.status.code(), Some(0), "{}", text(&why.stderr));
    let lines: Vec<&str> = text(&why.stdout).lines().collect();
    assert_eq!(lines[0], "✗ build failed: `sh` exited with code 7. (COMMAND_FAILED)");
    assert_eq!(
        lines[2..][..2],
        ["  call       sh -c 'printf \"\\033[31mred\\033[0m\\n\"; echo why >&2; exit 7', attempt 2 of 2", "     │ red"]
    );
    assert_eq!(
        lines[4..],
        [
            "     │ why",
            "  before     attempt 1: `sh` exited with code 7. (COMMAND_FAILED)",
            "  changed    write: 1 created",
            "  skipped    1 step because of it: ship",
            "next: belay executions retry e1",
            "      belay logs e1 build --failed",
            "code: COMMAND_FAILED (belay explain COMMAND_FAILED)",
        ]
    );
    let why = home.run(&["why", "@last", "-o", "json"]);
    let value: Value = serde_json::from_slice(&why.stdout).unwrap();
    let explanation = &value["explanation"];
    let ids = |list: &str| -> Vec<&str> {
        explanation[list].as_array().unwrap().iter().map(|entry| entry["stepId"].as_str().unwrap()).collect()
    };
    assert_eq!((ids("causes"), ids("changes"), ids("skippedSteps")), (vec!["build"], vec!["write"], vec!["ship"]));
    let cause = &explanation["causes"][0];
    assert_eq!((&cause["kind"], &cause["attempt"]), (&"KIND_STEP_FAILURE".into(), &2.into()));
    assert_eq!(cause["failedAttempts"][1]["failure"]["lastOutput"]["stderr"], "why\n");
    assert_eq!(cause["spec"]["tool"]["arguments"]["command"][0], "sh");
    assert_eq!(value["nextActions"][0]["verb"], "VERB_RETRY");
    assert_eq!(value["nextCommand"], "belay executions retry e1");

    let drawn = home.run(&["executions", "timeline", "e1"]);
    let drawn: Vec<&str> = text(&drawn.stdout).lines().collect();
    assert!(drawn[0].starts_with("fails  partial after "), "{drawn:#?}");
    assert!(drawn[4].starts_with("build  |") && drawn[4].ends_with("  failed, 2 attempts"), "{drawn:#?}");
    assert!(drawn.iter().all(|line| line.is_ascii() && line.len() < 80), "{drawn:#?}");
    let rows = home.run(&["executions", "timeline", "e1", "-o", "jsonl"]);
    let mut rows = text(&rows.stdout).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let build = rows.find(|row| row["stepId"] == "build").unwrap();
    let segments = build["segments"].as_array().unwrap().iter().map(|segment| {
        assert!(segment["beginTime"].as_str().unwrap().ends_with('Z') && segment["endTime"].is_string(), "{segment}");
        (segment["kind"].as_str().unwrap().to_owned(), segment["attempt"].clone())
    });
    let kind = |kind: &str, attempt: i32| (kind.to_owned(), attempt.into());
    assert_eq!(
        segments.collect::<Vec<_>>(),
        [kind("KIND_RUNNING", 1), kind("KIND_BACKOFF", 1), kind("KIND_RUNNING", 2)]
    );
    let whole = home.run(&["executions", "timeline", "e1", "-o", "json"]);
    let whole: Value = serde_json::from_slice(&whole.stdout).unwrap();
    assert_eq!((&whole["state"], whole["rows"].as_array().map(Vec::len)), (&"STATE_PARTIAL".into(), Some(4)));
    assert!(whole["endTime"].is_string() && whole.get("nextPageToken").is_none(), "{whole}");

    let large = home.run(&["logs", "e1", "large"]);
    let expected: String = (0..6000).map(|n| format!("line {n}\n")).collect();
    assert!(text(&large.stdout) == expected && large.stderr.is_empty(), "{}", text(&large.stderr));
    let failed = home.run(&["logs", "e1", "--failed"]);
    assert_eq!(
        text(&failed.stdout)
            .matches("\n  `sh` exited with code 7. (COMMAND_FAILED)\n  red\n--- standard error\n  why\n")
            .count(),
        2
    );
    assert!(text(&failed.stdout).starts_with("==> build  attempt 1 of 2 failed after "), "{}", text(&failed.stdout));
}

#[test]
fn a_plan_is_drawn_before_it_runs() {
    let home = Home::new();
    home.write("fails.yaml", FAILS);
    let text_of = |arguments: &[&str]| {
        let output = home.run(&[&["plan", "graph", "fails.yaml"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let levels = text_of(&[]);
    let numbers: Vec<&str> = levels.lines().filter_map(|line| line.strip_prefix("  ")?.split("  ").next()).collect();
    assert_eq!(numbers, ["1", "2", "3", "4"], "{levels}");
    assert!(levels.starts_with("plan fails: 4 steps, one at a time\n  1  write  write new.txt\n"), "{levels}");
    let mermaid = text_of(&["--format", "mermaid"]);
    assert!(mermaid.starts_with("flowchart TD\n  s0[\"write<br/>write new.txt\"]\n"), "{mermaid}");
    assert!(mermaid.ends_with("\n  s0 --> s1\n  s1 --> s2\n  s2 --> s3\n"), "{mermaid}");
    let value: Value = serde_json::from_str(&text_of(&["-o", "json"])).unwrap();
    assert_eq!(
        (&value["id"], &value["steps"][3]["level"], &value["steps"][3]["dependsOn"][0]),
        (&"fails".into(), &4.into(), &"build".into())
    );

    let both = home.run(&["plan", "graph", "fails.yaml", "--format", "mermaid", "-o", "json"]);
    assert_eq!(both.status.code(), Some(2));
    home.write("fails.yaml", "id: p\nsteps:\n  - {id: a, tool: noop, depends_on: [b]}\n");
    let refused = home.run(&["plan", "graph", "fails.yaml"]);
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), ""));
    assert!(text(&refused.stderr).contains("fails.yaml:3:"), "{}", text(&refused.stderr));
}
