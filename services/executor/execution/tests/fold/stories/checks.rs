//! Checks before and after a step's call.

use serde_json::{Value, json};

use crate::support::{Story, story};

fn checked(before: Value, after: Value) -> Story {
    story("a; b after a").checks("a", before, after)
}

/// S4-08, S4-20: nothing is called before its preconditions hold, and the step completes once its postconditions do.
#[test]
fn checks_take_calls_of_the_same_attempt() {
    let command = json!([{"file": "in"}, {"command": ["test", "-f", "in"]}]);
    let picture = checked(command.clone(), json!([{"command": ["test", "-f", "out"]}])).picture();
    assert_eq!(
        picture,
        [
            "0s started, a started",
            "1s a call 1.2",
            "2s a call 1.3",
            "3s a call 1.4",
            "4s a completed, b started",
            "5s b completed, COMPLETED"
        ]
    );
}

/// A precondition that does not hold ends the step without its call, however often the plan would have tried again.
#[test]
fn a_precondition_that_does_not_hold_is_not_tried_again() {
    let picture = checked(json!([{"file": "in"}]), json!([])).tries("a", 3, "5s").replies("a: transient").picture();
    assert_eq!(picture.last().unwrap(), "1s a failed PRECONDITION_FAILED, b skipped DEPENDENCY_FAILED by a, FAILED");
    let picture = checked(json!([{"condition": "1 > 2"}]), json!([])).tries("a", 3, "5s").picture();
    assert_eq!(
        picture.last().unwrap(),
        "0s started, a started, a failed PRECONDITION_FAILED, b skipped DEPENDENCY_FAILED by a, FAILED"
    );
}

/// The postconditions see the output, which later steps have as well, and not what a check printed.
#[test]
fn postconditions_name_the_step_itself() {
    let holds = json!([{"condition": "size(${a.result}) == 0"}, {"command": ["true"]}]);
    let fails = json!([{"condition": "size(${a.result}) != 0"}]);
    let play = |after: Value| checked(json!([]), after).arguments("b", json!({"got": "${a.result}"})).picture();
    assert_eq!(play(holds).last().unwrap(), "3s b completed, COMPLETED");
    assert_eq!(
        play(fails).last().unwrap(),
        "1s a failed POSTCONDITION_FAILED, b skipped DEPENDENCY_FAILED by a, FAILED"
    );
}

/// A call is compensated also when only a check after it did not hold.
#[test]
fn what_a_postcondition_refuses_is_undone() {
    let picture = story("a")
        .checks("a", json!([]), json!([{"command": ["false"]}]))
        .compensated("a")
        .replies("a: ok, transient")
        .picture();
    assert!(picture.iter().any(|line| line.contains("a~compensate completed")), "{picture:?}");
    assert!(picture.last().unwrap().ends_with("FAILED"), "{picture:?}");
}

#[test]
fn an_output_has_to_fit_its_schema() {
    let play = |schema: Value| story("a").output_schema("a", schema).picture();
    assert_eq!(play(json!({"const": {}})).last().unwrap(), "1s a completed, COMPLETED");
    assert_eq!(play(json!({"const": "other"})).last().unwrap(), "1s a failed INVALID_OUTPUT, FAILED");
}

/// A compensation of a step that has not completed takes nothing from the steps that have.
#[test]
fn what_was_done_and_refused_does_not_count_as_undone() {
    let picture =
        story("a; b after a").checks("b", json!([]), json!([{"condition": "1 > 2"}])).compensated("b").picture();
    assert_eq!(picture.last().unwrap(), "3s b~compensate completed, PARTIAL", "{picture:?}");
}

/// A step whose postconditions nobody could ask any more is not said to have completed; what it has done is undone.
#[test]
fn stopping_between_a_call_and_its_postconditions_undoes_it() {
    let play = |ids: &str| {
        let story = story("a").checks("a", json!([]), json!([{"command": ["check"]}, {"command": ["check"]}]));
        story.compensated(ids).acts("1.5s cancel").picture()
    };
    let picture = play("a");
    assert!(picture.iter().any(|line| line.contains("undoes a")), "{picture:?}");
    for picture in [picture, play("")] {
        assert!(picture.last().unwrap().ends_with("CANCELLED"), "{picture:?}");
        assert!(!picture.iter().any(|line| line.contains("a completed")), "{picture:?}");
    }
}
