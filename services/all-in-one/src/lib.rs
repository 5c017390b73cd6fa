//! The services in one process, connected by gRPC, on SQLite: the laptop deployment.
//!
//! All state is in one state directory with one lock. A process that finds the lock held connects to its holder as a client.
//!
//! A program that opens a state directory must call [`take_over_if_asked`] on the first line of `main`: Belay executes the program again to
//! launch commands.

mod check;
mod config;
mod doctor;
mod endpoint;
mod error;
mod policy;
mod principals;
mod process;
mod sizes;
pub mod spans;
mod state_dir;
mod stores;

pub use belay_tool_runner::take_over_if_asked;
pub use check::{CheckedStore, check_stores};
pub use config::{
    Config, ConfigError, ConfigSource, LoadedSettings, OperatorCredential, Origin, Row, ValueWithOrigin, Violation,
};
pub use doctor::{CheckedCredential, Diagnosis, Folder, Probe, Program, doctor};
pub use endpoint::Endpoint;
pub use error::StartError;
pub use policy::{PolicyChoice, PolicyFacts, PolicyViolation, RefusedPolicy, check_policy, is_same_policy};
pub use principals::{IssuedToken, PrincipalEntry, PrincipalsFile, Role};
pub use process::{SERVICES, ServiceFuture, serve_if_asked};
pub use sizes::{MeasuredStore, Sizes, measure_stores};
pub use spans::telemetry;
pub use state_dir::{StateDir, find_running, is_state_dir, made_folder};

use std::{net::SocketAddr, path::PathBuf, sync::Arc};

use belay_approval_gate::{Gate, RunnerClient, Store, keys};
use belay_executor::{ExecutionRegistry, Redactor, Runner, SealKeyFile};
use belay_grant::{Keys, SigningKey};
use belay_policy::Policies;
// Re-exported for clients that read JSON as the services do.
pub use belay_json as json;
// Re-exported for clients that show network profiles.
pub use belay_network as network;
// Re-exported for clients that read a plan with the files that its steps name.
pub use belay_plan::{
    ComposedDocument, FileContent, Format as PlanTextFormat, PlanText, Violation as PlanTextViolation,
    limits::MAX_NESTED_PLANS, refused_name,
};
// Re-exported for clients that start a trace or configure the log.
pub use belay_service_kit::telemetry::{InvalidLogFormat, LogFormat, init as log_to_stderr};
pub use belay_sqlite::release_page_caches;
pub use belay_telemetry::{Telemetry, TelemetryError, TraceContext};

use belay_service_kit::{
    Access, Clock, Ids, People, ServeError, Service, ServiceChannel, Services, Shutdown, SystemClock, Trigger,
    metrics::{AllMeasured, MetricsSource, StoreFiles},
    net::{self, Reach},
    register,
};
use belay_settings::{GateLimits, RunnerLimits};
use belay_sqlite::Threads;
use belay_tool_runner::{
    AllowedWorkspaces, Calls, CommandSettings, Enforcement, HostDirectories, Ledger, Registry, Workspaces, tools,
};
use tokio::task::JoinHandle;

use spans::{MetricsExports, Spans};
use state_dir::{StateHolder, StateLock};
use stores::OpenStores;

/// The options of a start.
#[derive(Clone, Debug)]
pub struct Options {
    /// The state directory.
    pub state_dir: PathBuf,
    /// An additional TCP address to listen on.
    pub listen: Option<SocketAddr>,
    /// Listen there even if other machines can reach it and nothing is encrypted.
    pub insecure_listen_beyond_loopback: bool,
    /// Resume every execution that has not ended. Otherwise only executions that are started or resumed run.
    pub drive_all: bool,
    /// The policy of the start.
    pub policy: PolicyChoice,
    /// The operator's settings.
    pub config: ConfigSource,
    /// Accept stores that are older than another store requires.
    pub accept_older_store: bool,
}

/// The result of opening a state directory.
pub enum StateOpening {
    /// This process holds it and runs the services.
    Holder(EmbeddedServices),
    /// Another process holds it; its services listen here.
    Held(Endpoint),
}

/// The running services.
pub struct EmbeddedServices {
    endpoint: Endpoint,
    listening: Option<(SocketAddr, String)>,
    executions: Arc<ExecutionRegistry>,
    calls: Arc<Calls>,
    ledger: PathBuf,
    drive_all: bool,
    trigger: Trigger,
    serving: Vec<JoinHandle<Result<(), ServeError>>>,
    spans: Spans,
    metrics: MetricsExports,
    _held: StateLock,
}

