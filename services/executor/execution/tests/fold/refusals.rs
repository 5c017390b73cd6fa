//! Illegal events are rejected, also those that the tables of transitions alone would allow.

use std::time::Duration;

use belay_execution::{
    Body, Event, Execution, ExecutionEvent, Finished, Json, OperationEnd, OperationEvent, PlanUpdated, Progress,
    Receipt, SkipReason, StepEvent, StepState, ToolCallEnd, Totals, Work,
};
use belay_plan::Plan;

use crate::support::{act_of, call, failure, request, step, story};

/// Why an event cannot be the next one.
#[track_caller]
fn refusal(now: &Execution, body: impl Into<Body>) -> String {
    let event = Event { sequence: now.last_sequence() + 1, time: now.created_at(), actor: None, body: body.into() };
    now.clone().apply(&event).expect_err("it was accepted").violation.to_string()
}

const PROGRESS: Progress = Progress { done: 1, total: 2 };

fn completed(id: &str, attempt: u32) -> Body {
    step(id, attempt, StepEvent::Completed { progress: PROGRESS, duration: Duration::ZERO })
}

fn failed(attempt: u32) -> Body {
    step("a", attempt, StepEvent::Failed { failure: failure("invalid"), progress: PROGRESS })
}

fn cancelled(attempt: u32) -> Body {
    step("a", attempt, StepEvent::Cancelled { progress: PROGRESS })
}

fn skipped(id: &str, attempt: u32) -> Body {
    step(
        id,
        attempt,
        StepEvent::Skipped { reason: SkipReason::Cancelled, because: None, group: None, progress: PROGRESS },
    )
}

fn unknown() -> Body {
    step("a", 1, StepEvent::OutcomeUnknown { failure: failure("unknown") })
}

fn retry(now: &Execution) -> Body {
    let (failure, not_before) = (failure("transient"), now.created_at());
    step("a", 1, StepEvent::RetryScheduled { failure, retry_count: 1, delay: Duration::ZERO, not_before })
}

fn ended(step: &str, attempt: u32, number: u32, end: ToolCallEnd) -> Body {
    Body::Operation { id: call(step, attempt, number), event: OperationEvent::Ended(OperationEnd::ToolCall(end)) }
}

fn stopped(step: &str, attempt: u32, number: u32) -> Body {
    ended(step, attempt, number, ToolCallEnd::Cancelled { failure: None, grant_nonce: String::new() })
}

fn is_requested(body: &Body) -> bool {
    matches!(body, Body::Operation { event: OperationEvent::Requested(Work::ToolCall(_)), .. })
}

fn is_completed(body: &Body, id: &str) -> bool {
    matches!(body, Body::Step { step, event: StepEvent::Completed { .. }, .. } if &**step == id)
}

#[test]
fn before_anything_has_started() {
    let play = story("a; b after a").rehearse();
    let now = &play.execution;
    assert_eq!(refusal(now, play.events[0].body.clone()), "`created` comes first and once");
    assert_eq!(
        refusal(now, step("a", 1, StepEvent::Started)),
        "the execution has not started, is paused, or is being stopped: nothing may start"
    );
    assert_eq!(refusal(now, skipped("nowhere", 0)), "there is no step `nowhere`");
    assert_eq!(
        refusal(now, failed(0)),
        "step `a`, which is Ready, has no operation whose end leads to the move Failed"
    );
    assert_eq!(
        refusal(now, cancelled(0)),
        "step `a`, which is Ready, has no operation whose end leads to the move Cancelled"
    );
    assert_eq!(refusal(now, request(call("a", 0, 1))), "`a` 0.1 does not follow 0.0");
}

