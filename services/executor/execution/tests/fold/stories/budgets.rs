//! Budgets: what calls may use.

use belay_execution::{Amounts, DecideContext, ErrorClass, Event, Execution, ExecutionEvent, StepState};
use belay_plan::{Budget, OnExhausted, Plan, RecoveryStrategy};
use serde_json::json;

use crate::support::{START, created, story};

fn calls(calls: u64, on_exhausted: OnExhausted) -> Budget {
    Budget { calls: Some(calls), output_bytes: None, on_exhausted, ..Budget::default() }
}

fn output(bytes: u64) -> Budget {
    Budget { calls: None, output_bytes: Some(bytes), on_exhausted: OnExhausted::Fail, ..Budget::default() }
}

/// B-35: calls side by side do not use more together than there is.
#[test]
fn a_plan_that_has_used_up_its_calls_is_paused_until_a_person_raises_its_budget() {
    let play = story("a; b; c; d after c")
        .parallelism(4)
        .budget(calls(2, OnExhausted::Pause))
        .acts("5s resume; 6s update raise all; 7s resume")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, b started",
            "1s a completed, budget warning 2/2 calls, b completed, c started, budget exceeded 2/2 calls, paused, the budget of the plan is used up: 2 of 2 calls",
            "5s resumed, paused, the budget of the plan is used up: 2 of 2 calls",
            "6s plan 1",
            "7s resumed",
            "8s c completed, d started",
            "9s budget warning 4/5 calls, d completed, COMPLETED",
        ]
    );
}

#[test]
fn a_step_fails_where_the_plan_says_so() {
    let play = story("a; b; c after b").budget(calls(1, OnExhausted::Fail)).play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s budget warning 1/1 calls, a completed, b started, budget exceeded 1/1 calls, b failed BUDGET_EXHAUSTED, c skipped DEPENDENCY_FAILED by b, PARTIAL",
        ]
    );
}

/// Each attempt is a call, and so is that of a check.
#[test]
fn the_budget_of_a_step_is_that_of_all_its_attempts() {
    let play = story("a; b")
        .tries("a", 5, "1s")
        .step_budget("a", calls(2, OnExhausted::Fail))
        .replies("a: transient, transient, ok")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a waits 1s after TRANSIENT",
            "2s a started attempt 2",
            "3s a budget warning 2/2 calls, a waits 1s after TRANSIENT",
            "4s a started attempt 3, a budget exceeded 2/2 calls, a failed BUDGET_EXHAUSTED, b started",
            "5s b completed, PARTIAL",
        ]
    );
}

/// Calls wait for the output budget that another call holds: how much it returns is not known before.
#[test]
fn calls_wait_for_what_others_hold_of_the_output() {
    let play =
        story("look; b").parallelism(4).calls("look", "read read read").step_budget("look", output(40_000)).play();
    assert_eq!(
        play.picture(),
        [
            "0s started, look started, look lists 3, b started, look~0 started",
            "1s b completed, look~0 completed, look~1 started",
            "2s look~1 completed, look~2 started",
            "3s look~2 completed, look collects [{},{},{}], look completed, COMPLETED",
        ]
    );
}

#[test]
fn more_output_than_there_was_is_an_overrun_and_nothing_starts_after_it() {
    let play = story("a; b").budget(output(8)).output("a", &json!("long enough")).play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s budget overrun 13/8 bytes of output, a completed, b started, budget exceeded 13/8 bytes of output, b failed BUDGET_EXHAUSTED, PARTIAL",
        ]
    );
}

/// A call that a person denies before it runs has used nothing.
#[test]
fn a_call_that_did_not_run_is_not_counted() {
    let play = story("a; b").budget(calls(1, OnExhausted::Fail)).replies("a: denied call:denied:2s").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, a held, awaiting approval",
            "2s a DENIED, a failed APPROVAL_DENIED, b started",
            "3s budget warning 1/1 calls, b completed, PARTIAL",
        ]
    );
}

