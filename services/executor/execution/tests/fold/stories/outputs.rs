//! The outputs that a plan declares: what an execution returns.

use belay_execution::{Body, Event, Execution, ExecutionEvent, ExecutionState, Finished, Json, Payload, Violation};
use belay_plan::{CheckDraft, StepKindDraft};
use serde_json::{Value, json};

use crate::support::{Outcome, Play, Story, failure, story};

/// The outputs of an execution that has ended; null when it has none.
fn outputs(execution: &Execution) -> Value {
    let outputs = execution.outputs().map(|outputs| outputs.unwrap_or_else(|failure| panic!("{failure}")));
    outputs.map_or(Value::Null, |outputs| outputs.inline().expect("they are small").value())
}

fn ended(story: Story) -> (ExecutionState, Value) {
    let play = story.play();
    (play.state(), outputs(&play.execution))
}

/// They are what steps returned, with its types, and stand in the last event.
#[test]
fn the_outputs_are_resolved_when_the_execution_ends() {
    let told = story("a; b after a").output("a", &json!({"n": 3, "list": ["x"], "outputs": {"version": "1.4"}})).outputs(json!({
        "n": "${a.result.n}", "text": "${a.result.list[0]} of ${a.state}", "version": "${a.outputs.version}", "all": ["${b.result}", 1, "$${x}"],
    }));
    let play = told.play();
    let expected = json!({"n": 3, "text": "x of completed", "version": "1.4", "all": [{}, 1, "${x}"]});
    assert_eq!((play.state(), outputs(&play.execution)), (ExecutionState::Completed, expected.clone()));
    let Some(Body::Execution(ExecutionEvent::Finished(finished))) = play.events.last().map(|event| &event.body) else {
        panic!("it ends last")
    };
    assert_eq!(finished.outputs.as_ref().unwrap().as_ref().unwrap().inline().unwrap().value(), expected);
    assert_eq!(ended(story("a")), (ExecutionState::Completed, Value::Null), "a plan that declares none");
}

/// A plan with branches has outputs whichever of them ran: what names a step that did not complete is null, whole, and never an error.
#[test]
fn outputs_of_steps_that_have_not_completed_are_null() {
    let told = || {
        story("a; fix after a; late after fix").on("fix", "a", "failure").output("a", &json!({"n": 1})).outputs(json!({
            "n": "${a.result.n}", "fixed": "${fix.result.n}", "either": "${fix.result.n ?? a.result.n ?? 0}", "text": "n is ${a.result.n}",
            "typo": "${a.result.m}", "failure": "${a.failure.code}", "states": "${a.state}, ${fix.state}", "late": "${late.result}",
        }))
    };
    let expected = json!({
        "n": 1, "fixed": null, "either": 1, "text": "n is 1", "typo": null, "failure": null, "states": "completed, skipped", "late": null,
    });
    assert_eq!(ended(told()), (ExecutionState::Completed, expected));
    let failed = told().outcomes("a", [Outcome::Failed(failure("invalid"))]).output("fix", &json!({"n": 2}));
    let expected = json!({
        "n": null, "fixed": 2, "either": 2, "text": null, "typo": null, "failure": "INVALID", "states": "failed, completed", "late": {},
    });
    assert_eq!(ended(failed), (ExecutionState::Partial, expected));
}

/// The result of a step that failed its check is not read by outputs, although a step that runs then may read it.
#[test]
fn what_a_failed_step_has_returned_is_no_output() {
    let mut told = story("a; b; alarm after a")
        .on("alarm", "a", "failure")
        .outputs(json!({"a": "${a.result.n}", "alarm": "${alarm.result.n}"}));
    told.plan.steps[0].postconditions = vec![CheckDraft { condition: "false".to_owned(), ..Default::default() }];
    let told = told
        .output("a", &json!({"n": 1}))
        .output("alarm", &json!({"n": 2}))
        .arguments("alarm", json!({"n": "${a.result.n}"}));
    assert_eq!(ended(told), (ExecutionState::Partial, json!({"a": null, "alarm": 2})));
}

/// An execution that has not come to its end has none.
#[test]
fn an_execution_that_was_stopped_has_no_outputs() {
    let told = || story("a; b after a").outputs(json!({"a": "${a.result}", "constant": 1}));
    assert_eq!(ended(told().acts("1.5s cancel")), (ExecutionState::Cancelled, Value::Null));
    assert_eq!(ended(told().limit("1.5s")), (ExecutionState::TimedOut, Value::Null));
    assert_eq!(ended(told().replies("a: fatal")), (ExecutionState::Failed, Value::Null));
    assert_eq!(ended(told().replies("b: invalid").stop_on_error()), (ExecutionState::Failed, Value::Null));
    assert_eq!(ended(told().replies("b: invalid")), (ExecutionState::Partial, json!({"a": {}, "constant": 1})));
}

/// An execution that runs again has none until it has ended again.
#[test]
fn a_retry_computes_the_outputs_anew() {
    let told = story("a; b after a")
        .outputs(json!({"a": "${a.state}", "b": "${b.state}"}))
        .replies("b: invalid, ok")
        .acts("9s retry");
    let play = told.play();
    let again = play.just_after(|body| matches!(body, Body::Execution(ExecutionEvent::Retried(_))));
    assert_eq!(again.outputs(), None);
    let first = play.just_after(|body| matches!(body, Body::Execution(ExecutionEvent::Finished(_))));
    assert_eq!(outputs(&first), json!({"a": "completed", "b": "failed"}));
    assert_eq!(outputs(&play.execution), json!({"a": "completed", "b": "completed"}));
}

