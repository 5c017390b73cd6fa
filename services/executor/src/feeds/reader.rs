//! Answers to requests that look at executions.

use belay_reasons::StoreFault;
use std::sync::Arc;

use belay_blobs::BlobStore;
use belay_execution::Timestamp;
use belay_journal::{ExecutionKey, OpenedToRead, StoreError};
use belay_redaction::{MasterKey, Redactor};
use belay_service_kit::{Clock, Ids, Limit, Shutdown, SteadyClock, supervise};
use belay_settings::NamespaceBudgets;
use belay_sqlite::Threads;
use belay_telemetry::Telemetry;

use super::{EventFeed, Follower, tail::follow};
use crate::{
    observe::availability::Availability,
    owned::driven::Driven,
    store::{blobs::Blobs, journal_reads::JournalReads, secrets::Sealer},
    thresholds::Thresholds,
};

/// Everything that requests need which look at executions and change nothing: gets, lists, watches, waits and what follows from the events.
///
/// It is the same in the process that drives executions and in one that drives none and follows the store of another process. It has no writer, no tool
/// runner and no approval gate, so that nothing that looks can act.
pub struct ExecutionReader {
    /// The follower of the store, for all that readers are shown.
    pub(crate) follower: Arc<Follower>,
    /// Hides and opens secrets.
    pub(crate) sealer: Arc<Sealer>,
    pub(crate) blobs: Blobs,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) telemetry: Telemetry,
    pub(crate) shutdown: Shutdown,
    pub(crate) thresholds: Thresholds,
    /// The identity of the journal: another one when it was accepted although it is behind.
    pub(crate) journal: Arc<str>,
    /// Limits the requests that wait for something to happen.
    pub(crate) watchers: Limit,
    /// Since when the services do not answer that executions need; nothing is known of them where none is driven.
    pub(crate) availability: Availability,
    /// The executions that have a driver, as far as this process knows.
    pub(crate) driven: Arc<Driven>,
    /// Budgets of the namespaces, which limit their executions.
    pub(crate) budgets: NamespaceBudgets,
}

/// The parts of a reader of a store that another process writes.
pub struct ReaderParts {
    /// The store of executions.
    pub journal: OpenedToRead,
    /// The store of their blobs.
    pub blobs: Arc<dyn BlobStore>,
    /// Where blocking work runs.
    pub threads: Threads,
    /// The wall clock.
    pub clock: Arc<dyn Clock>,
    /// Randomness for the delays before a task is started again.
    pub ids: Ids,
    /// Detects secrets.
    pub redactor: Redactor,
    /// Wraps the key of each execution; see [`crate::SealKeyFile`].
    pub master_key: MasterKey,
    /// Names spans; a reader exports none of its own.
    pub telemetry: Telemetry,
    /// Signals the shutdown.
    pub shutdown: Shutdown,
    /// How many requests may wait for something to happen.
    pub max_watchers: u32,
    /// Budgets of the namespaces, which limit their executions.
    pub budgets: NamespaceBudgets,
    /// The sizes and durations at which it changes how it works.
    pub thresholds: Thresholds,
}

impl ExecutionReader {
    /// A reader of a store that another process writes, and what follows that store for as long as it is polled: it ends with the reason why the store
    /// cannot be followed any more.
    ///
    /// # Errors
    /// [`StoreError`] when the store cannot be read.
    pub async fn beside_owner(
        parts: ReaderParts,
    ) -> Result<(Arc<Self>, impl Future<Output = StoreError> + Send + use<>), StoreError> {
        let ReaderParts {
            journal: OpenedToRead { reader, identity, writes },
            blobs,
            threads,
            clock,
            ids,
            redactor,
            master_key,
            telemetry,
            shutdown,
            max_watchers,
            budgets,
            thresholds,
        } = parts;
        let sealer = Arc::new(Sealer { redactor, master_key });
        let follower = Arc::new(Follower::of_another(JournalReads::new(reader, &sealer, &blobs, threads)).await?);
        let (following, sweeping, hidden) = (Arc::clone(&follower), Arc::clone(&follower), Arc::clone(&sealer));
        let reader = Arc::new(Self {
            follower,
            sealer,
            blobs: Blobs::new(blobs, threads),
            clock: Arc::new(SteadyClock::new(clock)),
            telemetry,
            shutdown,
            thresholds,
            journal: identity.into(),
            watchers: Limit::new("services.executor.watchers", "waiting requests", max_watchers),
            availability: Availability::default(),
            driven: Arc::new(Driven::all()),
            budgets,
        });
        let follow = async move {
            let sweep = || sweeping.give_up_left_overs();
            let shown = |fault| hidden.shown(fault);
            let catch_up = || {
                let follower = Arc::clone(&following);
                async move { follower.catch_up().await }
            };
            tokio::select! {
                error = follow(catch_up, writes) => error,
                () = supervise("drops executions without readers", &ids, shown, sweep) => {
                    StoreError::Fault(StoreFault::Other("executions without readers are dropped no more".to_owned()))
                }
            }
        };
        Ok((reader, follow))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.clock.now_micros())
    }

    /// The event feed of an execution.
    pub(crate) fn feed(&self, key: ExecutionKey) -> Arc<EventFeed> {
        self.follower.feed(key)
    }

    /// Whether an execution has a driver.
    pub(crate) fn is_driven(&self, key: ExecutionKey) -> bool {
        self.driven.has(key)
    }
}
