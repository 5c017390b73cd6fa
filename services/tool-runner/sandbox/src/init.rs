//! The first process in the namespaces of a command: sets up the sandbox, starts the command, reaps processes, and reports the end.

use std::{
    fs::{self, OpenOptions},
    io::{self, PipeReader, Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::{fs::OpenOptionsExt as _, net::UnixStream},
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Gid, Uid},
    process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal},
    system::sethostname,
    thread::{set_thread_res_gid, set_thread_res_uid},
};

use crate::{
    INNER_ID, command_process, confinement,
    connection::send_message,
    ended::{CommandEnd, End, Usage},
    error::KILLED,
    handover::{self, CallPipes, Handover},
    host_ids::HostIds,
    layer::Layer,
    protocol::{Armed, Command, Context as _, Failure, Message},
    seccomp, sockets,
    sources::{self, BaseSources, MountAuthority, Owners},
    spec::OUTPUT_PATH,
    sys::{self, Side, SingleThreaded},
    view::BaseView,
    wire::{frame, frame_length, unframe},
};

/// The namespaces of init. The user namespace owns the others.
pub(crate) const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// The descriptors and sources that the launcher gives init.
pub(crate) struct FromLauncher<'a> {
    /// The connection to the runner.
    pub(crate) runner: &'a UnixStream,
    /// Reads as closed once the launcher is dead.
    pub(crate) launcher: PipeReader,
    /// The connection on which the launcher tells init of the command.
    pub(crate) link: UnixStream,
    /// The base sources; `None` if init has to take all sources.
    pub(crate) sources: Option<BaseSources>,
}

/// Runs init. Exits with 0 once it has reported the end of the command, or if there is none.
pub(crate) fn run(one: SingleThreaded, armed: &Armed, host_ids: HostIds, given: FromLauncher<'_>) -> ! {
    let runner = given.runner;
    match start(one, armed, host_ids, given) {
        Ok(Some(started)) => {
            report(runner, &started.message);
            report(runner, &Message::Ended(reap(started.command_pid)));
        }
        Ok(None) => {}
        Err(failure) => report(runner, &Message::Failed(failure)),
    }
    sys::exit(0)
}

/// A frame is a single write, because the launcher writes to the same socket.
fn report(mut runner: &UnixStream, message: &Message) {
    // If the runner is gone, the launcher is about to kill init.
    let _ = runner.write_all(&frame(message));
}

struct StartedCommand {
    command_pid: i32,
    message: Message,
}

/// Sets up the sandbox, waits for the command, and starts it. `None`: there is none.
fn start(
    one: SingleThreaded,
    armed: &Armed,
    host_ids: HostIds,
    given: FromLauncher<'_>,
) -> Result<Option<StartedCommand>, Failure> {
    let FromLauncher { runner, launcher, mut link, sources } = given;
    enter(host_ids).at(Layer::UserNamespace, || "mapping the user".to_owned())?;
    // Not before: a change of user forgets it.
    tie_to_launcher(launcher).at(Layer::Launcher, || "tying init to the launcher".to_owned())?;
    sethostname(b"sandbox").at(Layer::UserNamespace, || "naming the host (are capabilities stripped?)".to_owned())?;
    let takes_all = sources.is_none();
    let mut owners = Owners::new(MountAuthority::User, armed);
    let base = match sources {
        Some(sources) => sources,
        None => sources::take_base(armed, &mut owners)?,
    };
    let view = BaseView::build(&base, armed)?;
    drop(base);
    // If it fails, the seccomp filter refuses the sockets that would need it, and a command with a network is not started.
    let loopback = sys::bring_up_loopback();
    report(runner, &Message::Armed);

    let handed_over = handover::receive(&mut link).at(Layer::Launcher, || "reading the command".to_owned())?;
    drop(link);
    let Some(Handover { call, mut sources, pipes: CallPipes { dialogue, received } }) = handed_over else {
        return Ok(None);
    };
    if takes_all {
        sources = sources::take_for_call(&call, &mut owners)?;
    }
    let command = Command { armed, call: &call };
    view.enter(&sources, command)?;
    drop(sources);
    if call.outputs {
        hand_over_outputs(runner).at(Layer::View, || "making the file for outputs".to_owned())?;
    }
    let has_loopback = loopback.is_ok();
    if let Some((addresses, received)) = call.sockets.as_ref().zip(received) {
        loopback.at(Layer::Network, || "bringing up the loopback interface".to_owned())?;
        sockets::hand_over(addresses, runner, PipeReader::from(received))?;
    }
    let process_limit = limit_processes(armed.limits.processes);

    let (mut messages, sender) = io::pipe().at(Layer::Launcher, || "making a pipe".to_owned())?;
    let command_pid = match sys::clone(one, 0).at(Layer::Limits, || "forking the command".to_owned())? {
        Side::Child => command_process::become_command(command, process_limit, has_loopback, dialogue, sender),
        Side::Parent { pid, .. } => pid,
    };
    drop((sender, dialogue));
    restrict_init()?;
    match last_message(&mut messages) {
        Some(Message::Failed(failure)) => Err(failure),
        Some(message) => Ok(Some(StartedCommand { command_pid, message })),
        None => Err(Failure::Layer(
            Layer::Limits,
            "the process of the command was killed before it started".to_owned(),
            KILLED,
        )),
    }
}

