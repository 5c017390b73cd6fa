//! Some lines out of a file of any size.

use belay_workspace::RelPath;

use crate::{ToolFailure, View, tools::files::Stop};

/// How much of a file is read at a time.
const PIECE: u64 = 1 << 20;

/// The lines between two numbers, as far as they fit.
pub(super) struct Window {
    first: u64,
    last: u64,
    numbered: bool,
    most: usize,
    /// The number of the line that is being read.
    line: u64,
    at_start: bool,
    content: Vec<u8>,
    /// The last line of which there is something in `content`.
    shown: Option<u64>,
    full: bool,
}

impl Window {
    /// Lines `first` to `last`, counted from 1, in at most `most` bytes.
    pub(super) fn new(first: u64, last: u64, numbered: bool, most: usize) -> Self {
        Self { first, last, numbered, most, line: 1, at_start: true, content: Vec::new(), shown: None, full: false }
    }

    /// Reads a file as far as needed, and gives its size in bytes.
    pub(super) fn read(&mut self, view: &dyn View, stop: &Stop, path: &RelPath) -> Result<u64, ToolFailure> {
        let mut at = 0;
        loop {
            stop.check()?;
            let piece = view.read(path, at, Some(PIECE))?;
            at += piece.len() as u64;
            let wants_more = self.feed(&piece);
            if !wants_more || (piece.len() as u64) < PIECE {
                return Ok(view.size(path)?);
            }
        }
    }

    /// Takes the next bytes of the file. Whether more of them are wanted.
    fn feed(&mut self, piece: &[u8]) -> bool {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
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
        let room = self.most.saturating_sub(self.content.len() + number.len());
        let fitting = &part[..part.len().min(room)];
        self.full = fitting.len() < part.len();
        if !fitting.is_empty() {
            self.content.extend_from_slice(number.as_bytes());
            self.content.extend_from_slice(fitting);
            self.shown = Some(self.line);
        }
    }

    /// Whether the lines did not fit.
    pub(super) fn truncated(&self) -> bool {
        self.full
    }

    /// The first and the last line that are there.
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
        pieces: &[&str],
        first: u64,
        last: u64,
        numbered: bool,
        most: usize,
    ) -> (String, Option<(u64, u64)>, bool) {
        let mut window = Window::new(first, last, numbered, most);
        for piece in pieces {
            if !window.feed(piece.as_bytes()) {
                break;
            }
        }
        let (lines, truncated) = (window.lines(), window.truncated());
        (String::from_utf8(window.into_content()).unwrap(), lines, truncated)
    }

    #[test]
    fn lines_are_found_wherever_the_pieces_end() {
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
    fn what_does_not_fit_is_left_out_and_said() {
        assert_eq!(window(&["abcdef\ngh\n"], 1, 9, false, 10), ("abcdef\ngh\n".into(), Some((1, 2)), false));
        assert_eq!(window(&["abcdef\ngh\n"], 1, 9, false, 9), ("abcdef\ngh".into(), Some((1, 2)), true));
        assert_eq!(window(&["abcdef\ngh\n"], 1, 9, false, 4), ("abcd".into(), Some((1, 1)), true));
        assert_eq!(window(&["ab\n", "cd\n"], 1, 9, true, 6), ("1\tab\n".into(), Some((1, 1)), true));
    }
}
