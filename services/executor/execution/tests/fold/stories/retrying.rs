//! Steps that are made to run again, skipped, completed by hand, or whose next attempt is changed.

use belay_execution::{
    Actor, Body, Control, Created, DecideContext, Event, Execution, ExecutionEvent, Json, Refused, RetryChange,
    RetryRequest, StepEvent, StepState,
};
use belay_plan::RunWhen;

use crate::support::{Play, story};

fn ask(play: &mut Play, id: &str, control: Control) -> Result<usize, Refused> {
    let actor = Actor { principal: "person".to_owned(), request_id: id.to_owned() };
    let events = play.execution.control(play.now, actor, control)?;
    play.execution.advance(DecideContext { now: play.now, ledger_id: "" });
    Ok(events.len())
}

fn is_start_of(body: &Body, id: &str) -> bool {
    matches!(body, Body::Step { step, event: StepEvent::Started, .. } if step.as_str() == id)
}

fn retry(from: Option<&str>) -> Control {
    Control::Retry { request: RetryRequest { from: from.map(Into::into), ..RetryRequest::default() }, plan: None }
}

/// Completed steps are kept; failed steps, and those that were skipped because of them, run again, with new attempts.
#[test]
fn a_failed_execution_is_retried_from_where_it_failed() {
    let play = story("a; b after a; c after b").replies("b: invalid, ok").acts("9s retry").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a completed, b started",
            "2s b failed INVALID, c skipped DEPENDENCY_FAILED by b, PARTIAL",
            "9s b c run again, b started attempt 2",
            "10s b completed, c started",
            "11s c completed, COMPLETED",
        ]
    );
    assert_eq!(play.execution.first_failure(), None);
    let b = play.execution.step(play.execution.step_key("b").unwrap());
    assert_eq!((b.attempt(), b.max_attempts(), b.failed_attempts().len()), (2, 2, 1), "what was tried before is kept");
}

/// A step that runs again has all its attempts again, with the waits between them.
#[test]
fn a_retried_step_has_its_attempts_again() {
    assert_eq!(
        story("a").tries("a", 2, "1s").replies("a: transient, transient, transient, ok").acts("9s retry").picture(),
        [
            "0s started, a started",
            "1s a waits 1s after TRANSIENT",
            "2s a started attempt 2",
            "3s a failed TRANSIENT, FAILED",
            "9s a run again, a started attempt 3",
            "10s a waits 1s after TRANSIENT",
            "11s a started attempt 4",
            "12s a completed, COMPLETED",
        ]
    );
}

/// A step that had completed runs again when it is named, and so does what depends on it.
#[test]
fn a_completed_execution_is_run_again_from_a_step() {
    assert_eq!(
        story("a; b after a; c").acts("9s retry b").picture()[3..],
        ["3s c completed, COMPLETED", "9s b run again, b started attempt 2", "10s b completed, COMPLETED"]
    );
    assert_eq!(story("a; b after a; c").acts("9s retry a").picture()[4], "9s a b run again, a started attempt 2");
}

/// Steps that ran because of the failure run again, or are skipped now: they depend on steps that run again.
#[test]
fn what_ran_after_a_failure_is_decided_anew() {
    let told = story("a; alarm after a; tidy after a")
        .run_when("alarm", RunWhen::Failure)
        .run_when("tidy", RunWhen::Always)
        .replies("a: invalid, ok");
    assert_eq!(
        told.acts("9s retry").picture()[3..],
        [
            "3s tidy completed, PARTIAL",
            "9s a alarm tidy run again, a started attempt 2",
            "10s a completed, alarm skipped CONDITION_FALSE by a, tidy started attempt 2",
            "11s tidy completed, COMPLETED",
        ]
    );
}

/// A cancelled execution resumes where it was stopped, and has its time limit again.
#[test]
fn a_stopped_execution_goes_on() {
    assert_eq!(
        story("a; b after a").acts("0.5s cancel; 9s retry").picture()[1..],
        [
            "0.5s cancel requested, b skipped CANCELLED, a call 1.1 stopped, a cancelled, CANCELLED",
            "9s a b run again, a started attempt 2",
            "10s a completed, b started",
            "11s b completed, COMPLETED",
        ]
    );
    let out_of_time = story("a; b after a").limit("1.5s").replies("b: ok 2s, ok").acts("9s retry");
    assert_eq!(
        out_of_time.picture()[2..],
        [
            "1.5s out of time, b call 1.1 stopped, b cancelled, TIMED_OUT",
            "9s b run again, b started attempt 2",
            "10s b completed, COMPLETED"
        ]
    );
}

