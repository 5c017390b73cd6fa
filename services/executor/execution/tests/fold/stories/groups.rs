//! Groups of steps with a time limit.

use belay_execution::{Body, OperationEvent, StepEvent, Work};
use serde_json::json;

use crate::support::{Play, story};

/// The time limits of the calls that were requested, by step, in seconds.
fn limits(play: &Play) -> Vec<(String, u64)> {
    let requests = play.events.iter().filter_map(|event| match &event.body {
        Body::Operation { id, event: OperationEvent::Requested(Work::ToolCall(request)) } => {
            Some((id.step.as_str().to_owned(), request.timeout.as_secs()))
        }
        _ => None,
    });
    requests.collect()
}

// The time begins with the first of the group's steps, not with the execution: and what is left of it is what a call may take.
#[test]
fn a_step_that_has_not_ended_in_the_time_of_its_group_fails() {
    let play = story("before; a after before; b after a; c after b; report after c; aside")
        .in_group("g", 10, "a b c")
        .replies("before: ok 5s; a: ok 4s; b: ok 7s")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, before started",
            "5s before completed, a started",
            "9s a completed, b started",
            "15s b failed TOOL_TIMEOUT, c skipped DEPENDENCY_FAILED by b, report skipped DEPENDENCY_SKIPPED by c, aside started",
            "16s aside completed, PARTIAL",
        ]
    );
    assert_eq!(limits(&play)[1..3], [("a".to_owned(), 10), ("b".to_owned(), 6)]);
}

// Of two groups the one that ends first counts; the entries of a list have the time of the group together.
#[test]
fn the_group_that_ends_first_counts() {
    let play = story("a; each after a")
        .in_group("outer", 6, "a each")
        .in_group("inner", 60, "each")
        .for_each("each", json!([1, 2, 3]))
        .replies("a: ok 4s; each~0: ok 3s")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "4s a completed, each started, each lists 3, each~0 started",
            "6s each~0 failed TOOL_TIMEOUT, each~1 failed STEP_TIMEOUT, each~2 failed STEP_TIMEOUT, each failed ITEMS_FAILED, PARTIAL",
        ]
    );
}

// A step that could have started only after that time fails without a call.
#[test]
fn a_retry_gives_the_group_its_time_again() {
    let play = story("a; b; c after a, b")
        .parallelism(2)
        .in_group("g", 5, "a c")
        .replies("a: ok 1s; b: ok 8s")
        .acts("20s retry")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, b started",
            "1s a completed",
            "8s b completed, c failed STEP_TIMEOUT, PARTIAL",
            "20s c run again, c started",
            "21s c completed, COMPLETED",
        ]
    );
    let failure = play.just_after(|body| matches!(body, Body::Step { event: StepEvent::Failed { .. }, .. }));
    let failure = failure.step(failure.step_key("c").unwrap()).failure().unwrap();
    assert_eq!(failure.message, "The time limit of the group `g` ran out before the step had ended.");
}

#[test]
fn a_wait_that_is_longer_than_its_group_leaves_fails_at_once() {
    let play = story("a; b after a").in_group("g", 5, "a b").waits("b", "60s").play();
    assert_eq!(play.picture(), ["0s started, a started", "1s a completed, b started, b failed STEP_TIMEOUT, PARTIAL"]);
}
