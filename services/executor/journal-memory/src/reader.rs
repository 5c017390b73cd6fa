//! The reader. Every read looks at everything.

use std::{future::ready, sync::atomic::Ordering};

use belay_journal::{
    AwaitedLimit, Changes, Cursor, Deletion, ExecutionKey, ExecutionRow, InboxRow, JournalReader, LimitClaim,
    LimitStanding, OutboxRow, Page, Position, Query, Reading, Refused, ScheduleRow, StartRequest, StoreError,
    StoredExecution, StoredTransition, Transition, UsageRow,
};

use crate::state::{ExecutionEntry, SharedStore, State};

#[derive(Debug)]
pub(crate) struct MemoryReader(pub(crate) SharedStore);

impl MemoryReader {
    fn look<T: Send + 'static>(&self, look: impl FnOnce(&State) -> T) -> Reading<'_, T> {
        self.try_look(|state| Ok(look(state)))
    }

    fn try_look<T: Send + 'static>(&self, look: impl FnOnce(&State) -> Result<T, StoreError>) -> Reading<'_, T> {
        Box::pin(ready(look(&self.0.lock())))
    }
}

/// The rows that have a place in an order, in that order: those that `is_in` accepts, at most `limit`.
fn ordered(
    state: &State,
    place: impl Fn(&ExecutionRow) -> Option<i64>,
    is_in: impl Fn(Position) -> bool,
    limit: usize,
) -> Vec<ExecutionRow> {
    let placed = |stored: &ExecutionEntry| {
        let position = Position { time: place(&stored.row)?, key: stored.row.key };
        is_in(position).then(|| (position, stored.row.clone()))
    };
    let mut rows: Vec<_> = state.executions.values().filter_map(placed).collect();
    rows.sort_by_key(|(position, _)| *position);
    rows.into_iter().map(|(_, row)| row).take(limit).collect()
}

fn wake_at(row: &ExecutionRow) -> Option<i64> {
    row.summary.wake_at.filter(|_| row.summary.parked)
}

fn after(stored: &ExecutionEntry, after: u64) -> impl Iterator<Item = Transition> {
    let later = stored.transitions.iter().filter(move |(transition, _)| transition.last_sequence() > after);
    later.map(|(transition, _)| transition.clone())
}

