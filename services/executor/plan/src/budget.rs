//! Limits on what the calls of a plan or a step may use.

use serde::{Deserialize, Serialize};

/// The most that calls may use, all together. At least one of the amounts is limited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// How many calls may be made, those of checks and further attempts included; `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<u64>,
    /// How many bytes their results may have as JSON; `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// How many tokens models may use, of prompts and answers; `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// How many millionths of a US dollar models may cost; `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_micros: Option<u64>,
    /// Consequence for a call that finds nothing left.
    #[serde(default)]
    pub on_exhausted: OnExhausted,
}

/// Consequence for a call that finds nothing left of a budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnExhausted {
    /// The execution is paused: a person raises the budget and resumes it, or cancels it.
    #[default]
    Pause,
    /// The step that would make the call fails.
    Fail,
    /// A model that may use more than is left gives way to the next one of its step; where there is none, the step fails.
    NextFallback,
}

impl OnExhausted {
    /// The names, as authors write them.
    pub(crate) const WORDS: [(&'static str, Self); 3] =
        [("pause", Self::Pause), ("fail", Self::Fail), ("next_fallback", Self::NextFallback)];
}
