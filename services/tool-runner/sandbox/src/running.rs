//! A command that is running, and what became of it.

use std::{
    fs,
    io::{self, PipeReader, Read as _},
    ops::AddAssign,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::Child,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};

use crate::{
    budget::DiskLimit,
    command_table::TakenRow,
    layer::Layer,
    order::Message,
    wire::{Wire, frame_length, unframe, wire_enum, wire_struct},
};

/// What is in force around a command beyond what every command has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforced {
    /// The Landlock ABI.
    pub landlock_abi: u8,
    /// Whether the pid namespace counts processes itself. If not, RLIMIT_NPROC does alone.
    pub process_limit: bool,
    /// Whether the command's own loopback interface is up. If not, it has no sockets but local ones.
    pub loopback: bool,
}

wire_struct!(Enforced { landlock_abi, process_limit, loopback });

impl Enforced {
    /// The layers around a command, in the order in which they are put up. Where one that is not optional is missing, nothing is launched.
    /// `as_root`: the runner is root, and gives up what it may before it launches anything.
    pub(crate) fn layers(self, as_root: bool) -> Vec<Layer> {
        let all = [
            (Layer::ServiceUser, as_root),
            (Layer::IdMappedWorkspace, as_root),
            (Layer::UserNamespace, true),
            (Layer::Namespaces, true),
            (Layer::View, true),
            (Layer::Proc, true),
            (Layer::Workspace, true),
            (Layer::ProcessLimit, self.process_limit),
            (Layer::Privileges, true),
            (Layer::Limits, true),
            (Layer::Landlock, true),
            (Layer::Seccomp, true),
        ];
        all.into_iter().filter(|(_, stands)| *stands).map(|(layer, _)| layer).collect()
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It ended by itself with this code.
    Exited(i32),
    /// A signal ended it. SIGXCPU (24) and SIGXFSZ (25) are its limits on time and file size.
    Signalled(i32),
    /// Its time on the wall was up.
    TimedOut,
    /// It wrote more than it may, or a disk that it writes to has less free than its reserve. What it changed in its view is gone.
    DiskLimit(DiskLimit),
    /// A [`KillHandle`] was used.
    Killed,
    /// Something outside killed the sandbox's own processes, such as the kernel for want of memory.
    Lost,
}

/// What all processes of a command used together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time in the programs.
    pub user: Duration,
    /// Processor time in the kernel.
    pub system: Duration,
    /// Bytes of memory of the largest process.
    pub max_resident_bytes: u64,
}

wire_struct!(Usage { user, system, max_resident_bytes });

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.user += other.user;
        self.system += other.system;
        self.max_resident_bytes = self.max_resident_bytes.max(other.max_resident_bytes);
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Its end.
    pub status: Status,
    /// What it used.
    pub usage: Usage,
}

/// The launcher's word on an end.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) end: End,
    pub(crate) usage: Usage,
}

wire_struct!(Ended { end, usage });

#[derive(Debug)]
pub(crate) enum End {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    DiskLimit(DiskLimit),
    Lost,
}

wire_enum!(End { 0 = Exited(code), 1 = Signalled(signal), 2 = TimedOut, 3 = Lost, 4 = DiskLimit(limit) });

impl End {
    /// The end in a raw wait status.
    pub(crate) fn of(status: i32) -> Self {
        if libc::WIFSIGNALED(status) {
            Self::Signalled(libc::WTERMSIG(status))
        } else {
            Self::Exited(libc::WEXITSTATUS(status))
        }
    }
}

/// Kills a command. Can be cloned and used from any thread, also after the command is over.
#[derive(Clone, Debug)]
pub struct KillHandle(Arc<Init>);

#[derive(Debug)]
struct Init {
    process: ProcessEnd,
    killed: AtomicBool,
}

/// The end of one process, as a descriptor that becomes readable with it. Whoever waits needs no thread for that.
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

impl KillHandle {
    pub(crate) fn new(pidfd: OwnedFd) -> Self {
        Self(Arc::new(Init { process: ProcessEnd::new(pidfd), killed: AtomicBool::new(false) }))
    }

