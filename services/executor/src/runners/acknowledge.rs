//! Acknowledges stored outcomes to the runner, so that it may forget the calls.
//!
//! The executor sends an acknowledgement when an outcome is stored. Acknowledgements themselves are not stored: the journal records which
//! outcomes are stored, so lost ones can be derived again. When a session with a runner begins, the runner lists the calls that have ended
//! there unacknowledged, and the executor acknowledges those whose ends the journal has. The cost depends on the calls that are left over, not on all
//! calls ever made.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use belay_defects::{Defect, is_planted};
use belay_execution::Event;
use belay_proto::runner_v1;
use belay_service_kit::{Ids, Retry, status};
use tonic::{Code, Status};

use crate::{
    names::ExecutionName,
    owned::{queue::QueueReceiver, registry::ExecutionRegistry},
    runners::{call_reply::is_permanent, runner::Runner},
    wire,
};

/// The delay before a runner is asked again that cannot return its unacknowledged calls.
const OLDER_RUNNER: Duration = Duration::from_secs(2);

/// A watch without a message for this long has lost its runner: three heartbeats.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45);

/// Sends acknowledgements in batches of at most `max_batch` calls until the runner has accepted them.
pub(crate) async fn send(
    runner: Runner,
    token: i64,
    calls: Arc<QueueReceiver<(i32, String)>>,
    max_batch: usize,
    ids: Arc<Ids>,
) {
    let (mut calls, mut batch) = (calls.messages().await, Vec::new());
    while calls.take(&mut batch, max_batch).await {
        let mut by_shard: BTreeMap<i32, Vec<String>> = BTreeMap::new();
        for (shard, name) in batch.drain(..) {
            by_shard.entry(shard).or_default().push(name);
        }
        for (shard, names) in by_shard {
            until_taken(&runner, names, runner_v1::Fence { shard, token }, &ids).await;
        }
    }
}

async fn until_taken(runner: &Runner, names: Vec<String>, fence: runner_v1::Fence, ids: &Ids) {
    let mut retry = Retry::RPC;
    while let Err(status) = runner.acknowledge(names.clone(), fence).await {
        if is_permanent(&status) {
            tracing::warn!(%status, "The runner rejects an acknowledgement");
            return;
        }
        tracing::debug!(%status, "The runner is not available; retrying the acknowledgement");
        retry.pause(ids).await;
    }
}

/// Sends lost acknowledgements to a runner without sessions again, until the watch ends or messages of the queue are lost. Returns whether the runner
/// was available.
pub(crate) async fn watch(registry: &Weak<ExecutionRegistry>, runner: &Runner) -> bool {
    if is_planted(Defect::AcknowledgementNotRetried) {
        std::future::pending::<()>().await;
    }
    let mut watch = match runner.unacknowledged().await {
        Ok(watch) => watch,
        Err(status) if status::reason(&status).is_none() && status.code() == Code::Unimplemented => {
            tracing::warn!(
                "The runner is older than this executor: calls whose acknowledgement was lost stay in its ledger"
            );
            tokio::time::sleep(OLDER_RUNNER).await;
            return true;
        }
        Err(status) => {
            tracing::debug!(%status, "The runner does not return its unacknowledged calls; retrying");
            return false;
        }
    };
    if let Some(registry) = registry.upgrade() {
        registry.reading.availability.runner().set_available();
    }
    loop {
        let Some(lost) = registry.upgrade().map(|this| Arc::clone(&this.acknowledgements)) else { return true };
        let message = tokio::select! {
            biased;
            () = lost.review() => return true,
            message = tokio::time::timeout(WATCH_TIMEOUT, watch.message()) => message,
        };
        match message {
            Ok(Ok(Some(message))) => {
                let Some(registry) = registry.upgrade() else { return true };
                if !acknowledge(&registry, message.names).await {
                    // The next watch returns them again.
                    return true;
                }
            }
            Ok(Ok(None)) => return true,
            Ok(Err(_)) | Err(_) => return false,
        }
    }
}

/// Sends acknowledgements again that found the queue full, of a runner with a session: that lists calls only when it begins.
pub(crate) async fn review(registry: &Weak<ExecutionRegistry>, runner: &Runner) {
    loop {
        let Some(lost) = registry.upgrade().map(|this| Arc::clone(&this.acknowledgements)) else { return };
        lost.review().await;
        drop(lost);
        let Ok(mut watch) = runner.unacknowledged().await else { continue };
        // The first heartbeat comes after the last call.
        while let Ok(Some(message)) = watch.message().await
            && !message.names.is_empty()
            && let Some(registry) = registry.upgrade()
        {
            acknowledge(&registry, message.names).await;
        }
    }
}

/// Acknowledges those of the calls whose ends are stored. Returns `false` when the store cannot be read now.
pub(crate) async fn acknowledge(registry: &ExecutionRegistry, names: Vec<String>) -> bool {
    let mut by_execution: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for name in names {
        if let Some((execution, _)) = name.split_once("/steps/") {
            by_execution.entry(execution.to_owned()).or_default().push(name);
        }
    }
    for (execution, calls) in by_execution {
        match stored(registry, &execution, calls).await {
            Ok((shard, stored)) => stored.into_iter().for_each(|call| registry.acknowledge(shard, call)),
            // Calls of another executor, or of one whose journal is lost.
            Err(status) if matches!(status.code(), Code::NotFound | Code::InvalidArgument) => {
                tracing::debug!(execution, "The runner has calls of an execution that this journal does not have");
            }
            Err(status) => {
                tracing::warn!(execution, %status, "The ended calls of an execution cannot be read");
                if status.code() == Code::Unavailable {
                    return false;
                }
            }
        }
    }
    true
}

/// The execution's shard, and those of its calls whose ends are stored.
async fn stored(
    registry: &ExecutionRegistry,
    execution: &str,
    calls: Vec<String>,
) -> Result<(u32, Vec<String>), Status> {
    let row = registry.reads.find(&ExecutionName::parse("execution", execution)?).await?;
    let shard = row.execution.shard;
    if row.summary.ended {
        // No call is in flight.
        return Ok((shard, calls));
    }
    let events = registry.reads.events(row.key).await?.events;
    Ok((shard, ended(&events, calls)))
}

/// The calls that these events end.
fn ended(events: &[Event], calls: Vec<String>) -> Vec<String> {
    let has_ended = |name: &String| {
        let Some(call) = wire::parse_call(name) else { return false };
        events.iter().filter_map(|event| event.body.call_end()).any(|(ended, _)| *ended == call)
    };
    calls.into_iter().filter(has_ended).collect()
}
