//! Buffers the output of a running call from its first byte, so that a subscriber that connects late or again continues where it left off.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicI64, Ordering},
    },
};

use belay_proto::v1::{LastOutput, ToolCallOutput, tool_call_output::Stream};
use belay_redaction::{Redactor, Stream as Hidden};
use tokio::sync::{Notify, watch};

use crate::lock::lock;

/// How much of each stream is buffered, in bytes. Later output is only in the result of the tool, if anywhere.
const MAX_STREAM_BYTES: usize = 1 << 20;
/// The largest chunk that is sent, in bytes of the stream.
const MAX_CHUNK_BYTES: usize = 32 << 10;

/// How much of the end of each stream a failure shows, in bytes.
const MAX_TAIL_BYTES: usize = 4 << 10;
/// How much of the end of each stream is kept for that, in bytes. It is redacted before it is cut to [`MAX_TAIL_BYTES`], so that a
/// multi-line secret that starts before the cut is still recognised.
const MAX_UNREDACTED_TAIL_BYTES: usize = 64 << 10;

/// The most values that are reported as secrets, and the most bytes of them together.
pub(crate) const MAX_FOUND: usize = 256;
pub(crate) const MAX_FOUND_BYTES: usize = 64 << 10;

const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

/// The redacted output of one call. Writing never waits for a reader.
#[derive(Debug)]
pub(crate) struct OutputBuffer {
    written: Mutex<WrittenOutput>,
    redactor: Redactor,
    /// Whether nothing of the standard output is shown: it is the result, and has parts that its schema marks as secret.
    hides_stdout: bool,
    /// The values that were recognized as secrets in either stream.
    found: Mutex<BTreeSet<String>>,
    /// The values that the tool has said to hide.
    told: Mutex<Vec<String>>,
    wake: watch::Sender<()>,
}

/// The output of the tool so far.
#[derive(Debug)]
enum WrittenOutput {
    /// None yet. Most tools never write, so the buffers are allocated on the first write.
    Empty,
    Streams(Box<[StreamBuffer; 2]>),
    /// The tool has ended without output.
    EndedEmpty,
}

/// A stream: the redacted bytes, and those held back because they may be part of a secret.
#[derive(Debug)]
struct StreamBuffer {
    shown: Vec<u8>,
    redacting: Option<Hidden>,
    /// The unredacted end of the stream; at most [`MAX_UNREDACTED_TAIL_BYTES`] bytes.
    end: VecDeque<u8>,
    /// Whether the stream has bytes before `end`.
    more: bool,
}

impl StreamBuffer {
    fn keep(&mut self, bytes: &[u8]) -> bool {
        let room = MAX_STREAM_BYTES.saturating_sub(self.shown.len()).min(bytes.len());
        self.shown.extend_from_slice(&bytes[..room]);
        room > 0
    }

    fn keep_tail(&mut self, bytes: &[u8]) {
        let (before, last) = bytes.split_at(bytes.len().saturating_sub(MAX_UNREDACTED_TAIL_BYTES));
        self.end.extend(last);
        let over = self.end.len().saturating_sub(MAX_UNREDACTED_TAIL_BYTES);
        self.end.drain(..over);
        self.more |= over + before.len() > 0;
    }

    /// The end as a failure shows it, and whether it was truncated.
    fn tail(&self, redactor: &Redactor) -> (String, bool) {
        let bytes: Vec<u8> = self.end.iter().copied().collect();
        let text = redactor.redact_text(&String::from_utf8_lossy(&bytes)).text;
        let cut = text.ceil_char_boundary(text.len().saturating_sub(MAX_TAIL_BYTES));
        if cut == 0 {
            return (text, self.more);
        }
        // Starts at a line, else at a word: a partial value may not be recognised as a secret.
        let rest = &text[cut..];
        let begin = match text[..cut].ends_with('\n') {
            true => 0,
            false => rest.find('\n').or_else(|| rest.find(char::is_whitespace)).map_or(0, |at| at + 1),
        };
        (rest.get(begin..).unwrap_or_default().to_owned(), true)
    }
}

