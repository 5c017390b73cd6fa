//! YAML into a tree in which every value knows its line. What a text may cost is bounded before it is spent.

use std::fmt;

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_saphyr::{Error, MessageFormatter, Options, Spanned, UserMessageFormatter, alias_limits, budget, options};

use crate::{check::MAX_TEXT, shown::shown};

/// A policy is six levels deep (the words of an example's command); some more, so that what is too deep is refused by its field's name.
const MAX_DEPTH: usize = 8;
/// Most values, aliases expanded.
const MAX_NODES: usize = 100_000;

/// A value and the line on which it begins, from 1; 0 when not known.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: u32,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number,
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a mapping. Keys are unique.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) line: u32,
    pub(super) key: String,
    pub(super) value: Node,
}

impl Value {
    /// What it is, for people.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "empty",
            Self::Bool(_) => "true or false",
            Self::Number => "a number",
            Self::Text(_) => "text",
            Self::List(_) => "a list",
            Self::Map(_) => "a mapping",
        }
    }
}

/// Reads a text, or says what is wrong and on which line.
pub(super) fn parse(text: &str) -> Result<Node, (u32, String)> {
    serde_saphyr::from_str_with_options(text, rules()).map_err(|error| {
        let error = error.without_snippet();
        let line = error.location().map_or(0, |location| counted(location.line()));
        (line, message(error))
    })
}

fn message(error: &Error) -> String {
    match error {
        Error::Budget { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            format!(
                "the policy is nested deeper than {MAX_DEPTH} levels, or holds more than it may with its aliases written out"
            )
        }
        Error::AliasError { error, .. } => message(error),
        other => format!("this YAML cannot be read: {}", shown(&UserMessageFormatter.format_message(other))),
    }
}

/// YAML 1.2 as far as it goes: `yes` and `on` are text, and keys are unique.
fn rules() -> Options {
    options! {
        budget: budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 3 * MAX_NODES,
            max_total_scalar_bytes: MAX_TEXT,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: alias_limits! {
            max_total_replayed_events: MAX_NODES,
            max_replay_stack_depth: MAX_DEPTH,
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
        f.write_str("a value that JSON has too")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
        Ok(Value::Number)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
        Ok(Value::Number)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
        Ok(Value::Number)
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
