//! Facts of a step alone: whether it has ended, how long it took, and its attempts.

use std::time::Duration;

use belay_proto::v1::{Plan, Step, step::State};

use crate::render::{time, words};

/// Below it, time spent waiting for a person is not worth a word.
const WORTH_SAYING: Duration = Duration::from_secs(1);

/// The call of a step that runs for each entry of a list, or again; `plan` says which.
pub(super) fn for_each(plan: Option<&Plan>, id: &str, call: &str, entries: usize) -> String {
    let planned = plan.and_then(|plan| plan.steps.iter().find(|planned| planned.id == id));
    match planned.and_then(|planned| planned.repeat.as_ref()) {
        Some(repeat) => format!("round {entries} of at most {}: {call}", repeat.max),
        None => format!("for each of {}: {call}", words::entries(entries)),
    }
}

/// How many attempts a plan gives each call of a step; `None` when it is not known.
pub(super) fn planned_attempts(plan: Option<&Plan>, step: &Step) -> Option<i32> {
    let planned = plan?.steps.iter().find(|planned| planned.id == planned_id(step))?;
    Some(planned.retry.as_ref().map_or(1, |retry| retry.max_attempts.max(1)))
}

/// The id of the step of the plan that says what a step does.
pub(super) fn planned_id(step: &Step) -> &str {
    step.item.as_ref().map_or(&step.step_id, |item| &item.step_id)
}

/// Whether a step in this state has ended.
pub(crate) fn has_ended(state: State) -> bool {
    matches!(
        state,
        State::Completed | State::Failed | State::Skipped | State::Cancelled | State::Compensating | State::Compensated
    )
}

/// How long a step that has ended took, without the time spent waiting for decisions; `None` for one that never started.
pub(crate) fn machine_time(step: &Step) -> Option<Duration> {
    let end = step.end_time.as_ref().and_then(time::since_epoch);
    let waited = step.approval_wait.as_ref().map(time::duration).unwrap_or_default();
    time::between(step.start_time.as_ref(), end).map(|took| took.saturating_sub(waited))
}

/// How long a step waited for decisions; `None` below a second.
pub(crate) fn waited_for_people(step: &Step) -> Option<Duration> {
    step.approval_wait.as_ref().map(time::duration).filter(|waited| *waited >= WORTH_SAYING)
}
