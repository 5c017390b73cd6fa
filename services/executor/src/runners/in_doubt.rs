//! Counts the calls whose end is not known after the loss of a process.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

/// How many calls an earlier process may have sent whose end is not known yet.
#[derive(Debug, Default)]
pub(crate) struct CallsInDoubt(Arc<AtomicUsize>);

/// A call in doubt, until this is dropped.
#[derive(Debug)]
pub(crate) struct InDoubt(Arc<AtomicUsize>);

impl CallsInDoubt {
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self) -> InDoubt {
        self.0.fetch_add(1, Ordering::Relaxed);
        InDoubt(Arc::clone(&self.0))
    }
}

impl Drop for InDoubt {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
