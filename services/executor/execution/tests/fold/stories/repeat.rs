//! Steps that run again until a condition holds.

use belay_execution::{Body, StepEvent, Waiting};
use serde_json::json;

use crate::support::story;

#[test]
fn each_round_is_a_step_of_its_own_and_the_last_gives_the_output() {
    let play = story("poll; report after poll")
        .repeat("poll", "${poll.result.state} == 'done'", 5)
        .arguments("poll", json!({"round": "${item.value.round}", "before": "${poll.result.state ?? null}"}))
        .output("poll~0", &json!({"state": "new"}))
        .output("poll~1", &json!({"state": "busy"}))
        .output("poll~2", &json!({"state": "done"}))
        .arguments("report", json!({"last": "${poll.result}", "first": "${poll.results[0].value.state}"}))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, poll started, poll lists 1, poll~0 started",
            "1s poll~0 completed, poll lists 1 more after 1, poll~1 started",
            "2s poll~1 completed, poll lists 1 more after 2, poll~2 started",
            "3s poll~2 completed, poll collects {\"state\":\"done\"}, poll completed, report started",
            "4s report completed, COMPLETED",
        ]
    );
    assert_eq!(play.arguments("poll~0"), r#"{"before":null,"round":1}"#);
    assert_eq!(play.arguments("poll~2"), r#"{"before":"busy","round":3}"#);
    assert_eq!(play.arguments("report"), r#"{"first":"new","last":{"state":"done"}}"#);
}

#[test]
fn rounds_after_a_delay_wait_without_a_slot_and_are_seen_to() {
    let play = story("poll; other; third")
        .parallelism(1)
        .repeat("poll", "${poll.result.n ?? 0} == 1", 3)
        .delay("poll", 10)
        .output("poll~0", &json!({"n": 0}))
        .output("poll~1", &json!({"n": 1}))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, poll started, poll lists 1, other started",
            "1s other completed, third started",
            "2s third completed, poll~0 started",
            "3s poll~0 completed, poll lists 1 more after 1",
            "13s poll~1 started",
            "14s poll~1 completed, poll collects {\"n\":1}, poll completed, COMPLETED",
        ]
    );
    let waiting =
        play.just_after(|body| matches!(body, Body::Step { event: StepEvent::ItemsListed { first: 1, .. }, .. }));
    let round = waiting.step(waiting.step_key("poll~1").expect("it is listed")).waiting();
    assert!(matches!(round, Some(Waiting::Time { .. })), "{round:?}");
    assert!(matches!(waiting.waiting()[..], [Waiting::Time { .. }]), "{:?}", waiting.waiting());
    assert!(waiting.is_parked() && waiting.wake_at().is_some());
}

#[test]
fn a_step_whose_rounds_are_never_enough_fails_after_the_last() {
    let play =
        story("poll; report after poll").repeat("poll", "${poll.result.ok}", 2).output("poll~0", &json!({"ok": false}));
    let play = play.output("poll~1", &json!({"ok": false})).play();
    assert_eq!(
        play.picture(),
        [
            "0s started, poll started, poll lists 1, poll~0 started",
            "1s poll~0 completed, poll lists 1 more after 1, poll~1 started",
            "2s poll~1 completed, poll failed ROUNDS_EXHAUSTED, report skipped DEPENDENCY_FAILED by poll, PARTIAL",
        ]
    );
    let failure = play.execution.step(play.execution.step_key("poll").unwrap()).failure().unwrap();
    assert_eq!(
        failure.message,
        "`until` (`${poll.result.ok}`) does not hold after 2 rounds, which is `max`. The last is `poll~1`."
    );
}

#[test]
fn a_round_that_fails_after_its_attempts_fails_the_step() {
    let play = story("poll")
        .repeat("poll", "${poll.result.ok}", 9)
        .tries("poll", 2, "1s")
        .output("poll~0", &json!({"ok": false}));
    let play = play.replies("poll~1: transient, transient").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, poll started, poll lists 1, poll~0 started",
            "1s poll~0 completed, poll lists 1 more after 1, poll~1 started",
            "2s poll~1 waits 1s after TRANSIENT",
            "3s poll~1 started attempt 2",
            "4s poll~1 failed TRANSIENT, poll failed ITEMS_FAILED, PARTIAL",
        ]
    );
    let failure = play.execution.step(play.execution.step_key("poll").unwrap()).failure().unwrap();
    assert_eq!(failure.message, "1 of 2 rounds failed; the first is `poll~1`: The call ended with transient.");
}

#[test]
fn a_step_that_is_made_to_run_again_begins_with_its_first_round() {
    let play = story("poll").repeat("poll", "${poll.result.ok ?? false}", 2).acts("9s retry").play();
    assert_eq!(
        play.picture()[2..],
        [
            "2s poll~1 completed, poll failed ROUNDS_EXHAUSTED, PARTIAL",
            "9s poll run again, poll started attempt 2, poll lists 1, poll~0 started attempt 2",
            "10s poll~0 completed, poll lists 1 more after 1, poll~1 started attempt 2",
            "11s poll~1 completed, poll failed ROUNDS_EXHAUSTED, PARTIAL",
        ]
    );
}

#[test]
fn a_round_that_a_person_skips_is_not_enough() {
    let play = story("poll")
        .repeat("poll", "${poll.result.ok ?? false}", 3)
        .delay("poll", 5)
        .output("poll~0", &json!({"ok": false}))
        .output("poll~2", &json!({"ok": true}))
        .acts("3s skip-step poll~1 0")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, poll started, poll lists 1, poll~0 started",
            "1s poll~0 completed, poll lists 1 more after 1",
            "3s poll~1 to skip, poll~1 skipped REQUESTED, poll lists 1 more after 2",
            "8s poll~2 started",
            "9s poll~2 completed, poll collects {\"ok\":true}, poll completed, COMPLETED",
        ]
    );
}

#[test]
fn an_execution_that_is_cancelled_between_rounds_ends_at_once() {
    let play = story("poll").repeat("poll", "${poll.result.ok ?? false}", 3).delay("poll", 60).acts("3s cancel").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, poll started, poll lists 1, poll~0 started",
            "1s poll~0 completed, poll lists 1 more after 1",
            "3s cancel requested, poll~1 skipped CANCELLED, poll cancelled, CANCELLED",
        ]
    );
}
