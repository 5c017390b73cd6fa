//! Upkeep beside executions: retention, deletions and webhooks.

pub(crate) mod deletion_rounds;
pub(crate) mod deletions;
pub(crate) mod retention;
pub(crate) mod webhooks;
