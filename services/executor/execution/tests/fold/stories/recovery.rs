//! Dying on purpose.

use belay_execution::{EventKind, Execution};

use crate::support::{Story, story, without_recoveries};

// S2-FR-057: a step that was under way is under way again; its call is asked for under its own name.
// S2-X-01: what has completed is not touched.
#[test]
fn a_crash_is_seen_and_changes_nothing() {
    let mut play = story("a; b after a").rehearse();
    play.crashes = [None, Some(usize::MAX)].into();
    play.run();
    assert_eq!(play.full_picture(), [
            "0s started, a started, a call 1.1",
            "1s recovered with 1 in doubt, a call 1.1 ok, a completed, b started, b call 1.1",
            "2s b call 1.1 ok, b completed, COMPLETED",
        ]);
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
    let mut crashes = 0;
    for turn in 0..undisturbed.turns {
        // One that keeps nothing, one that keeps everything, and all between.
        for kept in 0..undisturbed.events.len() {
            let mut play = eventful().rehearse();
            play.crashes = vec![None; turn].into_iter().chain([Some(kept)]).collect();
            play.run();
            let recovered = play.events.len() - undisturbed.events.len();
            assert!(recovered <= 1);
            assert_eq!(without_recoveries(&play.events), without_recoveries(&undisturbed.events), "turn {turn}, {kept} kept");
            crashes += recovered;
        }
    }
    assert!(crashes > undisturbed.events.len(), "only {crashes} crashes");
}

// B-12, S2-NFR-007: the same plan and the same answers make the same list.
#[test]
fn the_same_story_told_twice_is_the_same() {
    assert_eq!(eventful().play().events, eventful().play().events);
}

// An executor that comes back late goes on from the moment it is in.
#[test]
fn what_became_due_meanwhile_is_done_at_once() {
    let mut play = story("a").tries("a", 2, "2s").replies("a: transient, ok").rehearse();
    play.run();
    let waiting = play.events.iter().position(|event| matches!(event.kind, EventKind::RetryScheduled { .. })).unwrap();
    let mut late = Execution::replay(play.events[..=waiting].iter().cloned()).unwrap();
    let now = play.now.saturating_add(std::time::Duration::from_secs(3_600));
    let events = late.advance(belay_execution::Surroundings { now, ledger_id: "ledger" });
    assert!(matches!(events[0].kind, EventKind::StepStarted { step: 0, attempt: 2 }), "{events:?}");
    assert!(events.iter().all(|event| event.time == now));
}

// A wall clock that is set back does not turn the list around.
#[test]
fn time_never_runs_backwards() {
    let mut play = story("a").rehearse();
    play.run();
    let started = play.events.iter().position(|event| matches!(event.kind, EventKind::CallRequested(_))).unwrap();
    let mut set_back = Execution::replay(play.events[..=started].iter().cloned()).unwrap();
    let last = play.events[started].time;
    let past = belay_execution::Timestamp::from_micros(0);
    let event = set_back.record(past, play.events[started + 1].kind.clone()).unwrap();
    let decided = set_back.advance(belay_execution::Surroundings { now: past, ledger_id: "ledger" });
    assert_eq!(event.time, last);
    assert!(!decided.is_empty() && decided.iter().all(|event| event.time == last));
}
