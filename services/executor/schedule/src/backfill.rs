//! The times of a range that is over, asked for by a person.

use crate::{Firing, Origin, Specification, SpecificationError, State};

/// How many times one request can ask for.
pub const MAX_BACKFILL: usize = 1000;

/// Queues every nominal time from `from` to `to`, both included, that is over, and returns how many they are. One that the schedule has fired already
/// keeps its execution, as long as that is there: the id is the same. A repeated request queues nothing.
///
/// # Errors
/// [`SpecificationError`] when the range is not one, has no nominal time, has too many, or is not over.
pub fn backfill(
    specification: &Specification,
    state: &mut State,
    request: &str,
    (from, to): (i64, i64),
    now: i64,
) -> Result<usize, SpecificationError> {
    if let Some(count) = state.requested(request) {
        return Ok(usize::try_from(count).unwrap_or_default());
    }
    if from > to {
        return Err(SpecificationError::new("end_time", "is before `start_time`: exchange the two"));
    }
    if to > now {
        let problem = "is in the future, which comes by itself: use a time that is over";
        return Err(SpecificationError::new("end_time", problem));
    }
    // What is not decided yet comes by itself.
    let last = to.min(state.decided);
    let times: Vec<i64> =
        specification.upcoming(from.saturating_sub(1), MAX_BACKFILL + 1).take_while(|time| *time <= last).collect();
    if times.is_empty() {
        return Err(SpecificationError::new(
            "start_time",
            "to `end_time` has no time of this schedule: use a longer range",
        ));
    }
    let queued = state.queue.iter().filter(|firing| firing.origin == Origin::Backfill).count();
    if times.len() + queued > MAX_BACKFILL {
        let problem = match queued {
            0 => format!("to `end_time` has more than {MAX_BACKFILL} times of this schedule: ask for a part at a time"),
            _ => format!(
                "to `end_time` would make more than {MAX_BACKFILL} times wait, and {queued} do already: ask again when they have started"
            ),
        };
        return Err(SpecificationError::new("start_time", problem));
    }
    let mut count = 0;
    for nominal in times {
        let firing = Firing { nominal, origin: Origin::Backfill };
        let waits = |other: &Firing| other.nominal == nominal && other.origin != Origin::Trigger;
        if !state.queue.iter().chain(&state.starting).chain(&state.running).any(waits) {
            state.queue.push_back(firing);
            count += 1;
        }
    }
    state.remember(request, i64::try_from(count).unwrap_or(i64::MAX));
    Ok(count)
}
