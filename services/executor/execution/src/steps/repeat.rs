//! Steps that run again until a condition holds. Each round is a step of its own, as each entry of a list is, and begins when the one before was not enough: so
//! what became of it is there for the next, and a round that waits is seen to wait.
//!
//! A step that is made to run again begins with its first round. The rounds that it had are made again in their places.

use belay_plan::Repeat;
use belay_reasons as reasons;
use serde_json::json;

use super::{
    condition,
    entries::{not_started, some_failed},
};
use crate::{Blobs, ErrorClass, Execution, Failure, Json, Payload, StepKey, StepState, Timestamp, state::StepRecord};

/// The course of a step that repeats, as far as it is known.
pub(super) enum Course {
    /// Another round begins.
    Round(Json),
    /// The last round was enough: its output is that of the step.
    Enough(Payload),
    /// The step fails.
    Failed(Failure),
}

/// The course of a step none of whose rounds is open; `None` while a value is not at hand.
pub(super) fn course(execution: &Execution, record: &StepRecord, repeat: &Repeat, blobs: &dyn Blobs) -> Option<Course> {
    let rounds = record.items.current();
    let Some(&last) = rounds.last() else { return Some(Course::Round(round(record, 0))) };
    if let Some(failure) = not_started(execution, record) {
        return Some(Course::Failed(failure));
    }
    let last_round = &execution.steps[last];
    match (last_round.state, &last_round.output) {
        (StepState::Completed, Some(output)) => match condition::holds(execution, last, None, repeat.until(), blobs)? {
            Ok(true) => return Some(Course::Enough(output.clone())),
            Ok(false) => {}
            Err(failure) => return Some(Course::Failed(failure)),
        },
        // A person does without it.
        (StepState::Skipped, _) => {}
        _ => return Some(Course::Failed(some_failed(last_round, 1, rounds.len(), "rounds"))),
    }
    if rounds.len() < repeat.max() as usize {
        return Some(Course::Round(round(record, rounds.len())));
    }
    let message = format!(
        "`until` (`{}`) does not hold after {} rounds, which is `max`. The last is `{}`.",
        repeat.until().source(),
        rounds.len(),
        last_round.id
    );
    Some(Course::Failed(Failure::new(ErrorClass::PostconditionFailed, reasons::ROUNDS_EXHAUSTED, message)))
}

/// The entry of the round after so many others. A step that runs again makes other rounds.
fn round(record: &StepRecord, before: usize) -> Json {
    Json::canonical(&json!({"round": before + 1, "run": record.attempt}))
}

/// When a round that is listed at `time`, after so many others, may begin; `None` when it may at once.
pub(super) fn begins_at(record: &StepRecord, before: usize, time: Timestamp) -> Option<Timestamp> {
    let delay = record.spec.repeat()?.delay();
    (before > 0 && !delay.is_zero()).then(|| time.saturating_add(delay))
}

impl Execution {
    /// The round before that of a step that repeats; `None` for the first, and for any other step.
    pub(super) fn round_before(&self, step: StepKey) -> Option<StepKey> {
        let record = &self.steps[step];
        let list = record.runs_for().filter(|_| record.spec.repeat().is_some())?;
        let rounds = self.steps[list].items.current();
        let place = rounds.binary_search(&step).ok()?;
        rounds.get(place.checked_sub(1)?).copied()
    }
}
