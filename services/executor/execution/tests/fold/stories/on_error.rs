//! Recovery strategies for a failed step, by the class of its failure.

use std::time::Duration;

use belay_execution::{Actor, Control, DecideContext, ErrorClass, ExecutionState, NewPlan, RetryRequest};
use belay_plan::{
    Plan,
    RecoveryStrategy::{Compensate, QueueForLater, UseCache},
};
use serde_json::json;

use crate::support::{START, Story, story};

/// Two steps that make the same call, one after the other, of which the second may use an earlier result.
fn twice() -> Story {
    let same = json!({"city": "Bern"});
    story("a; b after a; c after b")
        .tool("a", "look")
        .tool("b", "look")
        .arguments("a", same.clone())
        .arguments("b", same)
        .on_error("a", ErrorClass::Timeout, UseCache)
        .on_error("b", ErrorClass::Timeout, UseCache)
        .output("a", &json!({"n": 7}))
}

/// S4-29: a call that has timed out is retried, and after its last attempt its place is taken by the last result of the same tool with the same arguments.
#[test]
fn the_last_result_of_the_same_call_is_used() {
    let play = twice().tries("b", 2, "1s").replies("b: timeout, timeout").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a completed, b started",
            "2s b waits 1s after TIMEOUT",
            "3s b started attempt 2",
            r#"4s b uses {"n":7}, 3s old, after TIMEOUT, b completed, c started"#,
            "5s c completed, COMPLETED",
        ]
    );
    let b = play.execution.step(play.execution.step_key("b").unwrap());
    assert_eq!(b.output().and_then(|output| output.inline()).map(|json| json.as_str()), Some(r#"{"n":7}"#));
    let source = b.cached_from().unwrap();
    assert_eq!((source.execution.as_str(), source.age.as_secs()), ("", 3));
    assert_eq!(b.failed_attempts().len(), 2);
}

// Another call's result is none of this one.
#[test]
fn without_an_earlier_result_the_step_fails() {
    let play = twice().arguments("b", json!({"city": "Basel"})).replies("b: timeout").play();
    assert_eq!(play.picture()[2..], ["2s b failed TIMEOUT, c skipped DEPENDENCY_FAILED by b, PARTIAL"]);
    let b = play.execution.step(play.execution.step_key("b").unwrap());
    let message = &b.failure().unwrap().message;
    assert_eq!(message, "The call ended with timeout. There is no earlier result of the same call to use instead.");
}

/// S4-29: where this execution has none, the result is that of an earlier execution.
#[test]
fn a_result_of_another_execution_is_used() {
    let play = twice().replies("a: timeout").play();
    assert_eq!(play.state(), ExecutionState::Completed);
    let a = play.execution.step(play.execution.step_key("a").unwrap());
    assert_eq!(a.cached_from().unwrap().execution, "namespaces/default/executions/earlier");
    assert_eq!(a.output().and_then(|output| output.inline()).map(|json| json.as_str()), Some(r#"{"n":1}"#));
}

#[test]
fn only_the_classes_that_the_plan_names_have_a_strategy() {
    assert_eq!(
        twice().replies("b: transient").picture()[2..],
        ["2s b failed TRANSIENT, c skipped DEPENDENCY_FAILED by b, PARTIAL"]
    );
}

// What was done in another way is not undone by the step's call, and what did not hold after the call does not hold now.
#[test]
fn a_result_that_is_used_is_checked_and_not_undone() {
    let play = twice().compensated("a b").replies("b: timeout; c: invalid").play();
    assert_eq!(
        play.picture()[2..],
        [
            r#"2s b uses {"n":7}, 1s old, after TIMEOUT, b completed, c started"#,
            "3s c failed INVALID, undoes a, a~compensate started",
            "4s a~compensate completed, PARTIAL",
        ]
    );
    let checked = twice().checks("b", json!([]), json!([{"condition": "${b.result.n} > 7"}])).replies("b: timeout");
    assert_eq!(
        checked.picture()[2..],
        [
            r#"2s b uses {"n":7}, 1s old, after TIMEOUT, b failed POSTCONDITION_FAILED, c skipped DEPENDENCY_FAILED by b, PARTIAL"#
        ]
    );
}

// A change is made, and not looked up: also where a call has changed nothing once.
#[test]
fn a_result_of_a_tool_that_changes_something_is_not_used() {
    let changing = || twice().tool("a", "change").tool("b", "change").replies("b: timeout");
    assert_eq!(changing().picture()[2..], ["2s b failed TIMEOUT, c skipped DEPENDENCY_FAILED by b, PARTIAL"]);
    let play = changing().play();
    let message = &play.execution.step(play.execution.step_key("b").unwrap()).failure().unwrap().message;
    assert_eq!(
        message,
        "The call ended with timeout. No earlier result takes its place, since its tool may change something."
    );
}

// The result of its own call comes before that of one that took its place.
#[test]
fn the_result_of_the_step_s_own_call_is_used_after_a_fallback() {
    let play = twice().fallback("b", "other").replies("b: timeout, timeout").play();
    assert_eq!(
        play.picture()[2..4],
        [
            "2s b look gives way to other after TIMEOUT, b started attempt 2",
            r#"3s b uses {"n":7}, 2s old, after TIMEOUT, b completed, c started"#
        ]
    );
}

// Its time is over by then, and what was checked of a result of its own is checked of this one.
#[test]
fn a_result_is_checked_also_when_the_step_s_time_is_over() {
    let held = || twice().step_limit("b", "1s").replies("b: ok 9s");
    let checked = |condition: &str| held().checks("b", json!([]), json!([{"condition": condition}])).picture();
    assert_eq!(
        checked("${b.result.n} == 7")[2..],
        [r#"2s b uses {"n":7}, 1s old, after TOOL_TIMEOUT, b completed, c started"#, "3s c completed, COMPLETED"]
    );
    assert!(checked("${b.result.n} == 8")[2].contains("b failed POSTCONDITION_FAILED"));
}

// A plan that says nothing of it any more has its step forget: no other call is taken for the one before.
#[test]
fn a_step_without_the_strategy_remembers_nothing() {
    let mut execution = twice().play().execution;
    assert_eq!(execution.earlier_results().count(), 2);
    let mut draft = execution.plan().to_draft();
    draft.steps[1].on_error.clear();
    draft.steps[1].retry = Some(belay_plan::RetryPolicy { max_attempts: 2, ..Default::default() });
    let plan = Some(NewPlan { plan: Box::new(Plan::new(draft).unwrap()), tools: execution.tools().to_vec() });
    let request = RetryRequest { from: Some("b".into()), ..RetryRequest::default() };
    let now = START.saturating_add(Duration::from_secs(60));
    execution.control(now, Actor::new("ann"), Control::Retry { request, plan }).unwrap();
    execution.advance(DecideContext { now, ledger_id: "ledger" });
    assert_eq!(execution.earlier_results().count(), 1, "what b remembered is gone with its next call");
}

// A step that runs again can use its own last result.
#[test]
fn a_step_that_runs_again_can_use_its_own_last_result() {
    let play = twice().arguments("b", json!({})).replies("a: ok, timeout").acts("9s retry a").play();
    assert_eq!(play.state(), ExecutionState::Completed);
    let again = &play.picture()[4..];
    assert_eq!(again[1], r#"10s a uses {}, 9s old, after TIMEOUT, a completed, b started attempt 2"#);
}

/// S4-29: a rate limit is retryable and queued for later, though the step has one attempt for everything else.
#[test]
fn a_rate_limit_is_queued_also_without_a_retry_policy() {
    let queued = || story("a").on_error("a", ErrorClass::RateLimit, QueueForLater);
    assert_eq!(
        queued().replies("a: rate-limit, ok").picture(),
        [
            "0s started, a started",
            "1s a waits 300s after RATE-LIMIT, paused until 301s",
            "301s resumed, a started attempt 2",
            "302s a completed, COMPLETED"
        ]
    );
    assert_eq!(queued().replies("a: transient").picture()[1..], ["1s a failed TRANSIENT, FAILED"]);
    let always = ["rate-limit"; 12].join(", ");
    let play = queued().replies(&format!("a: {always}")).play();
    assert_eq!(play.execution.step(play.execution.step_key("a").unwrap()).attempt(), 10);
}

/// S4-29: what must hold and does not is not retried; the execution stops, and what was done is undone.
#[test]
fn a_failure_that_compensates_stops_the_execution() {
    let told = |story: Story| story.compensated("a").checks("b", json!([{"condition": "1 > 2"}]), json!([]));
    let plan = || story("a; b after a; c after a; d after c");
    let picture = told(plan()).on_error("b", ErrorClass::PreconditionFailed, Compensate).picture();
    assert_eq!(
        picture[1..],
        [
            "1s a completed, b started, b failed PRECONDITION_FAILED, c skipped STOP_ON_ERROR by b, d skipped STOP_ON_ERROR by b, undoes a, a~compensate started",
            "2s a~compensate completed, FAILED",
        ]
    );
    let without = told(plan()).picture();
    assert!(without.iter().any(|line| line.contains("c completed")), "{without:?}");
}
