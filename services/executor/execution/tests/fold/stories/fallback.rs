//! Calls that take the place of others, and what steps use one at a time.

use serde_json::json;

use crate::support::story;

/// S1-16, S1-21, S1-23, S1-32: each call has all attempts; then the next takes its place, at once and visibly; the failure is that of the last.
#[test]
fn each_call_has_all_its_attempts() {
    let play = |replies: &str| {
        story("draft").fallback("draft", "other third").tries("draft", 2, "5s").replies(replies).picture()
    };
    assert_eq!(
        play("draft: transient, transient, transient, ok"),
        [
            "0s started, draft started",
            "1s draft waits 5s after TRANSIENT",
            "6s draft started attempt 2",
            "7s draft work gives way to other after TRANSIENT, draft started attempt 3",
            "8s draft waits 5s after TRANSIENT",
            "13s draft started attempt 4",
            "14s draft completed, COMPLETED",
        ]
    );
    let exhausted = play("draft: transient, transient, timeout, timeout, crash, rate-limit");
    assert_eq!(exhausted.last().unwrap(), "21s draft failed RATE-LIMIT, FAILED");
    assert!(
        exhausted.contains(&"14s draft other gives way to third after TIMEOUT, draft started attempt 5".to_owned())
    );
}

/// X4: what cannot be started is not tried again where another call can take its place.
#[test]
fn what_cannot_be_started_gives_way_at_once() {
    let picture = story("draft")
        .fallback("draft", "other")
        .tries("draft", 3, "5s")
        .replies("draft: unavailable, unavailable")
        .picture();
    assert_eq!(
        picture,
        [
            "0s started, draft started",
            "1s draft work gives way to other after UNAVAILABLE, draft started attempt 2",
            "2s draft failed UNAVAILABLE, FAILED",
        ]
    );
}

/// S1-20: nothing takes the place of what failed for good, or was denied.
#[test]
fn a_denial_is_not_gone_round() {
    for (reply, reason) in [("fatal", "FATAL"), ("denied", "DENIED"), ("invalid", "INVALID")] {
        let picture = story("draft").fallback("draft", "other").replies(&format!("draft: {reply}")).picture();
        assert_eq!(picture[1], format!("1s draft failed {reason}, FAILED"));
    }
}

/// A step that is made to run again begins with its own call.
#[test]
fn a_retry_begins_with_the_first_call() {
    let picture = story("draft")
        .fallback("draft", "other")
        .replies("draft: transient, transient, transient, ok")
        .acts("5s retry")
        .picture();
    assert_eq!(
        picture[3..],
        [
            "5s draft run again, draft started attempt 3",
            "6s draft work gives way to other after TRANSIENT, draft started attempt 4",
            "7s draft completed, COMPLETED",
        ]
    );
}

/// Steps that use the same thing run one after the other, in the plan's order; the others beside them.
#[test]
fn what_a_step_uses_no_other_uses() {
    let picture = story("a; b; c; d")
        .parallelism(4)
        .resources("a", "db cache")
        .resources("b", "db")
        .resources("c", "cache")
        .replies("a: ok 2s; b: ok 3s; c: ok 1s; d: ok 1s")
        .picture();
    assert_eq!(
        picture,
        [
            "0s started, a started, d started",
            "1s d completed",
            "2s a completed, b started, c started",
            "3s c completed",
            "5s b completed, COMPLETED",
        ]
    );
}

/// As many steps use a resource at once as the plan says: with a list, as many of its entries.
#[test]
fn a_resource_is_used_by_as_many_as_the_plan_says() {
    let picture = story("a; b; c; d")
        .parallelism(4)
        .resources("a", "api")
        .resources("b", "api db")
        .resources("c", "api")
        .resources("d", "db")
        .capacity("api", 2)
        .replies("a: ok 2s; b: ok 3s; c: ok 1s; d: ok 1s")
        .picture();
    assert_eq!(
        picture,
        [
            "0s started, a started, b started",
            "2s a completed, c started",
            "3s b completed, d started, c completed",
            "4s d completed, COMPLETED",
        ]
    );
    let entries = story("each").for_each("each", json!([1, 2, 3])).parallelism(8).resources("each", "api");
    let picture = entries.capacity("api", 2).replies("each~0: ok 2s; each~1: ok 1s; each~2: ok 3s").picture();
    let started: Vec<_> = picture.iter().filter(|line| line.contains("each~2 started")).collect();
    assert!(started.len() == 1 && started[0].starts_with("1s each~1 completed"), "{picture:#?}");
}

/// It is in use from the start of the first attempt to the end of the last, whatever the step waits for meanwhile.
#[test]
fn what_a_step_uses_is_in_use_until_its_end() {
    let picture = story("a; b")
        .parallelism(2)
        .resources("a", "db")
        .resources("b", "db")
        .tries("a", 2, "5s")
        .replies("a: transient, ok effect:approved:2s")
        .picture();
    assert_eq!(
        picture,
        [
            "0s started, a started",
            "1s a waits 5s after TRANSIENT",
            "6s a started attempt 2",
            "7s a held with its effect, awaiting approval",
            "9s a APPROVED, a completed, b started",
            "10s b completed, COMPLETED",
        ]
    );
}

/// The entries of a list use what their step says, one at a time.
#[test]
fn entries_of_a_list_take_turns() {
    let picture =
        story("a; b").parallelism(4).for_each("a", json!([1, 2])).resources("a", "db").resources("b", "db").picture();
    assert_eq!(
        picture,
        [
            "0s started, a started, a lists 2, b started",
            "1s b completed, a~0 started",
            "2s a~0 completed, a~1 started",
            "3s a~1 completed, a collects [{},{}], a completed, COMPLETED",
        ]
    );
}
