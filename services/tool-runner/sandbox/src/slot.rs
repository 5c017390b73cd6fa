//! The runner's side of a sandbox: it is set up before its command is known, and runs one.

use std::{
    fs::File,
    io::{self, PipeReader},
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::net::UnixStream,
    },
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    command_table::CommandTable,
    connection::{receive, send},
    ended::{CommandEnd, End},
    error::LaunchError,
    fork_server::{ForkServer, ForkedLauncher},
    freshness::Fingerprint,
    layer::Layer,
    protocol::{Armed, Failure, Invocation, Message, Request},
    running::{KillHandle, LauncherProcess, ReleasedOnExit, RunningCommand},
    socket_receipt::SocketReceipt,
    spec::TIMEOUT_EXPIRED,
    wire::frame,
};

/// A sandbox that waits for its command, or will once it is set up. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Slot {
    armed: Armed,
    control: UnixStream,
    launched: LauncherProcess,
    stdout: PipeReader,
    stderr: PipeReader,
    /// Set once it is set up, if that was waited for.
    ready: Option<Ready>,
}

/// A sandbox that is set up.
#[derive(Debug)]
struct Ready {
    init: KillHandle,
    from: Fingerprint,
}

/// Why a command was not started.
pub(crate) enum NotStarted {
    /// The launcher says so.
    Failed(Failure),
    /// The launcher has gone without a word.
    Lost,
    Error(LaunchError),
}

impl From<LaunchError> for NotStarted {
    fn from(error: LaunchError) -> Self {
        Self::Error(error)
    }
}

impl Slot {
    /// Begins to set up a sandbox. Does not wait until it is. `owner`: the likely owner of its workspace.
    pub(crate) fn begin(
        server: &ForkServer,
        armed: Armed,
        owner: Option<(u32, u32)>,
        table: &CommandTable,
    ) -> Result<Self, LaunchError> {
        let pipe = || io::pipe().map_err(|source| LaunchError::launcher("creating a pipe", source));
        let ((stdout, command_stdout), (stderr, command_stderr)) = (pipe()?, pipe()?);
        let request = Request::Arm(armed.clone(), owner);
        let ends = [command_stdout.as_fd(), command_stderr.as_fd()];
        let (control, launched) = spawn(server, &request, Some(table.as_fd()), ends)?;
        Ok(Self { armed, control, launched, stdout, stderr, ready: None })
    }

    /// Sets up a sandbox, and waits until it is.
    pub(crate) fn set_up(
        server: &ForkServer,
        armed: Armed,
        owner: Option<(u32, u32)>,
        table: &CommandTable,
    ) -> Result<Self, NotStarted> {
        let failed = |doing| move |source| LaunchError::launcher(doing, source);
        let from = Fingerprint::take(&armed).map_err(failed("inspecting what the sandbox is set up from"))?;
        let mut slot = Self::begin(server, armed, owner, table)?;
        let (mut init, mut is_armed) = (None, false);
        while init.is_none() || !is_armed {
            match receive(&mut slot.control).map_err(failed("reading from the launcher"))? {
                Some((Message::Init, Some(pidfd))) => init = Some(KillHandle::new(pidfd)),
                Some((Message::Armed, _)) => is_armed = true,
                Some((Message::Failed(failure), _)) => {
                    let _ = slot.launched.wait();
                    return Err(NotStarted::Failed(failure));
                }
                Some(_) | None => return Err(NotStarted::Lost),
            }
        }
        slot.ready = init.map(|init| Ready { init, from });
        Ok(slot)
    }

    /// The part of the launch for which it was set up.
    pub(crate) fn armed(&self) -> &Armed {
        &self.armed
    }

    /// Whether it is set up and alive, and nothing has changed of what it was set up from.
    pub(crate) fn is_usable(&self) -> bool {
        let Some(Ready { init, from }) = &self.ready else { return false };
        let mut ends =
            [PollFd::new(&self.control, PollFlags::IN), PollFd::from_borrowed_fd(init.as_fd(), PollFlags::IN)];
        poll(&mut ends, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0) && from.is_current()
    }

    /// Ends it, and waits until nothing is left of it.
    pub(crate) fn end(self) {
        let Self { control, mut launched, .. } = self;
        drop(control);
        // One that cannot be watched any more is taken for ended.
        let _ = launched.wait();
    }

