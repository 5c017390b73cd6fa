//! When the ledger deletes rows of acknowledged calls.
//!
//! A row is deleted once the executor has stored the call's outcome and, if the call committed an effect, once that effect is synced to
//! disk: until then recovery after a power loss needs the row to redo the effect. Deletes have no transaction of their own: they go with
//! the next commit of the ledger, after [`MAX_DELAY`], or when `max_pending` rows have accumulated. A delete that is lost leaves a row
//! behind and does no other harm.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{Ledger, LedgerFailure, lock::lock};

/// How long deletes wait for a commit to go with.
const MAX_DELAY: Duration = Duration::from_secs(5);

pub(crate) struct Acknowledgements {
    ledger: Arc<Ledger>,
    /// Flush as soon as this many deletes are pending.
    max_pending: usize,
    pending_sync: Mutex<PendingSync>,
    /// Whether a task that flushes after [`MAX_DELAY`] is scheduled.
    flush_scheduled: AtomicBool,
}

/// Committed calls whose effects may not be synced to disk yet, each with whether the executor has acknowledged it.
#[derive(Debug, Default)]
struct PendingSync(HashMap<String, bool>);

impl PendingSync {
    /// Marks calls as acknowledged; returns those whose rows can be deleted now.
    fn acknowledge(&mut self, names: Vec<String>) -> Vec<String> {
        let deletable = |name: &String| match self.0.get_mut(name) {
            Some(acknowledged) => {
                *acknowledged = true;
                false
            }
            None => true,
        };
        names.into_iter().filter(deletable).collect()
    }

    /// Removes calls whose effects are synced; returns those whose rows can be deleted now.
    fn remove_synced(&mut self, names: Vec<String>) -> Vec<String> {
        names.into_iter().filter(|name| self.0.remove(name) == Some(true)).collect()
    }

    /// Whether the call is acknowledged, but its effect may not be synced yet.
    fn is_waiting(&self, name: &str) -> bool {
        self.0.get(name) == Some(&true)
    }

    /// Whether it has calls whose names begin so.
    fn has(&self, prefix: &str) -> bool {
        self.0.keys().any(|name| name.starts_with(prefix))
    }
}

impl Acknowledgements {
    pub(crate) fn new(ledger: Arc<Ledger>, max_pending: usize) -> Arc<Self> {
        Arc::new(Self { ledger, max_pending, pending_sync: Mutex::default(), flush_scheduled: AtomicBool::new(false) })
    }

    fn pending_sync(&self) -> MutexGuard<'_, PendingSync> {
        lock(&self.pending_sync)
    }

    /// The row that commits an effect was written; it stays until [`Self::synced`].
    pub(crate) fn committed(&self, name: &str) {
        self.pending_sync().0.insert(name.to_owned(), false);
    }

    /// The effects of these calls are synced to disk, or were reverted.
    pub(crate) fn synced(self: &Arc<Self>, names: Vec<String>) {
        let deletable = self.pending_sync().remove_synced(names);
        self.delete_later(deletable);
    }

    /// The executor has stored the outcomes of these calls.
    pub(crate) fn acknowledge(self: &Arc<Self>, names: Vec<String>) {
        let deletable = self.pending_sync().acknowledge(names);
        self.delete_later(deletable);
    }

    /// Whether the call is acknowledged, but its row cannot be deleted yet.
    pub(crate) fn is_waiting_for_sync(&self, name: &str) -> bool {
        self.pending_sync().is_waiting(name)
    }

    /// Whether effects of calls whose names begin so may not be synced to disk yet.
    pub(crate) fn has_unsynced(&self, prefix: &str) -> bool {
        self.pending_sync().has(prefix)
    }

    fn delete_later(self: &Arc<Self>, names: Vec<String>) {
        if names.is_empty() {
            return;
        }
        let flush_now = self.ledger.delete_later(names) >= self.max_pending;
        if !flush_now && self.flush_scheduled.swap(true, Ordering::SeqCst) {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            if !flush_now {
                tokio::time::sleep(MAX_DELAY).await;
                this.flush_scheduled.store(false, Ordering::SeqCst);
            }
            if let Err(error) = this.flush().await {
                tracing::warn!(%error, "Cannot delete acknowledged calls from the ledger; they stay until the next write succeeds");
            }
        });
    }

    /// Deletes the pending rows now.
    pub(crate) async fn flush(&self) -> Result<(), LedgerFailure> {
        if self.ledger.has_pending_deletes() { self.ledger.flush_deletes().await } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// S2-NFR-005.
    #[test]
    fn a_row_is_deleted_once_acknowledged_and_synced_in_either_order() {
        let mut pending = PendingSync::default();
        for name in ["a", "b"] {
            pending.0.insert(name.into(), false);
        }
        assert_eq!(pending.acknowledge(names(&["a", "c"])), ["c"], "c committed no effect");
        assert_eq!(pending.remove_synced(names(&["a", "b"])), ["a"]);
        assert_eq!(pending.acknowledge(names(&["b"])), ["b"]);
        assert_eq!(pending.remove_synced(names(&["a", "b"])), Vec::<String>::new());
    }

    #[test]
    fn an_effect_that_may_not_be_on_the_disk_is_known_until_it_is() {
        let mut pending = PendingSync::default();
        pending.0.insert("e/steps/a".into(), false);
        assert_eq!((pending.has("e/"), pending.has("f/"), pending.is_waiting("e/steps/a")), (true, false, false));
        pending.acknowledge(names(&["e/steps/a"]));
        assert_eq!((pending.has("e/"), pending.is_waiting("e/steps/a")), (true, true));
        pending.remove_synced(names(&["e/steps/a"]));
        assert_eq!((pending.has("e/"), pending.is_waiting("e/steps/a")), (false, false));
    }
}
