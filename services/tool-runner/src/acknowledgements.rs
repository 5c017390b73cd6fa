//! Which rows of the ledger may go, and when they do.
//!
//! A row may go when the executor has stored what it says, and, if it put an effect in place, when that is on the disk for good: until
//! then the row is what brings the effect back after a loss of power. Rows that may go have no commit of their own: they go with the next
//! one there is, or after a while, or when they are many. What is lost here costs a row and nothing more.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::{Ledger, LedgerFailure};

/// How long rows that may go wait for a commit to go with.
const WAITS: Duration = Duration::from_secs(5);

pub(crate) struct Acknowledgements {
    ledger: Arc<Ledger>,
    /// How many rows wait for a commit to go with at most.
    max_waiting: usize,
    unsettled: Mutex<Unsettled>,
    /// Somebody sees to it that the rows that may go do not wait for too long.
    attended: AtomicBool,
}

/// Calls whose rows say that their effects are in place, which may not be on the disk. With each, whether it was acknowledged.
#[derive(Debug, Default)]
struct Unsettled(HashMap<String, bool>);

impl Unsettled {
    /// Those of which the rows may go now.
    fn acknowledged(&mut self, names: Vec<String>) -> Vec<String> {
        let may_go = |name: &String| match self.0.get_mut(name) {
            Some(acknowledged) => {
                *acknowledged = true;
                false
            }
            None => true,
        };
        names.into_iter().filter(may_go).collect()
    }

    /// Those of which the rows may go now.
    fn settled(&mut self, names: Vec<String>) -> Vec<String> {
        names.into_iter().filter(|name| self.0.remove(name) == Some(true)).collect()
    }
}

impl Acknowledgements {
    pub(crate) fn new(ledger: Arc<Ledger>, max_waiting: usize) -> Arc<Self> {
        Arc::new(Self { ledger, max_waiting, unsettled: Mutex::default(), attended: AtomicBool::new(false) })
    }

    fn unsettled(&self) -> MutexGuard<'_, Unsettled> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A row was written that says that an effect is in place. It stays until that is settled.
    pub(crate) fn committed(&self, name: &str) {
        self.unsettled().0.insert(name.to_owned(), false);
    }

    /// Nothing is left to be done for the effects of these calls: they are on the disk for good, or were taken back.
    pub(crate) fn settled(self: &Arc<Self>, names: Vec<String>) {
        let may_go = self.unsettled().settled(names);
        self.let_go(may_go);
    }

    /// The executor has stored the outcomes of these calls.
    pub(crate) fn acknowledged(self: &Arc<Self>, names: Vec<String>) {
        let may_go = self.unsettled().acknowledged(names);
        self.let_go(may_go);
    }

    /// Whether a call was acknowledged whose row has to stay.
    pub(crate) fn holds(&self, name: &str) -> bool {
        self.unsettled().0.get(name) == Some(&true)
    }

    fn let_go(self: &Arc<Self>, names: Vec<String>) {
        if names.is_empty() {
            return;
        }
        let many = self.ledger.let_go(names) >= self.max_waiting;
        if !many && self.attended.swap(true, Ordering::SeqCst) {
            return;
        }
        let this = Arc::clone(self);
        tokio::spawn(async move {
            if !many {
                tokio::time::sleep(WAITS).await;
                this.attended.store(false, Ordering::SeqCst);
            }
            if let Err(error) = this.write().await {
                tracing::warn!(%error, "Acknowledged calls stay in the ledger until it can be written");
            }
        });
    }

    /// Has the rows go that may.
    pub(crate) async fn write(&self) -> Result<(), LedgerFailure> {
        if self.ledger.has_let_go() { self.ledger.write_let_go().await } else { Ok(()) }
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
    fn a_row_goes_when_it_is_acknowledged_and_settled_in_either_order() {
        let mut unsettled = Unsettled::default();
        for name in ["a", "b"] {
            unsettled.0.insert(name.into(), false);
        }
        assert_eq!(unsettled.acknowledged(names(&["a", "c"])), ["c"], "nothing had to be settled of it");
        assert_eq!(unsettled.settled(names(&["a", "b"])), ["a"]);
        assert_eq!(unsettled.acknowledged(names(&["b"])), ["b"]);
        assert_eq!(unsettled.settled(names(&["a", "b"])), Vec::<String>::new());
    }
}
