//! What a model is asked.

use serde_json::Value;

/// A tool that a model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedTool {
    /// Its name: 1 to 64 letters, digits, `_` and `-`, which is what all APIs take.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments, an object.
    pub parameters: Value,
}

/// A JSON schema that an answer has to follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// Its name, which some servers want: letters, digits, `_` and `-`.
    pub name: String,
    /// The schema, of an object.
    pub schema: Value,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallResult {
    /// The id of the call in the message before.
    pub id: String,
    /// What the model reads of it.
    pub text: String,
    /// Whether it failed.
    pub is_error: bool,
}

/// A message of the conversation.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// From the one who asks.
    User(String),
    /// An earlier answer of the model.
    Assistant {
        /// Its text.
        text: String,
        /// Its calls: id, name, and arguments as they are sent back.
        calls: Vec<(String, String, Value)>,
    },
    /// What came of the calls of the answer before, in their order.
    Results(Vec<CallResult>),
}

/// A prompt. The same value gives the same bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Prompt {
    /// What holds for the whole conversation.
    pub instructions: String,
    /// The tools, in the order in which they are sent.
    pub tools: Vec<OfferedTool>,
    /// The conversation.
    pub messages: Vec<Message>,
    /// The schema that the answer has to follow.
    pub schema: Option<Schema>,
    /// How many tokens the answer may have.
    pub max_output: u64,
}

impl OfferedTool {
    /// The schema of its arguments as servers take it: one server refuses an object without `properties` (LM Studio's, issue 2254).
    pub(crate) fn parameters(&self) -> Value {
        let mut parameters = self.parameters.as_object().cloned().unwrap_or_default();
        parameters.entry("type").or_insert_with(|| "object".into());
        parameters.entry("properties").or_insert_with(|| Value::Object(serde_json::Map::new()));
        Value::Object(parameters)
    }
}
