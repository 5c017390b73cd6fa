//! Reads numbers and sizes.

use belay_yaml::{Node, Reader, Value};

use crate::{ValueWithOrigin, size};

/// Sets a value that could be read.
pub(crate) fn set<T>(to: &mut ValueWithOrigin<T>, value: Option<T>, node: &Node) {
    if let Some(value) = value {
        *to = ValueWithOrigin::on_line(value, node.line);
    }
}

/// Reads a size between two bounds.
pub(crate) fn bytes(reader: &mut Reader, node: &Node, field: &str, least: u64) -> Option<u64> {
    let bytes = match &node.value {
        Value::Text(text) => size::bytes(text),
        Value::Number(number) => number.as_u64(),
        _ => None,
    };
    match bytes {
        None => {
            reader.refuse(field, node.line, "must be a size: a whole number with KiB, MiB, GiB or TiB, such as 8GiB")
        }
        Some(bytes) if bytes < least => {
            reader.refuse(field, node.line, format!("must be at least {}", size::shown(least)));
            return None;
        }
        Some(bytes) if bytes > i64::MAX as u64 => {
            reader.refuse(field, node.line, "is larger than the kernel supports");
            return None;
        }
        Some(_) => {}
    }
    bytes
}

/// Reads a size between two bounds, or `unlimited`.
pub(crate) fn bytes_or_none(reader: &mut Reader, node: &Node, field: &str, least: u64) -> Option<Option<u64>> {
    match &node.value {
        Value::Text(text) if text == "unlimited" => Some(None),
        _ => bytes(reader, node, field, least).map(Some),
    }
}

/// Reads a whole number between two bounds.
pub(crate) fn number(reader: &mut Reader, node: &Node, field: &str, least: u64, most: u64) -> Option<u64> {
    let found = match &node.value {
        Value::Number(number) => number.as_u64(),
        _ => None,
    };
    match found {
        Some(number) if (least..=most).contains(&number) => Some(number),
        Some(_) | None => {
            reader.refuse(field, node.line, format!("must be a whole number between {least} and {most}"));
            None
        }
    }
}
