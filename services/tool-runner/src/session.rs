//! The rules of a session, without its stream: what an executor may send when, and which replies go into the next message.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use belay_proto::{
    contract::REVISION,
    runner_v1::{
        OutputCredit, SessionHello, SessionOperation, SessionRefusal, SessionReply, SessionResponse, StorePositions,
        session_reply::Reply,
    },
    session::{MAX_OPEN, ReceivedOperation, ReceivedRequest},
};
use belay_reasons as reasons;
use belay_service_kit::{contract, host::MAX_MESSAGE_BYTES, status};
use futures::stream::AbortHandle;
use prost::Message as _;
use tonic::{Code, Status};

use crate::output::Allowance;

/// The largest output window, in bytes of text.
pub(crate) const MAX_OUTPUT_WINDOW: i64 = 1 << 20;
/// A message is sent when it has this many bytes; one reply alone may have more.
const FULL_MESSAGE_BYTES: usize = 256 << 10;
/// The most that a message adds to a reply that it has alone.
const FRAME_BYTES: usize = 2 << 10;
/// The delay before an executor sends an operation again that was one too many.
const RETRY_AFTER: std::time::Duration = std::time::Duration::from_secs(1);

/// The executor's hello and operations, and the replies that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The executor's hello.
    hello: Option<SessionHello>,
    /// The highest id of an operation.
    highest: i64,
    /// Operations without an end.
    open: HashMap<i64, OpenOperation>,
    /// Ends and refusals to be sent.
    ends: VecDeque<(SessionReply, usize)>,
    ends_bytes: usize,
    /// Everything else to be sent.
    progress: VecDeque<(SessionReply, usize)>,
    progress_bytes: usize,
}

#[derive(Debug)]
struct OpenOperation {
    allowance: Arc<Allowance>,
    /// Stops following it; `None` before it has begun.
    abort: Option<AbortHandle>,
}

/// The content of a message that is to be acted on.
#[derive(Debug, Default)]
pub(crate) struct SessionInput {
    /// It is the first.
    pub(crate) is_first: bool,
    pub(crate) stores: Option<StorePositions>,
    /// Operations to be carried out, in this order.
    pub(crate) operations: Vec<SessionOperation>,
}

impl Session {
    /// Takes a message. What only concerns one operation is answered; what breaks the rules is an error, which ends the session.
    pub(crate) fn receive(&mut self, message: ReceivedRequest) -> Result<SessionInput, Status> {
        let ReceivedRequest { hello, stores, operations, credits, forgotten, refused } = message;
        let revision = hello.as_ref().or(self.hello.as_ref()).map(|hello| hello.contract_revision);
        let revision = revision.and_then(|revision| u32::try_from(revision).ok()).filter(|revision| *revision > 0);
        if let Some(refused) = refused {
            return Err(contract::explain(&refused, revision));
        }
        let is_first = self.hello.is_none();
        match (is_first, hello) {
            (true, Some(hello)) => {
                if !(1..=MAX_OUTPUT_WINDOW).contains(&hello.output_window) {
                    let message = format!("must be between 1 and {MAX_OUTPUT_WINDOW}");
                    return Err(status::invalid("hello.output_window", message).into());
                }
                self.hello = Some(hello);
            }
            (true, None) => return Err(status::invalid("hello", "the first message of a session must have it").into()),
            (false, Some(_)) => return Err(status::invalid("hello", "only the first message may have it").into()),
            (false, None) => {}
        }
        for OutputCredit { operation, bytes } in credits {
            self.credit(operation, bytes)?;
        }
        for id in forgotten {
            if let Some(abort) = self.open.remove(&id).and_then(|open| open.abort) {
                abort.abort();
            }
        }
        let mut accepted = Vec::with_capacity(operations.len());
        for operation in operations {
            let id = match &operation {
                ReceivedOperation::Known(operation) => operation.id,
                ReceivedOperation::Refused { id, .. } => *id,
            };
            if id < 1 || self.open.contains_key(&id) {
                let message = format!("{id} is below 1, or the id of an operation without an end");
                return Err(status::invalid("operations.id", message).into());
            }
            self.highest = self.highest.max(id);
            match operation {
                ReceivedOperation::Refused { refused, .. } => self.refuse(id, &contract::explain(&refused, revision)),
                ReceivedOperation::Known(_) if self.open.len() >= MAX_OPEN => self.refuse(id, &too_many()),
                ReceivedOperation::Known(operation) => {
                    let window = self.hello.as_ref().map_or(0, |hello| hello.output_window);
                    self.open.insert(id, OpenOperation { allowance: Arc::new(Allowance::of(window)), abort: None });
                    accepted.push(*operation);
                }
            }
        }
        Ok(SessionInput { is_first, stores, operations: accepted })
    }

