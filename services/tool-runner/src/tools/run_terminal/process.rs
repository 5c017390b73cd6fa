//! Runs a command until its last process has ended. No thread blocks while it runs.

use std::{
    io::{self, PipeReader, PipeWriter},
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::available_parallelism,
    time::Duration,
};

use belay_network::Secret;
use belay_proto::v1::NetworkUse;
use belay_proxy::ModelUse;
use belay_sandbox::{
    Dialogue, KillHandle, Launcher, Outcome, Output as CommandOutput, ProcessEnd, RunningCommand, Status, Timer,
};
use belay_sqlite::{Lane, Threads};
use futures::{
    TryFutureExt as _,
    future::{BoxFuture, OptionFuture},
};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::oneshot,
    time::{Sleep, sleep, timeout},
};

use super::{
    ask::{self, Asker},
    asked_hosts, ending,
    network::{self, NetworkOfCall},
    outputs,
    request::{CommandRequest, spec},
    streams,
};
use crate::{
    CommandSettings, Enforcement, HeldView, Output, ToolFailure,
    proxy::{CommandAccess, ProxyHolder},
    tools::files::stopped,
};

/// The lanes for the blocking parts of a command: starting it, and tearing it down.
#[derive(Clone)]
pub(super) struct Lanes {
    starts: Lane,
    ends: Lane,
}

impl Lanes {
    /// Starting a command is CPU-bound: more concurrent starts only delay all of them.
    pub(super) fn new() -> Self {
        const STARTS_PER_PROCESSOR: usize = 4;
        let processors = available_parallelism().map_or(2, usize::from);
        let lane = |slots| Lane::new(Threads::Real, slots);
        Self { starts: lane(STARTS_PER_PROCESSOR * processors.max(2)), ends: lane(16) }
    }
}

/// A client of a command that is a server: it reads and writes the pipes, and the timer is that of the command. It returns how long the server may take to end
/// once its input is closed.
pub(crate) type ServerClient =
    Box<dyn FnOnce(PipeReader, PipeWriter, io::Result<Timer>) -> BoxFuture<'static, Duration> + Send>;

/// How long the client of a server that has ended may take to read what is still in the pipe.
const LAST_READ: Duration = Duration::from_secs(2);

/// The use of the pipes of a command.
pub(super) enum Exchange {
    /// It asks people.
    Questions(Asker),
    /// It is a server, and this is its client.
    Client(ServerClient),
}

impl Exchange {
    /// The pipes that it needs.
    pub(super) fn dialogue(&self) -> Dialogue {
        match self {
            Self::Questions(_) => Dialogue::Questions,
            Self::Client(_) => Dialogue::StandardStreams,
        }
    }
}

/// The dependencies of a command.
pub(super) struct Host {
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) settings: Arc<CommandSettings>,
    pub(super) lanes: Lanes,
    /// Counts the command.
    pub(super) enforcement: Enforcement,
    /// Receives the names of the active layers.
    pub(super) enforced: Arc<OnceLock<Vec<String>>>,
    /// The proxy behind the network of commands.
    pub(super) proxy: Arc<ProxyHolder>,
    /// Receives what the command did on its network.
    pub(super) network_use: Arc<OnceLock<NetworkUse>>,
}

/// The end of a command.
pub(crate) struct CommandResult {
    pub(crate) outcome: Outcome,
    pub(crate) output: CommandOutput,
    /// The bytes that it has appended to the file for its outputs.
    pub(crate) outputs: Vec<u8>,
    /// Whether it had its own loopback interface.
    pub(crate) loopback: bool,
    /// The reason why it may have failed on its network, after `it`.
    pub(crate) refusal: Option<String>,
    /// Its use of models behind base URLs, as the proxy has counted it.
    pub(crate) models: ModelUse,
}

