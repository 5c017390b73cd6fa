//! What a tool says while it works: kept from its first byte, so that whoever comes later, or again, hears it from where it left off.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use belay_proto::v1::{LastOutput, ToolCallOutput, tool_call_output::Stream};
use belay_redaction::{Redactor, Stream as Hidden};
use tokio::sync::watch;

/// How much of each stream is kept, in bytes. What comes after that is in the tool's own result, if anywhere.
const KEPT: usize = 1 << 20;
/// The longest piece that is sent, in bytes of the stream.
const PIECE: usize = 32 << 10;

/// How much of the end of each stream a failure shows, in bytes.
const LAST: usize = 4 << 10;
/// How much of the end of each stream is kept for that, in bytes. It is redacted before it is cut to [`LAST`], so that a secret of several
/// lines that begins before the cut is still recognised.
const END: usize = 64 << 10;

const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

/// The output of one call, without its secrets. Writing never waits for a reader.
#[derive(Debug)]
pub(crate) struct Kept {
    said: Mutex<Said>,
    redactor: Redactor,
    wake: watch::Sender<()>,
}

/// How far the tool is.
#[derive(Debug)]
enum Said {
    /// It has said nothing: most never do.
    Nothing,
    Something(Box<[Head; 2]>),
    /// It ended without a word.
    Silent,
}

/// One stream: what is shown of it, and what comes next as soon as it is known to be no part of a secret.
#[derive(Debug)]
struct Head {
    shown: Vec<u8>,
    coming: Option<Hidden>,
    /// The end of what was written, secrets and all; at most [`END`] bytes.
    end: VecDeque<u8>,
    /// Whether more was written before that.
    more: bool,
}

impl Head {
    fn keep(&mut self, bytes: &[u8]) -> bool {
        let room = KEPT.saturating_sub(self.shown.len()).min(bytes.len());
        self.shown.extend_from_slice(&bytes[..room]);
        room > 0
    }

    fn keep_end(&mut self, bytes: &[u8]) {
        let (before, last) = bytes.split_at(bytes.len().saturating_sub(END));
        self.end.extend(last);
        let over = self.end.len().saturating_sub(END);
        self.end.drain(..over);
        self.more |= over + before.len() > 0;
    }

    /// The end as a failure shows it, and whether more was written before that.
    fn last(&self, redactor: &Redactor) -> (String, bool) {
        let bytes: Vec<u8> = self.end.iter().copied().collect();
        let text = redactor.redact_text(&String::from_utf8_lossy(&bytes)).text;
        let cut = text.ceil_char_boundary(text.len().saturating_sub(LAST));
        if cut == 0 {
            return (text, self.more);
        }
        // From the beginning of a line where there is one, else of a word: a part of a value may not be recognised as the value.
        let rest = &text[cut..];
        let begin = match text[..cut].ends_with('\n') {
            true => 0,
            false => rest.find('\n').or_else(|| rest.find(char::is_whitespace)).map_or(0, |at| at + 1),
        };
        (rest.get(begin..).unwrap_or_default().to_owned(), true)
    }
}

impl Kept {
    /// Nothing has been said yet.
    pub(crate) fn new(redactor: &Redactor) -> Self {
        Self { said: Mutex::new(Said::Nothing), redactor: redactor.clone(), wake: watch::Sender::new(()) }
    }

