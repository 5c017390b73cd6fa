//! The fields of a form, as far as a command line can ask for them.

use belay_all_in_one::json;
use serde_json::Value;

use super::text::{clean, shorten};

/// The most fields that are asked one by one.
const MAX_FIELDS: usize = 50;
/// The longest value that is shown as a default, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// How a field's line is read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    Text,
    Integer,
    Number,
    Flag,
    /// A choice of these.
    Choice(Vec<Value>),
}

/// A field of a form.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// The schema's title for it; empty when it has none.
    pub(crate) title: String,
    pub(crate) kind: Kind,
    pub(crate) is_required: bool,
    pub(crate) default: Option<Value>,
}

/// The way in which the answer is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// Field by field.
    Fields(Vec<Field>),
    /// As one line of JSON.
    Json,
}

impl Shape {
    /// The shape of a schema: fields for an object whose members are all of simple types.
    pub(crate) fn of(schema: &str) -> Shape {
        let schema: Value = serde_json::from_str(schema).unwrap_or_default();
        let properties = schema["properties"].as_object().filter(|_| schema["type"] == "object");
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let field = |(name, property): (&String, &Value)| {
            let choices = property["enum"].as_array().filter(|choices| choices.iter().all(is_simple));
            let kind = match (choices, property["type"].as_str()) {
                (Some(choices), _) if !choices.is_empty() => Kind::Choice(choices.clone()),
                (_, Some("string")) => Kind::Text,
                (_, Some("integer")) => Kind::Integer,
                (_, Some("number")) => Kind::Number,
                (_, Some("boolean")) => Kind::Flag,
                _ => return None,
            };
            let says = |key: &str| property[key].as_str().unwrap_or_default();
            let title = if says("title").is_empty() { says("description") } else { says("title") };
            Some(Field {
                name: name.clone(),
                title: title.to_owned(),
                kind,
                is_required: required.iter().any(|required| required == name.as_str()),
                default: property.get("default").filter(|default| is_simple(default)).cloned(),
            })
        };
        // What else an object may or must have shows only in its JSON.
        let is_plain = ["allOf", "anyOf", "oneOf", "if", "not"].iter().all(|keyword| schema.get(keyword).is_none());
        let fields: Option<Vec<Field>> =
            properties.filter(|_| is_plain).and_then(|all| all.iter().map(field).collect());
        match fields {
            Some(fields) if (1..=MAX_FIELDS).contains(&fields.len()) => Shape::Fields(fields),
            _ => Shape::Json,
        }
    }
}

fn is_simple(value: &Value) -> bool {
    !value.is_object() && !value.is_array()
}

impl Field {
    /// `version, required: The version to release`.
    pub(crate) fn described(&self) -> String {
        let name = clean(&self.name);
        let kind = match &self.kind {
            Kind::Text => "text".to_owned(),
            Kind::Integer => "a whole number".to_owned(),
            Kind::Number => "a number".to_owned(),
            Kind::Flag => "yes or no".to_owned(),
            Kind::Choice(choices) => format!("one of {}", choices.iter().map(shown).collect::<Vec<_>>().join(", ")),
        };
        let required = if self.is_required { "" } else { ", optional" };
        let title = if self.title.is_empty() { String::new() } else { format!(": {}", clean(&self.title)) };
        format!("{name} ({kind}{required}){title}")
    }

    /// The value in a line.
    pub(crate) fn read(&self, line: &str) -> Result<Value, String> {
        match &self.kind {
            Kind::Text => Ok(Value::from(line)),
            Kind::Integer => match json::read(line) {
                Ok(value) if value.is_i64() || value.is_u64() => Ok(value),
                _ => Err(format!("`{}` is not a whole number", clean(line))),
            },
            Kind::Number => match json::read(line) {
                Ok(value) if value.is_number() => Ok(value),
                Err(refused) if line.starts_with(|c: char| c == '-' || c.is_ascii_digit()) => Err(refused.message),
                _ => Err(format!("`{}` is not a number", clean(line))),
            },
            Kind::Flag => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => Ok(Value::from(true)),
                "n" | "no" | "false" => Ok(Value::from(false)),
                _ => Err("type yes or no".to_owned()),
            },
            Kind::Choice(choices) => {
                let chosen = choices.iter().find(|choice| written(choice) == line);
                let choices = || choices.iter().map(shown).collect::<Vec<_>>().join(", ");
                chosen.cloned().ok_or_else(|| format!("`{}` is none of {}", clean(line), choices()))
            }
        }
    }
}

/// A simple value as it is typed.
fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The same for the screen.
pub(crate) fn shown(value: &Value) -> String {
    shorten(&clean(&written(value)), MAX_SHOWN_CHARS)
}

/// The fields of a form, for people: a line each, or its schema where they cannot be asked one by one.
pub(crate) fn fields(schema: &str) -> Vec<String> {
    match Shape::of(schema) {
        Shape::Fields(fields) => fields.iter().map(Field::described).collect(),
        Shape::Json => vec![format!("JSON that matches {schema}")],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_flat_object_has_fields() {
        for schema in [
            json!({}),
            json!({"type": "array"}),
            json!({"type": "object"}),
            json!({"type": "object", "properties": {"a": {"type": "array"}}}),
            json!({"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{}]}),
        ] {
            assert_eq!(Shape::of(&schema.to_string()), Shape::Json, "{schema}");
        }
        assert_eq!(Shape::of("{"), Shape::Json);
        let schema = json!({"type": "object", "required": ["version"], "properties": {
            "channel": {"enum": ["stable", 3]},
            "version": {"type": "string", "title": "Which version?"},
        }});
        let described = fields(&schema.to_string());
        assert_eq!(described, ["channel (one of stable, 3, optional)", "version (text): Which version?"]);
    }
}