impl OutputBuffer {
    /// An empty buffer.
    pub(crate) fn new(redactor: &Redactor, hides_stdout: bool) -> Self {
        let (written, found) = (Mutex::new(WrittenOutput::Empty), Mutex::default());
        let told = Mutex::default();
        Self { written, redactor: redactor.clone(), hides_stdout, found, told, wake: watch::Sender::new(()) }
    }

    /// The values that were recognized as secrets in the output so far; so many that a message can have them.
    pub(crate) fn found(&self) -> Vec<String> {
        let mut bytes = 0;
        let fits = |value: &&String| {
            bytes += value.len();
            bytes <= MAX_FOUND_BYTES
        };
        let told = lock(&self.told).clone();
        let found = lock(&self.found);
        let others = found.iter().filter(|value| !told.contains(value));
        told.iter().chain(others).take(MAX_FOUND).take_while(fits).cloned().collect()
    }

    /// Takes what a stream has recognized, and hides it in both from now on.
    fn learn(&self, streams: &mut [StreamBuffer; 2], values: &[String]) {
        let mut found = lock(&self.found);
        let new: Vec<String> = values.iter().filter(|value| found.insert((*value).clone())).cloned().collect();
        if !new.is_empty() {
            streams.iter_mut().filter_map(|stream| stream.redacting.as_mut()).for_each(|stream| stream.learn(&new));
        }
    }

    /// Ends the streams: bytes held back are redacted and published, and later writes are ignored.
    pub(crate) fn finish(&self) {
        let mut written = self.written();
        match &mut *written {
            WrittenOutput::Empty => return *written = WrittenOutput::EndedEmpty,
            WrittenOutput::EndedEmpty => return,
            WrittenOutput::Streams(streams) => {
                for index in 0..streams.len() {
                    let Some(mut redacting) = streams[index].redacting.take() else { continue };
                    let rest = redacting.end();
                    self.learn(streams, &redacting.take_found());
                    streams[index].keep(&rest);
                }
            }
        }
        drop(written);
        self.wake.send_replace(());
    }

    fn written(&self) -> MutexGuard<'_, WrittenOutput> {
        lock(&self.written)
    }

    fn stream_buffer(&self) -> StreamBuffer {
        let redacting = Some(Hidden::new(self.redactor.clone()));
        StreamBuffer { shown: Vec::new(), redacting, end: VecDeque::new(), more: false }
    }
}

impl crate::Output for OutputBuffer {
    fn hide(&self, values: &[String]) {
        lock(&self.told).extend(values.iter().cloned());
        let mut written = self.written();
        if matches!(*written, WrittenOutput::Empty) {
            *written = WrittenOutput::Streams(Box::new([self.stream_buffer(), self.stream_buffer()]));
        }
        if let WrittenOutput::Streams(streams) = &mut *written {
            self.learn(streams, values);
        }
    }

    fn write(&self, stream: Stream, bytes: &[u8]) {
        if self.hides_stdout && stream == Stream::Stdout {
            return;
        }
        let Some(index) = STREAMS.iter().position(|known| *known == stream) else { return };
        let mut written = self.written();
        if matches!(*written, WrittenOutput::Empty) {
            *written = WrittenOutput::Streams(Box::new([self.stream_buffer(), self.stream_buffer()]));
        }
        let WrittenOutput::Streams(streams) = &mut *written else { return };
        let stream_buffer = &mut streams[index];
        stream_buffer.keep_tail(bytes);
        // A full buffer needs no more redaction.
        let Some(redacting) = stream_buffer.redacting.as_mut().filter(|_| stream_buffer.shown.len() < MAX_STREAM_BYTES)
        else {
            return;
        };
        let shown = redacting.push(bytes);
        let found = redacting.take_found();
        if !found.is_empty() {
            self.learn(streams, &found);
        }
        if streams[index].keep(&shown) {
            drop(written);
            self.wake.send_replace(());
        }
    }
}

