//! The values of other steps that the templates of a step read.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use belay_plan::{StepKind, StepValue, Template};
use belay_reasons as reasons;
use serde_json::Value;

use crate::{
    BlobRef, BlobValue, Blobs, ErrorClass, Execution, Failure, Json, MAX_READ_BYTES, Payload, StepKey, StepRole,
    StepState, state::StepRecord,
};

/// The values that templates read, by their kind and the id of their step.
#[derive(Default)]
pub(super) struct Values<'a>(BTreeMap<StepValue, BTreeMap<&'a str, Cow<'a, Value>>>);

impl<'a> Values<'a> {
    /// Returns a value of a step; `None` when it has none.
    pub(super) fn get(&self, step: &str, what: StepValue) -> Option<Cow<'_, Value>> {
        self.0.get(&what)?.get(step).map(|value| Cow::Borrowed(&**value))
    }

    fn insert(&mut self, step: &'a str, what: StepValue, value: Cow<'a, Value>) {
        self.0.entry(what).or_default().insert(step, value);
    }
}

/// Returns the values that the templates of a step read, by their kind and the ids of the steps; `None` while a blob has not been read.
pub(super) fn values<'a>(
    execution: &'a Execution,
    step: StepKey,
    named: impl Iterator<Item = (&'a str, StepValue)>,
    blobs: &'a dyn Blobs,
) -> Result<Option<Values<'a>>, Failure> {
    values_at(execution, Some(step), named, blobs)
}

/// The same of templates that belong to a step, or to the plan.
fn values_at<'a>(
    execution: &'a Execution,
    step: Option<StepKey>,
    named: impl Iterator<Item = (&'a str, StepValue)>,
    blobs: &'a dyn Blobs,
) -> Result<Option<Values<'a>>, Failure> {
    let mut outputs = Values::default();
    let mut reader = Reader { blobs, read: BTreeSet::new(), bytes: 0, is_wanted: false };
    for (id, what) in named {
        if outputs.get(id, what).is_some() {
            continue;
        }
        if what == StepValue::Input {
            outputs.insert(id, what, Cow::Owned(execution.inputs()));
            continue;
        }
        if what == StepValue::Item {
            let step = step.map(|step| execution.steps[step].compensates().unwrap_or(step));
            if let Some(item) = step.and_then(|step| item(&execution.steps[step])) {
                outputs.insert(id, what, Cow::Owned(item));
            }
            continue;
        }
        let named = step.map_or_else(|| execution.steps.key(id), |step| named_by(execution, step, id));
        let Some(key) = named else { continue };
        let record = &execution.steps[key];
        // What a step has returned that has failed since is for the steps that run then, and no result of the plan.
        let output = record.output.as_ref().filter(|_| step.is_some() || record.state == StepState::Completed);
        let value = match what {
            StepValue::State => Some(Cow::Owned(record.state.word().into())),
            StepValue::Failure => Some(Cow::Owned(failure(record))),
            StepValue::Result => match output {
                Some(output) => reader.value(id, output)?,
                None => None,
            },
            StepValue::Outputs => match output {
                Some(output) => reader.value(id, output)?.and_then(|value| outputs_in(record, value)),
                None => None,
            },
            StepValue::Results => results(execution, key, &mut reader)?.map(Cow::Owned),
            StepValue::Input | StepValue::Item => None,
        };
        if let Some(value) = value {
            outputs.insert(id, what, value);
        }
    }
    Ok((!reader.is_wanted).then_some(outputs))
}

/// The outputs in the result of a step: what its command has appended is a member of it; the outputs of its plan are all of it.
fn outputs_in<'a>(record: &StepRecord, result: Cow<'a, Value>) -> Option<Cow<'a, Value>> {
    let is_declared = matches!(record.spec.kind(), StepKind::Plan(step) if step.plan.outputs().is_some());
    if is_declared && (!record.has_entries() || record.spec.repeat().is_some()) {
        return Some(result);
    }
    match result {
        Cow::Borrowed(result) => result.get("outputs").map(Cow::Borrowed),
        Cow::Owned(mut result) => result.get_mut("outputs").map(|outputs| Cow::Owned(outputs.take())),
    }
}

/// The outputs of the plan: what its templates make of what the steps have. A text in which a reference leads nowhere is null, so that a plan with steps
/// that may not run has outputs; `None` while a blob is not at hand.
pub(crate) fn of_plan(
    execution: &Execution,
    outputs: &Template,
    blobs: &dyn Blobs,
) -> Option<Result<Payload, Failure>> {
    let too_large =
        |message| Failure::new(ErrorClass::InvalidResult, reasons::OUTPUTS_TOO_LARGE, format!("outputs: {message}"));
    let values = match values_at(execution, None, outputs.values(), blobs) {
        Ok(values) => values?,
        Err(failure) if failure.class == ErrorClass::InvalidArguments => return Some(Err(too_large(failure.message))),
        Err(failure) => return Some(Err(failure)),
    };
    let resolved = outputs.resolve_or_null(&|id, what| values.get(id, what));
    let resolved = resolved.map_err(|unresolved| too_large(unresolved.to_string()));
    Some(resolved.map(|outputs| blobs.payload(Json::canonical(&outputs))))
}

