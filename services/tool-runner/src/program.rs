//! The tool runner as a process of its own.

use std::{error::Error, fs::canonicalize, path::PathBuf, sync::Arc};

use belay_redaction::MasterKey;
use belay_service_kit::{
    Access, Clock, Ids, ServiceChannel, Services, Shutdown, SystemClock, key_file,
    metrics::{self, AllMeasured, MetricsSource, StoreFiles},
    net,
    net::Reach,
    program, shutdown, state_files,
    telemetry::{self, LogFormat},
};
use belay_settings::{ResolvedCommands, toolchains::Host};
use belay_sqlite::{Location, SqliteError, Threads};
use belay_telemetry::{LAST_FLUSH, MetricsExport, Telemetry};

use crate::{
    AllowedWorkspaces, Calls, CommandSettings, Enforcement, GateChannel, HostDirectories, Ledger, Parts, Secrets,
    Settings, Thresholds, Workspaces, gate_key, hosted, tools,
};

/// Serves until SIGINT or SIGTERM. A program that calls this must have called [`crate::take_over_if_asked`] first.
///
/// # Errors
/// When it cannot start, or its ledger can no longer be written.
pub async fn serve(settings: Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    let loaded = belay_settings::load(settings.config.as_deref(), &|name| std::env::var_os(name))?;
    let operator = loaded.settings.clone();
    telemetry::init(operator.log.level.value.word(), LogFormat::from_env_or(operator.log.format.value.word())?);
    let entropy = Ids::from_system();
    let spans = Telemetry::from_env("belay-tool-runner", loaded.redactor.clone(), move |bytes| entropy.fill(bytes))?;
    if let Some(problem) = settings.problem() {
        return Err(problem.into());
    }
    let access = Access::services(&settings.listen, Services::new(settings.users(), &settings.tokens()))?;
    let reach =
        Reach { group: settings.listen_group, insecure_beyond_loopback: settings.insecure_listen_beyond_loopback };
    let keys = gate_key(&settings.gate_key)?;
    program::state_folder(&settings.state_dir)?;
    let state_dir = canonicalize(&settings.state_dir)?;
    let roots = settings.workspace_roots.iter().map(canonicalize).collect::<Result<_, _>>()?;
    let own = settings.workspaces.unwrap_or_else(|| state_dir.join("workspaces"));
    program::private_folder(&own)?;
    let workspaces = Workspaces {
        own: canonicalize(own)?,
        allowed: AllowedWorkspaces::Roots(roots),
        forbidden: [state_dir.clone()].into_iter().chain(loaded.credential_paths()).collect(),
    };

    // A separate service has no caller with toolchains: commands see what the operator's settings name.
    let here = ResolvedCommands::of(operator.commands, None, &Host);
    let commands = Arc::new(CommandSettings::of_runner(here, &loaded, &state_dir)?);
    let enforcement = Enforcement::probed(commands.sandbox());
    if let Err(refusal) = enforcement.launcher() {
        tracing::warn!("{}", refusal.message);
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let registry = tools::registry(&enforcement, &commands, &loaded, Arc::clone(&clock)).await?;
    let ids = Ids::from_system();
    let seal_key = key_file::load(&state_dir.join(state_files::SEAL_KEY), key_file::SEAL, || ids.next_key())?;
    let master_key = MasterKey::new(seal_key.key());
    let id = ids.next_id();
    let secrets = Secrets::new(loaded.redactor.clone(), master_key, registry.clone(), move || ids.next_key());
    let accepted = settings.accept_older_store.then(|| SystemClock.now_micros());
    let location = Location { accepted, ..Location::file(state_dir.join(state_files::LEDGER)) };
    let ledger = Ledger::open(&location, Threads::Real, secrets, || id)?;
    seal_key.store()?;
    let gate = ServiceChannel::new(net::connect_lazy(&settings.gate), Arc::clone(ledger.stores()));
    let gate = GateChannel::new(gate, settings.gate_token.as_deref())?;
    let calls = Calls::recover(Parts {
        registry,
        ledger,
        clock,
        keys,
        workspaces,
        directories: Arc::new(HostDirectories),
        enforcement,
        telemetry: spans.clone(),
        threads: Threads::Real,
        limits: operator.services.runner,
        thresholds: Thresholds::default(),
    })
    .await?;
    let policy = Arc::clone(calls.policy());
    let following = tokio::spawn(async move { policy.follow_gate(gate, &Ids::from_system()).await });
    let listener = net::bind_for(&settings.listen, reach).await?;
    tracing::info!(address = %listener.address(), "The tool runner is listening");

    let (trigger, stop) = Shutdown::new();
    let store = Arc::new(StoreFiles::new("ledger", state_dir.join(state_files::LEDGER)));
    let measured: AllMeasured = Arc::new([Arc::clone(&calls) as Arc<dyn MetricsSource>, Arc::clone(&store) as _]);
    let read = move || {
        let measured = AllMeasured::clone(&measured);
        async move { metrics::read(&measured).await }
    };
    let stopping = stop.clone();
    let stopping = async move { stopping.requested().await };
    let now = || SystemClock.now_micros();
    let export = MetricsExport::start("belay-tool-runner", &Ids::from_system().next_id(), read, now, stopping)?;
    let serving = hosted(Arc::clone(&calls), stop.clone()).with_metrics(store);
    let serving = tokio::spawn(listener.serve(serving, access, stop));
    let outcome = tokio::select! {
        signal = shutdown::signal() => { tracing::info!(signal = signal?, "The tool runner is stopping"); Ok(()) }
        error = calls.failed() => Err(StoppedServing { code: error.reason(), ledger: state_dir.join(state_files::LEDGER), error }),
    };
    trigger.pull();
    serving.await??;
    following.abort();
    if outcome.is_ok()
        && let Err(error) = calls.close().await
    {
        tracing::warn!(%error, "Cannot delete acknowledged calls from the ledger");
    }
    // What could not be delivered has been logged.
    let spans = [&spans];
    tokio::join!(export.end(LAST_FLUSH), Telemetry::end(&spans, LAST_FLUSH));
    Ok(outcome?)
}

/// Why the runner stopped without a signal.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {}", .ledger.display())]
struct StoppedServing {
    code: &'static str,
    ledger: PathBuf,
    #[source]
    error: SqliteError,
}
