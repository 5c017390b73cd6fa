//! Failures of calls.

use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

pub use belay_reasons::ErrorClass;

use crate::Timestamp;

/// The failure of a call or a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// The class, which decides whether to retry.
    pub class: ErrorClass,
    /// A stable identifier for programs.
    pub reason: String,
    /// A sentence for a person.
    pub message: String,
    /// The end of the output of the call's program.
    pub last_output: Option<Arc<LastOutput>>,
    /// Facts for programs, by key, such as `exit_code`.
    pub metadata: BTreeMap<String, String>,
    /// How long to wait before a retry can succeed; `None` when that is not known.
    pub retry_after: Option<Duration>,
    /// The quota that is used up, when that is the failure.
    pub quota: Option<Arc<QuotaState>>,
    /// The failure that led to it.
    pub cause: Option<Arc<Failure>>,
}

/// A quota that is used up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaState {
    /// Its name.
    pub name: String,
    /// How much it allows; 0 when that is not known.
    pub limit: i64,
    /// How much of it is left.
    pub remaining: i64,
    /// When it is full again; `None` when that is not known.
    pub reset_time: Option<Timestamp>,
}

/// The end of what a program wrote before its call failed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
        Self {
            class,
            reason: reason.into(),
            message: message.into(),
            last_output: None,
            metadata: BTreeMap::new(),
            retry_after: None,
            quota: None,
            cause: None,
        }
    }

    /// The delay before a retry: the one that the plan sets, unless the failure says that a retry cannot succeed so early.
    pub fn delay_before_retry(&self, planned: Duration) -> Duration {
        self.retry_after.map_or(planned, |after| planned.max(after))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retry_is_not_earlier_than_the_failure_says() {
        let [short, long] = [2, 60].map(Duration::from_secs);
        let failure = |retry_after| Failure { retry_after, ..Failure::new(ErrorClass::RateLimit, "QUOTA", "used up") };
        assert_eq!(failure(None).delay_before_retry(short), short);
        assert_eq!(failure(Some(long)).delay_before_retry(short), long);
        assert_eq!(failure(Some(short)).delay_before_retry(long), long);
    }
}
