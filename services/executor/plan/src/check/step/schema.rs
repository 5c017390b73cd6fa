//! Schemas: of a step's output, and of the answer to a form.

use crate::{
    check::{Checker, Trust},
    limits::{MAX_DEPTH, MAX_SCHEMA_BYTES},
    path::FieldPath,
    template::json_size,
};

impl Checker<'_> {
    /// Whether the schema of a step's output is one within the limits.
    pub(super) fn output_schema(&mut self, path: &FieldPath, schema: Option<&serde_json::Value>) -> bool {
        let Some(schema) = schema else { return false };
        let problem = self.schema_problem(schema, "{type: object, required: [version]}");
        let is_within = problem.is_none() || self.trust == Trust::Stored;
        if let Some(problem) = problem {
            self.rule(path, || problem);
        }
        is_within
    }

    /// The problem that a schema has before it is compiled; `None` when it has none.
    pub(super) fn schema_problem(&self, schema: &serde_json::Value, such_as: &str) -> Option<String> {
        let size = json_size(schema);
        if !schema.is_object() {
            Some(format!("must be a JSON Schema, an object such as {such_as}"))
        } else if size > MAX_SCHEMA_BYTES {
            Some(format!("has {size} bytes as JSON and the limit is {MAX_SCHEMA_BYTES}: shorten it"))
        } else if is_deeper(schema, MAX_DEPTH) {
            Some(format!("is nested more than {MAX_DEPTH} levels deep: flatten it"))
        } else {
            None
        }
    }
}

/// Whether lists and objects are nested more than `levels` deep.
fn is_deeper(value: &serde_json::Value, levels: usize) -> bool {
    let mut below: Box<dyn Iterator<Item = &serde_json::Value>> = match value {
        serde_json::Value::Array(items) => Box::new(items.iter()),
        serde_json::Value::Object(members) => Box::new(members.values()),
        _ => return false,
    };
    levels == 0 || below.any(|value| is_deeper(value, levels - 1))
}
