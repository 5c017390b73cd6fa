//! Any plan, any answers, any interference: the rules hold.

use std::time::Duration;

use belay_execution::{
    Actor, Body, DecideContext, Event, Execution, ExecutionState, NotRestored, SNAPSHOT_VERSION, StepId,
};
use proptest::{collection::vec, prelude::*, sample::Index};

use crate::support::{Conditions, Happening, START, act_of, without_recoveries};

use crate::worlds::{MAX_STEPS, crashes, lists, worlds, worlds_of_one_effect};

/// Something done to a list that nothing does to a journal.
#[derive(Clone, Debug)]
enum Tampering {
    Omit(Index),
    Repeat(Index),
    Exchange(Index, Index),
    /// Put one event in the place of another.
    Replace(Index, Index),
    /// Make one event about another step, which the plan may not have.
    Redirect(Index, usize),
    Cut(Index),
}

fn tamperings() -> impl Strategy<Value = Tampering> {
    let place = any::<Index>;
    prop_oneof![
        place().prop_map(Tampering::Omit),
        place().prop_map(Tampering::Repeat),
        (place(), place()).prop_map(|(one, other)| Tampering::Exchange(one, other)),
        (place(), place()).prop_map(|(place, by)| Tampering::Replace(place, by)),
        (place(), 0..=MAX_STEPS).prop_map(|(place, step)| Tampering::Redirect(place, step)),
        place().prop_map(Tampering::Cut),
    ]
}

impl Tampering {
    fn apply(&self, bodies: &mut Vec<Happening>) {
        let length = bodies.len();
        match self {
            Self::Omit(place) => {
                bodies.remove(place.index(length));
            }
            Self::Repeat(place) => bodies.insert(place.index(length), bodies[place.index(length)].clone()),
            Self::Exchange(one, other) => bodies.swap(one.index(length), other.index(length)),
            Self::Replace(place, by) => bodies[place.index(length)] = bodies[by.index(length)].clone(),
            Self::Redirect(place, step) => redirect(&mut bodies[place.index(length)].1, *step),
            Self::Cut(place) => bodies.truncate(1 + place.index(length)),
        }
    }
}

