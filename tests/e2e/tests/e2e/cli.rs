//! The `belay` command: what comes out, with which exit code it ends, and what is left when it is stopped.

use belay_e2e::{
    Home,
    belay::{CommandEnd, RunningCommand, count, events},
};
use rustix::process::Signal;
use serde_json::{Value, json};

const TWO: &str = "
id: two
steps:
  - {id: a, tool: noop, arguments: {output: {n: 1}}}
  - {id: b, tool: noop, arguments: {output: '${a.result.n}'}}
";

/// `b` takes long enough to be interrupted.
const SLOW: &str = "
id: slow
steps:
  - {id: a, tool: noop, arguments: {output: 1}}
  - {id: b, tool: noop, arguments: {sleep_ms: 1500, output: '${a.result}'}}
";

/// The lines without the time at their beginning, with single spaces.
fn rendered(text: &str) -> Vec<String> {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let without_time = |line: String| match line.split_once("Z ") {
        Some((time, rest)) if time.starts_with(|c: char| c.is_ascii_digit()) => rest.to_owned(),
        _ => line,
    };
    text.lines().map(words).map(without_time).collect()
}

/// S2-FR-001, S2-FR-005, S2-FR-009, S2-FR-010, S2-FR-068..072, S2-X-31: a run tells its beginning, each step's start and end, and its own end.
#[test]
fn a_run_tells_its_life_line_by_line() {
    let home = Home::new();
    let CommandEnd { code, out, talk } = home.run(["run", &home.file("two.yaml", TWO), "--id", "e1"]);
    assert_eq!(code, 0);
    // What will run, in one line each, and where, before it does.
    let preview = "plan two: 2 steps, one at a time\n  a  noop {\"output\":{\"n\":1}}\n";
    assert!(talk.starts_with(preview) && talk.contains("\nexecution e1 works in /"), "{talk}");
    assert_eq!(talk.lines().count(), 4, "{talk}");
    let expected = [
        "e1 accepted: plan two, 2 steps",
        "e1 started",
        "a started",
        r#"a calls noop {"output":{"n":1}}"#,
        r#"a call answered {"n":1}"#,
        "a completed in ",
        "b started",
        r#"b calls noop {"output":1}"#,
        "b call answered 1",
        "b completed in ",
        "e1 completed in ",
        "✓ two completed in ",
        "execution e1 in /",
        "next: belay executions get e1",
    ];
    let lines = rendered(&out);
    assert_eq!(lines.len(), expected.len(), "{out}");
    for (line, expected) in lines.iter().zip(expected) {
        assert!(line.starts_with(expected), "{line} is not {expected}");
    }
    let shown = home.run(["executions", "get", "@last"]);
    assert!(shown.out.starts_with("e1  completed  "), "{}", shown.out);
}

/// S2-X-03, S2-X-24, S2-X-31: programs get one object, or one event a line, and nothing else.
#[test]
fn programs_get_json() {
    let home = Home::new();
    let plan = home.file("two.yaml", TWO);
    let (code, execution) = home.json(&["run", &plan, "--id", "e1", "--label", "team=docs"]);
    assert_eq!((code, &execution["state"]), (0, &json!("STATE_COMPLETED")));
    assert_eq!(execution["totals"], json!({"total": 2, "completed": 2}));
    assert_eq!(execution["labels"], json!({"team": "docs"}));
    let outputs: Vec<&Value> = execution["steps"].as_array().unwrap().iter().map(|step| &step["output"]).collect();
    assert_eq!(outputs, [&json!({"n": 1}), &json!(1)]);

    let ended = home.run(["run", &plan, "--id", "e2", "-o", "jsonl"]);
    assert_eq!((ended.code, ended.talk.as_str()), (0, ""));
    let told = events(&ended.out);
    assert_eq!(told.last().unwrap()["executionFinished"]["nextStage"], "verifier");
    assert_eq!(count(&told, "stepCompleted", ""), 2);
    assert_eq!(told, home.events("e2"), "live and later, the same events");

    let (code, refusal) = home.json(&["run", "nowhere.yaml"]);
    let keys: Vec<&String> = refusal.as_object().unwrap().keys().collect();
    assert_eq!(keys, ["code", "message", "nextCommand", "retryable"]);
    assert_eq!((code, &refusal["code"]), (2, &json!("PLAN_UNREADABLE")));
    let (code, refusal) = home.json(&["executions", "watch", "e1", "--after", "999"]);
    assert_eq!((code, &refusal["code"]), (2, &json!("SEQUENCE_OUT_OF_RANGE")));
    assert_eq!(refusal["nextCommand"], "belay executions get e1");
}

