//! The calls of an answer, put together from their pieces.

use serde_json::Value;

use crate::Failure;

/// The most calls of an answer: more than any loop has a use for.
pub(crate) const MAX_CALLS: usize = 256;

pub(crate) fn too_many_calls() -> Failure {
    Failure::Malformed { why: format!("it has more than {MAX_CALLS} calls") }
}

/// The arguments of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// A JSON object.
    Object(Value),
    /// Anything else. The call is not made: the model is told why. Nothing is repaired into another call than the model wrote.
    Invalid {
        /// As they came.
        text: String,
        /// The problem and its place, for the model.
        why: String,
    },
}

/// A call that a model wants.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The tool, as the model names it.
    pub name: String,
    /// The arguments.
    pub arguments: Arguments,
    /// The id that the server gave it, which may be empty or not the only one of its kind: data, and nothing is found by it.
    pub server_id: String,
}

/// A call whose pieces are still coming.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OpenCall {
    /// Its place among the calls, as the server counts.
    pub(crate) index: u64,
    pub(crate) name: String,
    pub(crate) server_id: String,
    /// The arguments as text so far.
    pub(crate) text: String,
    /// The arguments where the server sends them as an object.
    pub(crate) object: Option<Value>,
}

impl OpenCall {
    /// Adds a piece of the arguments: text, an object, or nothing.
    pub(crate) fn add(&mut self, arguments: Option<&Value>) {
        match arguments {
            Some(Value::String(text)) => self.text.push_str(text),
            Some(object @ Value::Object(_)) => self.object = Some(object.clone()),
            Some(Value::Null) | None => {}
            // Text, so that it is refused as what it is.
            Some(other) => self.text.push_str(&other.to_string()),
        }
    }

    /// Whether the arguments are whole, so that another piece can only be of another call.
    pub(crate) fn is_whole(&self) -> bool {
        // Read only where it may be: a call of megabytes has thousands of pieces.
        self.object.is_some()
            || (self.text.trim_end().ends_with('}') && matches!(belay_json::read(&self.text), Ok(Value::Object(_))))
    }

    /// The call, now that no more comes.
    pub(crate) fn close(self) -> Call {
        let arguments = match self.object {
            Some(object) => Arguments::Object(object),
            None => arguments(self.text),
        };
        Call { name: self.name, arguments, server_id: self.server_id }
    }
}

/// Reads arguments: `""` and `null` are those of a call that needs none.
pub(crate) fn arguments(text: String) -> Arguments {
    if text.trim().is_empty() {
        return Arguments::Object(Value::Object(serde_json::Map::new()));
    }
    match belay_json::read(&text) {
        Ok(object @ Value::Object(_)) => Arguments::Object(object),
        Ok(Value::Null) => Arguments::Object(Value::Object(serde_json::Map::new())),
        Ok(other) => {
            let kind = match other {
                Value::Array(_) => "a list",
                Value::String(_) => "a text",
                Value::Number(_) => "a number",
                Value::Bool(_) | Value::Null | Value::Object(_) => "a truth value",
            };
            Arguments::Invalid { text, why: format!("The arguments must be a JSON object, and this is {kind}.") }
        }
        Err(error) => Arguments::Invalid { why: format!("The arguments must be one JSON object: {error}."), text },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_an_object_or_are_refused_with_their_place() {
        for none in ["", " \n", "null"] {
            assert_eq!(arguments(none.to_owned()), Arguments::Object(json!({})), "{none:?}");
        }
        assert_eq!(arguments("{\"a\":1}".to_owned()), Arguments::Object(json!({"a": 1})));
        let refused = [
            ("{\"a\":1", "line 1 column"),
            ("{\"a\":1}{\"b\":2}", "more text"),
            ("{\"a\":1}extra", "more text"),
            ("{\"a\":1,\"a\":2}", "a"),
            ("[1]", "this is a list"),
            ("\"{}\"", "this is a text"),
            ("{'a': 1}", "line 1 column 2"),
        ];
        for (text, says) in refused {
            match arguments(text.to_owned()) {
                Arguments::Invalid { text: kept, why } => {
                    assert_eq!(kept, text);
                    assert!(why.contains(says), "{text}: {why}");
                }
                Arguments::Object(value) => panic!("{text} became {value}"),
            }
        }
    }

    #[test]
    fn pieces_are_text_or_an_object() {
        let mut call = OpenCall::default();
        call.add(None);
        call.add(Some(&json!("{\"a\"")));
        assert!(!call.is_whole());
        call.add(Some(&Value::Null));
        call.add(Some(&json!(":1}")));
        assert!(call.is_whole());
        assert_eq!(call.close().arguments, Arguments::Object(json!({"a": 1})));
        let mut call = OpenCall::default();
        call.add(Some(&json!({"b": 2})));
        assert_eq!(call.close().arguments, Arguments::Object(json!({"b": 2})));
        let mut call = OpenCall::default();
        call.add(Some(&json!([1])));
        assert!(matches!(call.close().arguments, Arguments::Invalid { .. }));
    }
}
