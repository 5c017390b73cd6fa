//! Errors that name a field.

use std::fmt;

/// A problem of a field, with what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpecificationError {
    /// The field, as its author wrote it.
    pub field: &'static str,
    /// The problem.
    pub problem: String,
}

impl SpecificationError {
    pub(crate) fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

impl fmt::Display for SpecificationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for SpecificationError {}
