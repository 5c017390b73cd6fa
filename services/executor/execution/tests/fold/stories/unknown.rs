//! Calls whose outcome is not known.

use belay_execution::{Actor, Control, Refused, Resolution, StepState, Waiting};

use crate::support::{Play, story};

// REQUIREMENTS section 1: the step is parked, the steps that depend on it wait, and all others run.
#[test]
fn an_unknown_outcome_parks_its_step_and_nothing_else() {
    let play = story("pay; receipt after pay; clean; tidy after clean").replies("pay: unknown").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, pay started",
            "1s pay unknown, clean started",
            "2s clean completed, tidy started",
            "3s tidy completed",
        ]
    );
    assert!(play.execution.is_parked());
    assert!(matches!(play.execution.waiting()[..], [Waiting::Outcome { .. }]));
}

// It is never retried automatically, however many attempts are left.
#[test]
fn an_unknown_outcome_is_not_tried_again() {
    assert_eq!(
        story("pay").tries("pay", 5, "1s").replies("pay: unknown").picture(),
        ["0s started, pay started", "1s pay unknown",]
    );
}

// An outcome that is still unknown at the end is a failure, and the failure says so.
#[test]
fn stopping_ends_a_step_whose_outcome_is_unknown() {
    let play = story("pay; receipt after pay").replies("pay: unknown").acts("9s cancel").play();
    assert_eq!(
        play.picture(),
        [
            "0s started, pay started",
            "1s pay unknown",
            "9s cancel requested, pay failed OUTCOME_UNKNOWN, receipt skipped CANCELLED, CANCELLED",
        ]
    );
    assert_eq!(
        play.execution.first_failure().unwrap().message,
        "The execution was stopped before anybody found out whether the step's call took effect."
    );
    assert_eq!(
        story("pay; b").stop_on_error().replies("pay: unknown; b: invalid").picture(),
        [
            "0s started, pay started",
            "1s pay unknown, b started",
            "2s b failed INVALID, pay failed OUTCOME_UNKNOWN, FAILED",
        ]
    );
}

// A call whose end becomes unknown while everything is being stopped.
#[test]
fn an_outcome_can_become_unknown_during_the_wind_up() {
    assert_eq!(
        story("pay; b").replies("pay: unknown! 5s").acts("2s cancel").picture(),
        [
            "0s started, pay started",
            "2s cancel requested, b skipped CANCELLED",
            "5s pay unknown, pay failed OUTCOME_UNKNOWN, CANCELLED",
        ]
    );
}

/// S2-FR-061: a person finds out what the call did, and reports it: the step continues from there.
#[test]
fn a_person_resolves_an_unknown_outcome() {
    let told = |how: &str| {
        story("pay; receipt after pay").replies("pay: unknown, ok").acts(&format!("9s resolve pay {how}")).picture()
    };
    assert_eq!(
        told("completed")[2..],
        ["9s pay found completed, pay completed, receipt started", "10s receipt completed, COMPLETED"]
    );
    assert_eq!(
        told("failed")[2..],
        ["9s pay found failed, pay failed RESOLVED_AS_FAILED, receipt skipped DEPENDENCY_FAILED by pay, FAILED"]
    );
    assert_eq!(
        told("again")[2..],
        [
            "9s pay found to be made again, pay call 1.2",
            "10s pay completed, receipt started",
            "11s receipt completed, COMPLETED"
        ]
    );
    // It is no attempt more, and a failure after it is retried as ever.
    let play =
        story("pay").tries("pay", 2, "1s").replies("pay: unknown, transient, ok").acts("9s resolve pay again").play();
    assert_eq!(
        play.picture()[2..],
        [
            "9s pay found to be made again, pay call 1.2",
            "10s pay waits 1s after TRANSIENT",
            "11s pay started attempt 2",
            "12s pay completed, COMPLETED"
        ]
    );
}

/// While the execution is paused, an outcome can be resolved; what follows waits.
#[test]
fn an_outcome_is_resolved_during_a_pause() {
    let told = story("pay; receipt after pay").replies("pay: unknown, ok");
    let picture = told.acts("5s pause; 9s resolve pay again; 20s resume").picture();
    assert_eq!(
        picture[2..],
        [
            "5s paused",
            "9s pay found to be made again",
            "20s resumed, pay call 1.2",
            "21s pay completed, receipt started",
            "22s receipt completed, COMPLETED"
        ]
    );
}

/// Only an unknown outcome can be resolved, once.
#[test]
fn what_cannot_be_resolved_is_refused() {
    let mut play = story("pay; b after pay").replies("pay: unknown").play();
    let ask = |play: &mut Play, id: &str, step: &str, resolution: Resolution| {
        let actor = Actor { principal: "person".to_owned(), request_id: id.to_owned() };
        let control = Control::ResolveStep { step: step.into(), resolution, reason: "looked".to_owned() };
        play.execution.control(play.now, actor, control)
    };
    assert_eq!(ask(&mut play, "1", "nobody", Resolution::Again), Err(Refused::NoStep("nobody".into())));
    assert_eq!(ask(&mut play, "1", "b", Resolution::Again), Err(Refused::WrongStepState(StepState::Pending)));
    assert_eq!(ask(&mut play, "1", "pay", Resolution::Failed).unwrap().len(), 1);
    assert_eq!(ask(&mut play, "1", "pay", Resolution::Failed), Ok(Vec::new()), "the same again");
    assert_eq!(ask(&mut play, "1", "pay", Resolution::Again), Err(Refused::RequestIdReused));
    assert_eq!(ask(&mut play, "2", "pay", Resolution::Failed), Err(Refused::WrongStepState(StepState::Running)));
    play.execution.advance(belay_execution::DecideContext { now: play.now, ledger_id: "" });
    assert_eq!(ask(&mut play, "3", "pay", Resolution::Failed), Err(Refused::Ended));
}
