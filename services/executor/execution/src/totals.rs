//! How the steps of an execution ended, counted.

use serde::{Deserialize, Serialize};

/// How many steps there are and how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // named after the states
pub struct Totals {
    pub total: usize,
    pub completed: usize,
    pub failed: usize,
    pub skipped: usize,
    pub cancelled: usize,
}

impl Totals {
    /// Steps that have ended, in whatever state.
    pub fn done(self) -> usize {
        self.completed + self.failed + self.skipped + self.cancelled
    }
}