/// S2-X-26, S4-26: the exit code tells how the execution ended.
#[test]
fn the_exit_code_tells_the_end() {
    let home = Home::new();
    let table = [
        ("{id: p, steps: [{id: a, tool: noop}]}", 0, ""),
        ("{id: p, steps: [{id: a, tool: noop, arguments: {fail: boom}}]}", 30, "TOOL_FAILED"),
        ("{id: p, steps: [{id: a, tool: noop, arguments: {fail: boom}}, {id: b, tool: noop}]}", 30, "TOOL_FAILED"),
        (
            "{id: p, timeout: 100ms, steps: [{id: a, tool: noop, arguments: {sleep_ms: 600000}}]}",
            34,
            "EXECUTION_TIMED_OUT",
        ),
        ("{id: p, steps: [{id: a, tool: noop, attempt_timeout: 50ms, arguments: {sleep_ms: 600000}}]}", 34, "TIMEOUT"),
        ("{id: p, steps: [{id: a, tool: nop}]}", 2, "PLAN_REFUSED"),
    ];
    for (plan, expected, reason) in table {
        let ended = home.run(["run", &home.file("plan.yaml", plan)]);
        assert_eq!(ended.code, expected, "{plan}: {}", ended.talk);
        if !reason.is_empty() {
            let last = ended.talk.lines().last().unwrap();
            assert_eq!(last, format!("code: {reason} (belay explain {reason})"), "the reason is said last");
        }
    }
    let long = home.file("long.yaml", "{id: p, steps: [{id: a, tool: noop, arguments: {sleep_ms: 600000}}]}");
    let ended = home.run(["run", &long, "--wait-timeout", "300ms"]);
    assert_eq!(ended.code, 34);
    assert!(
        ended.talk.contains("next: belay executions resume ") && ended.talk.contains("WAIT_TIMEOUT"),
        "{}",
        ended.talk
    );
}

/// B-15: the same request twice is one execution.
#[test]
fn a_request_id_starts_once() {
    let home = Home::new();
    let plan = home.file("two.yaml", TWO);
    let run = |more: &[&str]| home.run(["run", plan.as_str()].iter().chain(more));
    assert_eq!(run(&["--id", "e1", "--request-id", "r"]).code, 0);
    let again = run(&["--id", "e1", "--request-id", "r"]);
    assert!(again.code == 0 && again.talk.contains("\nexecution e1 works in "), "{}", again.talk);
    let (_, list) = home.json(&["executions", "list"]);
    assert_eq!(list["executions"].as_array().unwrap().len(), 1);

    let taken = run(&["--id", "e1"]);
    assert_eq!(taken.code, 2);
    assert!(taken.talk.contains("e1: completed, plan two, accepted "), "{}", taken.talk);
    let reused = run(&["--id", "e2", "--request-id", "r"]);
    assert_eq!(reused.code, 2);
    assert!(reused.talk.contains("code: REQUEST_ID_REUSED "), "{}", reused.talk);
}

