//! Loads parked executions when they are due.
//!
//! The journal has the time of every parked execution, in an index. Memory has only what the journal cannot tell: the timers of executions
//! whose time is ahead of the clock, and, while this process drives only what it was asked to, those of the executions that it drives.

use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};

use crate::owned::registry::ExecutionRegistry;
use belay_defects::{Defect, is_planted};
use belay_journal::{Position, StoreError};

/// How many due executions are read at once.
const PAGE: usize = 256;

/// The delay before reading due executions again when the store could not be read, in microseconds.
const REREAD_AFTER_MICROS: i64 = 1_000_000;

/// The spacing between executions that are loaded because the clock was set back, so that they do not delay others.
const RECHECK_SPACING: Duration = Duration::from_millis(5);

/// Loads parked executions when they are due, until the service stops.
pub(crate) async fn wake_in_time(registry: Weak<ExecutionRegistry>) {
    let mut read = Position::START;
    if is_planted(Defect::LostTimer)
        && let Some(this) = registry.upgrade()
    {
        read = Position::after(this.reading.clock.now_micros());
    }
    let mut looks = !is_planted(Defect::LateTimer);
    loop {
        let Some(this) = registry.upgrade() else { return };
        let timers = &this.wake_ups;
        // From here on, every new timer causes another look.
        timers.next_look.store(i64::MAX, Ordering::SeqCst);
        let now = this.reading.clock.now_micros();
        let (due, mut next) = timers.take_own(now);
        for key in due {
            match this.reads.read(move |reader| reader.get(key)).await {
                Ok(Some(row)) if !row.summary.ended => this.load(row),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "A due execution cannot be read; retrying");
                    timers.set(now, now + REREAD_AFTER_MICROS, key, false);
                }
            }
        }
        if this.drives_all() && std::mem::replace(&mut looks, true) {
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
        let longest = this.reading.thresholds.longest_sleep;
        let wait = next.map_or(longest, |next| Duration::from_micros(u64::try_from(next - now).unwrap_or(0)));
        let shutdown = this.reading.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = timers.changed.notified() => {}
            () = tokio::time::sleep(wait.min(longest)) => {}
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
        let after = read.max(Position::after(this.reading.clock.now_micros()));
        let parked = match this.reads.read(move |reader| reader.parked_since(after, PAGE)).await {
            Ok(parked) => parked,
            Err(error) => {
                tracing::error!(%error, "The executions that wait for a time cannot be read; retrying");
                drop(this);
                tokio::time::sleep(Duration::from_micros(REREAD_AFTER_MICROS.unsigned_abs())).await;
                continue;
            }
        };
        let shutdown = this.reading.shutdown.clone();
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
