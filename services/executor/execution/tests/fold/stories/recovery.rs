//! Dying on purpose.

use std::time::Duration;

use belay_execution::{Body, DecideContext, ExecutionState, StepEvent};

use crate::support::{START, Story, act_of, is, story, without_recoveries};

// S2-FR-057: a step that was under way is under way again; its call is asked for under its own name.
// S2-X-01: what has completed is not touched.
#[test]
fn a_crash_is_seen_and_changes_nothing() {
    let mut play = story("a; b after a").rehearse();
    play.crashes = [None, Some(0)].into();
    play.run();
    assert_eq!(
        play.full_picture(),
        [
            "0s started, a started, a call 1.1",
            "1s recovered with 1 in doubt, a call 1.1 ok, a completed, b started, b call 1.1",
            "2s b call 1.1 ok, b completed, COMPLETED",
        ]
    );
}

/// A story with something of everything.
fn eventful() -> Story {
    story("a; b after a; c after a; d after b; e after c; f; g after f")
        .parallelism(3)
        .tries("b", 3, "2s 3s")
        .replies("b: transient, ok 5s, ok 5s; c: invalid 2s; f: unknown 3s")
        .acts("5s pause discarding; 7s resume; 20s cancel")
}

// B-01, S2-NFR-005, S2-NFR-006, S2-FR-058, B-12: the executor dies after every single event, once each. Whatever was not stored is told
// again, and the story comes out the same, to the event.
#[test]
fn a_crash_after_any_event_changes_nothing() {
    let mut undisturbed = eventful().rehearse();
    undisturbed.run();
    for (turn, &events) in undisturbed.turns.iter().enumerate() {
        for kept in 0..=events {
            let mut play = eventful().rehearse();
            play.crashes = vec![None; turn].into_iter().chain([Some(kept)]).collect();
            play.run();
            assert_eq!(
                without_recoveries(&play.events),
                without_recoveries(&undisturbed.events),
                "turn {turn}, {kept} kept"
            );
            // The successor of the one that stored the end has nothing to take up.
            let survived = kept == events && turn + 1 == undisturbed.turns.len();
            assert_eq!(play.events.len() - undisturbed.events.len(), usize::from(!survived));
        }
    }
}

// B-12, S2-NFR-007: the same plan and the same answers make the same list.
#[test]
fn the_same_story_told_twice_is_the_same() {
    assert_eq!(eventful().play().events, eventful().play().events);
}

// An executor that comes back late continues from the moment it is in.
#[test]
fn what_became_due_meanwhile_is_done_at_once() {
    let play = story("a").tries("a", 2, "2s").replies("a: transient, ok").play();
    let mut late = play.just_after(is::retry_scheduled);
    let now = play.now.saturating_add(Duration::from_secs(3_600));
    let events = late.advance(DecideContext { now, ledger_id: "ledger" });
    assert!(matches!(events[0].body, Body::Step { attempt: 2, event: StepEvent::Started, .. }), "{events:?}");
    assert!(events.iter().all(|event| event.time == now));
}

// One that died between a step's start and its call makes the call, unless it is to stop by then.
#[test]
fn a_step_without_its_call_is_not_forgotten() {
    let play = story("a").play();
    let cut = play.just_after(is::step_started);
    let context = DecideContext { now: play.now, ledger_id: "ledger" };

    let mut goes_on = cut.clone();
    let decided = goes_on.advance(context);
    assert!(decided.len() == 1 && is::call_requested(&decided[0].body), "{decided:?}");

    let mut stops = cut;
    let (actor, cancel) = act_of("cancel");
    stops.record(play.now, actor, cancel).unwrap();
    stops.advance(context);
    assert_eq!(stops.state(), ExecutionState::Cancelled);
    assert_eq!(stops.totals().cancelled, 1);
}

// A wall clock that is set back does not turn the list around.
#[test]
fn time_never_runs_backwards() {
    let play = story("a; b after a").play();
    let mut set_back = play.just_after(is::call_completed);
    let decided = set_back.advance(DecideContext { now: START, ledger_id: "ledger" });
    let a_second_later = START.saturating_add(Duration::from_secs(1));
    assert_eq!(decided.iter().map(|event| event.time).collect::<Vec<_>>(), [a_second_later; 3]);
    let (actor, pause) = act_of("pause");
    let paused = set_back.record(START, actor, pause).unwrap();
    assert_eq!(paused.time, a_second_later);
}
