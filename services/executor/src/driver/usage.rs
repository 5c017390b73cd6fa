//! A driver's knowledge of the budget of its namespace.

use belay_defects::{Defect, is_planted};
use belay_execution::{Execution, NamespaceHolds, Timestamp};
use tokio::sync::watch;

use crate::owned::{namespace_usage::PendingUsage, registry::ExecutionRegistry};

/// A driver's knowledge of the budget of its namespace.
pub(super) struct Usage {
    /// Amounts that are decided and not stored; `None` when the namespace has no budget.
    pub(super) pending: Option<PendingUsage>,
    /// Amounts that its calls in flight hold, including those of a budget that the namespace no longer has.
    pub(super) holds: NamespaceHolds,
    /// Signals that something may have become free.
    pub(super) changes: Option<watch::Receiver<()>>,
    /// When the window ends in which calls in flight hold what the execution waits for.
    pub(super) waits_until: Option<Timestamp>,
}

impl Usage {
    pub(super) fn of(registry: &ExecutionRegistry, namespace: &str, execution: &Execution) -> Self {
        let pending = registry.budgets.of(namespace).map(PendingUsage::new);
        let changes = pending.as_ref().map(|pending| pending.account().changes());
        let holds = match is_planted(Defect::NamespaceHoldsForgotten) {
            true => NamespaceHolds::default(),
            false => NamespaceHolds::of(execution),
        };
        Self { pending, holds, changes, waits_until: None }
    }

    /// Whether the execution waits for what calls in flight hold.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits_until.is_some()
    }

    /// Returns when something may have become free.
    pub(super) async fn changed(&mut self) {
        let is_over = match &mut self.changes {
            Some(changes) => changes.changed().await.is_err(),
            None => true,
        };
        if is_over {
            std::future::pending().await
        }
    }
}
