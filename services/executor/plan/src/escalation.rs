//! Escalation: the reaction to steps that have failed after all their attempts.

use serde::{Deserialize, Serialize};

use crate::Backoff;

/// The reaction to steps that have failed after all attempts of their own, once everything else has ended (S2-X-20): the failed steps run again, and
/// after that the execution waits for a person.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Escalation {
    /// How often what has failed runs again; at most [`crate::limits::MAX_ESCALATIONS`].
    pub retries: u32,
    /// How long to wait before each.
    pub backoff: Backoff,
    /// The reaction when these retries have failed too.
    pub then: Then,
}

/// The reaction when the failed steps are not retried any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The execution ends.
    #[default]
    Fail,
    /// The execution is paused until a person resumes it.
    Pause,
}

impl Then {
    /// The names, as authors write them.
    pub(crate) const WORDS: [(&'static str, Self); 2] = [("fail", Self::Fail), ("pause", Self::Pause)];
}
