//! What is started, skipped, queued and cancelled.

use belay_schedule::{Draft, Firing, MAX_STARTS, Origin, Outcome, Overlap, SkipReason, State, decide};

use crate::{checked, every};

fn firing(nominal: i64) -> Firing {
    Firing { nominal, origin: Origin::Schedule }
}

/// Starts what a decision says, as the owner does.
fn start_all(state: &mut State) -> Vec<i64> {
    let starting = state.starting.clone();
    for firing in &starting {
        state.record_start(*firing);
    }
    starting.iter().map(|firing| firing.nominal).collect()
}

fn skips(state: &State) -> Vec<(SkipReason, u64)> {
    let skipped = state.records.iter().filter_map(|record| match record.outcome {
        Outcome::Skipped(reason) => Some((reason, record.count)),
        Outcome::Started | Outcome::Failed(_) => None,
    });
    skipped.collect()
}

#[test]
fn a_new_schedule_waits_for_its_first_time() {
    let decision = decide(&checked(&every(60)), &State::new(30), 59);
    assert_eq!((decision.state, decision.wake_at), (State::new(30), Some(60)));
}

#[test]
fn overlapping_firings_follow_the_policy() {
    let with = |overlap| checked(&Draft { overlap, ..every(60) });
    let after_first = |overlap| {
        let mut state = decide(&with(overlap), &State::new(0), 60).state;
        assert_eq!(start_all(&mut state), [60]);
        decide(&with(overlap), &state, 125).state
    };
    let state = after_first(Overlap::Skip);
    assert!(state.starting.is_empty() && state.queue.is_empty());
    assert_eq!(skips(&state), [(SkipReason::Overlap, 1)]);

    let mut state = after_first(Overlap::Queue);
    assert_eq!((state.starting.len(), state.queue.clone()), (0, [firing(120)].into()));
    state.record_end(firing(60));
    assert_eq!(start_all(&mut decide(&with(Overlap::Queue), &state, 130).state), [120]);

    let mut state = after_first(Overlap::CancelOlder);
    assert_eq!((state.cancelling.clone(), state.queue.clone()), (vec![firing(60)], [firing(120)].into()));
    state = decide(&with(Overlap::CancelOlder), &state, 185).state;
    assert_eq!(state.queue, [firing(180)], "the newest alone waits");
    assert_eq!(skips(&state), [(SkipReason::Superseded, 1)]);
    state.record_end(firing(60));
    let mut state = decide(&with(Overlap::CancelOlder), &state, 190).state;
    assert_eq!((start_all(&mut state), state.cancelling.len()), (vec![180], 0));

    assert_eq!(start_all(&mut after_first(Overlap::Allow)), [120]);
}

#[test]
fn what_is_later_than_the_window_is_missed() {
    let specification = checked(&Draft { overlap: Overlap::Allow, catch_up: Some(120), ..every(60) });
    let mut state = decide(&specification, &State::new(0), 3600).state;
    assert_eq!(start_all(&mut state), [3480, 3540, 3600], "each is at most 120 s late");
    assert_eq!(skips(&state), [(SkipReason::Missed, 57)]);
}

#[test]
fn a_long_outage_is_decided_in_steps_and_quickly() {
    let specification = checked(&Draft { overlap: Overlap::Allow, catch_up: Some(1000), ..every(1) });
    let now = 20 * 365 * 86_400;
    let mut decision = decide(&specification, &State::new(0), now);
    assert_eq!((decision.state.starting.len(), decision.wake_at), (MAX_STARTS, Some(now)));
    let mut started = 0;
    while decision.wake_at == Some(now) {
        started += start_all(&mut decision.state).len();
        decision = decide(&specification, &decision.state, now);
    }
    assert_eq!(started + start_all(&mut decision.state).len(), 1001);
}

#[test]
fn a_paused_schedule_starts_nothing_and_makes_nothing_up() {
    let specification = checked(&every(60));
    let paused = State { paused: Some("maintenance".into()), ..State::new(0) };
    let decision = decide(&specification, &paused, 3600);
    assert_eq!((decision.wake_at, skips(&decision.state)), (None, vec![(SkipReason::Paused, 60)]));
    let resumed = State { paused: None, ..decision.state };
    let decision = decide(&specification, &resumed, 3600);
    assert_eq!((decision.state.starting.len(), decision.wake_at), (0, Some(3660)));
}

#[test]
fn a_trigger_starts_beside_all_and_has_a_name_of_its_own() {
    let mut state = State::new(0);
    let first = state.trigger("a", 60);
    assert_eq!(state.trigger("a", 70), first, "a repeated request");
    let second = state.trigger("b", 60);
    assert_eq!((first.nominal, second.nominal, state.starting.len()), (60, 61, 2));
    assert_eq!(state.trigger("", 61).nominal, 62);
    assert_ne!(first.execution_id("s"), firing(60).execution_id("s"));
}

#[test]
fn jitter_delays_a_firing_and_its_name_stays() {
    let specification = checked(&Draft { jitter: 60, ..every(60) });
    let due = specification.due(60);
    assert!((60..120).contains(&due));
    assert_eq!(decide(&specification, &State::new(0), due - 1).wake_at, Some(due));
    let mut state = decide(&specification, &State::new(0), due).state;
    assert_eq!(start_all(&mut state), [60]);
}