    fn credit(&self, operation: i64, bytes: i64) -> Result<(), Status> {
        if bytes < 1 {
            return Err(status::invalid("credits.bytes", "must be at least 1").into());
        }
        if operation < 1 || operation > self.highest {
            let message = format!("there was no operation {operation} in this session");
            return Err(status::invalid("credits.operation", message).into());
        }
        match self.open.get(&operation) {
            Some(open) if !open.allowance.grant(bytes, MAX_OUTPUT_WINDOW) => {
                let message = format!("operation {operation} would have more than {MAX_OUTPUT_WINDOW} bytes left");
                Err(status::invalid("credits.bytes", message).into())
            }
            Some(_) | None => Ok(()),
        }
    }

    /// How much output of an operation may be sent.
    pub(crate) fn allowance(&self, id: i64) -> Arc<Allowance> {
        self.open.get(&id).map_or_else(|| Arc::new(Allowance::of(0)), |open| Arc::clone(&open.allowance))
    }

    /// An operation has begun and has no end yet. `abort` stops following it.
    pub(crate) fn follow(&mut self, id: i64, abort: AbortHandle) {
        if let Some(open) = self.open.get_mut(&id) {
            open.abort = Some(abort);
        }
    }

    /// Adds a reply; a reply that is an end closes its operation.
    pub(crate) fn reply(&mut self, operation: i64, reply: Reply) {
        let is_end = matches!(reply, Reply::Held(_) | Reply::Result(_) | Reply::Refused(_) | Reply::Acknowledged(_));
        let reply = SessionReply { operation, reply: Some(reply) };
        let bytes = reply.encoded_len();
        if bytes > MAX_MESSAGE_BYTES - FRAME_BYTES {
            let limit = MAX_MESSAGE_BYTES - FRAME_BYTES;
            // As tonic says it of a message that is too large for its method.
            let message = format!("the reply has {bytes} bytes and the limit is {limit}");
            return self.refuse(operation, &Status::out_of_range(message));
        }
        if is_end {
            self.open.remove(&operation);
        }
        // An end does not overtake the output of its own call.
        if is_end && !self.progress.iter().any(|(earlier, _)| earlier.operation == operation) {
            self.ends_bytes += bytes;
            self.ends.push_back((reply, bytes));
        } else {
            self.progress_bytes += bytes;
            self.progress.push_back((reply, bytes));
        }
    }

    /// Ends an operation with a refusal.
    pub(crate) fn refuse(&mut self, operation: i64, status: &Status) {
        let refusal = SessionRefusal {
            code: status.code() as i32,
            message: status.message().to_owned(),
            details: status.details().to_vec(),
        };
        self.reply(operation, Reply::Refused(refusal));
    }

    /// Whether the next message has enough in it.
    pub(crate) fn is_full(&self) -> bool {
        self.progress_bytes + self.ends_bytes >= FULL_MESSAGE_BYTES || self.ends.len() >= MAX_OPEN
    }

    /// Takes the replies for the next message: first the ends that follow nothing.
    pub(crate) fn take_replies(&mut self) -> Vec<SessionReply> {
        let mut replies = Vec::with_capacity(self.ends.len() + self.progress.len());
        let mut bytes = 0;
        let has_room = move_some(&mut self.ends, &mut replies, &mut bytes);
        self.ends_bytes -= bytes;
        if has_room {
            move_some(&mut self.progress, &mut replies, &mut bytes);
            self.progress_bytes = self.progress.iter().map(|(_, bytes)| bytes).sum();
        }
        replies
    }
}

/// Moves replies while the message has room; returns whether it had room for all.
fn move_some(queue: &mut VecDeque<(SessionReply, usize)>, replies: &mut Vec<SessionReply>, bytes: &mut usize) -> bool {
    while let Some((_, next)) = queue.front() {
        if *bytes > 0 && *bytes + next > FULL_MESSAGE_BYTES {
            return false;
        }
        *bytes += next;
        replies.extend(queue.pop_front().map(|(reply, _)| reply));
    }
    true
}

/// The runner's first message.
pub(crate) fn first_response(ledger_id: &str) -> SessionResponse {
    let contract_revision = i32::try_from(REVISION).expect("revisions are small");
    let hello = SessionHello { contract_revision, ledger_id: ledger_id.into(), output_window: 0 };
    SessionResponse { hello: Some(hello), ..SessionResponse::default() }
}

fn too_many() -> Status {
    let message = format!("The session has {MAX_OPEN} operations without an end, which is its limit.");
    status::error(Code::ResourceExhausted, reasons::OVERLOADED, message).retry_after(RETRY_AFTER).into()
}

#[cfg(test)]
mod tests;
