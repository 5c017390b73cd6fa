//! Loads parked executions when they are due.
//!
//! The journal has the time of every parked execution, in an index. Memory has only what the journal cannot tell: the timers of executions
//! whose time is ahead of the clock, and, while this process drives only what it was asked to, those of the executions that it drives.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use belay_journal::{ExecutionKey, Position, StoreError};
use tokio::sync::Notify;

use crate::registry::ExecutionRegistry;

/// How many due executions are read at once.
const PAGE: usize = 256;

/// The delay before reading due executions again when the store could not be read, in microseconds.
const REREAD_AFTER_MICROS: i64 = 1_000_000;

/// The longest wait between two looks.
const MAX_WAIT: Duration = Duration::from_secs(3600);

/// The spacing between executions that are loaded because the clock was set back, so that they do not delay others.
const RECHECK_SPACING: Duration = Duration::from_millis(5);

/// When to look for executions that are due.
pub(crate) struct Timers {
    /// Timers that the journal does not have.
    own: Mutex<BinaryHeap<Reverse<(i64, ExecutionKey)>>>,
    /// When the next look is, in microseconds since the Unix epoch; the end of time while the next one is being determined.
    next_look: AtomicI64,
    /// What is due by then was read from the journal.
    read_until: AtomicI64,
    changed: Notify,
}

impl Timers {
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
        if wake_at < self.next_look.load(Ordering::SeqCst) {
            self.changed.notify_one();
        }
    }

    /// The journal has to be read from now on.
    pub(crate) fn look_now(&self) {
        self.changed.notify_one();
    }

    /// Removes and returns the timers that the journal does not have and that are due, and returns the time of the next one.
    fn take_own(&self, now: i64) -> (Vec<ExecutionKey>, Option<i64>) {
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let mut due = Vec::new();
        while let Some(&Reverse((_, key))) = own.peek().filter(|Reverse((at, _))| *at <= now) {
            own.pop();
            due.push(key);
        }
        (due, own.peek().map(|Reverse((at, _))| *at))
    }
}

/// Loads parked executions when they are due, until the service stops.
pub(crate) async fn wake_in_time(registry: Weak<ExecutionRegistry>) {
    let mut read = Position::START;
    loop {
        let Some(this) = registry.upgrade() else { return };
        let timers = &this.timers;
        // From here on, every new timer causes another look.
        timers.next_look.store(i64::MAX, Ordering::SeqCst);
        let now = this.clock.now_micros();
        let (due, mut next) = timers.take_own(now);
        for key in due {
            match this.reads.read(move |reader| reader.get(key)).await {
                Ok(Some(row)) if !row.summary.ended => this.load(row),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "A due execution cannot be read; retrying");
                    timers.set(now + REREAD_AFTER_MICROS, key, false);
                }
            }
        }
        if this.drives_all() {
            timers.read_until.store(now, Ordering::SeqCst);
            let stored = match load_due(&this, &mut read, now).await {
                Ok(()) => this.reads.read(move |reader| reader.next_wake(now)).await,
                Err(error) => Err(error),
            };
            let stored = stored.unwrap_or_else(|error| {
                tracing::error!(%error, "The executions that are due cannot be read; retrying");
                Some(now + REREAD_AFTER_MICROS)
            });
            next = next.into_iter().chain(stored).min();
        }
        timers.next_look.store(next.unwrap_or(i64::MAX), Ordering::SeqCst);
        let wait = next.map_or(MAX_WAIT, |next| Duration::from_micros(u64::try_from(next - now).unwrap_or(0)));
        let shutdown = this.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = timers.changed.notified() => {}
            () = tokio::time::sleep(wait.min(MAX_WAIT)) => {}
        }
    }
}

/// Loads the executions that the journal has as due by `now`, from the last one read on.
async fn load_due(registry: &Arc<ExecutionRegistry>, read: &mut Position, now: i64) -> Result<(), StoreError> {
    loop {
        let after = *read;
        let due = registry.reads.read(move |reader| reader.due(after, now, PAGE)).await?;
        let count = due.len();
        for row in due {
            *read = Position { time: row.summary.wake_at.unwrap_or(after.time), key: row.key };
            registry.load(row);
        }
        if count < PAGE {
            return Ok(());
        }
    }
}

/// Loads the parked executions whose last event is in the future: the clock was set back before the executor started. Their drivers
/// continue from the time of the last event, so that no wait gets longer.
pub(crate) async fn recheck_after_set_back(registry: Weak<ExecutionRegistry>) {
    let mut read = Position::START;
    loop {
        let Some(this) = registry.upgrade() else { return };
        let after = read.max(Position::after(this.clock.now_micros()));
        let parked = match this.reads.read(move |reader| reader.parked_since(after, PAGE)).await {
            Ok(parked) => parked,
            Err(error) => {
                tracing::error!(%error, "The executions that wait for a time cannot be read; retrying");
                drop(this);
                tokio::time::sleep(Duration::from_micros(REREAD_AFTER_MICROS.unsigned_abs())).await;
                continue;
            }
        };
        let shutdown = this.shutdown.clone();
        drop(this);
        if parked.is_empty() {
            return;
        }
        for row in parked {
            read = Position { time: row.summary.updated_at, key: row.key };
            let Some(this) = registry.upgrade() else { return };
            this.load(row);
            drop(this);
            tokio::select! {
                biased;
                () = shutdown.requested() => return,
                () = tokio::time::sleep(RECHECK_SPACING) => {}
            }
        }
    }
}
