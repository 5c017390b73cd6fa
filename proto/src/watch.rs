//! Messages that a server sends to a watcher of an execution. Events are encoded once, for the store, and sent to all watchers as they are.

use prost::{
    DecodeError, Message,
    bytes::{Buf, BufMut, Bytes},
    encoding::{DecodeContext, WireType, encode_key, encoded_len_varint},
};

use crate::v1::WatchExecutionResponse;

/// The numbers of `WatchExecutionResponse.cursor` and `.event`; a test compares them with the contract.
const CURSOR: u32 = 1;
const EVENT: u32 = 5;

/// A [`WatchExecutionResponse`], or the same bytes from an event that is encoded already.
#[derive(Clone, Debug, PartialEq)]
pub enum WatchMessage {
    /// A message.
    Message(Box<WatchExecutionResponse>),
    /// An event.
    Event {
        /// [`WatchExecutionResponse::cursor`].
        cursor: Bytes,
        /// The encoded `ExecutionEvent`, with its length before it.
        event: Bytes,
    },
}

impl From<WatchExecutionResponse> for WatchMessage {
    fn from(message: WatchExecutionResponse) -> Self {
        Self::Message(Box::new(message))
    }
}

impl Default for WatchMessage {
    fn default() -> Self {
        WatchExecutionResponse::default().into()
    }
}

impl Message for WatchMessage {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        match self {
            Self::Message(message) => message.encode_raw(buffer),
            Self::Event { cursor, event } => {
                prost::encoding::bytes::encode(CURSOR, cursor, buffer);
                encode_key(EVENT, WireType::LengthDelimited, buffer);
                buffer.put_slice(event);
            }
        }
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        match self {
            Self::Message(message) => message.merge_field(tag, wire_type, buffer, context),
            Self::Event { .. } => {
                let mut message = WatchExecutionResponse::decode(self.encode_to_vec().as_slice())?;
                message.merge_field(tag, wire_type, buffer, context)?;
                *self = message.into();
                Ok(())
            }
        }
    }

    fn encoded_len(&self) -> usize {
        match self {
            Self::Message(message) => message.encoded_len(),
            Self::Event { cursor, event } => {
                prost::encoding::bytes::encoded_len(CURSOR, cursor)
                    + encoded_len_varint(u64::from(EVENT << 3))
                    + event.len()
            }
        }
    }

    fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::{ExecutionEvent, watch_execution_response::Content};

    #[test]
    fn an_encoded_event_is_the_message_that_a_client_reads() {
        let event = ExecutionEvent { sequence: 7, step_id: "a".repeat(300), ..ExecutionEvent::default() };
        let message = WatchMessage::Event {
            cursor: Bytes::from_static(b"c1"),
            event: event.encode_length_delimited_to_vec().into(),
        };
        let bytes = message.encode_to_vec();
        assert_eq!(bytes.len(), message.encoded_len());
        let expected = WatchExecutionResponse {
            cursor: "c1".into(),
            content: Some(Content::Event(event)),
            ..WatchExecutionResponse::default()
        };
        assert_eq!(WatchExecutionResponse::decode(bytes.as_slice()).unwrap(), expected);
        assert_eq!(bytes, expected.encode_to_vec(), "field for field in the same order");
        let again = WatchMessage::from(expected.clone());
        assert_eq!((again.encode_to_vec(), again.encoded_len()), (bytes.clone(), bytes.len()));
        assert_eq!(WatchMessage::decode(bytes.as_slice()).unwrap(), again);
    }
}
