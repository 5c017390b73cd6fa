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
    /// Wake-ups that the journal does not have.
    own: Mutex<BinaryHeap<Reverse<(i64, ExecutionKey)>>>,
    /// When the next look is, in microseconds since the Unix epoch; the end of time while the next one is being determined.
    pub(crate) next_look: AtomicI64,
    /// Everything due by then was read from the journal.
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

    /// Loads an execution at `wake_at`. `is_stored` when the journal has this time, or an earlier one, and all executions in it are driven here. All
    /// times are in microseconds since the Unix epoch.
    pub(crate) fn set(&self, now: i64, wake_at: i64, key: ExecutionKey, is_stored: bool) {
        // The journal is not read again for a time that has been looked at.
        if !is_stored || wake_at <= self.read_until.load(Ordering::SeqCst) {
            self.own.lock().unwrap_or_else(PoisonError::into_inner).push(Reverse((wake_at, key)));
        }
        let next_look = self.next_look.load(Ordering::SeqCst);
        // A look that is overdue was missed: the clock was set forward after it was determined.
        if (wake_at < next_look || next_look <= now) && !is_planted(Defect::LostWakeUp) {
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

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    /// Whether a timer for 100 causes a look when it is 50 and the next look was to be at `next_look`.
    fn causes_a_look(next_look: i64) -> bool {
        let timers = WakeUps::new();
        timers.next_look.store(next_look, Ordering::SeqCst);
        timers.set(50, 100, ExecutionKey(1), true);
        pin!(timers.changed.notified()).enable()
    }

    #[test]
    fn a_timer_before_the_next_look_or_after_a_missed_one_causes_a_look() {
        assert_eq!([49, 50, 51, 100, 101].map(causes_a_look), [true, true, false, false, true]);
    }
}
