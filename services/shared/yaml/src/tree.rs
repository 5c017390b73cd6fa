//! Parses YAML into a tree in which every value has its line, within bounds on depth and size.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_json::Number;
use serde_saphyr::{Error, MessageFormatter, Options, Spanned, UserMessageFormatter, alias_limits, budget, options};

use crate::{Violation, shown};

/// The limits of a file.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The name of the file in messages, such as `policy`.
    pub what: &'static str,
    /// The maximum nesting, a little above what the format needs, so that errors about deep values can name their field.
    pub max_depth: usize,
    /// The maximum number of values, with aliases expanded.
    pub max_nodes: usize,
    /// The maximum size in bytes.
    pub max_text: usize,
}

/// A value and the line on which it begins, from 1; 0 when not known.
#[derive(Debug)]
pub struct Node {
    /// Its line.
    pub line: u32,
    /// Its value.
    pub value: Value,
}

/// A value.
#[derive(Debug)]
pub enum Value {
    /// No value is written.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A mapping, in the order of its lines.
    Map(Vec<Entry>),
}

/// A key of a mapping. Keys are unique.
#[derive(Debug)]
pub struct Entry {
    /// The line of the key.
    pub line: u32,
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Node,
}

impl Value {
    /// The kind of value, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

impl Node {
    /// The same value as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => number.clone().into(),
            Value::Text(text) => text.as_str().into(),
            Value::List(entries) => entries.iter().map(Self::to_json).collect(),
            Value::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect(),
        }
    }
}

/// Reads a text into a tree.
///
/// # Errors
/// The violation, with its line (0 when not known).
pub fn parse(text: &str, bounds: &Bounds) -> Result<Node, Violation> {
    let whole = |line, message| Violation { field: String::new(), line, message };
    let Bounds { what, max_text, .. } = *bounds;
    if text.len() > max_text {
        return Err(whole(0, format!("the {what} has {} bytes, and the limit is {max_text}: shorten it", text.len())));
    }
    // Editors that write a byte order mark do not show it.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    serde_saphyr::from_str_with_options(text, rules(bounds)).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map_or(0, |location| counted(location.line()));
        whole(line, message(error, bounds))
    })
}

fn message(error: &Error, bounds: &Bounds) -> String {
    match error {
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            let Bounds { what, max_depth, .. } = bounds;
            format!(
                "the {what} is nested deeper than {max_depth} levels, or has too many values with its aliases expanded"
            )
        }
        Error::AliasError { error, .. } => message(error, bounds),
        other => {
            let problem = UserMessageFormatter.format_message(other);
            // `*.example.com` and `*.rs` without quotes are aliases, which few authors know.
            let is_alias = matches!(other, Error::UnknownAnchor { .. }) || problem.contains("anchor or alias");
            let hint = if is_alias { "; put text that begins with `*` or `&` in quotes" } else { "" };
            format!("invalid YAML: {}{hint}", shown(&problem))
        }
    }
}

/// YAML 1.2: `yes` and `on` are text, and keys are unique.
fn rules(bounds: &Bounds) -> Options {
    options! {
        budget: budget! {
            max_depth: bounds.max_depth,
            max_nodes: bounds.max_nodes,
            max_events: 3 * bounds.max_nodes,
            max_total_scalar_bytes: bounds.max_text,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: alias_limits! {
            max_total_replayed_events: bounds.max_nodes,
            max_replay_stack_depth: bounds.max_depth,
        },
        emit_comments: false,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn counted(line: u64) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { line: counted(spanned.defined.line()), value: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON supports")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("JSON has no NaN and no infinity"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            entries.push(entry);
        }
        Ok(Value::List(entries))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            let line = counted(key.defined.line());
            entries.push(Entry { line, key: key.value, value: map.next_value()? });
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_without_quotes_is_explained() {
        let bounds = Bounds { what: "file", max_depth: 10, max_nodes: 100, max_text: 1000 };
        let refused = |text: &str| parse(text, &bounds).unwrap_err();
        for text in ["a: 1\nhost: *.example.com\n", "a: 1\nhost: {host: *}\n", "a: 1\nhost: [*.rs]\n"] {
            let Violation { line, message, .. } = refused(text);
            assert_eq!(line, 2, "{message}");
            assert!(message.ends_with("; put text that begins with `*` or `&` in quotes"), "{message}");
        }
        assert!(!refused("a: [\n").message.contains("quotes"));
        assert!(parse("a: '*.example.com'\nb: &x 1\nc: *x\n", &bounds).is_ok());
    }
}
