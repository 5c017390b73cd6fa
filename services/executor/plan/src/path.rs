//! Paths of fields in a plan.

use std::{borrow::Cow, fmt};

use belay_text::is_plain;

/// A segment of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    Key(Cow<'static, str>),
    Index(usize),
}

/// The path from the root to one field; displayed as `steps[2].depends_on[0]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldPath(Vec<Segment>);

impl FieldPath {
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// The field of an object at this path.
    pub(crate) fn key(&self, key: impl Into<Cow<'static, str>>) -> Self {
        self.with(Segment::Key(key.into()))
    }

    /// The entry of a list at this path.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.with(Segment::Index(index))
    }

    /// A path inside the value at this path.
    pub(crate) fn join(&self, inner: &FieldPath) -> Self {
        Self(self.0.iter().chain(&inner.0).cloned().collect())
    }

    /// The path itself and its ancestors, up to the root.
    pub(crate) fn ancestors(&self) -> impl Iterator<Item = FieldPath> {
        (0..=self.0.len()).rev().map(|length| Self(self.0[..length].to_vec()))
    }

    /// Whether it is the field of this name, or one inside of it.
    pub(crate) fn begins_with(&self, key: &str) -> bool {
        matches!(self.0.first(), Some(Segment::Key(first)) if first == key)
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.0
    }

    pub(crate) fn push(&mut self, segment: Segment) {
        self.0.push(segment);
    }

    pub(crate) fn pop(&mut self) {
        self.0.pop();
    }

    /// The path as an RFC 6901 JSON pointer.
    pub(crate) fn pointer(&self) -> String {
        let mut pointer = String::new();
        for segment in &self.0 {
            pointer.push('/');
            match segment {
                Segment::Key(key) => pointer.push_str(&key.replace('~', "~0").replace('/', "~1")),
                Segment::Index(index) => pointer.push_str(&index.to_string()),
            }
        }
        pointer
    }

    fn with(&self, segment: Segment) -> Self {
        let mut path = self.clone();
        path.push(segment);
        path
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if is_word(key) => write!(f, "{}{key}", if depth == 0 { "" } else { "." })?,
                Segment::Key(key) => write!(f, "[{}]", quoted(key))?,
            }
        }
        Ok(())
    }
}

fn is_word(key: &str) -> bool {
    !key.is_empty() && key.len() <= MAX_SHOWN && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-$".contains(&b))
}

/// The maximum number of characters of an author's text that a message repeats.
const MAX_SHOWN: usize = 80;

/// An author's text for a message: truncated, with what nobody can see written out.
pub(crate) fn shown(text: &str) -> String {
    belay_text::shown(text, MAX_SHOWN)
}

/// The maximum number of characters that a message names by their numbers.
const MAX_NUMBERED: usize = 3;

/// The characters of a name that are not ASCII, by their numbers, for the end of a message: a letter of another alphabet can look like the one that
/// was meant. Empty when there are none.
pub(crate) fn look_alikes(name: &str) -> String {
    let mut foreign: Vec<char> = name.chars().filter(|c| !c.is_ascii()).collect();
    foreign.sort_unstable();
    foreign.dedup();
    let named = foreign.iter().take(MAX_NUMBERED).map(|c| match !is_plain(*c) {
        true => format!("U+{:04X}, which cannot be seen", u32::from(*c)),
        false => format!("`{c}` is U+{:04X}", u32::from(*c)),
    });
    let named: Vec<String> = named.collect();
    match named.is_empty() {
        true => String::new(),
        false => format!(" (not ASCII: {})", named.join(", ")),
    }
}

/// The same in double quotes.
fn quoted(text: &str) -> String {
    format!("\"{}\"", shown(text).replace('"', "\\\""))
}