/// The position of one reader, in bytes of each stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position([usize; 2]);

impl Position {
    /// The position at these offsets of standard output and standard error.
    pub(crate) fn after(stdout: i64, stderr: i64) -> Self {
        Self([stdout, stderr].map(|offset| usize::try_from(offset).unwrap_or(0)))
    }
}

/// How much output one reader of a call may still be sent. Without a limit unless it was made with one.
#[derive(Debug)]
pub(crate) struct Allowance {
    /// In bytes of text; below 0 when the last chunk was longer than what was left. `i64::MAX`: no limit.
    left: AtomicI64,
    granted: Notify,
}

impl Default for Allowance {
    fn default() -> Self {
        Self::of(i64::MAX)
    }
}

impl Allowance {
    /// Allows so many bytes of text.
    pub(crate) fn of(bytes: i64) -> Self {
        Self { left: AtomicI64::new(bytes), granted: Notify::new() }
    }

    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Ordering::Acquire) > 0
    }

    /// Takes the length of a chunk; returns whether another may be sent.
    pub(crate) fn spend(&self, length: usize) -> bool {
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        self.left.load(Ordering::Acquire) == i64::MAX || self.left.fetch_sub(length, Ordering::AcqRel) > length
    }

    /// Allows more. Returns `false`, and allows nothing, when more than `most` would be left.
    pub(crate) fn grant(&self, bytes: i64, most: i64) -> bool {
        let more = |left: i64| left.checked_add(bytes).filter(|left| *left <= most);
        let granted = self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok();
        if granted {
            self.granted.notify_one();
        }
        granted
    }

    /// Returns when more was allowed.
    pub(crate) async fn granted(&self) {
        while !self.is_left() {
            self.granted.notified().await;
        }
    }
}

impl OutputBuffer {
    /// Whether a reader at this position has not read everything that the tool wrote.
    pub(crate) fn has_more(&self, position: &Position) -> bool {
        let mut position = *position;
        self.next(&mut position, true).is_some()
    }

    /// The redacted ends of the streams; `None` if both are empty.
    pub(crate) fn tail(&self) -> Option<LastOutput> {
        let WrittenOutput::Streams(streams) = &*self.written() else { return None };
        let redactor = self.redactor.with_literals(self.found()).unwrap_or_else(|_| self.redactor.clone());
        let [(stdout, stdout_truncated), (stderr, stderr_truncated)] =
            [streams[0].tail(&redactor), streams[1].tail(&redactor)];
        let is_empty = stdout.is_empty() && stderr.is_empty();
        (!is_empty).then_some(LastOutput { stdout, stderr, stdout_truncated, stderr_truncated })
    }

    /// Notifies when there is more output.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    /// The next chunk, if there is one. Unless `all` is set, an incomplete character at the end is held back.
    pub(crate) fn next(&self, position: &mut Position, all: bool) -> Option<ToolCallOutput> {
        let WrittenOutput::Streams(streams) = &*self.written() else { return None };
        STREAMS.iter().enumerate().find_map(|(index, stream)| {
            let offset = position.0[index];
            let rest = streams[index].shown.get(offset..)?;
            let length = chunk_length(rest, all || streams[index].shown.len() == MAX_STREAM_BYTES)?;
            position.0[index] += length;
            Some(shown(*stream, offset, &rest[..length]))
        })
    }
}

/// All output leaves through this function.
fn shown(stream: Stream, offset: usize, bytes: &[u8]) -> ToolCallOutput {
    let offset = i64::try_from(offset).expect("below the bound of what is kept");
    ToolCallOutput { stream: stream.into(), offset, text: String::from_utf8_lossy(bytes).into_owned() }
}

