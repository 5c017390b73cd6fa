//! The executions that this process owns: those in memory, what is loaded and when, and what their parts send each other.

pub(crate) mod budget_waits;
pub(crate) mod driven;
mod limit_reviews;
pub(crate) mod limit_turns;
mod loading;
pub(crate) mod messages;
pub(crate) mod namespace_usage;
pub(crate) mod ownership;
pub(crate) mod queue;
pub(crate) mod registry;
pub(crate) mod schedule_changes;
mod startup;
pub(crate) mod steps_in_memory;
pub(crate) mod timers;
pub(crate) mod wake_ups;
