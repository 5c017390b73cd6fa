//! What people are shown of an agent's work.

use serde_json::Value;

/// The longest words about one event that people are shown, in bytes.
const MAX_SHOWN: usize = 500;

/// How much of the end of all words is kept, in bytes.
const MAX_KEPT: usize = 64 << 10;

/// The end of what people were shown.
#[derive(Debug, Default)]
pub(super) struct ShownWords(String);

impl ShownWords {
    /// Adds words.
    pub(super) fn add(&mut self, words: &str) {
        self.0.push_str(words);
        // Cut rarely, so that many short lines do not move it each time.
        if self.0.len() > 2 * MAX_KEPT {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let start = self.0.len().saturating_sub(MAX_KEPT);
        let start = self.0.ceil_char_boundary(start);
        self.0.drain(..start);
    }

    /// The kept words.
    pub(super) fn end(mut self) -> String {
        self.cut();
        self.0
    }
}

/// Adds a line for people.
pub(super) fn show(shown: &mut String, line: &str) {
    let end = line.floor_char_boundary(MAX_SHOWN);
    shown.push_str(&line[..end]);
    shown.push_str(if end < line.len() { " …\n" } else { "\n" });
}

/// Adds what an agent says to people, whole.
pub(super) fn show_words(shown: &mut String, words: &str) {
    if !words.is_empty() {
        shown.push_str(words);
        if !words.ends_with('\n') {
            shown.push('\n');
        }
    }
}

/// Adds a call of one of the agent's own tools: its name, and what it is called with.
pub(super) fn show_call(shown: &mut String, tool: &str, input: &Value) {
    let words = match input {
        Value::Object(members) => {
            match ["command", "cmd", "file_path", "path", "pattern", "url"].iter().find_map(|key| members.get(*key)) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => input.to_string(),
            }
        }
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    show(shown, format!("[{tool}] {}", words.replace('\n', " ")).trim_end());
}
