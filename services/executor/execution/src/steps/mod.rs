//! The kinds of steps, one file each with the same three functions:
//!
//! - `apply` applies an event about one of its operations,
//! - `next` decides which operation a started step requests next,
//! - `action` says what the driver has to do for an operation in flight.

pub(crate) mod checks;
pub(crate) mod condition;
pub(crate) mod for_each;
mod outputs;
mod request;
pub(crate) mod tool;
pub(crate) mod wait;

use belay_plan::StepKind;

use crate::{Blobs, Body, DecideContext, Execution, Operation, RecoveryClass, StepKey, Verb, Work};

/// The event with which a started step requests its next operation, or fails; `None` while it needs a blob that is not at hand.
pub(crate) fn next(
    execution: &Execution,
    step: StepKey,
    context: DecideContext<'_>,
    blobs: &dyn Blobs,
) -> Option<Body> {
    let record = &execution.steps[step];
    if record.is_for_each() {
        return for_each::next(execution, step, blobs);
    }
    match record.spec.kind() {
        StepKind::Tool(_) => checks::next(execution, step, record.current_call()?, context, blobs),
        StepKind::Wait(wait) => wait::next(execution, step, wait, context, blobs),
    }
}

impl Execution {
    /// How to recover the calls of a step when their outcome is not known; `None` for a step that calls no tool.
    pub fn recovery(&self, step: StepKey) -> Option<RecoveryClass> {
        self.tool(&self.steps[step].current_call()?.tool).map(|facts| facts.recovery)
    }
}

/// What the driver has to do for an operation in flight; `None` when there is nothing to do.
pub(crate) fn action(execution: &Execution, operation: &Operation) -> Option<Verb> {
    match &operation.work {
        Work::ToolCall(_) => tool::action(execution, operation),
        Work::Wait(wait) => wait::action(execution, wait),
    }
}
