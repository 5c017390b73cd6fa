//! The fork server: this binary executed once more, with one thread, which forks a launcher for each sandbox.
//!
//! Executing a large program takes longer than forking a small process: it is mapped and relocated anew. The server knows nothing of sandboxes, workspaces or
//! calls, and a launcher begins with what the server had when it was executed. The kernel reaps launchers, also those whose server was killed; the runner waits for
//! their pidfds.

use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt as _},
    },
    path::PathBuf,
    process::{Child, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::{
    io::{Errno, fcntl_dupfd_cloexec},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
        SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
        sockopt::{Timeout, set_socket_timeout},
    },
    process::setpgid,
};

use crate::{
    error::{KILLED, LaunchError},
    monitor, role,
    sys::{self, Side, SignalsBlocked, SingleThreaded},
    wire::{Wire, frame, unframe, wire_enum, wire_struct},
};

/// Starts launchers. Starts its process with the first one, and anew when that has gone.
#[derive(Debug)]
pub(crate) struct ForkServer {
    executable: PathBuf,
    running: Mutex<Option<ServerProcess>>,
}

/// A running server. Dropping it ends it; its launchers go on.
#[derive(Debug)]
struct ServerProcess {
    socket: OwnedFd,
    child: Child,
}

/// A launcher that was forked: the runner's end of its connection, and its process.
#[derive(Debug)]
pub(crate) struct ForkedLauncher {
    pub(crate) control: UnixStream,
    pub(crate) pidfd: OwnedFd,
}

/// The number of descriptors for a launcher: its connection to the runner, its output, its standard error, in this order.
const GIVEN: usize = 3;

/// How long a reply may take: far longer than a fork on any machine that is not overloaded. A server that was stopped must not keep all commands.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// The longest message, in bytes. None has more than a few numbers.
const MAX_MESSAGE: usize = 64;

/// A request to the server: fork a launcher. [`GIVEN`] descriptors come with it.
struct ForkRequest {
    /// Nothing, but in tests: the planted defect.
    planted: Option<String>,
}

wire_struct!(ForkRequest { planted });

/// Its reply.
enum ForkReply {
    /// The pidfd of the launcher is attached.
    Forked,
    /// The error number.
    Failed(i32),
}

wire_enum!(ForkReply { 0 = Forked, 1 = Failed(error) });

impl ForkServer {
    /// `executable`: see [`crate::Settings::executable`].
    pub(crate) fn new(executable: impl Into<PathBuf>) -> Self {
        Self { executable: executable.into(), running: Mutex::new(None) }
    }

    /// Ends the process until the next launcher is needed.
    pub(crate) fn stop(&self) {
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Forks a launcher whose output goes to these descriptors.
    ///
    /// # Errors
    /// When the server cannot be executed, or the launcher cannot be forked. [`LaunchError::is_lost`] if the server was killed twice.
    pub(crate) fn fork(&self, stdout: BorrowedFd<'_>, stderr: BorrowedFd<'_>) -> Result<ForkedLauncher, LaunchError> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = running.is_none();
        let mut forked = self.started(&mut running)?.fork(stdout, stderr);
        if !is_new && forked.as_ref().is_err_and(is_gone) {
            // Killed since the last launch, such as by the kernel when memory ran out.
            *running = None;
            forked = self.started(&mut running)?.fork(stdout, stderr);
        }
        if forked.as_ref().is_err_and(is_gone) {
            *running = None;
        }
        forked.map_err(|error| LaunchError::launcher("starting a launcher", error))
    }

    /// The running server, started if there is none.
    fn started<'a>(&self, running: &'a mut Option<ServerProcess>) -> Result<&'a ServerProcess, LaunchError> {
        match running {
            Some(server) => Ok(server),
            None => Ok(running.insert(ServerProcess::start(&self.executable)?)),
        }
    }
}

/// Whether an error says that the server has gone, or does not answer.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|error| [KILLED, libc::EPIPE, libc::ECONNRESET].contains(&error))
}

/// The error when the server does not reply.
fn gone() -> io::Error {
    io::Error::from_raw_os_error(KILLED)
}

