//! Illegal events are rejected, also those that the tables of transitions alone would allow.

use std::{sync::Arc, time::Duration};

use belay_execution::{CallId, Event, EventKind, Execution, Finished, Json, Progress, Receipt, SkipReason, Totals};

use crate::support::{act_of, failure, request, story};

/// Why an event cannot be the next one.
#[track_caller]
fn refusal(now: &Execution, kind: EventKind) -> String {
    let event = Event { sequence: now.last_sequence() + 1, time: now.created_at(), kind };
    now.clone().apply(&event).expect_err("it was accepted").what
}

const PROGRESS: Progress = Progress { done: 1, total: 2 };

fn call(attempt: u32, number: u32) -> CallId {
    CallId { step: 0, attempt, number }
}

fn completed(step: usize, attempt: u32) -> EventKind {
    EventKind::StepCompleted { step, attempt, progress: PROGRESS, duration: Duration::ZERO }
}

fn failed(attempt: u32) -> EventKind {
    EventKind::StepFailed { step: 0, attempt, failure: failure("invalid"), progress: PROGRESS }
}

fn cancelled(attempt: u32) -> EventKind {
    EventKind::StepCancelled { step: 0, attempt, progress: PROGRESS }
}

fn unknown() -> EventKind {
    EventKind::StepOutcomeUnknown { step: 0, attempt: 1, failure: failure("unknown") }
}

fn retry(now: &Execution) -> EventKind {
    let (failure, not_before) = (failure("transient"), now.created_at());
    EventKind::RetryScheduled { step: 0, attempt: 1, failure, retry_count: 1, delay: Duration::ZERO, not_before }
}

#[test]
fn before_anything_has_started() {
    let play = story("a; b after a").rehearse();
    let now = &play.execution;
    assert_eq!(refusal(now, play.events[0].kind.clone()), "`created` comes first and once");
    assert_eq!(refusal(now, EventKind::StepStarted { step: 0, attempt: 1 }), "nothing may start now");
    assert_eq!(
        refusal(
            now,
            EventKind::StepSkipped { step: 9, reason: SkipReason::Cancelled, because: None, progress: PROGRESS }
        ),
        "the plan has no step 9"
    );
    assert_eq!(refusal(now, failed(0)), "step 0, which is Ready, has no call whose end leads to the move Failed");
    assert_eq!(refusal(now, cancelled(0)), "step 0, which is Ready, has no call whose end leads to the move Cancelled");
    assert_eq!(
        refusal(now, EventKind::CallRequested(Arc::new(request(call(0, 1))))),
        "step 0 call 0.1 does not follow call 0.0"
    );
}

#[test]
fn while_a_call_is_in_flight() {
    let now = &story("a; b after a").play().just_after(|kind| matches!(kind, EventKind::CallRequested(_)));
    assert_eq!(refusal(now, EventKind::Started), "it has started before");
    assert_eq!(
        refusal(now, completed(0, 1)),
        "step 0, which is Running, has no call whose end leads to the move Completed"
    );
    assert_eq!(refusal(now, failed(1)), "step 0, which is Running, has no call whose end leads to the move Failed");
    assert_eq!(
        refusal(now, cancelled(1)),
        "step 0, which is Running, has no call whose end leads to the move Cancelled"
    );
    assert_eq!(
        refusal(now, unknown()),
        "step 0, which is Running, has no call whose end leads to the move OutcomeUnknown"
    );
    assert_eq!(
        refusal(now, retry(now)),
        "step 0, which is Running, has no call whose end leads to the move RetryScheduled"
    );
    assert_eq!(
        refusal(now, EventKind::CallRequested(Arc::new(request(call(1, 2))))),
        "step 0 call 1.2 does not follow call 1.1"
    );
    assert_eq!(
        refusal(now, EventKind::StepStarted { step: 1, attempt: 1 }),
        "step 1 started before step 0, which it depends on, had ended"
    );
    let (result, receipt) = (Json::from_text("1"), Receipt::default());
    assert_eq!(
        refusal(now, EventKind::CallCompleted { call: call(1, 2), result, receipt }),
        "step 0 call 1.2 is not in flight"
    );
}

