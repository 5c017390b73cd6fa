//! Values in messages.

use crate::v1::{Payload, payload::Content};

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