/// Runs a command, and holds its view until its last process has ended. `over` resolves when the call's future is dropped.
pub(super) async fn run(
    mut view: HeldView,
    host: Host,
    asked: CommandRequest,
    life: Life,
    mut over: oneshot::Receiver<()>,
    (output, exchange, asker): (Arc<dyn Output>, Option<Exchange>, Option<Asker>),
) -> Result<CommandResult, ToolFailure> {
    let Host { launcher, settings, lanes, enforcement, enforced, proxy, network_use } = host;
    let limit = asked.limit;
    let (of_call, hidden_in) = (asked.network.clone(), Arc::clone(&output));
    // Before the command: without a proxy and its credentials it does not run at all. Not in a lane: a source may take seconds, which nobody else waits for.
    let prepared = prepare(&asked, proxy, Arc::clone(&settings));
    let (network, revealed) = tokio::select! {
        biased;
        _ = &mut over => return Err(stopped()),
        prepared = prepared => prepared?,
    };
    let slot = tokio::select! {
        biased;
        _ = over => return Err(stopped()),
        slot = lanes.starts.slot() => slot,
    };
    let started = slot.run(move || {
        let mount = view.view().mount();
        let mount = mount.ok_or_else(|| ending::unavailable("this workspace cannot be mounted for a command"))?;
        let values: Vec<String> = revealed.iter().map(|(_, value)| shown(value)).collect();
        hidden_in.hide(&values);
        let reveals: Vec<String> = asked.reveals.iter().map(|name| format!("credential {name} revealed")).collect();
        let spec = spec(asked, mount, &settings, network.as_ref(), &revealed)?;
        drop(revealed);
        let program = spec.program.clone();
        life.start()?;
        let mut running = launcher.launch(spec).map_err(|error| ending::not_started(error, limit, &settings))?;
        life.begin(running.kill_handle());
        enforcement.started_commands().count(running.was_armed());
        let layers = running.layers().into_iter().map(|layer| layer.name().to_owned());
        let of_proxy = network.iter().flat_map(|network| network.proxy.enforced());
        // Set only here.
        let _ = enforced.set(layers.chain(of_proxy).chain(settings.kept_caches()).chain(reveals).collect());
        // Until then its connections wait. If the network cannot be opened, it has had none.
        let access = network.map(|network| open(network, &mut running));
        if matches!(access, Some(Err(_))) {
            end(&running.kill_handle());
        }
        Ok::<_, ToolFailure>((view, program, running, access))
    });
    let (view, program, running, mut access) = started.await?;
    let loopback = running.enforced().loopback;
    let asked = access.as_mut().and_then(|access| access.as_mut().ok()).and_then(CommandAccess::take_questions);
    let profile_name: Arc<str> = of_call.as_deref().map_or("", |profile| profile.name.as_str()).into();
    // Ends with the network of the command, which is closed below.
    let _asking_hosts =
        asker.zip(asked).map(|(asker, asked)| tokio::spawn(asked_hosts::serve(asker, profile_name, asked)));
    let ended = follow(running, &lanes.ends, &*output, exchange).await;
    let access = access.transpose()?;
    let (mut refusal, mut models) = (None, ModelUse::default());
    if let Some((profile, access)) = of_call.zip(access) {
        let report = lanes.ends.run(move || access.close(network::ACCOUNT_TIMEOUT)).await;
        refusal = network::refusal(&report);
        models = report.models;
        // Set only here, and before the view is released: the call is waited for that long, also when it was stopped.
        let _ = network_use.set(network::account(&profile, &report));
    }
    drop(view);
    let (outcome, output, outputs) = ended.map_err(|error| ending::lost(&program, &error.to_string()))?;
    Ok(CommandResult { outcome, output, outputs, loopback, refusal, models })
}

