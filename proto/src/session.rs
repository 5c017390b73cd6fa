//! Parts of a session that both sides share: the positions of stores, of which only changes are sent; and the type that a server receives in place of
//! a `SessionRequest`. Each operation is checked for itself against what this version knows, so that one which a newer executor extended is refused
//! alone, and the session with all others continues.

use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut, Bytes},
    encoding::{self, DecodeContext, WireType},
};

use tonic::codegen::http::HeaderValue;

use crate::{
    check::{Checked, Problem, Refused, Role, check},
    runner_v1::{OutputCredit, SessionHello, SessionOperation, SessionRequest, StorePositions},
    stores::{Behind, Report, Stores},
};

/// How many operations one message may have.
pub const MAX_OPERATIONS: usize = 4096;
/// How many operations may be without an end, and so how many one message may credit or forget.
pub const MAX_OPEN: usize = 65_536;

/// The positions that one side of a session has sent.
#[derive(Clone, Debug, Default)]
pub struct SentPositions(Option<Report>);

impl SentPositions {
    /// The positions of `stores` for the next message; `None` when they are as they were sent. The stores themselves are left out while
    /// only their commits have changed.
    pub fn next(&mut self, stores: &Stores) -> Option<StorePositions> {
        let report = stores.report();
        if self.0.as_ref() == Some(&report) {
            return None;
        }
        let text = |value: &HeaderValue| value.to_str().unwrap_or_default().to_owned();
        let is_same_file = self.0.as_ref().is_some_and(|sent| sent.stores == report.stores);
        let names = if is_same_file { String::new() } else { text(&report.stores) };
        let positions = StorePositions { stores: names, commits: text(&report.commits) };
        self.0 = Some(report);
        Some(positions)
    }
}

/// The positions that one side of a session has received.
#[derive(Clone, Debug, Default)]
pub struct ReceivedPositions {
    /// The stores as last received.
    stores: String,
}

impl ReceivedPositions {
    /// Compares what has arrived with `stores`.
    ///
    /// # Errors
    /// [`Behind`] as of [`Stores::observe`].
    pub fn observe(&mut self, stores: &Stores, positions: StorePositions) -> Result<(), Behind> {
        if !positions.stores.is_empty() {
            self.stores = positions.stores;
        }
        stores.observe(&self.stores, &positions.commits)
    }
}

/// A `SessionRequest` whose operations have been checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReceivedRequest {
    /// [`SessionRequest::hello`].
    pub hello: Option<SessionHello>,
    /// [`SessionRequest::stores`].
    pub stores: Option<StorePositions>,
    /// [`SessionRequest::operations`].
    pub operations: Vec<ReceivedOperation>,
    /// [`SessionRequest::credits`].
    pub credits: Vec<OutputCredit>,
    /// [`SessionRequest::forgotten`].
    pub forgotten: Vec<i64>,
    /// Why the message as a whole is refused; nothing of it may be carried out then.
    pub refused: Option<Box<Refused>>,
}

/// An operation of a [`ReceivedRequest`].
#[derive(Clone, Debug, PartialEq)]
pub enum ReceivedOperation {
    /// Everything in it is known.
    Known(Box<SessionOperation>),
    /// It has what this version does not know, or lacks something.
    Refused {
        /// Its id.
        id: i64,
        /// The problem.
        refused: Box<Refused>,
    },
}

impl ReceivedRequest {
    fn refuse(&mut self, refused: Refused) {
        self.refused.get_or_insert(Box::new(refused));
    }

    fn too_many(&mut self, what: &str, most: usize) {
        self.refuse(refused(Problem::Malformed(format!("it has more than {most} {what}"))));
    }

    fn part<M: Message + Checked + Default>(&mut self, name: &str, bytes: Bytes) -> Result<Option<M>, DecodeError> {
        match check::<M>(&bytes) {
            Ok(()) => M::decode(bytes).map(Some),
            Err(mut refused) => {
                refused.path =
                    if refused.path.is_empty() { name.to_owned() } else { format!("{name}.{}", refused.path) };
                self.refuse(refused);
                Ok(None)
            }
        }
    }

    fn operation(&mut self, bytes: Bytes) -> Result<(), DecodeError> {
        if self.operations.len() == MAX_OPERATIONS {
            self.too_many("operations", MAX_OPERATIONS);
            return Ok(());
        }
        let problem = match check::<SessionOperation>(&bytes) {
            Ok(()) => {
                self.operations.push(ReceivedOperation::Known(Box::new(SessionOperation::decode(bytes)?)));
                return Ok(());
            }
            Err(problem) => problem,
        };
        // Its id, if it has one: prost passes over what it does not know.
        match SessionOperation::decode(bytes) {
            Ok(operation) => {
                let refused = Box::new(problem);
                self.operations.push(ReceivedOperation::Refused { id: operation.id, refused });
            }
            Err(_) => self.refuse(problem),
        }
        Ok(())
    }

    fn forget(&mut self, mut packed: Bytes) -> Result<(), DecodeError> {
        while packed.has_remaining() {
            if self.forgotten.len() == MAX_OPEN {
                self.too_many("forgotten operations", MAX_OPEN);
                return Ok(());
            }
            self.forgotten.push(encoding::decode_varint(&mut packed)?.cast_signed());
        }
        Ok(())
    }
}

fn refused(problem: Problem) -> Refused {
    Refused { path: String::new(), message: "belay.runner.v1.SessionRequest", problem }
}