#[test]
fn while_a_call_is_in_flight() {
    let now = &story("a; b after a").play().just_after(is_requested);
    assert_eq!(refusal(now, ExecutionEvent::Started), "the execution has started before");
    assert_eq!(
        refusal(now, completed("a", 1)),
        "step `a`, which is Running, has no operation whose end leads to the move Completed"
    );
    assert_eq!(
        refusal(now, failed(1)),
        "step `a`, which is Running, has no operation whose end leads to the move Failed"
    );
    assert_eq!(
        refusal(now, cancelled(1)),
        "step `a`, which is Running, has no operation whose end leads to the move Cancelled"
    );
    assert_eq!(
        refusal(now, unknown()),
        "step `a`, which is Running, has no operation whose end leads to the move OutcomeUnknown"
    );
    assert_eq!(
        refusal(now, retry(now)),
        "step `a`, which is Running, has no operation whose end leads to the move RetryScheduled"
    );
    assert_eq!(refusal(now, request(call("a", 1, 2))), "`a` 1.2 does not follow 1.1");
    assert_eq!(
        refusal(now, step("b", 1, StepEvent::Started)),
        "step `b` started before step `a`, which it depends on, had ended"
    );
    let (result, receipt) = (Json::from_text("1").into(), Receipt::default());
    assert_eq!(
        refusal(now, ended("a", 1, 2, ToolCallEnd::Completed { result, receipt: Box::new(receipt) })),
        "`a` 1.2 is not in flight"
    );
}

// A call that completed leads to a step that completed, in the attempt that it belongs to.
#[test]
fn after_a_call_has_completed() {
    let now = &story("a; b after a").play().just_after(|body| body.call_end().is_some());
    assert_eq!(refusal(now, completed("a", 2)), "attempt 2 of step `a` is not the current one, which is 1");
    assert_eq!(
        refusal(now, failed(1)),
        "step `a`, which is Running, has no operation whose end leads to the move Failed"
    );
    assert_eq!(
        refusal(now, cancelled(1)),
        "step `a`, which is Running, has no operation whose end leads to the move Cancelled"
    );
    assert_eq!(
        refusal(now, unknown()),
        "step `a`, which is Running, has no operation whose end leads to the move OutcomeUnknown"
    );
    assert_eq!(
        refusal(now, retry(now)),
        "step `a`, which is Running, has no operation whose end leads to the move RetryScheduled"
    );
    assert_eq!(refusal(now, stopped("a", 1, 1)), "`a` 1.1 is not in flight");
}

// A group is named only where one of its steps has failed, for a step of it that the failure skips, and with that step.
#[test]
fn after_a_step_of_a_group_failed() {
    let has_failed = |body: &Body| matches!(body, Body::Step { event: StepEvent::Failed { .. }, .. });
    let now = &story("a; b; keep after a; aside")
        .fail_fast_group("g", "a b keep")
        .run_when("keep", belay_plan::RunWhen::Always)
        .replies("a: invalid")
        .play()
        .just_after(has_failed);
    let by_group = |id: &str, because: &str, group: &str| {
        let (because, group) = (Some(because.into()), Some(group.to_owned()));
        step(id, 0, StepEvent::Skipped { reason: SkipReason::StopOnError, because, group, progress: PROGRESS })
    };
    for (id, because, group) in [("b", "aside", "g"), ("b", "a", "h"), ("keep", "a", "g"), ("aside", "a", "g")] {
        let expected = format!(
            "step `{id}` is in no group `{group}` in which that step has failed because of which it is skipped"
        );
        assert_eq!(refusal(now, by_group(id, because, group)), expected);
    }
}

// A step whose call was discarded continues in its attempt.
#[test]
fn after_a_call_was_discarded() {
    let discarded = |body: &Body| body.call_end().is_some();
    let now = &story("a; b after a").replies("a: cancelled").play().just_after(discarded);
    assert_eq!(refusal(now, step("a", 2, StepEvent::Started)), "attempt 2 of step `a` does not follow attempt 1");
    assert_eq!(refusal(now, skipped("a", 1)), "step `a` has started, and can no longer be skipped");
    let paused = &story("a; b after a").acts("0.5s pause discarding").play().just_after(discarded);
    assert_eq!(
        refusal(paused, request(call("a", 1, 2))),
        "the execution has not started, is paused, or is being stopped: nothing may start"
    );
}