/// Opens a state directory, creating it if needed, and starts the services unless another process runs them.
///
/// # Errors
/// [`StartError`]; its message says what to do.
pub async fn open(options: Options) -> Result<StateOpening, StartError> {
    let state_dir = StateDir::prepare(&options.state_dir)?;
    let held = match state_dir.hold().await? {
        StateHolder::Ours(held) => held,
        StateHolder::Theirs(endpoint) => return Ok(StateOpening::Held(endpoint)),
    };
    // Before anything is created: an invalid policy changes nothing.
    let policies = options.policy.read().map_err(StartError::Policy)?;
    let config = options.config.load().map_err(StartError::Config)?;
    let commands = CommandSettings::of_runner(config.commands, &config.loaded, state_dir.path());
    let commands = Arc::new(commands.map_err(StartError::Config)?);
    let webhooks = belay_executor::webhooks(&config.loaded).map_err(StartError::Config)?;
    let models = belay_executor::models(&config.loaded).map_err(StartError::Config)?;
    let spans = Spans::from_env(&config.loaded.redactor).map_err(StartError::Telemetry)?;
    let redactor = config.loaded.redactor.clone();
    let ids = Ids::from_system();
    let (trigger, stop) = Shutdown::new();
    let clock = Arc::new(SystemClock);

    let key = keys::open(state_dir.path(), || ids.next_key()).map_err(StartError::Key)?;
    let seal_key = SealKeyFile::load(state_dir.path(), || ids.next_key()).map_err(StartError::SealKey)?;
    let limits = config.loaded.settings.services.clone();
    let sandbox = commands.sandbox();
    let enforcement = tokio::task::spawn_blocking(|| Enforcement::probed(sandbox)).await.map_err(internal)?;
    if let Err(refusal) = enforcement.launcher() {
        tracing::warn!("{}", refusal.message);
    }
    let registry =
        tools::registry(&enforcement, &commands, &config.loaded, clock.clone()).await.map_err(StartError::Config)?;
    let opened =
        OpenStores::open(&state_dir, &ids, &registry, &seal_key, &redactor, options.accept_older_store).await?;
    let OpenStores { journal, ledger, approvals, master_key } = opened;
    let journal_stores = Arc::clone(&journal.stores);
    let calls = runner(
        &state_dir,
        clock.clone(),
        &key,
        ledger,
        registry,
        enforcement,
        spans.runner.clone(),
        limits.runner,
        config.loaded.credential_paths(),
    )
    .await?;

    let tokens = ServiceTokens::new(&ids);
    let runner_socket = net::Address::Unix(state_dir.runner_socket());
    let gate_service_socket = net::Address::Unix(state_dir.gate_service_socket());
    let runner_listener = net::bind(&runner_socket).await.map_err(StartError::Bind)?;
    let gate_service_listener = net::bind(&gate_service_socket).await.map_err(StartError::Bind)?;
    let gate_listener = net::bind(&net::Address::Unix(state_dir.gate_socket())).await.map_err(StartError::Bind)?;
    let executor_listener =
        net::bind(&net::Address::Unix(state_dir.executor_socket())).await.map_err(StartError::Bind)?;
    let owner_token = state_dir.token(&ids)?;
    let tcp = match options.listen {
        Some(address) => {
            let reach = Reach { insecure_beyond_loopback: options.insecure_listen_beyond_loopback, ..Reach::default() };
            Some(net::bind_for(&net::Address::Tcp(address), reach).await.map_err(StartError::Bind)?)
        }
        None => None,
    };
    let people = People::new(Some(&owner_token), Some(state_dir.principals())).map_err(StartError::Principals)?;
    let people = Access::People(Arc::new(people));

    let gate = gate(
        &state_dir,
        approvals,
        policies,
        key,
        &calls,
        &tokens.gate_to_runner,
        clock.clone(),
        spans.gate.clone(),
        stop.clone(),
        limits.gate,
        redactor.clone(),
    )
    .await?;
    let of_executor = |address| ServiceChannel::new(net::connect_lazy(address), Arc::clone(&journal_stores));
    let (to_runner, to_gate) = (&tokens.executor_to_runner, &tokens.executor_to_gate);
    let executions = ExecutionRegistry::new(belay_executor::Parts {
        journal,
        blobs: Arc::new(belay_blobs::Folder::new(state_dir.blobs())),
        threads: Threads::Real,
        runner: Runner::new(of_executor(&runner_socket), Some(to_runner)).map_err(internal)?,
        gate: belay_executor::Gate::new(of_executor(&gate_service_socket), Some(to_gate)).map_err(internal)?,
        clock,
        ids,
        redactor: redactor.clone(),
        master_key,
        telemetry: spans.executor.clone(),
        shutdown: stop.clone(),
        limits: limits.executor,
        retention: config.loaded.settings.retention,
        budgets: config.loaded.settings.budgets,
        webhooks,
        models,
        thresholds: belay_executor::Thresholds::default(),
    });
    let asking = belay_approval_gate::hosted_for_services(Arc::clone(&gate));
    let deciding = || belay_approval_gate::hosted(Arc::clone(&gate));
    let mut serving = vec![
        tokio::spawn(runner_listener.serve(
            belay_tool_runner::hosted(Arc::clone(&calls), stop.clone()),
            tokens.at_runner(),
            stop.clone(),
        )),
        tokio::spawn(gate_service_listener.serve(asking, tokens.at_gate(), stop.clone())),
        tokio::spawn(gate_listener.serve(deciding(), people.clone(), stop.clone())),
    ];
    if options.drive_all {
        executions.drive_all().await.map_err(|error| StartError::journal(&state_dir.journal(), error))?;
    }
    let size = |name, path| Arc::new(StoreFiles::new(name, path));
    let sizes =
        [size("journal", state_dir.journal()), size("ledger", state_dir.ledger()), size("gate", state_dir.approvals())];
    let [journal_size, ledger_size, gate_size] =
        sizes.each_ref().map(|size| Arc::clone(size) as Arc<dyn MetricsSource>);
    let measured: [(&str, AllMeasured); 3] = [
        ("belay-executor", Arc::new([Arc::clone(&executions) as _, journal_size])),
        ("belay-tool-runner", Arc::new([Arc::clone(&calls) as _, ledger_size])),
        ("belay-approval-gate", Arc::new([Arc::clone(&gate) as _, gate_size])),
    ];
    let metrics = MetricsExports::start(measured, &stop).map_err(StartError::Telemetry)?;
    let hosted = || {
        let hosted = belay_executor::hosted(Arc::clone(&executions)).and(deciding()).with_metrics(Arc::clone(&calls));
        sizes.iter().fold(hosted, |hosted, size| hosted.with_metrics(Arc::clone(size)))
    };
    let listening = match tcp {
        Some(listener) => {
            let net::Address::Tcp(address) = listener.address() else {
                return Err(StartError::Internal("a TCP listener has no TCP address".into()));
            };
            serving.push(tokio::spawn(listener.serve(hosted(), people.clone(), stop.clone())));
            Some((address, owner_token))
        }
        None => None,
    };
    serving.push(tokio::spawn(executor_listener.serve(hosted(), people, stop)));
    Ok(StateOpening::Holder(EmbeddedServices {
        endpoint: Endpoint::Unix(state_dir.executor_socket()),
        listening,
        executions,
        calls,
        ledger: state_dir.ledger(),
        drive_all: options.drive_all,
        trigger,
        serving,
        spans,
        metrics,
        _held: held,
    }))
}

