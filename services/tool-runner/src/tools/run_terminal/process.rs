//! A command from its start until nothing of it is left. While it runs, no thread waits for it.

use std::{
    io,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    thread::available_parallelism,
};

use belay_sandbox::{KillHandle, Launcher, Outcome, Output as Kept, ProcessEnd, Running};
use belay_sqlite::{Lane, Threads};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::oneshot,
};

use super::{Asked, ending, spec, streams};
use crate::{CommandSettings, HeldView, Output, ToolFailure, tools::files::stopped};

/// Where the blocking moments of commands run: the milliseconds in which one starts, and the instant in which what is left of it is
/// cleared away.
#[derive(Clone)]
pub(super) struct Lanes {
    starts: Lane,
    ends: Lane,
}

impl Lanes {
    /// Starting commands is work for the processors: more at a time than a few for each only has all of them start later.
    pub(super) fn new() -> Self {
        const STARTS_PER_PROCESSOR: usize = 4;
        let processors = available_parallelism().map_or(2, usize::from);
        let lane = |slots| Lane::new(Threads::Real, slots);
        Self { starts: lane(STARTS_PER_PROCESSOR * processors.max(2)), ends: lane(16) }
    }
}

/// What commands are started with.
pub(super) struct Host {
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) settings: Arc<CommandSettings>,
    pub(super) lanes: Lanes,
    /// Where to say what holds around the command.
    pub(super) enforced: Arc<OnceLock<Vec<String>>>,
}

/// How a command ended.
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) output: Kept,
    /// Whether it had a loopback interface of its own.
    pub(super) loopback: bool,
}

/// Runs a command, and holds its view until nothing of it is left. `over` ends with the call's future.
pub(super) async fn run(
    mut view: HeldView,
    host: Host,
    asked: Asked,
    life: Life,
    over: oneshot::Receiver<()>,
    output: Arc<dyn Output>,
) -> Result<Ended, ToolFailure> {
    let Host { launcher, settings, lanes, enforced } = host;
    let slot = tokio::select! {
        biased;
        _ = over => return Err(stopped()),
        slot = lanes.starts.slot() => slot,
    };
    let limit = asked.limit;
    let started = slot.run(move || {
        let mount = view.view().mount();
        let mount = mount.ok_or_else(|| ending::unavailable("this workspace cannot be mounted for a command"))?;
        let spec = spec(asked, mount, &settings)?;
        let program = spec.program.clone();
        life.check()?;
        let running = launcher.launch(spec).map_err(|error| ending::not_started(error, limit, &settings))?;
        life.begin(running.kill_handle());
        let layers = running.layers().into_iter().map(|layer| layer.name().to_owned());
        // Nobody else sets it.
        let _ = enforced.set(layers.chain(settings.kept_caches()).collect());
        Ok::<_, ToolFailure>((view, program, running))
    });
    let (view, program, running) = started.await?;
    let loopback = running.enforced().loopback;
    let ended = follow(running, &lanes.ends, &*output).await;
    drop(view);
    let (outcome, output) = ended.map_err(|error| ending::lost(&program, &error.to_string()))?;
    Ok(Ended { outcome, output, loopback })
}

/// Hands on what a command says until it has ended, and with it its processes and its mounts: they have to be gone before anybody else gets
/// the view.
async fn follow(mut running: Running, lane: &Lane, output: &dyn Output) -> io::Result<(Outcome, Kept)> {
    let kill = running.kill_handle();
    let said = streams::relay(running.stdout.take(), running.stderr.take(), output).await;
    if said.is_err() {
        end(&kill);
    }
    // Where the kernel gives no descriptors, the thread waits that clears up.
    if let Err(error) = gone(&running).await {
        tracing::warn!(%error, "A command is waited for on a thread");
    }
    let outcome = lane.run(move || running.tear_down()).await?;
    Ok((outcome, said?))
}

/// Waits for the last two processes of a command.
async fn gone(running: &Running) -> io::Result<()> {
    for process in running.ends()? {
        #[expect(
            deprecated,
            reason = "sound here, and the way that is not deprecated is unsafe: a process end has one descriptor for life"
        )]
        let process: AsyncFd<ProcessEnd> = AsyncFd::with_interest(process, Interest::READABLE)?;
        // It stays readable: the guard may keep its readiness.
        process.readable().await?.retain_ready();
    }
    Ok(())
}

/// A command's life, as far as whoever may end it has to know.
#[derive(Clone)]
pub(super) struct Life(Arc<Mutex<Stage>>);

enum Stage {
    /// It has not begun. Dropping the sender takes it out of the line.
    Before(#[expect(dead_code, reason = "held for its end")] oneshot::Sender<()>),
    /// It has.
    Running(KillHandle),
    /// It is to end, or must not begin.
    Over,
}

impl Life {
    /// One that has not begun, with a receiver that ends when it is not to begin any more.
    pub(super) fn new() -> (Self, oneshot::Receiver<()>) {
        let (held, over) = oneshot::channel();
        (Self(Arc::new(Mutex::new(Stage::Before(held)))), over)
    }

    /// Fails when it must not begin any more.
    fn check(&self) -> Result<(), ToolFailure> {
        let stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*stage, Stage::Over) { Err(stopped()) } else { Ok(()) }
    }

    /// Says that it has begun: if it was not to, it ends here.
    fn begin(&self, kill: KillHandle) {
        let mut stage = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match *stage {
            Stage::Over => end(&kill),
            Stage::Before(_) | Stage::Running(_) => *stage = Stage::Running(kill),
        }
    }
}

/// Kills a command when its call's future is dropped, whether it has begun or not.
pub(super) struct KillOnDrop(pub(super) Life);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let mut stage = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Stage::Running(kill) = std::mem::replace(&mut *stage, Stage::Over) {
            end(&kill);
        }
    }
}

fn end(kill: &KillHandle) {
    // A kernel that refuses leaves the command to its time limit.
    if let Err(error) = kill.kill() {
        tracing::error!(%error, "A command could not be killed; it ends with its time limit");
    }
}
