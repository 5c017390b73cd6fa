//! The section `retention`: which executions that have ended are kept.

use crate::ValueWithOrigin;

/// An execution that has ended is deleted when one of these says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retention {
    /// How long an execution is kept after its end, in seconds; `None` means without end.
    pub finished_for: ValueWithOrigin<Option<u64>>,
    /// How many of the executions that have ended are kept, those that ended last; `None` means all.
    pub keep_last: ValueWithOrigin<Option<u64>>,
}

impl Default for Retention {
    /// Everything is kept: an operator who has not asked for it must not find the history gone.
    fn default() -> Self {
        Self { finished_for: ValueWithOrigin::default_of(None), keep_last: ValueWithOrigin::default_of(None) }
    }
}
