//! What a turn adds to the conversation.

use belay_model::OfferedTool;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a turn adds to the conversation, as it is recorded: the arguments of the call that asks the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// The model, by its name in the settings.
    pub model: String,
    /// The turn, from 1.
    pub turn: u32,
    /// What holds for the whole conversation; in the first turn only.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub beginning: Option<Beginning>,
    /// What came of the calls of the answer before, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<ResultText>,
    /// How many results, counted from the first of the conversation, are archived from here on.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub archived: usize,
    /// A message to the model: the task in the first turn; later a note, where there is something to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// What holds for the whole conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Beginning {
    /// The instructions.
    pub instructions: String,
    /// The tools, in the order in which they are sent.
    pub tools: Vec<Offered>,
}

/// A tool as it is recorded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offered {
    /// Its name for the model.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
}

impl Offered {
    pub(crate) fn to_model(&self) -> OfferedTool {
        OfferedTool {
            name: self.name.clone(),
            description: self.description.clone(),
            parameters: self.parameters.clone(),
        }
    }
}

/// What came of a call, as the model reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultText {
    /// The id of the call.
    pub id: String,
    /// The text.
    pub text: String,
    /// Whether the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Whether it is that of a command that failed and printed nothing: a search that finds nothing, or a check that does not hold.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_silent: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}
