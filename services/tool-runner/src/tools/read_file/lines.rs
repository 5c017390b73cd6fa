//! Reads lines from a file of any size.

use belay_workspace::RelPath;

use crate::{ToolFailure, View, tools::files::Stop};

/// How many bytes are read at a time.
const CHUNK_BYTES: u64 = 1 << 20;

/// The lines between two numbers, up to a limit of bytes.
pub(super) struct Window {
    first: u64,
    last: u64,
    numbered: bool,
    max_bytes: usize,
    /// The number of the current line.
    line: u64,
    at_start: bool,
    content: Vec<u8>,
    /// The last line that `content` holds, in part or in full.
    shown: Option<u64>,
    full: bool,
}

impl Window {
    /// Lines `first` to `last`, counted from 1, in at most `max_bytes` bytes.
    pub(super) fn new(first: u64, last: u64, numbered: bool, max_bytes: usize) -> Self {
        Self {
            first,
            last,
            numbered,
            max_bytes,
            line: 1,
            at_start: true,
            content: Vec::new(),
            shown: None,
            full: false,
        }
    }

    /// Reads a file as far as needed. Returns its size in bytes.
    pub(super) fn read(&mut self, view: &dyn View, stop: &Stop, path: &RelPath) -> Result<u64, ToolFailure> {
        let mut at = 0;
        loop {
            stop.check()?;
            let chunk = view.read(path, at, Some(CHUNK_BYTES))?;
            at += chunk.len() as u64;
            let needs_more = self.feed(&chunk);
            if !needs_more || (chunk.len() as u64) < CHUNK_BYTES {
                return Ok(view.size(path)?);
            }
        }
    }

    /// Feeds the next bytes of the file. Returns whether more are needed.
    fn feed(&mut self, chunk: &[u8]) -> bool {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            if self.line > self.last || self.full {
                return false;
            }
            if self.line >= self.first {
                self.show(part);
            }
            self.at_start = part.ends_with(b"\n");
            self.line += u64::from(self.at_start);
        }
        self.line <= self.last && !self.full
    }

    fn show(&mut self, part: &[u8]) {
        let number = if self.numbered && self.at_start { format!("{}\t", self.line) } else { String::new() };
        let remaining = self.max_bytes.saturating_sub(self.content.len() + number.len());
        let fitting = &part[..part.len().min(remaining)];
        self.full = fitting.len() < part.len();
        if !fitting.is_empty() {
            self.content.extend_from_slice(number.as_bytes());
            self.content.extend_from_slice(fitting);
            self.shown = Some(self.line);
        }
    }

    /// Whether lines were cut off at the limit.
    pub(super) fn truncated(&self) -> bool {
        self.full
    }

    /// The first and the last line in the content.
    pub(super) fn lines(&self) -> Option<(u64, u64)> {
        self.shown.map(|last| (self.first, last))
    }

    pub(super) fn into_content(self) -> Vec<u8> {
        self.content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(
        chunks: &[&str],
        first: u64,
        last: u64,
        numbered: bool,
        max_bytes: usize,
    ) -> (String, Option<(u64, u64)>, bool) {
        let mut window = Window::new(first, last, numbered, max_bytes);
        for chunk in chunks {
            if !window.feed(chunk.as_bytes()) {
                break;
            }
        }
        let (lines, truncated) = (window.lines(), window.truncated());
        (String::from_utf8(window.into_content()).unwrap(), lines, truncated)
    }

    #[test]
    fn lines_are_found_across_chunk_boundaries() {
        let text = "one\ntwo\r\nthree\nfour";
        for at in 0..=text.len() {
            let (left, right) = text.split_at(at);
            assert_eq!(window(&[left, right], 2, 3, false, 99), ("two\r\nthree\n".into(), Some((2, 3)), false), "{at}");
            assert_eq!(
                window(&[left, right], 3, 9, true, 99),
                ("3\tthree\n4\tfour".into(), Some((3, 4)), false),
                "{at}"
            );
        }
        assert_eq!(window(&[text], 5, 9, true, 99), (String::new(), None, false));
    }

    #[test]
    fn lines_beyond_the_limit_are_truncated() {
        assert_eq!(window(&["abcdef\ngh\n"], 1, 9, false, 10), ("abcdef\ngh\n".into(), Some((1, 2)), false));
        assert_eq!(window(&["abcdef\ngh\n"], 1, 9, false, 9), ("abcdef\ngh".into(), Some((1, 2)), true));
        assert_eq!(window(&["abcdef\ngh\n"], 1, 9, false, 4), ("abcd".into(), Some((1, 1)), true));
        assert_eq!(window(&["ab\n", "cd\n"], 1, 9, true, 6), ("1\tab\n".into(), Some((1, 1)), true));
    }
}
