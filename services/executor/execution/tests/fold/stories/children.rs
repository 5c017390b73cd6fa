//! Steps that carry out a plan, as an execution of its own.

use std::time::Duration;

use belay_execution::{
    Actor, Body, ChildEnd, Control, Created, Event, Execution, ExecutionEvent, ExecutionState, OperationEnd,
    OperationEvent, OperationReport, PauseCause, RequiredAction, StepState, Waiting, Work,
};
use belay_plan::{Backoff, Format, Plan, RetryPolicy};
use serde_json::json;

use crate::support::{START, action, call, created, is, story};

// Its output is the step's, and it holds a slot meanwhile, like a call.
#[test]
fn a_step_carries_out_a_plan() {
    let story = story("a; build after a; b after build; c")
        .carries_out("build", json!({"takes": 3, "of": "${a.result}"}))
        .arguments("b", json!({"n": "${build.result.ran}"}));
    let play = story.play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started",
            "1s a completed, build started, build starts its plan, build plan created",
            "4s build plan completed, build completed, b started",
            "5s b completed, c started",
            "6s c completed, COMPLETED",
        ]
    );
    let running = play.just_after(is::child_requested);
    let child = running.operation_key(&call("build", 1, 1)).unwrap();
    let step = running.steps().nth(1).unwrap();
    assert_eq!(step.waiting(), Some(Waiting::Child { since: running.last_time(), child }));
    assert_eq!(action(&running), (call("build", 1, 1), RequiredAction::Dispatch));
    assert!(!running.is_parked(), "the executor waits for its end");
    let started = running.operation(child).unwrap().child().unwrap();
    assert!(started.execution.starts_with("build-"), "{started:?}");
    assert_eq!(started.inputs.value()["takes"], 3);
}

// The step's retry policy holds for its plan, and each attempt is another execution.
#[test]
fn a_plan_that_failed_is_carried_out_again() {
    let delays = Backoff::List(vec![Duration::from_secs(2)]);
    let retry = RetryPolicy { max_attempts: 3, backoff: delays, ..RetryPolicy::default() };
    let story = story("build").carries_out("build", json!({"fails": "transient", "times": 2})).retry("build", retry);
    let play = story.play();
    assert_eq!(play.state(), ExecutionState::Completed);
    let names: std::collections::BTreeSet<&str> = play
        .events
        .iter()
        .filter_map(|event| match &event.body {
            Body::Operation { event: OperationEvent::Requested(Work::Child(child)), .. } => {
                Some(child.execution.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    let step = play.execution.steps().next().unwrap();
    assert_eq!((step.attempt(), step.state()), (3, StepState::Completed));
}

#[test]
fn what_a_retry_would_not_mend_fails_the_step() {
    let play = story("build; b after build").carries_out("build", json!({"fails": "fatal"})).play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build starts its plan, build plan created",
            "1s build plan failed Fatal, build failed CHILD_FAILED, b skipped DEPENDENCY_FAILED by build, FAILED"
        ]
    );
}

// The limits of the step end the child by its own deadline.
#[test]
fn the_limits_of_the_step_are_those_of_its_plan() {
    let until = |attempt: Option<&str>, step: Option<&str>| {
        let mut story = story("build").carries_out("build", json!({}));
        if let Some(limit) = attempt {
            story = story.attempt_limit("build", limit);
        }
        if let Some(limit) = step {
            story = story.step_limit("build", limit);
        }
        let play = story.play();
        let started = play.events.iter().find_map(|event| match &event.body {
            Body::Operation { event: OperationEvent::Requested(Work::Child(child)), .. } => {
                Some((event.time, child.until))
            }
            _ => None,
        });
        let (at, until) = started.unwrap();
        until.map(|until| until.since(at).as_secs())
    };
    assert_eq!(
        [until(None, None), until(Some("5s"), None), until(None, Some("9s")), until(Some("5s"), Some("3s"))],
        [None, Some(5), Some(9), Some(3)]
    );
}

// S4-27: what runs for an execution that is cancelled is cancelled with it, and has ended before it has.
#[test]
fn a_plan_is_cancelled_with_its_parent() {
    let play = story("build; b after build").carries_out("build", json!({"takes": 9})).acts("2s cancel").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build starts its plan, build plan created",
            "2s cancel requested, b skipped CANCELLED, build plan cancelled, build cancelled, CANCELLED",
        ]
    );
}

