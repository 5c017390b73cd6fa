//! Bodies that are looked through while they pass.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::body::{Body, Bytes, Frame, SizeHint};

/// An error of a body.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What looks through bytes that arrive in pieces. What goes in comes out with the same length.
pub(crate) trait Filter {
    /// Adds bytes, and returns those that pass now.
    fn push(&mut self, piece: &[u8]) -> Result<Vec<u8>, BoxError>;

    /// Ends the bytes, and returns the rest.
    fn finish(&mut self) -> Vec<u8>;

    /// The number of bytes that have not passed yet.
    fn held(&self) -> usize;
}

/// So many bytes say too little of a value to be held: the last bytes of an answer that does not end would wait for others.
const FEW: usize = 4;

/// Bytes that may continue as something that is looked for.
#[derive(Default)]
pub(crate) struct Window {
    text: Vec<u8>,
    /// How many of them have passed already.
    passed: usize,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // What is held may be the beginning of a value.
        f.debug_struct("Window").field("passed", &self.passed).finish_non_exhaustive()
    }
}

impl Window {
    /// Adds bytes, and returns all that are there.
    pub(crate) fn add(&mut self, piece: &[u8]) -> &mut Vec<u8> {
        self.text.extend_from_slice(piece);
        &mut self.text
    }

    /// Removes the bytes up to `end`, and returns those that have not passed. What is left passes as well if it is little.
    pub(crate) fn release(&mut self, end: usize) -> Vec<u8> {
        let rest = self.text.split_off(end);
        let mut passes = std::mem::replace(&mut self.text, rest);
        passes.drain(..self.passed.min(end));
        self.passed = self.passed.saturating_sub(end);
        if self.text.len() < FEW {
            passes.extend_from_slice(self.text.get(self.passed..).unwrap_or_default());
            self.passed = self.text.len();
        }
        passes
    }

    /// The number of bytes that have not passed.
    pub(crate) fn held(&self) -> usize {
        self.text.len() - self.passed
    }
}

/// A body behind a filter, without trailers.
pub(crate) struct FilteredBody<B, F> {
    inner: B,
    filter: F,
    is_over: bool,
}

impl<B, F> FilteredBody<B, F> {
    pub(crate) fn new(inner: B, filter: F) -> Self {
        Self { inner, filter, is_over: false }
    }
}

impl<B, F> Body for FilteredBody<B, F>
where
    B: Body<Data = Bytes, Error: Into<BoxError>> + Unpin,
    F: Filter + Unpin,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while !self.is_over {
            let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(cx)) else {
                self.is_over = true;
                let rest = self.filter.finish();
                return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest.into()))));
            };
            let Ok(piece) = frame.map_err(Into::into)?.into_data() else { continue };
            let passes = self.filter.push(&piece)?;
            if !passes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(passes.into()))));
            }
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream() && self.filter.held() == 0
    }

    fn size_hint(&self) -> SizeHint {
        let (held, inner) = (self.filter.held() as u64, self.inner.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held);
        }
        hint
    }
}
