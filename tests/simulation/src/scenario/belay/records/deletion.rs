//! Requests to delete an execution.

/// The requests to delete one execution.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Deletion {
    /// The step that it says it belongs to; empty for one that belongs to none.
    pub(in super::super) parent_step: String,
    /// How many are neither answered nor refused.
    pub(in super::super) open: u32,
    /// When one was acknowledged first, in true time in microseconds since the Unix epoch.
    pub(in super::super) acknowledged_at: Option<i64>,
    /// Whether the other services have forgotten it too.
    pub(in super::super) is_complete: bool,
}

/// The execution of a step.
pub(in super::super) fn parent_of(step: &str) -> Option<&str> {
    step.split_once("/steps/").map(|(parent, _)| parent)
}
