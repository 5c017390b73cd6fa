//! Stop on an error, cancellation and the time limit.

use belay_execution::{ExecutionState, RequiredAction, Waiting};

use crate::support::{act_of, action, call, is, story};

// S4-16, X12, X14: the first failure stops what runs, skips what has not started, and is the result.
#[test]
fn stop_on_error_stops_siblings_and_skips_the_rest() {
    let play = story("a; b; c; d after b").parallelism(2).stop_on_error().replies("a: invalid 2s; b: ok 9s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, b started",
            "2s a failed INVALID, c skipped STOP_ON_ERROR by a, d skipped STOP_ON_ERROR by a, b call 1.1 stopped, b cancelled, FAILED",
        ]
    );
    assert_eq!(play.execution.first_failure().unwrap().reason, "INVALID");
}

// What depends on the failed step could not have run anyway, and says that.
#[test]
fn stop_on_error_is_not_the_reason_of_dependents() {
    assert_eq!(
        story("a; b after a; c").stop_on_error().replies("a: invalid").picture(),
        [
            "0s started, a started",
            "1s a failed INVALID, b skipped DEPENDENCY_FAILED by a, c skipped STOP_ON_ERROR by a, FAILED",
        ]
    );
}

// A sibling that cannot be stopped, or is done before, keeps its result.
#[test]
fn stop_on_error_waits_for_what_cannot_be_stopped() {
    let picture = story("a; b; c after b").parallelism(2).stop_on_error().replies("a: invalid 2s; b: ok! 9s").picture();
    assert_eq!(
        picture,
        [
            "0s started, a started, b started",
            "2s a failed INVALID, c skipped STOP_ON_ERROR by a",
            "9s b completed, FAILED",
        ]
    );
}

// A failure during the wind-up is not tried again, and a step between two attempts ends.
#[test]
fn nothing_is_tried_again_once_stopped() {
    let picture = story("a; b; c")
        .parallelism(3)
        .stop_on_error()
        .tries("b", 5, "9s")
        .tries("c", 5, "9s")
        .replies("a: invalid 3s; b: transient 1s; c: transient! 5s")
        .picture();
    assert_eq!(
        picture,
        [
            "0s started, a started, b started, c started",
            "1s b waits 9s after TRANSIENT",
            "3s a failed INVALID, b cancelled",
            "5s c failed TRANSIENT, FAILED",
        ]
    );
}

// S2-X-02, S1-20: a fatal failure stops the execution, whatever the plan says about errors.
#[test]
fn a_fatal_failure_stops_everything() {
    let picture = story("a; b; c after b; d").parallelism(2).replies("a: fatal 2s; b: ok 9s").picture();
    assert_eq!(
        picture,
        [
            "0s started, a started, b started",
            "2s a failed FATAL, c skipped STOP_ON_ERROR by a, d skipped STOP_ON_ERROR by a, b call 1.1 stopped, b cancelled, FAILED",
        ]
    );
}

// S4-27, S1-26: cancelled while a call runs.
#[test]
fn cancelling_stops_what_runs() {
    let picture = story("a; b after a; c").acts("0.5s cancel").picture();
    assert_eq!(
        picture,
        [
            "0s started, a started",
            "0.5s cancel requested, b skipped CANCELLED, c skipped CANCELLED, a call 1.1 stopped, a cancelled, CANCELLED",
        ]
    );
}

// S1-28: cancelled between two attempts.
#[test]
fn cancelling_interrupts_a_wait() {
    assert_eq!(
        story("a; b").tries("a", 2, "60s").replies("a: transient").acts("5s cancel").picture(),
        [
            "0s started, a started",
            "1s a waits 60s after TRANSIENT",
            "5s cancel requested, a cancelled, b skipped CANCELLED, CANCELLED",
        ]
    );
}

#[test]
fn cancelling_ends_a_pause() {
    assert_eq!(
        story("a; b").acts("0.5s pause; 5s cancel").picture(),
        [
            "0s started, a started",
            "0.5s paused",
            "1s a completed",
            "5s cancel requested, b skipped CANCELLED, CANCELLED",
        ]
    );
    assert_eq!(
        story("a; b").acts("0.5s pause discarding; 5s cancel").picture(),
        [
            "0s started, a started",
            "0.5s paused, discarding, a call 1.1 stopped",
            "5s cancel requested, a cancelled, b skipped CANCELLED, CANCELLED",
        ]
    );
    assert_eq!(
        story("a; b").acts("0s pause; 5s cancel").picture(),
        ["0s paused", "5s cancel requested, a skipped CANCELLED, b skipped CANCELLED, CANCELLED",]
    );
}

