//! The memory that feeds take for watchers and readers: counted while it is held, and given up in rounds.

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

/// The memory of all feeds of a process.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Bytes of transitions and output for watchers.
    recent: AtomicUsize,
    /// Bytes of committed events that no reader has applied yet.
    pending: AtomicUsize,
    /// The number of the current round.
    round: AtomicU64,
}

/// The kinds of memory that are counted.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Recent,
    Pending,
}

impl Memory {
    /// The number of the current round of giving up what is not needed. Rounds stand for time: what was not used for two of them goes.
    pub(super) fn round(&self) -> u64 {
        self.round.load(Ordering::Relaxed)
    }

    /// Begins the next round, and returns its number.
    pub(super) fn next_round(&self) -> u64 {
        self.round.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A share in the bytes of transitions and output for watchers.
    pub(super) fn recent(self: &Arc<Self>) -> Share {
        Share { own: 0, memory: Arc::clone(self), kind: Kind::Recent }
    }

    /// A share in the bytes of events that no reader has applied yet.
    pub(super) fn pending(self: &Arc<Self>) -> Share {
        Share { own: 0, memory: Arc::clone(self), kind: Kind::Pending }
    }

    fn total(&self, kind: Kind) -> &AtomicUsize {
        match kind {
            Kind::Recent => &self.recent,
            Kind::Pending => &self.pending,
        }
    }
}

/// A share in a total of bytes. What is dropped is subtracted.
#[derive(Debug)]
pub(super) struct Share {
    own: usize,
    memory: Arc<Memory>,
    kind: Kind,
}

impl Share {
    /// The bytes of this share.
    pub(super) fn own(&self) -> usize {
        self.own
    }

    /// The bytes of all shares of this kind.
    pub(super) fn of_all(&self) -> usize {
        self.memory.total(self.kind).load(Ordering::Relaxed)
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.own += bytes;
        self.memory.total(self.kind).fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn subtract(&mut self, bytes: usize) {
        let bytes = bytes.min(self.own);
        self.own -= bytes;
        self.memory.total(self.kind).fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(super) fn clear(&mut self) {
        self.subtract(self.own);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.clear();
    }
}
