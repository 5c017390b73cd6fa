//! Values that several parts of a plan's message have, and the violations of those that cannot be read.

use std::time::Duration;

use belay_plan::Violation;
use belay_proto::v1::{self, payload::Content};

pub(in crate::wire) fn violation(field: String, message: impl Into<String>) -> Violation {
    Violation { field, message: message.into(), line: 0, column: 0 }
}

/// The arguments of a call; an empty object when there are none.
pub(in crate::wire) fn arguments_from(
    arguments: Option<v1::Payload>,
    field: String,
    violations: &mut Vec<Violation>,
) -> serde_json::Value {
    match arguments.and_then(|arguments| arguments.content) {
        None => serde_json::Value::Object(serde_json::Map::new()),
        Some(content) => json_from(content, field, violations),
    }
}

pub(in crate::wire) fn json_from(
    content: Content,
    field: String,
    violations: &mut Vec<Violation>,
) -> serde_json::Value {
    match content {
        Content::Json(text) => belay_json::read(&text).unwrap_or_else(|refused| {
            violations.push(violation(field, refused.to_string()));
            serde_json::Value::Null
        }),
        Content::Blob(_) => {
            violations.push(violation(field, "a blob is not supported: send inline JSON"));
            serde_json::Value::Null
        }
    }
}

pub(in crate::wire) fn duration_from(
    duration: Option<&pbjson_types::Duration>,
    field: impl Fn() -> String,
    violations: &mut Vec<Violation>,
) -> Option<Duration> {
    let converted = belay_proto::to_duration(duration?);
    if converted.is_none() {
        violations.push(violation(field(), "must not be negative"));
    }
    converted
}