/// Starts the proxy if it does not run, and reads the credentials of a call: those that its requests carry, and those that its program gets.
async fn prepare(
    asked: &CommandRequest,
    proxy: Arc<ProxyHolder>,
    settings: Arc<CommandSettings>,
) -> Result<(Option<NetworkOfCall>, Vec<(String, Secret)>), ToolFailure> {
    let (profile, reveals, max_tokens) = (asked.network.clone(), asked.reveals.clone(), asked.additions.max_tokens);
    if profile.is_none() && reveals.is_empty() {
        return Ok((None, Vec::new()));
    }
    let prepared = tokio::task::spawn_blocking(move || {
        let network =
            profile.map(|profile| NetworkOfCall::prepare(profile, &proxy, &settings, max_tokens)).transpose()?;
        Ok((network, settings.credentials().revealed(&reveals)?))
    });
    match prepared.await {
        Ok(prepared) => prepared,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(_) => Err(stopped()),
        },
    }
}

/// A value as the output is searched for it.
fn shown(value: &Secret) -> String {
    String::from_utf8_lossy(value.expose()).into_owned()
}

/// Opens the network of a command that has started.
fn open(network: NetworkOfCall, running: &mut RunningCommand) -> Result<CommandAccess, ToolFailure> {
    let NetworkOfCall { profile, proxy, credentials, max_tokens, .. } = network;
    let sockets = running.take_sockets().and_then(|made| network::sockets(&profile, made));
    let sockets = sockets.ok_or_else(|| ending::unavailable("the sandbox has not made the sockets of the network"))?;
    CommandAccess::open(proxy, &profile, sockets, &credentials, max_tokens)
}

/// Forwards the output of a command until it has ended and its processes are gone with its mounts, which has to be before the view is released.
async fn follow(
    mut running: RunningCommand,
    lane: &Lane,
    output: &dyn Output,
    exchange: Option<Exchange>,
) -> io::Result<(Outcome, CommandOutput, Vec<u8>)> {
    let kill = running.kill_handle();
    let pipes = running.from_command.take().zip(running.to_command.take()).zip(exchange);
    let (mut asking, mut client) = (None, None);
    if let Some(((from, to), exchange)) = pipes {
        match exchange {
            Exchange::Questions(asker) => {
                // A command that cannot ask any more goes on, and reads that its pipe has ended.
                let served = ask::serve(asker, from, to, running.timer());
                let warn = |error| tracing::warn!(%error, "Cannot read the questions of a command any more");
                asking = Some(Box::pin(served.map_err(warn)));
            }
            Exchange::Client(of_server) => client = Some(of_server(from, to, running.timer())),
        }
    }
    // When a server has to have ended whose client has gone.
    let mut grace: Option<Pin<Box<Sleep>>> = None;
    let (stdout, stderr) = (running.stdout.take(), running.stderr.take());
    let said = {
        let ends = async {
            let said = streams::relay(stdout, stderr, output).await;
            if said.is_err() {
                end(&kill);
            }
            gone(running.end()).await;
            said
        };
        let mut ends = pin!(ends);
        loop {
            tokio::select! {
                biased;
                said = &mut ends => break said,
                // It may go on when it has closed its output.
                Some(_) = OptionFuture::from(asking.as_mut()) => asking = None,
                Some(time) = OptionFuture::from(client.as_mut()) => {
                    client = None;
                    grace = Some(Box::pin(sleep(time)));
                }
                Some(()) = OptionFuture::from(grace.as_mut()) => {
                    grace = None;
                    end(&kill);
                }
            }
        }
    };
    drop(asking);
    if let Some(client) = client {
        // What the server has written is still in its pipe: its answer may be there.
        let _ = timeout(LAST_READ, client).await;
    }
    let outputs = running.outputs.take();
    let ended = lane.run(move || {
        let outcome = running.wait()?;
        let outputs = outputs.as_ref().map(outputs::read).transpose()?;
        Ok::<_, io::Error>((running, outcome, outputs.unwrap_or_default()))
    });
    let (running, outcome, outputs) = ended.await?;
    let of_launcher = tear_down(running, lane.clone());
    match outcome.status {
        // Its launcher frees what it has written, which the next one may need.
        Status::DiskLimit(_) => of_launcher.await,
        _ => drop(tokio::spawn(of_launcher)),
    }
    Ok((outcome, said?, outputs))
}