/// The execution of a step's plan gets what is left, and what it has not used is there for others after its end.
#[test]
fn a_plan_of_a_step_gets_what_is_left_and_gives_back_the_rest() {
    let play = story("build; b; c")
        .parallelism(2)
        .carries_out("build", json!({"takes": 3}))
        .budget(calls(3, OnExhausted::Fail))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build starts its plan, build plan created",
            "3s build plan completed, build completed, b started, c started",
            "4s b completed, budget warning 3/3 calls, c completed, COMPLETED",
        ]
    );
}

/// A compensation is neither counted nor held back.
#[test]
fn what_undoes_a_step_needs_no_budget() {
    let play = story("a; b after a")
        .stop_on_error()
        .compensated("a")
        .replies("b: fatal")
        .budget(calls(1, OnExhausted::Fail))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s budget warning 1/1 calls, a completed, b started, budget exceeded 1/1 calls, b failed BUDGET_EXHAUSTED, undoes a, a~compensate started",
            "2s a~compensate completed, FAILED",
        ]
    );
}

/// However long a person takes to raise a budget, the time limit of the step that waits for it has as much left as before.
#[test]
fn a_pause_for_a_budget_takes_no_time_from_a_step() {
    let play = story("a; b")
        .budget(calls(1, OnExhausted::Pause))
        .step_limit("b", "5s")
        .acts("60s update raise all; 61s resume")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s budget warning 1/1 calls, a completed, b started, budget exceeded 1/1 calls, paused, the budget of the plan is used up: 1 of 1 calls",
            "60s plan 1",
            "61s resumed",
            "62s b completed, COMPLETED",
        ]
    );
}

/// Calls that began before there was a budget are counted like all others.
#[test]
fn a_budget_that_comes_later_counts_what_is_under_way() {
    let play = story("a; b; c; d; e; f").parallelism(4).acts("0.5s update cap all").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, b started, c started, d started",
            "0.5s plan 1, e started",
            "1s a completed, b completed, c completed, budget warning 4/5 calls, d completed",
            "1.5s e completed, f started, budget exceeded 5/5 calls, paused, the budget of the plan is used up: 5 of 5 calls",
        ]
    );
}

/// A step whose call has completed needs nothing more, and does not wait for what others hold.
#[test]
fn a_step_that_is_done_waits_for_no_budget() {
    let play = story("a; b; c after a")
        .parallelism(2)
        .checks("a", json!([]), json!([{"condition": "true"}]))
        .budget(calls(2, OnExhausted::Fail))
        .replies("b: ok call:approved:5s")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, b started, b held",
            "1s a completed, awaiting approval",
            "5s b APPROVED",
            "6s budget warning 2/2 calls, b completed, c started, budget exceeded 2/2 calls, c failed BUDGET_EXHAUSTED, PARTIAL",
        ]
    );
}

/// The plan can say that what was done is undone when its budget is used up.
#[test]
fn an_exhausted_budget_can_have_all_undone() {
    let play = story("a; b after a; c")
        .compensated("a")
        .on_error("b", ErrorClass::BudgetExhausted, RecoveryStrategy::Compensate)
        .budget(calls(1, OnExhausted::Fail))
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s budget warning 1/1 calls, a completed, b started, budget exceeded 1/1 calls, b failed BUDGET_EXHAUSTED, c skipped STOP_ON_ERROR by b, undoes a, a~compensate started",
            "2s a~compensate completed, FAILED",
        ]
    );
}

/// A fork continues with the amounts that the execution had used from which it was forked.
#[test]
fn what_was_used_before_a_fork_counts() {
    let text = "{id: p, budget: {calls: 2, on_exhausted: fail}, steps: [{id: a, tool: work}]}";
    let begun = |calls| {
        let plan = Plan::parse(belay_plan::Format::Yaml, text).unwrap();
        let created = belay_execution::Created {
            spent: Amounts { calls, output_bytes: 0, ..Amounts::default() },
            ..created(plan)
        };
        let body = ExecutionEvent::Created(Box::new(created)).into();
        let mut execution = Execution::create(Event { sequence: 1, time: START, actor: None, body }).unwrap();
        execution.advance(DecideContext { now: START, ledger_id: "l" });
        execution.steps().next().map(|step| step.state())
    };
    assert_eq!([begun(1), begun(2)], [Some(StepState::Running), Some(StepState::Failed)]);
}
