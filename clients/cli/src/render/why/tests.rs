use belay_proto::v1::{
    self, Authorization, ErrorClass, LastOutput, Payload, SkipReason, SkippedStep, StepChange, StepSpec, StepTotals,
    ToolStep, step_spec,
};
use pbjson_types::Timestamp;

use super::*;

const NOW: Duration = Duration::from_secs(1_000);
const NAME: &str = "namespaces/default/executions/e1";

fn at(seconds: i64) -> Option<Timestamp> {
    Some(Timestamp { seconds, nanos: 0 })
}

fn skipped_because(id: &str, reason: SkipReason, because: &str, follows_failure: bool) -> SkippedStep {
    let (step_id, skipped_because) = (id.to_owned(), because.to_owned());
    let skipped_group = String::new();
    SkippedStep { step_id, skip_reason: reason.into(), skipped_because, follows_failure, skipped_group }
}

fn changes(id: &str, created: i32, modified: i32) -> StepChange {
    let authorization = Some(Authorization { created, modified, ..Default::default() });
    StepChange { step_id: id.to_owned(), authorization }
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

/// A cause about a step that calls a tool.
fn cause(id: &str, kind: Kind) -> Cause {
    let (step_id, tool) = (id.to_owned(), "run_terminal".to_owned());
    Cause { kind: kind.into(), step_id, tool, attempt: 1, max_attempts: 1, ..Default::default() }
}

/// The same of the step `build`, as the plan has it.
fn build(kind: Kind) -> Cause {
    let cargo = ToolStep {
        tool: "run_terminal".to_owned(),
        arguments: Some(Payload::of_json(r#"{"command":["cargo","test"]}"#)),
        ..Default::default()
    };
    let spec = StepSpec { id: "build".to_owned(), kind: Some(step_spec::Kind::Tool(cargo)), ..Default::default() };
    Cause { spec: Some(spec), ..cause("build", kind) }
}

fn explanation(state: execution::State, causes: Vec<Cause>) -> Explanation {
    let execution = Execution {
        name: NAME.to_owned(),
        plan_id: "tidy".to_owned(),
        state: state.into(),
        create_time: at(900),
        end_time: at(931).filter(|_| is_over(state)),
        totals: Some(StepTotals { total: 6, completed: 1, failed: 1, skipped: 3, ..Default::default() }),
        ..Default::default()
    };
    Explanation { execution: Some(execution), causes, ..Default::default() }
}

fn explained(explanation: Explanation, next_actions: Vec<Action>) -> ExplainExecutionResponse {
    ExplainExecutionResponse { explanation: Some(explanation), children: Vec::new(), next_actions }
}

fn subject(kind: Subject) -> Option<v1::Subject> {
    Some(v1::Subject { kind: Some(kind) })
}

fn action(verb: Verb, about: Option<Subject>) -> Action {
    Action { verb: verb.into(), execution: NAME.to_owned(), subject: about.and_then(subject) }
}

fn screen(explained: &ExplainExecutionResponse) -> Vec<String> {
    lines(explained, None, NOW).iter().map(|line| line.render(false)).collect()
}

fn attempts(count: i32) -> Vec<StepAttempt> {
    let attempt = |attempt| StepAttempt { attempt, failure: Some(failure(0)), ..Default::default() };
    (1..=count).map(attempt).collect()
}

#[test]
fn a_failed_one_names_the_step_its_error_and_the_way_out() {
    let build = Cause {
        attempt: 2,
        max_attempts: 2,
        failure: Some(Failure {
            last_output: Some(LastOutput { stdout: "left: 3\nright: 0\n".to_owned(), ..Default::default() }),
            ..failure(0)
        }),
        failed_attempts: attempts(2),
        ..build(Kind::StepFailure)
    };
    let failed = Explanation {
        changes: vec![changes("write", 2, 1)],
        skipped_steps: vec![
            skipped_because("ship", SkipReason::DependencySkipped, "test", true),
            skipped_because("test", SkipReason::DependencyFailed, "build", true),
            skipped_because("never", SkipReason::ConditionFalse, "", false),
        ],
        ..explanation(execution::State::Failed, vec![build, cause("late", Kind::StepFailure)])
    };
    assert_eq!(
        screen(&explained(failed, vec![action(Verb::Retry, None)])),
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
    let cause_of = |cause| Some(Box::new(Failure { cause, ..failure(0) }));
    let whole = Failure { cause: cause_of(cause_of(cause_of(cause_of(None)))), ..failure(500) };
    let build = Cause {
        attempt: 99,
        max_attempts: 99,
        failure: Some(whole),
        failed_attempts: attempts(98),
        ..build(Kind::StepFailure)
    };
    let mut worst = explanation(execution::State::Failed, vec![build]);
    for n in 0..1_000 {
        let reason = SkipReason::DependencyFailed;
        worst.skipped_steps.push(skipped_because(&format!("s{n}"), reason, "build", true));
        worst.changes.push(changes(&format!("c{n}"), 1, 0));
        worst.causes.push(cause(&format!("f{n}"), Kind::StepFailure));
    }
    let worst = explained(worst, vec![action(Verb::Retry, None)]);
    let screen = screen(&worst);
    assert!(screen.len() <= 26, "{screen:#?}");
    assert!(screen.iter().all(|line| line.chars().count() <= 320), "{screen:#?}");
    let narrow = lines(&worst, Some(80), NOW);
    let output: Vec<&Line> = narrow.iter().filter(|line| line.render(false).contains('│')).collect();
    assert!(output.len() == 12 && output.iter().all(|line| line.width() <= 80), "{output:?}");
    let has = |words: &str| screen.iter().any(|line| line.contains(words));
    assert!(has("│ out 500 x") && has("│ err 500 x") && has("… 96 earlier attempts"), "{screen:#?}");
    assert!(has("1000 steps because of it: s0, s1, s2, s3 and 996 more"), "{screen:#?}");
    assert!(has("1000 created (c0: 1 created; c1: 1 created; c2: 1 created; c3: 1 created; and 996 steps more)"));
    assert!(has("1000 steps failed: f0, f1, f2, f3 and 996 more"), "{screen:#?}");
}

#[test]
fn what_the_answer_leaves_out_is_counted() {
    let failed = Explanation {
        left_out_causes: 7,
        changes: vec![changes("a", 1, 0), changes("b", 1, 0)],
        left_out_changes: 5,
        skipped_steps: vec![skipped_because("s", SkipReason::DependencyFailed, "build", true)],
        left_out_skipped_steps: 9,
        ..explanation(execution::State::Failed, vec![build(Kind::StepFailure), cause("late", Kind::StepFailure)])
    };
    let screen = screen(&explained(failed, Vec::new()));
    let has = |words: &str| screen.iter().any(|line| line.contains(words));
    assert!(has("8 steps failed: late and 7 more") && has("10 steps because of it: s and 9 more"), "{screen:#?}");
    assert!(has("and 5 steps more)"), "{screen:#?}");
}

/// A cause since two minutes ago.
fn waits(cause: Cause, who: &str) -> Cause {
    Cause { begin_time: at(880), who: who.to_owned(), ..cause }
}

fn approval() -> Option<Subject> {
    Some(Subject::Approval("namespaces/default/approvals/x1".to_owned()))
}

#[test]
fn an_unfinished_one_says_for_what_it_waits_since_when_and_for_whom() {
    let asked = vec![action(Verb::Approve, approval()), action(Verb::Deny, approval())];
    let build = waits(build(Kind::Approval), "a person (rule asks)");
    let waiting = explained(explanation(execution::State::AwaitingApproval, vec![build.clone()]), asked.clone());
    let shown = screen(&waiting);
    assert_eq!(shown[0], "? tidy is waiting for a decision");
    assert_eq!(
        shown[2..],
        [
            "  build      waiting for approval (2m): cargo test",
            "             asked of a person (rule asks)",
            "next: belay approvals show x1",
        ]
    );
    let undriven = Cause { kind: Kind::NoDriver.into(), ..Default::default() };
    let alone = explanation(execution::State::AwaitingApproval, vec![undriven, build]);
    let alone = screen(&explained(alone, [vec![action(Verb::Resume, None)], asked].concat()));
    assert_eq!(alone[0], "! tidy does not continue: no process drives it");
    assert_eq!(alone[2], "  build      waiting for approval (2m): cargo test");
    assert_eq!(alone[alone.len() - 2..], ["next: belay executions resume e1", "      belay approvals show x1"]);
}

#[test]
fn what_runs_waits_and_has_failed_is_said_in_order() {
    let call = waits(build(Kind::Call), "the tool");
    let signal = Subject::Signal("go".to_owned());
    let go = Cause {
        tool: String::new(),
        subject: subject(signal.clone()),
        until_time: at(1_060),
        ..waits(cause("go", Kind::Signal), "the signal `go`")
    };
    let running = explanation(execution::State::Running, vec![go, call.clone()]);
    let shown = screen(&explained(running, vec![action(Verb::SendSignal, Some(signal))]));
    assert_eq!(shown[0], "tidy is running");
    assert_eq!(
        shown[2..],
        [
            "  go         waiting for the signal `go` (2m)",
            "             fails at 1970-01-01 00:17:40Z without it",
            "  build      running (2m): cargo test",
            "next: belay executions signal e1 go",
        ]
    );
    let late = Cause { failure: Some(failure(0)), ..cause("late", Kind::StepFailure) };
    let failing = screen(&explained(explanation(execution::State::Running, vec![call.clone(), late]), Vec::new()));
    assert_eq!(failing[3], "  failed     late: `cargo` exited with code 101. (COMMAND_FAILED)");
    let running = screen(&explained(explanation(execution::State::Running, vec![call]), Vec::new()));
    assert_eq!(running.last().unwrap(), "next: belay executions watch e1");
    let pause = Cause { principal: "person:ann".to_owned(), ..waits(Cause::default(), "a person") };
    let pause = Cause { kind: Kind::Pause.into(), ..pause };
    let paused = explanation(execution::State::Paused, vec![pause]);
    let shown = screen(&explained(paused, vec![action(Verb::Resume, None)]));
    assert_eq!(shown[0], "! tidy is paused");
    assert_eq!(shown[2..], ["             paused by person:ann 2m ago", "next: belay executions resume e1"]);
}

#[test]
fn a_service_that_is_away_comes_first_and_has_no_command() {
    let away = |service: v1::subject::Service, who: &str| Cause {
        kind: Kind::ServiceAway.into(),
        subject: subject(Subject::Service(service.into())),
        ..waits(Cause::default(), who)
    };
    let gate = away(v1::subject::Service::ApprovalGate, "the approval gate, which does not answer");
    let runner = away(v1::subject::Service::ToolRunner, "the tool runner, which does not answer");
    let start = action(Verb::StartService, None);
    let shown = screen(&explained(explanation(execution::State::Running, vec![gate, runner]), vec![start]));
    assert_eq!(shown[0], "! tidy is waiting for a service");
    assert_eq!(
        shown[2..],
        [
            "             waiting for the approval gate, which does not answer (2m)",
            "             waiting for the tool runner, which does not answer (2m)",
            "next: belay executions watch e1",
        ]
    );
}

#[test]
fn one_that_ended_without_a_failed_step_says_how() {
    let of = |state, causes, actions| {
        let skipped_steps = vec![skipped_because("c", SkipReason::ApprovalSkipped, "", false)];
        explained(Explanation { skipped_steps, ..explanation(state, causes) }, actions)
    };
    let completed = screen(&of(execution::State::Completed, vec![], vec![]));
    assert_eq!(
        (completed[0].as_str(), completed.last().unwrap().as_str()),
        ("✓ tidy completed: nothing failed", "next: belay logs e1")
    );
    let partial = screen(&of(execution::State::Partial, vec![], vec![]));
    assert!(partial.contains(&"  skipped    c: a person chose to skip it".to_owned()), "{partial:#?}");
    assert_eq!(partial.last().unwrap(), "next: belay executions get e1", "nothing can be retried");
    let (principal, reason) = ("person:ann".to_owned(), "wrong plan".to_owned());
    let cancelled = Cause { kind: Kind::Cancellation.into(), principal, reason, ..Default::default() };
    let stopped = vec![cancelled.clone(), cause("a", Kind::StepCancellation)];
    let shown = screen(&of(execution::State::Cancelled, stopped, vec![action(Verb::Retry, None)]));
    assert_eq!(shown[0], "- tidy was cancelled by person:ann: wrong plan");
    assert_eq!(shown[2], "  stopped    1 step while running: a");
    assert_eq!(shown.last().unwrap(), "next: belay executions retry e1");
    let stopping = screen(&of(execution::State::Cancelling, vec![cancelled], vec![]));
    assert_eq!(stopping[2], "  cancelled  by person:ann: wrong plan");
}

#[test]
fn an_unknown_outcome_and_a_retry_say_what_went_before() {
    let step = Subject::StepId("deploy".to_owned());
    let deploy = waits(cause("deploy", Kind::Outcome), "a person to find out what the call did");
    let build = Cause {
        attempt: 2,
        max_attempts: 3,
        failure: Some(failure(0)),
        until_time: at(1_004),
        ..waits(build(Kind::Backoff), "the clock")
    };
    let waiting = explanation(execution::State::Running, vec![deploy, build]);
    let shown = screen(&explained(waiting, vec![action(Verb::Resolve, Some(step))]));
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

/// The cause of a failure in the execution of a step is shown with the step, and the waits of that execution, too.
#[test]
fn what_explains_the_execution_of_a_step_is_said_with_it() {
    let child_name = "namespaces/default/executions/e2".to_owned();
    let of_plan = |kind| Cause {
        tool: String::new(),
        subject: subject(Subject::Execution(child_name.clone())),
        ..cause("build", kind)
    };
    let failure_of_child =
        Failure { reason: "CHILD_FAILED".to_owned(), message: "It failed.".to_owned(), ..Default::default() };
    let outer_step = Cause { failure: Some(failure_of_child), ..of_plan(Kind::StepFailure) };
    let outer = explanation(execution::State::Failed, vec![outer_step]);
    let compile = Cause { failure: Some(failure(1)), ..cause("compile", Kind::StepFailure) };
    let mut child = explanation(execution::State::Failed, vec![compile]);
    child.execution.as_mut().unwrap().name.clone_from(&child_name);
    let mut both = explained(outer, vec![action(Verb::Retry, None)]);
    both.children.push(child);
    let shown = screen(&both);
    let text = shown.join("\n");
    assert!(shown[0].starts_with("✗ build failed: It failed. (CHILD_FAILED)"), "{text}");
    assert_eq!(shown[2], "  call       plan");
    assert!(
        text.contains("\n  ✗ compile failed: `cargo` exited with code 101. (COMMAND_FAILED)\n    execution  e2, "),
        "{text}"
    );
    assert!(text.contains("err 1 xxx"), "{text}");
    let end = "next: belay executions retry e1\n      belay logs e2 compile --failed\ncode: CHILD_FAILED (belay explain CHILD_FAILED)";
    assert!(text.ends_with(end), "{text}");

    let explain = action(Verb::Explain, Some(Subject::Execution(child_name.clone())));
    let waiting = explained(explanation(execution::State::Running, vec![of_plan(Kind::Child)]), vec![explain]);
    assert_eq!(next(&waiting), "belay why e2");
    assert_eq!(screen(&waiting)[0], "tidy is running");
}
