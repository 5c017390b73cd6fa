//! Escalation, when steps have failed after all their attempts. S2-X-20, S2-FR-061.

use belay_execution::{ExecutionState, Waiting};
use belay_plan::{Backoff, RetryPolicy, Then};

use crate::support::{is, story};

/// Each level is an event: the attempts of the step, the retries of what has failed, the pause.
#[test]
fn what_has_failed_runs_again_and_then_a_person_is_waited_for() {
    let story = story("a; b after a; c")
        .retry("a", RetryPolicy { max_attempts: 2, backoff: Backoff::List(Vec::new()), ..RetryPolicy::default() })
        .escalation(2, &[10], Then::Pause)
        .replies("a: transient, transient, transient, transient, transient, transient");
    let play = story.play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a waits 1s after TRANSIENT",
            "2s a started attempt 2",
            "3s a failed TRANSIENT, b skipped DEPENDENCY_FAILED by a, c started",
            "4s c completed, a b run again at 14s",
            "14s resumed, a started attempt 3",
            "15s a waits 1s after TRANSIENT",
            "16s a started attempt 4",
            // A delay that is missing is 1 s.
            "17s a failed TRANSIENT, b skipped DEPENDENCY_FAILED by a, a b run again at 18s",
            "18s resumed, a started attempt 5",
            "19s a waits 1s after TRANSIENT",
            "20s a started attempt 6",
            "21s a failed TRANSIENT, b skipped DEPENDENCY_FAILED by a, paused",
        ]
    );
    assert_eq!(play.state(), ExecutionState::Paused);
    let waiting = play.just_after(is::paused).waiting();
    assert!(matches!(waiting[..], [Waiting::Resume { until: None, .. }]), "{waiting:?}");
}

/// A person resumes to let it end, has the step run again, or cancels; the escalation begins anew for a retry.
#[test]
fn a_person_decides_about_what_has_failed() {
    let failing =
        || story("a").escalation(1, &[], Then::Pause).replies("a: transient, transient, transient, transient, ok");
    let last = |acts| failing().acts(acts).picture().last().unwrap().clone();
    assert_eq!(last("9s resume"), "9s resumed, FAILED");
    assert_eq!(last("9s cancel"), "9s cancel requested, CANCELLED");
    // An execution that the escalation has paused resumes with the retry.
    let retried = failing().acts("9s retry; 30s retry").picture();
    assert_eq!(
        retried[4..],
        [
            "9s a run again, resumed, a started attempt 3",
            "10s a failed TRANSIENT, a run again at 11s",
            "11s resumed, a started attempt 4",
            "12s a failed TRANSIENT, paused",
            "30s a run again, resumed, a started attempt 5",
            "31s a completed, COMPLETED",
        ]
    );
}

/// A failure that would repeat is not retried; without a pause, the execution ends.
#[test]
fn what_would_fail_again_goes_to_the_end_of_the_escalation() {
    let ends = |then| {
        let story = story("a; b").escalation(3, &[], then).replies("a: denied; b: transient");
        story.picture().last().unwrap().clone()
    };
    assert_eq!(ends(Then::Pause), "2s b failed TRANSIENT, paused");
    assert_eq!(ends(Then::Fail), "2s b failed TRANSIENT, FAILED");
    let again = story("a").escalation(1, &[2], Then::Fail).replies("a: transient, transient").picture();
    assert_eq!(
        again[1..],
        [
            "1s a failed TRANSIENT, a run again at 3s",
            "3s resumed, a started attempt 2",
            "4s a failed TRANSIENT, FAILED"
        ]
    );
}

/// Steps that were stopped by the first failure run again with it, and nothing is compensated before the escalation has ended.
#[test]
fn an_escalation_comes_before_the_end_and_before_undoing() {
    let story = || story("a; b after a; c after b").stop_on_error().compensated("a").escalation(1, &[5], Then::Fail);
    assert_eq!(
        story().replies("b: transient, ok").picture()[2..],
        [
            "2s b failed TRANSIENT, c skipped DEPENDENCY_FAILED by b, b c run again at 7s",
            "7s resumed, b started attempt 2",
            "8s b completed, c started",
            "9s c completed, COMPLETED",
        ]
    );
    let undone = story().replies("b: transient, transient").picture();
    assert!(undone.last().unwrap().contains("FAILED") && undone.join("; ").contains("compensate"), "{undone:#?}");
    assert!(undone[4].starts_with("8s b failed") && undone[4].contains("undoes a"), "{undone:#?}");
}

/// The time limit of the plan keeps running, and a person's pause is not ended by an escalation.
#[test]
fn an_escalation_keeps_time_limits_and_pauses() {
    let limited = story("a").limit("6s").escalation(1, &[10], Then::Pause).replies("a: transient");
    assert_eq!(limited.picture().last().unwrap(), "6s out of time, a skipped TIMED_OUT, TIMED_OUT");
    let paused = story("a").escalation(1, &[2], Then::Fail).replies("a: transient 3s, ok").acts("1s pause; 20s resume");
    assert_eq!(
        paused.picture()[1..],
        [
            "1s paused",
            "3s a failed TRANSIENT",
            "20s resumed, a run again at 22s",
            "22s resumed, a started attempt 2",
            "23s a completed, COMPLETED"
        ]
    );
}

/// A plan that stops on the first failure waits for a person as any other, who has what failed and what was stopped run again.
#[test]
fn what_has_stopped_a_plan_runs_again_after_its_pause() {
    let story = || story("a; b").escalation(0, &[], Then::Pause);
    let stops = || story().stop_on_error().replies("a: transient, ok");
    let again =
        ["9s a b run again, resumed, a started attempt 2", "10s a completed, b started", "11s b completed, COMPLETED"];
    let picture = stops().acts("9s retry").picture();
    assert_eq!(picture[1], "1s a failed TRANSIENT, b skipped STOP_ON_ERROR by a, paused");
    assert_eq!(picture[2..], again);
    // A failure that stops any plan stops this one no further either.
    assert_eq!(story().replies("a: fatal, ok").acts("9s retry").picture()[2..], again);
    // A person has paused it before.
    let paused =
        story().stop_on_error().replies("a: transient 3s, ok").acts("1s pause; 9s retry; 10s resume").picture();
    assert_eq!(paused[1..4], ["1s paused", "3s a failed TRANSIENT, b skipped STOP_ON_ERROR by a", "9s a b run again"]);
    assert_eq!(paused.last().unwrap(), "12s b completed, COMPLETED");
    // Without a retry it ends as it is.
    assert_eq!(stops().acts("9s resume").picture()[2..], ["9s resumed, FAILED"]);
    assert_eq!(stops().acts("9s cancel").picture()[2..], ["9s cancel requested, CANCELLED"]);
}