    /// Kills every process of the command at once. [`Running::wait`] returns when none is left; only then the kill is done.
    ///
    /// # Errors
    /// When the kernel refuses the signal. A command that is over is no error.
    pub fn kill(&self) -> io::Result<()> {
        self.0.killed.store(true, Ordering::Release);
        match pidfd_send_signal(&self.0.process, Signal::KILL) {
            Err(Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }

    fn was_used(&self) -> bool {
        self.0.killed.load(Ordering::Acquire)
    }

    /// Waits until init is dead, and with it everything in its namespace.
    fn wait_for_death(&self) -> io::Result<()> {
        loop {
            match poll(&mut [PollFd::new(&self.0.process, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                polled => return polled.map(drop).map_err(Into::into),
            }
        }
    }
}

/// A command that is running. Dropping it kills the command.
#[derive(Debug)]
pub struct Running {
    /// The command's standard output, until somebody takes it. Ends when no process of the command is left to write to it.
    pub stdout: Option<PipeReader>,
    /// The command's standard error, likewise.
    pub stderr: Option<PipeReader>,
    pub(crate) enforced: Enforced,
    pub(crate) kill: KillHandle,
    pub(crate) control: UnixStream,
    pub(crate) launcher: Launched,
    /// The launcher's word on the end, where it came before anybody waited for it.
    pub(crate) ended: Option<Ended>,
    pub(crate) outcome: Option<Outcome>,
}

impl Running {
    /// What is in force around it beyond what every command has.
    #[must_use]
    pub fn enforced(&self) -> Enforced {
        self.enforced
    }

    /// The layers around it, in the order in which they were put up.
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        self.enforced.layers(rustix::process::geteuid().is_root())
    }

    /// A handle to kill it from elsewhere.
    #[must_use]
    pub fn kill_handle(&self) -> KillHandle {
        self.kill.clone()
    }

    /// The two processes that end last, in this order: the command's init, and with it everything in its namespace, then the launcher, and
    /// with it the command's mounts. Once both have ended, [`Running::tear_down`] returns without waiting for anything.
    ///
    /// # Errors
    /// When the kernel gives no descriptor for the launcher.
    pub fn ends(&self) -> io::Result<[ProcessEnd; 2]> {
        Ok([self.kill.0.process.clone(), self.launcher.end()?])
    }

    /// Waits until the command is over and no process of it is left: what it changed is final then. Its mounts may stand for a
    /// moment longer, see [`Running::tear_down`]. Somebody has to read the output meanwhile, or the command waits for that.
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
            // Nobody is left who could have said so. The command dies with them; see it through.
            _ => {
                self.kill.wait_for_death()?;
                Ended { end: End::Lost, usage: Usage::default() }
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

    /// Waits like [`Running::wait`], then until the command's mounts are gone and its launcher has ended.
    ///
    /// # Errors
    /// When the launcher cannot be waited for.
    pub fn tear_down(mut self) -> io::Result<Outcome> {
        let outcome = self.wait()?;
        self.launcher.wait()?;
        Ok(outcome)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.outcome.is_none() {
            // That it cannot be killed is heard nowhere; the launcher does it when it sees this end of the connection close.
            let _ = self.kill.kill();
        }
    }
}

/// The next message from the launcher, with no descriptor. `None`: there will be none.
pub(crate) fn read<T: Wire>(control: &mut UnixStream) -> io::Result<Option<T>> {
    let mut header = [0; 4];
    match control.read_exact(&mut header) {
        Err(error) if matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset) => {
            return Ok(None);
        }
        read => read?,
    }
    read_body(control, header)
}

/// The rest of a frame whose header has been read.
pub(crate) fn read_body<T: Wire>(control: &mut UnixStream, header: [u8; 4]) -> io::Result<Option<T>> {
    let mut body = vec![0; frame_length(header)];
    control.read_exact(&mut body)?;
    unframe(&body).map(Some).ok_or_else(|| io::Error::other("the launcher sent what is no message"))
}

/// Launchers that were left to end by themselves. The kernel keeps an ended child until its parent asks after it.
static LEFT: Mutex<Vec<Launched>> = Mutex::new(Vec::new());

/// Asks after all of them, and keeps `more` among them.
fn sweep(more: Option<Launched>) {
    let mut left = LEFT.lock().unwrap_or_else(PoisonError::into_inner);
    left.extend(more);
    left.retain_mut(|launched| {
        // One that cannot be asked after is nobody's child any more.
        let alive = launched.child.as_mut().is_some_and(|child| matches!(child.try_wait(), Ok(None)));
        if !alive {
            launched.child = None;
            launched.row = None;
            launched.remove_scratch();
        }
        alive
    });
}

/// A launcher, and the scratch folder that it empties at its end. Dropped, it is left to end by itself.
#[derive(Debug)]
pub(crate) struct Launched {
    child: Option<Child>,
    scratch: Option<PathBuf>,
    row: Option<TakenRow>,
}

impl Launched {
    pub(crate) fn new(child: Child, scratch: Option<PathBuf>, row: Option<TakenRow>) -> Self {
        sweep(None);
        Self { child: Some(child), scratch, row }
    }

    /// The launcher's end. It keeps its pid until [`Launched::wait`] asks after it, so the descriptor is of no other process.
    fn end(&self) -> io::Result<ProcessEnd> {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(i32::try_from(child.id()).ok()?));
        let pid = pid.ok_or_else(|| io::Error::other("the launcher was waited for"))?;
        Ok(ProcessEnd::new(pidfd_open(pid, PidfdFlags::empty())?))
    }

    pub(crate) fn wait(&mut self) -> io::Result<()> {
        if let Some(mut child) = self.child.take() {
            child.wait()?;
            self.row = None;
            self.remove_scratch();
        }
        Ok(())
    }

    fn remove_scratch(&mut self) {
        let Some(folder) = self.scratch.take() else { return };
        // The launcher has left it empty, unless it was killed. What then cannot be removed goes with the staging folder, or when the
        // next runner starts.
        if fs::remove_dir(&folder).is_err() {
            let _ = fs::remove_dir_all(&folder);
        }
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if let Some(child) = self.child.take() {
            sweep(Some(Self { child: Some(child), scratch: self.scratch.take(), row: self.row.take() }));
        }
    }
}