/// S2-X-22: the failed steps are skipped, and what depends on them runs.
#[test]
fn failed_steps_are_skipped() {
    assert_eq!(
        story("a; b after a; c").replies("a: invalid").acts("9s retry skipping").picture()[2..],
        [
            "2s c completed, PARTIAL",
            "9s a b run again, a to skip, a skipped REQUESTED, b started",
            "10s b completed, COMPLETED",
        ]
    );
}

/// Before anything runs again, its plan or its steps can be changed.
#[test]
fn a_retried_execution_can_be_paused_first() {
    assert_eq!(
        story("a; b after a").replies("a: invalid").acts("9s retry paused; 12s set-output a 1 7; 20s resume").picture()
            [2..],
        [
            "9s a b run again, paused",
            "12s a given 7, a completed",
            "20s resumed, b started",
            "21s b completed, COMPLETED",
        ]
    );
}

/// While the other steps run, a failed step can be retried; the steps that depend on it wait again.
#[test]
fn steps_are_retried_while_the_execution_runs() {
    assert_eq!(
        story("a; b after a; c").parallelism(2).replies("a: invalid, ok; c: ok 5s").acts("3s retry").picture()[1..],
        [
            "1s a failed INVALID, b skipped DEPENDENCY_FAILED by a",
            "3s a b run again, a started attempt 2",
            "4s a completed, b started",
            "5s b completed, c completed, COMPLETED",
        ]
    );
}

/// S0-13, S4-11: a step is skipped or completed by hand before it starts, and the steps after it run.
#[test]
fn a_step_that_waits_is_skipped_or_given_its_output() {
    let told = |act: &str| story("a; b after a; c after b").acts(act).picture();
    assert_eq!(
        told("0.5s skip-step b 0")[1..],
        ["0.5s b to skip, b skipped REQUESTED", "1s a completed, c started", "2s c completed, COMPLETED"][..]
    );
    assert_eq!(
        told("0.5s set-output b 0 7")[1..],
        ["0.5s b given 7, b completed", "1s a completed, c started", "2s c completed, COMPLETED"][..]
    );
}

/// S1-28, S1-38: a wait for the next attempt is cut short, or given up with the failure of the last attempt.
#[test]
fn a_retry_is_advanced_or_cancelled() {
    let told = |act: &str| story("a").tries("a", 2, "60s").replies("a: transient, ok").acts(act).play();
    assert_eq!(
        told("5s retry-now a 1").picture()[1..],
        ["1s a waits 60s after TRANSIENT", "5s a to retry now, a started attempt 2", "6s a completed, COMPLETED"]
    );
    let play = told("5s cancel-retry a 1");
    assert_eq!(
        play.picture()[1..],
        ["1s a waits 60s after TRANSIENT", "5s a not to retry, a failed TRANSIENT, FAILED"]
    );
    let a = play.execution.step(play.execution.step_key("a").unwrap());
    assert_eq!(a.failed_attempts().len(), 1, "it is no attempt more");
}

#[test]
fn what_cannot_be_retried_is_refused() {
    let mut play = story("a; b after a; c").replies("a: invalid").play();
    assert_eq!(ask(&mut play, "1", retry(Some("x"))), Err(Refused::NoStep("x".into())));
    assert_eq!(ask(&mut play, "1", retry(Some("b"))), Ok(1));
    assert_eq!(ask(&mut play, "1", retry(Some("b"))), Ok(0), "the same again");
    assert_eq!(ask(&mut play, "1", retry(None)), Err(Refused::RequestIdReused));
    assert_eq!(ask(&mut play, "2", retry(None)), Err(Refused::NothingToRetry), "a runs");
    assert_eq!(ask(&mut play, "2", retry(Some("a"))), Err(Refused::WrongStepState(StepState::Running)));

    let mut play = story("a; b after a").play();
    assert_eq!(ask(&mut play, "1", retry(None)), Err(Refused::NothingToRetry), "all have completed");

    // What depends on the step has started, because it always runs.
    let mut play = story("a; b after a; c").parallelism(2).run_when("b", RunWhen::Always).replies("a: invalid").play();
    play.execution = play.just_after(|body| is_start_of(body, "b"));
    assert_eq!(ask(&mut play, "1", retry(None)), Err(Refused::DependentRuns("b".into())));
}

