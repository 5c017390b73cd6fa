//! Contents of entries.

use std::time::Duration;

use belay_execution::{Decision, Failure, OperationId};
use belay_plan::AuditLevel;
use serde_json::{Value, json};

/// How grave an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// An expected event.
    Info,
    /// An event that may need attention.
    Warn,
    /// A failure.
    Error,
}

/// The content of an entry, without the fields that it takes from the event's header.
#[derive(Debug)]
pub(super) struct EntryContent {
    pub(super) level: AuditLevel,
    pub(super) severity: Severity,
    pub(super) message: String,
    /// An object.
    pub(super) details: Value,
}

impl EntryContent {
    pub(super) fn new(level: AuditLevel, severity: Severity, message: impl Into<String>, details: Value) -> Self {
        Self { level, severity, message: message.into(), details }
    }
}

/// A decision as the contract names it.
pub(super) fn decided(decision: Decision) -> &'static str {
    match decision {
        Decision::Approved => "APPROVE",
        Decision::Denied => "DENY",
        Decision::Skipped => "SKIP",
        Decision::Expired => "EXPIRE",
    }
}

/// The name of an operation within its execution.
pub(super) fn operation(id: &OperationId) -> String {
    format!("{}/{}.{}", id.step, id.attempt, id.number)
}

/// A failure, without what its program printed.
pub(super) fn failure(failure: &Failure) -> Value {
    json!({"code": failure.reason, "class": failure.class.name(), "message": failure.message, "recoverable": failure.class.is_retryable()})
}

/// `what`, and the reason that a principal gave for it.
pub(super) fn because(what: &str, reason: &str) -> String {
    if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") }
}

/// `1 step`, `2 steps`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A duration for programs.
pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration for people.
pub(super) fn duration(duration: Duration) -> String {
    let millis = millis(duration);
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", millis / 60_000, millis % 60_000 / 1_000),
        _ => format!("{}h{:02}m", millis / 3_600_000, millis % 3_600_000 / 60_000),
    }
}
