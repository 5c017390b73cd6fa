//! The tokens that the answers of a model's server say were used, read while they pass. Pure.
//!
//! The four APIs that agents speak (Chat Completions, Responses, Messages, generateContent) report them as an object `usage` or `usageMetadata`, once or in
//! several events of which a later one has all that an earlier one had. Within a text the quotes of such a name are escaped. A model can write such an object where the arguments of a call are JSON of the answer itself: of several numbers the largest
//! counts, so that it can only raise what the server reports beside it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The names of the object, with their quotes.
const NAMES: [&[u8]; 2] = [b"\"usage\"", b"\"usageMetadata\""];

/// The largest object, in bytes; real ones have some hundred.
const MAX_OBJECT: usize = 16 << 10;

/// The tokens that were used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tokens {
    /// Tokens of prompts, those from a cache included.
    pub input: u64,
    /// Those of them that came from a cache.
    pub cached: u64,
    /// Tokens of answers.
    pub output: u64,
}

impl Tokens {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Those of one answer, of which several of its events have a part.
    fn merge(&mut self, other: Self) {
        self.input = self.input.max(other.input);
        self.cached = self.cached.max(other.cached);
        self.output = self.output.max(other.output);
    }

    /// The tokens of an object; `None` for one that is about something else.
    fn of(object: &Value) -> Option<Self> {
        let number = |pointer: &str| object.pointer(pointer).and_then(Value::as_u64);
        let first = |pointers: &[&str]| pointers.iter().find_map(|pointer| number(pointer));
        let input = first(&["/prompt_tokens", "/input_tokens", "/promptTokenCount"]);
        let output = first(&["/completion_tokens", "/output_tokens", "/candidatesTokenCount"]);
        if input.is_none() && output.is_none() {
            return None;
        }
        // Messages counts what comes from its cache, and what goes into it, beside its input.
        let beside = |pointer: &str| number(pointer).unwrap_or_default();
        let read = beside("/cache_read_input_tokens");
        let cached = first(&[
            "/prompt_tokens_details/cached_tokens",
            "/input_tokens_details/cached_tokens",
            "/cachedContentTokenCount",
        ]);
        let input =
            input.unwrap_or_default().saturating_add(read).saturating_add(beside("/cache_creation_input_tokens"));
        let output = output.unwrap_or_default().saturating_add(beside("/thoughtsTokenCount"));
        Some(Self { input, cached: cached.unwrap_or(read), output })
    }
}

/// Reads the tokens of one answer.
#[derive(Debug, Default)]
pub(crate) struct UsageScanner {
    /// What may be the beginning of a name or of an object.
    text: Vec<u8>,
    found: Option<Tokens>,
}

impl UsageScanner {
    /// Adds a piece of the answer.
    pub(crate) fn push(&mut self, piece: &[u8]) {
        self.text.extend_from_slice(piece);
        let mut done = 0;
        while let Some((at, after)) = find_name(&self.text, done) {
            match object(&self.text[after..]) {
                Object::Whole(length) => {
                    let text = &self.text[after..after + length];
                    let start = text.iter().position(|byte| *byte == b'{').unwrap_or_default();
                    let tokens = serde_json::from_slice(&text[start..]).ok().as_ref().and_then(Tokens::of);
                    if let Some(tokens) = tokens {
                        self.found.get_or_insert_default().merge(tokens);
                    }
                    // Objects of this name may be nested, so what is in it is looked through as well.
                    done = after;
                }
                Object::Other => done = after,
                Object::Begun if self.text.len() - at <= MAX_OBJECT => {
                    self.text.drain(..at);
                    return;
                }
                Object::Begun => done = after,
            }
        }
        let longest = NAMES.iter().map(|name| name.len()).max().unwrap_or_default();
        let keep = (self.text.len() - done).min(longest - 1);
        self.text.drain(..self.text.len() - keep);
    }

    /// The tokens that the answer has reported so far.
    pub(crate) fn tokens(&self) -> Option<Tokens> {
        self.found
    }
}

