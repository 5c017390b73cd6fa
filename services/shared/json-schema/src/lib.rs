//! JSON Schema (draft 2020-12 unless the schema says otherwise) for the parameters and results of tools, and for forms.
//!
//! A crate of its own because the validator has many dependencies: crates that do not check schemas do not compile them.

use jsonschema::{PatternOptions, ValidationError, error::ValidationErrorKind};
use serde_json::Value;
use thiserror::Error;

/// A compiled schema.
#[derive(Debug)]
pub struct Schema {
    validator: jsonschema::Validator,
}

/// The text is not a valid schema.
#[derive(Debug, Error)]
#[error("not a JSON Schema: {message}")]
pub struct InvalidSchema {
    /// Where, as a JSON pointer (RFC 6901) into the schema; empty for the whole schema.
    pub pointer: String,
    message: String,
}

/// The members of a schema that refer to another one.
const REFERENCES: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];

/// The longest compiled pattern of a form, in bytes.
const MAX_PATTERN_BYTES: usize = 1024 * 1024;

/// A problem of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Where, as a JSON pointer (RFC 6901); empty for the whole value.
    pub pointer: String,
    /// The problem.
    pub message: String,
    /// The members that the object there must not have, if that is the problem.
    pub unknown: Vec<String>,
}

/// The places that a schema marks as secret (`"writeOnly": true` or `"x-secret": true`), as JSON pointers (RFC 6901) into the values that it describes, in which `*`
/// stands for every member or item. References to other parts of the schema (`#/…`) are followed, each at most once on one path: deeper in a value that
/// contains itself nothing is marked.
pub fn secret_places(schema: &Value) -> Vec<String> {
    let mut places = std::collections::BTreeSet::new();
    marks(schema, schema, String::new(), &mut Vec::new(), &mut places);
    places.into_iter().collect()
}

fn marks<'s>(
    root: &'s Value,
    schema: &'s Value,
    place: String,
    followed: &mut Vec<&'s str>,
    places: &mut std::collections::BTreeSet<String>,
) {
    if schema["writeOnly"] == true || schema["x-secret"] == true {
        places.insert(place);
        return;
    }
    for key in REFERENCES {
        if let Some(pointer) = schema[key].as_str().and_then(|reference| reference.strip_prefix('#'))
            && !followed.contains(&pointer)
            && let Some(other) = root.pointer(pointer)
        {
            followed.push(pointer);
            marks(root, other, place.clone(), followed, places);
            followed.pop();
        }
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let name = name.replace('~', "~0").replace('/', "~1");
        marks(root, member, format!("{place}/{name}"), followed, places);
    }
    for (index, item) in schema["prefixItems"].as_array().into_iter().flatten().enumerate() {
        marks(root, item, format!("{place}/{index}"), followed, places);
    }
    for every in ["items", "additionalProperties", "unevaluatedItems", "unevaluatedProperties", "contains"] {
        schema.get(every).into_iter().for_each(|member| marks(root, member, format!("{place}/*"), followed, places));
    }
    for (_, member) in schema["patternProperties"].as_object().into_iter().flatten() {
        marks(root, member, format!("{place}/*"), followed, places);
    }
    for choice in ["allOf", "anyOf", "oneOf"] {
        for part in schema[choice].as_array().into_iter().flatten() {
            marks(root, part, place.clone(), followed, places);
        }
    }
    for choice in ["if", "then", "else"] {
        schema.get(choice).into_iter().for_each(|part| marks(root, part, place.clone(), followed, places));
    }
    for (_, part) in schema["dependentSchemas"].as_object().into_iter().flatten() {
        marks(root, part, place.clone(), followed, places);
    }
}

impl Schema {
    /// Compiles a schema. References to other documents are rejected; nothing is fetched.
    ///
    /// # Errors
    /// [`InvalidSchema`] when the text is not JSON or not a schema.
    pub fn new(text: &str) -> Result<Self, InvalidSchema> {
        let unread = |error: serde_json::Error| InvalidSchema { pointer: String::new(), message: error.to_string() };
        let schema: Value = serde_json::from_str(text).map_err(unread)?;
        let validator = jsonschema::validator_for(&schema).map_err(invalid)?;
        Ok(Self { validator })
    }