    /// The tool has ended: what was held back comes out, and nothing comes any more.
    pub(crate) fn finish(&self) {
        let mut said = self.said();
        match &mut *said {
            Said::Nothing => return *said = Said::Silent,
            Said::Silent => return,
            Said::Something(heads) => {
                for head in heads.iter_mut() {
                    let rest = head.coming.take().map(Hidden::finish);
                    head.keep(&rest.unwrap_or_default());
                }
            }
        }
        drop(said);
        self.wake.send_replace(());
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn head(&self) -> Head {
        let coming = Some(Hidden::new(self.redactor.clone()));
        Head { shown: Vec::new(), coming, end: VecDeque::new(), more: false }
    }
}

impl crate::Output for Kept {
    fn write(&self, stream: Stream, bytes: &[u8]) {
        let Some(index) = STREAMS.iter().position(|known| *known == stream) else { return };
        let mut said = self.said();
        if matches!(*said, Said::Nothing) {
            *said = Said::Something(Box::new([self.head(), self.head()]));
        }
        let Said::Something(heads) = &mut *said else { return };
        let head = &mut heads[index];
        head.keep_end(bytes);
        // When enough is kept, nothing more is looked at.
        let Some(coming) = head.coming.as_mut().filter(|_| head.shown.len() < KEPT) else { return };
        let shown = coming.push(bytes);
        if head.keep(&shown) {
            drop(said);
            self.wake.send_replace(());
        }
    }
}

/// How far one reader has come, in bytes of each stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Position([usize; 2]);

impl Position {
    /// What comes after these offsets of the standard output and of the standard error.
    pub(crate) fn after(stdout: i64, stderr: i64) -> Self {
        Self([stdout, stderr].map(|offset| usize::try_from(offset).unwrap_or(0)))
    }
}

impl Kept {
    /// The ends of what was written, without secrets; `None` when nothing was.
    pub(crate) fn last(&self) -> Option<LastOutput> {
        let Said::Something(heads) = &*self.said() else { return None };
        let [(stdout, stdout_truncated), (stderr, stderr_truncated)] =
            [heads[0].last(&self.redactor), heads[1].last(&self.redactor)];
        let is_empty = stdout.is_empty() && stderr.is_empty();
        (!is_empty).then_some(LastOutput { stdout, stderr, stdout_truncated, stderr_truncated })
    }