/// An execution that carried out the plan of a step has told it how it ended, and does not run again by itself. A request that was carried out
/// before that is still known.
#[test]
fn what_has_ended_for_a_step_is_not_retried() {
    let mut play = story("a; b after a").replies("a: invalid").play();
    let step = "namespaces/default/executions/parent/steps/s";
    let created = Created { parent_step: step.to_owned(), ..play.execution.created().clone() };
    let first =
        Event { sequence: 1, time: play.now, actor: None, body: ExecutionEvent::Created(Box::new(created)).into() };
    play.execution = Execution::create(first).unwrap();
    let cancel = || Control::Cancel { reason: String::new(), kill: false };
    assert_eq!(ask(&mut play, "1", cancel()), Ok(1));
    assert!(play.execution.state().is_terminal());
    assert_eq!(ask(&mut play, "2", retry(None)), Err(Refused::EndedForStep(step.to_owned())));
    assert_eq!(ask(&mut play, "1", cancel()), Ok(0), "the same again");
}

#[test]
fn what_runs_or_has_ended_is_not_changed() {
    let mut play = story("a; b after a").play();
    let skip = |step: &str| Control::SkipStep { step: step.into(), reason: String::new() };
    assert_eq!(ask(&mut play, "1", skip("b")), Err(Refused::Ended));

    let mut play = story("a; b after a; c after b").play();
    play.execution = play.just_after(|body| is_start_of(body, "a"));
    let give =
        |step: &str| Control::SetStepOutput { step: step.into(), output: Json::from_text("1"), reason: String::new() };
    assert_eq!(ask(&mut play, "1", skip("a")), Err(Refused::WrongStepState(StepState::Running)));
    assert_eq!(ask(&mut play, "1", skip("x")), Err(Refused::NoStep("x".into())));
    assert_eq!(ask(&mut play, "1", give("b")), Ok(1));
    assert_eq!(ask(&mut play, "1", give("b")), Ok(0), "the same again");
    assert_eq!(ask(&mut play, "2", give("b")), Err(Refused::WrongStepState(StepState::Completed)));
    let now = Control::ChangeRetry { step: "c".into(), change: RetryChange::Now, reason: String::new() };
    assert_eq!(ask(&mut play, "3", now), Err(Refused::WrongStepState(StepState::Ready)));
}

/// Steps that have not started can be changed, removed and added; those that have started or ended stay as they are.
#[test]
fn a_plan_is_changed_while_it_runs() {
    let told = |acts: &str| story("a; b after a; c after b").replies("b: invalid, ok").acts(acts).play();
    assert_eq!(
        told("0.5s update drop c; 0.6s update add d").picture()[1..],
        [
            "0.5s plan 1, c skipped PLAN_UPDATED",
            "0.6s plan 2",
            "1s a completed, b started",
            "2s b failed INVALID, d skipped DEPENDENCY_FAILED by b, PARTIAL",
        ]
    );
    let play = told("0.5s update drop c; 0.6s update add c; 0.7s update rename b; 5s retry");
    assert_eq!(
        play.picture()[1..],
        [
            "0.5s plan 1, c skipped PLAN_UPDATED",
            "0.6s plan 2",
            "0.7s plan 3",
            "1s a completed, b started",
            "2s b failed INVALID, c skipped DEPENDENCY_FAILED by b, PARTIAL",
            "5s b c run again, b started attempt 2",
            "6s b completed, c started",
            "7s c completed, COMPLETED",
        ]
    );
    let b = play.execution.step(play.execution.step_key("b").unwrap());
    assert_eq!((b.spec().title(), play.execution.plan_revision()), ("another", 3));
}

/// The operator's night: an execution fails, its plan is fixed, and it continues without repeating completed steps.
#[test]
fn a_failed_execution_goes_on_with_a_mended_plan() {
    let play = story("a; b after a; c after b").replies("b: invalid, ok");
    assert_eq!(
        play.acts("5s retry paused; 6s update rename b; 7s resume").picture()[2..],
        [
            "2s b failed INVALID, c skipped DEPENDENCY_FAILED by b, PARTIAL",
            "5s b c run again, paused",
            "6s plan 1",
            "7s resumed, b started attempt 2",
            "8s b completed, c started",
            "9s c completed, COMPLETED",
        ]
    );
}

#[test]
fn what_has_started_or_ended_is_not_changed_by_a_plan() {
    let play =
        story("a; b after a; c after b").acts("1.5s update rename a; 1.6s update drop b; 1.7s update drop a").play();
    assert_eq!(
        play.refused,
        [
            "step `a` has started or ended, and cannot change",
            "step `b` has started or ended, and cannot be removed",
            "step `a` has started or ended, and cannot be removed",
        ]
    );
    let play = story("a").acts("5s update add b").play();
    assert_eq!(play.refused, ["the execution has ended"]);
}
