//! Messages for the differences between two executions.

use belay_proto::v1;
use belay_reading::comparison::{Change, ComparedValue, StepChanges};

/// A field that differs.
pub(crate) fn field_change(Change { path, before, after }: Change) -> v1::FieldChange {
    let bytes = |side: &Option<ComparedValue>| {
        i64::try_from(side.as_ref().map_or(0, |compared| compared.bytes)).unwrap_or(i64::MAX)
    };
    let (before_bytes, after_bytes) = (bytes(&before), bytes(&after));
    let value = |side: Option<ComparedValue>| side.and_then(|compared| compared.json).map(v1::Payload::of_json);
    v1::FieldChange { path, before_value: value(before), before_bytes, after_value: value(after), after_bytes }
}

/// The differences in a step, as a message.
pub(crate) fn step_changes(StepChanges { step, changes }: StepChanges) -> v1::StepChanges {
    v1::StepChanges { step_id: step, changes: changes.into_iter().map(field_change).collect() }
}
