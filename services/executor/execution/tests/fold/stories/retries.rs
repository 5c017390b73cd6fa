//! Retries: of which failures, when, and how many.

use std::time::Duration;

use belay_execution::{Body, OperationEvent, StepEvent, Work};
use belay_plan::{Backoff, Profile, RetryPolicy};

use crate::support::{Story, story};

/// The delays between the attempts of a step that never succeeds, in seconds.
fn delays(retry: RetryPolicy) -> Vec<u64> {
    let attempts = retry.max_attempts;
    let replies = format!("draft: {}", vec!["transient"; attempts as usize].join(", "));
    let play = story("draft").retry("draft", retry).replies(&replies).play();
    let waited = play.events.iter().filter_map(|event| match event.body {
        Body::Step { event: StepEvent::RetryScheduled { delay, .. }, .. } => Some(delay.as_secs()),
        _ => None,
    });
    waited.collect()
}

fn exponential(max_retries: u32, initial: u64, factor: f64, max: u64) -> RetryPolicy {
    let (initial, max) = (Duration::from_secs(initial), Duration::from_secs(max));
    RetryPolicy {
        max_attempts: max_retries + 1,
        backoff: Backoff::Exponential { initial, factor, max },
        ..RetryPolicy::default()
    }
}

fn list(max_attempts: u32, delays: &[u64]) -> RetryPolicy {
    RetryPolicy {
        max_attempts,
        backoff: Backoff::List(delays.iter().copied().map(Duration::from_secs).collect()),
        ..RetryPolicy::default()
    }
}

// REQUIREMENTS section 3, the numbers of each source.
#[test]
fn the_delays_are_those_of_the_sources() {
    // S0-02, S0-08.
    assert_eq!(delays(exponential(2, 2, 2.0, 30)), [2, 4]);
    assert_eq!(delays(exponential(5, 2, 2.0, 30)), [2, 4, 8, 16, 30]);
    // S1-11, S1-12.
    assert_eq!(delays(exponential(3, 5, 3.0, 3_600)), [5, 15, 45]);
    assert_eq!(delays(list(4, &[60, 120, 300])), [60, 120, 300]);
    // S2-FR-060, S2-FR-064, S2-FR-065.
    assert_eq!(delays(exponential(3, 1, 2.0, 30)), [1, 2, 4]);
    // S3-03, S3-06: the source counts attempts.
    assert_eq!(delays(exponential(2, 2, 2.0, 3_600)), [2, 4]);
    // S4-21: what the list lacks is a second; one attempt unless said otherwise.
    assert_eq!(delays(list(4, &[3])), [3, 1, 1]);
    assert_eq!(delays(RetryPolicy::default()), [0_u64; 0]);
}

/// S1-12, S1-20, S0-10, S0-14: after a rate limit the delays are others, or there is no further attempt and the failure reaches the caller as it is; what a program
/// printed says which failure it was.
#[test]
fn a_rate_limit_has_delays_of_its_own() {
    let play = |profile: Profile, replies: &str| {
        story("draft").retry("draft", profile.policy()).replies(&format!("draft: {replies}")).picture()
    };
    assert_eq!(
        play(Profile::Supervisor, "rate-limit, transient, says-429, ok"),
        [
            "0s started, draft started",
            "1s draft waits 60s after RATE-LIMIT",
            "61s draft started attempt 2",
            "62s draft waits 15s after TRANSIENT",
            "77s draft started attempt 3",
            "78s draft waits 300s after SAYS-429",
            "378s draft started attempt 4",
            "379s draft completed, COMPLETED",
        ]
    );
    assert_eq!(
        play(Profile::Supervisor, "says-key"),
        ["0s started, draft started", "1s draft failed SAYS-KEY, FAILED"]
    );
    assert_eq!(
        play(Profile::QuotaAware, "rate-limit"),
        ["0s started, draft started", "1s draft failed RATE-LIMIT, FAILED"]
    );
    // Without classification a program's words mean nothing.
    assert_eq!(play(Profile::QuotaAware, "says-key, ok")[1], "1s draft waits 2s after SAYS-KEY");
}

// S0-07, S2-FR-059, S2-FR-067, S3-09, S4-22: the attempts are counted and each says why the one before failed.
#[test]
fn a_passing_failure_is_tried_again() {
    let story =
        story("draft; publish after draft").tries("draft", 3, "2s 4s").replies("draft: transient, rate-limit, ok");
    assert_eq!(
        story.play().full_picture(),
        [
            "0s started, draft started, draft call 1.1",
            "1s draft call 1.1 TRANSIENT, draft waits 2s after TRANSIENT",
            "3s draft started attempt 2, draft call 2.1",
            "4s draft call 2.1 RATE-LIMIT, draft waits 4s after RATE-LIMIT",
            "8s draft started attempt 3, draft call 3.1",
            "9s draft call 3.1 ok, draft completed, publish started, publish call 1.1",
            "10s publish call 1.1 ok, publish completed, COMPLETED",
        ]
    );
}