    /// Wakes whoever waits here whenever there is more.
    pub(crate) fn listen(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    /// The next piece, if there is one. While the call goes on (`all` is false), a character of which a part is missing is waited for.
    pub(crate) fn next(&self, position: &mut Position, all: bool) -> Option<ToolCallOutput> {
        let Said::Something(heads) = &*self.said() else { return None };
        STREAMS.iter().enumerate().find_map(|(index, stream)| {
            let offset = position.0[index];
            let rest = heads[index].shown.get(offset..)?;
            let length = piece(rest, all || heads[index].shown.len() == KEPT)?;
            position.0[index] += length;
            Some(shown(*stream, offset, &rest[..length]))
        })
    }
}

/// The one place through which output passes on its way out.
fn shown(stream: Stream, offset: usize, bytes: &[u8]) -> ToolCallOutput {
    let offset = i64::try_from(offset).expect("below the bound of what is kept");
    ToolCallOutput { stream: stream.into(), offset, text: String::from_utf8_lossy(bytes).into_owned() }
}

/// How long the next piece is: up to [`PIECE`], and not ending within a character whose rest is there or may come.
fn piece(bytes: &[u8], complete: bool) -> Option<usize> {
    let window = &bytes[..bytes.len().min(PIECE)];
    let more = window.len() < bytes.len() || !complete;
    let tail = window.utf8_chunks().last().map_or(&[][..], |chunk| chunk.invalid());
    // An error without a length is a character that only lacks its end.
    let begun = std::str::from_utf8(tail).is_err_and(|error| error.error_len().is_none());
    let length = window.len() - if more && begun { tail.len() } else { 0 };
    (length > 0).then_some(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Output as _;

    fn all(kept: &Kept, mut position: Position, complete: bool) -> Vec<(i64, String)> {
        std::iter::from_fn(|| kept.next(&mut position, complete)).map(|piece| (piece.offset, piece.text)).collect()
    }

    #[test]
    fn pieces_are_bounded_and_never_cut_a_character() {
        let kept = Kept::new(&Redactor::new());
        let text = "é".repeat(PIECE);
        kept.write(Stream::Stdout, format!("x{text}").as_bytes());
        kept.finish();
        let pieces = all(&kept, Position::default(), false);
        assert!(pieces.len() >= 3 && pieces.iter().all(|(_, piece)| piece.len() <= PIECE));
        assert_eq!(pieces.iter().map(|(_, piece)| piece.as_str()).collect::<String>(), format!("x{text}"));
        let mut end = 0;
        for (offset, piece) in &pieces {
            assert_eq!(*offset, end);
            end += i64::try_from(piece.len()).unwrap();
        }
    }

    #[test]
    fn a_character_of_which_a_part_is_missing_is_waited_for_until_the_end() {
        let kept = Kept::new(&Redactor::new());
        kept.write(Stream::Stderr, b"");
        let stderr = |bytes: &[u8]| match &mut *kept.said() {
            Said::Something(heads) => heads[1].keep(bytes),
            other => panic!("{other:?}"),
        };
        stderr(b"a\xe2\x82");
        assert_eq!(all(&kept, Position::default(), false), [(0, "a".to_owned())]);
        assert_eq!(all(&kept, Position::default(), true), [(0, "a\u{fffd}".to_owned())], "it never comes");
        stderr(b"\xac!");
        assert_eq!(all(&kept, Position::after(0, 1), false), [(1, "€!".to_owned())]);
    }

    #[test]
    fn what_is_no_text_is_shown_as_far_as_it_is() {
        let kept = Kept::new(&Redactor::new());
        kept.write(Stream::Stdout, b"\xff\xfeok");
        kept.finish();
        assert_eq!(all(&kept, Position::default(), false), [(0, "\u{fffd}\u{fffd}ok".to_owned())]);
        assert_eq!(all(&kept, Position::after(99, 99), false), [], "an offset above the end waits for nothing");
        assert_eq!(all(&kept, Position::after(-5, 0), false).len(), 1);
    }

    /// S2-FR-077a: a line is shown when it has ended, since a secret may come in pieces.
    #[test]
    fn a_secret_that_comes_in_pieces_is_hidden() {
        let kept = Kept::new(&Redactor::new());
        kept.write(Stream::Stdout, b"done\ntoken = ghp_Zx81mQ7Lr0aVt5KcNw");
        assert_eq!(all(&kept, Position::default(), false), [(0, "done\n".to_owned())]);
        kept.write(Stream::Stdout, b"3Yb9Ud2Ef6Hg4Js1Pk");
        assert_eq!(all(&kept, Position::after(5, 0), false), [], "the line has not ended");
        kept.finish();
        assert_eq!(all(&kept, Position::after(5, 0), true), [(5, "token = [REDACTED]".to_owned())]);
        kept.write(Stream::Stdout, b"late\n");
        assert_eq!(all(&kept, Position::after(23, 0), true), [], "the tool has ended");
    }

    #[test]
    fn a_failure_shows_the_ends_of_both_streams() {
        let kept = Kept::new(&Redactor::new());
        assert_eq!(kept.last(), None);
        kept.write(Stream::Stdout, b"one\ntwo\n");
        let last = kept.last().unwrap();
        assert_eq!((last.stdout.as_str(), last.stdout_truncated, last.stderr.as_str()), ("one\ntwo\n", false, ""));
        for n in 0..100_000 {
            kept.write(Stream::Stderr, format!("line {n} é\n").as_bytes());
        }
        let last = kept.last().unwrap();
        assert!(last.stderr.starts_with("line 9") && last.stderr.ends_with("line 99999 é\n"), "{}", last.stderr);
        assert!(last.stderr.len() <= LAST && last.stderr.len() > LAST - 20 && last.stderr_truncated);
    }

    /// S2-FR-077a
    #[test]
    fn a_failure_shows_no_secret_that_begins_before_what_it_shows() {
        let kept = Kept::new(&Redactor::new());
        let pem = |what: &str| format!("-----{what} RSA PRIVATE KEY-----\n");
        let body = "MIIEowIBAAKCAQEAn0\n".repeat(400);
        kept.write(Stream::Stdout, [&pem("BEGIN"), &*body, &pem("END"), "failed\n"].concat().as_bytes());
        let shown = [&pem("BEGIN"), "[REDACTED]\n", &pem("END"), "failed\n"].concat();
        assert_eq!(kept.last().unwrap().stdout, shown);
        kept.write(
            Stream::Stderr,
            format!("{}token = ghp_Zx81mQ7Lr0aVt5KcNw3Yb9Ud2Ef6Hg4Js1Pk", "x".repeat(5000)).as_bytes(),
        );
        let shown = kept.last().unwrap().stderr;
        assert!(!shown.contains("Js1Pk"), "{shown}");
    }

    #[test]
    fn a_flood_fills_no_memory() {
        let kept = Kept::new(&Redactor::new());
        for _ in 0..64 {
            kept.write(Stream::Stdout, &[b'x'; 64 << 10]);
        }
        let sent: usize = all(&kept, Position::default(), true).iter().map(|(_, piece)| piece.len()).sum();
        assert_eq!(sent, KEPT);
    }
}
