//! The section `tools`: programs that the operator declares as tools, so that plans can call them by a name, with arguments that are checked.

use std::time::Duration;

use serde_json::Value;

/// The recovery of a call of a declared tool whose outcome is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolRecovery {
    /// It changes nothing, and what it writes is discarded.
    ReadOnly,
    /// Running it again has no further effect.
    Idempotent,
    /// It works in its view of the workspace alone, which is lost with it.
    Transactional,
    /// It has effects outside the workspace.
    Manual,
}

impl ToolRecovery {
    /// The values in the file.
    pub(crate) const WORDS: [(&'static str, Self); 4] = [
        ("read_only", Self::ReadOnly),
        ("idempotent", Self::Idempotent),
        ("transactional", Self::Transactional),
        ("manual", Self::Manual),
    ];

    /// The value in the file.
    pub(crate) fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, recovery)| *recovery == self).map_or("", |(word, _)| *word)
    }
}

/// The result of a declared tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolOutput {
    /// Its standard output, which is a JSON value.
    Json,
    /// Its standard output as text, without the last line break.
    Text,
    /// The result of `run_terminal`: the exit code and both streams.
    Command,
}

impl ToolOutput {
    /// The values in the file.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("json", Self::Json), ("text", Self::Text), ("command", Self::Command)];
}

/// A part of a word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text as it stands.
    Text(String),
    /// The value of this argument.
    Argument(String),
}

/// A word of a command: its pieces in a row.
pub type Word = Vec<Piece>;

/// Words of a command that belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Words {
    /// The words.
    pub words: Vec<Word>,
    /// Whether they are left out when one of their arguments is not given.
    pub optional: bool,
}

/// A program that the operator declares as a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandTool {
    /// Its name in plans.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// A short name for people; empty when the name serves.
    pub title: String,
    /// Its purpose, for people and models.
    pub description: String,
    /// The program and its arguments. The first word is the program, and has no argument of the call in it.
    pub command: Vec<Words>,
    /// The directory in which it runs, relative to the workspace; empty for its root.
    pub cwd: String,
    /// Variables that the program gets.
    pub env: Vec<(String, String)>,
    /// The JSON Schema of the arguments: an object that takes no arguments that it does not name.
    pub parameters: Value,
    /// The JSON Schema of the result; `None` when it says nothing.
    pub result: Option<Value>,
    /// Conditions that have to hold before its program runs: expressions in CEL about `arguments` and `context`.
    pub preconditions: Vec<String>,
    /// Conditions that have to hold once its program has ended well: expressions in CEL about `output` as well.
    pub postconditions: Vec<String>,
    /// Its result.
    pub output: ToolOutput,
    /// The recovery of a call whose outcome is unknown.
    pub recovery: ToolRecovery,
    /// It may remove or overwrite data.
    pub destructive: bool,
    /// Calling it again with the same arguments has no further effect.
    pub idempotent: bool,
    /// It interacts with systems outside the workspace.
    pub open_world: bool,
    /// Whether its program may ask while it runs, over the descriptors that `BELAY_ASK` names.
    pub asks: bool,
    /// The network profile of its program; `None`: its own loopback alone.
    pub network: Option<String>,
    /// The credentials whose values its program gets, each in the credential's variable.
    pub reveals: Vec<String>,
    /// The time limit of a call when the plan sets none.
    pub timeout: Duration,
}

impl CommandTool {
    /// The variables of its preconditions.
    pub const BEFORE: &[&str] = &["arguments", "context"];
    /// The variables of its postconditions.
    pub const AFTER: &[&str] = &["arguments", "context", "output"];

    /// The command as it is written, for people.
    pub fn shown(&self) -> String {
        let word = |word: &Word| -> String {
            word.iter()
                .map(|piece| match piece {
                    Piece::Text(text) => text.lines().next().unwrap_or_default().to_owned(),
                    Piece::Argument(name) => format!("${{{name}}}"),
                })
                .collect()
        };
        let words = |words: &Words| {
            let all = words.words.iter().map(word).collect::<Vec<_>>().join(" ");
            if words.optional { format!("[{all}]") } else { all }
        };
        self.command.iter().map(words).collect::<Vec<_>>().join(" ")
    }
}

/// Takes a word apart: `${NAME}` stands for an argument, `$${` for `${` itself.
///
/// # Errors
/// The problem with the word.
pub(crate) fn pieces(text: &str) -> Result<Word, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            literal.push_str(&rest[..at - 1]);
            literal.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        literal.push_str(&rest[..at]);
        let inner = &rest[at + 2..];
        let end =
            inner.find('}').ok_or("has a `${` that is not closed: add the `}`, or write `$${` for that text itself")?;
        if end == 0 {
            return Err(
                "has a `${}` that names no argument: write `${NAME}`, or `$${` for the text `${` itself".to_owned()
            );
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut literal)));
        }
        pieces.push(Piece::Argument(inner[..end].to_owned()));
        rest = &inner[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.into())
    }

    fn argument(name: &str) -> Piece {
        Piece::Argument(name.into())
    }

    #[test]
    fn a_word_is_text_and_arguments_in_a_row() {
        for (word, expected) in [
            ("", vec![text("")]),
            ("plain $HOME", vec![text("plain $HOME")]),
            ("${a}", vec![argument("a")]),
            ("--to=${a b}/${c}.", vec![text("--to="), argument("a b"), text("/"), argument("c"), text(".")]),
            ("$${a} ${b}", vec![text("${a} "), argument("b")]),
            ("ü${ü}ü", vec![text("ü"), argument("ü"), text("ü")]),
        ] {
            assert_eq!(pieces(word).unwrap(), expected, "{word}");
        }
        for word in ["${a", "x ${", "${}"] {
            assert!(pieces(word).unwrap_err().contains("`$${`"), "{word}");
        }
    }
}
