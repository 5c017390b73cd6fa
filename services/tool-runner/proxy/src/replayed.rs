//! Streams around a connection: with bytes that were read already, and with bytes that are counted.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use crate::splice::{Direction, Meter};

/// A connection whose first bytes were read already.
pub(crate) struct ReplayedStream<S> {
    bytes: Vec<u8>,
    at: usize,
    stream: S,
}

impl<S> ReplayedStream<S> {
    /// A stream of which these bytes were read.
    pub(crate) fn new(bytes: Vec<u8>, stream: S) -> Self {
        Self { bytes, at: 0, stream }
    }

    /// The stream, and those of its bytes that were read and not passed on.
    pub(crate) fn into_parts(mut self) -> (Vec<u8>, S) {
        (self.bytes.split_off(self.at.min(self.bytes.len())), self.stream)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReplayedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let rest = this.bytes.get(this.at..).unwrap_or_default();
        if rest.is_empty() {
            this.bytes = Vec::new();
            this.at = 0;
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        }
        let (now, _) = rest.split_at(rest.len().min(buffer.remaining()));
        buffer.put_slice(now);
        this.at += now.len();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReplayedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The connection to the host, whose bytes are counted.
pub(crate) struct MeteredStream {
    pub(crate) stream: TcpStream,
    pub(crate) meter: Meter,
}

impl AsyncRead for MeteredStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        Poll::Ready(self.meter.count(Direction::Received, buffer.filled().len() - before))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
        Poll::Ready(self.meter.count(Direction::Sent, written).map(|()| written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
