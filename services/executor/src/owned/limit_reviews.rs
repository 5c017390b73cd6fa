//! Turns in limits over executions: after a change of a limit, the execution that is next in it looks whether it has its turn.

use std::sync::{Arc, Weak};

use belay_journal::{StoreError, StoreWrite};
use belay_service_kit::Retry;

use crate::owned::{messages::Command, registry::ExecutionRegistry};

/// How many limits a start reads at a time.
const PAGE: usize = 256;

/// Wakes the executions that are next in limits that have changed. It begins with all in which executions wait: when it has failed before, what it knew is lost.
pub(crate) async fn run(registry: Weak<ExecutionRegistry>) {
    let mut retry = Retry::RPC;
    while let Some(this) = registry.upgrade() {
        match review_all(&this).await {
            Ok(()) => break,
            Err(error) => tracing::error!(%error, "The limits over executions cannot be read; retrying"),
        }
        retry.pause(&this.ids).await;
    }
    loop {
        let Some(this) = registry.upgrade() else { return };
        let turns = Arc::clone(&this.limit_turns);
        for (namespace, key) in turns.take() {
            let mut retry = Retry::RPC;
            loop {
                let read = {
                    let (namespace, key) = (namespace.clone(), key.clone());
                    this.reads.read(move |reader| reader.next_in_limit(&namespace, &key)).await
                };
                match read {
                    Ok(next) => {
                        if let Some(next) = next {
                            this.wake(next, Command::ReviewLimits).await;
                        }
                        break;
                    }
                    Err(error) => tracing::error!(%error, "A limit over executions cannot be read; retrying"),
                }
                retry.pause(&this.ids).await;
            }
        }
        drop(this);
        turns.notify.notified().await;
    }
}

/// Has all executions look that are next in a limit, when a process takes over a store. Times that come from a clock that was ahead are now from here on.
///
/// # Errors
/// [`StoreError`] when the store cannot be read.
pub(crate) async fn take_over(registry: &ExecutionRegistry) -> Result<(), StoreError> {
    let latest = registry.now().as_micros();
    // A store that fails is reported to all.
    drop(registry.commit(StoreWrite::ResetLimitTimes { latest, fence: registry.fence(0) }).await);
    review_all(registry).await
}

/// Has all executions look that are next in a limit.
async fn review_all(registry: &ExecutionRegistry) -> Result<(), StoreError> {
    let mut after = (String::new(), String::new());
    loop {
        let from = after.clone();
        let awaited = registry.reads.read(move |reader| reader.awaited_limits((&from.0, &from.1), PAGE)).await?;
        let Some(last) = awaited.last() else { return Ok(()) };
        after = (last.namespace.clone(), last.key.clone());
        for limit in awaited {
            registry.limit_turns.review(&limit.namespace, std::iter::once(limit.key));
        }
    }
}