// Nobody is asked to resume what is being cancelled.
#[test]
fn cancelling_waits_for_the_call_and_not_for_a_person() {
    let play = story("a; b").replies("a: ok! 9s").acts("1s pause; 2s cancel").play();
    let paused = play.just_after(is::paused);
    let cancelling = play.just_after(is::cancel_requested);
    assert!(matches!(paused.waiting()[..], [Waiting::Resume { .. }]));
    assert!(paused.paused_by().is_some() && play.execution.paused_by().is_none());
    assert_eq!(cancelling.waiting(), []);
    assert_eq!(
        (action(&paused), action(&cancelling)),
        ((call("a", 1, 1), RequiredAction::Dispatch), (call("a", 1, 1), RequiredAction::Cancel))
    );
}

// What a call that cannot be stopped came to is recorded, and cancellation does not make it undone.
#[test]
fn cancelling_too_late_changes_nothing() {
    let play = story("a").replies("a: ok! 2s").acts("1s cancel").play();
    assert_eq!(play.picture(), ["0s started, a started", "1s cancel requested", "2s a completed, COMPLETED",]);
    let ended = story("a").acts("5s cancel; 6s pause; 7s resume").play();
    assert_eq!((ended.state(), ended.execution.last_sequence()), (ExecutionState::Completed, 7));
    assert_eq!(ended.refused.len(), 3, "{:?}", ended.refused);
}

// What a person asks for a second time, or without reason, is refused and changes nothing.
#[test]
fn requests_that_make_no_sense_are_refused() {
    let play = story("a").replies("a: ok 9s").acts("1s resume; 2s pause; 3s pause; 4s resume; 5s resume").play();
    assert_eq!(
        play.refused,
        [
            "an execution that is Running has no move Resumed",
            "an execution that is Paused has no move Paused",
            "an execution that is Running has no move Resumed",
        ]
    );
    let play = story("a").replies("a: ok! 9s").acts("1s cancel; 2s cancel; 3s pause; 4s resume").play();
    assert_eq!(
        play.refused,
        [
            "an execution that is Cancelling has no move CancelRequested",
            "an execution that is Cancelling has no move Paused",
            "an execution that is Cancelling has no move Resumed",
        ]
    );
}

// S1-26, S1-27: a cancellation asks calls to end, and a kill, also after it, does not ask. It is made once.
#[test]
fn a_cancellation_can_become_a_kill() {
    let play = story("a").replies("a: ok! 9s").acts("1s cancel; 2s kill").play();
    let discarding = story("a").acts("0.5s pause discarding; 9s resume").play();
    assert_eq!(
        action(&discarding.just_after(is::paused)),
        (call("a", 1, 1), RequiredAction::Kill),
        "it runs again: nothing waits for it"
    );
    let killed = |body: &_| is::cancel_requested(body) && *body == act_of("kill").1;
    assert_eq!(action(&play.just_after(is::cancel_requested)), (call("a", 1, 1), RequiredAction::Cancel));
    assert_eq!(action(&play.just_after(killed)), (call("a", 1, 1), RequiredAction::Kill));
    assert_eq!(play.state(), ExecutionState::Completed, "it could not be stopped any more");
    let play = story("a").replies("a: ok! 9s").acts("1s kill; 2s kill; 3s cancel").play();
    assert_eq!(play.refused, ["the execution is being killed", "the execution is being killed"]);
}

// S4-26: out of time.
#[test]
fn the_time_limit_ends_everything() {
    let picture = story("a; b; c after b; d").parallelism(2).limit("5s").replies("a: ok; b: ok 9s").picture();
    assert_eq!(
        picture,
        [
            "0s started, a started, b started",
            "1s a completed, d started",
            "2s d completed",
            "5s out of time, c skipped TIMED_OUT, b call 1.1 stopped, b cancelled, TIMED_OUT",
        ]
    );
}

#[test]
fn the_time_limit_does_not_wait_for_a_retry_or_a_person() {
    assert_eq!(
        story("a").limit("5s").tries("a", 2, "60s").replies("a: transient").picture(),
        ["0s started, a started", "1s a waits 60s after TRANSIENT", "5s out of time, a cancelled, TIMED_OUT",]
    );
    assert_eq!(
        story("a").limit("5s").acts("0s pause").picture(),
        ["0s paused", "5s out of time, a skipped TIMED_OUT, TIMED_OUT",]
    );
    assert_eq!(
        story("a").limit("5s").replies("a: unknown").picture(),
        ["0s started, a started", "1s a unknown", "5s out of time, a failed OUTCOME_UNKNOWN, TIMED_OUT",]
    );
}

// Cancellation and the time limit go before the stop on an error; neither goes before the other.
#[test]
fn what_stops_it_first_is_the_reason() {
    let pair = || story("a; b").parallelism(2).stop_on_error().replies("a: invalid; b: ok! 9s");
    assert_eq!(pair().play().state(), ExecutionState::Failed);
    assert_eq!(pair().acts("2s cancel").play().state(), ExecutionState::Cancelled);
    assert_eq!(pair().limit("3s").play().state(), ExecutionState::TimedOut);
    assert_eq!(pair().limit("3s").acts("2s cancel").play().state(), ExecutionState::Cancelled);
    assert_eq!(pair().limit("3s").acts("4s cancel").play().state(), ExecutionState::TimedOut);
}
