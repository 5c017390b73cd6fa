//! The first process of the command's namespaces: builds the walls, starts the command, reaps, and reports when nothing is left.

use std::{
    fs,
    io::{self, PipeReader, Read as _, Write as _},
    os::{fd::AsFd as _, unix::net::UnixStream},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{DumpableBehavior, Signal, set_dumpable_behavior, set_parent_process_death_signal},
    system::sethostname,
};

use crate::{
    INNER_ID,
    layer::Layer,
    order::{At as _, Command, Failure, Message},
    running::{End, Ended, Usage},
    seccomp,
    sources::{self, Sources, Taker},
    sys::{self, OneThread, Side},
    tool, view, walls,
    wire::{frame, frame_length, unframe},
};

/// The namespaces init is cloned into. The user namespace comes with them and owns them.
pub(crate) const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// Who init is outside of its user namespace.
#[derive(Clone, Copy)]
pub(crate) struct Outside {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Init's life. Exits with 0 when it has reported what became of the command.
///
/// `sources` is `None` where they are to be taken from in here; `launcher` reads as closed once the launcher is dead.
pub(crate) fn live(
    one: OneThread,
    command: &Command,
    outside: Outside,
    sources: Option<Sources>,
    runner: &UnixStream,
    launcher: PipeReader,
) -> ! {
    match start(one, command, outside, sources, launcher) {
        Ok(started) => {
            report(runner, &started.message);
            report(runner, &Message::Ended(reap(started.tool)));
            sys::exit(0)
        }
        Err(failure) => {
            report(runner, &Message::Failed(failure));
            sys::exit(0)
        }
    }
}

/// One write is one frame: the launcher writes to the same socket.
fn report(mut runner: &UnixStream, message: &Message) {
    // A runner that is gone hears nothing, and its launcher is about to end all this.
    let _ = runner.write_all(&frame(message));
}

struct Started {
    tool: i32,
    message: Message,
}

fn start(
    one: OneThread,
    command: &Command,
    outside: Outside,
    sources: Option<Sources>,
    launcher: PipeReader,
) -> Result<Started, Failure> {
    die_with(launcher).at(Layer::Launcher, || "tying init to the launcher".to_owned())?;
    enter(outside).at(Layer::UserNamespace, || "mapping the user".to_owned())?;
    sethostname(b"sandbox").at(Layer::UserNamespace, || "naming the host (are capabilities stripped?)".to_owned())?;
    let sources = match sources {
        Some(sources) => sources,
        None => sources::take(command, Taker::User)?,
    };
    view::build(sources, command)?;
    let process_limit = limit_processes(command.limits.processes);
    // Where it cannot be had, the command's filter refuses the sockets that would need it.
    let loopback = sys::bring_up_loopback().is_ok();

    let (mut said, says) = io::pipe().at(Layer::Launcher, || "making a pipe".to_owned())?;
    let tool = match sys::clone(one, 0).at(Layer::Limits, || "forking the command".to_owned())? {
        Side::Child => tool::become_command(command, process_limit, loopback, says),
        Side::Parent { pid, .. } => pid,
    };
    drop(says);
    seal()?;
    match last_message(&mut said) {
        Some(Message::Failed(failure)) => Err(failure),
        Some(message) => Ok(Started { tool, message }),
        None => Err(Failure::Layer(
            Layer::Limits,
            "the command's process was killed before it began".to_owned(),
            libc::ESRCH,
        )),
    }
}

/// The launcher's death is this process's death; and with it every other's in here.
fn die_with(launcher: PipeReader) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before it said so.
    let mut fds = [PollFd::new(&launcher, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    if fds[0].revents().contains(PollFlags::HUP) { Err(io::Error::other("the launcher is dead")) } else { Ok(()) }
}

/// Becomes [`INNER_ID`] in here, which is the only id there is.
pub(crate) fn enter(outside: Outside) -> io::Result<()> {
    // A process that changed its user owns its /proc files again only when it says so.
    set_dumpable_behavior(DumpableBehavior::Dumpable)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{INNER_ID} {} 1", outside.uid))?;
    fs::write("/proc/self/gid_map", format!("{INNER_ID} {} 1", outside.gid))
}

/// The namespace's own limit, where the kernel has one: `pid_max`, which is never below 301.
pub(crate) fn limit_processes(processes: u32) -> bool {
    // Each number counts until it is reused, init and the command's first process included.
    const LEAST: u32 = 301;
    // Before Linux 6.14 the file is the machine's, and closed to us.
    fs::write("/proc/sys/kernel/pid_max", processes.saturating_add(2).max(LEAST).to_string()).is_ok()
}

/// From here on init only reaps and reports.
fn seal() -> Result<(), Failure> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable).at(Layer::Privileges, || "closing init".to_owned())?;
    // The command's output ends when the command does, and not when init does.
    let null = fs::File::open("/dev/null").at(Layer::View, || "opening /dev/null".to_owned())?;
    rustix::stdio::dup2_stdout(null.as_fd())
        .and_then(|()| rustix::stdio::dup2_stderr(null.as_fd()))
        .at(Layer::View, || "letting go of the output".to_owned())?;
    walls::drop_privileges().at(Layer::Privileges, || "dropping init's capabilities".to_owned())?;
    sys::install_filter(&seccomp::for_init()).at(Layer::Seccomp, || "sealing init".to_owned())
}

/// What the command's process said last before it executed its program, or ended.
fn last_message(said: &mut PipeReader) -> Option<Message> {
    let mut bytes = Vec::new();
    said.read_to_end(&mut bytes).ok()?;
    let (mut rest, mut last) = (&bytes[..], None);
    while let Some((header, after)) = rest.split_first_chunk() {
        let (body, after) = after.split_at_checked(frame_length(*header))?;
        (rest, last) = (after, unframe(body));
    }
    last
}

/// Reaps until the command ends, kills whatever it left behind, and reaps that.
fn reap(tool: i32) -> Ended {
    let mut ended = Ended { end: End::Lost, usage: Usage::default() };
    while let Ok(Some(reaped)) = sys::wait(-1) {
        ended.usage += reaped.usage;
        if reaped.pid == tool {
            ended.end = End::of(reaped.status);
            sys::kill_all_others();
        }
    }
    ended
}
