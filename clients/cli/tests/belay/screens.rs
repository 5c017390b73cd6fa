//! The screen of a terminal while an execution runs, and what is left of it.

use belay_proto::v1::{
    ApprovalMode, Execution, ExecutionEvent, Payload, Plan, Step, StepCompleted, StepFailed, StepSpec, StepStarted,
    ToolStep, ToolStepDetail, execution::State, execution_event::Kind, step, step_spec,
};

use crate::{
    belay, finished,
    server::{Server, World, accepted, event},
    terminal::AtTerminal,
};

fn planned(id: &str, after: &[&str], command: &[&str]) -> StepSpec {
    let arguments = serde_json::json!({ "command": command }).to_string();
    StepSpec {
        id: id.to_owned(),
        depends_on: after.iter().map(|id| (*id).to_owned()).collect(),
        kind: Some(step_spec::Kind::Tool(ToolStep {
            tool: "run_terminal".to_owned(),
            arguments: Some(Payload::of_json(arguments)),
            ..Default::default()
        })),
        ..Default::default()
    }
}

/// Three steps, of which nothing has happened.
fn tidy() -> Execution {
    let steps = vec![
        planned("history", &[], &["git", "log", "--oneline", "-3"]),
        planned(
            "build",
            &[],
            &["cargo", "build", "--release", "--workspace", "--all-targets", "--locked", "--offline"],
        ),
        planned("difference", &["build"], &["git", "diff"]),
    ];
    let status = |step: &StepSpec| Step {
        step_id: step.id.clone(),
        detail: Some(step::Detail::Tool(ToolStepDetail { tool: "run_terminal".to_owned() })),
        state: step::State::Pending.into(),
        max_attempts: 1,
        ..Default::default()
    };
    Execution {
        plan_id: "tidy".to_owned(),
        steps: steps.iter().map(status).collect(),
        plan: Some(Plan { id: "tidy".to_owned(), steps, ..Default::default() }),
        approval_mode: ApprovalMode::Fail.into(),
        ..accepted("e1")
    }
}

fn of_step(sequence: i64, id: &str, kind: Kind) -> ExecutionEvent {
    ExecutionEvent { step_id: id.to_owned(), attempt: 1, ..event(sequence, kind) }
}

/// The terminal's window, as it would look.
struct Window(avt::Terminal);

impl Window {
    fn shows(&mut self, written: &str) -> Vec<String> {
        self.0.feed(written);
        let mut rows: Vec<String> = self.0.screen().all_lines().map(|line| line.text().trim_end().to_owned()).collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }
}

#[test]
fn the_rows_of_a_run_fit_the_window_and_survive_its_change() {
    let server = Server::start(World { executions: vec![(tidy(), Vec::new())], ..Default::default() });
    let mut command = belay(&server, &["executions", "watch", "e1"]);
    let mut person = AtTerminal::start({
        command.env("TERM", "xterm");
        command
    });
    let mut window = Window(avt::Terminal::with_scrollback(80, 24, None).unwrap());

    // A frame ends with the cursor's way back to its first row.
    let drawn = |person: &mut AtTerminal, words: &str, rows: usize| {
        person.wait_for(words) + &person.wait_for(&format!("\x1b[{}A", rows - 1))
    };
    server.wait_for_watch();
    server.happen(of_step(1, "history", Kind::StepStarted(StepStarted::default())));
    let frame = drawn(&mut person, "● history", 4);
    let first = [
        "tidy  0 of 3 steps · 1 running                                               0s",
        "● history     git log --oneline -3                                           0s",
        "· build       cargo build --release --workspace --all-targets --locked --offli…",
        "· difference  after build",
    ];
    assert_eq!(window.shows(&frame), first);

    server.happen(of_step(2, "history", Kind::StepCompleted(StepCompleted::default())));
    server.happen(of_step(3, "build", Kind::StepStarted(StepStarted::default())));
    let frame = drawn(&mut person, "● build", 3);
    let second = [
        "✓ history     git log --oneline -3",
        "tidy  1 of 3 steps · 1 running                                               0s",
        "● build       cargo build --release --workspace --all-targets --locked --o…  0s",
        "· difference  after build",
    ];
    assert_eq!(window.shows(&frame), second);

    // The terminal wraps rows that no longer fit; nothing of them stays.
    person.resize(40, 24);
    window.0.resize(40, 24);
    let frame = drawn(&mut person, "--releas…", 3);
    let narrow = [
        "✓ history     git log --oneline -3",
        "tidy  1 of 3 steps · 1 running       0s",
        "● build       cargo build --releas…  0s",
        "· difference  after build",
    ];
    assert_eq!(window.shows(&frame), narrow);
    person.resize(120, 24);
    window.0.resize(120, 24);
    let frame = drawn(&mut person, "--offline ", 3);
    let wide = window.shows(&frame);
    assert_eq!(wide.len(), 4, "{wide:?}");
    assert_eq!(
        wide[2],
        "● build       cargo build --release --workspace --all-targets --locked --offline                                     0s"
    );

    server.happen(of_step(4, "build", Kind::StepFailed(StepFailed::default())));
    server.happen(event(5, finished(State::Failed, None)));
    let (code, rest) = person.end();
    assert_eq!(code, Some(30), "{rest}");
    let left = window.shows(&rest.replace('\n', "\r\n"));
    assert_eq!(left[0], "✓ history     git log --oneline -3");
    assert!(left[1].starts_with("✗ build") && left[2].starts_with("✗ tidy failed"), "{left:?}");
    assert!(!left.iter().any(|row| row.contains("of 3 steps") || row.contains('●')), "{left:?}");
}
