//! Snapshots: the state of a long execution, stored beside its events, so that loading it does not begin with the first event each time.
//!
//! A snapshot is disposable. It is read only by the version that wrote it, and whenever it cannot be used, the events are folded from the first.

use belay_blobs::BlobStore;
use belay_execution::{Event, Execution, NotRestored};
use belay_journal::{Snapshot, StoredExecution};
use thiserror::Error;

use crate::{
    store::{
        blob_secrets::{NotLearned, learn_from_blobs},
        replayed_execution::{ReplayedExecution, shown_bytes},
        secrets::{Sealer, SecretsError},
    },
    wire::{self, DecodeError},
};

/// Whether a snapshot is to be written at event `now`, when the last one was written at event `last` (0 when there is none). `every` is the least
/// number of events between two.
///
/// An execution that leaves memory is going to be loaded. One that stays is loaded only after a crash: its snapshots come at twice the events
/// each time, so that all of them together cost no more than the last.
pub(crate) fn is_due(last: u64, now: u64, leaves_memory: bool, every: u64) -> bool {
    let new = now.saturating_sub(last);
    new >= every.max(1) && (leaves_memory || new >= last)
}

/// Why a snapshot was not used.
#[derive(Debug, Error)]
pub(crate) enum Unusable {
    #[error("its key or its secrets: {0}")]
    Secrets(#[from] SecretsError),
    #[error(transparent)]
    NotLearned(#[from] NotLearned),
    #[error("the events beside it cannot be read: {0}")]
    Undecodable(#[from] DecodeError),
    #[error(transparent)]
    NotRestored(#[from] NotRestored),
    #[error("the events after it do not follow")]
    Misplaced,
}

/// The execution as of its last event, from its snapshot and the events after that. Blocks.
///
/// # Errors
/// Why the snapshot cannot be used; then the events are folded from the first, which also finds what is wrong with them.
pub(crate) fn restore(
    stored: &StoredExecution,
    snapshot: &Snapshot,
    sealer: &Sealer,
    store: &dyn BlobStore,
) -> Result<ReplayedExecution, Unusable> {
    let bytes = shown_bytes(&stored.transitions) + snapshot.content.len();
    let (messages, state, mut secrets) =
        sealer.open_snapshot(&stored.transitions, snapshot, stored.seal_key.as_deref())?;
    let events = wire::to_events(messages, |sequence| stored.facts(sequence)).collect::<Result<Vec<Event>, _>>()?;
    learn_from_blobs(stored, &events, sealer, store, &mut secrets)?;
    let mut events = events.into_iter();
    let first = events.next().ok_or(Unusable::Misplaced)?;
    let mut execution = Execution::restore(first, &state)?;
    if execution.last_sequence() != snapshot.sequence {
        return Err(Unusable::Misplaced);
    }
    for event in events {
        // The rest of the first transition is in the snapshot.
        if event.sequence > snapshot.sequence {
            execution.apply(&event).map_err(NotRestored::from)?;
        }
    }
    Ok(ReplayedExecution { execution, secrets, bytes, snapshot_at: snapshot.sequence, blobs: None })
}

#[cfg(test)]
mod tests {
    use super::is_due;

    #[test]
    fn a_snapshot_comes_when_it_is_worth_it() {
        let due_at = |leaves: bool| {
            let mut last = 0;
            let mut at = Vec::new();
            for now in 1..=10_000 {
                if is_due(last, now, leaves, 1000) {
                    at.push(now);
                    last = now;
                }
            }
            at
        };
        assert_eq!(due_at(false), [1000, 2000, 4000, 8000], "all together cost no more than the last");
        assert_eq!(due_at(true), (1..=10).map(|thousand| thousand * 1000).collect::<Vec<u64>>());
        assert!(!is_due(5000, 5999, true, 1000));
        assert!(is_due(0, 1, true, 0), "at most one for each event");
        assert!(!is_due(7, 7, true, 0));
    }
}
