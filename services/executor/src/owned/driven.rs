//! The executions that have a driver.

use std::{
    collections::HashSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use belay_journal::ExecutionKey;

/// The executions that have a driver, as far as this process knows.
#[derive(Debug, Default)]
pub(crate) struct Driven {
    /// Whether every execution in the store has one.
    all: AtomicBool,
    /// Executions that this process has driven since its start and that have not ended, in memory or not; not kept when all are driven.
    own: Mutex<HashSet<ExecutionKey>>,
}

impl Driven {
    /// Every execution in the store.
    pub(crate) fn all() -> Self {
        Self { all: AtomicBool::new(true), ..Self::default() }
    }

    /// Whether every execution in the store has a driver.
    pub(crate) fn has_all(&self) -> bool {
        self.all.load(Ordering::SeqCst)
    }

    /// Whether an execution has one.
    pub(crate) fn has(&self, key: ExecutionKey) -> bool {
        self.has_all() || self.lock().contains(&key)
    }

    /// Whether an execution is one of those that are named, which is none where all are driven.
    pub(crate) fn names(&self, key: ExecutionKey) -> bool {
        self.lock().contains(&key)
    }

    /// Records that an execution has one. Returns whether that is new.
    pub(crate) fn add(&self, key: ExecutionKey) -> bool {
        !self.has_all() && self.lock().insert(key)
    }

    /// Records that every execution has one.
    pub(crate) fn add_all(&self) {
        self.all.store(true, Ordering::SeqCst);
        self.lock().clear();
    }

    /// Records that an execution has ended.
    pub(crate) fn remove(&self, key: ExecutionKey) {
        self.lock().remove(&key);
    }

    /// The executions that are named.
    pub(crate) fn named(&self) -> Vec<ExecutionKey> {
        self.lock().iter().copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<ExecutionKey>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
