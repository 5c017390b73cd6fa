use std::{collections::BTreeMap, sync::Arc, time::Duration};

use belay_journal::{Cursor as Commits, ExecutionKey, Order, Position, Query, StoreError};
use belay_proto::v1::{self, watch_executions_response::Content, watch_reset::Reason};
use belay_reasons as reasons;
use belay_service_kit::{
    Permit, Principal,
    cursor::{Cursor, Source, WatchIdentity},
    status,
    watch::{Wake, heartbeat_interval, wake},
};
use tonic::{Code, Status};

use super::{
    list_executions::{page, query},
    watch_execution::Messages,
};
use crate::{
    ExecutionReader, feeds::followed_executions::FollowedExecutions, store::journal_reads::unreadable,
    upkeep::deletions::NAME_RESERVED,
};

/// How many executions are read for the first messages at a time: what a watcher that never reads holds in memory.
const PAGE: usize = 50;

/// How many committed transitions are read at a time, and how many deletions.
const BATCH: usize = 256;

/// How long a watcher waits between two rounds of changes. What changes meanwhile comes once, in its last state.
const PACE: Duration = Duration::from_millis(50);

/// How long a cursor can be resumed from: less than the store keeps deletions.
const MAX_CURSOR_AGE: i64 = 10 * 60 * 1_000_000;

/// Deletions this much before the cursor are told again: their times are taken before they are committed, and clocks are corrected.
const DELETION_MARGIN: i64 = 60 * 1_000_000;

const _: () = assert!((MAX_CURSOR_AGE + DELETION_MARGIN) as u128 <= NAME_RESERVED.as_micros());

/// Where a watch is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// After which transitions.
    changes: Commits,
    /// The executor's time then, in microseconds since the Unix epoch.
    time: i64,
}

impl Place {
    /// The place of a client's cursor, for a journal that has come to `now`.
    ///
    /// # Errors
    /// The reason of the reset with which a watch begins that cannot continue from there.
    fn of(cursor: Cursor<2>, journal: Source, now: Self) -> Result<Self, Reason> {
        cursor.check(journal, now.changes.0)?;
        let [changes, time] = cursor.place;
        match now.time.checked_sub(time) {
            Some(0..=MAX_CURSOR_AGE) => Ok(Self { changes: Commits(changes), time }),
            Some(..0) | None => Err(Reason::Lost),
            Some(_) => Err(Reason::TooOld),
        }
    }
}

pub(super) async fn watch_executions(
    reading: &Arc<ExecutionReader>,
    caller: &Principal,
    request: v1::WatchExecutionsRequest,
) -> Result<Messages<v1::WatchExecutionsResponse>, Status> {
    let v1::WatchExecutionsRequest { parent, filter, cursor, heartbeat_interval: interval, include_children } = request;
    let heartbeat = heartbeat_interval(interval.as_ref())?;
    let watched = WatchIdentity::executions(&parent, &filter, include_children);
    let list = v1::ListExecutionsRequest { parent, filter, include_children, ..Default::default() };
    // By the time of their creation all executions have a place.
    let query = Query { order: Order::NEWEST_FIRST, limit: PAGE, ..query(&reading.sealer, &list)? };
    let resumed = watched.read(&cursor)?;
    let taken = reading.watchers.take_for(caller)?;
    // Subscribed before the place is taken, so that no commit after it is missed.
    let committed = reading.follower.subscribe();
    let changes = reading.follower.read(|reader| reader.latest()).await.map_err(|error| unreadable(&error))?;
    let place = Place { changes, time: reading.now().as_micros() };
    let journal = Source::new(&[&reading.journal]);
    let (resumes, reset) = match resumed.map(|cursor| Place::of(cursor, journal, place)) {
        None => (None, None),
        Some(Ok(from)) => (Some(from), None),
        Some(Err(reason)) => {
            tracing::warn!(
                ?resumed,
                ?place,
                ?reason,
                "A watch of executions cannot resume from its cursor; it is reset"
            );
            (None, Some(reason))
        }
    };
    let watch = Watch {
        reading: Arc::clone(reading),
        followed: FollowedExecutions::new(query.clone()),
        query,
        watched,
        journal,
        place: resumes.unwrap_or(place),
        began_at: place.changes,
        deleted_after: resumes.unwrap_or(place).time - DELETION_MARGIN,
        deleted: BTreeMap::new(),
        committed,
        heartbeat,
        _taken: taken,
    };
    Ok(Box::pin(watch.stream(reset, resumes.is_none())))
}

/// A running watch of executions. What it holds does not grow with how slowly its messages are taken: it reads on when one has been taken.
struct Watch {
    reading: Arc<ExecutionReader>,
    query: Query,
    followed: FollowedExecutions,
    watched: WatchIdentity,
    /// The source of the places.
    journal: Source,
    place: Place,
    /// The last transition when the watch began: an execution whose first one is later is new.
    began_at: Commits,
    /// Deletions from this time on may not have been told.
    deleted_after: i64,
    /// Deletions that have been told.
    deleted: BTreeMap<ExecutionKey, i64>,
    committed: tokio::sync::watch::Receiver<()>,
    heartbeat: Duration,
    /// Counts against the limit of waiting requests.
    _taken: Permit,
}

