//! Decisions about executions that another executor may own.

use std::collections::{BTreeMap, HashMap};

use belay_journal::ExecutionKey;

use crate::owned::messages::Delivery;

/// Decisions that stay undelivered, and are kept in case this executor takes over their executions.
#[derive(Default)]
pub(crate) struct UnownedDecisions {
    /// This executor drives every execution in the store.
    none: bool,
    /// By execution, then by the approval's name.
    kept: HashMap<ExecutionKey, BTreeMap<String, Delivery>>,
}

impl UnownedDecisions {
    /// Returns the decision when this executor drives its execution, else keeps it.
    pub(crate) fn keep(&mut self, key: ExecutionKey, driven: bool, delivery: Delivery) -> Option<Delivery> {
        if self.none || driven {
            return Some(delivery);
        }
        self.kept.entry(key).or_default().insert(delivery.approval.name.clone(), delivery);
        None
    }

    /// Removes and returns the decisions kept for an execution that this executor drives from now on.
    pub(crate) fn claim(&mut self, key: ExecutionKey) -> Vec<Delivery> {
        self.kept.remove(&key).unwrap_or_default().into_values().collect()
    }

    /// This executor drives every execution from now on: removes and returns all decisions kept.
    pub(crate) fn claim_all(&mut self) -> Vec<Delivery> {
        self.none = true;
        std::mem::take(&mut self.kept).into_values().flat_map(BTreeMap::into_values).collect()
    }
}
