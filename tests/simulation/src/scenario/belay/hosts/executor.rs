//! The executor, another that replaces it, and a reader beside it.

use belay_journal::StoreFault;
use std::error::Error;
use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belay_blobs::Folder;
use belay_executor::{ExecutionReader, ExecutionRegistry, ReaderParts, Runner};
use belay_journal::{OpenedToRead, StoreError};
use belay_service_kit::{Access, Ids, Shutdown, Trigger};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::super::shared_journal::SharedJournal;
use super::super::{retention, site::EXECUTOR, webhooks};
use super::clock::WallClock;
use super::journal::open_journal;
use super::places::{EXECUTOR_PORT, FOLDER, READER_PORT, RUNNER_URI, SERVICES_URI};
use super::process::{Outcome, REDACTOR, THREADS, channel, no_spans, serve, supervise};
use super::site::Site;
use crate::blob_disk::BlobDisk;
use crate::trace;

/// The executor.
pub(in super::super) async fn executor(site: Site) -> turmoil::Result {
    site.backup.attend(EXECUTOR).await;
    supervise(EXECUTOR, run_executor(site)).await
}

/// An executor that drives executions, whether or not it can be reached.
struct Running {
    executions: Arc<ExecutionRegistry>,
    /// A reader of its journal that drives nothing, on the same machine.
    reader: Option<Arc<ExecutionReader>>,
    shutdown: Shutdown,
    _trigger: Trigger,
}

/// The executor. In some scenarios another replaces it while it runs; it does not notice, and nobody can reach it any more.
async fn run_executor(site: Site) -> Outcome {
    let journal = SharedJournal::default();
    let first = start_executor(&site, &journal).await?;
    if !site.bugs.replaces_executors {
        return serve_executor(&site, &first).await;
    }
    let mut random = StdRng::seed_from_u64(site.seed.wrapping_add(site.owners.newest_fence().cast_unsigned()));
    let alone = Duration::from_millis(random.random_range(0..2000));
    if let Ok(ended) = tokio::time::timeout(alone, serve_executor(&site, &first)).await {
        return ended;
    }
    let second = start_executor(&site, &journal).await?;
    trace::event("another executor has replaced this one, which does not notice that");
    trace::count("executors replaced");
    serve_executor(&site, &second).await
}

async fn start_executor(site: &Site, shared: &SharedJournal) -> Result<Running, Box<dyn Error>> {
    let journal = open_journal(site, shared).await.inspect_err(|error| {
        if matches!(
            error,
            StoreError::Fault(StoreFault::Corrupt(_))
                | StoreError::Fault(StoreFault::Locked)
                | StoreError::Fault(StoreFault::Newer { .. })
        ) {
            site.checker.violation(format_args!("the journal cannot be opened: {error}"));
        }
    })?;
    // After a restore, fences are given again.
    let history = u64::from(site.backup.restores()) << 32;
    let ids = Ids::seeded(site.seed.wrapping_add(journal.fence.cast_unsigned()).wrapping_add(history));
    let beside = OpenedToRead {
        reader: Arc::clone(&journal.client_reader),
        identity: journal.stores.own().identity(),
        writes: shared.writes(),
    };
    let channel = |uri| site.bugs.channel(channel(uri), &journal.stores);
    let (runner, gate) = (channel(RUNNER_URI), channel(SERVICES_URI));
    let (trigger, shutdown) = Shutdown::new();
    let retains = site.bugs.retains && !site.owners.is_over();
    let retention = if retains { retention::settings(site.seed) } else { Default::default() };
    let webhooks = site.bugs.webhooks.then(|| webhooks::webhook(site.number, &site.mailbox)).into_iter().collect();
    let executions = ExecutionRegistry::new(belay_executor::Parts {
        journal,
        blobs: Arc::new(Folder::on(BlobDisk, Path::new(FOLDER).join("blobs"))),
        threads: THREADS,
        runner: Runner::new(runner, None)?,
        gate: belay_executor::Gate::new(gate, None)?,
        clock: Arc::new(WallClock),
        ids,
        redactor: REDACTOR.clone(),
        master_key: belay_executor::MasterKey::new([7; 32]),
        telemetry: no_spans(site.seed),
        shutdown: shutdown.clone(),
        limits: site.knobs.limits(),
        retention,
        budgets: site.budgets(),
        webhooks,
        models: site.models.clone(),
        thresholds: site.knobs.executor,
    });
    let reader = match site.bugs.reads_beside() {
        true => Some(start_reader(site, beside, shutdown.clone()).await?),
        false => None,
    };
    if site.bugs.webhooks {
        tokio::spawn(webhooks::watch_outbox(site.mailbox.clone(), shared.clone()));
    }
    if site.owners.drives_all(&site.bugs) {
        executions.drive_all().await?;
    }
    trace::count("executor starts");
    Ok(Running { executions, reader, shutdown, _trigger: trigger })
}

/// Starts a reader of the executor's journal: it shares the store with it, and its reader of the store.
async fn start_reader(
    site: &Site,
    journal: OpenedToRead,
    shutdown: Shutdown,
) -> Result<Arc<ExecutionReader>, StoreError> {
    let (reader, follow) = ExecutionReader::beside_owner(ReaderParts {
        journal,
        blobs: Arc::new(Folder::on(BlobDisk, Path::new(FOLDER).join("blobs"))),
        threads: THREADS,
        clock: Arc::new(WallClock),
        ids: Ids::seeded(site.seed.wrapping_mul(41)),
        redactor: REDACTOR.clone(),
        master_key: belay_executor::MasterKey::new([7; 32]),
        telemetry: no_spans(site.seed),
        shutdown,
        max_watchers: site.knobs.limits().watchers.value,
        budgets: site.budgets(),
        thresholds: site.knobs.executor,
    })
    .await?;
    let checker = site.checker.clone();
    tokio::spawn(async move {
        let error = follow.await;
        checker.violation(format_args!("the journal is followed no more: {error}"));
    });
    Ok(reader)
}

async fn serve_executor(site: &Site, Running { executions, reader, shutdown, .. }: &Running) -> Outcome {
    let access = Access::unauthenticated_person("simulation");
    let hosted = belay_executor::hosted(Arc::clone(executions));
    let reading = async {
        match reader {
            Some(reader) => {
                let access = Access::unauthenticated_person("simulation");
                serve(READER_PORT, belay_executor::hosted_to_read(Arc::clone(reader)), access, shutdown.clone()).await
            }
            None => pending().await,
        }
    };
    tokio::select! {
        biased;
        reason = executions.broken() => Err(match &*reason {
            StoreError::Fault(StoreFault::Behind(why)) => site.behind(why.clone()),
            reason => reason.to_string().into(),
        }),
        served = serve(EXECUTOR_PORT, hosted, access, shutdown.clone()) => served,
        served = reading => served,
    }
}
