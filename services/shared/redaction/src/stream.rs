//! Redacts output that arrives in chunks and is shown before it has ended.

use crate::{
    FoundSecret, Redactor,
    bytes::{is_line_end, is_token},
    known::is_telling,
    pem, text,
};

/// A longer line is shown before it has ended.
const LONGEST_LINE: usize = 32 * 1024;
/// How much of such a line is buffered and searched again with what follows.
const OVERLAP: usize = 9 * 1024;

/// Redacts one stream of output, including secrets that span two chunks.
///
/// Pushed text comes out up to the end of the last whole line (`\n` or `\r`). Held back are: the line that has not ended, a
/// private key that has not ended, and where values with several lines are looked for as much as the longest of them. That is at most
/// 32 KiB, 16 KiB, and twice the longest spelling of a value that was given.
#[derive(Debug)]
pub struct Stream {
    redactor: Redactor,
    buffer: Vec<u8>,
    /// The length of the buffer's part that was already returned, and is kept only as context for what follows.
    shown: usize,
    /// Whether the last secret may continue.
    inside: bool,
    /// The values that rules have found since they were taken.
    found: Vec<String>,
}

impl Stream {
    /// A stream without input.
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, buffer: Vec::new(), shown: 0, inside: false, found: Vec::new() }
    }

    /// Adds the next chunk, and returns what can be shown now.
    pub fn push(&mut self, mut piece: &[u8]) -> Vec<u8> {
        if self.inside {
            let secret = piece.iter().take_while(|byte| is_token(**byte)).count();
            piece = &piece[secret..];
            self.inside = piece.is_empty();
        }
        let ended = piece.iter().any(|byte| is_line_end(*byte));
        self.buffer.extend_from_slice(piece);
        // Only a line end or a very long line releases output.
        if !ended && self.buffer.len() - self.shown < self.longest_line() {
            return Vec::new();
        }
        self.show(self.free())
    }

    /// Ends the stream, and returns the rest.
    pub fn finish(mut self) -> Vec<u8> {
        self.end()
    }

    /// The same for a stream whose [`Self::take_found`] is wanted afterwards. What is pushed later begins anew.
    pub fn end(&mut self) -> Vec<u8> {
        self.show(self.buffer.len())
    }

    /// The secrets in what has been shown since this was called last, without those that were given: values that are worth hiding elsewhere.
    pub fn take_found(&mut self) -> Vec<String> {
        std::mem::take(&mut self.found)
    }

    /// Hides these values as well from now on. Those that cannot be looked for are left out.
    pub fn learn(&mut self, values: &[String]) {
        if let Ok(redactor) = self.redactor.with_literals(values.iter().filter(|value| is_telling(value))) {
            self.redactor = redactor;
        }
    }

    /// The number of buffered bytes.
    pub fn held(&self) -> usize {
        self.buffer.len() - self.shown
    }

    fn longest_line(&self) -> usize {
        LONGEST_LINE + self.redactor.longest_literals().0
    }

    /// The offset up to which further input cannot change the result.
    fn free(&self) -> usize {
        let (longest, several_lines) = self.redactor.longest_literals();
        let whole = self.buffer.len().saturating_sub(several_lines.saturating_sub(1)).max(self.shown);
        let last_line = self.buffer[self.shown..whole].iter().rposition(|byte| is_line_end(*byte));
        let open = pem::open(&self.buffer).filter(|open| *open >= self.shown);
        let open_line = open.map(|open| {
            let before = &self.buffer[self.shown..open];
            before.iter().rposition(|byte| is_line_end(*byte)).map_or(self.shown, |at| self.shown + at + 1)
        });
        let lines = last_line.map_or(self.shown, |at| self.shown + at + 1).min(open_line.unwrap_or(usize::MAX));
        if lines > self.shown || self.buffer.len() - self.shown < self.longest_line() + open.map_or(0, |_| pem::LONGEST)
        {
            return lines;
        }
        let overlap = OVERLAP.max(longest).max(several_lines);
        (self.buffer.len() - overlap).min(open.unwrap_or(usize::MAX)).max(self.shown)
    }

    fn show(&mut self, mut to: usize) -> Vec<u8> {
        if to <= self.shown && to < self.buffer.len() {
            return Vec::new();
        }
        let found = self.redactor.scan(&self.buffer);
        // A secret is never split.
        if let Some(across) = found.iter().find(|found| found.start < to && to < found.end) {
            to = across.end;
        }
        let new = found
            .iter()
            .filter(|found| found.rule != FoundSecret::LITERAL && self.shown <= found.start && found.end <= to);
        let values = new.filter_map(|found| std::str::from_utf8(&self.buffer[found.start..found.end]).ok());
        self.found.extend(values.filter(|value| is_telling(value)).map(str::to_owned));
        self.inside = to == self.buffer.len() && found.last().is_some_and(|last| last.end == to);
        let shown = text::replaced(&self.buffer, self.shown, to, &found);
        let line_ended = to == 0 || is_line_end(self.buffer[to - 1]);
        let keep = if line_ended { to } else { to.saturating_sub(OVERLAP) };
        self.buffer.drain(..keep);
        self.shown = to - keep;
        shown
    }
}
