//! What tools say while they work, on its way to whoever watches. It is never stored, and nobody waits for it.

use std::sync::{Arc, Mutex, PoisonError};

use belay_execution::Timestamp;
use belay_proto::v1::{self, tool_call_output::Stream};

use crate::{hub::Hub, wire};

/// Brings one call's output to its execution's watchers.
pub(crate) struct Voice {
    hub: Arc<Hub>,
    /// The event of a piece, all but its time and the piece.
    event: v1::ExecutionEvent,
    told: Mutex<Told>,
}

impl Voice {
    pub(crate) fn new(hub: Arc<Hub>, event: v1::ExecutionEvent) -> Self {
        Self { hub, event, told: Mutex::default() }
    }

    /// Passes a piece on, unless it was passed on before: a runner that is asked again tells everything again.
    pub(crate) fn say(&self, now: Timestamp, output: v1::ToolCallOutput) {
        let news = self.told.lock().unwrap_or_else(PoisonError::into_inner).news(output);
        if let Some(output) = news {
            self.hub.say(wire::output_event(&self.event, now, output));
        }
    }
}

/// How far each stream has been passed on.
#[derive(Debug, Default)]
struct Told {
    stdout: i64,
    stderr: i64,
}

impl Told {
    /// What of a piece is new.
    fn news(&mut self, output: v1::ToolCallOutput) -> Option<v1::ToolCallOutput> {
        let told = if output.stream() == Stream::Stderr { &mut self.stderr } else { &mut self.stdout };
        let end = output.offset.saturating_add(length(&output.text));
        let news = match usize::try_from(told.saturating_sub(output.offset)) {
            Err(_) | Ok(0) => output,
            // Where bytes were replaced, places in the text are not places in the stream.
            Ok(known) if !output.text.contains(char::REPLACEMENT_CHARACTER) && output.text.is_char_boundary(known) => {
                let text = output.text[known..].to_owned();
                v1::ToolCallOutput { offset: *told, text, ..output }
            }
            Ok(_) => return None,
        };
        *told = end.max(*told);
        (!news.text.is_empty()).then_some(news)
    }
}

/// How many bytes of the stream a text stands for at least: what could not be read as text is replaced, one byte or more at a time.
fn length(text: &str) -> i64 {
    let replaced = text.chars().filter(|&character| character == char::REPLACEMENT_CHARACTER).count();
    let bytes = text.len() - replaced * (char::REPLACEMENT_CHARACTER.len_utf8() - 1);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(stream: Stream, offset: i64, text: &str) -> v1::ToolCallOutput {
        v1::ToolCallOutput { stream: stream.into(), offset, text: text.into() }
    }

    #[test]
    fn nothing_is_said_twice_and_gaps_stay_visible() {
        let mut told = Told::default();
        let mut say =
            |stream, offset, text: &str| told.news(piece(stream, offset, text)).map(|piece| (piece.offset, piece.text));
        let said = |offset: i64, text: &str| Some((offset, text.to_owned()));
        assert_eq!(say(Stream::Stdout, 0, "one "), said(0, "one "));
        assert_eq!(say(Stream::Stderr, 0, "oh"), said(0, "oh"), "each stream has its own offsets");
        assert_eq!(say(Stream::Stdout, 0, "one "), None);
        assert_eq!(say(Stream::Stdout, 2, "e two"), said(4, "two"), "cut differently the second time");
        assert_eq!(say(Stream::Stdout, 99, "late"), said(99, "late"));
        assert_eq!(say(Stream::Stdout, 103, "\u{fffd}!"), said(103, "\u{fffd}!"));
        assert_eq!(say(Stream::Stdout, 106, "on"), said(106, "on"), "a replaced byte may stand for fewer bytes");
        assert_eq!(say(Stream::Stdout, 103, "\u{fffd}!on"), None);
        assert_eq!(say(Stream::Stdout, 108, ""), None);
    }
}
