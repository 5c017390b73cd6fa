//! The thread pools for the blocking work of calls: one lane per kind, so that no kind waits for another, and calls do not take a thread
//! each.

use belay_sqlite::{Lane, Threads};

/// Slots for work of microseconds: resolving paths, creating views.
const QUICK: usize = 32;
/// Slots for opening and syncing workspaces, which waits for the disk.
const OPENS: usize = 16;
/// Slots for tools that work in their views.
const TOOLS: usize = 64;
/// Slots for examining, staging and dropping views: this waits for the disk, which serves concurrent requests best.
const EFFECTS: usize = 64;
/// Slots for commits; each workspace runs one at a time.
const COMMITS: usize = 32;

/// The lanes of a runner.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// Resolving paths, creating views.
    pub(crate) quick: Lane,
    /// Opening and syncing workspaces.
    pub(crate) opens: Lane,
    /// Tools that work in their views.
    pub(crate) tools: Lane,
    /// Examining, staging and dropping views.
    pub(crate) effects: Lane,
    /// Applying effects, and removing the files they replaced.
    pub(crate) commits: Lane,
}

impl Lanes {
    pub(crate) fn new(threads: Threads) -> Self {
        let lane = |slots| Lane::new(threads, slots);
        Self {
            quick: lane(QUICK),
            opens: lane(OPENS),
            tools: lane(TOOLS),
            effects: lane(EFFECTS),
            commits: lane(COMMITS),
        }
    }
}
