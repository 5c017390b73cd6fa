//! Where the blocking work of calls runs: a lane for each kind, so that no kind waits for another, and no number of calls takes a thread
//! each.

use belay_sqlite::{Lane, Threads};

/// Slots for work that takes microseconds: resolving paths, beginning views.
const QUICK: usize = 32;
/// Slots for opening workspaces and bringing them onto the disk, which waits for the disk.
const OPENS: usize = 16;
/// Slots for what tools do in their views.
const TOOLS: usize = 64;
/// Slots for examining, staging and dropping what calls changed: it waits for the disk, which serves many at once best.
const EFFECTS: usize = 64;
/// Slots for commits, of which each workspace has one at a time.
const COMMITS: usize = 32;

/// The lanes of a runner.
#[derive(Clone, Debug)]
pub(crate) struct Lanes {
    /// Resolving paths, beginning views.
    pub(crate) quick: Lane,
    /// Opening workspaces, and bringing them onto the disk.
    pub(crate) opens: Lane,
    /// What tools do in their views.
    pub(crate) tools: Lane,
    /// Examining, staging and dropping what calls changed.
    pub(crate) effects: Lane,
    /// Putting effects in place, and clearing up after it.
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
