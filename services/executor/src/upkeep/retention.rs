//! Deletes executions that ended long ago, or more of them than are kept, as the operator's settings say.
//!
//! It goes through an index of ends, the oldest first, and deletes a page at a time. The next page waits until the deletions of this one are
//! complete, so that they never pile up while the tool runner or the gate is away.

use std::sync::{Arc, Weak};

use belay_defects::{Defect, is_planted};
use belay_journal::{DeleteRequest, ExecutionKey, ExecutionRow, Position, Refused, StoreWrite};
use belay_settings::Retention;
use futures::future::join_all;

use crate::{
    owned::registry::{ExecutionRegistry, unwritable},
    store::journal_reads::unreadable,
    upkeep::deletions,
};

/// How many executions are deleted at a time: one commit of the journal, beside those of running executions.
const PAGE: usize = 64;

/// Deletes what is not kept any more, again and again, until the service stops.
pub(crate) async fn run(registry: Weak<ExecutionRegistry>, retention: Retention) {
    if retention.finished_for.value.is_none() && retention.keep_last.value.is_none() {
        return;
    }
    let Some(started) = registry.upgrade().map(|this| this.now().as_micros()) else { return };
    loop {
        let Some(this) = registry.upgrade() else { return };
        let shutdown = this.reading.shutdown.clone();
        let round = async {
            match prune(&this, &retention, started).await {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "Executions that the retention settings do not keep were deleted"),
                Err(why) => {
                    tracing::warn!(why, "Executions that the retention settings do not keep are not deleted yet")
                }
            }
            let interval = this.reading.thresholds.retention_interval;
            drop(this);
            tokio::time::sleep(interval).await;
        };
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = round => {}
        }
    }
}

/// Deletes every execution that is not kept, and returns how many they were. `started` is when this process started.
async fn prune(registry: &Arc<ExecutionRegistry>, retention: &Retention, started: i64) -> Result<usize, String> {
    let keep_last = retention.keep_last.value.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
    let beyond = match keep_last {
        Some(keep) => registry.reads.read(move |reader| reader.finished_beyond(keep)).await,
        None => Ok(None),
    };
    let beyond = beyond.map_err(|error| unreadable(&error).to_string())?;
    let (now, finished_for) = (registry.now().as_micros(), retention.finished_for.value);
    let mut count = 0;
    if let Some(until) = bound(now, finished_for, beyond) {
        count += delete_between(registry, Position::START, until, now).await?;
    }
    if is_ahead_old(now, started, finished_for) {
        let last = Position { time: i64::MAX, key: ExecutionKey(i64::MAX) };
        count += delete_between(registry, Position::after(now), last, now).await?;
    }
    Ok(count)
}

/// Whether executions whose end is in the future are older than `finished_for` seconds. The clock was ahead when they ended, which was before
/// this process started: its own clock never goes back.
fn is_ahead_old(now: i64, started: i64, finished_for: Option<u64>) -> bool {
    finished_for.is_some_and(|seconds| now.saturating_sub(started) > micros(seconds))
}

/// Deletes the executions that ended after `after` up to `until`, and returns how many they were.
async fn delete_between(
    registry: &Arc<ExecutionRegistry>,
    mut after: Position,
    until: Position,
    now: i64,
) -> Result<usize, String> {
    let mut count = 0;
    loop {
        let page = registry.reads.read(move |reader| reader.finished(after, until, PAGE)).await;
        let page = page.map_err(|error| unreadable(&error).to_string())?;
        let Some(last) = page.last() else { return Ok(count) };
        after = Position { time: last.summary.ended_at.unwrap_or(after.time), key: last.key };
        let page = not_in_use(registry, page).await?;
        let deleting = page.iter().map(|row| {
            let fence = registry.fence(row.execution.shard);
            let request = DeleteRequest::default();
            registry.commit(StoreWrite::Delete { key: row.key, deleted_at: now, request, fence })
        });
        for (deleted, row) in join_all(deleting).await.into_iter().zip(&page) {
            match deleted.map_err(|error| unwritable(&error).to_string())? {
                Ok(_) => count += 1,
                // Another client has deleted it. Or its parent has not recorded its end: the next round finds it again.
                Err(Refused::Missing(_) | Refused::Unrecorded { .. }) => {}
                Err(refused @ Refused::Fenced { .. }) => return Err(refused.to_string()),
                Err(refused) => {
                    tracing::warn!(execution = row.execution.id, %refused, "An execution cannot be deleted");
                }
            }
        }
        registry.deletions.wake();
        deletions::until_fewer_than(registry, PAGE).await?;
    }
}

/// The executions that no execution in progress looks at: the children of one stay as long as it runs.
async fn not_in_use(registry: &ExecutionRegistry, page: Vec<ExecutionRow>) -> Result<Vec<ExecutionRow>, String> {
    let mut left = Vec::with_capacity(page.len());
    for row in page {
        let parent = match row.execution.parent.as_ref().map(|parent| parent.execution) {
            Some(parent) => registry.reads.read(move |reader| reader.get(parent)).await,
            None => Ok(None),
        };
        let parent = parent.map_err(|error| unreadable(&error).to_string())?;
        if parent.is_none_or(|parent| parent.summary.ended) || is_planted(Defect::ChildOfRunningTaken) {
            left.push(row);
        }
    }
    Ok(left)
}

/// The last position, in the order of ends, at which an execution is not kept; `None` when all are. An execution is deleted when it ended longer
/// ago than `finished_for` seconds, and also when it is not among the last that are kept, of which `beyond` is the first.
fn bound(now: i64, finished_for: Option<u64>, beyond: Option<Position>) -> Option<Position> {
    let by_age = finished_for.map(|seconds| Position::after(now.saturating_sub(micros(seconds)).saturating_sub(1)));
    by_age.into_iter().chain(beyond).max()
}

fn micros(seconds: u64) -> i64 {
    i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B-26: an end that a wrong clock has put into the future does not keep an execution for ever.
    #[test]
    fn what_ended_in_the_future_is_as_old_as_the_process() {
        assert!(!is_ahead_old(70_000_000, 10_000_000, Some(60)));
        assert!(is_ahead_old(70_000_001, 10_000_000, Some(60)));
        assert!(!is_ahead_old(i64::MAX, 0, None), "everything is kept");
    }

    #[test]
    fn either_setting_deletes() {
        let beyond = |time| Some(Position { time, key: ExecutionKey(7) });
        let by_age = |now: i64, seconds| bound(now, Some(seconds), None).unwrap().time;
        assert_eq!(bound(5, None, None), None, "everything is kept");
        assert_eq!(bound(5, None, beyond(3)), beyond(3));
        assert_eq!(by_age(100_000_000, 60), 39_999_999, "what ended a minute ago is kept");
        assert_eq!(bound(100_000_000, Some(60), beyond(50_000_000)), beyond(50_000_000), "the later of the two");
        assert_eq!(bound(100_000_000, Some(60), beyond(10)).unwrap().time, 39_999_999);
        assert!(by_age(5, u64::MAX) < 0, "nothing is as old as that");
    }
}
