//! Parses JSON into a tree. serde_json parses the values and reports syntax errors; a second pass over the valid text records where each value
//! begins.

use serde::{Deserialize, Deserializer};

use crate::path::look_alikes;

use super::{
    locate::Positions,
    tree::{Key, Kind, KindVisitor, Node, SyntaxError},
};

pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let JsonNode(mut root) = serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        // serde_json ends its messages with the place, which is separated from the message here.
        let message = message.rsplit_once(" at line ").map_or(&*message, |(message, _)| message);
        let positions = Positions::new(text);
        let offset = text.floor_char_boundary(positions.offset(error.line(), error.column()));
        let (line, column) = positions.line_and_column(offset);
        SyntaxError { message: explained(message, &text[offset..], offset == 0), line, column }
    })?;
    Places { text, offset: 0 }.note(&mut root);
    Ok(root)
}

/// The nesting that serde_json reads.
const MAX_JSON_DEPTH: usize = 127;

/// A message of serde_json with what to do. `rest` is the text from the fault on.
fn explained(message: &str, rest: &str, is_at_the_beginning: bool) -> String {
    let advice = match message {
        "recursion limit exceeded" => {
            return format!("the plan is nested deeper than {MAX_JSON_DEPTH} levels: flatten it");
        }
        "expected value" if is_at_the_beginning => ": a plan in JSON begins with `{`",
        "key must be a string" => ": put it in straight quotes, \"",
        "trailing characters" => ": remove what follows the plan",
        "trailing comma" => ": remove it",
        _ if message.starts_with("control character") => ": write it as an escape, such as \\n",
        _ if message.starts_with("EOF") => ": the text ends too early",
        _ => "",
    };
    let found = rest.chars().next().map(|c| look_alikes(c.encode_utf8(&mut [0; 4]))).unwrap_or_default();
    format!("invalid JSON: {message}{advice}{found}")
}

struct JsonNode(Node);

impl<'de> Deserialize<'de> for JsonNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let kind = deserializer.deserialize_any(KindVisitor::<JsonNode, JsonKey>::new())?;
        Ok(Self(Node { offset: 0, kind }))
    }
}

impl From<JsonNode> for Node {
    fn from(node: JsonNode) -> Self {
        node.0
    }
}

#[derive(Deserialize)]
#[serde(transparent)]
struct JsonKey(String);

impl From<JsonKey> for Key {
    fn from(key: JsonKey) -> Self {
        Self { offset: 0, name: key.0 }
    }
}

/// The second pass: a tree and its text are walked side by side.
struct Places<'t> {
    text: &'t str,
    offset: usize,
}

impl Places<'_> {
    fn note(&mut self, node: &mut Node) {
        node.offset = self.next_token();
        match &mut node.kind {
            Kind::List(entries) => {
                self.offset += 1;
                for entry in entries {
                    self.note(entry);
                }
                self.close();
            }
            Kind::Map(entries) => {
                self.offset += 1;
                for entry in entries {
                    entry.key.offset = self.next_token();
                    self.skip_text();
                    self.note(&mut entry.value);
                }
                self.close();
            }
            Kind::Text(_) => self.skip_text(),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => {
                let end = self.rest().find(|c: char| !c.is_ascii_alphanumeric() && !"+-.".contains(c));
                self.offset += end.unwrap_or(self.rest().len());
            }
        }
    }

    fn rest(&self) -> &str {
        &self.text[self.offset..]
    }

    /// Skips white space, commas and colons.
    fn next_token(&mut self) -> usize {
        let filler = |c: char| matches!(c, ' ' | '\t' | '\n' | '\r' | ',' | ':');
        self.offset = self.text.len() - self.rest().trim_start_matches(filler).len();
        self.offset
    }

    fn close(&mut self) {
        self.next_token();
        self.offset += 1;
    }

    /// Skips a text in quotes.
    fn skip_text(&mut self) {
        let mut escaped = true; // as if the opening quote were an escaped one
        let end = self.rest().bytes().position(|b| {
            let closes = b == b'"' && !escaped;
            escaped = b == b'\\' && !escaped;
            closes
        });
        self.offset += end.map_or(self.rest().len(), |end| end + 1);
    }
}