impl Checked for ReceivedRequest {
    const MESSAGE: &'static crate::check::Message = SessionRequest::MESSAGE;
    // The codec need not check it: decoding does.
    const ROLE: Role = Role::Other;
}

impl Message for ReceivedRequest {
    fn encode_raw(&self, _: &mut impl BufMut) {
        unreachable!("servers receive it")
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        if wire_type != WireType::LengthDelimited {
            self.refuse(refused(match tag {
                1..=5 => Problem::Malformed(format!("field {tag} has another type")),
                unknown => Problem::UnknownField(unknown),
            }));
            return encoding::skip_field(wire_type, tag, buffer, context);
        }
        let mut bytes = Bytes::new();
        encoding::bytes::merge(wire_type, &mut bytes, buffer, context)?;
        match tag {
            1 => self.hello = self.part("hello", bytes)?.or(self.hello.take()),
            2 => self.stores = self.part("stores", bytes)?.or(self.stores.take()),
            3 => self.operation(bytes)?,
            4 if self.credits.len() == MAX_OPEN => self.too_many("credits", MAX_OPEN),
            4 => {
                let credit = self.part::<OutputCredit>("credits", bytes)?;
                self.credits.extend(credit);
            }
            5 => self.forget(bytes)?,
            unknown => self.refuse(refused(Problem::UnknownField(unknown))),
        }
        Ok(())
    }

    fn encoded_len(&self) -> usize {
        unreachable!("servers receive it")
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner_v1::{CancelToolCallRequest, session_operation::Operation};

    fn cancel(id: i64) -> SessionOperation {
        let cancelled = CancelToolCallRequest { name: format!("call {id}"), ..Default::default() };
        SessionOperation { id, operation: Some(Operation::CancelToolCall(cancelled)), ..Default::default() }
    }

    fn received(bytes: &[u8]) -> ReceivedRequest {
        ReceivedRequest::decode(bytes).unwrap()
    }

    /// The bytes of an operation as the field of a request.
    fn with_operation(bytes: &[u8]) -> Vec<u8> {
        let mut request = Vec::new();
        encoding::encode_key(3, WireType::LengthDelimited, &mut request);
        encoding::encode_varint(bytes.len() as u64, &mut request);
        request.extend(bytes);
        request
    }

    #[test]
    fn a_server_receives_what_the_executor_sent() {
        let sent = SessionRequest {
            hello: Some(SessionHello { contract_revision: 1, output_window: 7, ..Default::default() }),
            stores: Some(StorePositions { stores: "executor j 0 7".into(), commits: "9".into() }),
            operations: vec![cancel(1), cancel(2)],
            credits: vec![OutputCredit { operation: 1, bytes: 99 }, OutputCredit { operation: 2, bytes: 1 }],
            forgotten: vec![5, 6_000_000_000, 7],
        };
        let received = received(&sent.encode_to_vec());
        assert_eq!((received.hello, received.stores), (sent.hello, sent.stores));
        assert_eq!((received.credits, received.forgotten), (sent.credits, sent.forgotten));
        let known = |operation| ReceivedOperation::Known(Box::new(operation));
        assert_eq!(received.operations, sent.operations.into_iter().map(known).collect::<Vec<_>>());
        assert_eq!(received.refused, None);
    }

    #[test]
    fn an_operation_that_a_newer_executor_extended_is_refused_alone() {
        // Field 16, a text.
        let mut newer = cancel(2).encode_to_vec();
        newer.extend([0x82, 0x01, 1, b'x']);
        let bytes = [with_operation(&cancel(1).encode_to_vec()), with_operation(&newer)].concat();
        let received = received(&bytes);
        assert_eq!(received.refused, None);
        assert!(matches!(&received.operations[0], ReceivedOperation::Known(operation) if operation.id == 1));
        let ReceivedOperation::Refused { id: 2, refused } = &received.operations[1] else { panic!("{received:?}") };
        assert_eq!(refused.problem, Problem::UnknownField(16));
        // One that asks for nothing is as good as one that asks for what is not known.
        let nothing = SessionOperation { id: 3, ..Default::default() }.encode_to_vec();
        let received = self::received(&with_operation(&nothing));
        assert!(matches!(&received.operations[0], ReceivedOperation::Refused { id: 3, .. }), "{received:?}");
    }

    #[test]
    fn a_message_with_what_is_not_known_is_refused_as_a_whole() {
        for bytes in [&[0x32, 1, b'x'][..], &[0x30, 1], &[0x18, 1], &[0x0a, 3, 0x82, 0x01, 0]] {
            let received = received(bytes);
            assert!(received.refused.is_some(), "{bytes:?} {received:?}");
        }
        assert!(ReceivedRequest::decode(&[0x1a, 0x7f][..]).is_err(), "the bytes end within an operation");
    }

    /// Two bytes a piece would become hundreds in memory.
    #[test]
    fn what_one_message_becomes_in_memory_is_bounded() {
        let received = received(&[0x1a, 0].repeat(MAX_OPERATIONS + 9));
        assert_eq!((received.operations.len(), received.refused.is_some()), (MAX_OPERATIONS, true));
        let received = self::received(&[0x22, 0].repeat(MAX_OPEN + 9));
        assert_eq!((received.credits.len(), received.refused.is_some()), (MAX_OPEN, true));
        let mut forgotten = vec![0x2a];
        encoding::encode_varint(MAX_OPEN as u64 + 9, &mut forgotten);
        forgotten.extend(vec![1; MAX_OPEN + 9]);
        let received = self::received(&forgotten);
        assert_eq!((received.forgotten.len(), received.refused.is_some()), (MAX_OPEN, true));
    }
}
