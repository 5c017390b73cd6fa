//! Asks the person at the terminal about an approval, and sends the decision to the gate.

pub(crate) mod changes;
mod confirm;
mod form;
mod prompt;
mod queue;
mod terminal;

use belay_proto::v1::{
    AnswerFormRequest, Approval, ApprovalView, DecideApprovalRequest, Decision, GetApprovalRequest, Payload,
    approval::State, approval_need,
};
use belay_reasons as reasons;
use serde_json::Value;

pub(crate) use confirm::confirm;
use form::FormPrompt;
use prompt::{Prompt, Reply};
pub(crate) use queue::{Question, Queue};
pub(crate) use terminal::{Terminal, is_attended};
use tonic_types::StatusExt as _;

use crate::{
    connect::Gate,
    failure::{Failure, Report},
    names,
    render::{
        approval::{self, Turn},
        diff::{self, Extent},
        form::Shape,
        text::{Line, Style, visible},
        words,
    },
    screen::Screen,
};

/// The window width where there is no terminal.
const COLUMNS: usize = 80;

/// The meaning of each letter.
const HELP: [&str; 5] = [
    "a  approve: what was shown is written to the workspace, and nothing else",
    "d  deny: nothing is written, the step fails, and your reason is sent to the planner",
    "s  skip: nothing is written, and the step is left out",
    "v  view all: every change with its whole difference",
    "q  quit without a decision: the execution waits, and you come back with `belay approve`",
];

/// The meaning of each letter for a form.
const FORM_HELP: [&str; 4] = [
    "a  answer: you are asked for the fields, and send them after a look at the whole; the step continues with them",
    "d  deny: the step fails, and your reason is sent to the planner",
    "s  skip: the step is left out",
    "q  quit without an answer: the execution waits, and you come back with `belay approvals answer`",
];

/// The outcome of a question.
#[derive(Debug)]
pub(crate) enum AskOutcome {
    /// It is decided, by this person or earlier.
    Decided(Box<Approval>),
    /// The person decided nothing.
    Left,
}

/// Shows an approval and asks until it is decided or the person leaves. `turn` is its place in the queue. Dropping the future withdraws the
/// question.
pub(crate) async fn ask(
    screen: Screen,
    gate: &mut Gate,
    terminal: &mut Terminal,
    asked: Approval,
    turn: Turn,
) -> Result<AskOutcome, Failure> {
    if asked.state() != State::Pending {
        return Ok(AskOutcome::Decided(Box::new(asked)));
    }
    let say = |lines: &[Line]| lines.iter().for_each(|line| screen.say(line));
    let columns = screen.talk_columns().unwrap_or(COLUMNS);
    screen.say(&Line::default());
    say(&approval::question(&asked, turn, columns));
    say(diff::hidden(&asked).as_slice());
    terminal.forget_typed();
    if asked.kind() == approval_need::Kind::Form {
        return ask_form(screen, gate, terminal, &asked).await;
    }
    let mut prompt = Prompt::default();
    loop {
        screen.ask(&Line::default().and(Style::Strong, prompt.question(screen.talk_columns().unwrap_or(COLUMNS))));
        match prompt.take(terminal.line().await.as_deref()) {
            Reply::Again("") => {}
            Reply::Again(hint) => screen.say(&Line::default().and(Style::Warn, hint)),
            Reply::Help => HELP.iter().for_each(|line| screen.say(&Line::new(line))),
            Reply::ShowAll => {
                let mut whole = asked.clone();
                changes::complete(gate, &mut whole, false).await?;
                say(&approval::full(&whole, Extent::Full));
                say(diff::hidden(&whole).as_slice());
            }
            Reply::Leave => {
                screen.say(&Line::default());
                return Ok(AskOutcome::Left);
            }
            Reply::Decided(decision, reason) => {
                return decide(gate, &asked, decision, reason)
                    .await
                    .map(|decided| AskOutcome::Decided(Box::new(decided)));
            }
        }
    }
}

