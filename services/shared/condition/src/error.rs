//! Limits, and why a condition has no value.

use thiserror::Error;

/// The longest expression, in bytes.
pub const MAX_BYTES: usize = 4096;

/// The most parts that an expression has: names, literals, operators, calls.
pub const MAX_PARTS: usize = 500;

/// How much work an evaluation may be. One step is one part of the expression evaluated once, or 64 bytes of text looked through.
pub const MAX_STEPS: u64 = 1_000_000;

/// Why a condition has no value.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConditionError {
    /// It is not an expression of the language.
    #[error("cannot be read: {0}")]
    Syntax(String),
    /// It is an expression that cannot be true or false, or names what does not exist.
    #[error("{0}")]
    Refused(String),
    /// It has no value with these values.
    #[error("{0}")]
    Failed(String),
    /// It needs a value that is missing, for this reason.
    #[error("{0}")]
    Absent(String),
    /// It takes too much work.
    #[error("takes more than {MAX_STEPS} steps with these values: compare less, or let a step compute it")]
    TooMuch,
}
