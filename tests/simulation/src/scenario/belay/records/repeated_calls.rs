//! Calls that the attacker has made again.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The calls that were made again, which the runner may know again although they are over. Clones share their state.
#[derive(Clone, Default)]
pub(in super::super) struct RepeatedCalls(Arc<Mutex<BTreeSet<String>>>);

impl RepeatedCalls {
    pub(in super::super) fn add(&self, call: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(call.to_owned());
    }

    pub(in super::super) fn contains(&self, call: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(call)
    }
}