/// The first name from `from` on, and what comes after it.
fn find_name(text: &[u8], from: usize) -> Option<(usize, usize)> {
    let quotes = (from..text.len()).filter(|at| text[*at] == b'"');
    quotes.into_iter().find_map(|at| {
        // A quote that is escaped belongs to a text.
        let is_escaped = at > 0 && text[at - 1] == b'\\';
        let name = NAMES.iter().find(|name| !is_escaped && text[at..].starts_with(name))?;
        Some((at, at + name.len()))
    })
}

/// What comes after a name.
enum Object {
    /// An object, which ends there.
    Whole(usize),
    /// The beginning of one.
    Begun,
    /// Something else.
    Other,
}

fn object(text: &[u8]) -> Object {
    let (mut depth, mut in_text, mut is_escaped, mut has_colon) = (0_usize, false, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if in_text => is_escaped = true,
            b'"' if depth > 0 => in_text = !in_text,
            _ if in_text => {}
            b':' if depth == 0 && !has_colon => has_colon = true,
            b'{' if has_colon => depth += 1,
            b'}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    return Object::Whole(at + 1);
                }
            }
            b' ' | b'\n' | b'\r' | b'\t' => {}
            _ if depth > 0 => {}
            _ => return Object::Other,
        }
    }
    Object::Begun
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHAT: &str = r#"data: {"choices":[{"delta":{"content":"the \"usage\":{\"prompt_tokens\":9} of it"}}],"usage":null}

data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":10,"total_tokens":110,"prompt_tokens_details":{"cached_tokens":40}}}

data: [DONE]
"#;
    const RESPONSES: &str = r#"event: response.completed
data: {"type":"response.completed","response":{"id":"r","usage" : {"input_tokens":100,"output_tokens":10,"input_tokens_details":{"cached_tokens":40}}}}
"#;
    const MESSAGES: &str = r#"data: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":60,"output_tokens":1,"cache_read_input_tokens":40,"cache_creation_input_tokens":0}}}
data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":10}}
"#;
    const CONTENTS: &str = r#"data: {"candidates":[],"usageMetadata":{"promptTokenCount":100,"candidatesTokenCount":7,"thoughtsTokenCount":3,"cachedContentTokenCount":40}}
"#;

    /// Wherever an answer is cut into pieces, its tokens are the same.
    #[test]
    fn each_api_reports_its_tokens() {
        for answer in [CHAT, RESPONSES, MESSAGES, CONTENTS] {
            for first in 0..answer.len() {
                for second in (first..answer.len()).step_by(23) {
                    let mut scanner = UsageScanner::default();
                    for piece in [&answer[..first], &answer[first..second], &answer[second..]] {
                        scanner.push(piece.as_bytes());
                    }
                    assert_eq!(
                        scanner.tokens(),
                        Some(Tokens { input: 100, cached: 40, output: 10 }),
                        "{first} {second}: {answer}"
                    );
                    assert!(scanner.text.len() < 32, "{:?}", scanner.text);
                }
            }
        }
    }

    #[test]
    fn what_is_no_usage_is_none() {
        for answer in [
            r#"{"usage": 3}"#,
            r#"{"usage": {"credits": 3}}"#,
            r#"{"text": "\"usage\": {\"prompt_tokens\": 3}"}"#,
            r#""usage" "usage""#,
            "",
        ] {
            let mut scanner = UsageScanner::default();
            scanner.push(answer.as_bytes());
            assert_eq!(scanner.tokens(), None, "{answer}");
        }
    }

    /// What is kept is bounded, whatever comes.
    #[test]
    fn an_endless_object_is_given_up() {
        let mut scanner = UsageScanner::default();
        scanner.push(b"{\"usage\": {");
        for _ in 0..1000 {
            scanner.push(&[b'x'; 100]);
            assert!(scanner.text.len() <= MAX_OBJECT + 200, "{}", scanner.text.len());
        }
        scanner.push(br#"{"usage": {"prompt_tokens": 3, "completion_tokens": 4}}"#);
        assert_eq!(scanner.tokens(), Some(Tokens { input: 3, cached: 0, output: 4 }));
    }
}
