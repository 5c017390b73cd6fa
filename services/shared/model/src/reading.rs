//! What the readers of all APIs have in common.

use serde_json::Value;

use crate::{Answer, Delta, Failure, failure::on_one_line};

/// The reader of the events of one API.
pub(crate) trait Reading {
    /// Takes an event, and says what can be shown of it.
    fn event(&mut self, name: &str, value: &Value) -> Result<Vec<Delta>, Failure>;
    /// Takes an answer that came whole, from a server that does not stream.
    fn whole(&mut self, value: &Value) -> Result<(), Failure>;
    /// Whether the server has said that the answer has ended.
    fn has_ended(&self) -> bool;
    /// The answer. [`Reading::has_ended`].
    fn finish(self) -> Result<Answer, Failure>
    where
        Self: Sized;
}

/// The words of a server about an error, in the forms that are met.
pub(crate) fn message_of(value: &Value) -> String {
    let paths = ["/error/message", "/error", "/message", "/detail", "/response/error/message"];
    let found = paths.iter().find_map(|path| value.pointer(path).and_then(Value::as_str));
    on_one_line(&found.map_or_else(|| value.to_string(), str::to_owned))
}
