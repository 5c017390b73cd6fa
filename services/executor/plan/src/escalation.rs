//! What follows when steps have failed after all their attempts.

use serde::{Deserialize, Serialize};

use crate::Backoff;

/// What follows when steps have failed, after all attempts of their own, and everything else has ended (S2-X-20): what has failed runs again, and after that
/// a person is waited for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Escalation {
    /// How often what has failed runs again; at most [`crate::limits::MAX_ESCALATIONS`].
    pub retries: u32,
    /// How long to wait before each.
    pub backoff: Backoff,
    /// What follows then.
    pub then: Then,
}

/// What follows when what has failed is not retried any more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// The execution ends.
    #[default]
    Fail,
    /// The execution is paused: a person goes on with it.
    Pause,
}

impl Then {
    /// The names, as authors write them.
    pub(crate) const WORDS: [(&'static str, Self); 2] = [("fail", Self::Fail), ("pause", Self::Pause)];
}