#[test]
fn at_the_end() {
    let play = story("a; b after a").play();
    let finished = |state, totals| {
        ExecutionEvent::Finished(Box::new(Finished {
            state,
            totals,
            failure: None,
            duration: Duration::ZERO,
            outputs: None,
        }))
    };
    let totals = Totals { total: 2, completed: 2, ..Totals::default() };
    let state = play.state();
    let midway = &play.just_after(|body| is_completed(body, "a"));
    assert_eq!(
        refusal(midway, finished(state, midway.totals())),
        "the steps have ended otherwise: Totals { total: 2, completed: 1, failed: 0, skipped: 0, cancelled: 0 }"
    );
    let almost = &play.just_after(|body| is_completed(body, "b"));
    assert_eq!(
        refusal(almost, finished(state, Totals { completed: 1, failed: 1, ..totals })),
        "the steps have ended otherwise: Totals { total: 2, completed: 2, failed: 0, skipped: 0, cancelled: 0 }"
    );
    assert_eq!(
        refusal(&play.execution, finished(state, totals)),
        "an execution that is Completed has no move Finished"
    );
    assert_eq!(refusal(&play.execution, ExecutionEvent::Recovered { in_doubt: Vec::new() }), "the execution has ended");
    assert_eq!(
        refusal(&play.execution, act_of("cancel").1),
        "an execution that is Completed has no move CancelRequested"
    );
    assert_eq!(refusal(&play.execution, completed("b", 1)), "step `b`, which is Completed, has no move Completed");
}

fn updated(now: &Execution, revision: u32, drop: Option<&str>) -> Body {
    let mut draft = now.plan().to_draft();
    draft.steps.retain(|step| drop != Some(&*step.id));
    let plan = Plan::new(draft).unwrap();
    let update = PlanUpdated { plan, tools: Vec::new(), revision, deadline: None, reason: String::new() };
    ExecutionEvent::PlanUpdated(Box::new(update)).into()
}

// Nothing is asked about a condition before the execution's time.
#[test]
fn a_condition_fails_no_step_before_the_execution_has_started() {
    let now = &story("a; b after a").condition("b", "${a.result}").starts_after("9s").rehearse().execution;
    let mut ready = now.clone();
    let given = act_of("set-output a 0 7").1;
    for body in [given, step("a", 0, StepEvent::Completed { progress: PROGRESS, duration: Duration::ZERO })] {
        let event = Event { sequence: ready.last_sequence() + 1, time: now.created_at(), actor: None, body };
        ready.apply(&event).unwrap();
    }
    let failed = StepEvent::Failed { failure: failure("invalid"), progress: PROGRESS };
    assert_eq!(
        refusal(&ready, step("b", 0, failed)),
        "step `b`, which is Ready, has no operation whose end leads to the move Failed"
    );
}

// A step that depends on it has gone on by then, and could not wait for it when a later version of the plan had it again.
#[test]
fn a_step_that_the_plan_has_is_not_skipped_as_removed() {
    let removed =
        StepEvent::Skipped { reason: SkipReason::PlanUpdated, because: None, group: None, progress: PROGRESS };
    let now = &story("a; b after a").play().just_after(|body| matches!(body, Body::Execution(_)));
    assert_eq!(refusal(now, step("a", 0, removed)), "step `a` is one that the plan still has");
}

// Two versions of a plan, one directly after the other: nothing is decided between them.
#[test]
fn a_step_that_the_plan_has_again_at_once_is_one_of_it() {
    let begun = story("a; b; c after b").play().just_after(|body| matches!(body, Body::Step { .. }));
    let mut now = begun.clone();
    for body in [updated(&begun, 1, Some("c")), updated(&begun, 2, None)] {
        let event = Event { sequence: now.last_sequence() + 1, time: now.created_at(), actor: None, body };
        now.apply(&event).unwrap();
    }
    let removed =
        StepEvent::Skipped { reason: SkipReason::PlanUpdated, because: None, group: None, progress: PROGRESS };
    assert_eq!(refusal(&now, step("c", 0, removed)), "step `c` is one that the plan still has");
    assert_eq!(now.step(now.step_key("c").unwrap()).state(), StepState::Pending);
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
