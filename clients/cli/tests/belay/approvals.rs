//! Deciding: by commands and scripts, and at a terminal while an execution runs.

use std::process::{Command, Stdio};

use belay_proto::v1::{
    Approval, ApprovalDecided, ApprovalMode, ApprovalRequested, Decision, EffectSummary, ErrorClass, Execution,
    ExecutionAwaitingApproval, ExecutionEvent, FileDiff, PathChange, PolicyDecision, Preview, Step, StepStarted,
    ToolCallEffectProposed, ToolStepDetail, approval::State, approval_need, execution, execution_event::Kind,
    path_change, step,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    belay, finished, plan,
    server::{Server, World, accepted, event},
    terminal::AtTerminal,
    text,
};

const NAME: &str = "namespaces/default/approvals/x7k2";

fn approval(id: &str) -> Approval {
    let change =
        PathChange { path: "notes.txt".to_owned(), kind: path_change::Kind::Deleted.into(), ..Default::default() };
    let diff = FileDiff {
        change: Some(change),
        unified: "@@ -1 +0,0 @@\n-hello\n".to_owned(),
        removed: 1,
        ..Default::default()
    };
    Approval {
        name: format!("namespaces/default/approvals/{id}"),
        state: State::Pending.into(),
        kind: approval_need::Kind::Effect.into(),
        execution: "namespaces/default/executions/e1".to_owned(),
        step_id: "tidy".to_owned(),
        operation: "delete_file notes.txt".to_owned(),
        subject: br#"{"tool":"delete_file"}"#.to_vec(),
        subject_digest: format!("sha256:{id}"),
        preview: Some(Preview {
            headline: "delete_file notes.txt".to_owned(),
            files: vec![diff],
            ..Default::default()
        }),
        decision: Some(PolicyDecision {
            rule: "file_delete".to_owned(),
            reason: "Deleting asks first.".to_owned(),
            ..Default::default()
        }),
        effect: Some(EffectSummary { deleted: 1, ..Default::default() }),
        ..Default::default()
    }
}

fn of_step(sequence: i64, kind: Kind) -> ExecutionEvent {
    ExecutionEvent { step_id: "tidy".to_owned(), ..event(sequence, kind) }
}

/// An execution with one step, before anything has happened.
fn accepted_with_step(step: Step) -> Execution {
    let detail = Some(step::Detail::Tool(ToolStepDetail { tool: "delete_file".to_owned() }));
    let step = Step { step_id: "tidy".to_owned(), detail, ..step };
    Execution { steps: vec![step], approval_mode: ApprovalMode::Wait.into(), ..accepted("e1") }
}

/// How the step comes to wait for a decision.
fn held() -> Vec<ExecutionEvent> {
    let requested = ApprovalRequested { approval: NAME.to_owned(), ..Default::default() };
    vec![
        of_step(1, Kind::StepStarted(StepStarted::default())),
        of_step(2, Kind::ToolCallEffectProposed(ToolCallEffectProposed::default())),
        of_step(3, Kind::ApprovalRequested(requested)),
        event(4, Kind::ExecutionAwaitingApproval(ExecutionAwaitingApproval {})),
    ]
}

/// A start leads to an execution that waits for a decision already.
fn waiting() -> World {
    let state = step::State::AwaitingApproval.into();
    let execution = accepted_with_step(Step { state, approvals: vec![NAME.to_owned()], ..Default::default() });
    World { story: Some((execution, held())), approvals: vec![approval("x7k2")], ..Default::default() }
}

/// A run at a terminal, whose step comes to wait for a decision while it is watched.
fn run_into_question(server: &Server) -> AtTerminal {
    server.world().story = Some((accepted_with_step(Step::default()), Vec::new()));
    let mut person = at_terminal(server, &["run", &plan(server)]);
    person.wait_for("execution e1");
    server.wait_for_watch();
    held().into_iter().for_each(|event| server.happen(event));
    let shown = person.wait_for("[Q]uit >");
    assert!(shown.contains("waiting for approval; next: belay approvals show x7k2"), "{shown}");
    person
}

