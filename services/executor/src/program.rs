//! The executor as a process of its own.

use std::{error::Error, sync::Arc};

use belay_blobs::Folder;
use belay_service_kit::{
    Access, Clock as _, Ids, People, ServiceChannel, Shutdown, SystemClock,
    metrics::{self, AllMeasured, Measured, StoreFiles},
    net,
    net::Reach,
    program,
    register::token_problem,
    shutdown,
    telemetry::{self, LogFormat},
};
use belay_sqlite::{Location, Threads};
use belay_telemetry::{LAST_FLUSH, MetricsExport, Telemetry};

use crate::{
    ExecutionRegistry, Gate, Parts, Runner, SealKeyFile, Settings, Thresholds, hosted, store_reason, webhooks,
};

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// When it cannot start, or its journal can no longer be written.
pub async fn serve(settings: Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    let loaded = belay_settings::load(settings.config.as_deref(), &|name| std::env::var_os(name))?;
    let webhooks = webhooks(&loaded)?;
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
    program::state_folder(&settings.state_dir)?;

    let ids = Ids::from_system();
    let seal_key = SealKeyFile::load(&settings.state_dir, || ids.next_key())?;
    let accepted = settings.accept_older_store.then(|| SystemClock.now_micros());
    let location = Location { accepted, ..Location::file(settings.state_dir.join("journal.db")) };
    let journal = belay_journal_sqlite::open(&location, Threads::Real, || ids.next_id())?;
    let master_key = seal_key.open(&*journal.reader).await.map_err(|error| format!("{}: {error}", error.reason()))?;
    seal_key.store()?;
    let channel = |address| ServiceChannel::new(net::connect_lazy(address), Arc::clone(&journal.stores));
    let runner = Runner::new(channel(&settings.runner), settings.runner_token.as_deref())?;
    let gate = Gate::new(channel(&settings.gate), settings.gate_token.as_deref())?;
    let listener = net::bind_for(&settings.listen, reach).await?;
    let (trigger, stop) = Shutdown::new();
    let parts = Parts {
        journal,
        blobs: Arc::new(Folder::new(settings.state_dir.join("blobs"))),
        threads: Threads::Real,
        runner,
        gate,
        clock: Arc::new(SystemClock),
        ids,
        redactor,
        master_key,
        telemetry: spans.clone(),
        shutdown: stop.clone(),
        limits: operator.services.executor,
        retention: operator.retention,
        webhooks,
        thresholds: Thresholds::default(),
    };
    let registry = ExecutionRegistry::new(parts);
    let taken_up = registry.drive_all().await?;
    tracing::info!(address = %listener.address(), executions = taken_up, "The executor is listening");

    let store = Arc::new(StoreFiles::new("journal", settings.state_dir.join("journal.db")));
    let measured: AllMeasured = Arc::new([Arc::clone(&registry) as Arc<dyn Measured>, Arc::clone(&store) as _]);
    let read = move || {
        let measured = Arc::clone(&measured);
        async move { metrics::read(&measured).await }
    };
    let stopping = stop.clone();
    let stopping = async move { stopping.requested().await };
    let now = || SystemClock.now_micros();
    let export = MetricsExport::start("belay-executor", &Ids::from_system().next_id(), read, now, stopping)?;
    let serving = tokio::spawn(listener.serve(hosted(Arc::clone(&registry)).with_metrics(store), access, stop));
    let outcome = tokio::select! {
        signal = shutdown::signal() => { tracing::info!(signal = signal?, "The executor is stopping"); Ok(()) }
        reason = registry.broken() => Err(format!("{}: {reason}", store_reason(&reason))),
    };
    trigger.pull();
    serving.await??;
    let spans = [&spans];
    tokio::join!(export.end(LAST_FLUSH), Telemetry::end(&spans, LAST_FLUSH));
    Ok(outcome?)
}