    /// Compiles the schema of a form, which anybody who may start a plan has written and which services evaluate: without references, which can
    /// repeat a schema without end, and with patterns that are matched in linear time. `format` is checked, as people who fill in forms expect.
    ///
    /// # Errors
    /// [`InvalidSchema`] when it is not a schema, or has what a form cannot have.
    pub fn of_form(schema: &Value) -> Result<Self, InvalidSchema> {
        if let Some(pointer) = reference(schema, String::new()) {
            let message = "a form's schema refers to no other: write it out where it is used".to_owned();
            return Err(InvalidSchema { pointer, message });
        }
        let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES);
        let options = jsonschema::options().with_pattern_options(patterns).should_validate_formats(true);
        Ok(Self { validator: options.build(schema).map_err(invalid)? })
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

fn invalid(error: ValidationError<'_>) -> InvalidSchema {
    InvalidSchema { pointer: error.instance_path().as_str().to_owned(), message: error.to_string() }
}

/// Where a schema refers to another one, if it does.
fn reference(schema: &Value, pointer: String) -> Option<String> {
    let below = |key: &str, value| reference(value, format!("{pointer}/{}", key.replace('~', "~0").replace('/', "~1")));
    match schema {
        Value::Object(members) => members.iter().find_map(|(key, value)| {
            if REFERENCES.contains(&key.as_str()) && value.is_string() {
                return Some(format!("{pointer}/{key}"));
            }
            below(key, value)
        }),
        Value::Array(items) => items.iter().enumerate().find_map(|(index, value)| below(&index.to_string(), value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
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

    #[test]
    fn marks_are_found_wherever_a_schema_can_have_them() {
        let schema = serde_json::json!({
            "properties": {
                "pin": {"type": "string", "writeOnly": true},
                "a/b": {"x-secret": true},
                "list": {"items": {"properties": {"key": {"x-secret": true}}}},
                "pair": {"prefixItems": [true, {"x-secret": true}]},
                "any": {"anyOf": [{"type": "null"}, {"properties": {"z": {"writeOnly": true}}}]},
                "ref": {"$ref": "#/$defs/token"},
                "tree": {"$ref": "#/$defs/tree"},
                "not": {"writeOnly": false, "x-secret": "true"},
            },
            "patternProperties": {"^k": {"properties": {"v": {"x-secret": true}}}},
            "then": {"properties": {"later": {"x-secret": true}}},
            "$defs": {
                "token": {"type": "string", "x-secret": true},
                "tree": {"properties": {"value": {"x-secret": true}, "next": {"$ref": "#/$defs/tree"}}},
            },
        });
        let places = ["/*/v", "/any/z", "/a~1b", "/later", "/list/*/key", "/pair/1", "/pin", "/ref", "/tree/value"];
        assert_eq!(
            secret_places(&schema).into_iter().collect::<std::collections::BTreeSet<_>>(),
            places.map(str::to_owned).into()
        );
        assert_eq!(secret_places(&serde_json::json!({"x-secret": true})), [""]);
        assert_eq!(secret_places(&serde_json::json!(true)), Vec::<String>::new());
    }

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

    #[test]
    fn a_form_s_schema_refers_to_nothing_and_is_evaluated_in_bounded_time() {
        let schema = |schema: Value| Schema::of_form(&schema);
        for (bad, pointer) in [
            (json!({"$ref": "#"}), "/$ref"),
            (json!({"properties": {"a": {"items": {"$ref": "#/properties/a"}}}}), "/properties/a/items/$ref"),
            (json!({"allOf": [{"$dynamicRef": "#a"}]}), "/allOf/0/$dynamicRef"),
            (json!({"type": 7}), "/type"),
            (json!({"properties": {"a": {"type": "text"}}}), "/properties/a/type"),
            (json!({"pattern": "(a)\\1"}), "/pattern"),
            (json!({"pattern": "(((((a{99}){99}){99}){99}){99}){99}"}), "/pattern"),
            (json!({"$schema": "https://example.com/other"}), ""),
        ] {
            assert_eq!(schema(bad.clone()).unwrap_err().pointer, pointer, "{bad}");
        }
        let named = schema(json!({"properties": {"$ref": {"type": "string"}}})).unwrap();
        assert_eq!(named.violations(&json!({"$ref": 1})).len(), 1, "a property may have any name");
        let slow = schema(json!({"pattern": "^(a+)+$"})).unwrap();
        assert_eq!(slow.violations(&json!("a".repeat(10_000) + "b")).len(), 1, "matched in linear time");
        let day = schema(json!({"type": "string", "format": "date"})).unwrap();
        assert_eq!((day.violations(&json!("2026-02-30")).len(), day.violations(&json!("2026-02-28")).len()), (1, 0));
        assert!(schema(json!({"format": "password"})).unwrap().violations(&json!("x")).is_empty());
    }
}
