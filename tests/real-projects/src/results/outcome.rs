//! The outcome of one test.

/// How one test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestOutcome {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It did not run.
    Skipped,
}
