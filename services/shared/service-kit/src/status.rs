//! Errors as gRPC statuses with google.rpc details: a reason for programs, fields for authors, a sentence for people.

use std::{collections::HashMap, time::Duration};

use belay_reasons as reasons;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt as _};

/// The domain of every reason.
pub const DOMAIN: &str = "belay.dev";

/// Builds a status.
#[derive(Clone, Debug)]
pub struct Error {
    code: Code,
    reason: String,
    message: String,
    metadata: HashMap<String, String>,
    violations: Vec<(String, String)>,
    retry_after: Option<Duration>,
}

/// An error with its reason, a constant of `belay_reasons`, whose row lists the code.
pub fn error(code: Code, reason: &str, message: impl Into<String>) -> Error {
    debug_assert!(
        reasons::find(reason).is_none_or(|row| row.codes.iter().any(|listed| *listed as i32 == code as i32)),
        "the row of {reason} in services/shared/reasons does not list {code:?}"
    );
    Error {
        code,
        reason: reason.to_owned(),
        message: message.into(),
        metadata: HashMap::new(),
        violations: Vec::new(),
        retry_after: None,
    }
}

/// INVALID_ARGUMENT for one field, named as the caller wrote it.
pub fn invalid(field: &str, message: impl Into<String>) -> Error {
    let message = message.into();
    error(Code::InvalidArgument, reasons::INVALID_ARGUMENT, format!("{field}: {message}")).field(field, message)
}

impl Error {
    /// Adds a fact for programs.
    #[must_use]
    pub fn with(mut self, key: &str, value: impl ToString) -> Self {
        self.metadata.insert(key.to_owned(), value.to_string());
        self
    }

    /// Sets the delay before a retry.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Adds a field that is wrong, and what to do about it.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>, message: impl Into<String>) -> Self {
        self.violations.push((field.into(), message.into()));
        self
    }
}

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        let mut details = ErrorDetails::with_error_info(error.reason, DOMAIN, error.metadata);
        if let Some(wait) = error.retry_after {
            details.set_retry_info(Some(wait));
        }
        for (field, message) in error.violations {
            details.add_bad_request_violation(field, message);
        }
        Status::with_error_details(error.code, error.message, details)
    }
}

/// The reason of a status that a service of Belay returned; `None` for any other.
pub fn reason(status: &Status) -> Option<String> {
    status.get_details_error_info().filter(|info| info.domain == DOMAIN).map(|info| info.reason)
}

/// The delay before a retry, if the status has one.
pub fn retry_after(status: &Status) -> Option<Duration> {
    status.get_details_retry_info()?.retry_delay
}

/// A fact that a status carries.
pub fn fact(status: &Status, key: &str) -> Option<String> {
    status.get_details_error_info()?.metadata.remove(key)
}
