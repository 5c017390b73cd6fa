//! The last rows of executions, in memory.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use belay_journal::ExecutionKey;

/// The last row of an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) row: i64,
    pub(crate) last_sequence: u64,
    /// How many rows it has.
    pub(crate) rows: u64,
}

impl Head {
    /// The last sequence of an execution whose last row is damaged: no transition follows it. A number that a column can hold.
    pub(crate) const DAMAGED: u64 = i64::MAX as u64;
}

pub(crate) type Heads = Arc<RwLock<HashMap<ExecutionKey, Head>>>;
