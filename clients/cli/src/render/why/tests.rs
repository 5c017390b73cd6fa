use belay_proto::v1::{
    Authorization, ErrorClass, LastOutput, Payload, Plan, PlanStepDetail, StepSpec, StepTotals, ToolStep,
    ToolStepDetail, WaitStepDetail, step_spec,
};
use pbjson_types::Timestamp;

use super::*;

const NOW: Duration = Duration::from_secs(1_000);

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

fn step(id: &str, state: State) -> Step {
    let detail = Some(Detail::Tool(ToolStepDetail { tool: "run_terminal".to_owned() }));
    Step { step_id: id.to_owned(), state: state.into(), attempt: 1, max_attempts: 1, detail, ..Default::default() }
}

fn skipped_because(id: &str, reason: SkipReason, because: &str) -> Step {
    Step { skip_reason: reason.into(), skipped_because: because.to_owned(), ..step(id, State::Skipped) }
}

fn failure(lines: usize) -> Failure {
    let stream = |word: &str| (1..=lines).map(|n| format!("{word} {n} {}\n", "x".repeat(400))).collect();
    Failure {
        error_class: ErrorClass::Transient.into(),
        message: "`cargo` exited with code 101.".to_owned(),
        reason: "COMMAND_FAILED".to_owned(),
        last_output: Some(LastOutput { stdout: stream("out"), stderr: stream("err"), ..Default::default() }),
        ..Default::default()
    }
}

