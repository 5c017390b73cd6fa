//! Changes of schedules: made one at a time, and told to the task that fires.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use tokio::sync::{MutexGuard, Notify};

/// The name of a schedule: the ids of its namespace and of itself.
pub(crate) type ScheduleKey = (String, String);

/// The state that the requests for schedules and the task that fires share.
#[derive(Debug, Default)]
pub(crate) struct ScheduleChanges {
    /// Held from the read of a schedule to the write of what follows from it.
    turn: tokio::sync::Mutex<()>,
    changed: Mutex<BTreeSet<ScheduleKey>>,
    notify: Notify,
}

impl ScheduleChanges {
    /// The turn to read a schedule and write it.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Has the task decide about a schedule again.
    pub(crate) fn changed(&self, key: ScheduleKey) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).insert(key);
        self.notify.notify_one();
    }

    /// Takes the schedules that have changed.
    pub(crate) fn take(&self) -> BTreeSet<ScheduleKey> {
        std::mem::take(&mut self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns when one has changed since the last call.
    pub(crate) async fn wait(&self) {
        self.notify.notified().await;
    }
}
