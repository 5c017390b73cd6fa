//! Failures of calls.

use std::{fmt, sync::Arc};

pub use belay_reasons::ErrorClass;

/// What went wrong with a call or a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The class, which decides whether to retry.
    pub class: ErrorClass,
    /// A stable identifier for programs.
    pub reason: String,
    /// One sentence for a person.
    pub message: String,
    /// The end of the output of the call's program.
    pub last_output: Option<Arc<LastOutput>>,
}

/// The end of what a program wrote before its call failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LastOutput {
    /// The end of its standard output.
    pub stdout: String,
    /// The end of its standard error.
    pub stderr: String,
    /// Whether earlier standard output is left out.
    pub stdout_truncated: bool,
    /// Whether earlier standard error is left out.
    pub stderr_truncated: bool,
}

impl Failure {
    /// A failure from its parts.
    pub fn new(class: ErrorClass, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { class, reason: reason.into(), message: message.into(), last_output: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.reason)
    }
}
