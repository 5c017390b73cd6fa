//! The approval gate as a process of its own.

use std::{error::Error, path::Path, sync::Arc};

use belay_policy::Policies;
use belay_service_kit::{
    Access, Clock as _, Ids, People, ServiceChannel, Services, Shutdown, SystemClock,
    metrics::{self, AllMeasured, MetricsSource, StoreFiles},
    net,
    net::Reach,
    program, shutdown, state_files,
    telemetry::{self, LogFormat},
};
use belay_sqlite::{Location, Threads};
use belay_telemetry::{LAST_FLUSH, MetricsExport, Telemetry};
use tokio::signal::unix::{SignalKind, signal};

use crate::{Gate, Parts, RunnerClient, Settings, Store, hosted, hosted_for_services, keys, policy};

/// Serves until SIGINT or SIGTERM; reloads the policy at every SIGHUP.
///
/// # Errors
/// When it cannot start, or its store can no longer be written.
pub async fn serve(settings: Settings) -> Result<(), Box<dyn Error + Send + Sync>> {
    let loaded = belay_settings::load(settings.config.as_deref(), &|name| std::env::var_os(name))?;
    let (operator, redactor) = (loaded.settings, loaded.redactor);
    telemetry::init(operator.log.level.value.word(), LogFormat::from_env_or(operator.log.format.value.word())?);
    if let Some(problem) = settings.problem() {
        return Err(problem.into());
    }
    let services = Services::new(settings.users(), &settings.tokens());
    let services = Access::services(&settings.service_listen, services)?;
    let people = People::new(settings.token.as_deref(), settings.principals)?;
    let people = Access::people(&settings.listen, people)?;
    let policies = read_policy(settings.policy.as_deref())?;
    program::state_folder(&settings.state_dir)?;

    let entropy = Ids::from_system();
    let spans = Telemetry::from_env("belay-approval-gate", redactor.clone(), move |bytes| entropy.fill(bytes))?;
    let ids = Ids::from_system();
    let key = keys::open(&settings.state_dir, || ids.next_key())?;
    if let Some(path) = &settings.verification_key_file {
        keys::publish(&key, path)?;
    }
    let accepted = settings.accept_older_store.then(|| SystemClock.now_micros());
    let location = Location { accepted, ..Location::file(settings.state_dir.join(state_files::APPROVALS)) };
    let store = Store::open(&location, Threads::Real, || ids.next_id())?;
    let runner = ServiceChannel::new(net::connect_lazy(&settings.runner), Arc::clone(store.stores()));
    let runner = RunnerClient::new(runner, settings.runner_token.as_deref())?;
    let (trigger, stop) = Shutdown::new();
    let (clock, shutdown) = (Arc::new(SystemClock), stop.clone());
    let telemetry = spans.clone();
    let limits = operator.services.gate;
    let gate =
        Gate::open(Parts { store, key, policies, runner, clock, ids, redactor, telemetry, shutdown, limits }).await?;

    let insecure_beyond_loopback = settings.insecure_listen_beyond_loopback;
    let reach = |group| Reach { group, insecure_beyond_loopback };
    let listener = net::bind_for(&settings.listen, reach(settings.listen_group)).await?;
    let service_listener = net::bind_for(&settings.service_listen, reach(settings.service_listen_group)).await?;
    tracing::info!(
        address = %listener.address(),
        service_address = %service_listener.address(),
        policy_revision = gate.policy().signed.revision,
        "The approval gate is listening"
    );
    let store = Arc::new(StoreFiles::new("gate", settings.state_dir.join(state_files::APPROVALS)));
    let measured: AllMeasured = Arc::new([Arc::clone(&gate) as Arc<dyn MetricsSource>, Arc::clone(&store) as _]);
    let read = move || {
        let measured = Arc::clone(&measured);
        async move { metrics::read(&measured).await }
    };
    let stopping = stop.clone();
    let stopping = async move { stopping.requested().await };
    let now = || SystemClock.now_micros();
    let export = MetricsExport::start("belay-approval-gate", &Ids::from_system().next_id(), read, now, stopping)?;
    let serving = hosted(Arc::clone(&gate)).with_metrics(store);
    let serving = tokio::spawn(listener.serve(serving, people, stop.clone()));
    let serving_services = tokio::spawn(service_listener.serve(hosted_for_services(Arc::clone(&gate)), services, stop));
    let outcome = tokio::select! {
        signal = shutdown::signal() => { tracing::info!(signal = signal?, "The approval gate is stopping"); Ok(()) }
        error = reload(&gate, settings.policy.as_deref()) => return Err(error.into()),
        error = gate.failed() => Err(format!("{}: {error}", error.reason())),
    };
    trigger.pull();
    serving.await??;
    serving_services.await??;
    // What could not be delivered has been logged.
    let spans = [&spans];
    tokio::join!(export.end(LAST_FLUSH), Telemetry::end(&spans, LAST_FLUSH));
    Ok(outcome?)
}

fn read_policy(path: Option<&Path>) -> Result<Policies, policy::PolicyFileError> {
    path.map_or_else(|| Ok(Policies::preset()), policy::load)
}

/// Rereads the policy file at every SIGHUP; returns only when the operating system refuses the handler.
async fn reload(gate: &Gate, path: Option<&Path>) -> std::io::Error {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => hangup,
        Err(error) => return error,
    };
    while hangup.recv().await.is_some() {
        match read_policy(path) {
            Err(error) => tracing::error!(%error, "The policy in force stays"),
            Ok(policy) => match gate.set_policy(&policy).await {
                Ok(active) => tracing::info!(revision = active.signed.revision, "The policy file was reloaded"),
                Err(error) => tracing::error!(%error, "The policy in force stays"),
            },
        }
    }
    std::future::pending().await
}