/// The results of the entries of a list, and an output that a person has given.
#[test]
fn outputs_name_results_of_entries_and_given_outputs() {
    let told =
        story("each; given").for_each("each", json!([1, 2])).outcomes("each~1", [Outcome::Failed(failure("invalid"))]);
    let told = told
        .acts("0s set-output given 0 {\"n\":7}")
        .outputs(json!({"all": "${each.results}", "list": "${each.result}", "n": "${given.result.n}"}));
    let (state, outputs) = ended(told);
    assert_eq!(state, ExecutionState::Partial);
    let states: Vec<&Value> = outputs["all"].as_array().unwrap().iter().map(|entry| &entry["state"]).collect();
    assert_eq!(states, ["completed", "failed"]);
    assert_eq!([&outputs["list"], &outputs["n"]], [&Value::Null, &json!(7)]);
}

/// The outputs of a step's plan are the result of the step, and its outputs; another step may read them either way.
#[test]
fn outputs_of_a_plan_are_the_outputs_of_its_step() {
    let declares = |outputs: Value| {
        let mut told = story("child; use after child").carries_out("child", json!({}));
        if let StepKindDraft::Plan { plan, .. } = &mut told.plan.steps[0].kind {
            plan.outputs = outputs.as_object().cloned().into_iter().flatten().collect();
        }
        told.arguments("use", json!({"n": "${child.outputs.n ?? null}", "whole": "${child.outputs ?? null}", "result": "${child.result.n ?? null}"}))
            .outputs(json!({"n": "${child.outputs.n}"}))
    };
    let arguments = |play: &Play| -> Value { serde_json::from_str(&play.arguments("use")).expect("they are JSON") };
    let play =
        declares(json!({"n": "${inside.result}"})).acts("0s set-output child 0 {\"n\":1,\"outputs\":{\"n\":2}}").play();
    assert_eq!(arguments(&play), json!({"n": 1, "whole": {"n": 1, "outputs": {"n": 2}}, "result": 1}));
    assert_eq!(outputs(&play.execution), json!({"n": 1}));
    // Without declared outputs `outputs` is what the result calls so.
    let play = declares(json!({})).acts("0s set-output child 0 {\"n\":1,\"outputs\":{\"n\":2}}").play();
    assert_eq!(arguments(&play), json!({"n": 2, "whole": {"n": 2}, "result": 1}));
    assert_eq!(outputs(&play.execution), json!({"n": 2}));
    // Those of a plan that is carried out in rounds are those of the last.
    let told =
        declares(json!({"ran": "${inside.result}"})).repeat("child", "${child.outputs.ran} == ${child.result.ran}", 2);
    let told = told.arguments("use", json!({"whole": "${child.outputs ?? null}"}));
    let play = told.outputs(json!({"ran": "${child.outputs.ran}"})).play();
    assert_eq!(arguments(&play)["whole"], outputs(&play.execution));
    assert!(outputs(&play.execution)["ran"].is_u64(), "{}", outputs(&play.execution));
}

/// An execution ends as it would without its outputs when those are too large, and says why it has none.
#[test]
fn outputs_that_are_too_large_are_refused() {
    let large = json!({"text": "x".repeat(1 << 20)});
    let told = story("a")
        .output("a", &large)
        .outputs(json!({"a": ["${a.result}", "${a.result}", "${a.result}", "${a.result.text}"]}));
    let play = told.play();
    let failure = play.execution.outputs().expect("it has ended").unwrap_err();
    assert_eq!((play.state(), failure.reason.as_str()), (ExecutionState::Completed, "OUTPUTS_TOO_LARGE"));
    let expected = "outputs: Cannot resolve path: a.result.text (with it what the step reads exceeds 4194304 bytes: name a smaller part of the output)";
    assert_eq!(failure.message, expected);
    assert_eq!(play.execution.first_failure(), None, "no step has failed");
}

/// A log in which an execution has outputs that its plan does not declare, or lacks those that it declares, is refused.
#[test]
fn a_log_with_other_outputs_is_refused() {
    let end = |declares: bool| {
        let told = if declares { story("a").outputs(json!({"a": 1})) } else { story("a") };
        let events = told.play().events;
        let Some(Body::Execution(ExecutionEvent::Finished(finished))) = events.last().map(|event| event.body.clone())
        else {
            panic!("it ends last")
        };
        (
            Execution::replay(events[..events.len() - 1].iter().cloned()).unwrap(),
            events.last().unwrap().clone(),
            finished,
        )
    };
    let refused = |(execution, event, finished): (Execution, Event, Box<Finished>), outputs| {
        let body = ExecutionEvent::Finished(Box::new(Finished { outputs, ..*finished })).into();
        execution.clone().apply(&Event { body, ..event }).unwrap_err().violation
    };
    assert_eq!(refused(end(true), None), Violation::OtherOutputs);
    let given = Payload::Inline(Json::from_text("{}"));
    assert_eq!(refused(end(false), Some(Ok(given))), Violation::OtherOutputs);
}
