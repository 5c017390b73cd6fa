//! The launcher: becomes the service user, starts init, and watches over it from outside.

use std::{
    fs::{self, File},
    io::{self, IoSlice, Write as _},
    mem::MaybeUninit,
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::{fs::MetadataExt as _, net::UnixStream},
    },
    path::PathBuf,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Gid, Mode, Uid},
    io::{Errno, fcntl_dupfd_cloexec},
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::{Signal, pidfd_send_signal, umask},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};

use crate::{
    command_table::OwnRow,
    disk_watch::DiskWatch,
    init::{self, Outside},
    launcher::receive,
    layer::Layer,
    order::{At as _, Command, Failure, Message, Order},
    probe,
    running::{End, Ended},
    scratch_folder,
    sources::{self, Sources, Taker},
    sys::{self, OneThread, Side},
    wire::frame,
};

/// The launcher's life, as an exit code. The order comes on the standard input.
pub(crate) fn serve() -> i32 {
    match serve_order() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("belay-sandbox: the launcher cannot work: {error}");
            1
        }
    }
}

fn serve_order() -> io::Result<()> {
    let one = OneThread::check()?;
    // Above the standard descriptors, which are the command's.
    let mut runner = UnixStream::from(fcntl_dupfd_cloexec(io::stdin(), 3)?);
    umask(Mode::from(0o022));
    match receive(&mut runner)? {
        Some((Order::Run(command), table)) => launch(one, &command, table, &runner),
        Some((Order::Probe(uid, gid), _)) => runner.write_all(&frame(&Message::Probed(probe::layers(one, uid, gid)))),
        None => Ok(()),
    }
}

fn launch(one: OneThread, command: &Command, table: Option<OwnedFd>, mut runner: &UnixStream) -> io::Result<()> {
    let row = table.zip(command.row).map(|(table, row)| OwnRow::new(table, row));
    match start_init(one, command, row, runner) {
        Ok(mut init) => {
            send_init(runner, init.pidfd.as_fd())?;
            let ended = watch(&mut init, command.wall, runner)?;
            // What it wrote is dropped, and others need the room.
            let over = matches!(ended, Some(Ended { end: End::DiskLimit(_), .. }));
            if let Some(ended) = ended {
                // The runner may have died.
                let _ = runner.write_all(&frame(&Message::Ended(ended)));
            }
            let Some(disks) = &init.disks else { return Ok(()) };
            disks.empty(over)?;
            if over { disks.wait_for_room() } else { Ok(()) }
        }
        Err(failure) => runner.write_all(&frame(&Message::Failed(failure))),
    }
}

struct Init {
    pid: i32,
    pidfd: OwnedFd,
    /// What it writes to disk. `None`: nothing.
    disks: Option<DiskWatch>,
    /// Closes when this process dies, by which init knows.
    _alive: io::PipeWriter,
}

fn start_init(one: OneThread, command: &Command, row: Option<OwnRow>, runner: &UnixStream) -> Result<Init, Failure> {
    // Under memory pressure the command goes first, and the runner stays. Without /proc there is no such preference.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    make_scratch(command)?;
    let (outside, sources) = become_service_user(one, command)?;
    let disks = DiskWatch::open(command, sources.as_ref(), row)?;
    let (dead, alive) = io::pipe().at(Layer::Launcher, || "making a pipe".to_owned())?;
    match sys::clone(one, init::NAMESPACES) {
        Ok(Side::Child) => {
            drop((alive, disks));
            init::live(one, command, outside, sources, runner, dead)
        }
        Ok(Side::Parent { pid, pidfd }) => {
            drop((dead, sources));
            // The output is the command's alone: it ends when the command does.
            let null = File::open("/dev/null").at(Layer::Launcher, || "opening /dev/null".to_owned())?;
            rustix::stdio::dup2_stdin(&null)
                .and_then(|()| rustix::stdio::dup2_stdout(&null))
                .and_then(|()| rustix::stdio::dup2_stderr(&null))
                .at(Layer::Launcher, || "letting go of the output".to_owned())?;
            Ok(Init { pid, pidfd, disks, _alive: alive })
        }
        // EPERM and ENOSPC are about the user namespace: the others are made with its rights.
        Err(error) => Err(error).at(Layer::UserNamespace, || "making the namespaces".to_owned()),
    }
}

