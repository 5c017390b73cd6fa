//! Deletes executions that ended long ago, or more of them than are kept, as the operator's settings say.
//!
//! It goes through an index of ends, the oldest first, and deletes a page at a time. The next page waits until the deletions of this one are
//! complete, so that they never pile up while the tool runner or the gate is away.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use belay_journal::{DeleteRequest, ExecutionRow, Operation, Position, Refused};
use belay_settings::Retention;
use futures::future::join_all;

use crate::{
    deletions,
    journal_reads::unreadable,
    registry::{ExecutionRegistry, unwritable},
};

/// The interval between two rounds.
const INTERVAL: Duration = Duration::from_secs(60);

/// How many executions are deleted at a time: one commit of the journal, beside those of running executions.
const PAGE: usize = 64;

/// Deletes what is not kept any more, again and again, until the service stops.
pub(crate) async fn run(registry: Weak<ExecutionRegistry>, retention: Retention) {
    if retention.finished_for.value.is_none() && retention.keep_last.value.is_none() {
        return;
    }
    loop {
        let Some(this) = registry.upgrade() else { return };
        let shutdown = this.shutdown.clone();
        let round = async {
            match prune(&this, &retention).await {
                Ok(0) => {}
                Ok(count) => tracing::info!(count, "Executions that the retention settings do not keep were deleted"),
                Err(why) => {
                    tracing::warn!(why, "Executions that the retention settings do not keep are not deleted yet")
                }
            }
            drop(this);
            tokio::time::sleep(INTERVAL).await;
        };
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = round => {}
        }
    }
}

/// Deletes every execution up to the bound, and returns how many they were.
async fn prune(registry: &Arc<ExecutionRegistry>, retention: &Retention) -> Result<usize, String> {
    let keep_last = retention.keep_last.value.map(|keep| usize::try_from(keep).unwrap_or(usize::MAX));
    let beyond = match keep_last {
        Some(keep) => registry.reads.read(move |reader| reader.finished_beyond(keep)).await,
        None => Ok(None),
    };
    let beyond = beyond.map_err(|error| unreadable(&error).to_string())?;
    let now = registry.now().as_micros();
    let Some(until) = bound(now, retention.finished_for.value, beyond) else { return Ok(0) };
    let (mut after, mut count) = (Position::START, 0);
    loop {
        let page = registry.reads.read(move |reader| reader.finished(after, until, PAGE)).await;
        let page = page.map_err(|error| unreadable(&error).to_string())?;
        let Some(last) = page.last() else { return Ok(count) };
        after = Position { time: last.summary.ended_at.unwrap_or(after.time), key: last.key };
        let page = not_in_use(registry, page).await?;
        let deleting = page.iter().map(|row| {
            let fence = registry.fence(row.execution.shard);
            let request = DeleteRequest::default();
            registry.commit(Operation::Delete { key: row.key, deleted_at: now, request, fence })
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
        if parent.map_err(|error| unreadable(&error).to_string())?.is_none_or(|parent| parent.summary.ended) {
            left.push(row);
        }
    }
    Ok(left)
}

/// The last position, in the order of ends, at which an execution is not kept; `None` when all are. An execution is deleted when it ended longer
/// ago than `finished_for` seconds, and also when it is not among the last that are kept, of which `beyond` is the first.
fn bound(now: i64, finished_for: Option<u64>, beyond: Option<Position>) -> Option<Position> {
    let micros = |seconds: u64| i64::try_from(seconds).unwrap_or(i64::MAX).saturating_mul(1_000_000);
    let by_age = finished_for.map(|seconds| Position::after(now.saturating_sub(micros(seconds)).saturating_sub(1)));
    by_age.into_iter().chain(beyond).max()
}

#[cfg(test)]
mod tests {
    use belay_journal::ExecutionKey;

    use super::*;

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
