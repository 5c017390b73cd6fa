//! Watches the messages of a session as they pass: each operation arrives, and is answered.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use belay_proto::runner_v1::{SessionRequest, SessionResponse, session_operation::Operation, session_reply::Reply};
use http_body::{Body as HttpBody, Frame};
use prost::Message as _;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;

use crate::machine::{self, Moment};
use crate::trace;

/// The methods of the operations without an end, by their ids.
#[derive(Debug, Clone, Default)]
pub(super) struct Operations(Arc<Mutex<HashMap<i64, &'static str>>>);

impl Operations {
    fn open(&self) -> MutexGuard<'_, HashMap<i64, &'static str>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body whose messages are watched. It yields nothing more once its process was killed.
pub(super) struct WatchedBody {
    inner: Body,
    operations: Operations,
    watch: fn(&Operations, &[u8]) -> bool,
    /// The part of a message that has arrived.
    begun: Vec<u8>,
    killed: bool,
}

impl WatchedBody {
    pub(super) fn requests(inner: Body, operations: Operations) -> Self {
        Self::new(inner, operations, arrived)
    }

    pub(super) fn responses(inner: Body, operations: Operations) -> Self {
        Self::new(inner, operations, answered)
    }

    fn new(inner: Body, operations: Operations, watch: fn(&Operations, &[u8]) -> bool) -> Self {
        Self { inner, operations, watch, begun: Vec::new(), killed: false }
    }

    /// Looks at the messages that are complete with these bytes.
    fn look(&mut self, bytes: &[u8]) {
        const HEADER: usize = 5;
        self.begun.extend_from_slice(bytes);
        while let Some(length) = self.begun.get(1..HEADER) {
            let end = HEADER + u32::from_be_bytes(length.try_into().expect("four bytes")) as usize;
            let Some(message) = self.begun.get(HEADER..end) else { return };
            self.killed |= (self.watch)(&self.operations, message);
            self.begun.drain(..end);
        }
    }
}

fn method(operation: &Operation) -> &'static str {
    match operation {
        Operation::CallTool(_) => "CallTool",
        Operation::CancelToolCall(_) => "CancelToolCall",
        Operation::CommitEffect(_) => "CommitEffect",
        Operation::DiscardEffect(_) => "DiscardEffect",
        Operation::AcknowledgeToolCalls(_) => "AcknowledgeToolCalls",
    }
}

/// Whether this process is killed at the arrival of an operation.
fn arrived(operations: &Operations, message: &[u8]) -> bool {
    let message = SessionRequest::decode(message).expect("the executor encodes it");
    let mut killed = false;
    for operation in &message.operations {
        let Some(method) = operation.operation.as_ref().map(method) else { continue };
        trace::count("operations in sessions");
        operations.open().insert(operation.id, method);
        killed |= machine::reach(method, Moment::Arrived);
    }
    killed
}

/// Whether this process is killed at the answer to an operation.
fn answered(operations: &Operations, message: &[u8]) -> bool {
    let message = SessionResponse::decode(message).expect("the runner encodes it");
    let is_end = |reply: &Reply| !matches!(reply, Reply::Started(_) | Reply::Output(_) | Reply::Waiting(_));
    let ends = message.replies.iter().filter(|reply| reply.reply.as_ref().is_some_and(is_end));
    let mut killed = false;
    for method in ends.filter_map(|reply| operations.open().remove(&reply.operation)) {
        killed |= machine::reach(method, Moment::Answered);
    }
    killed
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = &mut *self;
        if this.killed {
            return Poll::Pending;
        }
        let frame = ready!(Pin::new(&mut this.inner).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            this.look(bytes);
        }
        match this.killed {
            true => Poll::Pending,
            false => Poll::Ready(frame),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}