/// Reads outputs, up to a number of bytes of those that are blobs, and of all that entries of lists have.
struct Reader<'a> {
    blobs: &'a dyn Blobs,
    read: BTreeSet<(&'a str, u64)>,
    /// How many bytes these have.
    bytes: u64,
    /// Whether one is not at hand.
    is_wanted: bool,
}

impl<'a> Reader<'a> {
    /// The value of an output of the step with this id; `None` while it is not at hand.
    fn value(&mut self, id: &str, output: &'a Payload) -> Result<Option<Cow<'a, Value>>, Failure> {
        let blob = match output {
            Payload::Inline(json) => return Ok(Some(Cow::Owned(json.value()))),
            Payload::Blob(blob) => blob,
        };
        let is_new = self.read.insert((&blob.digest, blob.size));
        self.count(id, if is_new { blob.size } else { 0 })?;
        match self.blobs.value(blob) {
            BlobValue::Known(value) => Ok(Some(Cow::Borrowed(value))),
            BlobValue::Unreadable(why) => Err(unreadable(id, blob, why)),
            BlobValue::Wanted => {
                self.is_wanted = true;
                Ok(None)
            }
        }
    }

    /// Adds bytes that are read of the step with this id.
    fn count(&mut self, id: &str, bytes: u64) -> Result<(), Failure> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes <= MAX_READ_BYTES {
            return Ok(());
        }
        let message = format!(
            "The templates read more than {MAX_READ_BYTES} bytes of outputs, which is the limit, with that of step `{id}`: read \
             fewer of them in one place."
        );
        Err(Failure::new(ErrorClass::InvalidArguments, reasons::UNRESOLVED_REFERENCE, message))
    }
}

/// Returns the result of each entry of a step's list, in order; `None` when it has read none. An output that was given in the place of the entries' own is
/// taken for what they have returned, as it was where it comes from: null for each that was skipped.
fn results<'a>(execution: &'a Execution, list: StepKey, reader: &mut Reader<'a>) -> Result<Option<Value>, Failure> {
    let record = &execution.steps[list];
    if record.state == StepState::Skipped {
        // Also where its calls had completed, and the one was skipped that was to commit them.
        return Ok(None);
    }
    if record.items.listed.is_none() {
        let given = record.output.as_ref().filter(|_| record.has_entries());
        let given = given.map(|output| reader.value(&record.id, output)).transpose()?.flatten();
        let Some(Value::Array(entries)) = given.as_deref() else { return Ok(None) };
        let state = |value: &Value| if value.is_null() { StepState::Skipped } else { StepState::Completed };
        return Ok(Some(entries.iter().map(|value| result(state(value), value, Value::Null)).collect()));
    }
    let entries = record.items.current().iter().map(|&entry| &execution.steps[entry]);
    let mut all = Vec::with_capacity(record.items.current().len());
    for entry in entries.filter(|entry| !entry.commits_step()) {
        let output = entry.output.as_ref().filter(|_| entry.state == StepState::Completed);
        // A list has many of them, each of which may be small.
        let inline = output.and_then(Payload::inline).map_or(0, |json| json.as_str().len());
        let why = entry.failure.as_ref().map_or(0, |failure| failure.message.len());
        reader.count(&entry.id, (inline + why) as u64)?;
        let value = output.map(|output| reader.value(&entry.id, output)).transpose()?.flatten();
        all.push(result(entry.state, value.as_deref().unwrap_or(&Value::Null), failure(entry)));
    }
    Ok(Some(Value::Array(all)))
}

/// Returns the result of one entry.
fn result(state: StepState, value: &Value, failure: Value) -> Value {
    serde_json::json!({"state": state.word(), "value": value, "failure": failure})
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
/// also where it ran for an entry of a list. In a round that has no output yet it is the round before.
fn named_by(execution: &Execution, step: StepKey, id: &str) -> Option<StepKey> {
    let itself = execution.steps[step].compensates().unwrap_or(step);
    let record = &execution.steps[itself];
    if record.spec.id() != id {
        return execution.steps.key(id);
    }
    let has_round_before = record.output.is_none() && record.spec.repeat().is_some();
    if has_round_before { execution.round_before(itself) } else { Some(itself) }
}

/// The entry of the list for which a step runs, with its position.
fn item(record: &StepRecord) -> Option<Value> {
    let StepRole::Item { index, .. } = record.role else { return None };
    Some(serde_json::json!({"value": record.item.as_ref()?.value(), "index": index}))
}

/// Returns the failure of a step that has failed; null for any other.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NoBlobs;

    #[test]
    fn what_is_read_of_many_small_outputs_is_bounded_too() {
        let mut reader = Reader { blobs: &NoBlobs, read: BTreeSet::new(), bytes: 0, is_wanted: false };
        assert_eq!(reader.count("a", MAX_READ_BYTES - 1), Ok(()));
        assert_eq!(reader.count("b", 1), Ok(()));
        let refused = reader.count("c", 1).unwrap_err();
        assert!(refused.message.contains("with that of step `c`"), "{}", refused.message);
        assert!(reader.count("d", u64::MAX).is_err());
    }
}
