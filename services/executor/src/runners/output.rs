//! Forwards tools' output to watchers while they run. Output is never stored, and a tool never waits for watchers.
//!
//! Secrets are hidden on the way, also those that span two chunks: output is forwarded line by line.

use std::sync::{Arc, Mutex, PoisonError};

use belay_execution::{OperationId, Timestamp};
use belay_proto::v1::{self, tool_call_output::Stream};
use belay_redaction::Redactor;

use crate::{feeds::EventFeed, wire};

/// Forwards one call's output to its execution's watchers.
pub(crate) struct OutputForwarder {
    feed: Arc<EventFeed>,
    /// The call that writes the output.
    call: OperationId,
    /// Hides the execution's secrets.
    redactor: Redactor,
    /// `None` before the first output; most calls write none.
    streams: Mutex<Option<CallStreams>>,
}

impl OutputForwarder {
    pub(crate) fn new(feed: Arc<EventFeed>, call: OperationId, redactor: Redactor) -> Self {
        Self { feed, call, redactor, streams: Mutex::new(None) }
    }

    /// Forwards a chunk, unless it was forwarded before: a runner sends all output again when a call is attached to again.
    pub(crate) fn forward(&self, now: Timestamp, output: v1::ToolCallOutput) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let streams = streams.get_or_insert_with(|| CallStreams::new(wire::output_frame(&self.call), &self.redactor));
        // Of a stream that this version does not know nothing is shown: it is none of these.
        let Some(stream) = streams.stream(output.stream) else { return };
        let shown = stream.push(output);
        self.publish(&streams.event, now, shown);
    }

    /// The call has ended: forwards the rest of an unfinished line.
    pub(crate) fn end(&self, now: Timestamp) {
        if let Some(streams) = &mut *self.streams.lock().unwrap_or_else(PoisonError::into_inner) {
            for stream in &mut streams.streams {
                self.publish(&streams.event, now, stream.end());
            }
        }
    }

    fn publish(&self, event: &v1::ExecutionEvent, now: Timestamp, shown: Option<v1::ToolCallOutput>) {
        if let Some(output) = shown {
            self.feed.publish_output(&wire::output_event(event, now, output));
        }
    }
}

/// The streams that there are: those of a program, and those of a model.
const STREAMS: [Stream; 4] = [Stream::Stdout, Stream::Stderr, Stream::Answer, Stream::Reasoning];

/// The output streams of a call.
struct CallStreams {
    /// The event of a chunk, without its time and content.
    event: v1::ExecutionEvent,
    streams: [StreamProgress; STREAMS.len()],
}

impl CallStreams {
    fn new(event: v1::ExecutionEvent, redactor: &Redactor) -> Self {
        Self { event, streams: STREAMS.map(|stream| StreamProgress::new(stream, redactor)) }
    }

    fn stream(&mut self, number: i32) -> Option<&mut StreamProgress> {
        let stream = Stream::try_from(number).ok()?;
        self.streams.iter_mut().find(|known| known.kind == stream)
    }
}

/// How far a stream has been forwarded. Offsets count what the tool wrote, so they do not match the lengths of redacted text.
struct StreamProgress {
    kind: Stream,
    /// The offset of the next chunk, unless something is missing in between.
    position: i64,
    /// The offset of the unfinished line.
    held_from: i64,
    /// `None` once the stream has ended.
    redacted: Option<belay_redaction::Stream>,
}

impl StreamProgress {
    fn new(kind: Stream, redactor: &Redactor) -> Self {
        let redacted = Some(belay_redaction::Stream::new(redactor.clone()));
        Self { kind, position: 0, held_from: 0, redacted }
    }

    /// Adds a chunk, and returns what can be shown now.
    fn push(&mut self, output: v1::ToolCallOutput) -> Option<v1::ToolCallOutput> {
        let new_part = self.new_part(output)?;
        let redacted = self.redacted.as_mut()?;
        let from = if redacted.held() == 0 { new_part.offset } else { self.held_from };
        let shown = redacted.push(new_part.text.as_bytes());
        self.held_from = self.position - i64::try_from(redacted.held()).unwrap_or(0);
        self.piece(from, &shown)
    }

    fn end(&mut self) -> Option<v1::ToolCallOutput> {
        let shown = self.redacted.take()?.finish();
        self.piece(self.held_from, &shown)
    }

    fn piece(&self, offset: i64, shown: &[u8]) -> Option<v1::ToolCallOutput> {
        let text = String::from_utf8_lossy(shown).into_owned();
        (!text.is_empty()).then(|| v1::ToolCallOutput { stream: self.kind.into(), offset, text })
    }

