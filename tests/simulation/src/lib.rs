//! Belay under a deterministic simulation: real tonic and real SQLite on turmoil's network, clock and disk.
//!
//! A single `u64` seed determines everything: message delays, faults, torn writes, hash maps, ids. For a seed that fails, the run prints the command
//! that replays it.
//!
//! ```text
//! cargo test -p belay-simulation                                            every scenario: Belay itself with 300 seeds
//! BELAY_SIM_SEEDS=5000 cargo test -p belay-simulation                       more of them
//! BELAY_SIM_SEED=17 cargo test -p belay-simulation -- --exact append_log    one, with every disk operation shown
//! ```
//!
//! | module | purpose |
//! |---|---|
//! | [`entropy`] | `getrandom` of the whole process, from the seed |
//! | [`clock`] | the clock of the whole process, stopped |
//! | [`machine`] | which run of which host is executing, and the state of its power and disk |
//! | `disk` | files that fail, fill up and lose power with their machine |
//! | [`vfs`] | SQLite on the simulated disk |
//! | [`net`] | tonic on the simulated network |
//! | [`fault`] | the schedule of faults, as plain data generated from the seed |
//! | [`kill_points`] | processes that are killed in the middle of a request |
//! | [`world`] | the simulation itself: hosts, clients, and the execution of faults |
//! | [`checker`] | compares what was acknowledged with what is found after a restart |
//! | [`scenario`] | the scenarios |
//! | [`runner`] | one process per seed, replay, the verdict |
//! | [`trace`] | all observations, as lines and as one hash |

mod blob_disk;
pub mod checker;
pub mod clock;
mod disk;
pub mod entropy;
pub mod fault;
pub mod kill_points;
pub mod machine;
pub mod net;
pub mod runner;
pub mod scenario;
pub mod trace;
pub mod vfs;
pub mod world;