/// The tokens between the bundled services. New at each start and never stored, so that no user, and no program of the same user, can call
/// as a service.
struct ServiceTokens {
    executor_to_runner: String,
    executor_to_gate: String,
    gate_to_runner: String,
}

impl ServiceTokens {
    fn new(ids: &Ids) -> Self {
        let token = || register::token(ids.next_key());
        Self { executor_to_runner: token(), executor_to_gate: token(), gate_to_runner: token() }
    }

    fn at_runner(&self) -> Access {
        let tokens = [(Service::Executor, &*self.executor_to_runner), (Service::ApprovalGate, &*self.gate_to_runner)];
        Access::Services(Arc::new(Services::new([], &tokens)))
    }

    fn at_gate(&self) -> Access {
        Access::Services(Arc::new(Services::new([], &[(Service::Executor, &*self.executor_to_gate)])))
    }
}

/// Builds the runner. It trusts only policies and grants signed by the gate's key, and allows no call near the state directory, or where the values of
/// credentials are read.
#[expect(clippy::too_many_arguments, reason = "the parts of the runner")]
async fn runner(
    state_dir: &StateDir,
    clock: Arc<dyn Clock>,
    key: &SigningKey,
    ledger: Ledger,
    registry: Registry,
    enforcement: Enforcement,
    telemetry: Telemetry,
    limits: RunnerLimits,
    credential_paths: Vec<PathBuf>,
) -> Result<Arc<Calls>, StartError> {
    let parts = belay_tool_runner::Parts {
        registry,
        ledger,
        clock,
        keys: Keys::new([key.verifying_key()]),
        workspaces: Workspaces {
            own: state_dir.workspaces()?,
            allowed: AllowedWorkspaces::Any,
            forbidden: [state_dir.path().to_owned()].into_iter().chain(credential_paths).collect(),
        },
        directories: Arc::new(HostDirectories),
        enforcement,
        telemetry,
        threads: Threads::Real,
        limits,
        thresholds: belay_tool_runner::Thresholds::default(),
    };
    Calls::recover(parts).await.map_err(|status| StartError::Internal(status.message().to_owned()))
}

