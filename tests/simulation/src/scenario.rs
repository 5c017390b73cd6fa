//! The scenarios: each builds a world from a seed, runs it, and checks it.

pub mod append_log;
pub mod belay;
pub mod randomness;

/// A simulation with a name.
#[derive(Debug, Clone, Copy)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// Runs one seed; `Err` has the violations.
    pub run: fn(seed: u64) -> Result<(), String>,
    /// The expected result.
    pub expect: Expect,
}

/// The result that the seeds of a scenario must show.
#[derive(Debug, Clone, Copy)]
pub enum Expect {
    /// Every seed passes, and each of these counters of [`crate::trace`] is above 0 over all seeds, because a simulation in which nothing happens
    /// proves nothing.
    Holds {
        /// How many seeds the ordinary suite runs; up to five times as many where a counter is still 0.
        seeds: u64,
        /// The counters' names.
        counted: &'static [&'static str],
    },
    /// A bug is planted: within this many seeds, one fails with a violation that contains `violation`.
    Found {
        /// A part of the violation.
        violation: &'static str,
        /// The seed that found it last, which is tried before all others.
        first: u64,
        /// How many seeds it may take.
        within: u64,
    },
}
