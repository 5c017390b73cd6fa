//! A running command, and its outcome.

use std::{
    fmt::Debug,
    fs::{self, File},
    io::{self, PipeReader, PipeWriter, Write as _},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{Signal, pidfd_send_signal},
};

use crate::{
    budget::DiskLimit,
    command_table::TakenRow,
    connection::read,
    ended::{CommandEnd, End, EnforcedParts, Usage},
    layer::Layer,
    network::NetworkSockets,
    protocol::{Message, Request},
    wire::frame,
};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It exited with this code.
    Exited(i32),
    /// It was terminated by a signal. SIGXCPU (24) and SIGXFSZ (25) come from its limits on CPU time and file size.
    Signalled(i32),
    /// It exceeded its timeout.
    TimedOut,
    /// It exceeded a write budget, or a disk that it writes to fell below its reserve. The changes in its view are discarded.
    DiskLimit(DiskLimit),
    /// A [`KillHandle`] was used.
    Killed,
    /// The processes of the sandbox were killed from outside, such as by the kernel when memory ran out.
    Lost,
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Its end.
    pub status: Status,
    /// The resources that it used.
    pub usage: Usage,
}

/// Ends a command. Can be used from any thread, also after the command has ended.
#[derive(Clone, Debug)]
pub struct KillHandle(Arc<Init>);

#[derive(Debug)]
struct Init {
    process: ProcessEnd,
    killed: AtomicBool,
}

/// A descriptor that becomes readable when a process ends, so that no thread has to wait.
#[derive(Clone, Debug)]
pub struct ProcessEnd(Arc<OwnedFd>);

impl ProcessEnd {
    pub(crate) fn new(pidfd: OwnedFd) -> Self {
        Self(Arc::new(pidfd))
    }
}

impl AsFd for ProcessEnd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for ProcessEnd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for KillHandle {
    /// The descriptor of init, which becomes readable when it ends.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.process.as_fd()
    }
}

impl KillHandle {
    pub(crate) fn new(pidfd: OwnedFd) -> Self {
        Self(Arc::new(Init { process: ProcessEnd::new(pidfd), killed: AtomicBool::new(false) }))
    }

