//! What runs: each scenario builds a world from a seed, runs it, and checks it.

pub mod append_log;
pub mod belay;
pub mod randomness;

/// A simulation with a name.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// Runs one seed; `Err` says what was violated.
    pub run: fn(seed: u64) -> Result<(), String>,
    /// What its seeds must show.
    pub expect: Expect,
}

/// What the seeds of a scenario must show.
#[derive(Debug, Clone, Copy)]
pub enum Expect {
    /// Every seed passes, and over all of them each of these counters of [`crate::trace`] was counted: a simulation in which
    /// nothing happens proves nothing.
    Holds {
        /// How many seeds the ordinary suite runs.
        seeds: u64,
        /// The counters' names.
        counted: &'static [&'static str],
    },
    /// A bug was planted: within this many seeds one fails with a text that contains `violation`.
    Found {
        /// A part of the violation.
        violation: &'static str,
        /// How many seeds it may take.
        within: u64,
    },
}
