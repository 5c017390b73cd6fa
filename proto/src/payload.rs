//! Values in messages.

use crate::v1::{Payload, payload::Content};

/// The largest value that is inline where it can be a blob, in bytes of JSON text.
pub const MAX_INLINE_BYTES: usize = 32 << 10;

/// The largest result of a call, in bytes of JSON text: as much as a step's templates may read.
pub const MAX_RESULT_BYTES: u64 = 64 << 20;

/// The media type of every blob.
pub const JSON_MEDIA_TYPE: &str = "application/json";

impl Payload {
    /// A value as JSON text.
    pub fn of_json(text: impl Into<String>) -> Self {
        Self { content: Some(Content::Json(text.into())) }
    }

    /// The value as JSON text; `None` when it is not inline.
    pub fn as_json(&self) -> Option<&str> {
        match self.content.as_ref()? {
            Content::Json(text) => Some(text),
            Content::Blob(_) => None,
        }
    }
}
