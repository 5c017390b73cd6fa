//! The executor's side of a session, without its stream: which message comes next, and which operation a reply belongs to.

use std::collections::{BTreeMap, HashMap, VecDeque};

use belay_proto::{
    contract::REVISION,
    runner_v1::{
        self, AcknowledgeToolCallsRequest, Fence, OutputCredit, SessionHello, SessionOperation, SessionRefusal,
        SessionReply, SessionRequest, session_operation::Operation, session_reply::Reply,
    },
    session::{MAX_OPEN, MAX_OPERATIONS},
    v1,
};
use belay_service_kit::host::MAX_MESSAGE_BYTES;
use prost::Message as _;
use tonic::{Code, Status};

/// How much output of one call the runner may send before it needs credit, in bytes of text.
pub(crate) const OUTPUT_WINDOW: i64 = 128 << 10;
/// A message is sent when it has this many bytes; one operation alone may have more.
const FULL_MESSAGE_BYTES: usize = 1 << 20;
/// The most bytes that a message adds to an operation that it has alone.
const FRAME_BYTES: usize = 2 << 10;
/// The bytes that a credit or a forgotten operation takes in a message.
const MAX_CREDIT_BYTES: usize = 24;
/// How many names one operation acknowledges.
const MAX_NAMES: usize = 1000;
/// How many acknowledgements wait for a session.
const MAX_ACKNOWLEDGEMENTS: usize = 10_000;

/// The runner's report about an operation.
#[derive(Debug)]
pub(crate) enum Report {
    /// Its tool has started.
    Started,
    Output(v1::ToolCallOutput),
    /// The call waits for this exclusive call; empty when it no longer waits.
    WaitingFor(String),
    /// These questions of the call are open.
    Asking(Vec<runner_v1::ToolCallQuestion>),
    /// Its end: the call, or why the runner does not carry it out.
    Ended(Result<Box<runner_v1::ToolCall>, Status>),
}

impl Report {
    fn of(reply: Reply) -> Self {
        match reply {
            Reply::Started(_) => Self::Started,
            Reply::Output(output) => Self::Output(output),
            Reply::Waiting(waiting) => Self::WaitingFor(waiting.exclusive_call),
            Reply::Asking(asking) => Self::Asking(asking.questions),
            Reply::Held(call) | Reply::Result(call) => Self::Ended(Ok(Box::new(call))),
            Reply::Acknowledged(_) => {
                Self::Ended(Err(Status::internal("the runner acknowledged a request that is not an acknowledgement")))
            }
            Reply::Refused(refusal) => Self::Ended(Err(status_of(refusal))),
        }
    }
}

fn status_of(refusal: SessionRefusal) -> Status {
    let code = Code::from_i32(refusal.code);
    // A refusal with OK would be none.
    let code = if code == Code::Ok { Code::Unknown } else { code };
    Status::with_details(code, refusal.message, refusal.details.into())
}

/// The runner's reply to an acknowledgement.
#[derive(Debug)]
pub(crate) enum AcknowledgementReply {
    Taken,
    Refused(AcknowledgeToolCallsRequest, Status),
}

/// A reply, and who waits for it.
#[derive(Debug)]
pub(crate) struct Delivery<W> {
    pub(crate) id: i64,
    pub(crate) report: Report,
    pub(crate) waiter: W,
}

/// An operation without an end.
#[derive(Debug)]
struct Open<W> {
    /// The call's name; a reply about another one is none.
    name: String,
    /// `None` while a report is delivered to it.
    waiter: Option<W>,
    sent: bool,
    /// How much output the runner may still send.
    allowed: i64,
}

/// A session, or the wait for one.
#[derive(Debug)]
pub(crate) struct Session<W> {
    sent_hello: bool,
    received_hello: bool,
    last: i64,
    urgent: VecDeque<SessionOperation>,
    waiting: VecDeque<SessionOperation>,
    acknowledgements: BTreeMap<(i32, i64), Vec<String>>,
    acknowledged: usize,
    /// Acknowledgements that were sent and that the runner has not confirmed.
    unconfirmed: HashMap<i64, AcknowledgeToolCallsRequest>,
    credits: Vec<OutputCredit>,
    forgotten: Vec<i64>,
    open: HashMap<i64, Open<W>>,
}

impl<W> Default for Session<W> {
    fn default() -> Self {
        Self {
            sent_hello: false,
            received_hello: false,
            last: 0,
            urgent: VecDeque::new(),
            waiting: VecDeque::new(),
            acknowledgements: BTreeMap::new(),
            acknowledged: 0,
            unconfirmed: HashMap::new(),
            credits: Vec::new(),
            forgotten: Vec::new(),
            open: HashMap::new(),
        }
    }
}

