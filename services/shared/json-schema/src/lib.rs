//! JSON Schema (draft 2020-12 unless the schema says otherwise) for the parameters and results of tools.
//!
//! A crate of its own because the validator has many dependencies: crates that do not check schemas do not compile them.

use jsonschema::error::ValidationErrorKind;
use serde_json::Value;
use thiserror::Error;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    validator: jsonschema::Validator,
}

/// The text is not a valid schema.
#[derive(Debug, Error)]
#[error("not a JSON Schema: {0}")]
pub struct InvalidSchema(String);

/// One thing that is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, as a JSON pointer (RFC 6901); empty for the whole value.
    pub pointer: String,
    /// What is wrong.
    pub message: String,
    /// The members that the object there must not have, if that is the problem.
    pub unknown: Vec<String>,
}

impl Schema {
    /// Compiles a schema. References to other documents are rejected; nothing is fetched.
    ///
    /// # Errors
    /// [`InvalidSchema`] when the text is not JSON or not a schema.
    pub fn new(text: &str) -> Result<Self, InvalidSchema> {
        let schema: Value = serde_json::from_str(text).map_err(|error| InvalidSchema(error.to_string()))?;
        let validator = jsonschema::validator_for(&schema).map_err(|error| InvalidSchema(error.to_string()))?;
        Ok(Self { validator })
    }

    /// Everything that is wrong with a value.
    pub fn violations(&self, value: &Value) -> Vec<Violation> {
        self.violations_except(value, &[])
    }

    /// The same for a value in which some strings (`templates`, as JSON pointers) stand for values that are not known yet: violations at those
    /// strings, or of a choice between shapes that contains one, are left out.
    pub fn violations_except(&self, value: &Value, templates: &[String]) -> Vec<Violation> {
        self.validator
            .iter_errors(value)
            .filter(|error| {
                let at = error.instance_path().as_str();
                let is_template = templates.iter().any(|template| template == at);
                let is_choice_around_one = is_choice(error.schema_path().as_str())
                    && templates
                        .iter()
                        .any(|template| template.strip_prefix(at).is_some_and(|rest| rest.starts_with('/')));
                !is_template && !is_choice_around_one
            })
            .map(|error| Violation {
                pointer: error.instance_path().as_str().to_owned(),
                message: error.to_string(),
                unknown: unknown(error.kind()),
            })
            .collect()
    }
}

fn unknown(kind: &ValidationErrorKind) -> Vec<String> {
    match kind {
        ValidationErrorKind::AdditionalProperties { unexpected } => unexpected.clone(),
        _ => Vec::new(),
    }
}

/// Keywords whose result depends on every value below them.
fn is_choice(schema_path: &str) -> bool {
    let keyword = schema_path.rsplit('/').next().unwrap_or_default();
    matches!(keyword, "anyOf" | "oneOf" | "not" | "enum" | "const" | "if" | "contains" | "uniqueItems")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Schema {
        Schema::new(
            r#"{"type":"object","required":["path"],"additionalProperties":false,
                "properties":{"path":{"type":"string"},"lines":{"type":"integer"},"at":{"enum":[[1],[2]]}}}"#,
        )
        .unwrap()
    }

    #[test]
    fn every_violation_is_named_with_its_place() {
        let violations = schema().violations(&json!({"lines": "many", "colour": 1}));
        let pointers: Vec<&str> = violations.iter().map(|violation| violation.pointer.as_str()).collect();
        assert_eq!(violations.len(), 3, "{violations:?}");
        assert!(pointers.contains(&"/lines") && pointers.contains(&""));
        let unknown: Vec<&String> = violations.iter().flat_map(|violation| &violation.unknown).collect();
        assert_eq!(unknown, ["colour"]);
        assert!(schema().violations(&json!({"path": "a", "lines": 3})).is_empty());
    }

    #[test]
    fn a_template_violates_nothing() {
        let value = json!({"path": "a", "lines": "${count.result.n}", "at": ["${count.result.n}"]});
        let templates = vec!["/lines".to_owned(), "/at/0".to_owned()];
        assert_eq!(schema().violations_except(&value, &templates), vec![]);
        assert_eq!(schema().violations(&value).len(), 2);
        let missing = schema().violations_except(&json!({"lines": "${count.result.n}"}), &templates);
        assert_eq!(missing.len(), 1, "a missing field is missing all the same: {missing:?}");
    }

    #[test]
    fn an_invalid_schema_or_one_with_a_remote_reference_is_refused() {
        for bad in ["{", r#"{"type": 7}"#, r#"{"$ref": "https://example.com/schema.json"}"#] {
            assert!(Schema::new(bad).is_err(), "{bad}");
        }
    }
}
