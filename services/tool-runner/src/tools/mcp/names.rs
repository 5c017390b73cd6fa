//! The names and the schemas of servers' tools in plans.

use belay_mcp::Definition;
use serde_json::Value;

/// The result of a tool without a schema of its own.
const RESULT: &str = r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["text"],
  "properties": {
    "text": {"type": "string", "description": "The texts that the tool has returned, a line break between them."},
    "content": {"type": "array", "items": {"type": "object"}, "description": "What else it has returned (images, sounds, resources), in the form of the protocol; set when there is any."},
    "structured": {"description": "Its structured content; set when there is any."}
  }
}"#;

/// The name of a server's tool in plans.
pub(super) fn name(server: &str, tool: &str) -> String {
    format!("{server}.{tool}")
}

/// The schema of a tool's result, as text.
pub(super) fn result_schema(definition: &Definition) -> String {
    definition.result.as_ref().map_or_else(|| RESULT.to_owned(), Value::to_string)
}
