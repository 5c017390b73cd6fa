//! The executor as a process of its own.

use std::{error::Error, path::PathBuf, sync::Arc};

use belay_blobs::Folder;
use belay_journal::StoreError;
use belay_reasons as reasons;
use belay_redaction::Redactor;
use belay_service_kit::{
    Access, Clock as _, HostedServices, Ids, People, ServiceChannel, Shutdown, SystemClock,
    metrics::{self, AllMeasured, MetricsSource, StoreFiles},
    net::{self, Address, BindError, Bound, Reach},
    program,
    register::token_problem,
    shutdown::{self, Trigger},
    telemetry::{self, LogFormat},
};
use belay_settings::NamespaceBudgets;
use belay_sqlite::{Location, Threads};
use belay_telemetry::{LAST_FLUSH, MetricsExport, Telemetry};

use crate::{
    ExecutionReader, ExecutionRegistry, Gate, Parts, ReaderParts, Runner, SealKeyFile, Settings, Thresholds, hosted,
    hosted_to_read, models, store::secrets::SEAL_KEY_FILE, store_reason, webhooks,
};

/// Why the process ends.
type Failure = Box<dyn Error + Send + Sync>;

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// When it cannot start, or its journal can no longer be written, or read with `--read-only`.
pub async fn serve(settings: Settings) -> Result<(), Failure> {
    let loaded = belay_settings::load(settings.config.as_deref(), &|name| std::env::var_os(name))?;
    let webhooks = webhooks(&loaded)?;
    let models = models(&loaded)?;
    let redactor = loaded.redactor;
    let operator = loaded.settings;
    telemetry::init(operator.log.level.value.word(), LogFormat::from_env_or(operator.log.format.value.word())?);
    let entropy = Ids::from_system();
    let spans = Telemetry::from_env("belay-executor", redactor.clone(), move |bytes| entropy.fill(bytes))?;
    if let Some(problem) = settings.token.as_deref().and_then(|token| token_problem("--token", token)) {
        return Err(problem.into());
    }
    let people = People::new(settings.token.as_deref(), settings.principals)?;
    let access = Access::people(&settings.listen, people)?;
    let reach =
        Reach { group: settings.listen_group, insecure_beyond_loopback: settings.insecure_listen_beyond_loopback };
    let (trigger, stop) = Shutdown::new();
    let (state_dir, limits) = (settings.state_dir, operator.services.executor);
    let front = Front { listen: settings.listen, reach, access, state_dir: state_dir.clone(), spans, trigger, stop };

    // Required by the command line unless it only reads.
    let (false, Some(runner), Some(gate)) = (settings.read_only, settings.runner, settings.gate) else {
        let (reading, follow) = reader(&front, redactor, limits.watchers.value, operator.budgets).await?;
        let broken = async {
            let error = follow.await;
            format!("{}: {error}", store_reason(&error))
        };
        let listener = front.bind().await?;
        tracing::info!(address = %listener.address(), "The executor is listening to readers, and drives no execution");
        return front.serve(listener, hosted_to_read(reading), None, broken).await;
    };
    program::state_folder(&state_dir)?;
    let ids = Ids::from_system();
    let seal_key = SealKeyFile::load(&state_dir, || ids.next_key())?;
    let accepted = settings.accept_older_store.then(|| SystemClock.now_micros());
    let location = Location { accepted, ..Location::file(state_dir.join(JOURNAL)) };
    let journal = belay_journal_sqlite::open(&location, Threads::Real, || ids.next_id())?;
    let master_key = seal_key.open(&*journal.reader).await.map_err(|error| format!("{}: {error}", error.reason()))?;
    seal_key.store()?;
    let channel = |address: &_| ServiceChannel::new(net::connect_lazy(address), Arc::clone(&journal.stores));
    let runner = Runner::new(channel(&runner), settings.runner_token.as_deref())?;
    let gate = Gate::new(channel(&gate), settings.gate_token.as_deref())?;
    let listener = front.bind().await?;
    let parts = Parts {
        journal,
        blobs: Arc::new(Folder::new(state_dir.join(BLOBS))),
        threads: Threads::Real,
        runner,
        gate,
        clock: Arc::new(SystemClock),
        ids,
        redactor,
        master_key,
        telemetry: front.spans.clone(),
        shutdown: front.stop.clone(),
        limits,
        retention: operator.retention,
        budgets: operator.budgets,
        webhooks,
        models,
        thresholds: Thresholds::default(),
    };
    let registry = ExecutionRegistry::new(parts);
    let taken_up = registry.drive_all().await?;
    tracing::info!(address = %listener.address(), executions = taken_up, "The executor is listening");
    let broken = async {
        let reason = registry.broken().await;
        format!("{}: {reason}", store_reason(&reason))
    };
    front.serve(listener, hosted(Arc::clone(&registry)), Some(Arc::clone(&registry) as _), broken).await
}

