//! The lines of a server, each of them bounded.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

/// The longest line of a server, in bytes: a message, which may have a file in it.
pub const MAX_LINE: usize = 4 << 20;

/// Whether a server has written a line that is too long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Overlong(Arc<AtomicBool>);

impl Overlong {
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Reads until a line is too long: then it ends, because the message that is waited for may be the one that cannot be taken.
pub(crate) struct BoundedLines<R> {
    inner: R,
    /// The length of the line so far.
    line: usize,
    overlong: Overlong,
}

impl<R> BoundedLines<R> {
    pub(crate) fn new(inner: R) -> (Self, Overlong) {
        let overlong = Overlong::default();
        (Self { inner, line: 0, overlong: overlong.clone() }, overlong)
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.overlong.is_set() {
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let mut line = self.line;
        let too_long = buf.filled()[before..].iter().position(|byte| {
            line = if *byte == b'\n' { 0 } else { line + 1 };
            line > MAX_LINE
        });
        self.line = line;
        if let Some(length) = too_long {
            self.overlong.0.store(true, Ordering::Release);
            buf.set_filled(before + length);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn lines_pass_until_one_is_too_long() {
        let longest = [vec![b'a'; MAX_LINE], b"\n".to_vec()].concat();
        let text = [longest.clone(), longest.clone(), vec![b'a'; MAX_LINE + 1], b"\nnever\n".to_vec()].concat();
        let (mut lines, overlong) = BoundedLines::new(&text[..]);
        let mut read = Vec::new();
        lines.read_to_end(&mut read).await.unwrap();
        assert!(overlong.is_set() && read.starts_with(&[longest.clone(), longest].concat()));
        assert!(!read.ends_with(b"\n"));
        let (mut lines, overlong) = BoundedLines::new(&b"a\nb"[..]);
        let mut read = String::new();
        lines.read_to_string(&mut read).await.unwrap();
        assert!(!overlong.is_set() && read == "a\nb");
    }
}