impl JournalReader for MemoryReader {
    fn find(&self, namespace: &str, id: &str) -> Reading<'_, Option<ExecutionRow>> {
        self.look(|state| state.named(namespace, id).map(|stored| stored.row.clone()))
    }

    fn get(&self, key: ExecutionKey) -> Reading<'_, Option<ExecutionRow>> {
        self.look(|state| state.executions.get(&key).map(|stored| stored.row.clone()))
    }

    fn list(&self, query: &Query) -> Reading<'_, Page> {
        self.look(|state| {
            let after = |position| query.after.is_none_or(|after| query.order.compare(position, after).is_gt());
            let mut found: Vec<_> = state
                .executions
                .values()
                .map(|stored| &stored.row)
                .filter(|row| query.matches(row))
                .filter_map(|row| Some((query.position(row)?, row)))
                .filter(|(position, _)| after(*position))
                .collect();
            found.sort_by(|(left, _), (right, _)| query.order.compare(*left, *right));
            let is_last = found.len() <= query.limit;
            found.truncate(query.limit);
            let next = found.last().map(|(position, _)| *position).filter(|_| !is_last);
            Page { rows: found.into_iter().map(|(_, row)| row.clone()).collect(), next }
        })
    }

    fn namespaces(&self, after: &str, limit: usize) -> Reading<'_, Vec<String>> {
        self.look(|state| {
            let all = state.executions.values().map(|stored| stored.row.execution.namespace.as_str());
            let distinct: std::collections::BTreeSet<&str> = all.filter(|namespace| *namespace > after).collect();
            distinct.into_iter().take(limit).map(str::to_owned).collect()
        })
    }

    fn load(&self, key: ExecutionKey, snapshot: Option<u32>) -> Reading<'_, StoredExecution> {
        self.try_look(|state| {
            let stored = state.executions.get(&key).ok_or(StoreError::Missing(key))?;
            let is_usable = |kept: &&belay_journal::Snapshot| Some(kept.version) == snapshot;
            let snapshot = stored.snapshot.as_ref().filter(is_usable).cloned();
            let transitions: Vec<_> = match &snapshot {
                None => after(stored, 0).collect(),
                Some(snapshot) => after(stored, 0).take(1).chain(after(stored, snapshot.sequence)).collect(),
            };
            self.0.transitions_read.fetch_add(transitions.len(), Ordering::Relaxed);
            Ok(StoredExecution { row: stored.row.clone(), seal_key: stored.seal_key.clone(), snapshot, transitions })
        })
    }

    fn read(&self, key: ExecutionKey, after: u64, limit: usize) -> Reading<'_, Vec<Transition>> {
        self.try_look(|state| {
            let stored = state.executions.get(&key).ok_or(StoreError::Missing(key))?;
            let read: Vec<_> = self::after(stored, after).take(limit).collect();
            self.0.transitions_read.fetch_add(read.len(), Ordering::Relaxed);
            Ok(read)
        })
    }

    fn stored(&self, key: ExecutionKey, first_sequence: u64) -> Reading<'_, Option<StoredTransition>> {
        self.look(|state| {
            let mut transitions = state.executions.get(&key)?.transitions.iter();
            let (transition, token) =
                transitions.find(|(transition, _)| transition.first_sequence == first_sequence)?;
            Some(StoredTransition { transition: transition.clone(), token: *token })
        })
    }

    fn changes(&self, after: Cursor, limit: usize) -> Reading<'_, Changes> {
        self.look(|state| {
            let mut found = Changes { changes: Vec::new(), next: after };
            for (position, change) in state.log.range(after.0 + 1..).take(limit) {
                found.next = Cursor(*position);
                if state.executions.contains_key(&change.key) {
                    found.changes.push(*change);
                }
            }
            found
        })
    }

    fn latest(&self) -> Reading<'_, Cursor> {
        self.look(|state| Cursor(state.position))
    }

    fn newest_token(&self) -> Reading<'_, i64> {
        self.look(State::newest_token)
    }

    fn seal_key(&self, key: ExecutionKey) -> Reading<'_, Option<Vec<u8>>> {
        self.look(|state| state.executions.get(&key)?.seal_key.clone())
    }

    fn next_sealed(&self, after: ExecutionKey) -> Reading<'_, Option<ExecutionKey>> {
        self.look(|state| {
            let sealed = state.executions.iter().filter(|(_, stored)| stored.seal_key.is_some());
            sealed.map(|(key, _)| *key).filter(|key| *key > after).min()
        })
    }

    fn claimable(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        let is_claimable = |row: &ExecutionRow| !row.summary.ended && !row.summary.parked;
        self.look(|state| ordered(state, |row| is_claimable(row).then_some(0), |position| position.key > after, limit))
    }

    fn due(&self, after: Position, until: i64, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.look(|state| ordered(state, wake_at, |position| position > after && position.time <= until, limit))
    }

    fn next_wake(&self, after: i64) -> Reading<'_, Option<i64>> {
        self.look(|state| ordered(state, wake_at, |position| position.time > after, 1).first().and_then(wake_at))
    }

    fn parked_since(&self, after: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        let updated = |row: &ExecutionRow| wake_at(row).map(|_| row.summary.updated_at);
        self.look(|state| ordered(state, updated, |position| position > after, limit))
    }

    fn finished(&self, after: Position, until: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        let is_in = |position| position > after && position <= until;
        self.look(|state| ordered(state, |row| row.summary.ended_at, is_in, limit))
    }

    fn finished_beyond(&self, keep: usize) -> Reading<'_, Option<Position>> {
        self.look(|state| {
            let finished = ordered(state, |row| row.summary.ended_at, |_| true, usize::MAX);
            let row = finished.iter().rev().nth(keep)?;
            Some(Position { time: row.summary.ended_at?, key: row.key })
        })
    }

    fn deletion(&self, namespace: &str, id: &str) -> Reading<'_, Option<Deletion>> {
        self.look(|state| {
            let mut deletions = state.deletions.values().map(|(deletion, _)| deletion);
            deletions.find(|deletion| deletion.namespace == namespace && deletion.id == id).cloned()
        })
    }

    fn request_used(&self, request: &StartRequest) -> Reading<'_, Option<Refused>> {
        let StartRequest { namespace, principal, id, hash, at } = request;
        self.look(|state| state.request_used(namespace, principal, id, hash, *at))
    }

    fn deleted_after(&self, after: Position, limit: usize) -> Reading<'_, Vec<Deletion>> {
        self.look(|state| {
            let at = |deletion: &Deletion| Position { time: deletion.deleted_at, key: deletion.key };
            let deletions = state.deletions.values().map(|(deletion, _)| deletion.clone());
            let mut later: Vec<Deletion> = deletions.filter(|deletion| at(deletion) > after).collect();
            later.sort_by_key(at);
            later.truncate(limit);
            later
        })
    }

    fn inbox(&self, key: ExecutionKey, limit: usize) -> Reading<'_, Vec<InboxRow>> {
        self.look(|state| state.inboxes.values().filter(|row| row.to == key).take(limit).copied().collect())
    }

    fn usage(&self, namespace: &str) -> Reading<'_, Vec<UsageRow>> {
        self.look(|state| state.usage_in(namespace))
    }

    fn limit_standing(
        &self,
        namespace: &str,
        execution: Option<ExecutionKey>,
        claim: &LimitClaim,
        at: i64,
    ) -> Reading<'_, LimitStanding> {
        self.look(|state| state.standing(namespace, execution, claim, at))
    }

    fn limits_held(&self, key: ExecutionKey) -> Reading<'_, Vec<String>> {
        self.look(|state| state.limits_held(key))
    }

    fn awaited_limits(&self, after: (&str, &str), limit: usize) -> Reading<'_, Vec<AwaitedLimit>> {
        self.look(|state| state.awaited_limits(after, limit))
    }

    fn next_in_limit(&self, namespace: &str, key: &str) -> Reading<'_, Option<ExecutionKey>> {
        self.look(|state| state.next_in_limit(namespace, key))
    }

    fn schedule(&self, namespace: &str, id: &str) -> Reading<'_, Option<ScheduleRow>> {
        self.look(|state| state.schedules.get(&(namespace.to_owned(), id.to_owned())).cloned())
    }

    fn schedules(&self, namespace: &str, after: (&str, &str), limit: usize) -> Reading<'_, Vec<ScheduleRow>> {
        self.look(|state| {
            let later = state.schedules.values().filter(|row| (row.namespace.as_str(), row.id.as_str()) > after);
            later.filter(|row| namespace.is_empty() || row.namespace == namespace).take(limit).cloned().collect()
        })
    }

    fn recipients(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionKey>> {
        self.look(|state| {
            let mut keys: Vec<_> = state.inboxes.keys().map(|(to, _)| *to).filter(|to| *to > after).collect();
            keys.dedup();
            keys.truncate(limit);
            keys
        })
    }

    fn open_deletions(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<Deletion>> {
        self.look(|state| {
            let later = state.deletions.values().map(|(deletion, _)| deletion).filter(|deletion| deletion.key > after);
            later.filter(|deletion| deletion.reusable_at.is_none()).take(limit).cloned().collect()
        })
    }

    fn outbox(&self, webhook: &str, until: i64, limit: usize) -> Reading<'_, Vec<OutboxRow>> {
        self.look(|state| {
            let of_webhook = state.outbox.values().filter(|row| row.message.webhook == webhook);
            let mut due: Vec<OutboxRow> = of_webhook.filter(|row| row.next_at <= until).cloned().collect();
            due.sort_by_key(|row| (row.next_at, row.key));
            due.truncate(limit);
            due
        })
    }

    fn next_message(&self, webhook: &str) -> Reading<'_, Option<i64>> {
        let next = |row: &OutboxRow| (row.message.webhook == webhook).then_some(row.next_at);
        self.look(|state| state.outbox.values().filter_map(next).min())
    }

    fn outbox_len(&self, limit: usize) -> Reading<'_, usize> {
        self.look(|state| state.outbox.len().min(limit))
    }
}
