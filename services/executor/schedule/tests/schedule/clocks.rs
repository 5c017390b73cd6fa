//! Whatever the clock does and wherever the owner is killed, each nominal time is decided once.

use std::collections::BTreeMap;

use belay_schedule::{Draft, Firing, Overlap, Specification, State, decide};
use proptest::prelude::*;

use crate::{checked, cron, every};

/// What happens to the owner of a schedule.
#[derive(Clone, Copy, Debug)]
enum Happening {
    /// The clock goes on, ahead or back, by as many seconds.
    Clock(i64),
    /// It is killed after its decision was stored and as many executions were started.
    KilledAfter(usize),
    /// It stores that the executions exist.
    Recorded,
    /// The oldest execution ends.
    Ended,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (0..400_i64).prop_map(Happening::Clock),
        1 => (-200_000..200_000_i64).prop_map(Happening::Clock),
        2 => (0..4_usize).prop_map(Happening::KilledAfter),
        2 => Just(Happening::Recorded),
        2 => Just(Happening::Ended),
    ]
}

fn specifications() -> impl Strategy<Value = Specification> {
    let overlap =
        prop_oneof![Just(Overlap::Skip), Just(Overlap::Queue), Just(Overlap::CancelOlder), Just(Overlap::Allow)];
    let timing = prop_oneof![
        Just(every(60)),
        Just(every(97)),
        Just(cron("*/5 * * * *", "Europe/Berlin")),
        Just(cron("17 1-3 * * *", "America/New_York")),
    ];
    (timing, overlap, prop_oneof![Just(0), Just(30), Just(60)], prop_oneof![Just(10), Just(3600), Just(86_400)])
        .prop_map(|(timing, overlap, jitter, catch_up)| {
            checked(&Draft { overlap, jitter, catch_up: Some(catch_up), ..timing })
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn no_time_is_lost_or_doubled(specification in specifications(), happenings in prop::collection::vec(happening(), 1..60)) {
        // A few hours before New York's clocks go back.
        let begin = 1_793_500_000;
        let mut now = begin;
        let mut stored = State::new(now);
        // Executions by id, each with how often it was made: a store refuses a second one of a name.
        let mut executions: BTreeMap<String, Firing> = BTreeMap::new();
        let mut decided = Vec::new();
        for happening in happenings {
            if let Happening::Clock(seconds) = happening {
                now = (now + seconds).max(begin);
            }
            let before = stored.decided;
            let mut state = decide(&specification, &stored, now).state;
            prop_assert!(state.decided >= before, "never back");
            decided.extend(specification.upcoming(before, 100_000).take_while(|time| *time <= state.decided));
            stored = state.clone();
            match happening {
                Happening::KilledAfter(started) => {
                    for firing in state.starting.iter().take(started) {
                        executions.insert(firing.execution_id("s"), *firing);
                    }
                }
                Happening::Recorded | Happening::Clock(_) => {
                    for firing in state.starting.clone() {
                        executions.insert(firing.execution_id("s"), firing);
                        state.record_start(firing);
                    }
                    stored = state;
                }
                Happening::Ended => {
                    if let Some(firing) = state.running.first().copied() {
                        state.record_end(firing);
                    }
                    stored = state;
                }
            }
            prop_assert!(specification.overlap() == Overlap::Allow || stored.running.len() + stored.starting.len() <= 1);
        }
        for firing in stored.starting.clone() {
            executions.insert(firing.execution_id("s"), firing);
            stored.record_start(firing);
        }
        // Every nominal time up to the last decided one was decided once: it runs or ran, waits, or was skipped.
        let all: Vec<i64> = specification.upcoming(begin, 100_000).take_while(|time| *time <= stored.decided).collect();
        prop_assert_eq!(&decided, &all);
        let nominal: Vec<i64> = executions.values().map(|firing| firing.nominal).collect();
        prop_assert!(nominal.iter().all(|time| all.contains(time)));
        prop_assert_eq!(executions.len() as u64, stored.started, "each was started once");
        if all.len() < 1000 {
            prop_assert_eq!(all.len() as u64, stored.started + stored.skipped + stored.queue.len() as u64);
        }
    }

    #[test]
    fn the_next_time_is_later_and_none_is_between(specification in specifications(), after in 0..4_000_000_000_i64) {
        let next = specification.next_after(after).unwrap();
        prop_assert!(next > after);
        prop_assert_eq!(specification.next_after(next - 1), Some(next));
        let between = after + (next - after) / 2;
        prop_assert_eq!(specification.next_after(between), Some(next));
    }
}
