//! Reads numbers and sizes.

use belay_yaml::{Node, Reader, Value};

use crate::{ValueWithOrigin, size};

/// Sets a value that could be read.
pub(crate) fn set<T>(to: &mut ValueWithOrigin<T>, value: Option<T>, node: &Node) {
    if let Some(value) = value {
        *to = ValueWithOrigin::on_line(value, node.line);
    }
}

/// Reads a text that is not empty.
pub(crate) fn filled_text(reader: &mut Reader, node: &Node, field: &str) -> Option<String> {
    let text = reader.text(node, field)?;
    if text.is_empty() {
        reader.refuse(field, node.line, "is empty: write what it is for, or remove it");
        return None;
    }
    Some(text)
}

/// Reads the `methods` or `paths` to which requests are limited.
pub(crate) fn request_limits(reader: &mut Reader, node: &Node, field: &str, key: &str) -> Vec<String> {
    if is_empty_list(node) {
        reader.refuse(field, node.line, format!("is empty: remove it, which allows all {key}"));
    }
    reader.list(node, field, Reader::text)
}

/// Whether it is a list without entries.
pub(crate) fn is_empty_list(node: &Node) -> bool {
    matches!(&node.value, Value::List(entries) if entries.is_empty())
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
