//! The driver's part in limits over executions: it looks whether it is the execution's turn, and what follows from its events is stored with them.
//!
//! An execution that waits leaves memory. It is woken when the one before it has its turn or has ended, and looks again.

use std::sync::Arc;

use belay_execution::{Actor, Control, LimitRoom, LimitState, Timestamp};
use belay_journal::{ExecutionKey, LimitChange};
use tokio::sync::oneshot;

use super::{
    Driver,
    exit::Exit,
    limits::{frees_at, gives_turns, in_the_way, room, standings},
};
use crate::owned::{messages::Command, registry::ExecutionRegistry};

impl Driver {
    /// Looks whether it is the execution's turn in all of its limits. Those that are in the way of one that waits are cancelled.
    pub(super) async fn limit_room(&mut self) -> Result<LimitRoom, Exit> {
        let now = self.registry.now();
        let (reads, namespace) = (&self.registry.reads, &self.name.namespace);
        let standings = standings(reads, namespace, Some(self.key), &self.limits.claims, now).await;
        let standings = standings.map_err(Exit::Unreadable)?;
        let claims = &self.execution.created().limits;
        let room = room(claims, &standings);
        self.limits.frees_at = frees_at(&standings).filter(|_| room != LimitRoom::Free).map(Timestamp::from_micros);
        // Not before the store knows that it waits: its own place is what makes others older.
        if matches!(self.limits.stored, LimitState::Waiting(_)) {
            for (claim, standing) in claims.iter().zip(standings) {
                let older = in_the_way(claim, standing);
                if !older.is_empty() {
                    let reason = format!("`{}` has the limit `{}` now", self.name.id, claim.key);
                    tokio::spawn(cancel(Arc::clone(&self.registry), older, self.execution_name.clone(), reason));
                }
            }
        }
        Ok(room)
    }

    /// Wakes the executions that may have their turn by these changes. This one looks again if it has begun to wait: an execution in its way may have ended
    /// meanwhile.
    pub(super) fn after_limit_changes(&self, changes: &[LimitChange]) {
        if !changes.is_empty() && matches!(self.limits.stored, LimitState::Waiting(_)) {
            self.registry.try_send(self.key, Command::ReviewLimits);
        }
        if !gives_turns(changes) {
            return;
        }
        let keys = self.limits.claims.iter().map(|claim| claim.key.clone());
        self.registry.limit_turns.review(&self.name.namespace, keys);
    }
}

/// Cancels older executions on behalf of one that has a limit next.
async fn cancel(registry: Arc<ExecutionRegistry>, older: Vec<ExecutionKey>, newer: String, reason: String) {
    for key in older {
        let row = match registry.reads.read(move |reader| reader.get(key)).await {
            Ok(Some(row)) if !row.summary.ended => row,
            // It has ended, or what waits for it looks again.
            Ok(_) | Err(_) => continue,
        };
        let (reply, received) = oneshot::channel();
        let control = Control::Cancel { reason: reason.clone(), kill: false };
        let actor = Actor::new(newer.clone());
        registry.send(row, Command::Control { control, actor, etag: String::new(), reply }).await;
        // A refusal means that it is being cancelled, or has ended.
        drop(received.await);
    }
}