// The execution can leave memory once its child is paused as well.
#[test]
fn a_plan_is_paused_and_goes_on_with_its_parent() {
    let play = story("build").carries_out("build", json!({"takes": 2})).acts("1s pause; 9s resume").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, build started, build starts its plan, build plan created",
            "1s paused, build plan paused",
            "9s resumed, build plan resumed, build plan completed, build completed, COMPLETED",
        ]
    );
    let pausing = play.just_after(|body| matches!(body, Body::Execution(ExecutionEvent::Paused { .. })));
    assert_eq!(action(&pausing), (call("build", 1, 1), RequiredAction::Pause));
    let paused = play.just_after(|body| {
        matches!(body, Body::Operation { event: OperationEvent::Reported(OperationReport::ChildPaused), .. })
    });
    assert!(paused.is_parked());
}

// A pause is carried out in the child before it is recorded here. When the execution resumes in between, the child has to be told, or it stays paused
// for ever; and the other way round.
#[test]
fn a_plan_goes_on_after_a_pause_that_was_never_recorded() {
    let play = story("build").carries_out("build", json!({"takes": 2})).acts("1s pause; 9s resume").play();
    let mut execution = play.just_after(|body| matches!(body, Body::Execution(ExecutionEvent::Paused { .. })));
    let now = execution.last_time();
    let by = || Some(Actor::new("ann"));
    let told = |event| Body::Operation { id: call("build", 1, 1), event };
    let resumed = || Body::from(ExecutionEvent::Resumed);
    let paused = || {
        let reason = "lunch".to_owned();
        Body::from(ExecutionEvent::Paused { reason, discard_calls: false, resume_at: None, cause: PauseCause::Request })
    };
    execution.record(now, by(), resumed()).unwrap();
    assert_eq!(action(&execution), (call("build", 1, 1), RequiredAction::Dispatch), "it may be paused");
    assert!(
        execution.record(now, None, told(OperationEvent::Reported(OperationReport::ChildPaused))).is_err(),
        "it goes on"
    );
    execution.record(now, by(), paused()).unwrap();
    assert_eq!(action(&execution), (call("build", 1, 1), RequiredAction::Pause), "it may run");
    assert!(
        execution.record(now, None, told(OperationEvent::Reported(OperationReport::ChildResumed))).is_err(),
        "it is to pause"
    );
    execution.record(now, None, told(OperationEvent::Reported(OperationReport::ChildPaused))).unwrap();
    execution.record(now, by(), resumed()).unwrap();
    execution.record(now, by(), paused()).unwrap();
    assert_eq!(
        action(&execution),
        (call("build", 1, 1), RequiredAction::Pause),
        "an end of its pause may be under way"
    );
    execution.record(now, by(), resumed()).unwrap();
    execution.record(now, None, told(OperationEvent::Reported(OperationReport::ChildResumed))).unwrap();
    assert!(execution.is_parked(), "it is known to run");
}

