//! The kinds of steps, one file each with the same three functions:
//!
//! - `apply` applies an event about one of its operations,
//! - `next` decides which operation a started step requests next,
//! - `action` says what the driver has to do for an operation in flight.

pub(crate) mod tool;
pub(crate) mod wait;

use belay_plan::StepKind;

use crate::{Body, DecideContext, Execution, Operation, StepKey, Verb, Work};

/// The event with which a started step requests its next operation, or fails.
pub(crate) fn next(execution: &Execution, step: StepKey, context: DecideContext<'_>) -> Body {
    match execution.steps[step].spec.kind() {
        StepKind::Tool(call) => tool::next(execution, step, call, context),
        StepKind::Wait(wait) => wait::next(execution, step, wait, context),
    }
}

/// What the driver has to do for an operation in flight; `None` when there is nothing to do.
pub(crate) fn action(execution: &Execution, operation: &Operation) -> Option<Verb> {
    match &operation.work {
        Work::ToolCall(_) => tool::action(execution, operation),
        Work::Wait(wait) => wait::action(execution, wait),
    }
}
