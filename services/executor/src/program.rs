//! The executor as a process of its own.

use std::{error::Error, sync::Arc};

use belay_blobs::Folder;
use belay_service_kit::{
    Access, Clock as _, Ids, People, ServiceChannel, Shutdown, SystemClock, net,
    net::Reach,
    program, shutdown,
    telemetry::{self, LogFormat},
};
use belay_sqlite::{Location, Threads};
use belay_telemetry::{LAST_FLUSH, Telemetry};

use crate::{
    ExecutionRegistry, Gate, Parts, Redactor, Runner, Settings, Thresholds, hosted, open_seal_key, store_reason,
};

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// When it cannot start, or its journal can no longer be written.
pub async fn serve(settings: Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    let operator = belay_settings::load(settings.config.as_deref(), &|name| std::env::var_os(name))?.settings;
    telemetry::init(operator.log.level.value.word(), LogFormat::from_env_or(operator.log.format.value.word())?);
    let entropy = Ids::from_system();
    let spans = Telemetry::from_env("belay-executor", Redactor::new(), move |bytes| entropy.fill(bytes))?;
    let people = People::new(settings.token.as_deref(), settings.principals)?;
    let access = Access::people(&settings.listen, people)?;
    let reach =
        Reach { group: settings.listen_group, insecure_beyond_loopback: settings.insecure_listen_beyond_loopback };
    program::state_folder(&settings.state_dir)?;

    let ids = Ids::from_system();
    let master_key = open_seal_key(&settings.state_dir, || ids.next_key())?;
    let accepted = settings.accept_older_store.then(|| SystemClock.now_micros());
    let location = Location { accepted, ..Location::file(settings.state_dir.join("journal.db")) };
    let journal = belay_journal_sqlite::open(&location, Threads::Real, || ids.next_id())?;
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
        redactor: Redactor::new(),
        master_key,
        telemetry: spans.clone(),
        shutdown: stop.clone(),
        limits: operator.services.executor,
        retention: operator.retention,
        thresholds: Thresholds::default(),
    };
    let registry = ExecutionRegistry::new(parts);
    let taken_up = registry.drive_all().await?;
    tracing::info!(address = %listener.address(), executions = taken_up, "The executor is listening");

    let serving = tokio::spawn(listener.serve(hosted(Arc::clone(&registry)), access, stop));
    let outcome = tokio::select! {
        signal = shutdown::signal() => { tracing::info!(signal = signal?, "The executor is stopping"); Ok(()) }
        reason = registry.broken() => Err(format!("{}: {reason}", store_reason(&reason))),
    };
    trigger.pull();
    serving.await??;
    Telemetry::end(&[&spans], LAST_FLUSH).await;
    Ok(outcome?)
}
