//! Why a model has not answered.

use std::{fmt, time::Duration};

use thiserror::Error;

use crate::Usage;

/// A limit of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Until the first part of the answer.
    FirstByte,
    /// From one part to the next.
    BetweenBytes,
    /// For the whole answer.
    Answer,
}

impl Limit {
    /// Its key in the settings.
    pub fn key(self) -> &'static str {
        match self {
            Self::FirstByte => "first_byte",
            Self::BetweenBytes => "between_bytes",
            Self::Answer => "answer",
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FirstByte => "has not begun to answer",
            Self::BetweenBytes => "has stopped in its answer",
            Self::Answer => "has not ended its answer",
        })
    }
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It wants another key, or one at all.
    Credential,
    /// It does not know the model, or the path.
    NotFound,
    /// The prompt is longer than its window.
    TooLong,
    /// The rate or a quota is used up.
    RateLimit,
    /// It has too much to do, or is still loading the model.
    Overloaded,
    /// It takes the request for wrong.
    Invalid,
    /// It has failed itself.
    Server,
}

impl Refusal {
    /// Whether the same request may be answered later.
    pub fn is_transient(self) -> bool {
        match self {
            Self::RateLimit | Self::Overloaded | Self::Server => true,
            Self::Credential | Self::NotFound | Self::TooLong | Self::Invalid => false,
        }
    }
}

/// A model has not answered. Nothing of what came by then is acted on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Failure {
    /// The server cannot be reached.
    #[error("the server cannot be reached: {why}")]
    Unreachable {
        /// Why.
        why: String,
    },
    /// The connection broke while the answer came.
    #[error("the connection broke in the middle of the answer: {why}")]
    Broken {
        /// Why.
        why: String,
    },
    /// The server took too long.
    #[error("the server {limit} within {} s (limits.{})", .after.as_secs(), .limit.key())]
    Late {
        /// The limit.
        limit: Limit,
        /// How long that is.
        after: Duration,
    },
    /// The server refuses the request.
    #[error("the server refuses the request with {status}: {message}")]
    Refused {
        /// Why, as far as that can be told.
        refusal: Refusal,
        /// The HTTP status.
        status: u16,
        /// What the server said.
        message: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The server has failed in the middle of the answer.
    #[error("the server has failed in the middle of the answer: {message}")]
    Server {
        /// What it said.
        message: String,
    },
    /// The answer broke off: its end has not come.
    #[error("the answer broke off before its end")]
    Cut,
    /// The answer reached the limit of its tokens within a call, so that the call is not known.
    #[error("the answer reached the limit of its tokens in the middle of a call: allow it more with max_output")]
    Truncated {
        /// What the server counted.
        usage: Option<Usage>,
    },
    /// What came is no answer of this API.
    #[error("what came is no answer of the API: {why}")]
    Malformed {
        /// What is wrong.
        why: String,
    },
    /// The answer is larger than what is read.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit: usize,
    },
    /// The key of the server cannot be had.
    #[error("its credential cannot be used: {why}")]
    Credential {
        /// Why, without its value.
        why: String,
    },
}

impl Failure {
    /// Whether the same request may be answered later.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Broken { .. }
            | Self::Late { .. }
            | Self::Server { .. }
            | Self::Cut
            | Self::Credential { .. } => true,
            Self::Refused { refusal, .. } => refusal.is_transient(),
            Self::Truncated { .. } | Self::Malformed { .. } | Self::TooLarge { .. } => false,
        }
    }
}

impl Failure {
    /// Changes what others have said, as when a secret in it is hidden.
    pub fn map_texts(&mut self, change: &mut dyn FnMut(&mut String)) {
        match self {
            Self::Unreachable { why: text }
            | Self::Broken { why: text }
            | Self::Malformed { why: text }
            | Self::Credential { why: text }
            | Self::Refused { message: text, .. }
            | Self::Server { message: text } => change(text),
            Self::Late { .. } | Self::Cut | Self::Truncated { .. } | Self::TooLarge { .. } => {}
        }
    }
}

/// The longest text of a server that people see, in characters.
const MAX_MESSAGE: usize = 500;

/// A text of a server on one line.
pub(crate) fn on_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A text of a server for people: on one line, and not too long. Callers hide keys in it before: half of a key is not recognized.
pub fn shortened(text: &str) -> String {
    let one_line = on_one_line(text);
    match one_line.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &one_line[..end]),
        None => one_line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_name_the_limit_and_a_long_message_is_cut() {
        let late = Failure::Late { limit: Limit::FirstByte, after: Duration::from_secs(120) };
        assert_eq!(late.to_string(), "the server has not begun to answer within 120 s (limits.first_byte)");
        assert_eq!(shortened(" a\n b\t"), "a b");
        assert_eq!(shortened(&"é".repeat(600)).chars().count(), 501);
    }
}
