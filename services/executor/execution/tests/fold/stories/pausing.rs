//! Pause and resumption.

use std::time::Duration;

use belay_execution::{ExecutionState, Waiting};
use belay_plan::{QueueForLater, RateLimit, RetryPolicy};

use crate::support::{START, is, story};

// Running calls continue to their end; nothing starts until somebody resumes it.
#[test]
fn a_pause_lets_calls_end_and_starts_nothing() {
    assert_eq!(
        story("a; b after a").acts("0.5s pause; 5s resume").picture(),
        [
            "0s started, a started",
            "0.5s paused",
            "1s a completed",
            "5s resumed, b started",
            "6s b completed, COMPLETED",
        ]
    );
}

// Retries wait for the resumption too; a failure during the pause is decided at once.
#[test]
fn a_pause_outlasts_a_wait() {
    let picture = story("a").tries("a", 2, "2s").replies("a: transient, ok").acts("0.5s pause; 9s resume").picture();
    assert_eq!(
        picture,
        [
            "0s started, a started",
            "0.5s paused",
            "1s a waits 2s after TRANSIENT",
            "9s resumed, a started attempt 2",
            "10s a completed, COMPLETED",
        ]
    );
}

// The stopped call burns no attempt: the next call of the same attempt goes out after the resumption.
#[test]
fn a_pause_can_discard_what_runs() {
    let story = story("a; b after a").replies("a: ok 4s, ok").acts("1s pause discarding; 5s resume");
    assert_eq!(
        story.play().full_picture(),
        [
            "0s started, a started, a call 1.1",
            "1s paused, discarding, a call 1.1 stopped",
            "5s resumed, a call 1.2",
            "6s a call 1.2 ok, a completed, b started, b call 1.1",
            "7s b call 1.1 ok, b completed, COMPLETED",
        ]
    );
}

// S2-FR-067: the numbers rise within the attempt and begin anew in the next.
#[test]
fn calls_are_numbered_within_their_attempt() {
    let story = story("a")
        .tries("a", 2, "1s")
        .replies("a: ok 9s, ok 9s, transient, ok 9s, ok")
        .acts("1s pause discarding; 2s resume; 3s pause discarding; 4s resume; 7s pause discarding; 8s resume");
    assert_eq!(
        story.play().full_picture(),
        [
            "0s started, a started, a call 1.1",
            "1s paused, discarding, a call 1.1 stopped",
            "2s resumed, a call 1.2",
            "3s paused, discarding, a call 1.2 stopped",
            "4s resumed, a call 1.3",
            "5s a call 1.3 TRANSIENT, a waits 1s after TRANSIENT",
            "6s a started attempt 2, a call 2.1",
            "7s paused, discarding, a call 2.1 stopped",
            "8s resumed, a call 2.2",
            "9s a call 2.2 ok, a completed, COMPLETED",
        ]
    );
}

// A call that ends before it can be stopped counts.
#[test]
fn discarding_comes_too_late_for_a_call_that_cannot_be_stopped() {
    let play = story("a; b").replies("a: ok! 4s").acts("1s pause discarding; 9s resume").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s paused, discarding",
            "4s a completed",
            "9s resumed, b started",
            "10s b completed, COMPLETED",
        ]
    );
}

// A runner that gives up a call by itself, a restart of its host for one, is asked again.
#[test]
fn a_call_that_was_stopped_by_nobody_goes_out_again() {
    assert_eq!(
        story("a").replies("a: cancelled 2s, ok").picture(),
        ["0s started, a started", "2s a call 1.1 stopped, a call 1.2", "3s a completed, COMPLETED",]
    );
}

#[test]
fn it_can_begin_paused() {
    assert_eq!(
        story("a").acts("0s pause; 7s resume").picture(),
        ["0s paused", "7s resumed, started, a started", "8s a completed, COMPLETED",]
    );
}

// A paused execution that has nothing left to do has ended.
#[test]
fn the_end_of_the_last_call_ends_a_paused_execution() {
    assert_eq!(
        story("a").acts("0.5s pause").picture(),
        ["0s started, a started", "0.5s paused", "1s a completed, COMPLETED",]
    );
    assert_eq!(
        story("a; b").parallelism(2).replies("a: invalid; b: ok").acts("0.5s pause").picture(),
        ["0s started, a started, b started", "0.5s paused", "1s a failed INVALID, b completed, PARTIAL",]
    );
    assert_eq!(
        story("a; b after a").replies("a: invalid").acts("0.5s pause").picture(),
        ["0s started, a started", "0.5s paused", "1s a failed INVALID, b skipped DEPENDENCY_FAILED by a, FAILED",]
    );
}

// A paused execution waits for a person and for its time limit, not for its retries.
#[test]
fn a_pause_needs_no_timer() {
    let play = story("a").tries("a", 2, "60s").replies("a: transient").acts("2s pause").play();
    assert!(play.execution.is_parked());
    assert_eq!(play.execution.actions(), []);
    let limited = story("a").limit("99s").tries("a", 2, "60s").replies("a: transient").acts("2s pause").play();
    let paused = limited.just_after(is::paused);
    assert_eq!((paused.actions(), paused.wake_at()), (vec![], Some(START.saturating_add(Duration::from_secs(99)))));
}

// S2-X-20: a pause with a time ends by itself; a person may end it before, and pause again.
#[test]
fn a_pause_can_end_by_itself() {
    let picture = story("a; b after a").acts("0.5s pause until 9s").picture();
    assert_eq!(
        picture,
        [
            "0s started, a started",
            "0.5s paused until 9s",
            "1s a completed",
            "9s resumed, b started",
            "10s b completed, COMPLETED"
        ]
    );
    let play = story("a; b after a").acts("0.5s pause until 9s; 2s resume; 2.5s pause").play();
    assert_eq!(play.just_after(is::paused).wake_at(), Some(START.saturating_add(Duration::from_secs(9))));
}

// S0-15, S4-29, X1: a rate limit that is queued for later pauses the execution until the failure's time, or for five minutes; other steps wait as well.
#[test]
fn a_rate_limit_is_queued_for_later() {
    let queued = || RetryPolicy {
        max_attempts: 3,
        rate_limit: RateLimit::QueueForLater(QueueForLater::QueueForLater),
        ..RetryPolicy::default()
    };
    let picture = story("a; b").retry("a", queued()).replies("a: rate-limit, ok").picture();
    assert_eq!(
        picture[1..3],
        ["1s a waits 300s after RATE-LIMIT, paused until 301s", "301s resumed, a started attempt 2"],
        "{picture:#?}"
    );
    let again =
        story("a; b").retry("a", queued()).replies("a: rate-limit 2s, ok").acts("1s pause; 3s cancel; 4s retry");
    assert_eq!(again.picture().last().unwrap(), "6s b completed, COMPLETED");
    let named = story("a; b").retry("a", queued()).replies("a: used-up, ok").play();
    let waiting = named.just_after(is::paused).waiting();
    assert!(matches!(waiting[..], [Waiting::Resume { until: Some(_), .. }]), "{waiting:?}");
    assert_eq!(named.state(), ExecutionState::Completed);
}
