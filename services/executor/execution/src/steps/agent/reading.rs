//! What was recorded, as a model reads it.

use belay_agent::Outcome;
use belay_plan::Template;
use belay_reasons as reasons;
use serde_json::Value;

use super::super::outputs::{value_of, values};
use crate::{Blobs, ErrorClass, Execution, Failure, Payload, StepKey, StepState, state::StepRecord};

/// Fills in the templates of a step with a goal.
pub(super) fn resolved(
    execution: &Execution,
    step: StepKey,
    template: &Template,
    blobs: &dyn Blobs,
) -> Option<Result<Value, Failure>> {
    let values = match values(execution, step, template.values(), blobs) {
        Ok(values) => values?,
        Err(failure) => return Some(Err(failure)),
    };
    Some(template.resolve(&|id, what| values.get(id, what)).map_err(|unresolved| {
        Failure::new(ErrorClass::InvalidArguments, reasons::UNRESOLVED_REFERENCE, unresolved.to_string())
    }))
}

/// The outcome of a call, for the model.
pub(super) fn outcome<'a>(record: &'a StepRecord, returned: Option<&'a Value>) -> Outcome<'a> {
    match (record.state, record.failure.as_deref()) {
        (StepState::Completed, _) => Outcome::Returned(returned.unwrap_or(&Value::Null)),
        (StepState::Failed, Some(failure)) => Outcome::Failed {
            reason: &failure.reason,
            message: &failure.message,
            printed: failure.last_output.as_ref().map_or(["", ""], |output| [&output.stdout, &output.stderr]),
        },
        _ => Outcome::Skipped,
    }
}

/// Reads what is recorded, and remembers what is not at hand.
pub(super) struct Reading<'a> {
    pub(super) blobs: &'a dyn Blobs,
    pub(super) is_wanted: bool,
    pub(super) damaged: Option<Failure>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(blobs: &'a dyn Blobs) -> Self {
        Self { blobs, is_wanted: false, damaged: None }
    }

    /// The result made of the values, if all could be read; `None` while one is not at hand.
    pub(super) fn done<T>(self, made: T) -> Option<Result<T, Failure>> {
        match (self.damaged, self.is_wanted) {
            (Some(failure), _) => Some(Err(failure)),
            (None, true) => None,
            (None, false) => Some(Ok(made)),
        }
    }

    pub(super) fn value(&mut self, record: &StepRecord, payload: &Payload) -> Value {
        match value_of(&record.id, payload, self.blobs) {
            Ok(Some(value)) => return value,
            Ok(None) => self.is_wanted = true,
            Err(failure) => drop(self.damaged.get_or_insert(failure)),
        }
        Value::Null
    }

    /// The value that the call of a step has returned.
    pub(super) fn returned(&mut self, record: &StepRecord) -> Option<Value> {
        let output = record.output.as_ref().filter(|_| record.state == StepState::Completed);
        output.map(|output| self.value(record, output))
    }
}
