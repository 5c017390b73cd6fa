//! The sizes and durations at which the executor changes how it goes about something, never what it promises.

use std::time::Duration;

/// Where one way of working ends and another begins. What clients see is the same on both sides of each, which the simulation shows by
/// turning them.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// How many operations one commit of the journal gathers at most.
    pub max_batch: usize,
    /// How many transitions of an execution stay in memory for watchers that are close behind; the others are read from the journal.
    pub max_recent: usize,
    /// How many transitions a watch reads from the journal at once.
    pub watch_page: usize,
    /// How many calls one request acknowledges.
    pub acknowledge_batch: usize,
    /// An execution that waits longer than this leaves memory.
    pub park_after: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            max_batch: belay_sqlite::MAX_BATCH,
            max_recent: 256,
            watch_page: 256,
            acknowledge_batch: 1000,
            park_after: Duration::from_secs(5),
        }
    }
}
