//! The feed of changes from the store's writer to the watchers.
//!
//! Only revisions of deleted approvals are missing, so a watcher that is close behind gets every change from memory. A watcher that is far behind, or has just begun,
//! reads the store, and gets each approval in its current state.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use belay_proto::v1::Approval;
use tokio::sync::watch;

/// The number of changes kept in memory for watchers that are close behind.
const MAX_RECENT: usize = 1024;

/// The latest committed changes.
#[derive(Debug)]
pub(crate) struct ChangeFeed {
    recent: Mutex<VecDeque<Arc<Approval>>>,
    head: watch::Sender<Head>,
}

/// A summary of the store, without reading it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The last committed revision; 0 when there is no approval.
    pub(crate) revision: i64,
    /// When the next pending approval expires, in microseconds since the Unix epoch.
    pub(crate) next_expiry: Option<i64>,
}

impl ChangeFeed {
    pub(crate) fn new(head: Head) -> Self {
        Self { recent: Mutex::default(), head: watch::Sender::new(head) }
    }

    /// Publishes a commit; `changes` are in the order of their revisions.
    pub(crate) fn publish(&self, changes: Vec<Approval>, head: Head) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.extend(changes.into_iter().map(Arc::new));
        let surplus = recent.len().saturating_sub(MAX_RECENT);
        recent.drain(..surplus);
        self.head.send_if_modified(|last| std::mem::replace(last, head) != head);
    }

    /// Drops the changes of approvals that are deleted; to be called before their last changes are published.
    pub(crate) fn forget(&self, executions: &[String]) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|change| !executions.contains(&change.execution));
    }

    /// Follows the commits.
    pub(crate) fn follow(&self) -> watch::Receiver<Head> {
        self.head.subscribe()
    }

    /// The changes after a revision, if all of them are in memory.
    pub(crate) fn after(&self, revision: i64) -> Option<Vec<Arc<Approval>>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.front().filter(|first| first.revision <= revision + 1)?;
        let from = recent.partition_point(|change| change.revision <= revision);
        Some(recent.range(from..).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_from_memory_only_when_all_are_there() {
        let feed = ChangeFeed::new(Head { revision: 5, next_expiry: None });
        let follower = feed.follow();
        let publish = |revisions: std::ops::RangeInclusive<i64>| {
            let head = Head { revision: *revisions.end(), next_expiry: None };
            feed.publish(revisions.map(|revision| Approval { revision, ..Approval::default() }).collect(), head);
        };
        let after = |revision| {
            feed.after(revision).map(|changes| changes.iter().map(|change| change.revision).collect::<Vec<_>>())
        };
        assert_eq!(after(5), None, "changes of an earlier process are in the store");
        publish(6..=8);
        assert_eq!((after(4), after(5), after(7), after(8)), (None, Some(vec![6, 7, 8]), Some(vec![8]), Some(vec![])));
        assert_eq!(follower.borrow().revision, 8);
        (9..=2000).for_each(|revision| publish(revision..=revision));
        assert_eq!((after(2000 - 1025), after(1998)), (None, Some(vec![1999, 2000])));
        assert_eq!(after(2000 - 1024).unwrap().len(), 1024);
    }
}