fn decided(sequence: i64, decision: Decision) -> ExecutionEvent {
    let decided = ApprovalDecided { approval: NAME.to_owned(), decision: decision.into(), ..Default::default() };
    of_step(sequence, Kind::ApprovalDecided(decided))
}

fn decisions(server: &Server) -> Vec<(Decision, String, String)> {
    let world = server.world();
    let as_tuple = |decision: &belay_proto::v1::DecideApprovalRequest| {
        (decision.decision(), decision.subject_digest.clone(), decision.reason.clone())
    };
    world.decisions.iter().map(as_tuple).collect()
}

// B-03, S2-X-17: what is approved is what was shown, and its digest goes with the decision.
#[test]
fn a_script_approves_what_it_was_shown() {
    let server = Server::start(World { approvals: vec![approval("x7k2")], ..Default::default() });
    let refused = belay(&server, &["approve", "x7"]).output().unwrap();
    assert_eq!((refused.status.code(), text(&refused.stdout)), (Some(2), ""));
    assert!(
        text(&refused.stderr)
            .contains("--yes approves without asking\nnext: belay approvals show x7\ncode: NO_TERMINAL")
    );
    assert!(decisions(&server).is_empty());

    let approved = belay(&server, &["approve", "x7", "--yes"]).output().unwrap();
    assert_eq!(approved.status.code(), Some(0), "{}", text(&approved.stderr));
    let shown = text(&approved.stdout);
    assert!(shown.contains("deletes  notes.txt  -1\n    1 - hello\n"), "{shown}");
    assert!(shown.ends_with("approved delete_file notes.txt (step tidy of e1)\nnext: belay executions watch e1\n"));
    assert_eq!(decisions(&server), [(Decision::Approve, "sha256:x7k2".to_owned(), String::new())]);

    let again = belay(&server, &["deny", "x7", "--reason", "no"]).output().unwrap();
    assert_eq!(again.status.code(), Some(2));
    assert!(
        text(&again.stderr)
            .contains("approval x7k2 was already approved; nothing has changed\nnext: belay approvals show x7k2\n")
    );
    assert_eq!(decisions(&server).len(), 1);
}

#[test]
fn denying_and_skipping_give_their_reason() {
    let server = Server::start(World { approvals: vec![approval("a1"), approval("b2")], ..Default::default() });
    let deny = belay(&server, &["deny", "a", "--reason", "wrong file", "-o", "json"]).output().unwrap();
    let value: Value = serde_json::from_slice(&deny.stdout).unwrap();
    assert_eq!((deny.status.code(), &value["state"]), (Some(0), &"STATE_DENIED".into()));
    assert_eq!(value["subject"]["tool"], "delete_file", "the subject is JSON, not base64");
    let skip = belay(&server, &["approvals", "skip", "@last"]).output().unwrap();
    assert_eq!(skip.status.code(), Some(0), "{}", text(&skip.stderr));
    assert_eq!(
        decisions(&server),
        [
            (Decision::Deny, "sha256:a1".to_owned(), "wrong file".to_owned()),
            (Decision::Skip, "sha256:b2".to_owned(), String::new()),
        ]
    );
    let silent = belay(&server, &["deny", "a", "--reason", " "]).output().unwrap();
    assert_eq!(silent.status.code(), Some(2));
}