/// Whether an operation waits for others to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// It stops something: it is sent first.
    First,
    Usual,
}

impl<W> Session<W> {
    /// Adds an operation, which is sent with the next message, and returns its id. An error is its refusal: it cannot be sent.
    pub(crate) fn add(
        &mut self,
        name: String,
        operation: SessionOperation,
        urgency: Urgency,
        waiter: W,
    ) -> Result<i64, (Status, W)> {
        let length = operation.encoded_len();
        if length > MAX_MESSAGE_BYTES - FRAME_BYTES {
            let limit = MAX_MESSAGE_BYTES - FRAME_BYTES;
            // As tonic says it of a message that is too large for its method.
            return Err((
                Status::out_of_range(format!("the request has {length} bytes and the limit is {limit}")),
                waiter,
            ));
        }
        self.last += 1;
        let operation = SessionOperation { id: self.last, ..operation };
        self.open.insert(self.last, Open { name, waiter: Some(waiter), sent: false, allowed: OUTPUT_WINDOW });
        match urgency {
            Urgency::First => self.urgent.push_back(operation),
            Urgency::Usual => self.waiting.push_back(operation),
        }
        Ok(self.last)
    }

    /// Adds the acknowledgement of a call. Returns the name when too many wait already.
    pub(crate) fn acknowledge(&mut self, fence: Fence, name: String) -> Result<(), String> {
        if self.acknowledged >= MAX_ACKNOWLEDGEMENTS {
            return Err(name);
        }
        self.acknowledged += 1;
        self.acknowledgements.entry((fence.shard, fence.token)).or_default().push(name);
        Ok(())
    }

    /// The end of an operation is no longer waited for: one that was not sent is not sent.
    pub(crate) fn forget(&mut self, id: i64) {
        if self.open.remove(&id).is_some_and(|open| open.sent) {
            self.forgotten.push(id);
        }
    }

