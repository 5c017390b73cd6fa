//! Calls whose outcome is not known.

use belay_execution::Waiting;

use crate::support::story;

// REQUIREMENTS section 1: the step is parked, what depends on it waits, everything else goes on.
#[test]
fn an_unknown_outcome_parks_its_step_and_nothing_else() {
    let play = story("pay; receipt after pay; clean; tidy after clean").replies("pay: unknown").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, pay started",
            "1s pay unknown, clean started",
            "2s clean completed, tidy started",
            "3s tidy completed",
        ]
    );
    assert!(play.execution.is_parked());
    assert!(matches!(play.execution.waiting()[..], [Waiting::Outcome { .. }]));
}

// It is never retried automatically, however many attempts are left.
#[test]
fn an_unknown_outcome_is_not_tried_again() {
    assert_eq!(
        story("pay").tries("pay", 5, "1s").replies("pay: unknown").picture(),
        ["0s started, pay started", "1s pay unknown",]
    );
}

// An outcome that is still unknown at the end is a failure, and the failure says so.
#[test]
fn stopping_ends_a_step_whose_outcome_is_unknown() {
    let play = story("pay; receipt after pay").replies("pay: unknown").acts("9s cancel").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, pay started",
            "1s pay unknown",
            "9s cancel requested, pay failed OUTCOME_UNKNOWN, receipt skipped CANCELLED, CANCELLED",
        ]
    );
    assert_eq!(
        play.execution.first_failure().unwrap().message,
        "The execution was stopped before anybody found out whether the step's call took effect."
    );
    assert_eq!(
        story("pay; b").stop_on_error().replies("pay: unknown; b: invalid").picture(),
        [
            "0s started, pay started",
            "1s pay unknown, b started",
            "2s b failed INVALID, pay failed OUTCOME_UNKNOWN, FAILED",
        ]
    );
}

// A call whose end becomes unknown while everything is being stopped.
#[test]
fn an_outcome_can_become_unknown_during_the_wind_up() {
    assert_eq!(
        story("pay; b").replies("pay: unknown! 5s").acts("2s cancel").picture(),
        [
            "0s started, pay started",
            "2s cancel requested, b skipped CANCELLED",
            "5s pay unknown, pay failed OUTCOME_UNKNOWN, CANCELLED",
        ]
    );
}
