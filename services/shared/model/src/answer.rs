//! What a model has answered.

use serde_json::Value;

use crate::{Arguments, Call, Usage};

/// The reason for which an answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The model had no more to say, or waits for the results of its calls.
    Complete,
    /// The limit of its tokens was reached, in its text.
    Length,
    /// The server or the model refused to answer.
    Refused,
}

/// An answer that has come to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The text.
    pub text: String,
    /// What the model thought before, where the server shows it.
    pub reasoning: String,
    /// The calls, in the order in which they came.
    pub calls: Vec<Call>,
    /// Why it ends.
    pub end: End,
    /// What the server counted; `None` if it counted nothing.
    pub usage: Option<Usage>,
    /// The model that answered, as the server names it; empty if it does not.
    pub model: String,
}

impl Answer {
    /// Changes every text of the answer, as when a secret in it is hidden.
    pub fn map_texts(&mut self, change: &mut dyn FnMut(&mut String)) {
        [&mut self.text, &mut self.reasoning, &mut self.model].into_iter().for_each(&mut *change);
        for call in &mut self.calls {
            change(&mut call.name);
            change(&mut call.server_id);
            match &mut call.arguments {
                Arguments::Object(object) => map_strings(object, change),
                Arguments::Invalid { text, why } => {
                    change(text);
                    change(why);
                }
            }
        }
    }
}

fn map_strings(value: &mut Value, change: &mut dyn FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| map_strings(item, change)),
        Value::Object(members) => {
            for (mut name, mut member) in std::mem::take(members) {
                change(&mut name);
                map_strings(&mut member, change);
                members.insert(name, member);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A part of an answer that is being given, to be shown. Nothing may follow from it: the answer may still break off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// More text.
    Text(String),
    /// More of what the model thinks.
    Reasoning(String),
    /// A call of the tool of this name begins.
    Call(String),
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_text_is_changed() {
        let call = |arguments| Call { name: "x".into(), arguments, server_id: "x".into() };
        let object = Arguments::Object(json!({"x": ["x", {"a": "x"}, 1]}));
        let invalid = Arguments::Invalid { text: "x".into(), why: "x".into() };
        let mut answer = Answer {
            text: "x".into(),
            reasoning: "x".into(),
            calls: vec![call(object), call(invalid)],
            end: End::Complete,
            usage: None,
            model: "x".into(),
        };
        let mut count = 0;
        answer.map_texts(&mut |text| {
            count += usize::from(text == "x");
            text.replace_range(.., "y");
        });
        assert_eq!(count, 12);
        assert!(!format!("{answer:?}").contains("\"x\""), "{answer:?}");
    }
}
