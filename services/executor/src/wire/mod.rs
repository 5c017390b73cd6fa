//! Converts between the contract's messages and the domain's values. Generated types are not used beyond this module, except to pass
//! messages on.

mod approval;
mod budget;
mod comparison;
mod decode;
mod event;
mod execution;
mod explanation;
#[cfg(test)]
mod golden {
    mod tests;
}
mod kinds;
mod limit;
mod plan;
mod reading;
mod timeline;
mod unread;

pub(crate) use approval::{
    check_approval, decision_from, is_pending, layers_to, receipt_from, requirement_from, subject_kind,
};
pub(crate) use budget::namespace_usage;
pub(crate) use comparison::{field_change, step_changes};
pub(crate) use decode::{DecodeError, check_known, check_version, decode_all, decode_bytes, is_end, to_events, uid_of};
pub(crate) use event::{
    OLDEST_VERSION, VERSION, call_name, encode, facts_beside, output_event, output_frame, parse_call,
};
pub(crate) use execution::{
    StepDetails, approval_mode, approval_mode_to, basic, brief, etag, full, skip_reason, state_from, state_name,
    state_number, state_word, step, step_counts, step_state_name, waiting_reason, waits_for,
};
pub(crate) use explanation::{action, blocker, cause, skipped_step, step_change};
pub(crate) use plan::{audit_level_to, checked_plan_from, plan_message, stored_plan_from, stored_plan_message};
pub(crate) use reading::{artifact, artifact_kind_from, audit_entry, tool_call};
pub(crate) use timeline::timeline_row;

use std::{sync::Arc, time::Duration};

use belay_execution::{
    BlobRef, CachedFrom, ErrorClass, Failure, Json, LastOutput, Payload, QuotaState, RecoveryClass, Timestamp,
};
use belay_proto::{payload::JSON_MEDIA_TYPE, v1};
use thiserror::Error;

use crate::store::blobs::digest_bytes;

pub(crate) fn time(timestamp: Timestamp) -> pbjson_types::Timestamp {
    belay_proto::timestamp(timestamp.as_micros())
}

fn timestamp(time: &pbjson_types::Timestamp) -> Timestamp {
    Timestamp::from_micros(belay_proto::micros(time))
}

/// The duration of a stored message; none is zero.
fn duration(duration: Option<pbjson_types::Duration>) -> Duration {
    duration.and_then(|duration| belay_proto::to_duration(&duration)).unwrap_or_default()
}

/// A time as JSON shows it, without quotes.
pub(crate) fn time_text(time: &pbjson_types::Timestamp) -> String {
    let text = serde_json::to_value(time).ok().and_then(|value| value.as_str().map(str::to_owned));
    text.unwrap_or_default()
}

/// A value that is always inline.
pub(crate) fn inline(json: &Json) -> v1::Payload {
    v1::Payload { content: Some(v1::payload::Content::Json(json.as_str().to_owned())) }
}

pub(crate) fn payload(payload: &Payload) -> v1::Payload {
    match payload {
        Payload::Inline(json) => inline(json),
        Payload::Blob(blob) => v1::Payload { content: Some(v1::payload::Content::Blob(blob_ref(blob))) },
    }
}

pub(crate) fn blob_ref(BlobRef { digest, size, redacted }: &BlobRef) -> v1::BlobRef {
    let (size_bytes, media_type) = (i64::try_from(*size).unwrap_or(i64::MAX), JSON_MEDIA_TYPE.to_owned());
    v1::BlobRef { digest: digest.to_string(), size_bytes, media_type, redacted: *redacted }
}

