//! The times at which parked executions are to be loaded, as far as the journal cannot tell.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
};

use belay_defects::{Defect, is_planted};
use belay_journal::ExecutionKey;
use tokio::sync::Notify;

/// When to look for executions that are due.
pub(crate) struct WakeUps {
    /// WakeUps that the journal does not have.
    own: Mutex<BinaryHeap<Reverse<(i64, ExecutionKey)>>>,
    /// When the next look is, in microseconds since the Unix epoch; the end of time while the next one is being determined.
    pub(crate) next_look: AtomicI64,
    /// What is due by then was read from the journal.
    pub(crate) read_until: AtomicI64,
    pub(crate) changed: Notify,
}

impl WakeUps {
    pub(crate) fn new() -> Self {
        Self {
            own: Mutex::default(),
            next_look: AtomicI64::new(i64::MAX),
            read_until: AtomicI64::new(i64::MIN),
            changed: Notify::new(),
        }
    }

    /// Loads an execution at `wake_at`, in microseconds since the Unix epoch. `is_stored` when the journal has this time, or an earlier
    /// one, and all executions in it are driven here.
    pub(crate) fn set(&self, wake_at: i64, key: ExecutionKey, is_stored: bool) {
        // The journal is not read again for a time that has been looked at.
        if !is_stored || wake_at <= self.read_until.load(Ordering::SeqCst) {
            self.own.lock().unwrap_or_else(PoisonError::into_inner).push(Reverse((wake_at, key)));
        }
        if wake_at < self.next_look.load(Ordering::SeqCst) && !is_planted(Defect::LostWakeUp) {
            self.changed.notify_one();
        }
    }

    /// The journal has to be read from now on.
    pub(crate) fn look_now(&self) {
        self.changed.notify_one();
    }

    /// Removes and returns the timers that the journal does not have and that are due, and returns the time of the next one.
    pub(crate) fn take_own(&self, now: i64) -> (Vec<ExecutionKey>, Option<i64>) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = Vec::new();
        while let Some(&Reverse((_, key))) = own.peek().filter(|Reverse((at, _))| *at <= now) {
            own.pop();
            due.push(key);
        }
        (due, own.peek().map(|Reverse((at, _))| *at))
    }
}
