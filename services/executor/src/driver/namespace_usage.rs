//! The driver's part in the budget of the namespace: amounts that its calls hold and have used are stored together with their events.

use std::sync::Arc;

use belay_execution::{Event, Timestamp, WindowChange};
use belay_journal::{Refused, StoreWriteOutcome, UsageChange, UsageLimit};

use super::{Driver, blob_context::MissingUsage, exit::Exit};
use crate::{
    owned::namespace_usage::usage_changes,
    store::{
        commits::{BatchError, Write},
        journal_reads::unreadable,
    },
};

impl Driver {
    /// Charges what calls that have ended have used, before anything else is decided.
    pub(super) fn charge_namespace(&mut self, events: &[Event]) {
        if let Some(pending) = &mut self.usage.pending
            && !events.is_empty()
        {
            pending.charge(&self.usage.holds.clone().take(events));
        }
    }

    /// Gets the amounts that a decision needs. Returns `true` when it is to be decided again. What waits for room is decided again when there may be some.
    pub(super) async fn wants_namespace_amounts(
        &mut self,
        wanted: Option<MissingUsage>,
        now: Timestamp,
    ) -> Result<bool, Exit> {
        let Some(pending) = &self.usage.pending else { return Ok(false) };
        let account = pending.account();
        match wanted {
            Some(MissingUsage::Amounts) => {
                account.load(&self.registry.reads).await.map_err(|error| Exit::Unreadable(unreadable(&error)))?;
                return Ok(true);
            }
            Some(MissingUsage::Room) => {
                let current = account.current(self.registry.now());
                let until = current.map_or(now, |current| current.window.end);
                self.usage.waits_until = Some(Timestamp::from_micros(until.as_micros().saturating_add(self.ahead)));
                let namespace = &self.name.namespace;
                let reason = format!(
                    "calls of namespace `{namespace}` in flight, which hold what is left of its budget (`budgets`)"
                );
                self.blockers.set_namespace_held(Some(reason), now);
            }
            None => {
                self.usage.waits_until = None;
                self.blockers.set_namespace_held(None, now);
            }
        }
        Ok(false)
    }

    /// Marks the present state as seen: the driver decides again when something becomes free after this.
    pub(super) fn watch_namespace(&mut self) {
        if let Some(changes) = &mut self.usage.changes {
            changes.mark_unchanged();
        }
    }

    /// When the execution is to decide again, of which `due` says when it is for other reasons. While a call waits for room, a retry that is due waits behind
    /// it: its time is over, and not to be waited for.
    pub(super) fn wake_beside_namespace(&self, due: Option<Timestamp>) -> Option<Timestamp> {
        match self.usage.waits_until {
            Some(until) => due.filter(|at| *at > self.now()).into_iter().chain([until]).min(),
            None => due,
        }
    }

    /// The changes that follow from events that are about to be stored, and as the store makes them.
    pub(super) fn namespace_changes(&mut self, events: &[Event]) -> (Vec<WindowChange>, Vec<UsageChange>) {
        let changes = self.usage.holds.take(events);
        let stored = match &self.usage.pending {
            Some(pending) => pending.account().to_store(&changes),
            None => usage_changes(&self.name.namespace, &changes, UsageLimit::default()),
        };
        (changes, stored)
    }

    /// Commits events with the changes that follow from them.
    pub(super) async fn commit_with_usage(
        &mut self,
        write: Write,
        changes: &[WindowChange],
    ) -> Result<Result<StoreWriteOutcome, Refused>, BatchError> {
        let Some(pending) = self.usage.pending.as_mut().filter(|_| !changes.is_empty()) else {
            return self.registry.commit(write).await;
        };
        let account = Arc::clone(pending.account());
        let guard = pending.begin(&account).await;
        let committed = self.registry.commit(write).await;
        pending.end(changes, matches!(committed, Ok(Ok(_))));
        drop(guard);
        committed
    }
}
