//! Decisions about firings, by the time and by what runs.

use crate::{Firing, Origin, Outcome, Overlap, Record, SkipReason, Specification, State};

/// How many firings one decision starts: the next one follows at once.
pub const MAX_STARTS: usize = 100;
/// How many firings wait for the end of others, beside those of backfills.
pub const MAX_QUEUED: usize = 100;
/// How many missed times are counted one by one.
const MAX_COUNTED: usize = 1000;

/// A decision: the state that follows, and when to decide again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The state. What it says is to be started or cancelled is done after it is stored.
    pub state: State,
    /// When the next firing is due, in seconds since the Unix epoch; `None` when only an event changes anything.
    pub wake_at: Option<i64>,
}

/// Decides everything up to `now`, in seconds since the Unix epoch. The ends of executions are recorded before ([`State::record_end`]).
///
/// A clock that is set back finds nothing to decide until it is again where it was; one that jumps ahead finds each time that it has passed over,
/// those beyond the catch-up window as missed.
#[must_use]
pub fn decide(specification: &Specification, state: &State, now: i64) -> Decision {
    let mut state = state.clone();
    if state.paused.is_some() {
        pass_over(specification, &mut state, now, SkipReason::Paused);
        return Decision { state, wake_at: None };
    }
    start_queued(specification, &mut state);
    let missed = now.saturating_sub(specification.catch_up()).saturating_sub(specification.jitter());
    pass_over(specification, &mut state, missed.saturating_sub(1), SkipReason::Missed);
    let mut wake_at = None;
    while let Some(nominal) = specification.next_after(state.decided) {
        let due = specification.due(nominal);
        if due > now {
            wake_at = Some(due);
            break;
        }
        if state.starting.len() >= MAX_STARTS {
            wake_at = Some(now);
            break;
        }
        state.decided = nominal;
        let firing = Firing { nominal, origin: Origin::Schedule };
        if due.saturating_add(specification.catch_up()) < now {
            state.skip(firing, SkipReason::Missed);
        } else {
            fire(specification.overlap(), &mut state, firing);
        }
    }
    if specification.overlap() == Overlap::CancelOlder {
        cancel_older(&mut state);
    }
    Decision { state, wake_at }
}

/// Cancels what runs while a newer one waits for its end.
fn cancel_older(state: &mut State) {
    if state.queue.front().is_some_and(|newer| newer.origin == Origin::Schedule) {
        let older = state.running.iter().filter(|older| !state.cancelling.contains(older));
        let older: Vec<Firing> = older.copied().collect();
        state.cancelling.extend(older);
    }
}

/// Decides a firing that is due, by what runs.
fn fire(overlap: Overlap, state: &mut State, firing: Firing) {
    let is_busy = state.is_busy() || !state.queue.is_empty();
    let queued = state.queue.iter().filter(|waiting| waiting.origin == Origin::Schedule).count();
    match overlap {
        _ if !is_busy => state.starting.push(firing),
        Overlap::Allow => state.starting.push(firing),
        Overlap::Skip => state.skip(firing, SkipReason::Overlap),
        Overlap::Queue if queued >= MAX_QUEUED => state.skip(firing, SkipReason::QueueFull),
        Overlap::Queue => state.queue.push_back(firing),
        Overlap::CancelOlder => {
            // What was decided and has not begun is left out, rather than begun to be cancelled.
            let scheduled = |waiting: &Firing| waiting.origin == Origin::Schedule;
            let superseded: Vec<Firing> = state.queue.iter().copied().filter(scheduled).collect();
            state.queue.retain(|waiting| !scheduled(waiting));
            for older in superseded {
                state.skip(older, SkipReason::Superseded);
            }
            state.queue.push_front(firing);
        }
    }
}

/// Starts what waits, if it may.
fn start_queued(specification: &Specification, state: &mut State) {
    let beside = specification.overlap() == Overlap::Allow;
    while state.starting.len() < MAX_STARTS && (beside || !state.is_busy()) {
        let Some(firing) = state.queue.pop_front() else { return };
        state.starting.push(firing);
    }
}

/// Decides every time up to `until` as skipped. However many there are, few are counted one by one.
fn pass_over(specification: &Specification, state: &mut State, until: i64, reason: SkipReason) {
    if until <= state.decided {
        return;
    }
    let passed = specification.upcoming(state.decided, MAX_COUNTED).take_while(|time| *time <= until);
    let (mut first, mut count) = (None, 0);
    for time in passed {
        first = first.or(Some(time));
        state.decided = time;
        count += 1;
    }
    if let Some(first) = first {
        state.skipped += count;
        let outcome = Outcome::Skipped(reason);
        state.record_all(Record { first, last: state.decided, count, origin: Origin::Schedule, outcome });
    }
    state.decided = until;
}
