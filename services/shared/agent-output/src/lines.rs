//! The last lines of a stream.

use std::collections::VecDeque;

/// How many lines are kept: as many as [`crate::classify`] looks through.
const MAX_LINES: usize = 100;

/// The longest kept line, in bytes: one long line does not push out the others.
const MAX_LINE_BYTES: usize = 1 << 10;

/// The last 100 lines, each at most 1 KiB long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastLines(VecDeque<String>);

impl LastLines {
    /// Adds a line.
    pub fn push(&mut self, line: &str) {
        if self.0.len() == MAX_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line[..line.floor_char_boundary(MAX_LINE_BYTES)].to_owned());
    }

    /// The lines, the first one first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Adds the lines of a text.
    #[must_use]
    pub fn with(mut self, text: &str) -> Self {
        text.lines().for_each(|line| self.push(line));
        self
    }
}

impl From<&str> for LastLines {
    fn from(text: &str) -> Self {
        Self::default().with(text)
    }
}