// S0-14: a retry before the quota is full again could not succeed.
#[test]
fn a_failure_says_when_a_retry_can_succeed() {
    let story = story("draft").tries("draft", 3, "2s 60s").replies("draft: used-up, used-up, ok");
    assert_eq!(
        story.play().full_picture(),
        [
            "0s started, draft started, draft call 1.1",
            "1s draft call 1.1 USED-UP, draft waits 30s after USED-UP",
            "31s draft started attempt 2, draft call 2.1",
            "32s draft call 2.1 USED-UP, draft waits 60s after USED-UP",
            "92s draft started attempt 3, draft call 3.1",
            "93s draft call 3.1 ok, draft completed, COMPLETED",
        ]
    );
}

// S0-13, S2-FR-061: the last attempt's failure is the step's.
#[test]
fn the_last_failure_is_the_result() {
    assert_eq!(
        story("draft").tries("draft", 2, "2s").replies("draft: transient, crash").picture(),
        [
            "0s started, draft started",
            "1s draft waits 2s after TRANSIENT",
            "3s draft started attempt 2",
            "4s draft failed CRASH, FAILED",
        ]
    );
}

// S0-09, S1-20, S2-FR-062: some failures are not worth another attempt.
#[test]
fn what_cannot_get_better_is_not_tried_again() {
    for word in ["fatal", "invalid", "denied"] {
        let failed = format!("1s draft failed {}, FAILED", word.to_uppercase());
        let picture = story("draft").tries("draft", 5, "1s").replies(&format!("draft: {word}")).picture();
        assert_eq!(picture, ["0s started, draft started", failed.as_str()]);
    }
}

// A step that waits for its next attempt keeps its place: a plan for one at a time has one step under way.
#[test]
fn a_wait_between_attempts_holds_the_slot() {
    let pair = || story("a; b").tries("a", 2, "5s").replies("a: transient, ok");
    assert_eq!(
        pair().picture(),
        [
            "0s started, a started",
            "1s a waits 5s after TRANSIENT",
            "6s a started attempt 2",
            "7s a completed, b started",
            "8s b completed, COMPLETED",
        ]
    );
    assert_eq!(
        pair().parallelism(2).picture(),
        [
            "0s started, a started, b started",
            "1s a waits 5s after TRANSIENT, b completed",
            "6s a started attempt 2",
            "7s a completed, COMPLETED",
        ]
    );
}

// What is under way goes before what is new.
#[test]
fn a_retry_goes_before_a_step_that_could_start() {
    let story = story("a; b; c").parallelism(2).tries("a", 2, "1s").replies("a: transient, ok; b: ok 2s");
    assert_eq!(
        story.picture(),
        [
            "0s started, a started, b started",
            "1s a waits 1s after TRANSIENT",
            "2s b completed, a started attempt 2, c started",
            "3s a completed, c completed, COMPLETED",
        ]
    );
}

// S2-FR-048, S3-08: an attempt that takes too long is stopped by the runner, and tried again.
#[test]
fn an_attempt_has_a_time_limit() {
    let story = story("draft").attempt_limit("draft", "3s").tries("draft", 2, "1s").replies("draft: ok 10s, ok 2s");
    assert_eq!(
        story.picture(),
        [
            "0s started, draft started",
            "3s draft waits 1s after TOOL_TIMEOUT",
            "4s draft started attempt 2",
            "6s draft completed, COMPLETED",
        ]
    );
}

/// A step of 10 s that fails after 4 s and could be tried again.
fn limited(delay: &str) -> Story {
    story("draft").step_limit("draft", "10s").tries("draft", 9, delay).replies("draft: transient 4s, ok 9s")
}

// S2-FR-048: the time limit of a step counts the waits, and its last attempt gets what is left.
#[test]
fn a_step_has_a_time_limit_over_all_its_attempts() {
    let play = limited("5s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, draft started",
            "4s draft waits 5s after TRANSIENT",
            "9s draft started attempt 2",
            "10s draft failed TOOL_TIMEOUT, FAILED",
        ]
    );
    let timeouts: Vec<u64> = play
        .events
        .iter()
        .filter_map(|event| match &event.body {
            Body::Operation { event: OperationEvent::Requested(Work::ToolCall(request)), .. } => {
                Some(request.timeout.as_secs())
            }
            _ => None,
        })
        .collect();
    assert_eq!(timeouts, [10, 1]);
}

#[test]
fn no_wait_begins_that_outlasts_the_step() {
    let play = limited("6s").play();
    assert_eq!(play.picture(), ["0s started, draft started", "4s draft failed TRANSIENT, FAILED"]);
    let message = &play.execution.first_failure().unwrap().message;
    assert!(message.ends_with("the step's time limit leaves no room for another attempt"), "{message}");
}

#[test]
fn a_pause_can_use_up_the_time_of_a_step() {
    assert_eq!(
        limited("2s").acts("5s pause; 20s resume").picture(),
        [
            "0s started, draft started",
            "4s draft waits 2s after TRANSIENT",
            "5s paused",
            "20s resumed, draft failed STEP_TIMEOUT, FAILED",
        ]
    );
    // The same for a step whose call was stopped by the pause.
    assert_eq!(
        limited("2s").acts("3s pause discarding; 20s resume").picture(),
        [
            "0s started, draft started",
            "3s paused, discarding, draft call 1.1 stopped",
            "20s resumed, draft failed STEP_TIMEOUT, FAILED",
        ]
    );
}