/// The length of the next chunk: up to [`MAX_CHUNK_BYTES`], and not ending within a character whose rest is there or may come.
fn chunk_length(bytes: &[u8], complete: bool) -> Option<usize> {
    let window = &bytes[..bytes.len().min(MAX_CHUNK_BYTES)];
    let more = window.len() < bytes.len() || !complete;
    let tail = window.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    // An error without a length means that the character is cut off.
    let begun = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
    let length = window.len() - if more && begun { tail.len() } else { 0 };
    (length > 0).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output as _;

    fn all(buffer: &OutputBuffer, mut position: Position, complete: bool) -> Vec<(i64, String)> {
        std::iter::from_fn(|| buffer.next(&mut position, complete)).map(|chunk| (chunk.offset, chunk.text)).collect()
    }

    #[test]
    fn chunks_are_bounded_and_never_cut_a_character() {
        let buffer = OutputBuffer::new(&Redactor::new(), false);
        let text = "é".repeat(MAX_CHUNK_BYTES);
        buffer.write(Stream::Stdout, format!("x{text}").as_bytes());
        buffer.finish();
        let chunks = all(&buffer, Position::default(), false);
        assert!(chunks.len() >= 3 && chunks.iter().all(|(_, chunk)| chunk.len() <= MAX_CHUNK_BYTES));
        assert_eq!(chunks.iter().map(|(_, chunk)| chunk.as_str()).collect::<String>(), format!("x{text}"));
        let mut end = 0;
        for (offset, chunk) in &chunks {
            assert_eq!(*offset, end);
            end += i64::try_from(chunk.len()).unwrap();
        }
    }

    #[test]
    fn an_incomplete_character_is_held_back_until_the_end() {
        let buffer = OutputBuffer::new(&Redactor::new(), false);
        buffer.write(Stream::Stderr, b"");
        let stderr = |bytes: &[u8]| match &mut *buffer.written() {
            WrittenOutput::Streams(streams) => streams[1].keep(bytes),
            other => panic!("{other:?}"),
        };
        stderr(b"a\xe2\x82");
        assert_eq!(all(&buffer, Position::default(), false), [(0, "a".to_owned())]);
        assert_eq!(all(&buffer, Position::default(), true), [(0, "a\u{fffd}".to_owned())], "the rest never comes");
        stderr(b"\xac!");
        assert_eq!(all(&buffer, Position::after(0, 1), false), [(1, "€!".to_owned())]);
    }

    /// S2-FR-077: what one stream shows as a secret is hidden in both from then on, and in the ends that a failure shows, those before it too.
    #[test]
    fn what_is_recognized_once_is_hidden_in_both_streams() {
        let buffer = OutputBuffer::new(&Redactor::new(), false);
        let value = "waldfee7moos";
        buffer.write(Stream::Stderr, format!("early {value}\n").as_bytes());
        buffer.write(Stream::Stdout, format!("API_TOKEN={value}\n").as_bytes());
        buffer.write(Stream::Stderr, format!("late {value}\n").as_bytes());
        buffer.finish();
        let shown: String = all(&buffer, Position::default(), true).into_iter().map(|(_, text)| text).collect();
        assert_eq!(shown, format!("API_TOKEN=[REDACTED]\nearly {value}\nlate [REDACTED]\n"), "what was shown is shown");
        let last = buffer.tail().unwrap();
        assert_eq!(last.stderr, "early [REDACTED]\nlate [REDACTED]\n");
        assert_eq!(buffer.found(), [value]);
    }

    #[test]
    fn standard_output_that_is_a_marked_result_is_not_shown() {
        let buffer = OutputBuffer::new(&Redactor::new(), true);
        buffer.write(Stream::Stdout, b"{\"session\": \"hush\"}\n");
        buffer.write(Stream::Stderr, b"working\n");
        buffer.finish();
        assert_eq!(all(&buffer, Position::default(), true), [(0, "working\n".to_owned())]);
        assert_eq!(buffer.tail().unwrap().stdout, "");
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let buffer = OutputBuffer::new(&Redactor::new(), false);
        buffer.write(Stream::Stdout, b"\xff\xfeok");
        buffer.finish();
        assert_eq!(all(&buffer, Position::default(), false), [(0, "\u{fffd}\u{fffd}ok".to_owned())]);
        assert_eq!(all(&buffer, Position::after(99, 99), false), [], "an offset beyond the end returns nothing");
        assert_eq!(all(&buffer, Position::after(-5, 0), false).len(), 1);
    }

    /// S2-FR-077a: a line is published when it is complete, because a secret may arrive in parts.
    #[test]
    fn a_secret_written_in_parts_is_redacted() {
        let buffer = OutputBuffer::new(&Redactor::new(), false);
        buffer.write(Stream::Stdout, b"done\ntoken = ghp_Zx81mQ7Lr0aVt5KcNw");
        assert_eq!(all(&buffer, Position::default(), false), [(0, "done\n".to_owned())]);
        buffer.write(Stream::Stdout, b"3Yb9Ud2Ef6Hg4Js1Pk");
        assert_eq!(all(&buffer, Position::after(5, 0), false), [], "the line has not ended");
        buffer.finish();
        assert_eq!(all(&buffer, Position::after(5, 0), true), [(5, "token = [REDACTED]".to_owned())]);
        buffer.write(Stream::Stdout, b"late\n");
        assert_eq!(all(&buffer, Position::after(23, 0), true), [], "the tool has ended");
    }

    #[test]
    fn a_failure_shows_the_ends_of_both_streams() {
        let buffer = OutputBuffer::new(&Redactor::new(), false);
        assert_eq!(buffer.tail(), None);
        buffer.write(Stream::Stdout, b"one\ntwo\n");
        let last = buffer.tail().unwrap();
        assert_eq!((last.stdout.as_str(), last.stdout_truncated, last.stderr.as_str()), ("one\ntwo\n", false, ""));
        for n in 0..100_000 {
            buffer.write(Stream::Stderr, format!("line {n} é\n").as_bytes());
        }
        let last = buffer.tail().unwrap();
        assert!(last.stderr.starts_with("line 9") && last.stderr.ends_with("line 99999 é\n"), "{}", last.stderr);
        assert!(
            last.stderr.len() <= MAX_TAIL_BYTES && last.stderr.len() > MAX_TAIL_BYTES - 20 && last.stderr_truncated
        );
    }

    /// S2-FR-077a
    #[test]
    fn a_failure_shows_no_secret_that_begins_before_its_tail() {
        let buffer = OutputBuffer::new(&Redactor::new(), false);
        let pem = |what: &str| format!("-----{what} RSA PRIVATE KEY-----\n");
        let body = "MIIEowIBAAKCAQEAn0\n".repeat(400);
        buffer.write(Stream::Stdout, [&pem("BEGIN"), &*body, &pem("END"), "failed\n"].concat().as_bytes());
        let shown = [&pem("BEGIN"), "[REDACTED]\n", &pem("END"), "failed\n"].concat();
        assert_eq!(buffer.tail().unwrap().stdout, shown);
        buffer.write(
            Stream::Stderr,
            format!("{}token = ghp_Zx81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk", "x".repeat(5000)).as_bytes(),
        );
        let shown = buffer.tail().unwrap().stderr;
        assert!(!shown.contains("Js1Pk"), "{shown}");
    }

    #[test]
    fn the_buffer_is_bounded() {
        let buffer = OutputBuffer::new(&Redactor::new(), false);
        for _ in 0..64 {
            buffer.write(Stream::Stdout, &[b'x'; 64 << 10]);
        }
        let sent: usize = all(&buffer, Position::default(), true).iter().map(|(_, chunk)| chunk.len()).sum();
        assert_eq!(sent, MAX_STREAM_BYTES);
    }
}