/// Asks for the answer to a form that was shown.
async fn ask_form(
    screen: Screen,
    gate: &mut Gate,
    terminal: &mut Terminal,
    asked: &Approval,
) -> Result<AskOutcome, Failure> {
    let schema = asked.form.as_ref().map(|form| form.schema.as_str()).unwrap_or_default();
    let mut prompt = FormPrompt::new(Shape::of(schema));
    loop {
        screen.ask(&Line::default().and(Style::Strong, prompt.question()));
        match prompt.take(terminal.line().await.as_deref()) {
            form::Reply::Again(hint) if hint.is_empty() => {}
            form::Reply::Again(hint) => screen.say(&Line::default().and(Style::Warn, hint)),
            form::Reply::Help => FORM_HELP.iter().for_each(|line| screen.say(&Line::new(line))),
            form::Reply::Leave => {
                screen.say(&Line::default());
                return Ok(AskOutcome::Left);
            }
            form::Reply::Decided(decision, reason) => {
                return decide(gate, asked, decision, reason)
                    .await
                    .map(|decided| AskOutcome::Decided(Box::new(decided)));
            }
            form::Reply::Answered(value) => match answer(gate, asked, &value, String::new()).await {
                Ok(answered) => return Ok(AskOutcome::Decided(Box::new(answered))),
                Err(report) if report.code == reasons::ANSWER_INVALID => {
                    let lines = std::iter::once(&report.message).chain(&report.details);
                    lines.for_each(|line| screen.say(&Line::default().and(Style::Bad, visible(line))));
                    prompt.begin_again();
                }
                Err(report) => return Err(report.into()),
            },
        }
    }
}

/// Sends the answer to a form that was shown.
pub(crate) async fn answer(
    gate: &mut Gate,
    shown: &Approval,
    value: &Value,
    request_id: String,
) -> Result<Approval, Report> {
    let request = AnswerFormRequest {
        name: shown.name.clone(),
        subject_digest: shown.subject_digest.clone(),
        answer: Some(Payload::of_json(value.to_string())),
        request_id,
    };
    match gate.answer_form(request).await {
        Ok(answered) => Ok(answered.into_inner()),
        Err(status) => Err(of_refusal(&status, shown)),
    }
}

/// Gets an approval with everything that is to be shown.
pub(crate) async fn get(gate: &mut Gate, name: &str) -> Result<Approval, Failure> {
    let request = GetApprovalRequest { name: name.to_owned(), view: ApprovalView::Full.into() };
    Ok(gate.get_approval(request).await?.into_inner())
}

/// Sends the decision about what was shown to the gate.
pub(crate) async fn decide(
    gate: &mut Gate,
    shown: &Approval,
    decision: Decision,
    reason: String,
) -> Result<Approval, Failure> {
    let request = DecideApprovalRequest {
        name: shown.name.clone(),
        subject_digest: shown.subject_digest.clone(),
        decision: decision.into(),
        reason,
        ..Default::default()
    };
    match gate.decide_approval(request).await {
        Ok(decided) => Ok(decided.into_inner()),
        Err(status) => Err(of_refusal(&status, shown).into()),
    }
}

fn of_refusal(status: &tonic::Status, shown: &Approval) -> Report {
    let mut report = Report::of_status(status);
    // A refusal may name a better command, such as the one that adds a missing role.
    let details = status.get_error_details();
    if !details.error_info().is_some_and(|info| info.metadata.contains_key("next_command")) {
        report.next = Some(words::show_approval(&shown.name));
    }
    report
}

/// `approved delete_file notes.txt (step tidy of e1)`.
pub(crate) fn decision_line(decided: &Approval) -> Line {
    let what =
        format!(" {} (step {} of {})", visible(&decided.operation), decided.step_id, names::id(&decided.execution));
    let state = decided.state();
    Line::default().and(words::approval_style(state), words::approval_state(state)).and(Style::Plain, what)
}
