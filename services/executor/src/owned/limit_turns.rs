//! The limits over executions that have changed, in which another execution may have its turn.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use belay_defects::{Defect, is_planted};
use tokio::sync::Notify;

/// The limits that have changed: namespaces and keys.
#[derive(Default)]
pub(crate) struct LimitTurns {
    changed: Mutex<BTreeSet<(String, String)>>,
    pub(crate) notify: Notify,
}

impl LimitTurns {
    /// Has the executions look that are next in these limits of a namespace.
    pub(crate) fn review(&self, namespace: &str, keys: impl Iterator<Item = String>) {
        if is_planted(Defect::LimitTurnsForgotten) {
            return;
        }
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.extend(keys.map(|key| (namespace.to_owned(), key)));
        drop(changed);
        self.notify.notify_one();
    }

    pub(crate) fn take(&self) -> BTreeSet<(String, String)> {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