    /// Kills every process of the command. The kill is complete once [`RunningCommand::wait`] returns.
    ///
    /// # Errors
    /// When the signal cannot be sent. A command that has ended is not an error.
    pub fn kill(&self) -> io::Result<()> {
        self.0.killed.store(true, Ordering::Release);
        match pidfd_send_signal(&self.0.process, Signal::KILL) {
            Err(Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }

    /// Sends SIGTERM to every process of the command, which may end, or not: its outcome is that of any command.
    ///
    /// # Errors
    /// When the signal cannot be sent. A command that has ended is not an error.
    pub fn terminate(&self) -> io::Result<()> {
        match pidfd_send_signal(&self.0.process, Signal::TERM) {
            Err(Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }

    fn was_used(&self) -> bool {
        self.0.killed.load(Ordering::Acquire)
    }

    /// Waits until init, and with it everything in its namespace, is dead.
    fn wait_for_death(&self) -> io::Result<()> {
        has_ended(&self.0.process, None).map(drop)
    }
}

/// The time limit of a running command. It stands still between [`Timer::stop`] and [`Timer::go_on`]; repeating either changes nothing, nor does either change
/// the limit of a command that has none, or has ended.
#[derive(Debug)]
pub struct Timer(UnixStream);

impl Timer {
    /// Has the time limit stand still.
    ///
    /// # Errors
    /// When the launcher cannot be told. That it has gone is no error.
    pub fn stop(&mut self) -> io::Result<()> {
        self.tell(&Request::StopTimer)
    }

    /// Lets the time limit run again with what is left of it.
    ///
    /// # Errors
    /// When the launcher cannot be told. That it has gone is no error.
    pub fn go_on(&mut self) -> io::Result<()> {
        self.tell(&Request::ContinueTimer)
    }

    fn tell(&mut self, request: &Request) -> io::Result<()> {
        match self.0.write_all(&frame(request)) {
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
            told => told,
        }
    }
}

/// A running command. Dropping it kills the command.
#[derive(Debug)]
pub struct RunningCommand {
    /// The standard output, until it is taken. Ends when no process of the command can write to it any more.
    pub stdout: Option<PipeReader>,
    /// The standard error, likewise.
    pub stderr: Option<PipeReader>,
    /// The messages of its dialogue to the runner, until they are taken; `None` for one without a dialogue. Ends when no process of the command can write any
    /// more.
    pub from_command: Option<PipeReader>,
    /// The messages of its dialogue that it reads, until they are taken; `None` for one without a dialogue.
    pub to_command: Option<PipeWriter>,
    /// The file with its outputs, until it is taken; `None` for one that may not have any. It is complete once no process of the command is left.
    pub outputs: Option<File>,
    pub(crate) sockets: Option<NetworkSockets>,
    pub(crate) enforced: EnforcedParts,
    pub(crate) was_armed: bool,
    pub(crate) kill: KillHandle,
    pub(crate) control: UnixStream,
    pub(crate) launcher: LauncherProcess,
    /// The reported end, if it arrived before `wait`.
    pub(crate) ended: Option<CommandEnd>,
    pub(crate) outcome: Option<Outcome>,
}

impl RunningCommand {
    /// The optional parts of its sandbox that are active.
    #[must_use]
    pub fn enforced(&self) -> EnforcedParts {
        self.enforced
    }

    /// Whether its sandbox was set up before the command was known.
    #[must_use]
    pub fn was_armed(&self) -> bool {
        self.was_armed
    }

    /// Its active layers, in the order of their setup.
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        self.enforced.layers(rustix::process::geteuid().is_root())
    }

    /// The sockets in its network namespace, once; `None` for a command without a network.
    #[must_use]
    pub fn take_sockets(&mut self) -> Option<NetworkSockets> {
        self.sockets.take()
    }

    /// A handle to kill it.
    #[must_use]
    pub fn kill_handle(&self) -> KillHandle {
        self.kill.clone()
    }

    /// Its time limit, which can stand still.
    ///
    /// # Errors
    /// When this process has no descriptor left.
    pub fn timer(&self) -> io::Result<Timer> {
        Ok(Timer(self.control.try_clone()?))
    }

    /// The end of its last process, init, and so of everything in its namespaces, mounts included. [`RunningCommand::wait`] blocks no more for long then.
    #[must_use]
    pub fn end(&self) -> ProcessEnd {
        self.kill.0.process.clone()
    }

    /// The end of its launcher, after which [`RunningCommand::tear_down`] does not block.
    #[must_use]
    pub fn launcher_end(&self) -> Option<ProcessEnd> {
        self.launcher.process.clone()
    }

    /// Waits until no process of the command is left: its changes are final then. Its launcher may exist for a moment longer, see
    /// [`RunningCommand::tear_down`]. The output must be read meanwhile, or the command blocks.
    ///
    /// # Errors
    /// When the connection to the launcher cannot be read.
    pub fn wait(&mut self) -> io::Result<Outcome> {
        if let Some(outcome) = self.outcome {
            return Ok(outcome);
        }
        let message = match self.ended.take() {
            Some(ended) => Some(Message::Ended(ended)),
            None => read(&mut self.control)?,
        };
        let ended = match message {
            Some(Message::Ended(ended)) => ended,
            // Launcher and init are gone. The command dies with them; wait for that.
            _ => {
                self.kill.wait_for_death()?;
                CommandEnd { end: End::Lost, usage: Usage::default() }
            }
        };
        let status = match ended.end {
            End::Exited(code) => Status::Exited(code),
            End::Signalled(signal) => Status::Signalled(signal),
            End::TimedOut => Status::TimedOut,
            End::DiskLimit(limit) => Status::DiskLimit(limit),
            End::Lost if self.kill.was_used() => Status::Killed,
            End::Lost => Status::Lost,
        };
        Ok(*self.outcome.insert(Outcome { status, usage: ended.usage }))
    }

    /// Waits as [`RunningCommand::wait`], then until the launcher has exited.
    ///
    /// # Errors
    /// When the launcher cannot be waited for.
    pub fn tear_down(mut self) -> io::Result<Outcome> {
        let outcome = self.wait()?;
        self.launcher.wait()?;
        Ok(outcome)
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        if self.outcome.is_none() {
            // If this fails, the launcher kills it when it sees the connection close.
            let _ = self.kill.kill();
        }
    }
}

/// The time limit of a poll that does not wait.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Launchers that were dropped before they exited, with what is released then.
static ABANDONED: Mutex<Vec<LauncherProcess>> = Mutex::new(Vec::new());

/// Releases what the abandoned launchers had that have exited, and adds `more`.
fn release_abandoned(more: Option<LauncherProcess>) {
    let mut abandoned = ABANDONED.lock().unwrap_or_else(PoisonError::into_inner);
    abandoned.extend(more);
    abandoned.retain_mut(|launched| {
        // One that cannot be watched any more is taken for ended.
        let alive = launched.process.as_ref().is_some_and(|process| matches!(has_ended(process, Some(NOW)), Ok(false)));
        if !alive {
            launched.process = None;
            launched.release();
        }
        alive
    });
}

/// Is told of the ends of commands.
pub(crate) trait AwaitsEnds: Debug + Send + Sync {
    /// A command has ended, and nothing is left of it.
    fn command_has_ended(self: Arc<Self>);
}

/// Tells that a command has ended, when it is dropped.
#[derive(Debug)]
pub(crate) struct EndOfCommand(pub(crate) Weak<dyn AwaitsEnds>);

impl Drop for EndOfCommand {
    fn drop(&mut self) {
        if let Some(told) = self.0.upgrade() {
            told.command_has_ended();
        }
    }
}

/// Resources that are released when a launcher has exited.
#[derive(Debug, Default)]
pub(crate) struct ReleasedOnExit {
    pub(crate) scratch: Option<PathBuf>,
    pub(crate) row: Option<TakenRow>,
    pub(crate) end: Option<EndOfCommand>,
}

/// A launcher process and the resources released when it exits. When dropped, it exits on its own.
#[derive(Debug)]
pub(crate) struct LauncherProcess {
    /// `None` once its end is known.
    process: Option<ProcessEnd>,
    released: ReleasedOnExit,
}

/// Whether a process has ended. Without a limit it is waited for.
fn has_ended(process: &ProcessEnd, limit: Option<Timespec>) -> io::Result<bool> {
    loop {
        match poll(&mut [PollFd::new(process, PollFlags::IN)], limit.as_ref()) {
            Err(Errno::INTR) => {}
            ended => return Ok(ended? > 0),
        }
    }
}

impl LauncherProcess {
    pub(crate) fn new(pidfd: OwnedFd) -> Self {
        release_abandoned(None);
        Self { process: Some(ProcessEnd::new(pidfd)), released: ReleasedOnExit::default() }
    }

    /// Releases these when it has exited.
    pub(crate) fn release_on_exit(&mut self, released: ReleasedOnExit) {
        self.released = released;
    }

    pub(crate) fn wait(&mut self) -> io::Result<()> {
        if let Some(process) = self.process.take() {
            has_ended(&process, None)?;
            self.release();
        }
        Ok(())
    }

    fn release(&mut self) {
        let ReleasedOnExit { scratch, row, end } = std::mem::take(&mut self.released);
        drop(row);
        // The launcher leaves the directory empty unless it was killed. What cannot be removed goes with the staging directory, or when the
        // next runner starts.
        if let Some(folder) = scratch
            && fs::remove_dir(&folder).is_err()
        {
            let _ = fs::remove_dir_all(&folder);
        }
        drop(end);
    }
}

impl Drop for LauncherProcess {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            let released = std::mem::take(&mut self.released);
            release_abandoned(Some(Self { process: Some(process), released }));
        }
    }
}
