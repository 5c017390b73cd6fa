//! Compensations, when an execution does not complete.

use belay_execution::{Body, ExecutionState, OperationEvent, Work};
use serde_json::json;

use crate::support::{Play, story};

/// The arguments of the calls that undo something, by their steps.
fn undone(play: &Play) -> Vec<String> {
    let requests = play.events.iter().filter_map(|event| match &event.body {
        Body::Operation { id: call, event: OperationEvent::Requested(Work::ToolCall(request)) }
            if request.tool == "undo" =>
        {
            Some(format!("{} {}", call.step, request.arguments.inline()?.as_str()))
        }
        _ => None,
    });
    requests.collect()
}

/// S4-29: the last to complete is undone first, one after the other, with what the steps have returned; steps that say nothing stay.
#[test]
fn what_completed_is_undone_in_reverse_order() {
    let play = story("a; b after a; c; d after b; e after d")
        .parallelism(2)
        .compensated("a b c e")
        .output("a", &json!({"id": 7}))
        .replies("c: ok 5s; d: transient 6s")
        .play();
    assert_eq!(
        play.picture(),
        [
            "0s started, a started, c started",
            "1s a completed, b started",
            "2s b completed, d started",
            "5s c completed",
            "8s d failed TRANSIENT, e skipped DEPENDENCY_FAILED by d, undoes c b a, c~compensate started",
            "9s c~compensate completed, b~compensate started",
            "10s b~compensate completed, a~compensate started",
            "11s a~compensate completed, FAILED",
        ]
    );
    assert_eq!(
        undone(&play),
        [r#"c~compensate {"undo":{}}"#, r#"b~compensate {"undo":{}}"#, r#"a~compensate {"undo":{"id":7}}"#]
    );
    assert_eq!((play.execution.totals().total, play.execution.totals().completed), (5, 3));
}

#[test]
fn what_stays_makes_it_partial() {
    let picture = story("a; b; c").compensated("a").replies("c: transient").picture();
    assert_eq!(picture.last().unwrap(), "4s a~compensate completed, PARTIAL");
}

#[test]
fn nothing_is_undone_of_what_completes() {
    let picture = story("a; b after a").compensated("a b").picture();
    assert_eq!(picture, ["0s started, a started", "1s a completed, b started", "2s b completed, COMPLETED"]);
}

/// A compensation that fails is retried as often as its step, and keeps no other step from being compensated.
#[test]
fn a_failure_to_undo_stops_nothing() {
    let play = story("a; b; c after b")
        .stop_on_error()
        .compensated("a b")
        .tries("b", 2, "5s")
        .replies("c: transient; b~compensate: transient, transient")
        .play();
    assert_eq!(
        play.picture()[3..],
        [
            "3s c failed TRANSIENT, undoes b a, b~compensate started",
            "4s b~compensate waits 5s after TRANSIENT",
            "9s b~compensate started attempt 2",
            "10s b~compensate failed TRANSIENT, a~compensate started",
            "11s a~compensate completed, FAILED",
        ]
    );
    assert_eq!(play.execution.first_failure().unwrap().reason, "TRANSIENT");
}

#[test]
fn a_stop_undoes_as_well() {
    let cancelled = story("a; b").compensated("a b").replies("b: ok 9s").acts("3s cancel").picture();
    assert_eq!(
        cancelled[2..],
        [
            "3s cancel requested, b call 1.1 stopped, b cancelled, undoes a, a~compensate started",
            "4s a~compensate completed, CANCELLED",
        ]
    );
    let late = story("a; b").compensated("a b").limit("3s").replies("b: ok 9s").play();
    assert_eq!(late.state(), ExecutionState::TimedOut);
    assert_eq!(late.picture().last().unwrap(), "4s a~compensate completed, TIMED_OUT");
    // One that was stopped too late to stop anything.
    let nothing = story("a").compensated("a").replies("a: ok! 2s").acts("1s cancel").play();
    assert_eq!(nothing.state(), ExecutionState::Completed);
}

/// A second cancellation leaves out what has not been undone.
#[test]
fn undoing_can_be_cancelled() {
    let picture =
        story("a; b; c").compensated("a b").replies("c: transient; b~compensate: ok 9s").acts("4s cancel").picture();
    assert_eq!(
        picture[3..],
        [
            "3s c failed TRANSIENT, undoes b a, b~compensate started",
            "4s cancel requested, a~compensate skipped CANCELLED, b~compensate call 1.1 stopped, b~compensate cancelled, CANCELLED",
        ]
    );
}

/// S1-27: what runs is killed, nothing more is undone, and what is being undone is killed too.
#[test]
fn nothing_is_undone_of_what_is_killed() {
    let picture = story("a; b after a").compensated("a").replies("b: ok 9s").acts("3s kill").picture();
    assert_eq!(picture[2..], ["3s kill requested, b call 1.1 stopped, b cancelled, CANCELLED"]);
    let picture =
        story("a; b; c").compensated("a b").replies("c: transient; b~compensate: ok 9s").acts("4s kill").picture();
    assert_eq!(
        picture[4..],
        [
            "4s kill requested, a~compensate skipped CANCELLED, b~compensate call 1.1 stopped, b~compensate cancelled, CANCELLED"
        ]
    );
}

/// A step that was given its output has done nothing.
#[test]
fn what_was_given_its_output_is_not_undone() {
    let story = story("a; b").compensated("a").replies("b: transient").acts("0s pause; 0s set-output a 0 1; 1s resume");
    assert_eq!(story.picture().last().unwrap(), "2s b failed TRANSIENT, PARTIAL");
}

#[test]
fn nothing_is_undone_during_a_pause() {
    let picture =
        story("a; b after a").compensated("a").replies("b: transient 3s").acts("2s pause; 9s resume").picture();
    assert_eq!(
        picture[2..],
        [
            "2s paused",
            "4s b failed TRANSIENT",
            "9s resumed, undoes a, a~compensate started",
            "10s a~compensate completed, FAILED"
        ]
    );
}

/// A compensated step runs again, with all that depends on it; and is compensated again.
#[test]
fn a_retry_does_again_what_was_undone() {
    let play = story("a; b; c after a")
        .compensated("a")
        .replies("c: transient, transient, ok")
        .acts("9s retry; 19s retry")
        .play();
    assert_eq!(
        play.picture()[3..],
        [
            "3s c failed TRANSIENT, undoes a, a~compensate started",
            "4s a~compensate completed, PARTIAL",
            "9s a c run again, a started attempt 2",
            "10s a completed, c started attempt 2",
            "11s c failed TRANSIENT, undoes a, a~compensate started attempt 2",
            "12s a~compensate completed, PARTIAL",
            "19s a c run again, a started attempt 3",
            "20s a completed, c started attempt 3",
            "21s c completed, COMPLETED",
        ]
    );
}

/// A step whose compensation failed is compensated when the execution fails again.
#[test]
fn what_could_not_be_undone_is_tried_again() {
    let play = story("a; b")
        .compensated("a")
        .replies("b: transient, transient; a~compensate: transient, ok")
        .acts("9s retry")
        .play();
    assert_eq!(
        play.picture()[2..],
        [
            "2s b failed TRANSIENT, undoes a, a~compensate started",
            "3s a~compensate failed TRANSIENT, PARTIAL",
            "9s b run again, b started attempt 2",
            "10s b failed TRANSIENT, undoes a, a~compensate started attempt 2",
            "11s a~compensate completed, FAILED",
        ]
    );
}

/// Each entry of a list is undone by itself.
#[test]
fn the_entries_of_a_list_are_undone() {
    let play = story("a; b after a")
        .for_each("a", json!(["x", "y"]))
        .compensated("a")
        .output("a~0", &json!("of x"))
        .output("a~1", &json!("of y"))
        .replies("b: transient")
        .play();
    assert_eq!(undone(&play), [r#"a~1~compensate {"undo":"of y"}"#, r#"a~0~compensate {"undo":"of x"}"#]);
}

#[test]
fn undoing_waits_for_an_approval() {
    let picture =
        story("a; b after a").compensated("a").replies("b: transient; a~compensate: ok effect:approved:2s").picture();
    assert_eq!(
        picture[2..],
        [
            "2s b failed TRANSIENT, undoes a, a~compensate started",
            "3s a~compensate held with its effect, awaiting approval",
            "5s a~compensate APPROVED, a~compensate completed, FAILED",
        ]
    );
}