// What a person has paused stays paused, whatever becomes of the execution whose step it is.
#[test]
fn a_step_ends_its_own_pause_alone() {
    let plan = Plan::parse(Format::Yaml, "{id: p, steps: [{id: a, tool: work}]}").unwrap();
    let created = Created { parent_step: "outer/build".to_owned(), ..created(plan) };
    let pause = || Control::Pause { reason: "lunch".to_owned(), discard_calls: false, resume_at: None };
    let resumed = |paused_by: &str, resumed_by: &str| {
        let created = ExecutionEvent::Created(Box::new(created.clone()));
        let first = Event { sequence: 1, time: START, actor: Some(Actor::new("ann")), body: created.into() };
        let mut child = Execution::create(first).unwrap();
        child.record(START, None, Body::from(ExecutionEvent::Started)).unwrap();
        child.control(START, Actor::new(paused_by), pause()).unwrap();
        let events = child.control(START, Actor::new(resumed_by), Control::Resume).unwrap();
        (events.len(), child.state())
    };
    assert_eq!(resumed("outer/build", "outer/build"), (1, ExecutionState::Running));
    assert_eq!(resumed("outer/build", "ann"), (1, ExecutionState::Running));
    assert_eq!(resumed("ann", "outer/build"), (0, ExecutionState::Paused));
}

// B-28: its end is a message, which comes whenever it comes. Until then there is nothing to do, so that the execution can leave memory.
#[test]
fn a_plan_that_ends_during_a_pause_is_recorded_in_it() {
    let play = story("build; b after build").carries_out("build", json!({"takes": 2})).acts("1s pause").play();
    let mut paused = play.just_after(|body| {
        matches!(body, Body::Operation { event: OperationEvent::Reported(OperationReport::ChildPaused), .. })
    });
    let end = ChildEnd::Completed { output: belay_execution::Json::from_text("{}") };
    let ended = Body::Operation {
        id: call("build", 1, 1),
        event: OperationEvent::Ended(OperationEnd::Child { end, spent: None }),
    };
    let now = paused.last_time();
    paused.record(now, None, ended.clone()).unwrap();
    assert_eq!(paused.state(), ExecutionState::Paused);
    assert!(paused.record(now, None, ended).is_err(), "it ends once");
    let created = play.just_after(|body| {
        matches!(body, Body::Operation { event: OperationEvent::Reported(OperationReport::ChildCreated), .. })
    });
    assert!(created.is_parked() && created.waits_for_children());
    let started = play.just_after(is::child_requested);
    assert_eq!(action(&started), (call("build", 1, 1), RequiredAction::Dispatch));
    assert!(!started.waits_for_children());
}

#[test]
fn a_child_ends_once_and_only_where_it_began() {
    let play = story("build; a").carries_out("build", json!({})).play();
    let mut running = play.just_after(is::child_requested);
    let now = running.last_time();
    let body = |step: &str, event| Body::Operation { id: call(step, 1, 1), event };
    for illegal in [
        body("build", OperationEvent::Reported(OperationReport::ChildPaused)),
        body("build", OperationEvent::Reported(OperationReport::ChildResumed)),
        body("build", OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Cancelled, spent: None })),
        body("a", OperationEvent::Ended(OperationEnd::Child { end: ChildEnd::Cancelled, spent: None })),
    ] {
        assert!(running.record(now, None, illegal.clone()).is_err(), "{illegal:?}");
    }
}

#[test]
fn a_plan_is_carried_out_for_each_entry_of_a_list() {
    let play = story("build; b after build")
        .carries_out("build", json!({"of": "${item.value}"}))
        .for_each("build", json!(["x", "y"]))
        .play();
    assert_eq!(play.state(), ExecutionState::Completed);
    let step = play.execution.steps().next().unwrap();
    assert_eq!(step.output().unwrap().inline().unwrap().as_str(), r#"[{"ran":1},{"ran":1}]"#);
}

#[test]
fn a_plan_that_completed_is_undone_by_a_call() {
    let play = story("build; bad after build")
        .carries_out("build", json!({}))
        .compensated("build")
        .replies("bad: fatal")
        .play();
    let undone = play.execution.steps().find(|step| step.id().as_str() == "build~compensate").unwrap();
    assert_eq!(undone.state(), StepState::Completed);
    assert_eq!(play.state(), ExecutionState::Failed);
}
