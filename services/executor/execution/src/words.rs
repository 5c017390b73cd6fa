//! The text of events for people and auditors: a sentence each, with details for programs.

use std::time::Duration;

use belay_plan::AuditLevel;
use serde_json::{Value, json};

use crate::{Decision, Failure, OperationId};

/// The activity of a step, as far as its operations say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Its call or the execution of its plan runs.
    Runs,
    /// It waits for a person to approve its call or to answer its form.
    AwaitsPerson,
    /// It waits for a time, a signal, or to make its call again.
    Waits,
}

/// The gravity of what an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// An expected event.
    Info,
    /// An event that may need attention.
    Warn,
    /// A failure.
    Error,
}

/// The text of an event, without its header.
#[derive(Clone, Debug, PartialEq)]
pub struct Words {
    /// The least level of a plan's audit that has it.
    pub level: AuditLevel,
    /// Its gravity.
    pub severity: Severity,
    /// The sentence.
    pub message: String,
    /// An object.
    pub details: Value,
}

impl Words {
    /// Words with these parts.
    pub fn new(level: AuditLevel, severity: Severity, message: impl Into<String>, details: Value) -> Self {
        Self { level, severity, message: message.into(), details }
    }
}

/// A decision as the contract names it.
pub fn decided(decision: Decision) -> &'static str {
    match decision {
        Decision::Approved => "APPROVE",
        Decision::Denied => "DENY",
        Decision::Skipped => "SKIP",
        Decision::Expired => "EXPIRE",
    }
}

/// The name of an operation within its execution.
pub fn operation(id: &OperationId) -> String {
    format!("{}/{}.{}", id.step, id.attempt, id.number)
}

/// A failure, without what its program printed.
pub fn failure(failure: &Failure) -> Value {
    json!({"code": failure.reason, "class": failure.class.name(), "message": failure.message, "recoverable": failure.class.is_retryable()})
}

/// `what`, and the reason that a principal gave for it.
pub fn because(what: &str, reason: &str) -> String {
    if reason.is_empty() { what.to_owned() } else { format!("{what}: {reason}") }
}

/// `1 step`, `2 steps`.
pub fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A duration for programs.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A duration for people.
pub fn duration(duration: Duration) -> String {
    let millis = millis(duration);
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{}.{}s", millis / 1_000, millis % 1_000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", millis / 60_000, millis % 60_000 / 1_000),
        _ => format!("{}h{:02}m", millis / 3_600_000, millis % 3_600_000 / 60_000),
    }
}
