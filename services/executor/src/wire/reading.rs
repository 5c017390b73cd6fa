//! Messages for what follows from an execution's events: artifacts, calls of tools and entries of the audit log.

use belay_execution::{Json, Payload};
use belay_proto::{
    payload::JSON_MEDIA_TYPE,
    v1::{self, audit_entry, tool_call},
};
use belay_reading::{
    artifacts::{self, Artifact, Content},
    audit,
    tool_calls::{self, State},
};

use super::{approval, audit_level_to, blob_ref, call_name, failure, time};

/// An artifact of the execution with this name. `shown` is the text of an output as readers get it, which its size and digest are of.
pub(crate) fn artifact(artifact: &Artifact, execution: &str, shown: impl FnOnce(&Json) -> String) -> v1::Artifact {
    let common = v1::Artifact {
        name: artifact.id.name(execution),
        step_id: artifact.step.as_str().to_owned(),
        attempt: number(artifact.attempt),
        tool_call: artifact.call.as_ref().map(|call| call_name(execution, call)).unwrap_or_default(),
        sequence: size(artifact.id.sequence()),
        create_time: Some(time(artifact.time)),
        derives_from: artifact.derives_from().map(|id| id.name(execution)).collect(),
        ..v1::Artifact::default()
    };
    match &artifact.content {
        Content::Output(payload) => {
            let (bytes, digest) = match payload {
                Payload::Inline(json) => {
                    let text = shown(json);
                    (text.len() as u64, belay_execution::digest(text.as_bytes()))
                }
                Payload::Blob(blob) => (blob.size, blob.digest.to_string()),
            };
            let (kind, media_type) = (v1::artifact::Kind::Output.into(), JSON_MEDIA_TYPE.to_owned());
            v1::Artifact { kind, media_type, size_bytes: size(bytes), digest, ..common }
        }
        Content::File(file) => v1::Artifact {
            kind: v1::artifact::Kind::File.into(),
            size_bytes: size(file.size),
            digest: file.digest.clone(),
            path: file.path.clone(),
            change: approval::change_to(file.change).into(),
            file_type: approval::file_type_to(file.file_type).into(),
            mode: i32::try_from(file.mode).unwrap_or_default(),
            ..common
        },
    }
}

/// A kind of artifacts; `None` means all.
pub(crate) fn artifact_kind_from(kind: i32) -> Option<artifacts::Kind> {
    match v1::artifact::Kind::try_from(kind).unwrap_or_default() {
        v1::artifact::Kind::Unspecified => None,
        v1::artifact::Kind::Output => Some(artifacts::Kind::Output),
        v1::artifact::Kind::File => Some(artifacts::Kind::File),
    }
}

/// A call of the execution with this name.
pub(crate) fn tool_call(execution: &str, call: tool_calls::ToolCall) -> v1::ToolCall {
    let state = match call.state {
        State::Requested => tool_call::State::Requested,
        State::AwaitingApproval => tool_call::State::AwaitingApproval,
        State::Completed => tool_call::State::Completed,
        State::Failed => tool_call::State::Failed,
        State::TimedOut => tool_call::State::TimedOut,
        State::Denied => tool_call::State::Denied,
        State::Cancelled => tool_call::State::Cancelled,
        State::OutcomeUnknown => tool_call::State::OutcomeUnknown,
    };
    v1::ToolCall {
        name: call_name(execution, &call.id),
        step_id: call.id.step.as_str().to_owned(),
        attempt: number(call.id.attempt),
        operation: number(call.id.number),
        tool: call.tool,
        state: state.into(),
        request_time: Some(time(call.requested_at)),
        end_time: call.ended_at.map(time),
        failure: call.failure.as_ref().map(failure),
        result_bytes: size(call.result_bytes),
        result_blob: call.result_blob.as_ref().map(blob_ref),
        approval: call.approval,
    }
}

/// An entry of the audit log.
pub(crate) fn audit_entry(entry: audit::Entry) -> v1::AuditEntry {
    let severity = match entry.severity {
        audit::Severity::Info => audit_entry::Severity::Info,
        audit::Severity::Warn => audit_entry::Severity::Warn,
        audit::Severity::Error => audit_entry::Severity::Error,
    };
    let has_details = entry.details.as_object().is_some_and(|details| !details.is_empty());
    let actor = entry.actor.unwrap_or_default();
    v1::AuditEntry {
        sequence: size(entry.sequence),
        record_time: Some(time(entry.time)),
        severity: severity.into(),
        level: audit_level_to(Some(entry.level)).into(),
        step_id: entry.step.map(|step| step.as_str().to_owned()).unwrap_or_default(),
        attempt: number(entry.attempt),
        message: entry.message,
        details: if has_details { entry.details.to_string() } else { String::new() },
        principal: actor.principal,
        request_id: actor.request_id,
    }
}

fn number(n: u32) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX)
}

fn size(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