/// A message has what this version does not know, or lacks what it needs. Nothing is concluded from such a message.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(crate) enum NotUnderstood {
    /// A value of an enum that a newer version added.
    #[error("{what} has the value {number}, which this version does not know")]
    Value { what: &'static str, number: i32 },
    /// A value that is not set, or is set in a form that a newer version added.
    #[error("{0} is missing, or has a form that this version does not know")]
    Missing(&'static str),
    /// A value that is in a blob where none can be, or in one of another kind.
    #[error("{0} is a reference to a blob of a kind that this version does not read")]
    Blob(&'static str),
}

/// A value of an enum. `what` names it in the error.
pub(crate) fn known<E: TryFrom<i32>>(number: i32, what: &'static str) -> Result<E, NotUnderstood> {
    E::try_from(number).map_err(|_| NotUnderstood::Value { what, number })
}

/// The JSON value of a payload. `what` names it in the error.
pub(crate) fn json(payload: Option<v1::Payload>, what: &'static str) -> Result<Json, NotUnderstood> {
    match payload.and_then(|payload| payload.content) {
        Some(v1::payload::Content::Json(text)) => Ok(Json::from_text(text)),
        Some(v1::payload::Content::Blob(_)) => Err(NotUnderstood::Blob(what)),
        None => Err(NotUnderstood::Missing(what)),
    }
}

/// The value of a payload, which may be a blob of the execution. `what` names it in the error.
pub(crate) fn payload_from(payload: Option<v1::Payload>, what: &'static str) -> Result<Payload, NotUnderstood> {
    match payload.and_then(|payload| payload.content) {
        Some(v1::payload::Content::Json(text)) => Ok(Json::from_text(text).into()),
        Some(v1::payload::Content::Blob(v1::BlobRef { digest, size_bytes, media_type, redacted })) => {
            let size = u64::try_from(size_bytes).map_err(|_| NotUnderstood::Blob(what))?;
            if media_type != JSON_MEDIA_TYPE || digest_bytes(&digest).is_none() {
                return Err(NotUnderstood::Blob(what));
            }
            Ok(Payload::Blob(BlobRef { digest: digest.into(), size, redacted }))
        }
        None => Err(NotUnderstood::Missing(what)),
    }
}

pub(crate) fn failure(failure: &Failure) -> v1::Failure {
    let last_output = failure.last_output.as_deref().map(last_output);
    let cause = failure.cause.as_deref().map(|cause| Box::new(self::failure(cause)));
    v1::Failure { last_output, cause, ..failure_alone(failure) }
}

/// A failure without what its call printed last, and without its causes' output.
pub(crate) fn failure_without_output(failure: &Failure) -> v1::Failure {
    let cause = failure.cause.as_deref().map(|cause| Box::new(failure_without_output(cause)));
    v1::Failure { cause, ..failure_alone(failure) }
}

/// A failure without output and cause.
fn failure_alone(failure: &Failure) -> v1::Failure {
    v1::Failure {
        error_class: class_to(failure.class).into(),
        message: failure.message.clone(),
        reason: failure.reason.clone(),
        retryable: failure.class.is_retryable(),
        last_output: None,
        metadata: failure.metadata.clone(),
        retry_after: failure.retry_after.map(belay_proto::duration),
        quota: failure.quota.as_deref().map(quota),
        cause: None,
    }
}

fn quota(quota: &QuotaState) -> v1::QuotaState {
    let QuotaState { name, limit, remaining, reset_time } = quota.clone();
    v1::QuotaState { name, limit, remaining, reset_time: reset_time.map(time) }
}

fn last_output(output: &LastOutput) -> v1::LastOutput {
    let LastOutput { stdout, stderr, stdout_truncated, stderr_truncated } = output.clone();
    v1::LastOutput { stdout, stderr, stdout_truncated, stderr_truncated }
}

/// How many causes of a failure are kept, and how many facts and characters of its metadata. Anybody may write a tool runner.
const MAX_CAUSES: usize = 4;
const MAX_FACTS: usize = 32;
const MAX_KEY_CHARS: usize = 64;
const MAX_VALUE_CHARS: usize = 1_024;

pub(crate) fn failure_from(failure: v1::Failure) -> Result<Failure, NotUnderstood> {
    caused_failure_from(failure, MAX_CAUSES)
}

fn caused_failure_from(failure: v1::Failure, causes: usize) -> Result<Failure, NotUnderstood> {
    let class = class_from(known(failure.error_class, "the class of a failure")?);
    let last_output = failure.last_output.map(|output| {
        let v1::LastOutput { stdout, stderr, stdout_truncated, stderr_truncated } = output;
        Arc::new(LastOutput { stdout, stderr, stdout_truncated, stderr_truncated })
    });
    let facts = failure.metadata.into_iter().filter(|(key, _)| key.chars().count() <= MAX_KEY_CHARS);
    let cut = |value: String| match value.char_indices().nth(MAX_VALUE_CHARS) {
        Some((end, _)) => value[..end].to_owned(),
        None => value,
    };
    let quota = failure.quota.map(|quota| {
        let v1::QuotaState { name, limit, remaining, reset_time } = quota;
        let reset_time = reset_time.map(|reset| Timestamp::from_micros(belay_proto::micros(&reset)));
        Arc::new(QuotaState { name, limit, remaining, reset_time })
    });
    let cause = failure.cause.filter(|_| causes > 0);
    Ok(Failure {
        class,
        reason: failure.reason,
        message: failure.message,
        last_output,
        metadata: facts.map(|(key, value)| (key, cut(value))).take(MAX_FACTS).collect(),
        // A negative one says nothing.
        retry_after: failure.retry_after.as_ref().and_then(belay_proto::to_duration),
        quota,
        cause: cause.map(|cause| caused_failure_from(*cause, causes - 1)).transpose()?.map(Arc::new),
    })
}

/// Where an earlier result comes from.
fn cached_result(source: &CachedFrom) -> v1::CachedResult {
    v1::CachedResult {
        execution: source.execution.clone(),
        complete_time: Some(time(source.completed_at)),
        age: Some(belay_proto::duration(source.age)),
    }
}

/// The class's name in the contract, such as `TIMEOUT`.
pub(crate) fn class_name(class: ErrorClass) -> &'static str {
    class_to(class).as_str_name().trim_start_matches("ERROR_CLASS_")
}

fn class_to(class: ErrorClass) -> v1::ErrorClass {
    match class {
        ErrorClass::Crash => v1::ErrorClass::Crash,
        ErrorClass::RateLimit => v1::ErrorClass::RateLimit,
        ErrorClass::Fatal => v1::ErrorClass::Fatal,
        ErrorClass::AgentUnavailable => v1::ErrorClass::AgentUnavailable,
        ErrorClass::Transient => v1::ErrorClass::Transient,
        ErrorClass::Timeout => v1::ErrorClass::Timeout,
        ErrorClass::InvalidArguments => v1::ErrorClass::InvalidArguments,
        ErrorClass::InvalidResult => v1::ErrorClass::InvalidResult,
        ErrorClass::PreconditionFailed => v1::ErrorClass::PreconditionFailed,
        ErrorClass::PostconditionFailed => v1::ErrorClass::PostconditionFailed,
        ErrorClass::SandboxViolation => v1::ErrorClass::SandboxViolation,
        ErrorClass::ApprovalDenied => v1::ErrorClass::ApprovalDenied,
        ErrorClass::PolicyDenied => v1::ErrorClass::PolicyDenied,
        ErrorClass::BudgetExhausted => v1::ErrorClass::BudgetExhausted,
        ErrorClass::Cancelled => v1::ErrorClass::Cancelled,
        ErrorClass::OutcomeUnknown => v1::ErrorClass::OutcomeUnknown,
        ErrorClass::Internal => v1::ErrorClass::Internal,
    }
}

fn class_from(class: v1::ErrorClass) -> ErrorClass {
    match class {
        v1::ErrorClass::Crash => ErrorClass::Crash,
        v1::ErrorClass::RateLimit => ErrorClass::RateLimit,
        v1::ErrorClass::Fatal => ErrorClass::Fatal,
        v1::ErrorClass::AgentUnavailable => ErrorClass::AgentUnavailable,
        v1::ErrorClass::Transient => ErrorClass::Transient,
        v1::ErrorClass::Timeout => ErrorClass::Timeout,
        v1::ErrorClass::InvalidArguments => ErrorClass::InvalidArguments,
        v1::ErrorClass::InvalidResult => ErrorClass::InvalidResult,
        v1::ErrorClass::PreconditionFailed => ErrorClass::PreconditionFailed,
        v1::ErrorClass::PostconditionFailed => ErrorClass::PostconditionFailed,
        v1::ErrorClass::SandboxViolation => ErrorClass::SandboxViolation,
        v1::ErrorClass::ApprovalDenied => ErrorClass::ApprovalDenied,
        v1::ErrorClass::PolicyDenied => ErrorClass::PolicyDenied,
        v1::ErrorClass::BudgetExhausted => ErrorClass::BudgetExhausted,
        v1::ErrorClass::Cancelled => ErrorClass::Cancelled,
        v1::ErrorClass::OutcomeUnknown => ErrorClass::OutcomeUnknown,
        // Without a class it is not known to be worth a retry.
        v1::ErrorClass::Internal | v1::ErrorClass::Unspecified => ErrorClass::Internal,
    }
}

pub(crate) fn recovery_to(recovery: RecoveryClass) -> v1::RecoveryClass {
    match recovery {
        RecoveryClass::ReadOnly => v1::RecoveryClass::ReadOnly,
        RecoveryClass::Idempotent => v1::RecoveryClass::Idempotent,
        RecoveryClass::Transactional => v1::RecoveryClass::Transactional,
        RecoveryClass::Manual => v1::RecoveryClass::Manual,
    }
}

pub(crate) fn recovery_from(recovery: v1::RecoveryClass) -> RecoveryClass {
    match recovery {
        v1::RecoveryClass::ReadOnly => RecoveryClass::ReadOnly,
        v1::RecoveryClass::Idempotent => RecoveryClass::Idempotent,
        v1::RecoveryClass::Transactional => RecoveryClass::Transactional,
        // An unset class is treated as the worst.
        v1::RecoveryClass::Manual | v1::RecoveryClass::Unspecified => RecoveryClass::Manual,
    }
}
