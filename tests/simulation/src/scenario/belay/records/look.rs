//! Answers about an execution that disagree unless it has gone on in between.

/// A disagreement of two answers about one execution, one after the other.
#[derive(Debug, Clone)]
pub(in super::super) struct Look {
    pub(in super::super) name: String,
    /// The number of the last event that the answer with the execution had.
    pub(in super::super) sequence: i64,
    pub(in super::super) order: LookOrder,
}

/// The order of two answers, of which the one shows the end of the execution and the other does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum LookOrder {
    /// The row said that it had ended, and the execution does not say so.
    EndedBefore,
    /// The execution had ended, and its row does not say so.
    EndedAfter,
}
