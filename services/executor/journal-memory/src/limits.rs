//! Limits over executions.

use belay_journal::{
    AwaitedLimit, ExecutionKey, LimitChange, LimitClaim, LimitEntry, LimitStanding, Refused, standing,
};

use crate::state::State;

impl State {
    pub(crate) fn check_limits(
        &self,
        namespace: &str,
        execution: Option<ExecutionKey>,
        changes: &[LimitChange],
    ) -> Result<(), Refused> {
        let acquired = changes.iter().filter_map(|change| match change {
            LimitChange::Acquire { claims, at } => Some(claims.iter().map(move |claim| (claim, *at))),
            LimitChange::Request { .. } | LimitChange::Release { .. } => None,
        });
        let full = acquired.flatten().find(|(claim, at)| !self.standing(namespace, execution, claim, *at).is_free);
        full.map_or(Ok(()), |(claim, _)| Err(Refused::LimitFull { key: claim.key.clone() }))
    }

    /// Makes changes that were checked, of an execution that is stored.
    pub(crate) fn change_limits(&mut self, execution: ExecutionKey, changes: Vec<LimitChange>) {
        let Some(stored) = self.executions.get(&execution) else { return };
        let namespace = stored.row.execution.namespace.clone();
        for change in changes {
            match change {
                LimitChange::Request { claims } => {
                    for LimitClaim { key, bound } in claims {
                        let position =
                            self.limits.values().flatten().map(|entry| entry.position).max().unwrap_or(0) + 1;
                        let entry =
                            LimitEntry { position, execution, held_at: None, window: bound.window(), released: false };
                        self.limits.entry((namespace.clone(), key)).or_default().push(entry);
                    }
                }
                LimitChange::Acquire { at, .. } => {
                    for entry in self.limits.values_mut().flatten() {
                        if entry.execution == execution && !entry.released {
                            entry.held_at = Some(at);
                        }
                    }
                    self.remove_over(at);
                }
                LimitChange::Release { at } => {
                    for entry in self.limits.values_mut().flatten() {
                        entry.released |= entry.execution == execution;
                    }
                    self.remove_over(at);
                }
            }
        }
    }

    fn remove_over(&mut self, at: i64) {
        self.limits.values_mut().for_each(|entries| entries.retain(|entry| !entry.is_over(at)));
        self.limits.retain(|_, entries| !entries.is_empty());
    }

    pub(crate) fn standing(
        &self,
        namespace: &str,
        execution: Option<ExecutionKey>,
        claim: &LimitClaim,
        at: i64,
    ) -> LimitStanding {
        let entries = self.limits.get(&(namespace.to_owned(), claim.key.clone()));
        standing(entries.into_iter().flatten().copied(), execution, claim.bound, at)
    }

    pub(crate) fn limits_held(&self, execution: ExecutionKey) -> Vec<String> {
        let holds = |entry: &LimitEntry| entry.execution == execution && !entry.released && entry.held_at.is_some();
        let held = self.limits.iter().filter(|(_, entries)| entries.iter().any(holds));
        held.map(|((_, key), _)| key.clone()).collect()
    }

    pub(crate) fn awaited_limits(&self, (namespace, key): (&str, &str), limit: usize) -> Vec<AwaitedLimit> {
        let after = (namespace.to_owned(), key.to_owned());
        let later = self.limits.iter().filter(|(place, _)| **place > after);
        let awaited = later.filter_map(|((namespace, key), entries)| {
            Some(AwaitedLimit { namespace: namespace.clone(), key: key.clone(), next: next(entries)? })
        });
        awaited.take(limit).collect()
    }

    pub(crate) fn next_in_limit(&self, namespace: &str, key: &str) -> Option<ExecutionKey> {
        next(self.limits.get(&(namespace.to_owned(), key.to_owned()))?)
    }
}

fn next(entries: &[LimitEntry]) -> Option<ExecutionKey> {
    entries
        .iter()
        .filter(|entry| entry.held_at.is_none())
        .min_by_key(|entry| entry.position)
        .map(|entry| entry.execution)
}