/// S0-03, S0-04, S4-33: a dry run says what the policy decides about each call, in each namespace, and shows the prompt with the values of inputs.
#[test]
fn a_dry_run_says_what_the_policy_decides() {
    let home = Home::new();
    let rule = |id: &str, decide: &str| {
        format!("{{id: {id}, on: intent, paths: [release.md], decide: {decide}, reason: not on a Friday}}")
    };
    let (asks, denies) = (rule("asks", "prompt"), rule("denies", "deny"));
    let text = format!("rules: [{asks}]\nnamespaces: {{strict: {{rules: [{denies}]}}}}\n");
    let policy = home.file("policy.yaml", text);
    let plan = home.file(
        "release.yaml",
        "id: release
inputs: {topic: {schema: {type: string}}, file: {schema: {type: string}}}
steps:
  - {id: note, tool: write_file, arguments: {path: '${inputs.file}', content: \"About ${inputs.topic}.\\nMore.\\n\"}}
  - {id: after, tool: noop, arguments: {output: '${note.result.path}'}}
",
    );
    let dry = |more: &[&str]| {
        let inputs = ["--input", "topic=cats", "--input", "file=release.md", "--policy", &policy];
        home.run([&["run", "--dry-run", &plan][..], &inputs, more].concat())
    };
    let ended = dry(&[]);
    let expected = "
  note  needs approval: not on a Friday (rule asks)
  note  content, 18 characters:
    About cats.
    More.
(dry run) everything is in order; nothing was run
";
    assert!(ended.code == 0 && ended.out.ends_with(expected), "{ended:?}");
    let ended = dry(&["--namespace", "strict"]);
    assert!(ended.out.contains("  note  denied: not on a Friday (in namespace `strict`) (rule denies)"), "{ended:?}");
    assert!(
        ended.code == 0 && ended.out.ends_with("(dry run) the policy denies 1 call; nothing was run\n"),
        "{ended:?}"
    );
    let ended = dry(&["-o", "json"]);
    let value: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&value["dryRun"], &value["success"], &value["output"]),
        (&true.into(), &true.into(), &"(dry run)".into())
    );
    assert_eq!(value["plannedCalls"][0]["arguments"]["content"], "About cats.\nMore.\n");
    assert_eq!(value["plannedCalls"][0]["decision"]["verdict"], "VERDICT_PROMPT");
    assert_eq!(
        (&value["plannedCalls"][1]["hasTemplates"], &value["plannedCalls"][1]["field"]),
        (&true.into(), &"/steps/1".into())
    );
    let list = home.run(["executions", "list"]);
    assert!(list.talk.contains("nothing is kept in "), "{}", list.talk);
}

/// S4-33, S0-04: a dry run calls nothing and leaves nothing.
#[test]
fn a_dry_run_leaves_nothing() {
    let home = Home::new();
    let ended = home.run(["run", "--dry-run", &home.file("two.yaml", TWO)]);
    assert_eq!(ended.code, 0);
    assert!(ended.out.ends_with("(dry run) everything is in order; nothing was run\n"), "{}", ended.out);
    let list = home.run(["executions", "list"]);
    assert!(list.code == 2 && list.talk.contains("nothing is kept in "), "{}", list.talk);
}

/// Against a server, Ctrl-C and SIGTERM end the watching and nothing else.
#[test]
fn a_run_beside_a_server_is_its_client() {
    let home = Home::new();
    let server = home.serve();
    let slow = home.file("slow.yaml", SLOW);
    for (signal, code, id) in [(Signal::INT, 130, "e1"), (Signal::TERM, 143, "e2")] {
        let mut run = home.start(["run", &slow, "--id", id]);
        run.wait_for("calls noop {\"output\":1,");
        run.signal(signal);
        let ended = run.end();
        assert_eq!(ended.code, code);
        let told = format!(
            "\nstopped watching {id}: it continues on the server\nnext: belay executions watch {id} --after 8\n"
        );
        assert!(
            ended.talk.contains(&format!("\nexecution {id} works in ")) && ended.talk.ends_with(&told),
            "{}",
            ended.talk
        );
        assert_eq!(home.run(["executions", "watch", id, "--after", "8"]).code, 0);
        assert_eq!(count(&home.events(id), "executionPaused", ""), 0);
    }
    // The exit code of an execution that a person cancelled: S4-27.
    let long = home.file("long.yaml", "{id: p, steps: [{id: a, tool: noop, arguments: {sleep_ms: 600000}}]}");
    let mut run = home.start(["run", &long, "--id", "e3"]);
    run.wait_for("calls noop");
    assert_eq!(home.run(["executions", "cancel", "e3", "--reason", "enough"]).code, 0);
    let ended = run.end();
    assert_eq!(ended.code, 1);
    assert!(ended.talk.ends_with("code: EXECUTION_CANCELLED (belay explain EXECUTION_CANCELLED)\n"), "{}", ended.talk);
    assert_eq!(home.run(["executions", "cancel", "e3"]).code, 2, "what has ended cannot be cancelled");

    let second = home.run(["serve"]);
    assert_eq!(second.code, 2, "refused, and nothing happened");
    assert!(
        second.talk.contains("code: STORE_LOCKED ") && second.talk.contains("it answers at unix:"),
        "{}",
        second.talk
    );
    server.signal(Signal::TERM);
    assert_eq!(server.end().code, 0, "a server that is told to stop has done what it was asked");
}