/// The file of the journal in the state directory.
const JOURNAL: &str = belay_service_kit::state_files::JOURNAL;

/// The folder of blobs in the state directory.
const BLOBS: &str = "blobs";

/// Opens what another process writes, or has written; changes nothing of what is stored.
async fn reader(
    front: &Front,
    redactor: Redactor,
    max_watchers: u32,
    budgets: NamespaceBudgets,
) -> Result<(Arc<ExecutionReader>, impl Future<Output = StoreError> + Send + use<>), Failure> {
    let missing = |file| {
        let path = front.state_dir.join(file);
        format!(
            "{}: {} does not exist: with --read-only, the executor reads what another one has written there. Start that one first, or correct --state-dir.",
            reasons::STATE_DIR_MISSING,
            path.display()
        )
    };
    let location = Location::file(front.state_dir.join(JOURNAL));
    let journal = belay_journal_sqlite::open_to_read(&location, Threads::Real)
        .map_err(|error| format!("{}: {error}", store_reason(&error)))?
        .ok_or_else(|| missing(JOURNAL))?;
    let ids = Ids::from_system();
    let seal_key = SealKeyFile::load(&front.state_dir, || ids.next_key())?;
    if seal_key.is_missing() {
        return Err(missing(SEAL_KEY_FILE).into());
    }
    let master_key = seal_key.open(&*journal.reader).await.map_err(|error| format!("{}: {error}", error.reason()))?;
    let parts = ReaderParts {
        journal,
        blobs: Arc::new(Folder::new(front.state_dir.join(BLOBS))),
        threads: Threads::Real,
        clock: Arc::new(SystemClock),
        ids,
        redactor,
        master_key,
        telemetry: front.spans.clone(),
        shutdown: front.stop.clone(),
        max_watchers,
        budgets,
        thresholds: Thresholds::default(),
    };
    Ok(ExecutionReader::beside_owner(parts).await?)
}

/// The side of the process that clients and operators see.
struct Front {
    listen: Address,
    reach: Reach,
    access: Access,
    state_dir: PathBuf,
    spans: Telemetry,
    trigger: Trigger,
    stop: Shutdown,
}

impl Front {
    async fn bind(&self) -> Result<Bound, BindError> {
        net::bind_for(&self.listen, self.reach).await
    }

    /// Serves until a signal, or until `broken` returns why nothing can be served any more.
    async fn serve(
        self,
        listener: Bound,
        service: HostedServices,
        measured: Option<Arc<dyn MetricsSource>>,
        broken: impl Future<Output = String>,
    ) -> Result<(), Failure> {
        let store = Arc::new(StoreFiles::new("journal", self.state_dir.join(JOURNAL)));
        let measured: AllMeasured =
            measured.into_iter().chain([Arc::clone(&store) as Arc<dyn MetricsSource>]).collect();
        let read = move || {
            let measured = Arc::clone(&measured);
            async move { metrics::read(&measured).await }
        };
        let stopping = self.stop.clone();
        let stopping = async move { stopping.requested().await };
        let now = || SystemClock.now_micros();
        let export = MetricsExport::start("belay-executor", &Ids::from_system().next_id(), read, now, stopping)?;
        let serving = tokio::spawn(listener.serve(service.with_metrics(store), self.access, self.stop));
        let outcome = tokio::select! {
            signal = shutdown::signal() => { tracing::info!(signal = signal?, "The executor is stopping"); Ok(()) }
            reason = broken => Err(reason),
        };
        self.trigger.pull();
        serving.await??;
        let spans = [&self.spans];
        tokio::join!(export.end(LAST_FLUSH), Telemetry::end(&spans, LAST_FLUSH));
        Ok(outcome?)
    }
}