#[test]
fn approvals_are_listed_and_found_by_the_beginning_of_their_id() {
    let mut old = approval("x9");
    old.set_state(State::Denied);
    let server = Server::start(World { approvals: vec![approval("x7k2"), old], ..Default::default() });
    let said = |arguments: &[&str]| {
        let output = belay(&server, arguments).output().unwrap();
        (output.status.code().unwrap(), text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    let (code, out, _) = said(&["approvals", "list", "--state", "pending"]);
    assert_eq!(code, 0);
    assert!(out.lines().nth(1).unwrap().starts_with("  x7k2  pending"), "{out}");
    assert_eq!(out.lines().count(), 2);
    assert_eq!(said(&["approvals", "list", "--state", "stale"]).2, "no approval in namespace default is stale\n");
    assert_eq!(said(&["approvals", "show", "@last"]).1.lines().next(), Some("x7k2  pending"));
    let (code, _, talk) = said(&["approvals", "show", "x"]);
    assert!(code == 2 && talk.contains("more than one approval begins with `x`\n  x7k2\n  x9\n"), "{talk}");
    let (code, _, talk) = said(&["approvals", "show", "zz"]);
    assert!(code == 2 && talk.contains("code: APPROVAL_NOT_FOUND"), "{talk}");
}

// B-18: one file's whole difference, all of them, and all of it as JSON.
#[test]
fn everything_can_be_looked_at() {
    let mut asked = approval("x7k2");
    let files = &mut asked.preview.as_mut().unwrap().files;
    files[0].unified = format!("@@ -1,300 +0,0 @@\n{}", (0..300).map(|n| format!("-line {n}\n")).collect::<String>());
    let kind = path_change::Kind::Modified.into();
    let change = PathChange { path: "other.txt".to_owned(), kind, index: 1, ..Default::default() };
    files.push(FileDiff { change: Some(change), unified: "@@ -1 +1 @@\n-a\n+b\n".to_owned(), ..Default::default() });
    let server = Server::start(World { approvals: vec![asked], ..Default::default() });
    let said = |arguments: &[&str]| {
        let output = belay(&server, arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout).to_owned()
    };
    let one = said(&["approvals", "show", "x7k2", "--path", "notes.txt"]);
    assert!(
        one.starts_with("deletes  notes.txt")
            && one.contains("      1 - line 0\n")
            && one.ends_with("    300 - line 299\n"),
        "{one}"
    );
    assert!(!one.contains("other.txt"));
    let all = said(&["approvals", "show", "x7k2", "--all"]);
    assert!(all.contains("- line 299\n") && all.contains("changes  other.txt") && all.contains("    1 + b\n"), "{all}");
    let json: serde_json::Value = serde_json::from_str(&said(&["approvals", "show", "x7k2", "-o", "json"])).unwrap();
    let files = json["preview"]["files"].as_array().unwrap();
    assert_eq!((files.len(), files[0]["unified"].as_str().unwrap().lines().count()), (2, 301));
    let output = belay(&server, &["approvals", "show", "x7k2", "--path", "nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

fn at_terminal(server: &Server, arguments: &[&str]) -> AtTerminal {
    AtTerminal::start(belay(server, arguments))
}

// S2-X-17: approve, deny, view full, skip step. B-03: nothing but the word for it approves.
#[test]
fn a_person_is_shown_the_change_and_asked() {
    let server = Server::start(World { approvals: vec![approval("x7k2")], ..Default::default() });
    let mut person = at_terminal(&server, &["approve", "x7k2"]);
    let shown = person.wait_for("[Q]uit >");
    assert!(shown.contains("Deleting asks first. (rule file_delete)") && shown.contains("1 - hello"), "{shown}");
    for line in ["", "yes", "approve it"] {
        person.types(line);
        person.wait_for("no decision yet");
    }
    person.types("v");
    person.wait_for("1 - hello");
    assert!(decisions(&server).is_empty());
    person.wait_for("[Q]uit >");
    person.types("a");
    let (code, rest) = person.end();
    assert_eq!(code, Some(0));
    assert!(
        rest.ends_with("approved delete_file notes.txt (step tidy of e1)\nnext: belay executions watch e1\n"),
        "{rest}"
    );
    assert_eq!(decisions(&server), [(Decision::Approve, "sha256:x7k2".to_owned(), String::new())]);
}

#[test]
fn a_person_may_leave_without_a_decision() {
    let server = Server::start(World { approvals: vec![approval("x7k2")], ..Default::default() });
    let mut person = at_terminal(&server, &["approve", "x7k2"]);
    person.wait_for("[Q]uit >");
    person.types("q");
    let (code, rest) = person.end();
    assert!(code == Some(2) && rest.ends_with("nothing was decided\n"), "{rest}");
    assert!(decisions(&server).is_empty());
}

// S2-FR-052, S2-X-19: a run stops at a question, and a denial ends it with 33.
#[test]
fn a_run_asks_the_person_at_its_terminal() {
    let server = Server::start(waiting());
    let mut person = run_into_question(&server);
    assert_eq!(server.world().starts[0].approval_mode(), ApprovalMode::Wait);
    person.types("d");
    person.wait_for("Reason (sent to the planner");
    person.types("keep it");
    person.wait_for("denied delete_file notes.txt");
    assert_eq!(decisions(&server), [(Decision::Deny, "sha256:x7k2".to_owned(), "keep it".to_owned())]);
    server.happen(decided(5, Decision::Deny));
    server.happen(event(6, finished(execution::State::Failed, Some(ErrorClass::ApprovalDenied))));
    let (code, rest) = person.end();
    assert_eq!(code, Some(33), "{rest}");
}

#[test]
fn a_question_is_withdrawn_when_another_person_decides() {
    let server = Server::start(waiting());
    let mut person = run_into_question(&server);
    server.happen(decided(5, Decision::Approve));
    person.wait_for("x7k2 was already decided");
    server.happen(event(6, finished(execution::State::Completed, None)));
    assert_eq!(person.end().0, Some(0));
    assert!(decisions(&server).is_empty());
}

// S0-11: an interruption ends the command at once; the approval stays pending.
#[test]
fn ctrl_c_at_a_question_leaves_everything_as_it_is() {
    let server = Server::start(waiting());
    let mut person = at_terminal(&server, &["run", &plan(&server)]);
    person.wait_for("[Q]uit >");
    kill_process(Pid::from_child(person.child()), Signal::INT).unwrap();
    let (code, rest) = person.end();
    assert_eq!(code, Some(130));
    // The question may be there before the events that led to it.
    let (said, seen) = rest.trim_end().rsplit_once(" --after ").expect("it says where to continue");
    assert!((1..=4).contains(&seen.parse().unwrap()), "{rest}");
    assert!(
        said.ends_with(
            "waiting for approval: belay approvals show x7k2\nstopped watching e1: it continues on the server\n\
             next: belay executions watch e1"
        ),
        "{rest}"
    );
    assert!(decisions(&server).is_empty());
}

#[test]
fn who_only_watches_is_told_what_to_type() {
    let server = Server::start(World { executions: waiting().story.into_iter().collect(), ..waiting() });
    let mut person = at_terminal(&server, &["executions", "watch", "e1"]);
    person.wait_for("waiting for approval; next: belay approvals show x7k2");
    server.happen(decided(5, Decision::Approve));
    server.happen(event(6, finished(execution::State::Completed, None)));
    let (code, rest) = person.end();
    assert!(code == Some(0) && !rest.contains("[A]pprove"), "{rest}");
}

// S2-X-18: without a terminal the step fails instead of waiting, unless the caller says otherwise.
#[test]
fn without_a_terminal_no_question_is_asked() {
    for (flags, mode) in [
        (&[][..], ApprovalMode::Fail),
        (&["--approve", "auto"], ApprovalMode::Auto),
        (&["--approve", "prompt"], ApprovalMode::Wait),
    ] {
        let story = (accepted("e1"), vec![event(1, finished(execution::State::Completed, None))]);
        let server = Server::start(World { story: Some(story), ..Default::default() });
        let mut command: Command = belay(&server, &["run", &plan(&server)]);
        let output = command.args(flags).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert_eq!(server.world().starts[0].approval_mode(), mode);
    }
}
