//! The screen while an execution runs.

use std::time::Duration;

use belay_proto::v1::{
    Actor, ApprovalDecided, ApprovalRequested, ErrorClass, Execution, ExecutionAwaitingApproval, ExecutionEvent,
    ExecutionFinished, ExecutionPaused, Failure, Form, Payload, Plan, SkipReason, Step, StepCompleted, StepFailed,
    StepRetryScheduled, StepSkipped, StepSpec, StepStarted, ToolCallEffectProposed, ToolCallRequested, ToolStep,
    ToolStepDetail, WaitEnded, WaitStarted, WaitingReason, execution, execution_event::Kind, step, step::State,
    step_spec, waiting_reason,
};
use pbjson_types::Timestamp;

use super::{
    TrackedExecution, machine_time,
    rows::{NEXT_SHOWN, STEPS_SHOWN},
};

const APPROVAL: &str = "namespaces/default/approvals/x7";

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

/// A tracked execution whose steps are these: id, tool, arguments, what it waits for.
fn tracked_of(steps: &[(&str, &str, &str, &[&str])]) -> TrackedExecution {
    let planned = steps.iter().map(|(id, tool, arguments, after)| StepSpec {
        id: (*id).to_owned(),
        depends_on: after.iter().map(|id| (*id).to_owned()).collect(),
        kind: Some(step_spec::Kind::Tool(ToolStep {
            tool: (*tool).to_owned(),
            arguments: Some(Payload::of_json(*arguments)),
            ..Default::default()
        })),
        ..Default::default()
    });
    let status = steps.iter().map(|(id, tool, ..)| Step {
        step_id: (*id).to_owned(),
        detail: Some(step::Detail::Tool(ToolStepDetail { tool: (*tool).to_owned() })),
        state: State::Pending.into(),
        max_attempts: 3,
        ..Default::default()
    });
    TrackedExecution::new(Execution {
        name: "namespaces/default/executions/e1".to_owned(),
        plan_id: "tidy".to_owned(),
        plan: Some(Plan { id: "tidy".to_owned(), steps: planned.collect(), ..Default::default() }),
        steps: status.collect(),
        create_time: at(100),
        last_sequence: 1,
        ..Default::default()
    })
}

fn tracked() -> TrackedExecution {
    tracked_of(&[("a", "read_file", "{}", &[]), ("b", "read_file", "{}", &[])])
}

fn event(sequence: i64, step: &str, kind: Kind) -> ExecutionEvent {
    ExecutionEvent {
        sequence,
        step_id: step.to_owned(),
        attempt: 1,
        record_time: at(100 + sequence),
        kind: Some(kind),
        ..Default::default()
    }
}

fn started() -> Kind {
    Kind::StepStarted(StepStarted::default())
}

fn completed() -> Kind {
    Kind::StepCompleted(StepCompleted::default())
}

fn requested() -> Kind {
    Kind::ApprovalRequested(ApprovalRequested { approval: APPROVAL.to_owned(), ..Default::default() })
}

fn failure(message: &str, reason: &str) -> Option<Failure> {
    Some(Failure {
        message: message.to_owned(),
        reason: reason.to_owned(),
        error_class: ErrorClass::Transient.into(),
        ..Default::default()
    })
}

fn shown(tracked: &TrackedExecution, now: u64, columns: usize) -> Vec<String> {
    let rows = tracked.rows(Duration::from_secs(now), columns, true);
    assert!(rows.iter().all(|row| row.width() < columns), "{rows:?}");
    rows.iter().map(|row| row.render(false)).collect()
}

