//! Failures of calls, and whether to retry them.

use std::{fmt, sync::Arc};

/// The classes into which every failure falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// The process that did the work was killed from outside.
    Crash,
    /// A quota is used up.
    RateLimit,
    /// Neither a retry nor continuing the plan can help.
    Fatal,
    /// The program or agent that does the work is not available.
    AgentUnavailable,
    /// Any other failure of a tool.
    Transient,
    /// A time limit ran out.
    Timeout,
    /// The arguments do not fit the tool's schema.
    InvalidArguments,
    /// The tool's answer does not fit its schema.
    InvalidResult,
    /// The call tried to access something outside its workspace.
    SandboxViolation,
    /// A person denied the call.
    ApprovalDenied,
    /// The policy denied the call.
    PolicyDenied,
    /// The call was cancelled.
    Cancelled,
    /// Whether the call took effect is not known.
    OutcomeUnknown,
    /// A fault in Belay itself.
    Internal,
}

impl ErrorClass {
    /// Whether a step that failed with this class may be retried.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::Crash | Self::RateLimit | Self::Transient | Self::Timeout | Self::InvalidResult => true,
            Self::Fatal
            | Self::AgentUnavailable
            | Self::InvalidArguments
            | Self::SandboxViolation
            | Self::ApprovalDenied
            | Self::PolicyDenied
            | Self::Cancelled
            | Self::OutcomeUnknown
            | Self::Internal => false,
        }
    }
}

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