impl ServerProcess {
    fn start(executable: &PathBuf) -> Result<Self, LaunchError> {
        let failed = |doing| move |source| LaunchError::launcher(doing, source);
        let (socket, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|error| failed("creating a socket")(error.into()))?;
        // For an instant the child is in the runner's process group: a key that is pressed then would end or stop it. It and its launchers keep the
        // mask; the command starts with none.
        let blocked = SignalsBlocked::new();
        // No option here makes std use fork instead of posix_spawn, whose cost does not grow with the runner.
        let child = std::process::Command::new(executable)
            .arg0(role::LAUNCHER)
            .env_clear()
            // A terminal sends Ctrl-C, Ctrl-Z and Ctrl-\ to the process group of the runner. Only the runner decides what happens to a command.
            .process_group(0)
            .stdin(theirs)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed("executing this binary as the launcher"))?;
        drop(blocked);
        Ok(Self { socket, child })
    }

    fn fork(&self, stdout: BorrowedFd<'_>, stderr: BorrowedFd<'_>) -> io::Result<ForkedLauncher> {
        let (control, theirs) = UnixStream::pair()?;
        set_socket_timeout(&self.socket, Timeout::Recv, Some(MAX_WAIT))?;
        let request = ForkRequest { planted: belay_defects::handed_on() };
        send(&self.socket, &request, &[theirs.as_fd(), stdout, stderr])?;
        let received = match receive(&self.socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            received => received?,
        };
        let (reply, mut given) = received.ok_or_else(gone)?;
        match (reply, given.pop()) {
            (ForkReply::Forked, Some(pidfd)) => Ok(ForkedLauncher { control, pidfd }),
            (ForkReply::Forked, None) => Err(io::Error::other("the fork server has sent no process")),
            (ForkReply::Failed(error), _) => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It has nothing to finish, and one that was stopped must not keep the runner.
        let _ = self.child.kill();
        // On an error it is not our child any more.
        let _ = self.child.wait();
    }
}

/// Runs the server, or the launcher that it has forked, and returns its exit code. The server's standard input is its connection to the runner.
pub(crate) fn serve() -> i32 {
    // Of an error the runner sees that the connection closes.
    serve_requests().unwrap_or(1)
}

fn serve_requests() -> io::Result<i32> {
    let one = SingleThreaded::check()?;
    sys::leave_children_to_the_kernel();
    // Above the standard descriptors, which belong to the command.
    let runner = fcntl_dupfd_cloexec(io::stdin(), 3)?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    while let Some((ForkRequest { planted }, given)) = receive(&runner)? {
        let Ok([control, stdout, stderr]) = <[OwnedFd; GIVEN]>::try_from(given) else {
            return Err(io::Error::other("the runner has sent another number of descriptors"));
        };
        match sys::clone(one, 0) {
            Ok(Side::Child) => {
                drop(runner);
                belay_defects::take_over(planted.as_deref());
                return begin_launcher(one, control, stdout, stderr);
            }
            Ok(Side::Parent { pidfd, .. }) => send(&runner, &ForkReply::Forked, &[pidfd.as_fd()])?,
            Err(error) => {
                send(&runner, &ForkReply::Failed(error.raw_os_error().unwrap_or(libc::EIO)), &[])?;
            }
        }
    }
    Ok(0)
}

/// Becomes a launcher.
fn begin_launcher(one: SingleThreaded, control: OwnedFd, stdout: OwnedFd, stderr: OwnedFd) -> io::Result<i32> {
    sys::wait_for_children();
    rustix::stdio::dup2_stdout(&stdout)?;
    rustix::stdio::dup2_stderr(&stderr)?;
    drop((stdout, stderr));
    // One that is signalled as a group does not take the others with it.
    setpgid(None, None)?;
    Ok(monitor::serve(one, UnixStream::from(control)))
}

/// Sends a message with descriptors, as a whole or not at all.
fn send(socket: &OwnedFd, message: &impl Wire, given: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GIVEN))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !given.is_empty() {
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(given)), "the buffer has space for them");
    }
    sendmsg(socket, &[IoSlice::new(&frame(message))], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The next message and its descriptors. `None`: the connection is closed.
fn receive<T: Wire>(socket: &OwnedFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut message = [0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GIVEN))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let length = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut message)], &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            got => break got?.bytes,
        }
    };
    let given = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(given) => given.collect(),
        _ => Vec::new(),
    });
    let given = given.collect();
    if length == 0 {
        return Ok(None);
    }
    let message = message[..length].split_first_chunk::<4>().and_then(|(_, body)| unframe(body));
    message.map(|message| Some((message, given))).ok_or_else(|| io::Error::other("a message could not be read"))
}
