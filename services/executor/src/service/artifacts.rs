//! Artifacts as readers get them.

use belay_execution::Json;
use belay_proto::v1;
use belay_reading::artifacts::{Artifact, Content};
use belay_redaction::Redactor;

use crate::{store::secrets::shown, wire};

/// The artifact as the contract has it, with its secrets hidden.
pub(super) fn message(made: &Artifact, execution: &str, redactor: &Redactor) -> v1::Artifact {
    let artifact = wire::artifact(made, execution, |json| shown_text(json, redactor));
    match made.content {
        // Its size and digest are those of the text that is shown.
        Content::Output(_) => artifact,
        Content::File(_) => shown(redactor, artifact),
    }
}

/// An output as readers get it: the text of events, with the secrets hidden that are known now.
pub(super) fn shown_text(json: &Json, redactor: &Redactor) -> String {
    match shown(redactor, wire::inline(json)).content {
        Some(v1::payload::Content::Json(text)) => text,
        Some(v1::payload::Content::Blob(_)) | None => String::new(),
    }
}
