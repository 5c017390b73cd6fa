//! The fields of events.

use std::time::Duration;

use serde_json::Value;

use crate::{AgentError, End, status};

/// The longest message of an error, in bytes.
const MAX_MESSAGE: usize = 4 << 10;

/// The longest name, in bytes.
const MAX_NAME: usize = 200;

/// A text of an event; empty where it has none.
pub(super) fn text<'a>(event: &'a Value, pointer: &str) -> &'a str {
    event.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// A number of an event; 0 where it has none.
pub(super) fn number(event: &Value, pointer: &str) -> u64 {
    event.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// An HTTP status of an event.
pub(super) fn status_of(event: &Value, pointer: &str) -> Option<u16> {
    event.pointer(pointer).and_then(Value::as_u64).and_then(|status| u16::try_from(status).ok())
}

/// The failure with these words.
pub(super) fn failed(message: &str, status: Option<u16>, retry_after: Option<Duration>) -> End {
    End::Failure(error(message, status, retry_after))
}

/// The error with these words. Where the event has no status, it is the one that the words name.
pub(super) fn error(message: &str, status: Option<u16>, retry_after: Option<Duration>) -> AgentError {
    let message = &message[..message.floor_char_boundary(MAX_MESSAGE)];
    AgentError { message: message.to_owned(), status: status.or_else(|| status::in_message(message)), retry_after }
}

/// A name of an event: of a session, or of a model.
pub(super) fn name(event: &Value, pointer: &str) -> String {
    let name = text(event, pointer);
    name[..name.floor_char_boundary(MAX_NAME)].to_owned()
}

/// The sum of numbers that an agent has written: they may be any.
pub(super) fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum: u64, number| sum.saturating_add(*number))
}