/// Creates the file for the outputs of the command, and gives the runner a descriptor of it. The command may remove or replace the file: then it has no outputs.
fn hand_over_outputs(runner: &UnixStream) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(OUTPUT_PATH)?;
    send_message(runner, &Message::Outputs, file.as_fd())
}

/// Kills this process, and so the whole namespace, when the launcher dies.
fn tie_to_launcher(launcher: PipeReader) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The launcher may have died before the signal was set.
    let mut fds = [PollFd::new(&launcher, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if fds[0].revents().contains(PollFlags::HUP) { Err(io::Error::from_raw_os_error(KILLED)) } else { Ok(()) }
}

/// Maps this process to [`INNER_ID`], the only id in the namespace.
///
/// Its effective user is the one that is mapped. Its real and saved ones may be root, see `arming`; they are not afterwards.
pub(crate) fn enter(host_ids: HostIds) -> io::Result<()> {
    // After a change of user, /proc files belong to the process only if it is dumpable.
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{INNER_ID} {} 1", host_ids.uid))?;
    fs::write("/proc/self/gid_map", format!("{INNER_ID} {} 1", host_ids.gid))?;
    let (uid, gid) = (Uid::from_raw(INNER_ID), Gid::from_raw(INNER_ID));
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)?;
    Ok(set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

/// Sets the process limit of the pid namespace: `pid_max`, which is never below 301. Returns whether the kernel supports it.
pub(crate) fn limit_processes(processes: u32) -> bool {
    // Each pid counts until it is reused, including init and the first process of the command.
    const MIN_PID_MAX: u32 = 301;
    // Before Linux 6.14 the file is global, and read-only here.
    fs::write("/proc/sys/kernel/pid_max", processes.saturating_add(2).max(MIN_PID_MAX).to_string()).is_ok()
}

/// Restricts init to reaping, reporting, and passing on SIGTERM.
fn restrict_init() -> Result<(), Failure> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .at(Layer::Privileges, || "making init non-dumpable".to_owned())?;
    // Without a handler the kernel drops the signal: this is the init of its namespace.
    sys::pass_on_sigterm().at(Layer::Launcher, || "handling SIGTERM".to_owned())?;
    // The output must end with the command, not with init.
    let null = fs::File::open("/dev/null").at(Layer::View, || "opening /dev/null".to_owned())?;
    rustix::stdio::dup2_stdout(null.as_fd())
        .and_then(|()| rustix::stdio::dup2_stderr(null.as_fd()))
        .at(Layer::View, || "closing the output".to_owned())?;
    confinement::drop_privileges().at(Layer::Privileges, || "dropping init's capabilities".to_owned())?;
    sys::install_filter(&seccomp::for_init()).at(Layer::Seccomp, || "installing init's filter".to_owned())
}

/// The last message of the command's process before it executed the program or exited.
fn last_message(messages: &mut PipeReader) -> Option<Message> {
    let mut bytes = Vec::new();
    messages.read_to_end(&mut bytes).ok()?;
    let (mut rest, mut last) = (&bytes[..], None);
    while let Some((header, after)) = rest.split_first_chunk() {
        let (body, after) = after.split_at_checked(frame_length(*header))?;
        (rest, last) = (after, unframe(body));
    }
    last
}

/// Reaps processes until the command has ended, kills the rest, and reaps them.
fn reap(command_pid: i32) -> CommandEnd {
    let mut ended = CommandEnd { end: End::Lost, usage: Usage::default() };
    while let Ok(Some(reaped)) = sys::wait(-1) {
        ended.usage += reaped.usage;
        if reaped.pid == command_pid {
            ended.end = End::of(reaped.status);
            sys::kill_all_others();
        }
    }
    ended
}
