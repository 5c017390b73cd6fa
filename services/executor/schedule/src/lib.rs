//! Schedules: when executions are started, and what follows when they are late, overlap, or the clock jumps. Pure: the time is an argument.
//!
//! A *nominal time* is a time that a schedule names, in whole seconds since the Unix epoch. Each is decided once: [`State::decided`] is the last, and
//! never goes back. A firing starts an execution whose id is derived from the schedule's name and the nominal time ([`Firing::execution_id`]), so that
//! starting it again, after a crash, starts nothing twice. The owner of a schedule stores a decision before it acts on it.
//!
//! - [`Draft::check`] gives a [`Specification`], or an error that names the field.
//! - [`Specification::next_after`] gives the next nominal time.
//! - [`decide`] gives the state that follows: what is to be started, what waits, what is cancelled, and when to look again.

mod backfill;
mod cron;
mod decide;
mod error;
mod firing;
mod local_time;
mod specification;
mod state;

pub use backfill::{MAX_BACKFILL, backfill};
pub use decide::{Decision, MAX_QUEUED, MAX_STARTS, decide};
pub use error::SpecificationError;
pub use firing::{Firing, Origin};
pub use specification::{Draft, MAX_DURATION, MAX_NAME_LEN, MIN_CATCH_UP, Overlap, Specification, check_name};
pub use state::{Outcome, Record, SkipReason, State};