    /// The part of a chunk that is new.
    fn new_part(&mut self, output: v1::ToolCallOutput) -> Option<v1::ToolCallOutput> {
        let end = output.offset.saturating_add(length(&output.text));
        let new_part = match usize::try_from(self.position.saturating_sub(output.offset)) {
            Err(_) | Ok(0) => output,
            // After replaced bytes, positions in the text are not positions in the stream.
            Ok(known) if !output.text.contains(char::REPLACEMENT_CHARACTER) && output.text.is_char_boundary(known) => {
                let text = output.text[known..].to_owned();
                v1::ToolCallOutput { offset: self.position, text, ..output }
            }
            Ok(_) => return None,
        };
        self.position = end.max(self.position);
        (!new_part.text.is_empty()).then_some(new_part)
    }
}

/// The least number of bytes of the stream that a text stands for: each replacement character stands for one invalid byte or more.
fn length(text: &str) -> i64 {
    let replaced = text.chars().filter(|&character| character == char::REPLACEMENT_CHARACTER).count();
    let bytes = text.len() - replaced * (char::REPLACEMENT_CHARACTER.len_utf8() - 1);
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams() -> CallStreams {
        CallStreams::new(v1::ExecutionEvent::default(), &Redactor::new())
    }

    fn push(streams: &mut CallStreams, stream: Stream, offset: i64, text: &str) -> Option<(i64, String)> {
        let piece = v1::ToolCallOutput { stream: stream.into(), offset, text: text.into() };
        streams.stream(stream.into())?.push(piece).map(|piece| (piece.offset, piece.text))
    }

    #[test]
    fn output_of_an_unknown_stream_is_not_shown_as_the_standard_output() {
        let mut streams = streams();
        assert!(streams.stream(99).is_none());
        assert_eq!(push(&mut streams, Stream::Unspecified, 0, "what\n"), None);
        assert_eq!(push(&mut streams, Stream::Stdout, 0, "one\n"), Some((0, "one\n".into())));
    }

    #[test]
    fn output_is_forwarded_once_and_gaps_stay_visible() {
        let mut streams = streams();
        let mut say = |stream, offset, text: &str| push(&mut streams, stream, offset, text);
        let said = |offset: i64, text: &str| Some((offset, text.to_owned()));
        assert_eq!(say(Stream::Stdout, 0, "one\n"), said(0, "one\n"));
        assert_eq!(say(Stream::Stderr, 0, "oh\n"), said(0, "oh\n"), "each stream has its own offsets");
        assert_eq!(say(Stream::Stdout, 0, "one\n"), None);
        assert_eq!(say(Stream::Stdout, 2, "e\ntwo\n"), said(4, "two\n"), "cut differently the second time");
        assert_eq!(say(Stream::Stdout, 99, "lat\n"), said(99, "lat\n"));
        assert_eq!(say(Stream::Stdout, 103, "\u{fffd}\n"), said(103, "\u{fffd}\n"));
        assert_eq!(say(Stream::Stdout, 106, "o\n"), said(106, "o\n"), "a replaced byte may stand for fewer bytes");
        assert_eq!(say(Stream::Stdout, 103, "\u{fffd}!o\n"), None);
        assert_eq!(say(Stream::Stdout, 108, ""), None);
    }

    #[test]
    fn a_line_is_forwarded_when_it_is_complete() {
        let mut streams = streams();
        assert_eq!(push(&mut streams, Stream::Stdout, 0, "a\nhal"), Some((0, "a\n".into())));
        assert_eq!(push(&mut streams, Stream::Stdout, 5, "f"), None);
        assert_eq!(push(&mut streams, Stream::Stdout, 6, " of it\nrest"), Some((2, "half of it\n".into())));
        let rest = streams.streams.each_mut().map(|stream| stream.end().map(|piece| (piece.offset, piece.text)));
        assert_eq!(rest, [Some((13, "rest".into())), None, None, None]);
        assert_eq!(streams.streams[0].end(), None);
    }

    // S2-FR-077, REQUIREMENTS C4: a secret that spans chunks is hidden as a whole.
    #[test]
    fn a_secret_across_pieces_is_hidden() {
        let mut streams = streams();
        assert_eq!(push(&mut streams, Stream::Stderr, 0, "with ghp_FAKE0fake1Bel"), None);
        let shown = push(&mut streams, Stream::Stderr, 22, "ay2Not3Real4FAKE0fake1B done\nnext\n");
        assert_eq!(shown, Some((0, "with [REDACTED] done\nnext\n".into())));
    }
}
