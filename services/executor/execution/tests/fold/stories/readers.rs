//! What an execution tells its readers about itself and its steps.

use std::time::Duration;

use belay_execution::{
    Actor, Body, ExecutionEvent, ExecutionState, Payload, ToolCallEvent, WaitEnd, WaitEvent, Waiting,
};

use crate::support::{START, call, story};

fn after(seconds: u64) -> belay_execution::Timestamp {
    START.saturating_add(Duration::from_secs(seconds))
}

#[test]
fn times_attempts_and_waits_are_those_of_the_story() {
    let replies = "a: transient, ok effect:approved:2s:conflict, ok effect:approved:3s";
    let play = story("a").tries("a", 3, "5s").replies(replies).play();
    let execution = &play.execution;
    assert_eq!(execution.state(), ExecutionState::Completed);
    let a = execution.steps().next().unwrap();
    assert_eq!(a.started_at(), Some(after(0)));
    assert_eq!(a.ended_at(), execution.ended_at());
    assert_eq!((execution.started_at(), execution.ended_at()), (Some(after(0)), Some(after(13))));
    assert_eq!((execution.last_time(), a.waited()), (after(13), Duration::from_secs(5)));
    assert_eq!((a.conflicts(), a.failed_beside_commits()), (1, false));
    let failed: Vec<_> = a.failed_attempts().iter().map(|failed| (failed.attempt, failed.ended_at)).collect();
    assert_eq!(failed, [(1, after(1))]);
    let authorization = a.authorization().expect("a person approved it");
    assert_eq!((authorization.rule.as_str(), authorization.approver.is_some()), ("rule", true));
    assert_eq!(execution.ledger_id(), "ledger");
    assert_eq!(execution.waiting(), [], "nothing, once it has ended");

    let backing_off = play.just_after(
        |body| matches!(body, Body::Step { event, .. } if format!("{event:?}").starts_with("RetryScheduled")),
    );
    let waits = backing_off.steps().next().unwrap().waiting();
    assert!(format!("{waits:?}").contains("Timer"), "{waits:?}");
    // The first attempt fails after a second, and the next is due five seconds later.
    let again = play.just_after(|body| matches!(body, Body::ToolCall { call, .. } if call.attempt == 2));
    assert_eq!(again.steps().next().unwrap().attempt_started_at(), Some(after(6)));
    let held = play.just_after(|body| matches!(body, Body::ToolCall { event: ToolCallEvent::Held { .. }, .. }));
    assert_eq!(held.waiting().len(), 0, "it waits for a person once one was asked");
}

// A step waits for its running call, and the execution as a whole waits for nothing.
#[test]
fn only_what_waits_is_said_to_wait() {
    let running = story("a").play().just_after(|body| matches!(body, Body::ToolCall { .. }));
    assert_eq!(running.waiting(), []);
    assert_eq!(running.steps().next().unwrap().waiting(), Some(Waiting::Call { since: after(0) }));
}

// A request that is sent again is recognised by its id, and no other is.
#[test]
fn requests_are_remembered_by_their_id() {
    let mut play = story("a").rehearse();
    let actor = Actor { request_id: "r-1".to_owned(), ..Actor::new("person") };
    let paused = ExecutionEvent::Paused { reason: String::new(), discard_calls: false };
    play.execution.record(after(0), Some(actor), paused).unwrap();
    assert!(play.execution.has_seen("r-1") && !play.execution.has_seen("r-2"));
}

// The time of a wait is part of the event's validity, not only of the decision: a log in which it ended early is refused.
#[test]
fn a_wait_that_ended_early_is_no_history() {
    let play = story("pause").waits("pause", "60s").play();
    let mut waiting = play.just_after(|body| matches!(body, Body::Wait { event: WaitEvent::Started(_), .. }));
    let ended = || Body::Wait { wait: call("pause", 1, 1), event: WaitEvent::Ended(WaitEnd::Elapsed) };
    assert!(waiting.record(after(59), None, ended()).is_err());
    assert!(waiting.record(after(60), None, ended()).is_ok());
}

// What is kept of values counts against the limits by its size.
#[test]
fn a_payload_has_the_size_of_its_text() {
    let payload = Payload::from(belay_execution::Json::from_text("[1,2]"));
    assert_eq!(payload.size(), 5);
}
