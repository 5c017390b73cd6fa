//! Completes deletions: erases the events and blobs of deleted executions, and makes the tool runner and the approval gate forget them.
//!
//! The journal decides first: [`StoreWrite::Delete`] takes the execution and leaves a deletion that outlives a crash. Everything that follows is
//! idempotent and is done again until it has succeeded, by the next process too; [`StoreWrite::CloseDeletion`] ends it.
//!
//! The name of a deleted execution stays reserved until [`NAME_RESERVED`] after that. The names of calls are derived from it, so a call of a new
//! execution would have the name of an old one. By then the runner has no row of the old call to attach to, and no request for the old call is
//! on its way any more: the runner rejects those that a network delayed for 10 minutes, and the new call would be rejected with them.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use belay_blobs::Owner;
use belay_journal::{Deletion, ExecutionKey, Refused, StoreWrite, StoreWriteOutcome};
use belay_proto::runner_v1;
use belay_service_kit::Retry;
use futures::future::join_all;

use crate::{
    approvals::gate::GateError,
    names::ExecutionName,
    owned::registry::{ExecutionRegistry, unwritable},
    store::journal_reads::unreadable,
};

/// How long the name of a deleted execution stays reserved after the other services have forgotten it: longer than the runner remembers that it
/// has forgotten a call.
pub(crate) const NAME_RESERVED: Duration = Duration::from_secs(15 * 60);

/// The delays before trying again what has failed.
const RETRY: Retry = Retry::new(Duration::from_millis(50), Duration::from_secs(30));

/// The interval at which reserved names are freed.
const DROP_INTERVAL: Duration = Duration::from_secs(60);

/// How many deletions are completed together, with one request to each service and one emptied write-ahead log in each store.
const PAGE: usize = 64;

/// How many transitions one commit erases, so that the commits of running executions do not wait long behind it.
const ERASED_TRANSITIONS: usize = 256;

/// Returns when fewer than `count` deletions are open.
pub(crate) async fn until_fewer_than(registry: &ExecutionRegistry, count: usize) -> Result<(), String> {
    let mut rounds = registry.deletions.rounds();
    loop {
        rounds.mark_unchanged();
        let open = registry.reads.read(move |reader| reader.open_deletions(ExecutionKey(i64::MIN), count)).await;
        if open.map_err(|error| unreadable(&error).to_string())?.len() < count {
            return Ok(());
        }
        // Never an error: the registry has the sender.
        let _ = rounds.changed().await;
    }
}

/// Completes every deletion of the journal, until the service stops.
pub(crate) async fn run(registry: Weak<ExecutionRegistry>) {
    let mut retry = RETRY;
    loop {
        let Some(this) = registry.upgrade() else { return };
        let wait = match complete_all(&this).await {
            Ok(()) => {
                retry.succeeded();
                DROP_INTERVAL
            }
            Err(why) => {
                tracing::warn!(why, "Deleted executions are not forgotten everywhere yet; retrying");
                retry.delay(&this.ids)
            }
        };
        this.deletions.ended_round();
        let shutdown = this.reading.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.requested() => return,
            () = this.deletions.woken() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Completes the deletions that are open now, then frees the names that are not reserved any more. Returns why some of them are left.
async fn complete_all(registry: &Arc<ExecutionRegistry>) -> Result<(), String> {
    let mut after = ExecutionKey(i64::MIN);
    let mut outcome = Ok(());
    loop {
        let open = registry.reads.read(move |reader| reader.open_deletions(after, PAGE)).await;
        let open = open.map_err(|error| unreadable(&error).to_string())?;
        let Some(last) = open.last() else { break };
        after = last.key;
        if let Err(why) = complete(registry, open).await {
            outcome = Err(why);
        }
        registry.deletions.ended_round();
    }
    let now = registry.now().as_micros();
    let drop = || StoreWrite::DropDeletions { now, latest: now.saturating_add(reserved()) };
    while let StoreWriteOutcome::Dropped(1..) = commit(registry, drop()).await? {}
    outcome
}

async fn complete(registry: &Arc<ExecutionRegistry>, deletions: Vec<Deletion>) -> Result<(), String> {
    for deletion in &deletions {
        let (key, fence) = (deletion.key, registry.fence(deletion.shard));
        let erase = || StoreWrite::Erase { key, max_transitions: ERASED_TRANSITIONS, fence };
        while commit(registry, erase()).await? != (StoreWriteOutcome::Erased { complete: true }) {}
    }
    for deletion in &deletions {
        let owner = Owner { namespace: deletion.namespace.clone(), id: deletion.id.clone() };
        registry.reading.blobs.remove(owner).await.map_err(|error| format!("the store of blobs: {error}"))?;
    }
    let deleted = |deletion: &Deletion| runner_v1::DeletedExecution {
        name: name_of(deletion),
        fence: Some(registry.runner_fence(deletion.shard)),
        made_folder: deletion
            .folder
            .clone()
            .map(|id| runner_v1::MadeFolder { namespace: deletion.namespace.clone(), id }),
    };
    let forgotten = registry.runner.forget(deletions.iter().map(deleted).collect()).await;
    let forgotten = forgotten.map_err(|status| format!("the tool runner: {status}"))?;
    let (done, left): (Vec<_>, Vec<_>) =
        deletions.into_iter().partition(|deletion| forgotten.contains(&name_of(deletion)));
    if !done.is_empty() {
        let forgotten = registry.gate.forget(done.iter().map(name_of).collect()).await;
        forgotten.map_err(|error| {
            let (GateError::Unavailable(status) | GateError::Busy(status) | GateError::Refused(status)) = error;
            format!("the approval gate: {status}")
        })?;
    }
    let reusable_at = registry.now().as_micros().saturating_add(reserved());
    // At the same time, so that they are one commit.
    let closing = done.iter().map(|deletion| {
        let fence = registry.fence(deletion.shard);
        commit(registry, StoreWrite::CloseDeletion { key: deletion.key, reusable_at, fence })
    });
    join_all(closing).await.into_iter().collect::<Result<Vec<_>, _>>()?;
    match left.first() {
        None => Ok(()),
        Some(first) => {
            Err(format!("the tool runner cannot forget {} of them now, such as {}", left.len(), name_of(first)))
        }
    }
}

/// [`NAME_RESERVED`] in microseconds.
fn reserved() -> i64 {
    i64::try_from(NAME_RESERVED.as_micros()).unwrap_or(i64::MAX)
}

/// Commits an operation that is refused only when another owner has taken over or a row is damaged.
async fn commit(registry: &ExecutionRegistry, operation: StoreWrite) -> Result<StoreWriteOutcome, String> {
    let committed = registry.commit(operation).await.map_err(|error| unwritable(&error).to_string())?;
    committed.map_err(|refused: Refused| refused.to_string())
}

fn name_of(deletion: &Deletion) -> String {
    ExecutionName { namespace: deletion.namespace.clone(), id: deletion.id.clone() }.to_string()
}
