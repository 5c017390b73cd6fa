//! The tools of a server, as it describes them.

use rmcp::model::Tool;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most tools of a server.
pub const MAX_TOOLS: usize = 1_000;

/// The longest description that is kept, in characters: it is shown to people and models, and says nothing about what a tool may do.
const MAX_DESCRIPTION: usize = 16_384;

/// A tool, as its server describes it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Its name at the server.
    pub name: String,
    /// A short name for people; empty when there is none.
    #[serde(default)]
    pub title: String,
    /// Its purpose, for people and models.
    #[serde(default)]
    pub description: String,
    /// The JSON Schema of the arguments.
    pub parameters: Value,
    /// The JSON Schema of the structured result; `None` when it has none.
    #[serde(default)]
    pub result: Option<Value>,
    /// The hints of the server about its effects.
    #[serde(default)]
    pub annotations: Annotations,
}

/// Hints of a server about the effects of a tool, which decide nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Annotations {
    /// It changes nothing.
    pub read_only: Option<bool>,
    /// It may remove or overwrite data.
    pub destructive: Option<bool>,
    /// Calling it again with the same arguments has no further effect.
    pub idempotent: Option<bool>,
    /// It interacts with systems outside of the workspace.
    pub open_world: Option<bool>,
}

impl Definition {
    pub(crate) fn of(tool: Tool) -> Self {
        let annotations = tool.annotations;
        let hints = annotations.as_ref().map(|hints| Annotations {
            read_only: hints.read_only_hint,
            destructive: hints.destructive_hint,
            idempotent: hints.idempotent_hint,
            open_world: hints.open_world_hint,
        });
        let title = tool.title.or_else(|| annotations.and_then(|hints| hints.title)).unwrap_or_default();
        Self {
            name: tool.name.into_owned(),
            title: bounded(&title),
            description: bounded(tool.description.as_deref().unwrap_or_default()),
            parameters: Value::Object((*tool.input_schema).clone()),
            result: tool.output_schema.map(|schema| Value::Object((*schema).clone())),
            annotations: hints.unwrap_or_default(),
        }
    }

    /// The parts in which another definition of the same tool differs, in words; empty when they are equal.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let Self { name: _, title, description, parameters, result, annotations } = self;
        let parts = [
            ("the title", *title != other.title),
            ("the description", *description != other.description),
            ("the parameters", *parameters != other.parameters),
            ("the result", *result != other.result),
            ("the annotations", *annotations != other.annotations),
        ];
        parts.into_iter().filter(|(_, differs)| *differs).map(|(part, _)| part).collect()
    }
}

fn bounded(text: &str) -> String {
    text.chars().take(MAX_DESCRIPTION).collect()
}
