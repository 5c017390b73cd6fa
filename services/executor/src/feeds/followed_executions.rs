//! Decides, without a store, which message a watcher of all executions receives next, from those that it has received.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use belay_journal::{ExecutionKey, ExecutionRow, Query};
use belay_proto::v1::{self, watch_executions_response::Content};
use prost::Message as _;

use crate::{names::ExecutionName, wire};

/// How many executions are remembered for one watcher. Those beyond it may be sent again without a change.
const MAX_REMEMBERED: usize = 65_536;

/// The last message to a watcher about an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastSent {
    /// It matches, and a message with this hash was sent.
    Matches(u64),
    /// It does not match.
    Removed,
}

/// The executions about which a watcher of those that match a query has received messages.
#[derive(Debug)]
pub(crate) struct FollowedExecutions {
    query: Query,
    sent: HashMap<ExecutionKey, LastSent>,
}

impl FollowedExecutions {
    /// A watcher that has received no message.
    pub(crate) fn new(query: Query) -> Self {
        Self { query, sent: HashMap::new() }
    }

    /// Whether executions of a namespace are followed.
    pub(crate) fn has_namespace(&self, namespace: &str) -> bool {
        self.query.namespace.as_ref().is_none_or(|own| own == namespace)
    }

    /// The message about an execution as it is now; `None` when the watcher knows. `is_new` says that it was created after the watch began.
    pub(crate) fn update_for(&mut self, row: &ExecutionRow, is_new: bool) -> Option<Content> {
        if !self.has_namespace(&row.execution.namespace) {
            return None;
        }
        let before = self.sent.get(&row.key).copied();
        if !self.query.matches(row) {
            self.remember(row.key, LastSent::Removed);
            // One that was created meanwhile and never matched was never sent.
            let is_known = before == Some(LastSent::Removed) || is_new && before.is_none();
            return (!is_known).then(|| removed(&row.execution.namespace, &row.execution.id, false));
        }
        let message = wire::basic(row);
        let mut hasher = DefaultHasher::new();
        message.encode_to_vec().hash(&mut hasher);
        let now = LastSent::Matches(hasher.finish());
        self.remember(row.key, now);
        (before != Some(now)).then_some(Content::Execution(message))
    }

    fn remember(&mut self, key: ExecutionKey, sent: LastSent) {
        if self.sent.len() >= MAX_REMEMBERED && !self.sent.contains_key(&key) {
            self.sent.clear();
        }
        self.sent.insert(key, sent);
    }

    /// Forgets a deleted execution.
    pub(crate) fn deleted(&mut self, key: ExecutionKey, namespace: &str, id: &str) -> Option<Content> {
        self.sent.remove(&key);
        self.has_namespace(namespace).then(|| removed(namespace, id, true))
    }
}

fn removed(namespace: &str, id: &str, deleted: bool) -> Content {
    let name = ExecutionName { namespace: namespace.to_owned(), id: id.to_owned() }.to_string();
    Content::Removed(v1::ExecutionRemoved { name, deleted })
}

#[cfg(test)]
mod tests {
    use belay_journal::{AnyOf, Condition, ExecutionSummary, NewExecution, Order};

    use super::*;

    fn row(key: i64, namespace: &str, state: i32) -> ExecutionRow {
        let execution = NewExecution {
            namespace: namespace.into(),
            id: format!("e{key}"),
            shard: 0,
            created_at: 1,
            plan_id: "p".into(),
            labels: Default::default(),
            principal: "ann".into(),
            request_id: String::new(),
            request_hash: String::new(),
            parent: None,
        };
        let summary = ExecutionSummary { state, ..Default::default() };
        ExecutionRow { key: ExecutionKey(key), execution, summary, revision: 1 }
    }

    fn followed(filter: Vec<AnyOf>) -> FollowedExecutions {
        let query = Query { namespace: Some("n".into()), filter, order: Order::NEWEST_FIRST, after: None, limit: 1 };
        FollowedExecutions::new(query)
    }

    fn is_removed(sent: Option<Content>, was_deleted: bool) -> bool {
        matches!(sent, Some(Content::Removed(removed)) if removed.deleted == was_deleted && removed.name.ends_with("/e1"))
    }

    #[test]
    fn a_change_is_told_once_and_a_repetition_is_not() {
        let mut all = followed(Vec::new());
        assert!(matches!(all.update_for(&row(1, "n", 2), false), Some(Content::Execution(_))));
        assert_eq!(all.update_for(&row(1, "n", 2), false), None);
        assert!(matches!(all.update_for(&row(1, "n", 3), false), Some(Content::Execution(shown)) if shown.state == 3));
        assert_eq!(all.update_for(&row(2, "other", 3), true), None, "of another namespace");
        assert!(is_removed(all.deleted(ExecutionKey(1), "n", "e1"), true));
        assert_eq!(all.deleted(ExecutionKey(2), "other", "e2"), None);
    }

    #[test]
    fn what_leaves_the_filter_is_removed_once() {
        let mut running = followed(vec![AnyOf(vec![Condition::State(true, 2)])]);
        assert!(running.update_for(&row(1, "n", 2), true).is_some());
        assert!(is_removed(running.update_for(&row(1, "n", 5), true), false));
        assert_eq!(running.update_for(&row(1, "n", 6), true), None, "it is known");
        assert!(running.update_for(&row(1, "n", 2), true).is_some(), "it matches again");
        // What is not remembered may have been sent by an earlier watch, unless it was created during this one.
        assert!(is_removed(
            followed(vec![AnyOf(vec![Condition::State(true, 2)])]).update_for(&row(1, "n", 5), false),
            false
        ));
        assert_eq!(running.update_for(&row(3, "n", 5), true), None);
    }

    // B-22: what is remembered for a watcher is bounded.
    #[test]
    fn what_is_remembered_is_bounded() {
        let mut all = followed(Vec::new());
        for key in 0..200_000 {
            assert!(all.update_for(&row(key, "n", 2), false).is_some());
            assert!(all.sent.len() <= MAX_REMEMBERED);
        }
    }
}