/// B-01, S2-FR-057, S2-X-01: a killed server continues its executions when it is started again, and a watcher misses no event.
#[test]
fn a_killed_server_continues_when_it_is_started_again() {
    let home = Home::new();
    let server = home.serve();
    let mut run = home.start(["run", &home.file("slow.yaml", SLOW), "--id", "e1"]);
    run.wait_for("calls noop {\"output\":1,");
    server.kill();
    let _server = home.serve();
    let ended = run.end();
    assert_eq!(ended.code, 0, "{}", ended.talk);
    assert!(ended.talk.contains("connection lost") && ended.talk.contains("connected again"), "{}", ended.talk);
    let told = home.events("e1");
    assert_eq!(count(&told, "toolCallRequested", "a"), 1, "a step that had ended is not repeated");
    assert_eq!(count(&told, "stepCompleted", ""), 2);
    assert_eq!(rendered(&ended.out).iter().filter(|line| line.starts_with("b completed")).count(), 1);
}

/// B-01, S2-FR-057, S2-X-01: an execution whose `run` was killed continues when it is resumed.
#[test]
fn a_killed_run_is_resumed() {
    let home = Home::new();
    let mut run = home.start(["run", &home.file("slow.yaml", SLOW), "--id", "e1"]);
    run.wait_for("calls noop {\"output\":1,");
    run.kill();
    let watch = home.run(["executions", "watch", "e1"]);
    assert_eq!(watch.code, 2, "no process drives it");
    assert!(watch.talk.contains("next: belay executions resume e1\ncode: EXECUTION_NOT_DRIVEN "), "{}", watch.talk);
    let resumed = home.run(["executions", "resume", "e1"]);
    assert_eq!(resumed.code, 0, "{}", resumed.talk);
    let told = home.events("e1");
    assert_eq!(count(&told, "toolCallRequested", "a"), 1, "a step that had ended is not repeated");
    assert_eq!(count(&told, "stepCompleted", ""), 2);
    assert_eq!(home.run(["executions", "resume", "e1"]).code, 2, "what has ended is not resumed");
}

/// S0-11: a stopped run has its own exit code, prints how to resume, and uses up no attempt.
#[test]
fn a_stopped_run_is_paused_and_says_how_to_resume() {
    let home = Home::new();
    let slow = home.file("slow.yaml", SLOW);
    for (signal, code, id) in [(Signal::INT, 130, "e1"), (Signal::TERM, 143, "e2")] {
        let mut run = home.start(["run", &slow, "--id", id]);
        run.wait_for("calls noop {\"output\":1,");
        run.signal(signal);
        let ended = run.end();
        assert_eq!(ended.code, code);
        let told = format!("\nstopped watching {id}: it is paused\nnext: belay executions resume {id}\n");
        assert!(
            ended.talk.contains(&format!("\nexecution {id} works in ")) && ended.talk.ends_with(&told),
            "{}",
            ended.talk
        );
        let (_, paused) = home.json(&["executions", "get", id]);
        assert_eq!(paused["state"], "STATE_PAUSED");
        let (code, resumed) = home.json(&["executions", "resume", id]);
        assert_eq!((code, &resumed["steps"][1]["attempt"]), (0, &json!(1)));
        let told = home.events(id);
        assert_eq!(
            (count(&told, "stepStarted", "b"), count(&told, "toolCallRequested", "b")),
            (1, 2),
            "the same attempt, another call"
        );
        assert_eq!(count(&told, "toolCallRequested", "a"), 1);
    }
}

