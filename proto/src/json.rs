//! Messages as JSON for programs and for comparing: the proto3 JSON mapping with values in plain sight.
//!
//! In the mapping as it is generated, JSON that stands inline in a `Payload` (`{"json": "<text>"}`), or as text (the schemas of tools), is a string. Here it is
//! the value itself, and times end in `Z`, as the mapping demands.

use serde::Serialize;
use serde_json::{Error, Map, Value};

/// The fields whose type is `Payload`.
const PAYLOADS: [&str; 15] = [
    "afterValue",
    "answer",
    "arguments",
    "beforeValue",
    "context",
    "conversation",
    "defaultValue",
    "forEach",
    "inputs",
    "output",
    "outputs",
    "payload",
    "result",
    "schema",
    "value",
];
/// The fields that are lists of `Payload`.
const LISTS: [&str; 1] = ["items"];
/// The fields that are JSON as text.
const TEXTS: [&str; 4] = ["details", "parametersSchema", "resultSchema", "schema"];
/// The fields whose keys are chosen by people and tools: nothing in them is the contract's.
const FREE: [&str; 2] = ["labels", "metadata"];

/// A message with its values in plain sight.
///
/// # Errors
/// When the message cannot be written as JSON.
pub fn of<T: Serialize>(message: &T) -> Result<Value, Error> {
    with(message, &|_| {})
}

/// The same, where `change` changes the fields of each message first.
///
/// # Errors
/// When the message cannot be written as JSON.
pub fn with<T: Serialize>(message: &T, change: &impl Fn(&mut Map<String, Value>)) -> Result<Value, Error> {
    let mut value = serde_json::to_value(message)?;
    reveal(&mut value, change);
    Ok(value)
}

fn reveal(value: &mut Value, change: &impl Fn(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            change(fields);
            for (name, field) in fields.iter_mut().filter(|(name, _)| !FREE.contains(&name.as_str())) {
                let name = name.as_str();
                match field {
                    Value::String(text) if TEXTS.contains(&name) => {
                        if let Ok(value) = serde_json::from_str(text) {
                            *field = value;
                        }
                    }
                    Value::String(text) if name.ends_with("Time") && text.ends_with("+00:00") => {
                        text.truncate(text.len() - "+00:00".len());
                        text.push('Z');
                    }
                    Value::Object(_) if PAYLOADS.contains(&name) => unwrap(field),
                    Value::Array(items) if LISTS.contains(&name) => items.iter_mut().for_each(unwrap),
                    field => reveal(field, change),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| reveal(item, change)),
        _ => {}
    }
}

/// Replaces an inline payload by its value. A text that is no JSON after all stays as it is, in its wrapping.
fn unwrap(payload: &mut Value) {
    if let Some(value) = payload.get("json").and_then(Value::as_str).and_then(|text| serde_json::from_str(text).ok()) {
        *payload = value;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use protox::prost_reflect::{DescriptorPool, Kind};

    use super::*;

    /// Each field of the contract that has JSON is known here by its name, and no other has one of these names.
    #[test]
    fn the_names_are_those_of_the_contract() {
        let pool = DescriptorPool::decode(crate::FILE_DESCRIPTOR_SET).unwrap();
        let mut names: [BTreeSet<String>; 4] = Default::default();
        let messages = pool.all_messages().filter(|message| message.full_name().starts_with("belay."));
        for field in messages.flat_map(|message| message.fields().collect::<Vec<_>>()) {
            let of = |kind: Kind| matches!(kind, Kind::Message(message) if message.full_name() == "belay.v1.Payload");
            let place = match field.kind() {
                _ if field.is_map() => 3,
                kind if of(kind.clone()) => usize::from(field.is_list()),
                _ => continue,
            };
            names[place].insert(field.json_name().to_owned());
        }
        assert_eq!(names[0], PAYLOADS.map(str::to_owned).into());
        assert_eq!(names[1], LISTS.map(str::to_owned).into());
        assert_eq!(names[3], FREE.map(str::to_owned).into());
    }
}