fn execution(state: execution::State, steps: Vec<Step>) -> Execution {
    let cargo = ToolStep {
        tool: "run_terminal".to_owned(),
        arguments: Some(Payload::of_json(r#"{"command":["cargo","test"]}"#)),
        ..Default::default()
    };
    let spec = StepSpec { id: "build".to_owned(), kind: Some(step_spec::Kind::Tool(cargo)), ..Default::default() };
    Execution {
        name: "namespaces/default/executions/e1".to_owned(),
        plan_id: "tidy".to_owned(),
        state: state.into(),
        create_time: at(900),
        end_time: at(931).filter(|_| is_over(state)),
        totals: Some(StepTotals { total: 6, completed: 1, failed: 1, skipped: 3, ..Default::default() }),
        plan: Some(Plan { steps: vec![spec], ..Default::default() }),
        steps,
        ..Default::default()
    }
}

fn screen(execution: &Execution, is_driven: bool) -> Vec<String> {
    lines(execution, &[], None, is_driven, None, NOW).iter().map(|line| line.render(false)).collect()
}

fn attempts(count: i32) -> Vec<StepAttempt> {
    let attempt = |attempt| StepAttempt { attempt, failure: Some(failure(0)), ..Default::default() };
    (1..=count).map(attempt).collect()
}

#[test]
fn a_failed_one_names_the_step_its_error_and_the_way_out() {
    let build = Step {
        attempt: 2,
        max_attempts: 2,
        failure: Some(Failure {
            last_output: Some(LastOutput { stdout: "left: 3\nright: 0\n".to_owned(), ..Default::default() }),
            ..failure(0)
        }),
        failed_attempts: attempts(2),
        end_time: at(930),
        ..step("build", State::Failed)
    };
    let write = Step {
        authorization: Some(Authorization { created: 2, modified: 1, ..Default::default() }),
        ..step("write", State::Completed)
    };
    let steps = vec![
        write,
        skipped_because("ship", SkipReason::DependencySkipped, "test"),
        build,
        skipped_because("test", SkipReason::DependencyFailed, "build"),
        skipped_because("never", SkipReason::ConditionFalse, ""),
        Step { end_time: at(931), ..step("late", State::Failed) },
    ];
    assert_eq!(
        screen(&execution(execution::State::Failed, steps), true),
        [
            "✗ build failed: `cargo` exited with code 101. (COMMAND_FAILED)",
            "  execution  e1, failed after 31s: 1 completed, 1 failed, 3 skipped of 6 steps",
            "  call       cargo test, attempt 2 of 2",
            "     │ left: 3",
            "     │ right: 0",
            "  before     attempt 1: `cargo` exited with code 101. (COMMAND_FAILED)",
            "  also       1 step failed: late",
            "  changed    write: 2 created, 1 modified",
            "  skipped    2 steps because of it: ship, test",
            "next: belay executions retry e1",
            "      belay logs e1 build --failed",
            "code: COMMAND_FAILED (belay explain COMMAND_FAILED)",
        ]
    );
}

#[test]
fn nothing_pushes_the_next_command_off_the_screen() {
    let cause = |cause| Some(Box::new(Failure { cause, ..failure(0) }));
    let whole = Failure { cause: cause(cause(cause(cause(None)))), ..failure(500) };
    let build = Step {
        attempt: 99,
        max_attempts: 99,
        failure: Some(whole),
        failed_attempts: attempts(98),
        end_time: at(1),
        ..step("build", State::Failed)
    };
    let mut steps = vec![build];
    for n in 0..1_000 {
        steps.push(skipped_because(&format!("s{n}"), SkipReason::DependencyFailed, "build"));
        let given = Some(Authorization { created: 1, ..Default::default() });
        steps.push(Step { authorization: given, ..step(&format!("c{n}"), State::Completed) });
        steps.push(Step { end_time: at(2), ..step(&format!("f{n}"), State::Failed) });
    }
    let worst = execution(execution::State::Failed, steps);
    let screen = screen(&worst, true);
    assert!(screen.len() <= 26, "{screen:#?}");
    assert!(screen.iter().all(|line| line.chars().count() <= 320), "{screen:#?}");
    let narrow = lines(&worst, &[], None, true, Some(80), NOW);
    let output: Vec<&Line> = narrow.iter().filter(|line| line.render(false).contains('│')).collect();
    assert!(output.len() == 12 && output.iter().all(|line| line.width() <= 80), "{output:?}");
    let has = |words: &str| screen.iter().any(|line| line.contains(words));
    assert!(has("│ out 500 x") && has("│ err 500 x") && has("… 96 earlier attempts"), "{screen:#?}");
    assert!(has("1000 steps because of it: s0, s1, s2, s3 and 996 more"), "{screen:#?}");
    assert!(has("1000 created (c0: 1 created; c1: 1 created; c2: 1 created; c3: 1 created; and 996 steps more)"));
}

fn waits(kind: Kind, who: &str, next: &str) -> WaitingReason {
    WaitingReason {
        kind: kind.into(),
        begin_time: at(880),
        who: who.to_owned(),
        next_command: next.to_owned(),
        ..Default::default()
    }
}

#[test]
fn an_unfinished_one_says_for_what_it_waits_since_when_and_for_whom() {
    let approval = waits(Kind::Approval, "a person (rule asks)", "belay approvals show x1");
    let build = Step { waiting: Some(approval.clone()), ..step("build", State::AwaitingApproval) };
    let mut waiting = execution(execution::State::AwaitingApproval, vec![build]);
    waiting.waiting = vec![approval];
    let shown = screen(&waiting, true);
    assert_eq!(shown[0], "? tidy is waiting for a decision");
    assert_eq!(
        shown[2..],
        [
            "  build      waiting for approval (2m): cargo test",
            "             asked of a person (rule asks)",
            "next: belay approvals show x1",
        ]
    );
    let alone = screen(&waiting, false);
    assert_eq!(alone[0], "! tidy does not continue: no process drives it");
    assert_eq!(alone[alone.len() - 2..], ["next: belay executions resume e1", "      belay approvals show x1"]);
}

#[test]
fn what_a_person_can_end_comes_before_what_ends_alone() {
    let call = Step { waiting: Some(waits(Kind::Call, "the tool", "")), ..step("build", State::Running) };
    let detail = Some(Detail::Wait(WaitStepDetail::default()));
    let signal = waits(Kind::Signal, "the signal `go`", "belay executions signal e1 go");
    let go = Step { waiting: Some(signal), detail, ..step("go", State::Waiting) };
    let shown = screen(&execution(execution::State::Running, vec![call.clone(), go]), true);
    assert_eq!(shown[0], "tidy is running");
    assert_eq!(
        shown[2..],
        [
            "  go         waiting for the signal `go` (2m)",
            "  build      running (2m): cargo test",
            "next: belay executions signal e1 go",
        ]
    );
    let late = Step { failure: Some(failure(0)), ..step("late", State::Failed) };
    let failing = screen(&execution(execution::State::Running, vec![call.clone(), late]), true);
    assert_eq!(failing[3], "  failed     late: `cargo` exited with code 101. (COMMAND_FAILED)");
    let running = screen(&execution(execution::State::Running, vec![call]), true);
    assert_eq!(running.last().unwrap(), "next: belay executions watch e1");
    let paused =
        Execution { waiting: vec![waits(Kind::Resume, "a person", "")], ..execution(execution::State::Paused, vec![]) };
    let shown = screen(&paused, true);
    assert_eq!(
        (shown[0].as_str(), shown.last().unwrap().as_str()),
        ("! tidy is paused", "next: belay executions resume e1")
    );
}

#[test]
fn one_that_ended_without_a_failed_step_says_how() {
    let of = |state| execution(state, vec![skipped_because("c", SkipReason::ApprovalSkipped, "")]);
    let completed = screen(&of(execution::State::Completed), true);
    assert_eq!(
        (completed[0].as_str(), completed.last().unwrap().as_str()),
        ("✓ tidy completed: nothing failed", "next: belay logs e1")
    );
    let partial = screen(&of(execution::State::Partial), true);
    assert!(partial.contains(&"  skipped    c: a person chose to skip it".to_owned()), "{partial:#?}");
    assert_eq!(partial.last().unwrap(), "next: belay executions get e1", "nothing can be retried");
    let cancelled = Cancelled { by: "person:ann".to_owned(), reason: "wrong plan".to_owned() };
    let first = &lines(&of(execution::State::Cancelled), &[], Some(&cancelled), true, None, NOW)[0];
    assert_eq!(first.render(false), "- tidy was cancelled by person:ann: wrong plan");
    for state in [execution::State::Cancelled, execution::State::TimedOut] {
        assert!(next(&of(state), &[], true).starts_with("belay executions retry "), "{state:?}");
    }
    let stopping = &lines(&of(execution::State::Cancelling), &[], Some(&cancelled), true, None, NOW)[2];
    assert_eq!(stopping.render(false), "  cancelled  by person:ann: wrong plan");
}

#[test]
fn an_unknown_outcome_and_a_retry_say_what_went_before() {
    let resolve = "belay executions resolve e1 deploy";
    let deploy =
        Step { waiting: Some(waits(Kind::Outcome, "a person", resolve)), ..step("deploy", State::OutcomeUnknown) };
    let until = WaitingReason { until_time: at(1_004), ..waits(Kind::Timer, "the clock", "") };
    let build = Step {
        attempt: 2,
        max_attempts: 3,
        failure: Some(failure(0)),
        waiting: Some(until),
        ..step("build", State::BackingOff)
    };
    let shown = screen(&execution(execution::State::Running, vec![build, deploy]), true);
    assert_eq!(
        shown[2..],
        [
            "  deploy     the outcome of a call is unknown; a person has to find out what it did (2m): run_terminal",
            "  build      retrying in 4s, attempt 2 of 3: cargo test",
            "             failed before: `cargo` exited with code 101. (COMMAND_FAILED)",
            "next: belay executions resolve e1 deploy",
        ]
    );
}

fn of_plan(id: &str, state: State, child: &str) -> Step {
    let child = format!("namespaces/default/executions/{child}");
    let detail = Some(Detail::Plan(PlanStepDetail { execution: child, plan_id: "inner".to_owned() }));
    Step { detail, ..step(id, state) }
}

/// What failed in the execution of a step is said with the step, and what that waits for, too.
#[test]
fn what_explains_the_execution_of_a_step_is_said_with_it() {
    let failure_of_child =
        Failure { reason: "CHILD_FAILED".to_owned(), message: "It failed.".to_owned(), ..Default::default() };
    let outer_step = Step { failure: Some(failure_of_child), ..of_plan("build", State::Failed, "e2") };
    let outer = execution(execution::State::Failed, vec![outer_step]);
    assert_eq!(children(&outer), ["namespaces/default/executions/e2"]);
    let compile = Step { failure: Some(failure(1)), ..step("compile", State::Failed) };
    let name = "namespaces/default/executions/e2".to_owned();
    let child = Execution { name, ..execution(execution::State::Failed, vec![compile]) };
    let shown: Vec<String> =
        lines(&outer, &[child], None, true, None, NOW).iter().map(|line| line.render(false)).collect();
    let text = shown.join("\n");
    assert!(shown[0].starts_with("✗ build failed: It failed. (CHILD_FAILED)"), "{text}");
    assert!(
        text.contains("\n  ✗ compile failed: `cargo` exited with code 101. (COMMAND_FAILED)\n    execution  e2, "),
        "{text}"
    );
    assert!(text.contains("err 1 xxx"), "{text}");
    let end = "next: belay executions retry e1\n      belay logs e2 compile --failed\ncode: CHILD_FAILED (belay explain CHILD_FAILED)";
    assert!(text.ends_with(end), "{text}");

    let waits = |kind: Kind, next: &str| {
        Some(WaitingReason {
            kind: kind.into(),
            next_command: next.to_owned(),
            begin_time: at(990),
            ..Default::default()
        })
    };
    let outer_step = Step { waiting: waits(Kind::Child, "belay why e2"), ..of_plan("build", State::Running, "e2") };
    let outer = execution(execution::State::Running, vec![outer_step]);
    assert_eq!(children(&outer), ["namespaces/default/executions/e2"]);
    assert_eq!(next(&outer, &[], true), "belay why e2");
    let asks = Step { waiting: waits(Kind::Approval, "belay approve x7k2"), ..step("deploy", State::AwaitingApproval) };
    let child = execution(execution::State::AwaitingApproval, vec![asks]);
    assert_eq!(next(&outer, std::slice::from_ref(&child), true), "belay approve x7k2");
    let shown = lines(&outer, &[child], None, true, None, NOW);
    assert_eq!(shown.last().unwrap().render(false), "next: belay approve x7k2");
}