/// Builds the gate. Without a policy from the caller, the last policy of the runner stays. The published policy is passed to the runner
/// here, because it cannot change while both run.
#[expect(clippy::too_many_arguments, reason = "the parts of the gate")]
async fn gate(
    state_dir: &StateDir,
    store: Store,
    policies: Option<Policies>,
    key: SigningKey,
    calls: &Calls,
    runner_token: &str,
    clock: Arc<dyn Clock>,
    telemetry: Telemetry,
    shutdown: Shutdown,
    limits: GateLimits,
    redactor: Redactor,
) -> Result<Arc<Gate>, StartError> {
    let path = state_dir.approvals();
    let ids = Ids::from_system();
    let last = || calls.policy().current().map(|held| held.policies.clone());
    let policies = policies.or_else(last).unwrap_or_else(Policies::of_one_person);
    let runner = net::connect_lazy(&net::Address::Unix(state_dir.runner_socket()));
    let runner = ServiceChannel::new(runner, Arc::clone(store.stores()));
    let runner = RunnerClient::new(runner, Some(runner_token)).map_err(internal)?;
    let parts =
        belay_approval_gate::Parts { store, key, policies, runner, clock, ids, redactor, telemetry, shutdown, limits };
    let gate = Gate::open(parts).await.map_err(|error| StartError::gate(&path, &error))?;
    let published = gate.policy().signed.clone();
    calls.policy().offer(published).await.map_err(|error| StartError::refused_policy(&path, &error))?;
    Ok(gate)
}

fn internal(error: impl std::fmt::Display) -> StartError {
    StartError::Internal(error.to_string())
}

impl EmbeddedServices {
    /// The address of the executor.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its TCP address, and the token that callers have to send there.
    pub fn listening(&self) -> Option<&(SocketAddr, String)> {
        self.listening.as_ref()
    }

    /// Returns when a store has failed and the services should stop, with the reason.
    pub async fn failed(&self) -> StartError {
        tokio::select! {
            biased;
            reason = self.executions.broken() => {
                StartError::Store { code: belay_executor::store_reason(&reason), message: reason.to_string() }
            }
            error = self.calls.failed() => StartError::sqlite(&self.ledger, &error),
        }
    }

    /// Stops the services. Executions that this process started, and that no other process drives, are paused first and their running calls
    /// are discarded: no attempt is used up, and a resume continues them. Executions of `drive_all` continue at the next start.
    pub async fn shutdown(self) {
        if !self.drive_all {
            let pause = self.executions.pause_all("belay", "the process that drove it stopped");
            tokio::select! {
                biased;
                // With a broken ledger, unresolved calls cannot be stopped: the next start determines their outcome.
                _ = self.calls.failed() => {}
                () = pause => {}
            }
        }
        self.trigger.pull();
        for service in self.serving {
            match service.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "A service did not shut down cleanly"),
                Err(error) => tracing::warn!(%error, "A service did not shut down cleanly"),
            }
        }
        if let Err(error) = self.calls.close().await {
            tracing::warn!(%error, "Acknowledged calls could not be removed from the ledger");
        }
        tokio::join!(self.metrics.end(self.drive_all), self.spans.shutdown(self.drive_all));
    }
}
