//! Bounds on the lines of a server, each of them and all together.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

/// The longest line of a server, in bytes: a message, which may have a file in it.
pub const MAX_LINE: usize = 4 << 20;

/// The most bytes that a server may write in a session.
pub const MAX_BYTES: usize = 64 << 20;

/// The most lines that a server may write in a session: each is a message that the client keeps until it is dealt with.
pub const MAX_LINES: usize = 100_000;

/// A bound that a server has exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bound {
    Line = 1,
    Session = 2,
}

/// The bound that a server has exceeded, if any.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exceeded(Arc<AtomicU8>);

impl Exceeded {
    pub(crate) fn get(&self) -> Option<Bound> {
        match self.0.load(Ordering::Acquire) {
            0 => None,
            1 => Some(Bound::Line),
            _ => Some(Bound::Session),
        }
    }
}

/// Reads until a bound is exceeded: then it ends, because the message that is waited for may be the one that cannot be taken.
pub(crate) struct BoundedLines<R> {
    inner: R,
    /// The length of the line so far, the number of lines, and of all bytes.
    line: usize,
    lines: usize,
    bytes: usize,
    exceeded: Exceeded,
}

impl<R> BoundedLines<R> {
    pub(crate) fn new(inner: R) -> (Self, Exceeded) {
        let exceeded = Exceeded::default();
        (Self { inner, line: 0, lines: 0, bytes: 0, exceeded: exceeded.clone() }, exceeded)
    }

    /// Takes a byte into account.
    fn count(&mut self, byte: u8) -> Option<Bound> {
        self.bytes += 1;
        if byte == b'\n' {
            (self.line, self.lines) = (0, self.lines + 1);
        } else {
            self.line += 1;
        }
        match () {
            () if self.line > MAX_LINE => Some(Bound::Line),
            () if self.bytes > MAX_BYTES || self.lines > MAX_LINES => Some(Bound::Session),
            () => None,
        }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.exceeded.get().is_some() {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        for at in before..buf.filled().len() {
            if let Some(bound) = self.count(buf.filled()[at]) {
                self.exceeded.0.store(bound as u8, Ordering::Release);
                buf.set_filled(at);
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    async fn read(text: &[u8]) -> (Vec<u8>, Option<Bound>) {
        let (mut lines, exceeded) = BoundedLines::new(text);
        let mut read = Vec::new();
        lines.read_to_end(&mut read).await.unwrap();
        (read, exceeded.get())
    }

    #[tokio::test]
    async fn lines_pass_until_one_is_too_long() {
        let longest = [vec![b'a'; MAX_LINE], b"\n".to_vec()].concat();
        let text = [longest.clone(), longest.clone(), vec![b'a'; MAX_LINE + 1], b"\nnever\n".to_vec()].concat();
        let (passed, exceeded) = read(&text).await;
        assert!(exceeded == Some(Bound::Line) && passed.starts_with(&[longest.clone(), longest].concat()));
        assert!(!passed.ends_with(b"\n"));
        assert_eq!(read(b"a\nb").await, (b"a\nb".to_vec(), None));
    }

    #[tokio::test]
    async fn a_session_is_bounded() {
        let lines = "\n".repeat(MAX_LINES + 1);
        assert_eq!(read(lines.as_bytes()).await.1, Some(Bound::Session));
        assert_eq!(read(&lines.as_bytes()[1..]).await.1, None);
        let line = [vec![b'a'; MAX_LINE - 1], b"\n".to_vec()].concat();
        let most = line.repeat(MAX_BYTES / line.len());
        assert_eq!(read(&most).await.1, None);
        assert_eq!(read(&[most, b"a".to_vec()].concat()).await.1, Some(Bound::Session));
    }
}
