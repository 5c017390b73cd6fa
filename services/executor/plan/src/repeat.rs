//! The rounds of a step that runs again until a condition holds.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Condition, duration};

/// An unchecked `repeat`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RepeatDraft {
    /// An expression in CEL with references, evaluated after each round; the step has completed once it is true.
    pub until: String,
    /// The most rounds; 0 when it is not given.
    pub max: u32,
    /// The time from the end of a round to the beginning of the next; `None` means none.
    #[serde(default, with = "duration::option", skip_serializing_if = "Option::is_none")]
    pub delay: Option<Duration>,
}

/// The rounds of a step: it runs again until a condition holds, each time as a step of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    pub(crate) until: Condition,
    pub(crate) max: u32,
    pub(crate) delay: Option<Duration>,
}

impl Repeat {
    /// The condition, evaluated after each round; the step has completed once it is true.
    pub fn until(&self) -> &Condition {
        &self.until
    }

    /// The most rounds: 1 to [`crate::limits::MAX_ROUNDS`].
    pub fn max(&self) -> u32 {
        self.max
    }

    /// The time from the end of a round to the beginning of the next.
    pub fn delay(&self) -> Duration {
        self.delay.unwrap_or_default()
    }

    /// The rounds as a draft.
    pub(crate) fn to_draft(&self) -> RepeatDraft {
        RepeatDraft { until: self.until.source().to_owned(), max: self.max, delay: self.delay }
    }
}