/// Three steps have ended, one runs, one is tried again, one waits for a person, one for that.
fn tidy() -> TrackedExecution {
    let mut tracked = tracked_of(&[
        ("history", "run_terminal", r#"{"command":["git","log","--oneline","-3"]}"#, &[]),
        ("promises", "search_code", r###"{"pattern":"^## ","path":"README.md"}"###, &[]),
        ("network", "noop", "{}", &[]),
        ("build", "run_terminal", r#"{"command":["cargo","build","--release"]}"#, &[]),
        ("stamp", "run_terminal", r#"{"command":["sed","-i","1s/.*/# Belay 0.1.0/","README.md"]}"#, &[]),
        ("publish", "noop", "{}", &["network"]),
        ("difference", "run_terminal", r#"{"command":["git","diff","--stat"]}"#, &["history", "stamp"]),
    ]);
    tracked.execution.steps[3].title = "Build everything".to_owned();
    let retry = StepRetryScheduled {
        failure: failure("connection reset", "NETWORK"),
        retry_count: 1,
        retry_time: at(116),
        ..Default::default()
    };
    let skipped = StepSkipped { reason: SkipReason::ApprovalSkipped.into(), ..Default::default() };
    let story = [
        ("history", started()),
        ("history", completed()),
        ("promises", started()),
        ("promises", completed()),
        ("network", started()),
        ("network", Kind::StepRetryScheduled(retry)),
        ("build", started()),
        ("stamp", started()),
        ("stamp", Kind::ToolCallEffectProposed(ToolCallEffectProposed::default())),
        ("stamp", requested()),
        ("publish", Kind::StepSkipped(skipped)),
    ];
    for (sequence, (step, kind)) in (2..).zip(story) {
        tracked.apply(&event(sequence, step, kind));
    }
    tracked
}

// S2-FR-072, S1-34: overall progress, what runs, what is tried again and when, what waits for whom are on the screen, at any width.
#[test]
fn the_screen_of_a_run_in_three_windows() {
    let wide = [
        "tidy  3 of 7 steps · 1 running · 1 waiting for approval · 1 retrying                                                12s",
        "↻ network     retrying (1/2) in 4s · connection reset (NETWORK)",
        "● build       Build everything · cargo build --release                                                               4s",
        "? stamp       waiting for approval · sed -i '1s/.*/# Belay 0.1.0/' README.md                                         2s",
        "· difference  after stamp",
    ];
    assert_eq!(shown(&tidy(), 112, 120), wide);
    let usual = [
        "tidy  3 of 7 steps · 1 running · 1 waiting for approval · 1 retrying        12s",
        "↻ network     retrying (1/2) in 4s · connection reset (NETWORK)",
        "● build       Build everything · cargo build --release                       4s",
        "? stamp       waiting for approval · sed -i '1s/.*/# Belay 0.1.0/' README.…  2s",
        "· difference  after stamp",
    ];
    assert_eq!(shown(&tidy(), 112, 80), usual);
    let narrow = [
        "tidy  3 of 7 steps · 1 running      12s",
        "↻ network     retrying (1/2) in 4s · c…",
        "● build       Build everything · c…  4s",
        "? stamp       waiting for approval…  2s",
        "· difference  after stamp",
    ];
    assert_eq!(shown(&tidy(), 112, 40), narrow);
    for columns in 1..130 {
        shown(&tidy(), 112, columns);
    }
}

// The rows of steps that have ended stay on the screen above the live rows.
#[test]
fn a_step_that_has_ended_leaves_a_row() {
    let mut tracked = tidy();
    let ended =
        |tracked: &TrackedExecution, step: &str, columns| tracked.ended(step, Some(columns)).unwrap().render(false);
    assert_eq!(
        ended(&tracked, "history", 80),
        "✓ history     git log --oneline -3                                           1s"
    );
    assert_eq!(ended(&tracked, "promises", 40), "✓ promises    search \"^## \" in REA…  1s");
    tracked.apply(&event(13, "build", completed()));
    assert!(ended(&tracked, "build", 80).starts_with("✓ build       Build everything · cargo build --release "));
    assert_eq!(ended(&tracked, "publish", 80), "- publish     skipped: a person chose to skip it");
    assert!(tracked.ended("stamp", Some(80)).is_none(), "it has not ended");
    let mut tracked = tidy();
    let failed = StepFailed { failure: failure("exit 101", "COMMAND_FAILED"), ..Default::default() };
    tracked.apply(&event(13, "build", Kind::StepFailed(failed)));
    assert_eq!(ended(&tracked, "build", 60), "✗ build       exit 101 (COMMAND_FAILED)                  5s");
}

// The time that a person took does not count as the machine's.
#[test]
fn the_time_a_person_thought_is_shown_apart() {
    let mut tracked = tracked();
    let story = [
        (2, "a", started()),
        (4, "a", Kind::ToolCallEffectProposed(ToolCallEffectProposed::default())),
        (5, "a", requested()),
        (6, "", Kind::ExecutionAwaitingApproval(ExecutionAwaitingApproval {})),
        (36, "a", Kind::ApprovalDecided(ApprovalDecided::default())),
    ];
    for (sequence, step, kind) in story {
        tracked.apply(&event(sequence, step, kind));
    }
    assert_eq!(
        shown(&tracked, 138, 60)[1],
        "● a  read_file {}                                        2s".replace(" {}   ", "      ")
    );
    tracked.apply(&event(38, "a", completed()));
    assert_eq!(
        tracked.ended("a", Some(60)).unwrap().render(false),
        "✓ a  read_file                        32s for approval + 4s"
    );
    assert_eq!(tracked.paused_for_people(), Duration::from_secs(30), "from when nothing else ran");
    assert_eq!(machine_time(tracked.step("a").unwrap()), Some(Duration::from_secs(4)));
}

// S2-FR-052: what waits for a person is seen to wait, and for what.
#[test]
fn an_approval_is_asked_from_its_request_to_its_decision() {
    let mut tracked = tracked();
    tracked.apply(&event(2, "a", started()));
    tracked.apply(&event(3, "a", Kind::ToolCallEffectProposed(ToolCallEffectProposed::default())));
    assert_eq!(tracked.asked().count(), 0, "the gate has not said which it is");
    tracked.apply(&event(4, "a", requested()));
    tracked.apply(&event(5, "", Kind::ExecutionAwaitingApproval(ExecutionAwaitingApproval {})));
    assert_eq!(tracked.asked().collect::<Vec<_>>(), [APPROVAL]);
    assert_eq!(tracked.execution().state(), execution::State::AwaitingApproval);
    assert_eq!(shown(&tracked, 112, 60)[1], "? a  waiting for approval · read_file                    9s");
    let decided = ApprovalDecided { approval: APPROVAL.to_owned(), ..Default::default() };
    tracked.apply(&event(6, "a", Kind::ApprovalDecided(decided)));
    assert_eq!(tracked.asked().count(), 0);
    assert_eq!(tracked.execution().state(), execution::State::Running);
}

#[test]
fn an_event_the_snapshot_covers_changes_nothing() {
    let mut tracked = tracked();
    tracked.apply(&event(1, "a", Kind::StepFailed(StepFailed::default())));
    assert_eq!(tracked.step("a").map(Step::state), Some(State::Pending));
}

#[test]
fn what_holds_it_up_is_said_with_the_way_out() {
    let mut tracked = tracked();
    let actor = Some(Actor { principal: "unix:0".to_owned(), request_id: String::new() });
    tracked.apply(&ExecutionEvent { actor, ..event(2, "", Kind::ExecutionPaused(ExecutionPaused::default())) });
    let row = "! paused by unix:0 3s ago; next: belay executions resume e1";
    assert!(shown(&tracked, 105, 80).iter().any(|shown| shown == row), "{:?}", shown(&tracked, 105, 80));
    assert_eq!(tracked.waits_for(false), ["paused by unix:0; next: belay executions resume e1"]);
    assert!(tracked.waits_for(true).is_empty(), "its event has said so");
    tracked.apply(&event(
        3,
        "",
        Kind::ExecutionFinished(Box::new(ExecutionFinished {
            state: execution::State::Cancelled.into(),
            ..Default::default()
        })),
    ));
    assert!(tracked.waits_for(false).is_empty());
}

// A pending approval has the step's own row; who has not seen its event gets the command as well.
#[test]
fn a_pending_approval_is_shown_once() {
    let mut tracked = tracked();
    tracked.apply(&event(2, "a", started()));
    tracked.apply(&event(3, "a", Kind::ToolCallEffectProposed(ToolCallEffectProposed::default())));
    tracked.apply(&event(4, "a", requested()));
    tracked.wait_for(vec![WaitingReason {
        kind: waiting_reason::Kind::Approval.into(),
        next_command: "belay approvals show x7".to_owned(),
        ..Default::default()
    }]);
    let rows = |announced| {
        let rows = tracked.rows(Duration::from_secs(112), 80, announced);
        rows.iter().map(|row| row.render(false)).filter(|row| row.contains("approval")).collect::<Vec<_>>()
    };
    assert_eq!(rows(true).len(), 2, "the header and the step: {:?}", rows(true));
    assert_eq!(rows(false)[2], "! waiting for approval; next: belay approvals show x7");
}

// An unavailable service stays on the screen while other steps run.
#[test]
fn a_runner_that_is_away_is_said_until_the_server_says_otherwise() {
    let mut tracked = tracked();
    let away = WaitingReason {
        kind: waiting_reason::Kind::Runner.into(),
        begin_time: at(103),
        who: "the tool runner, which does not answer".to_owned(),
        ..Default::default()
    };
    tracked.wait_for(vec![away]);
    tracked.apply(&event(2, "a", started()));
    let rows = shown(&tracked, 112, 40);
    assert_eq!(rows[2..4], ["! waiting for the tool runner, which", "  does not answer (9s)"], "{rows:?}");
    tracked.wait_for(Vec::new());
    assert!(!shown(&tracked, 112, 40).iter().any(|row| row.starts_with('!')));
}

#[test]
fn a_hundred_running_steps_fit_a_window() {
    let steps = (0..100).map(|i| Step {
        step_id: format!("s{i}"),
        state: if i < 50 { State::Running } else { State::Pending }.into(),
        ..Default::default()
    });
    let tracked = TrackedExecution::new(Execution { steps: steps.collect(), ..Default::default() });
    let lines = shown(&tracked, 0, 80);
    assert_eq!(lines.len(), 1 + STEPS_SHOWN + 1 + NEXT_SHOWN + 1);
    assert_eq!(lines[1 + STEPS_SHOWN], "  … and 42 more active");
    assert_eq!(lines.last().unwrap(), "  … and 47 more pending");
}

#[test]
fn a_wait_says_for_what_and_how_long_still() {
    let mut tracked = tracked();
    tracked.apply(&event(2, "a", Kind::StepStarted(StepStarted {})));
    let until = at(400);
    tracked.apply(&event(3, "a", Kind::WaitStarted(WaitStarted { until_time: until, ..Default::default() })));
    assert_eq!(tracked.step("a").map(Step::state), Some(State::Waiting));
    let rows = shown(&tracked, 340, 80);
    assert!(rows.iter().any(|row| row.contains("1m 0s left") || row.contains("1m left")), "{rows:?}");
    tracked.apply(&event(4, "a", Kind::WaitEnded(WaitEnded::default())));
    tracked.apply(&event(5, "a", Kind::WaitStarted(WaitStarted { signal: "go".to_owned(), ..Default::default() })));
    let waiting = tracked.step("a").and_then(|step| step.waiting.clone()).unwrap();
    assert_eq!((waiting.kind(), waiting.who.as_str()), (waiting_reason::Kind::Signal, "the signal `go`"));
    tracked.apply(&event(6, "a", Kind::WaitEnded(WaitEnded::default())));
    assert_eq!(tracked.step("a").map(|step| (step.state(), step.waiting.is_none())), Some((State::Running, true)));
}

#[test]
fn a_call_that_asks_runs_on_and_says_who_is_waited_for() {
    let mut tracked = tracked();
    let of = |sequence, operation, kind| ExecutionEvent { operation, ..event(sequence, "a", kind) };
    let asks = |title: &str| {
        let form = Some(Form { title: title.to_owned(), ..Default::default() });
        Kind::WaitStarted(WaitStarted { form, asking_call: 1, ..Default::default() })
    };
    let requested = |approval: &str| {
        Kind::ApprovalRequested(ApprovalRequested { approval: approval.to_owned(), ..Default::default() })
    };
    let seen = |tracked: &TrackedExecution| {
        let step = tracked.step("a").unwrap();
        let waiting = step.waiting.as_ref().map(|waiting| waiting.who.clone()).unwrap_or_default();
        (step.state(), waiting, step.approvals.join(" "))
    };
    tracked.apply(&event(2, "a", Kind::StepStarted(StepStarted {})));
    tracked.apply(&of(3, 1, Kind::ToolCallRequested(ToolCallRequested::default())));
    tracked.apply(&of(4, 2, asks("One?")));
    tracked.apply(&of(5, 3, asks("Two?")));
    tracked.apply(&of(6, 2, requested("q2")));
    tracked.apply(&of(7, 3, requested("q3")));
    let asked = |title: &str| format!("a person's answer to `{title}`");
    assert_eq!(seen(&tracked), (State::Running, asked("Two?"), "q2 q3".to_owned()));
    tracked.apply(&of(8, 3, Kind::WaitEnded(WaitEnded::default())));
    assert_eq!(seen(&tracked), (State::Running, asked("One?"), "q2".to_owned()));
    tracked.apply(&of(9, 2, Kind::WaitEnded(WaitEnded::default())));
    assert_eq!(seen(&tracked), (State::Running, String::new(), String::new()));
}