fn redirect(body: &mut Body, to: usize) {
    let to = StepId::from(format!("s{to}"));
    match body {
        Body::Execution(_) => {}
        Body::Step { step, .. } => *step = to,
        Body::Operation { id, .. } => id.step = to,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    // REQUIREMENTS section 4, numbers 1, 2, 3, 5, 6, 8 and 12, which every play checks at every event; and whatever happened, a person can
    // bring it to an end. B-01, B-12, S2-NFR-005, S2-NFR-006: the same world twice makes the same list, and so it does for an executor that
    // dies again and again.
    #[test]
    fn the_rules_hold_and_crashes_change_nothing(world in worlds(), crashes in crashes()) {
        let mut play = world.play(&[]);
        prop_assert_eq!(&world.play(&[]).events, &play.events);

        let disturbed = world.play(&crashes);
        prop_assert_eq!(without_recoveries(&disturbed.events), without_recoveries(&play.events));
        prop_assert_eq!(disturbed.refused, play.refused.clone());

        if play.state() == ExecutionState::Paused {
            play.act(act_of("resume"));
        }
        // What was done is undone after the first, which may wait for people too; the second leaves that out.
        for _ in 0..2 {
            if !play.state().is_terminal() {
                play.act(act_of("cancel"));
            }
        }
        prop_assert!(play.state().is_terminal());
    }

    // B-34: what the calls of a step have changed is committed as one or not at all, and a step is what its commit is; the audit sees to it at every event.
    #[test]
    fn a_step_with_one_effect_is_what_its_commit_is(world in worlds_of_one_effect(), crashes in crashes()) {
        let play = world.play(&[]);
        let disturbed = world.play(&crashes);
        prop_assert_eq!(without_recoveries(&disturbed.events), without_recoveries(&play.events));
    }

    // A gap, a repetition or another order is seen at once.
    #[test]
    fn a_list_whose_numbers_do_not_fit_is_refused(events in lists(), place: Index) {
        let place = place.index(events.len());
        let mut repeated = events.clone();
        repeated.insert(place, events[place].clone());
        prop_assert!(Execution::replay(repeated).is_err());
        if place + 1 < events.len() {
            let mut omitted = events.clone();
            omitted.remove(place);
            prop_assert!(Execution::replay(omitted).is_err());
            let mut exchanged = events;
            exchanged.swap(place, place + 1);
            prop_assert!(Execution::replay(exchanged).is_err());
        }
    }

    // With new numbers, a list that was tampered with is refused, or is a history that can be gone on with: it never panics, and it never
    // leads to a decision that cannot be made.
    #[test]
    fn a_list_that_was_tampered_with_is_refused_or_lived_with(events in lists(), tamperings in vec(tamperings(), 1..4)) {
        let times: Vec<_> = events.iter().map(|event| event.time).collect();
        let mut bodies: Vec<Happening> = events.into_iter().map(|event| (event.actor, event.body)).collect();
        for tampering in tamperings {
            if !bodies.is_empty() {
                tampering.apply(&mut bodies);
            }
        }
        let time = |place: usize| times[place.min(times.len() - 1)];
        let numbered = bodies.into_iter().zip(1..).enumerate();
        let event = |(place, ((actor, body), sequence)): (usize, ((Option<Actor>, Body), u64))| {
            Event { sequence, time: time(place), actor, body }
        };
        go_on(Execution::replay(numbered.map(event)).ok());
    }

    // B-24: a snapshot that is not what was written is refused, or is a state; it never ends the process.
    #[test]
    fn a_snapshot_of_any_bytes_is_refused_or_restored(events in lists(), cut: Index, flipped: Option<(Index, u8)>, other: u32) {
        let first = events[0].clone();
        let execution = Execution::replay(events).unwrap();
        let Some(snapshot) = execution.snapshot() else { return Ok(()) };
        prop_assert_eq!(&Execution::restore(first.clone(), &snapshot).unwrap(), &execution);
        prop_assert!(Execution::restore(first.clone(), &snapshot[..cut.index(snapshot.len())]).is_err());
        let longer = [&snapshot[..], &[0]].concat();
        prop_assert!(matches!(Execution::restore(first.clone(), &longer), Err(NotRestored::Undecodable(_))));
        let mut of_other = vec![u8::try_from(SNAPSHOT_VERSION).unwrap() + 1];
        of_other.extend(&snapshot[1..]);
        let found = SNAPSHOT_VERSION + 1;
        prop_assert_eq!(Execution::restore(first.clone(), &of_other), Err(NotRestored::OtherVersion { found }));
        let Some((place, bits)) = flipped else { return Ok(()) };
        let (mut damaged, place) = (snapshot, place.index(other as usize % 1000 + 1));
        if let Some(byte) = damaged.get_mut(place) {
            *byte ^= bits;
        }
        drop(Execution::restore(first, &damaged));
    }

    // Events of one play, in any order: those that are accepted make a history that can be gone on with.
    #[test]
    fn what_is_accepted_can_be_gone_on_with(events in lists(), order in vec((any::<Index>(), 0..=MAX_STEPS), 0..200)) {
        let mut execution = Execution::create(events[0].clone()).unwrap();
        for (place, step) in order {
            let mut event = events[place.index(events.len())].clone();
            event.sequence = execution.last_sequence() + 1;
            redirect(&mut event.body, step);
            let mut next = execution.clone();
            if next.apply(&event).is_ok() {
                execution = next;
            }
        }
        go_on(Some(execution));
    }
}

/// Decides what can be decided now, much later, and once everything is to stop.
fn go_on(execution: Option<Execution>) {
    let Some(mut execution) = execution else { return };
    assert!(execution.is_index_consistent() && execution.are_budgets_consistent());
    stop(execution.clone());
    for hours in [0, 1] {
        let now = START.saturating_add(Duration::from_secs(hours * 3_600));
        execution.advance_with(DecideContext { now, ledger_id: "ledger" }, &Conditions::FREE);
        let waiting = execution.steps().filter_map(|step| step.waiting()).chain(execution.waiting()).count();
        let owned = waiting > 0 || execution.operations().len() > 0 || execution.state().is_terminal();
        assert!(owned, "nobody goes on with {execution:?}");
    }
    stop(execution);
}

fn stop(mut execution: Execution) {
    let (actor, cancel) = act_of("cancel");
    if execution.record(START, actor, cancel).is_ok() {
        execution.advance_with(DecideContext { now: START, ledger_id: "ledger" }, &Conditions::FREE);
        assert!(execution.state().is_terminal() || execution.operations().len() > 0, "nothing ends {execution:?}");
    }
}
