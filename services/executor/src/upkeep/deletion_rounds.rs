//! Rounds of the task that completes deletions: what wakes it, and how far it is.

use tokio::sync::{Notify, watch};

/// The rounds of the task that completes deletions.
pub(crate) struct DeletionRounds {
    wake: Notify,
    /// How many rounds have ended.
    ended: watch::Sender<u64>,
}

impl DeletionRounds {
    pub(crate) fn new() -> Self {
        Self { wake: Notify::new(), ended: watch::Sender::new(0) }
    }

    /// There is a deletion to complete.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Returns when there is a deletion to complete.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Some deletions may have been completed.
    pub(crate) fn ended_round(&self) {
        self.ended.send_modify(|rounds| *rounds += 1);
    }

    /// Changes whenever some deletions may have been completed.
    pub(crate) fn rounds(&self) -> watch::Receiver<u64> {
        self.ended.subscribe()
    }
}