    /// Runs a command in it.
    pub(crate) fn run(mut self, call: Invocation, released: ReleasedOnExit) -> Result<RunningCommand, NotStarted> {
        let control = &mut self.control;
        self.launched.release_on_exit(released);
        let pipe = || io::pipe().map_err(|source| LaunchError::launcher("creating a pipe", source));
        let dialogue = if call.dialogue.is_some() { Some((pipe()?, pipe()?)) } else { None };
        let receipt = call.sockets.clone().map(SocketReceipt::new).transpose();
        let (mut receipt, received) =
            receipt.map_err(|source| LaunchError::launcher("creating a pipe", source))?.unzip();
        tell(control, &Request::Run(call), None)?;
        let (to_command, from_command) = match dialogue {
            None => (None, None),
            Some(((reads, to_command), (from_command, writes))) => {
                for end in [reads.as_fd(), writes.as_fd()] {
                    tell(control, &Request::Pipe, Some(end))?;
                }
                (Some(to_command), Some(from_command))
            }
        };
        if let Some(received) = received {
            tell(control, &Request::Pipe, Some(received.as_fd()))?;
        }

        // Launcher and init write concurrently, so the messages of init, even its last, may arrive before its pidfd.
        let was_armed = self.ready.is_some();
        let (mut init, mut enforced, mut ended, mut outputs) = (self.ready.map(|ready| ready.init), None, None, None);
        while init.is_none() || enforced.is_none() {
            match receive(control).map_err(|source| LaunchError::launcher("reading from the launcher", source))? {
                Some((Message::Init, Some(pidfd))) => init = Some(KillHandle::new(pidfd)),
                Some((Message::Armed, _)) => {}
                Some((Message::Started(what), _)) => enforced = Some(what),
                Some((Message::Outputs, Some(file))) => outputs = Some(File::from(file)),
                Some((Message::Socket, socket)) => {
                    let receipt = receipt.as_mut().ok_or(NotStarted::Lost)?;
                    receipt.take(socket).map_err(|source| LaunchError::Layer {
                        layer: Layer::Network,
                        doing: "receiving a socket of the command".to_owned(),
                        source,
                    })?;
                }
                Some((Message::Ended(how), _)) => ended = Some(how),
                Some((Message::Failed(failure), _)) => {
                    // Its mounts are removed with it, so the caller can retry at once.
                    let _ = self.launched.wait();
                    return Err(NotStarted::Failed(failure));
                }
                None if matches!(ended, Some(CommandEnd { end: End::TimedOut, .. })) => {
                    return Err(LaunchError::spec("timeout", TIMEOUT_EXPIRED).into());
                }
                Some(_) | None => return Err(NotStarted::Lost),
            }
        }
        let (Some(kill), Some(enforced)) = (init, enforced) else { return Err(NotStarted::Lost) };
        let sockets = receipt.map(|receipt| receipt.into_sockets().ok_or(NotStarted::Lost)).transpose()?;
        Ok(RunningCommand {
            stdout: Some(self.stdout),
            stderr: Some(self.stderr),
            from_command,
            to_command,
            outputs,
            sockets,
            enforced,
            was_armed,
            kill,
            control: self.control,
            launcher: self.launched,
            ended,
            outcome: None,
        })
    }
}

/// Sends a request to a launcher. One that has gone has said why.
fn tell(control: &mut UnixStream, request: &Request, fd: Option<BorrowedFd<'_>>) -> Result<(), LaunchError> {
    match send(control, &frame(request), fd) {
        Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => Ok(()),
        sent => sent.map_err(|source| LaunchError::launcher("sending a request to the launcher", source)),
    }
}

/// Starts a launcher whose output goes to these descriptors, and sends it a request with the command table.
pub(crate) fn spawn(
    server: &ForkServer,
    request: &Request,
    table: Option<BorrowedFd<'_>>,
    [stdout, stderr]: [BorrowedFd<'_>; 2],
) -> Result<(UnixStream, LauncherProcess), LaunchError> {
    let ForkedLauncher { mut control, pidfd } = server.fork(stdout, stderr)?;
    let launched = LauncherProcess::new(pidfd);
    send(&mut control, &frame(request), table)
        .map_err(|source| LaunchError::launcher("sending the request to the launcher", source))?;
    Ok((control, launched))
}
