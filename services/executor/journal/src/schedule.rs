//! Schedules, which start executions. The store keeps their rows and knows nothing of what is in them.

/// The row of a schedule. Each write of it has the next revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScheduleRow {
    /// The namespace's id.
    pub namespace: String,
    /// The schedule's id.
    pub id: String,
    /// How often it was written: 1 for a new one.
    pub revision: u64,
    /// The definition, encoded. It never changes.
    pub content: Vec<u8>,
    /// The state, encoded: what was decided, and what has become of it.
    pub state: Vec<u8>,
}
