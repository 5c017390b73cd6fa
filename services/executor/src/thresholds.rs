//! Sizes and durations at which the executor changes how it works. They never change what clients see.

use std::time::Duration;

/// Thresholds between two ways of working. Clients see the same on both sides; the simulation varies them to show that.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// The maximum number of operations in one commit of the journal.
    pub max_batch: usize,
    /// How many transitions of an execution stay in memory for watchers that are close behind; the others are read from the journal.
    pub max_recent: usize,
    /// How many transitions a watch reads from the journal at once.
    pub watch_page: usize,
    /// How many calls one request acknowledges.
    pub acknowledge_batch: usize,
    /// Values of more bytes than this are blobs.
    pub max_inline: usize,
    /// An execution that waits longer than this leaves memory.
    pub park_after: Duration,
    /// The least number of events between two snapshots of an execution.
    pub snapshot_events: u64,
    /// Whether calls go over a session with the runner, where that has sessions; otherwise each is a request of its own.
    pub session: bool,
    /// The longest sleep until something is due, before the clock is read again. Sleeping goes by the monotonic clock, which knows nothing of a clock that
    /// is set forward, or of the time in which the machine was suspended: by no more than this is an execution late after that.
    pub longest_sleep: Duration,
    /// The interval at which executions that are not kept any more are looked for.
    pub retention_interval: Duration,
    /// The longest delay before a message for a webhook is sent again.
    pub max_message_delay: Duration,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            max_batch: belay_group_commit::MAX_BATCH,
            max_recent: 256,
            watch_page: 256,
            acknowledge_batch: 1000,
            max_inline: belay_proto::payload::MAX_INLINE_BYTES,
            park_after: Duration::from_secs(5),
            // Folding as many takes milliseconds.
            snapshot_events: 1000,
            session: true,
            longest_sleep: Duration::from_secs(30),
            retention_interval: Duration::from_secs(60),
            max_message_delay: Duration::from_secs(600),
        }
    }
}
