//! Committed transitions, in their order, for readers that follow all executions.

use crate::ExecutionKey;

/// A position in the order in which a store's transitions were committed. It stays valid when the store is opened again, whatever was deleted
/// meanwhile, and means nothing in another store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cursor(pub i64);

impl Cursor {
    /// Before the first transition.
    pub const START: Self = Self(0);
}

/// A committed transition, without its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The execution.
    pub key: ExecutionKey,
    /// The sequence of its first event.
    pub first_sequence: u64,
    /// The sequence of its last event.
    pub last_sequence: u64,
}

/// Some transitions in the order in which they were committed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The transitions.
    pub changes: Vec<Change>,
    /// Where the next ones begin.
    pub next: Cursor,
}
