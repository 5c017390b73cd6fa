//! Requests of people and planners about a running execution.

use std::time::Duration;

use belay_execution::{Actor, Control, Event, Execution, ExecutionState, Json, MAX_SIGNALS, Refused};

use crate::support::{START, is, story};

fn actor(request_id: &str) -> Actor {
    Actor { principal: "ann".to_owned(), request_id: request_id.to_owned() }
}

fn pause() -> Control {
    Control::Pause { reason: "lunch".to_owned(), discard_calls: false, resume_at: None }
}

fn cancel() -> Control {
    Control::Cancel { reason: "lunch".to_owned(), kill: false }
}

fn signal(payload: &str) -> Control {
    Control::Signal { signal: "go".to_owned(), payload: Json::from_text(payload) }
}

#[test]
fn a_request_becomes_an_event_with_who_asked() {
    let mut execution = story("a").rehearse().execution;
    for (id, control) in [("1", pause()), ("2", signal("1")), ("3", Control::Resume), ("4", cancel())] {
        let events = execution.control(START, actor(id), control).unwrap();
        assert!(matches!(&events[..], [Event { actor: Some(by), .. }] if *by == actor(id)), "{events:?}");
    }
    assert_eq!(execution.state(), ExecutionState::Cancelling);
}

// A client that did not see the reply sends the request again; and the same id for something else is an error, not a silence.
#[test]
fn a_request_with_an_id_is_carried_out_once() {
    let mut execution = story("a").rehearse().execution;
    execution.control(START, actor("x"), pause()).unwrap();
    let paused = execution.clone();
    assert_eq!(execution.control(START, actor("x"), pause()), Ok(vec![]));
    let other_reason = Control::Pause { reason: "tea".to_owned(), discard_calls: false, resume_at: None };
    let discarding = Control::Pause { reason: "lunch".to_owned(), discard_calls: true, resume_at: None };
    for other in [cancel(), Control::Resume, other_reason, discarding, signal("1")] {
        assert_eq!(execution.control(START, actor("x"), other), Err(Refused::RequestIdReused));
    }
    assert_eq!(execution, paused);
    // The repetition of a request is answered in whatever state the execution is by then.
    execution.control(START, actor("y"), cancel()).unwrap();
    assert_eq!(execution.control(START, actor("x"), pause()), Ok(vec![]));
    // An id belongs to its principal: the same one of somebody else is another request.
    let somebody_else = Actor { principal: "bob".to_owned(), ..actor("x") };
    assert_eq!(
        execution.control(START, somebody_else, pause()),
        Err(Refused::WrongState(ExecutionState::Cancelling)),
        "not a repetition"
    );
    // Without an id each request stands for itself.
    assert_eq!(execution.control(START, actor(""), cancel()), Err(Refused::WrongState(ExecutionState::Cancelling)));
}

#[test]
fn the_last_thousand_requests_are_remembered_also_after_a_replay() {
    let mut play = story("w").waits("w", "never").rehearse();
    play.run();
    for number in 0..MAX_SIGNALS {
        let events = play.execution.control(START, actor(&number.to_string()), signal(&number.to_string())).unwrap();
        play.events.extend(events);
    }
    let mut replayed = Execution::replay(play.events.clone()).unwrap();
    assert_eq!(replayed, play.execution);
    assert_eq!(replayed.control(START, actor("0"), signal("0")), Ok(vec![]));
    assert_eq!(replayed.control(START, actor("new"), signal("1")), Err(Refused::TooManySignals));
    replayed.control(START, actor("pause"), pause()).unwrap();
    // The oldest of 1,001 is forgotten.
    assert_eq!(replayed.control(START, actor("0"), signal("0")), Err(Refused::TooManySignals));
    assert_eq!(replayed.control(START, actor("1"), signal("1")), Ok(vec![]));
}

#[test]
fn what_cannot_be_done_is_said_by_its_kind() {
    let ended = story("a").play().execution;
    for control in [pause(), Control::Resume, cancel(), signal("1")] {
        let mut execution = ended.clone();
        assert_eq!(execution.control(START, actor("x"), control), Err(Refused::Ended));
        assert_eq!(execution, ended);
    }
    let mut pending = story("a").rehearse().execution;
    assert_eq!(pending.control(START, actor("x"), Control::Resume), Err(Refused::WrongState(ExecutionState::Pending)));
}

/// An execution whose only step was skipped before its time begins at its time, and ends then.
#[test]
fn what_is_skipped_before_its_time_ends_at_its_time() {
    let picture = story("a").starts_after("10s").acts("2s skip-step a 0").picture();
    assert_eq!(picture, ["2s a to skip, a skipped REQUESTED", "10s started, PARTIAL"]);
}

/// A step that a person has skipped, or given an output, before the execution's start time runs at that time when they ask for it.
#[test]
fn what_was_given_before_its_time_can_run_again() {
    assert_eq!(
        story("a").starts_after("10s").acts("2s set-output a 0 7; 3s retry a").picture(),
        ["2s a given 7, a completed", "3s a run again", "10s started, a started", "11s a completed, COMPLETED"]
    );
}

// A repetition of a pause is one, also once its time has passed; a new one with that time is refused.
#[test]
fn a_pause_cannot_end_before_it_begins() {
    let mut execution = story("a").play().just_after(is::step_started);
    let (now, later) = (START.saturating_add(Duration::from_secs(9)), START.saturating_add(Duration::from_secs(20)));
    let pause = || Control::Pause {
        reason: String::new(),
        discard_calls: false,
        resume_at: Some(START.saturating_add(Duration::from_secs(10))),
    };
    assert_eq!(execution.control(now, actor("r"), pause()).unwrap().len(), 1);
    assert_eq!(execution.control(later, actor("r"), pause()), Ok(Vec::new()));
    execution.control(later, actor("s"), Control::Resume).unwrap();
    assert_eq!(execution.control(later, actor("t"), pause()), Err(Refused::ResumeTimePassed));
}
