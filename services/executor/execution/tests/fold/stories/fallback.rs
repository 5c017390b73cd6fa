//! Calls that take the place of others, and what steps use one at a time.

use belay_execution::{Actor, Body, Control, Refused, RetryChange, StepEvent};
use serde_json::json;

use crate::support::{Play, story};

/// S1-16, S1-19, S1-21, S1-23: each call has all attempts; then the next takes its place, at once and visibly; the first success is the end, and otherwise
/// the failure is that of the last.
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

/// S0-09, S1-32, X4: what cannot be started is not tried again where another call can take its place.
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

/// S1-38: a person does not wait for the next attempt of a call, and the next call takes its place, with all its attempts.
#[test]
fn a_person_can_have_the_next_call_take_its_place() {
    let play = story("draft")
        .fallback("draft", "other")
        .tries("draft", 2, "60s")
        .replies("draft: transient, transient, ok")
        .acts("5s force-fallback draft 1 work other transient")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, draft started",
            "1s draft waits 60s after TRANSIENT",
            "5s draft work gives way to other after TRANSIENT, draft started attempt 2",
            "6s draft waits 60s after TRANSIENT",
            "66s draft started attempt 3",
            "67s draft completed, COMPLETED",
        ]
    );
    let failed: Vec<u32> =
        play.execution.steps().next().unwrap().failed_attempts().iter().map(|failed| failed.attempt).collect();
    assert_eq!(failed, [1, 2], "each failure is known once");
}

/// S1-38: a step without another call, and one that does not wait for an attempt, is not sent to one.
#[test]
fn a_person_is_refused_where_no_call_is_left() {
    let waits = |body: &Body| matches!(body, Body::Step { event: StepEvent::RetryScheduled { .. }, .. });
    let force = |play: &Play| {
        let mut execution = play.just_after(waits);
        let change = RetryChange::Fallback;
        let control = Control::ChangeRetry { step: "draft".into(), change, reason: "now".to_owned() };
        let actor = || Actor { request_id: "1".to_owned(), ..Actor::new("person") };
        let now = execution.last_time();
        let first = execution.control(now, actor(), control.clone())?.len();
        let again = execution.control(now, actor(), control)?.len();
        Ok((first, again))
    };
    let tried = |fallback: &str| {
        let play = story("draft").tries("draft", 2, "60s").replies("draft: transient, ok");
        (if fallback.is_empty() { play } else { play.fallback("draft", fallback) }).play()
    };
    assert_eq!(force(&tried("other")), Ok((1, 0)), "the same request again changes nothing");
    assert_eq!(force(&tried("")), Err(Refused::NoFallback("draft".into())));
}

/// S1-35: a step that is made to run again begins with its own call: what took its place changed nothing beyond that run.
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