    /// Allows as much more output of an operation as was read.
    pub(crate) fn credit(&mut self, id: i64, bytes: usize) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let bytes = i64::try_from(bytes).unwrap_or(0);
        if bytes > 0 {
            open.allowed += bytes;
            self.credits.push(OutputCredit { operation: id, bytes });
        }
    }

    /// Whether there is something to send.
    pub(crate) fn is_ready(&self) -> bool {
        !self.sent_hello
            || !self.urgent.is_empty()
            || !self.waiting.is_empty()
            || !self.acknowledgements.is_empty()
            || !self.credits.is_empty()
            || !self.forgotten.is_empty()
    }

    /// The next message: what is ready, up to its size.
    pub(crate) fn next(&mut self) -> SessionRequest {
        let mut message = SessionRequest::default();
        if !std::mem::replace(&mut self.sent_hello, true) {
            let contract_revision = i32::try_from(REVISION).expect("revisions are small");
            message.hello =
                Some(SessionHello { contract_revision, ledger_id: String::new(), output_window: OUTPUT_WINDOW });
        }
        message.credits = take(&mut self.credits);
        message.forgotten = take(&mut self.forgotten);
        // A large operation is alone in its message.
        let mut bytes = (message.credits.len() + message.forgotten.len()) * MAX_CREDIT_BYTES;
        while let Some(operation) = self.take_urgent(&mut bytes, message.operations.len()) {
            message.operations.push(operation);
        }
        while message.operations.len() < MAX_OPERATIONS
            && bytes < FULL_MESSAGE_BYTES
            && let Some(mut entry) = self.acknowledgements.first_entry()
        {
            let &(shard, token) = entry.key();
            let names = entry.get_mut();
            let names = if names.len() > MAX_NAMES { names.split_off(names.len() - MAX_NAMES) } else { entry.remove() };
            self.acknowledged -= names.len();
            bytes += names.iter().map(String::len).sum::<usize>();
            self.last += 1;
            let fence = Some(Fence { shard, token });
            let request = AcknowledgeToolCallsRequest { names, fence };
            self.unconfirmed.insert(self.last, request.clone());
            let operation = Operation::AcknowledgeToolCalls(request);
            message.operations.push(SessionOperation {
                id: self.last,
                operation: Some(operation),
                ..Default::default()
            });
        }
        while let Some(operation) = self.take_usual(&mut bytes, message.operations.len()) {
            message.operations.push(operation);
        }
        message
    }

    fn take_urgent(&mut self, bytes: &mut usize, count: usize) -> Option<SessionOperation> {
        take_next(&mut self.urgent, &mut self.open, bytes, count)
    }

    fn take_usual(&mut self, bytes: &mut usize, count: usize) -> Option<SessionOperation> {
        take_next(&mut self.waiting, &mut self.open, bytes, count)
    }

    /// The runner's hello has arrived. An error when it is the second one.
    pub(crate) fn on_hello(&mut self) -> Result<(), Status> {
        match std::mem::replace(&mut self.received_hello, true) {
            false => Ok(()),
            true => Err(Status::internal("the runner sent a second hello")),
        }
    }

    /// Whether the hello of the runner has arrived; nothing else may arrive before.
    pub(crate) fn has_received_hello(&self) -> bool {
        self.received_hello
    }

    /// Returns the meaning of a reply for an acknowledgement; `None` when it is about another operation.
    pub(crate) fn confirm(&mut self, reply: &SessionReply) -> Option<AcknowledgementReply> {
        let request = self.unconfirmed.remove(&reply.operation)?;
        Some(match &reply.reply {
            Some(Reply::Refused(refusal)) => AcknowledgementReply::Refused(request, status_of(refusal.clone())),
            _ => AcknowledgementReply::Taken,
        })
    }

    /// Returns the report in a reply and its receiver; `None` when no one waits for it any more. After a report that is no end, the waiter has to be
    /// given back.
    pub(crate) fn deliver(&mut self, SessionReply { operation: id, reply }: SessionReply) -> Option<Delivery<W>> {
        // A kind of reply that this version does not know is no end that it could act on.
        let mut report = Report::of(reply?);
        let open = self.open.get_mut(&id)?;
        match &mut report {
            Report::Output(output) => {
                open.allowed -= i64::try_from(output.text.len()).unwrap_or(i64::MAX);
                if open.allowed < -OUTPUT_WINDOW {
                    tracing::warn!(call = open.name, "The runner sends more output than it may; it is left out");
                    open.allowed += i64::try_from(output.text.len()).unwrap_or(0);
                    return None;
                }
            }
            Report::Ended(end) => {
                if let Ok(call) = end
                    && call.name != open.name
                {
                    let message =
                        format!("The runner replied about {} when it was asked about {}.", call.name, open.name);
                    *end = Err(Status::internal(message));
                }
                let waiter = self.open.remove(&id)?.waiter?;
                return Some(Delivery { id, report, waiter });
            }
            Report::Started | Report::WaitingFor(_) | Report::Asking(_) => {}
        }
        let waiter = open.waiter.take()?;
        Some(Delivery { id, report, waiter })
    }

    /// Gives back the waiter after a delivery. It is returned when the operation is no longer waited for.
    pub(crate) fn give_back(&mut self, id: i64, waiter: W) -> Option<W> {
        match self.open.get_mut(&id) {
            Some(open) => {
                open.waiter = Some(waiter);
                None
            }
            None => Some(waiter),
        }
    }

    /// The session has ended, or there is none: returns who waits. Acknowledgements wait for the next one.
    pub(crate) fn end(&mut self) -> Vec<(i64, W)> {
        let ended = std::mem::take(self);
        // Ids are not used again, so that what is left of this session belongs to no operation of the next.
        self.last = ended.last;
        (self.acknowledgements, self.acknowledged) = (ended.acknowledgements, ended.acknowledged);
        let mut waiting: Vec<(i64, W)> =
            ended.open.into_iter().filter_map(|(id, open)| Some((id, open.waiter?))).collect();
        waiting.sort_unstable_by_key(|(id, _)| *id);
        waiting
    }
}

fn take<T>(queue: &mut Vec<T>) -> Vec<T> {
    if queue.len() <= MAX_OPEN {
        return std::mem::take(queue);
    }
    queue.split_off(queue.len() - MAX_OPEN)
}

/// The next operation of a queue that is still waited for, if there is room for it.
fn take_next<W>(
    queue: &mut VecDeque<SessionOperation>,
    open: &mut HashMap<i64, Open<W>>,
    bytes: &mut usize,
    count: usize,
) -> Option<SessionOperation> {
    loop {
        let next = queue.front()?;
        let Some(of) = open.get_mut(&next.id) else {
            queue.pop_front();
            continue;
        };
        let length = next.encoded_len();
        if count >= MAX_OPERATIONS || (*bytes > 0 && *bytes + length > FULL_MESSAGE_BYTES) {
            return None;
        }
        of.sent = true;
        *bytes += length;
        return queue.pop_front();
    }
}

#[cfg(test)]
mod tests;