/// Makes the scratch places on disk. They belong to whom the folder above them does, which is the workspace's owner for a staging folder.
fn make_scratch(command: &Command) -> Result<(), Failure> {
    let Some(folder) = &command.scratch_folder else { return Ok(()) };
    let owner = || -> io::Result<Option<(u32, u32)>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let above = match &command.staging {
            // The staging folder is given to that owner when it is taken.
            Some(staging) if folder.starts_with(staging) => command.lower.last().map(PathBuf::as_path),
            _ => folder.parent(),
        };
        let metadata = fs::metadata(above.unwrap_or(folder))?;
        Ok(Some((metadata.uid(), metadata.gid())))
    };
    match owner().and_then(|owner| scratch_folder::make(folder, owner)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(sources::used_twice(folder)),
        made => made.at(Layer::View, || format!("making {}", folder.display())),
    }
}

/// Stops being root, once what only root can take has been taken. An ordinary user stays who it is, and takes everything later.
fn become_service_user(one: OneThread, command: &Command) -> Result<(Outside, Option<Sources>), Failure> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if !uid.is_root() {
        return Ok((Outside { uid: uid.as_raw(), gid: gid.as_raw() }, None));
    }
    let sources = sources::take(command, Taker::Root(one))?;
    let outside = Outside { uid: command.service_uid, gid: command.service_gid };
    // So that the command can open /dev/stdout, which is a pipe the runner made.
    let owner = (Uid::from_raw(outside.uid), Gid::from_raw(outside.gid));
    rustix::fs::fchown(io::stdout(), Some(owner.0), Some(owner.1))
        .and_then(|()| rustix::fs::fchown(io::stderr(), Some(owner.0), Some(owner.1)))
        .at(Layer::ServiceUser, || "giving the output to the service user".to_owned())?;
    drop_root(outside).at(Layer::ServiceUser, || format!("becoming user {}", outside.uid))?;
    Ok((outside, Some(sources)))
}

/// Becomes an ordinary user for good.
pub(crate) fn drop_root(to: Outside) -> Result<(), Errno> {
    let (uid, gid) = (Uid::from_raw(to.uid), Gid::from_raw(to.gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    set_thread_res_uid(uid, uid, uid)
}

/// Hands init's pidfd to the runner, who can then kill and wait for it by itself.
fn send_init(runner: &UnixStream, pidfd: BorrowedFd<'_>) -> io::Result<()> {
    let bytes = frame(&Message::Init);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [pidfd];
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "the space is made for one descriptor");
    sendmsg(runner, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Waits for init's end, and kills it when the time is up, when the command has written too much or when the runner is gone. `None`: init
/// has reported the end itself.
fn watch(init: &mut Init, wall: Option<Duration>, runner: &UnixStream) -> io::Result<Option<Ended>> {
    let clock = alarm(wall)?;
    let why = loop {
        let mut fds = vec![PollFd::new(&init.pidfd, PollFlags::IN), PollFd::new(runner, PollFlags::empty())];
        fds.extend(clock.as_ref().map(|clock| PollFd::new(clock, PollFlags::IN)));
        let pause = init.disks.as_ref().map(DiskWatch::pause);
        let until_look = pause.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        // No handler is installed here, so nothing interrupts the wait.
        let looked = poll(&mut fds, until_look.as_ref())? == 0;
        if fds[0].revents().contains(PollFlags::IN) {
            break None;
        }
        if fds.get(2).is_some_and(|clock| clock.revents().contains(PollFlags::IN)) {
            break Some(End::TimedOut);
        }
        if !looked {
            break Some(End::Lost);
        }
        if let (Some(disks), Some(slept)) = (&mut init.disks, pause)
            && let Some(limit) = disks.look(slept, init.pid)?
        {
            break Some(End::DiskLimit(limit));
        }
    };
    if why.is_some() {
        // The namespace dies with its init, down to processes that left their session.
        pidfd_send_signal(&init.pidfd, Signal::KILL)?;
    }
    let Some(reaped) = sys::wait(init.pid)? else { return Ok(None) };
    let end = match End::of(reaped.status) {
        // It may have reported in the last instant; the first report counts.
        End::Exited(0) => return Ok(None),
        _ => why.unwrap_or(End::Lost),
    };
    Ok(Some(Ended { end, usage: reaped.usage }))
}

/// Becomes readable when the time is up.
fn alarm(wall: Option<Duration>) -> io::Result<Option<OwnedFd>> {
    let Some(wall) = wall.and_then(|wall| Timespec::try_from(wall).ok()) else { return Ok(None) };
    let clock = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    // Zero would set no alarm at all.
    let nothing = Timespec { tv_sec: 0, tv_nsec: 0 };
    let it_value = if wall == nothing { Timespec { tv_sec: 0, tv_nsec: 1 } } else { wall };
    timerfd_settime(&clock, TimerfdTimerFlags::empty(), &Itimerspec { it_interval: nothing, it_value })?;
    Ok(Some(clock))
}
