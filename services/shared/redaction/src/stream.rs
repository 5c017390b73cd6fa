//! Output that arrives in pieces, and is shown before it has ended.

use crate::{
    Redactor,
    engine::{is_line_end, is_token},
    pem, text,
};

/// A line that is longer than this is shown before it has ended.
const LONGEST_LINE: usize = 32 * 1024;
/// How much of such a line is held back and looked at again with what follows.
const OVERLAP: usize = 9 * 1024;

/// Hides the secrets of one stream of output, also those that lie across the border of two pieces.
///
/// What has been pushed comes out up to the end of the last whole line (`\n` or `\r`). Held back are: the line that has not ended, a
/// private key that has not ended, and where values with several lines are looked for as much as the longest of them. That is at most
/// 32 KiB, 16 KiB, and twice the longest spelling of a value that was given.
#[derive(Debug)]
pub struct Stream {
    redactor: Redactor,
    buffer: Vec<u8>,
    /// How much of the buffer is out already, and stays only so that what follows is understood.
    shown: usize,
    /// The last secret has not ended, as far as can be seen.
    inside: bool,
}

impl Stream {
    /// Nothing has been pushed yet.
    pub fn new(redactor: Redactor) -> Self {
        Self { redactor, buffer: Vec::new(), shown: 0, inside: false }
    }

    /// Takes the next piece, and gives what can be shown now.
    pub fn push(&mut self, mut piece: &[u8]) -> Vec<u8> {
        if self.inside {
            let secret = piece.iter().take_while(|byte| is_token(**byte)).count();
            piece = &piece[secret..];
            self.inside = piece.is_empty();
        }
        let ended = piece.iter().any(|byte| is_line_end(*byte));
        self.buffer.extend_from_slice(piece);
        // Only a line's end or a very long line can set anything free.
        if !ended && self.buffer.len() - self.shown < self.longest_line() {
            return Vec::new();
        }
        self.show(self.free())
    }

    /// The output has ended: gives the rest.
    pub fn finish(mut self) -> Vec<u8> {
        self.show(self.buffer.len())
    }

    /// How many of the bytes that were pushed last are held back.
    pub fn held(&self) -> usize {
        self.buffer.len() - self.shown
    }

    fn longest_line(&self) -> usize {
        LONGEST_LINE + self.redactor.longest_literals().0
    }

    /// Up to where nothing that still comes can change what is a secret.
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
        // A secret goes as a whole.
        if let Some(across) = found.iter().find(|found| found.start < to && to < found.end) {
            to = across.end;
        }
        self.inside = to == self.buffer.len() && found.last().is_some_and(|last| last.end == to);
        let shown = text::replaced(&self.buffer, self.shown, to, &found);
        let line_ended = to == 0 || is_line_end(self.buffer[to - 1]);
        let keep = if line_ended { to } else { to.saturating_sub(OVERLAP) };
        self.buffer.drain(..keep);
        self.shown = to - keep;
        shown
    }
}