/// A second Ctrl-C ends the process at once, and the next start finds everything that was recorded.
#[test]
fn a_second_ctrl_c_ends_at_once() {
    let home = Home::new();
    let mut run = home.start(["run", &home.file("slow.yaml", SLOW), "--id", "e1"]);
    run.wait_for("calls noop {\"output\":1,");
    // While another process writes to the store, the pause cannot be recorded, and the first signal's end has to wait.
    let hold = rusqlite::Connection::open(home.state().join("journal.db")).unwrap();
    hold.execute_batch("BEGIN IMMEDIATE").unwrap();
    run.signal(Signal::INT);
    // The kernel keeps no order between two signals that are sent at once.
    run.wait_for_talk("pausing e1: press Ctrl-C again to end at once");
    run.signal(Signal::TERM);
    assert_eq!(run.end().code, 143, "the last signal decides");
    drop(hold);
    let (_, left) = home.json(&["executions", "get", "e1"]);
    assert_eq!(left["state"], "STATE_RUNNING", "nothing was recorded after the first signal");
    let (code, resumed) = home.json(&["executions", "resume", "e1"]);
    assert_eq!((code, &resumed["state"]), (0, &json!("STATE_COMPLETED")));
    assert_eq!(count(&home.events("e1"), "toolCallRequested", "a"), 1);
}

/// A closed pipe is not reported; the execution is kept.
#[test]
fn a_closed_pipe_is_quiet() {
    let home = Home::new();
    // Long enough to have something to say when the reader has gone, however late that is.
    let steps = (0..100).fold(String::new(), |steps, n| {
        steps + &format!("  - {{id: s{n}, tool: noop, arguments: {{sleep_ms: 100}}}}\n")
    });
    let plan = home.file("talk.yaml", format!("id: talk\nsteps:\n{steps}"));
    let mut run = RunningCommand::start_unread(home.belay(["run", &plan, "--id", "e1"]));
    assert!(run.close_output().contains("accepted"));
    let ended = run.end();
    assert_eq!(ended.code, 141);
    let last = ended.talk.lines().last().unwrap();
    assert!(last.starts_with("execution e1 works in "), "{}", ended.talk);
    let (_, kept) = home.json(&["executions", "get", "e1"]);
    assert_eq!(kept["state"], "STATE_PAUSED");
    assert_eq!(home.run(["executions", "cancel", "e1"]).code, 0);

    let mut list = RunningCommand::start_unread(home.belay(["executions", "watch", "e1", "-o", "jsonl"]));
    list.close_output();
    let ended = list.end();
    // What was written before the reader went decides between the execution's own end and the reader's.
    assert!(matches!(ended.code, 0 | 1) && ended.talk.is_empty(), "{}: {}", ended.code, ended.talk);
}

/// Without a terminal no question is asked: approvals fail, and the command does not wait for an input that stays open.
#[test]
fn without_a_terminal_no_question_is_asked() {
    let home = Home::new();
    let mut command = home.belay(["run", &home.file("two.yaml", TWO), "--id", "e1"]);
    command.stdin(std::process::Stdio::piped());
    assert_eq!(RunningCommand::start(command).end().code, 0);
    assert_eq!(home.events("e1")[0]["executionCreated"]["approvalMode"], "APPROVAL_MODE_FAIL");
}

/// A server over TCP asks for the token that the state directory keeps.
#[test]
fn a_server_over_tcp_wants_its_token() {
    use std::os::unix::fs::PermissionsExt as _;

    let home = Home::new();
    let mut server = home.start(["serve", "--listen", "127.0.0.1:0", "-o", "jsonl"]);
    let told: Value = serde_json::from_str(&server.wait_for("listen")).unwrap();
    let url = told["listen"].as_str().unwrap();
    let token = std::fs::read_to_string(home.state().join("token")).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home.state()), mode(&home.state().join("token"))), (0o700, 0o600));

    let elsewhere = Home::new();
    let plan = elsewhere.file("two.yaml", TWO);
    let ask = |token: Option<&str>| {
        let mut command = elsewhere.belay(["run", plan.as_str()]);
        command.env("BELAY_SERVER", url);
        if let Some(token) = token {
            command.env("BELAY_TOKEN", token);
        }
        RunningCommand::start(command).end()
    };
    assert_eq!(ask(Some(token.trim())).code, 0);
    for wrong in [None, Some("guess")] {
        let refused = ask(wrong);
        assert_eq!(refused.code, 2);
        assert!(
            refused.talk.contains(
                "set BELAY_TOKEN, or give --token\nnext: belay explain UNAUTHENTICATED\ncode: UNAUTHENTICATED"
            ),
            "{}",
            refused.talk
        );
    }
    assert!(!elsewhere.state().exists(), "a client of a named server keeps nothing");
    let (_, list) = home.json(&["executions", "list"]);
    assert_eq!(list["executions"].as_array().unwrap().len(), 1);
}
