//! Criteria of steps with a goal that a model judges.

use belay_execution::{Body, ErrorClass, OperationEvent, Work};
use belay_plan::JUDGE_TOOL;
use serde_json::{Value, json};

use super::agents::{asked, completed, completion, goal};
use crate::support::failed;

// S2-FR-079: a model judges a criterion where the plan asks for it. It is told the task and the result; what it misses goes back to the model of the step, and a judge that cannot be asked has judged nothing.
#[test]
fn a_criterion_is_judged_by_a_model() {
    let misses =
        failed(ErrorClass::PostconditionFailed, "POSTCONDITION_FAILED", "The owner of the second risk is missing.");
    let lost = failed(ErrorClass::Transient, "MODEL_TURN_LOST", "The executor ended.");
    let met = || completed(&json!({"met": true, "why": "All is there."}));
    let play = goal(10)
        .checks("fix", json!([]), json!([{"judge": "It names ${fix.result.n} risks.", "model": "medium"}]))
        .output("fix~0", &completion(1, &json!({"n": 2})))
        .outcomes("fix~1", [completed(&json!({"n": 2})), misses])
        .output("fix~2", &completion(2, &json!({"n": 3})))
        .outcomes("fix~3", [completed(&json!({"n": 3})), lost, completed(&json!({"n": 3})), met()])
        .play();
    assert!(play.picture().last().unwrap().ends_with("COMPLETED"), "{:?}", play.picture());
    let judged: Vec<Value> = play
        .events
        .iter()
        .filter_map(|event| match &event.body {
            Body::Operation { event: OperationEvent::Requested(Work::ToolCall(request)), .. }
                if request.tool == JUDGE_TOOL =>
            {
                Some(request.arguments.inline().unwrap().value())
            }
            _ => None,
        })
        .collect();
    assert_eq!(judged.len(), 3, "one was lost, and asked again");
    let expected = json!({"task": "Do it.", "result": {"n": 2}, "criterion": "It names 2 risks.", "model": "medium"});
    assert_eq!(judged[0], expected);
    let told = asked(&play, "fix~2")["results"][0]["text"].as_str().unwrap().to_owned();
    assert!(
        told.contains("a model must find `It names ${fix.result.n} risks.` true")
            && told.contains("second risk is missing"),
        "{told}"
    );
    let turns = play.execution.step(play.execution.step_key("fix").unwrap()).turns(&play.execution);
    assert_eq!(turns, 2, "what was lost cost the model no turn");
}
