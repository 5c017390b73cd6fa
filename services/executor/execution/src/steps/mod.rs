//! The kinds of steps, one file each with the same three functions:
//!
//! - `apply` applies an event about one of its operations,
//! - `next` decides which operation a started step requests next,
//! - `action` says what the driver has to do for an operation in flight.

pub(crate) mod tool;
pub(crate) mod wait;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use belay_plan::StepKind;
use belay_reasons as reasons;
use serde_json::Value;

use crate::{
    BlobRef, BlobValue, Blobs, Body, DecideContext, ErrorClass, Execution, Failure, MAX_READ_BYTES, Operation, Payload,
    RecoveryClass, StepKey, Verb, Work,
};

/// The event with which a started step requests its next operation, or fails; `None` while it needs a blob that is not at hand.
pub(crate) fn next(
    execution: &Execution,
    step: StepKey,
    context: DecideContext<'_>,
    blobs: &dyn Blobs,
) -> Option<Body> {
    match execution.steps[step].spec.kind() {
        StepKind::Tool(call) => tool::next(execution, step, call, context, blobs),
        StepKind::Wait(wait) => wait::next(execution, step, wait, context, blobs),
    }
}

impl Execution {
    /// How to recover the calls of a step when their outcome is not known; `None` for a step that calls no tool.
    pub fn recovery(&self, step: StepKey) -> Option<RecoveryClass> {
        match self.steps[step].spec.kind() {
            StepKind::Tool(call) => self.tool(&call.tool).map(|facts| facts.recovery),
            StepKind::Wait(_) => None,
        }
    }
}

/// The outputs that templates read, by the ids of their steps; `None` while a blob is not at hand.
fn outputs<'a>(
    execution: &Execution,
    steps: impl Iterator<Item = &'a str>,
    blobs: &'a dyn Blobs,
) -> Result<Option<BTreeMap<&'a str, Cow<'a, Value>>>, Failure> {
    let mut outputs = BTreeMap::new();
    let (mut read, mut is_wanted) = (BTreeSet::new(), false);
    for id in steps {
        let Some(output) = execution.steps.key(id).and_then(|key| execution.steps[key].output.as_ref()) else {
            continue;
        };
        if outputs.contains_key(id) {
            continue;
        }
        let blob = match output {
            Payload::Inline(json) => {
                outputs.insert(id, Cow::Owned(json.value()));
                continue;
            }
            Payload::Blob(blob) => blob,
        };
        read.insert((&blob.digest, blob.size));
        let bytes: u64 = read.iter().map(|(_, size)| size).sum();
        if bytes > MAX_READ_BYTES {
            let message = format!(
                "The templates read more than {MAX_READ_BYTES} bytes of outputs, which is the limit, with that of step `{id}`: read \
                 fewer outputs in one step."
            );
            return Err(Failure::new(ErrorClass::InvalidArguments, reasons::UNRESOLVED_REFERENCE, message));
        }
        match blobs.value(blob) {
            BlobValue::Known(value) => drop(outputs.insert(id, Cow::Borrowed(value))),
            BlobValue::Unreadable(why) => return Err(unreadable(id, blob, why)),
            BlobValue::Wanted => is_wanted = true,
        }
    }
    Ok((!is_wanted).then_some(outputs))
}

fn unreadable(step: &str, blob: &BlobRef, why: &str) -> Failure {
    let message = format!("The output of step `{step}`, the blob {}, cannot be read: {why}.", blob.digest);
    Failure::new(ErrorClass::Internal, reasons::BLOB_DAMAGED, message)
}

/// What the driver has to do for an operation in flight; `None` when there is nothing to do.
pub(crate) fn action(execution: &Execution, operation: &Operation) -> Option<Verb> {
    match &operation.work {
        Work::ToolCall(_) => tool::action(execution, operation),
        Work::Wait(wait) => wait::action(execution, wait),
    }
}
