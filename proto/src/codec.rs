//! The codec of the generated clients and servers: prost's, which first checks requests.

use std::{marker::PhantomData, sync::Arc};

use prost::{Message, bytes::Buf as _};
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstDecoder, ProstEncoder};

use crate::check::{Checked, Refused, Role, check};

/// The memory that a stream has at first, in bytes. A larger message gets what it needs.
const BUFFER_SIZE: usize = 2 * 1024;

/// How many bytes of messages that are ready a stream hands to its connection at a time. With tonic's own 32 KiB and a buffer of 8, a thousand watchers
/// that lag behind take 40 MiB.
const BYTES_AT_A_TIME: usize = 8 * 1024;

/// Encodes `T` and decodes `U`. A request with what this version does not know is INVALID_ARGUMENT, and the status has the [`Refused`] as its
/// source: the server adds the details.
#[derive(Debug)]
pub struct CheckedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for CheckedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for CheckedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Checked + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CheckedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER_SIZE, BYTES_AT_A_TIME))
    }

    fn decoder(&mut self) -> Self::Decoder {
        CheckedDecoder(ProstDecoder::default())
    }
}

/// Decodes `U`, checked if it is a request.
#[derive(Debug)]
pub struct CheckedDecoder<U>(ProstDecoder<U>);

impl<U: Message + Default + Checked> Decoder for CheckedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if U::ROLE == Role::Request {
            // tonic's buffer is contiguous; if it ever is not, a message that was not checked is not decoded.
            let whole = buffer.chunk();
            if whole.len() != buffer.remaining() {
                return Err(Status::internal("the message is not contiguous in memory"));
            }
            check::<U>(whole).map_err(refusal)?;
        }
        self.0.decode(buffer)
    }
}

fn refusal(refused: Refused) -> Status {
    let mut status = Status::invalid_argument(refused.to_string());
    status.set_source(Arc::new(refused));
    status
}