impl Watch {
    fn stream(
        mut self,
        reset: Option<Reason>,
        mut lists: bool,
    ) -> impl futures::Stream<Item = Result<v1::WatchExecutionsResponse, Status>> {
        let silent = |content| v1::WatchExecutionsResponse { cursor: String::new(), content: Some(content) };
        async_stream::try_stream! {
            if let Some(reason) = reset {
                yield silent(Content::Reset(v1::WatchReset { reason: reason.into() }));
            }
            if lists {
                // Deletions up to now are no news.
                let time = self.reading.now().as_micros();
                drop(self.deletions(time).await?);
                loop {
                    let page = page(&self.reading, &self.query).await?;
                    for row in &page.rows {
                        if let Some(content) = self.followed.update_for(row, false) {
                            yield silent(content);
                        }
                    }
                    let Some(next) = page.next else { break };
                    self.query.after = Some(next);
                }
                yield self.message(Content::Listed(v1::WatchListed {}));
            }
            loop {
                self.committed.mark_unchanged();
                let time = self.reading.now().as_micros();
                for content in self.deletions(time).await? {
                    yield self.message(content);
                }
                loop {
                    let after = self.place.changes;
                    let changes = self.reading.follower.read(move |reader| reader.changes(after, BATCH)).await;
                    let changes = changes.map_err(|error| unreadable(&error))?;
                    if changes.next == after {
                        break;
                    }
                    let mut changed: BTreeMap<ExecutionKey, bool> = BTreeMap::new();
                    for change in changes.changes {
                        *changed.entry(change.key).or_default() |= change.first_sequence == 1 && after >= self.began_at;
                    }
                    // The last message of a batch has the place after it.
                    let mut last = None;
                    for (key, is_new) in changed {
                        let row = match self.reading.follower.row(key).await {
                            Ok(row) => row,
                            // Lists leave it out as well.
                            Err(StoreError::Damaged(_)) => None,
                            Err(error) => Err(unreadable(&error))?,
                        };
                        if let Some(content) = row.and_then(|row| self.followed.update_for(&row, is_new))
                            && let Some(before) = last.replace(content)
                        {
                            yield self.message(before);
                        }
                    }
                    self.place.changes = changes.next;
                    if let Some(last) = last {
                        yield self.message(last);
                    }
                }
                self.place.time = time;
                if !lists {
                    lists = true;
                    yield self.message(Content::Listed(v1::WatchListed {}));
                }
                let (changed, shutdown) = (async { drop(self.committed.changed().await) }, &self.reading.shutdown);
                match wake(changed, shutdown, self.heartbeat).await {
                    Wake::Changed => tokio::time::sleep(PACE).await,
                    Wake::Stopping => {
                        Err(Status::from(status::error(Code::Unavailable, reasons::STOPPING, "The executor is stopping; retry.")))?;
                    }
                    Wake::Quiet => {
                        let server_time = Some(belay_proto::timestamp(self.reading.clock.now_micros()));
                        yield self.message(Content::Heartbeat(v1::WatchHeartbeat { server_time }));
                    }
                }
            }
        }
    }

    fn message(&self, content: Content) -> v1::WatchExecutionsResponse {
        let place = [self.place.changes.0, self.place.time];
        let cursor = self.watched.write(&Cursor { source: self.journal, place });
        v1::WatchExecutionsResponse { cursor, content: Some(content) }
    }

    /// The messages about executions that were deleted since the last round, which is before `now`.
    async fn deletions(&mut self, now: i64) -> Result<Vec<Content>, Status> {
        let mut told = Vec::new();
        let mut after = Position { time: self.deleted_after, key: ExecutionKey(i64::MIN) };
        loop {
            let read = self.reading.follower.read(move |reader| reader.deleted_after(after, BATCH)).await;
            let found = read.map_err(|error| unreadable(&error))?;
            let Some(last) = found.last() else { break };
            after = Position { time: last.deleted_at, key: last.key };
            for deletion in found {
                if self.deleted.insert(deletion.key, deletion.deleted_at).is_none() {
                    told.extend(self.followed.deleted(deletion.key, &deletion.namespace, &deletion.id));
                }
            }
        }
        self.deleted_after = self.deleted_after.max(now - DELETION_MARGIN);
        self.deleted.retain(|_, deleted_at| *deleted_at >= self.deleted_after);
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_goes_on_for_ten_minutes_in_the_same_journal() {
        let (journal, another) = (Source::new(&["a-store"]), Source::new(&["a-store.2"]));
        let now = Place { changes: Commits(17), time: 1_796_115_600_000_000 };
        let cursor = |changes, age| Cursor { source: journal, place: [changes, now.time - age] };
        for (cursor, source, expected) in [
            (cursor(17, 0), journal, Ok(now)),
            (cursor(3, MAX_CURSOR_AGE), journal, Ok(Place { changes: Commits(3), time: now.time - MAX_CURSOR_AGE })),
            (cursor(3, MAX_CURSOR_AGE + 1), journal, Err(Reason::TooOld)),
            (cursor(3, -1), journal, Err(Reason::Lost)),
            (cursor(3, i64::MAX), journal, Err(Reason::TooOld)),
            (Cursor { source: journal, place: [3, i64::MIN] }, journal, Err(Reason::Lost)),
            (cursor(18, 0), journal, Err(Reason::Lost)),
            (cursor(17, 0), another, Err(Reason::Lost)),
        ] {
            assert_eq!(Place::of(cursor, source, now), expected, "{cursor:?} in {source:?}");
        }
    }
}
