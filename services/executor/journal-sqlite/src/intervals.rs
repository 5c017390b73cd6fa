//! How much the store writes so that opening and reading stay fast.

/// The intervals of checkpoints and waypoints. They affect only the cost of opening and reading.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// The number of log rows between checkpoints; it bounds how much opening reads.
    pub checkpoint_rows: u64,
    /// The number of an execution's rows between waypoints, at least 1; it bounds how much reading a few events reads.
    pub waypoint_rows: u64,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { checkpoint_rows: 4096, waypoint_rows: 64 }
    }
}
