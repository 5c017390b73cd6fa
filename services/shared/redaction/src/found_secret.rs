//! Findings in a text.

/// A secret in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundSecret {
    /// The rule that found it: `github-token`, one of the operator's, or `literal` for a value that was given.
    pub rule: &'static str,
    /// Where it begins in the original, in bytes.
    pub start: usize,
    /// Where it ends in the original, in bytes.
    pub end: usize,
}

impl FoundSecret {
    /// The rule of a value that was given to the redactor.
    pub const LITERAL: &'static str = "literal";
}
