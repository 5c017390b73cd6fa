//! What the templates of a step read of other steps.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use belay_plan::StepValue;
use belay_reasons as reasons;
use serde_json::Value;

use crate::{
    BlobRef, BlobValue, Blobs, ErrorClass, Execution, Failure, MAX_READ_BYTES, Payload, StepKey, StepRole, StepState,
    state::StepRecord,
};

/// What templates read of which steps.
#[derive(Default)]
pub(super) struct Values<'a>(BTreeMap<StepValue, BTreeMap<&'a str, Cow<'a, Value>>>);

impl<'a> Values<'a> {
    /// What a step has; `None` when it has none.
    pub(super) fn get(&self, step: &str, what: StepValue) -> Option<Cow<'_, Value>> {
        self.0.get(&what)?.get(step).map(|value| Cow::Borrowed(&**value))
    }

    fn insert(&mut self, step: &'a str, what: StepValue, value: Cow<'a, Value>) {
        self.0.entry(what).or_default().insert(step, value);
    }
}

/// What the templates of a step read, by the ids of the steps and what it is of them; `None` while a blob is not at hand.
pub(super) fn values<'a>(
    execution: &Execution,
    step: StepKey,
    named: impl Iterator<Item = (&'a str, StepValue)>,
    blobs: &'a dyn Blobs,
) -> Result<Option<Values<'a>>, Failure> {
    let mut outputs = Values::default();
    let (mut read, mut is_wanted) = (BTreeSet::new(), false);
    for (id, what) in named {
        if outputs.get(id, what).is_some() {
            continue;
        }
        if what == StepValue::Input {
            outputs.insert(id, what, Cow::Owned(execution.inputs()));
            continue;
        }
        if what == StepValue::Item {
            let step = execution.steps[step].compensates().unwrap_or(step);
            if let Some(item) = item(&execution.steps[step]) {
                outputs.insert(id, what, Cow::Owned(item));
            }
            continue;
        }
        let Some(key) = named_by(execution, step, id) else { continue };
        let record = &execution.steps[key];
        let output = match what {
            StepValue::State => {
                outputs.insert(id, what, Cow::Owned(record.state.word().into()));
                continue;
            }
            StepValue::Failure => {
                outputs.insert(id, what, Cow::Owned(failure(record)));
                continue;
            }
            StepValue::Result => record.output.as_ref(),
            StepValue::Input | StepValue::Item => continue,
        };
        let Some(output) = output else { continue };
        let blob = match output {
            Payload::Inline(json) => {
                outputs.insert(id, what, Cow::Owned(json.value()));
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
            BlobValue::Known(value) => outputs.insert(id, what, Cow::Borrowed(value)),
            BlobValue::Unreadable(why) => return Err(unreadable(id, blob, why)),
            BlobValue::Wanted => is_wanted = true,
        }
    }
    Ok((!is_wanted).then_some(outputs))
}

/// The value of an output; `None` while it is not at hand.
pub(super) fn value_of(step: &str, output: &Payload, blobs: &dyn Blobs) -> Result<Option<Value>, Failure> {
    match output {
        Payload::Inline(json) => Ok(Some(json.value())),
        Payload::Blob(blob) => match blobs.value(blob) {
            BlobValue::Known(value) => Ok(Some(value.clone())),
            BlobValue::Unreadable(why) => Err(unreadable(step, blob, why)),
            BlobValue::Wanted => Ok(None),
        },
    }
}

/// The step that a reference names. In the call that undoes what a step has done, and in what is checked after its call, the step's own id is that step,
/// also where it ran for an entry of a list.
fn named_by(execution: &Execution, step: StepKey, id: &str) -> Option<StepKey> {
    let itself = execution.steps[step].compensates().unwrap_or(step);
    let is_named = execution.steps[itself].spec.id() == id;
    if is_named { Some(itself) } else { execution.steps.key(id) }
}

/// The entry of the list for which a step runs, with its position.
fn item(record: &StepRecord) -> Option<Value> {
    let StepRole::Item { index, .. } = record.role else { return None };
    Some(serde_json::json!({"value": record.item.as_ref()?.value(), "index": index}))
}

/// What went wrong with a step that has failed; null for any other.
fn failure(record: &StepRecord) -> Value {
    match record.failure.as_ref().filter(|_| record.state == StepState::Failed) {
        Some(failure) => {
            serde_json::json!({"code": failure.reason, "class": failure.class.name(), "message": failure.message})
        }
        None => Value::Null,
    }
}

fn unreadable(step: &str, blob: &BlobRef, why: &str) -> Failure {
    let message = format!("The output of step `{step}`, the blob {}, cannot be read: {why}.", blob.digest);
    Failure::new(ErrorClass::Internal, reasons::BLOB_DAMAGED, message)
}
