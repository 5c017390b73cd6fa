//! Answering forms: by a script, and at a terminal.

use std::process::Stdio;

use belay_proto::v1::{
    AnswerFormRequest, Approval, ApprovalMode, ApprovalRequested, Execution, ExecutionEvent, Form, Step, StepStarted,
    WaitEnded, WaitStarted, WaitStepDetail, approval::State, approval_need, execution, execution_event::Kind, step,
    wait_ended,
};

use crate::{
    belay, finished, plan,
    server::{Server, World, accepted, event},
    terminal::AtTerminal,
    text,
};

const NAME: &str = "namespaces/default/approvals/f7k2";

fn form() -> Form {
    let schema = r#"{"type":"object","required":["version"],"properties":{
        "count":{"type":"integer","default":3},"version":{"type":"string","title":"The version"}}}"#;
    Form { title: "Which version?".into(), description: "It is released at once.".into(), schema: schema.into() }
}

fn asked() -> Approval {
    Approval {
        name: NAME.to_owned(),
        state: State::Pending.into(),
        kind: approval_need::Kind::Form.into(),
        execution: "namespaces/default/executions/e1".to_owned(),
        step_id: "ask".to_owned(),
        operation: "Which version?".to_owned(),
        subject_digest: "sha256:f7".to_owned(),
        form: Some(form()),
        ..Default::default()
    }
}

fn world() -> World {
    World { approvals: vec![asked()], ..Default::default() }
}

fn answers(server: &Server) -> Vec<(String, String)> {
    let as_tuple = |request: &AnswerFormRequest| {
        let answer = request.answer.as_ref().and_then(|answer| answer.as_json()).unwrap_or_default();
        (request.subject_digest.clone(), answer.to_owned())
    };
    server.world().answers.iter().map(as_tuple).collect()
}

fn sent(answer: &str) -> (String, String) {
    ("sha256:f7".to_owned(), answer.to_owned())
}

#[test]
fn a_script_answers_a_form() {
    let server = Server::start(world());
    let listed = belay(&server, &["approvals", "list"]).output().unwrap();
    assert!(text(&listed.stdout).contains("Which version?  an answer"), "{}", text(&listed.stdout));
    let shown = text(&belay(&server, &["approvals", "show", "f7k2"]).output().unwrap().stdout).to_owned();
    assert!(shown.contains("  - version (text): The version"), "{shown}");
    assert!(shown.contains("next: belay approvals answer f7k2 --value '…'"), "{shown}");

    let answer = |value: &str| belay(&server, &["approvals", "answer", "f7k2", "--value", value]).output().unwrap();
    let bad = answer("{");
    assert_eq!(bad.status.code(), Some(2));
    assert!(text(&bad.stderr).contains("--value is not accepted: is not JSON"), "{}", text(&bad.stderr));
    server.world().refused_answers.push("\"x\" does not match".to_owned());
    let refused = answer(r#"{"version":"x"}"#);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("/version: \"x\" does not match"), "{}", text(&refused.stderr));
    let output = answer(r#"{"version": "1.2"}"#);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "answered Which version? (step ask of e1)\nnext: belay executions watch e1\n");
    assert_eq!(answers(&server).last(), Some(&sent(r#"{"version":"1.2"}"#)));
}

// A secret is not to be seen in the list of processes.
#[test]
fn an_answer_comes_from_standard_input() {
    let server = Server::start(world());
    let mut child = belay(&server, &["approvals", "answer", "f7k2", "--value", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"{\"version\": \"s3cret\"}\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    assert_eq!(answers(&server), [sent(r#"{"version":"s3cret"}"#)]);
}

#[test]
fn without_a_terminal_the_value_is_required() {
    let server = Server::start(world());
    let output = belay(&server, &["approvals", "answer", "f7k2"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--value gives the answer"), "{}", text(&output.stderr));
    assert!(answers(&server).is_empty());
}

#[test]
fn a_person_fills_in_the_fields() {
    let server = Server::start(World { refused_answers: vec!["it has a dot".to_owned()], ..world() });
    let mut person = AtTerminal::start(belay(&server, &["approvals", "answer", "f7k2"]));
    let shown = person.wait_for("[Q]uit >");
    assert!(shown.contains("? ask asks you") && shown.contains("It is released at once."), "{shown}");
    person.types("");
    person.wait_for("no answer yet");
    person.types("a");
    person.wait_for("count [3]:");
    person.types("many");
    person.wait_for("`many` is not a whole number");
    person.types("");
    person.wait_for("version:");
    person.types("");
    person.wait_for("version is required");
    person.types("1.2");
    person.wait_for(r#"{"count":3,"version":"1.2"}"#);
    person.types("y");
    person.wait_for("/version: it has a dot");
    person.wait_for("[Q]uit >");
    person.types("a");
    person.wait_for("count [3]:");
    person.types("4");
    person.wait_for("version [1.2]:");
    person.types("12");
    person.wait_for("[Y]es");
    person.types("y");
    let (code, rest) = person.end();
    assert_eq!(code, Some(0), "{rest}");
    assert!(rest.ends_with("answered Which version? (step ask of e1)\nnext: belay executions watch e1\n"), "{rest}");
    assert_eq!(answers(&server), [sent(r#"{"count":3,"version":"1.2"}"#), sent(r#"{"count":4,"version":"12"}"#)]);
}

fn of_step(sequence: i64, kind: Kind) -> ExecutionEvent {
    ExecutionEvent { step_id: "ask".to_owned(), ..event(sequence, kind) }
}

// A run asks the form at its terminal, and continues with the answer.
#[test]
fn a_run_asks_the_person_at_its_terminal() {
    let server = Server::start(world());
    let detail = Some(step::Detail::Wait(WaitStepDetail::default()));
    let step = Step { step_id: "ask".to_owned(), detail, ..Default::default() };
    let execution = Execution { steps: vec![step], approval_mode: ApprovalMode::Wait.into(), ..accepted("e1") };
    server.world().story = Some((execution, Vec::new()));
    let mut person = AtTerminal::start(belay(&server, &["run", &plan(&server)]));
    person.wait_for("execution e1");
    server.wait_for_watch();
    server.happen(of_step(1, Kind::StepStarted(StepStarted::default())));
    server.happen(of_step(2, Kind::WaitStarted(WaitStarted { form: Some(form()), ..Default::default() })));
    let requested = ApprovalRequested { approval: NAME.to_owned(), ..Default::default() };
    server.happen(of_step(3, Kind::ApprovalRequested(requested)));
    let shown = person.wait_for("[Q]uit >");
    assert!(shown.contains("asks Which version?"), "{shown}");
    person.types("a");
    person.wait_for("count [3]:");
    person.types("");
    person.wait_for("version:");
    person.types("2");
    person.wait_for("[Y]es");
    person.types("yes");
    person.wait_for("answered Which version?");
    let ended = WaitEnded { cause: wait_ended::Cause::Answered.into(), ..Default::default() };
    server.happen(of_step(4, Kind::WaitEnded(ended)));
    server.happen(event(5, finished(execution::State::Completed, None)));
    let (code, rest) = person.end();
    assert_eq!(code, Some(0), "{rest}");
    assert_eq!(answers(&server), [sent(r#"{"count":3,"version":"2"}"#)]);
}