/// Waits until the launcher of a command that has ended is gone.
async fn tear_down(running: RunningCommand, lane: Lane) {
    if let Some(launcher) = running.launcher_end() {
        gone(launcher).await;
    }
    // One that cannot be watched any more is taken for ended.
    let _ = lane.run(move || running.tear_down()).await;
}

/// Waits for the end of a process.
async fn gone(process: ProcessEnd) {
    #[expect(
        deprecated,
        reason = "sound here, and the way that is not deprecated is unsafe: a process end has one descriptor for life"
    )]
    let watched: io::Result<AsyncFd<ProcessEnd>> = AsyncFd::with_interest(process, Interest::READABLE);
    let ended = match &watched {
        // A pidfd stays readable, so the guard may keep its readiness.
        Ok(process) => process.readable().await.map(|mut ready| ready.retain_ready()),
        Err(error) => Err(io::Error::from(error.kind())),
    };
    if let Err(error) = ended {
        tracing::warn!(%error, "Cannot wait for a process asynchronously; a thread waits for it");
    }
}

/// The lifecycle of a command, shared with the guard that kills it.
#[derive(Clone)]
pub(super) struct Life {
    stage: Arc<Mutex<Stage>>,
    /// Set when it was cancelled before it started.
    never_began: Arc<AtomicBool>,
}

enum Stage {
    /// Not started. Dropping the sender removes it from the queue.
    Before(#[expect(dead_code, reason = "held for its end")] oneshot::Sender<()>),
    /// Starting: from here on it may have an effect.
    Starting,
    /// Started.
    Running(KillHandle),
    /// Cancelled: it must end, or must not start.
    Over,
}

impl Life {
    /// A command that has not started. The receiver resolves when it is cancelled.
    pub(super) fn new(never_began: Arc<AtomicBool>) -> (Self, oneshot::Receiver<()>) {
        let (held, over) = oneshot::channel();
        (Self { stage: Arc::new(Mutex::new(Stage::Before(held))), never_began }, over)
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Marks it as starting; fails if it was cancelled.
    fn start(&self) -> Result<(), ToolFailure> {
        let mut stage = self.lock();
        if matches!(*stage, Stage::Over) {
            return Err(stopped());
        }
        *stage = Stage::Starting;
        Ok(())
    }

    /// Asks its processes to end. One that has not started does not start.
    pub(super) fn ask_to_end(&self) {
        let mut stage = self.lock();
        match &*stage {
            Stage::Before(_) => {
                *stage = Stage::Over;
                self.never_began.store(true, Ordering::Release);
            }
            Stage::Starting => *stage = Stage::Over,
            Stage::Running(handle) => {
                // If they cannot be asked, they are killed once their time is over.
                if let Err(error) = handle.terminate() {
                    tracing::warn!(%error, "Cannot ask a command to end");
                }
            }
            Stage::Over => {}
        }
    }

    /// Marks it as started; kills it if it was cancelled meanwhile.
    fn begin(&self, kill: KillHandle) {
        let mut stage = self.lock();
        match *stage {
            Stage::Over => end(&kill),
            Stage::Before(_) | Stage::Starting | Stage::Running(_) => *stage = Stage::Running(kill),
        }
    }
}

/// Cancels a command when the future of its call is dropped.
pub(super) struct KillOnDrop(pub(super) Life);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        match std::mem::replace(&mut *self.0.lock(), Stage::Over) {
            Stage::Before(_) => self.0.never_began.store(true, Ordering::Release),
            Stage::Running(kill) => end(&kill),
            Stage::Starting | Stage::Over => {}
        }
    }
}

fn end(kill: &KillHandle) {
    // If the kill fails, the time limit still ends the command.
    if let Err(error) = kill.kill() {
        tracing::error!(%error, "Cannot kill a command; it ends at its time limit");
    }
}