// A call that completed leads to a step that completed, in the attempt that it belongs to.
#[test]
fn after_a_call_has_completed() {
    let now = &story("a; b after a").play().just_after(|kind| matches!(kind, EventKind::CallCompleted { .. }));
    assert_eq!(refusal(now, completed(0, 2)), "attempt 2 of step 0 is not the one under way, which is 1");
    assert_eq!(refusal(now, failed(1)), "step 0, which is Running, has no call whose end leads to the move Failed");
    assert_eq!(
        refusal(now, cancelled(1)),
        "step 0, which is Running, has no call whose end leads to the move Cancelled"
    );
    assert_eq!(
        refusal(now, unknown()),
        "step 0, which is Running, has no call whose end leads to the move OutcomeUnknown"
    );
    assert_eq!(
        refusal(now, retry(now)),
        "step 0, which is Running, has no call whose end leads to the move RetryScheduled"
    );
    assert_eq!(
        refusal(now, EventKind::CallCancelled { call: call(1, 1), failure: None, grant_nonce: String::new() }),
        "step 0 call 1.1 is not in flight"
    );
}

// A step whose call was discarded goes on in its attempt.
#[test]
fn after_a_call_was_discarded() {
    let skipped = EventKind::StepSkipped { step: 0, reason: SkipReason::Cancelled, because: None, progress: PROGRESS };
    let discarded = |kind: &EventKind| matches!(kind, EventKind::CallCancelled { .. });
    let now = &story("a; b after a").replies("a: cancelled").play().just_after(discarded);
    assert_eq!(
        refusal(now, EventKind::StepStarted { step: 0, attempt: 2 }),
        "attempt 2 of step 0 does not follow attempt 1"
    );
    assert_eq!(refusal(now, skipped), "step 0 has started, and can no longer be skipped");
    let paused = &story("a; b after a").acts("0.5s pause discarding").play().just_after(discarded);
    assert_eq!(refusal(paused, EventKind::CallRequested(Arc::new(request(call(1, 2))))), "nothing may start now");
}

#[test]
fn at_the_end() {
    let play = story("a; b after a").play();
    let finished = |state, totals| {
        EventKind::Finished(Box::new(Finished { state, totals, failure: None, duration: Duration::ZERO }))
    };
    let totals = Totals { total: 2, completed: 2, ..Totals::default() };
    let state = play.state();
    let midway = &play.just_after(|kind| matches!(kind, EventKind::StepCompleted { .. }));
    assert_eq!(
        refusal(midway, finished(state, midway.totals())),
        "of its steps this is known: Totals { total: 2, completed: 1, failed: 0, skipped: 0, cancelled: 0 }"
    );
    let almost = &play.just_after(|kind| matches!(kind, EventKind::StepCompleted { step: 1, .. }));
    assert_eq!(
        refusal(almost, finished(state, Totals { completed: 1, failed: 1, ..totals })),
        "of its steps this is known: Totals { total: 2, completed: 2, failed: 0, skipped: 0, cancelled: 0 }"
    );
    assert_eq!(
        refusal(&play.execution, finished(state, totals)),
        "an execution that is Completed has no move Finished"
    );
    assert_eq!(
        refusal(&play.execution, EventKind::Recovered { in_doubt: Vec::new() }),
        "an execution that ended cannot be recovered"
    );
    assert_eq!(
        refusal(&play.execution, act_of("cancel")),
        "an execution that is Completed has no move CancelRequested"
    );
    assert_eq!(refusal(&play.execution, completed(1, 1)), "step 1, which is Completed, has no move Completed");
}

#[test]
fn a_list_begins_with_created() {
    let events = story("a").play().events;
    assert_eq!(Execution::replay([]).unwrap_err().to_string(), "event 1 cannot be: the list of events is empty");
    assert_eq!(
        Execution::replay(events[1..].to_vec()).unwrap_err().to_string(),
        "event 2 cannot be: the first event must be `created`"
    );
    let second = Event { sequence: 2, ..events[0].clone() };
    assert_eq!(
        Execution::replay([second]).unwrap_err().to_string(),
        "event 2 cannot be: the first event must be `created`"
    );
    let gap = [events[0].clone(), events[2].clone()];
    assert_eq!(Execution::replay(gap).unwrap_err().to_string(), "event 3 cannot be: the event before it is 1");
}
