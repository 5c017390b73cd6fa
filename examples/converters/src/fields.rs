//! Reads a document so that no key of it is lost: what is not taken is reported.

use belay_yaml::{Bounds, Entry, Node, Value};
use thiserror::Error;

use crate::left_out::{HasPlace, Report};

/// The reason why a document cannot be converted at all.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{}{}{message}", if *.line > 0 { format!("line {line}: ") } else { String::new() }, if .path.is_empty() { String::new() } else { format!("{path}: ") })]
pub struct Refusal {
    /// The line of the document, from 1; 0 when not known.
    pub line: u32,
    /// The path in the document; empty for the document as a whole.
    pub path: String,
    /// The problem, and what to do.
    pub message: String,
}

impl Refusal {
    /// A refusal of the document as a whole.
    pub fn of_document(message: impl Into<String>) -> Self {
        Self { line: 0, path: String::new(), message: message.into() }
    }
}

/// Limits of a document.
const BOUNDS: Bounds = Bounds { what: "document", max_depth: 100, max_nodes: 200_000, max_text: 4 * 1024 * 1024 };

/// Reads YAML, whose values know their lines.
///
/// # Errors
/// The first place that is no YAML.
pub fn read_yaml(text: &str) -> Result<Node, Refusal> {
    belay_yaml::parse(text, &BOUNDS).map_err(|error| Refusal {
        line: error.line,
        path: error.field,
        message: error.message,
    })
}

/// Reads JSON, whose values know no lines.
///
/// # Errors
/// The first place that is no JSON, with its line and column.
pub fn read_json(text: &str) -> Result<Node, Refusal> {
    belay_json::read(text).map(node).map_err(|error| Refusal::of_document(error.to_string()))
}

fn node(value: serde_json::Value) -> Node {
    let value = match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(value),
        serde_json::Value::Number(number) => Value::Number(number),
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Array(items) => Value::List(items.into_iter().map(node).collect()),
        serde_json::Value::Object(members) => {
            Value::Map(members.into_iter().map(|(key, value)| Entry { line: 0, key, value: node(value) }).collect())
        }
    };
    Node { line: 0, value }
}

/// A value of the document, with its place.
#[derive(Clone, Debug)]
pub struct Field<'n> {
    /// The path, such as `jobs.build.steps[2].uses`.
    pub path: String,
    /// The line, from 1; 0 when not known.
    pub line: u32,
    /// The value.
    pub node: &'n Node,
}

impl HasPlace for Field<'_> {
    fn place(&self) -> (u32, &str) {
        (self.line, &self.path)
    }
}

impl<'n> Field<'n> {
    /// The document as a whole.
    #[must_use]
    pub fn document(node: &'n Node) -> Self {
        Self { path: String::new(), line: node.line, node }
    }

    /// Returns a refusal of this place.
    pub fn refused(&self, message: impl Into<String>) -> Refusal {
        Refusal { line: self.line, path: self.path.clone(), message: message.into() }
    }

    /// Returns a text, a number or a boolean as text; `None` for everything else.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match &self.node.value {
            Value::Text(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Bool(value) => Some(value.to_string()),
            Value::Null | Value::List(_) | Value::Map(_) => None,
        }
    }

    /// Returns the text of a field that has to have one.
    ///
    /// # Errors
    /// When it is a list, a mapping or empty.
    pub fn needed_text(&self) -> Result<String, Refusal> {
        self.text().ok_or_else(|| self.refused(format!("is {}, and has to be text", self.node.value.kind())))
    }

    /// Returns the boolean; `None` for everything else, such as an expression.
    #[must_use]
    pub fn boolean(&self) -> Option<bool> {
        match &self.node.value {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns the number, also of a text with one.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        self.text()?.trim().parse().ok()
    }

    /// Returns the entries of a list; a single value is a list of one, as in `needs: build`; nothing is an empty list.
    #[must_use]
    pub fn items(&self) -> Vec<Self> {
        match &self.node.value {
            Value::List(items) => (0..)
                .zip(items)
                .map(|(index, node): (usize, _)| Self {
                    path: format!("{}[{index}]", self.path),
                    line: node.line,
                    node,
                })
                .collect(),
            Value::Null => Vec::new(),
            _ => vec![self.clone()],
        }
    }

    /// Returns the members of a mapping of free names, such as variables; none for anything else.
    #[must_use]
    pub fn members(&self) -> Vec<(String, Self)> {
        match &self.node.value {
            Value::Map(entries) => entries.iter().map(|entry| (entry.key.clone(), self.member(entry))).collect(),
            _ => Vec::new(),
        }
    }

    fn member(&self, entry: &'n Entry) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        Self { path: format!("{}{dot}{}", self.path, entry.key), line: entry.line, node: &entry.value }
    }

    /// Whether it is a mapping.
    #[must_use]
    pub fn is_mapping(&self) -> bool {
        matches!(self.node.value, Value::Map(_))
    }

    /// Whether nothing stands there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self.node.value, Value::Null)
    }

    /// Returns a mapping of known keys, which are taken one by one.
    ///
    /// # Errors
    /// When it is no mapping.
    pub fn fields(&self) -> Result<Fields<'n>, Refusal> {
        match &self.node.value {
            Value::Map(_) => Ok(Fields { all: self.clone(), left: self.members() }),
            Value::Null => Ok(Fields { all: self.clone(), left: Vec::new() }),
            other => Err(self.refused(format!("is {}, and has to be a mapping", other.kind()))),
        }
    }
}

/// A key without a place in plans: its name, why, and the way out.
pub type Homeless = (&'static str, &'static str, &'static str);

/// A mapping of known keys. [`Fields::leave_rest`] reports each that was not taken, so that none is lost.
#[derive(Debug)]
pub struct Fields<'n> {
    /// The mapping itself.
    pub all: Field<'n>,
    left: Vec<(String, Field<'n>)>,
}

impl<'n> Fields<'n> {
    /// Takes a key, if it is there.
    pub fn take(&mut self, key: &str) -> Option<Field<'n>> {
        let at = self.left.iter().position(|(name, _)| name == key)?;
        Some(self.left.remove(at).1)
    }

    /// Takes a key that has to be there.
    ///
    /// # Errors
    /// Names the key that is missing.
    pub fn need(&mut self, key: &str) -> Result<Field<'n>, Refusal> {
        self.take(key).ok_or_else(|| self.all.refused(format!("has no `{key}`: it needs one")))
    }

    /// Drops what is not taken and says nothing: `false`, 0 and what is empty. Conductor writes every field of a task, also those that it does not use.
    pub fn drop_empty(&mut self) {
        self.left.retain(|(_, field)| match &field.node.value {
            Value::Null => false,
            Value::Bool(value) => *value,
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::Text(text) => !text.is_empty(),
            Value::List(items) => !items.is_empty(),
            Value::Map(entries) => !entries.is_empty(),
        });
    }

    /// Reports every key that was not taken: with the reason in the table, or as one that the converter does not know.
    pub fn leave_rest(self, report: &mut Report, table: &[Homeless]) {
        for (name, field) in self.left {
            match table.iter().find(|(key, ..)| *key == name) {
                Some((key, why, instead)) => report.add(&field, *key, *why, *instead),
                None => {
                    report.add(&field, name, "the converter does not know this key", "see whether the plan needs it")
                }
            }
        }
    }
}
