//! Limits over executions: an execution waits for its turn, and does nothing before it.

use belay_plan::WhenFull;

use crate::support::story;

// It is there, and nothing of it starts before its turn.
#[test]
fn an_execution_waits_for_its_turn() {
    let play = story("a; b after a").limited(WhenFull::Wait, &[(0, 7)]);
    assert_eq!(
        play.picture(),
        [
            "0s limits requested",
            "7s limits acquired, started, a started",
            "8s a completed, b started",
            "9s b completed, COMPLETED"
        ]
    );
}

// With room it asks and has them at once; it waits from its own time on, and not from its acceptance.
#[test]
fn an_execution_with_a_start_time_asks_for_its_limits_at_that_time() {
    let free = story("a").limited(WhenFull::Wait, &[]);
    assert_eq!(free.picture()[0], "0s limits requested, limits acquired, started, a started");
    let later = story("a").starts_after("5s").limited(WhenFull::Wait, &[(0, 3), (5, 9)]);
    assert_eq!(
        later.picture(),
        ["5s limits requested", "9s limits acquired, started, a started", "10s a completed, COMPLETED"]
    );
}

// An execution that is paused while it waits gives its turn away, and asks again; one that is paused while it runs keeps its limits.
#[test]
fn a_pause_gives_the_turn_away_and_not_the_limits() {
    let waiting = story("a").limited(WhenFull::Wait, &[(0, 9)]).acts("2s pause; 12s resume");
    assert_eq!(
        waiting.picture(),
        [
            "0s limits requested",
            "2s paused",
            "12s resumed, limits requested, limits acquired, started, a started",
            "13s a completed, COMPLETED"
        ]
    );
    let running = story("a; b after a").limited(WhenFull::Wait, &[(1, 99)]).acts("0.5s pause; 12s resume");
    assert_eq!(
        running.picture(),
        [
            "0s limits requested, limits acquired, started, a started",
            "0.5s paused",
            "1s a completed",
            "12s resumed, b started",
            "13s b completed, COMPLETED"
        ]
    );
}

// Its time limit goes on, and it can be cancelled, while it waits: nothing of it has started.
#[test]
fn an_execution_that_waits_can_end() {
    let cancelled = story("a").limited(WhenFull::Wait, &[(0, 99)]).acts("3s cancel");
    assert_eq!(cancelled.picture(), ["0s limits requested", "3s cancel requested, a skipped CANCELLED, CANCELLED"]);
    let late = story("a").limit("4s").limited(WhenFull::Wait, &[(0, 99)]);
    assert_eq!(late.picture(), ["0s limits requested", "4s out of time, a skipped TIMED_OUT, TIMED_OUT"]);
}

// An execution that does not wait is cancelled automatically when its time comes and the limit is full. A request for it is refused before anything is stored.
#[test]
fn an_execution_that_does_not_wait_is_cancelled_at_its_time() {
    let play = story("a").starts_after("5s").limited(WhenFull::Refuse, &[(4, 6)]);
    assert_eq!(play.picture(), ["5s limits requested, cancel requested, a skipped CANCELLED, CANCELLED"]);
}

// An execution that has ended has given its limits back. To run again it asks for them again, also when it is only to be undone.
#[test]
fn an_execution_that_runs_again_waits_again() {
    let play = story("a").limited(WhenFull::Wait, &[(2, 8)]).replies("a: crash, ok").acts("3s retry");
    assert_eq!(
        play.picture(),
        [
            "0s limits requested, limits acquired, started, a started",
            "1s a failed CRASH, FAILED",
            "3s a run again, limits requested",
            "8s limits acquired, a started attempt 2",
            "9s a completed, COMPLETED"
        ]
    );
}
