//! The JSON text of payloads.

use belay_proto::v1::{self, payload::Content};

/// The JSON text of a payload; empty if it holds a blob or nothing.
pub(crate) fn json_of(payload: Option<&v1::Payload>) -> String {
    match payload.and_then(|payload| payload.content.as_ref()) {
        Some(Content::Json(json)) => json.clone(),
        Some(Content::Blob(_)) | None => String::new(),
    }
}
