//! The launcher process: switches to the service user, starts init, and monitors it from outside.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{fs::MetadataExt as _, net::UnixStream},
    },
    path::PathBuf,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Gid, Mode, Uid},
    io::fcntl_dupfd_cloexec,
    process::{Signal, pidfd_send_signal, umask},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};

use crate::{
    command_table::OwnRow,
    connection::{receive, send_message},
    disk_watch::DiskWatch,
    ended::{CommandEnd, End},
    host_ids::{HostIds, drop_root},
    init,
    layer::Layer,
    probe_layers,
    protocol::{Command, Context as _, Failure, Message, Request},
    scratch_directory,
    sources::{self, MountAuthority, Sources},
    sys::{self, Side, SingleThreaded},
    wire::frame,
};

/// Runs the launcher and returns its exit code. The request arrives on standard input.
pub(crate) fn serve() -> i32 {
    match serve_order() {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("belay-sandbox: the launcher failed: {error}");
            1
        }
    }
}

fn serve_order() -> io::Result<()> {
    let one = SingleThreaded::check()?;
    // Above the standard descriptors, which belong to the command.
    let mut runner = UnixStream::from(fcntl_dupfd_cloexec(io::stdin(), 3)?);
    umask(Mode::from(0o022));
    match receive(&mut runner)? {
        Some((Request::Run(command), table)) => {
            let asking = if command.asks { Some([pipe_end(&mut runner)?, pipe_end(&mut runner)?]) } else { None };
            launch(one, &command, table, asking, &runner)
        }
        Some((Request::Probe(uid, gid), _)) => {
            runner.write_all(&frame(&Message::Probed(probe_layers::layers(one, uid, gid))))
        }
        Some((Request::Pipe | Request::StopTimer | Request::ContinueTimer, _)) | None => Ok(()),
    }
}

/// The command's end of a pipe over which it asks.
fn pipe_end(runner: &mut UnixStream) -> io::Result<OwnedFd> {
    match receive(runner)? {
        Some((Request::Pipe, Some(end))) => Ok(end),
        _ => Err(io::Error::other("the runner has sent no pipe")),
    }
}

fn launch(
    one: SingleThreaded,
    command: &Command,
    table: Option<OwnedFd>,
    asking: Option<[OwnedFd; 2]>,
    mut runner: &UnixStream,
) -> io::Result<()> {
    let row = table.zip(command.row).map(|(table, row)| OwnRow::new(table, row));
    match start_init(one, command, row, asking, runner) {
        Ok(mut init) => {
            // The runner can then kill init, and wait for it, itself.
            if let Err(error) = send_message(runner, &Message::Init, init.pidfd.as_fd()) {
                // The runner could neither wait for it nor kill it.
                pidfd_send_signal(&init.pidfd, Signal::KILL)?;
                sys::wait(init.pid)?;
                let error = error.raw_os_error().unwrap_or(libc::EIO);
                let failure = Failure::Layer(Layer::Launcher, "handing the process to the runner".to_owned(), error);
                return runner.write_all(&frame(&Message::Failed(failure)));
            }
            let ended = watch(&mut init, command.timeout, runner)?;
            // Its files are discarded, because others need the space.
            let over = matches!(ended, Some(CommandEnd { end: End::DiskLimit(_), .. }));
            if let Some(ended) = ended {
                // The runner may be dead.
                let _ = runner.write_all(&frame(&Message::Ended(ended)));
            }
            let Some(disks) = &init.disks else { return Ok(()) };
            disks.empty(over)?;
            if over { disks.wait_for_space() } else { Ok(()) }
        }
        Err(failure) => runner.write_all(&frame(&Message::Failed(failure))),
    }
}

struct Init {
    pid: i32,
    pidfd: OwnedFd,
    /// Monitors its disk writes. `None`: it writes to memory only.
    disks: Option<DiskWatch>,
    /// Closes when this process dies, which init detects.
    _alive: io::PipeWriter,
}

fn start_init(
    one: SingleThreaded,
    command: &Command,
    row: Option<OwnRow>,
    asking: Option<[OwnedFd; 2]>,
    runner: &UnixStream,
) -> Result<Init, Failure> {
    // Under memory pressure the kernel should kill the command before the runner. Without /proc this preference is not set.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    make_scratch(command)?;
    let (host_ids, sources) = become_service_user(one, command, asking.as_ref())?;
    let disks = DiskWatch::open(command, sources.as_ref(), row)?;
    let (dead, alive) = io::pipe().at(Layer::Launcher, || "creating a pipe".to_owned())?;
    match sys::clone(one, init::NAMESPACES) {
        Ok(Side::Child) => {
            drop((alive, disks));
            init::run(one, command, host_ids, sources, (runner, dead), asking)
        }
        Ok(Side::Parent { pid, pidfd }) => {
            // Only the command may hold the pipes open over which it asks.
            drop((dead, sources, asking));
            // Only the command may hold the output open: it must end with the command.
            let null = File::open("/dev/null").at(Layer::Launcher, || "opening /dev/null".to_owned())?;
            rustix::stdio::dup2_stdin(&null)
                .and_then(|()| rustix::stdio::dup2_stdout(&null))
                .and_then(|()| rustix::stdio::dup2_stderr(&null))
                .at(Layer::Launcher, || "closing the output".to_owned())?;
            Ok(Init { pid, pidfd, disks, _alive: alive })
        }
        // EPERM and ENOSPC come from the user namespace: the other namespaces are created with its capabilities.
        Err(error) => Err(error).at(Layer::UserNamespace, || "creating the namespaces".to_owned()),
    }
}

/// Creates the scratch directories on disk. They get the owner of their parent, which is the owner of the workspace for a staging
/// directory.
fn make_scratch(command: &Command) -> Result<(), Failure> {
    let Some(folder) = &command.scratch_directory else { return Ok(()) };
    let owner = || -> io::Result<Option<(u32, u32)>> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let above = match &command.staging {
            // The staging directory gets that owner when it is mounted.
            Some(staging) if folder.starts_with(staging) => command.lower.last().map(PathBuf::as_path),
            _ => folder.parent(),
        };
        let metadata = fs::metadata(above.unwrap_or(folder))?;
        Ok(Some((metadata.uid(), metadata.gid())))
    };
    match owner().and_then(|owner| scratch_directory::make(folder, owner)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(sources::used_twice(folder)),
        made => made.at(Layer::View, || format!("creating {}", folder.display())),
    }
}

/// Drops root once the mounts that need root are taken. An ordinary user stays itself, and init takes all mounts.
fn become_service_user(
    one: SingleThreaded,
    command: &Command,
    asking: Option<&[OwnedFd; 2]>,
) -> Result<(HostIds, Option<Sources>), Failure> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if !uid.is_root() {
        return Ok((HostIds { uid: uid.as_raw(), gid: gid.as_raw() }, None));
    }
    let sources = sources::take(command, MountAuthority::Root(one))?;
    let host_ids = HostIds { uid: command.service_uid, gid: command.service_gid };
    // The command must be able to open /dev/stdout, a pipe that the runner created.
    let owner = (Uid::from_raw(host_ids.uid), Gid::from_raw(host_ids.gid));
    rustix::fs::fchown(io::stdout(), Some(owner.0), Some(owner.1))
        .and_then(|()| rustix::fs::fchown(io::stderr(), Some(owner.0), Some(owner.1)))
        .and_then(|()| {
            let mut ends = asking.into_iter().flatten();
            ends.try_for_each(|end| rustix::fs::fchown(end, Some(owner.0), Some(owner.1)))
        })
        .at(Layer::ServiceUser, || "changing the owner of the output to the service user".to_owned())?;
    drop_root(host_ids).at(Layer::ServiceUser, || format!("becoming user {}", host_ids.uid))?;
    Ok((host_ids, Some(sources)))
}

/// Waits for the end of init. Kills it when the timeout expires, a disk bound is exceeded or the runner is gone. Returns `None` if init has
/// reported the end itself.
fn watch(init: &mut Init, timeout: Option<Duration>, runner: &UnixStream) -> io::Result<Option<CommandEnd>> {
    let clock = alarm(timeout)?;
    let mut requests = runner.try_clone()?;
    // The runner writes a message at once. One that stays incomplete must not keep the limits from being watched.
    requests.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
    // What was left of the time limit when it was stopped.
    let mut left: Option<Timespec> = None;
    let why = loop {
        let mut fds = vec![PollFd::new(&init.pidfd, PollFlags::IN), PollFd::new(runner, PollFlags::IN)];
        fds.extend(clock.as_ref().map(|clock| PollFd::new(clock, PollFlags::IN)));
        let pause = init.disks.as_ref().map(DiskWatch::pause);
        let until_check = pause.map(Timespec::try_from).transpose().map_err(io::Error::other)?;
        // No signal handler is installed, so the wait is not interrupted.
        let check_due = poll(&mut fds, until_check.as_ref())? == 0;
        if fds[0].revents().contains(PollFlags::IN) {
            break None;
        }
        if fds.get(2).is_some_and(|clock| clock.revents().contains(PollFlags::IN)) {
            break Some(End::TimedOut);
        }
        if !check_due {
            match (receive(&mut requests), &clock) {
                (Ok(Some((Request::StopTimer, _))), Some(clock)) => {
                    if left.is_none() {
                        left = stop(clock)?;
                        // It has run out since the poll, and is not readable any more.
                        if left.is_none() {
                            break Some(End::TimedOut);
                        }
                    }
                }
                (Ok(Some((Request::ContinueTimer, _))), Some(clock)) => {
                    if let Some(left) = left.take() {
                        timerfd_settime(clock, TimerfdTimerFlags::empty(), &alarm_in(left))?;
                    }
                }
                (Ok(Some((Request::StopTimer | Request::ContinueTimer, _))), None) => {}
                // It is gone, or has said what it never says.
                _ => break Some(End::Lost),
            }
            continue;
        }
        if let (Some(disks), Some(slept)) = (&mut init.disks, pause)
            && let Some(limit) = disks.check(slept, init.pid)?
        {
            break Some(End::DiskLimit(limit));
        }
    };
    if why.is_some() {
        // The kernel kills the whole pid namespace with init, including processes in other sessions.
        pidfd_send_signal(&init.pidfd, Signal::KILL)?;
    }
    let Some(reaped) = sys::wait(init.pid)? else { return Ok(None) };
    let end = match End::of(reaped.status) {
        // Init may have reported just before; the first report counts.
        End::Exited(0) => return Ok(None),
        _ => why.unwrap_or(End::Lost),
    };
    Ok(Some(CommandEnd { end, usage: reaped.usage }))
}

/// A timer that becomes readable when the timeout expires.
fn alarm(timeout: Option<Duration>) -> io::Result<Option<OwnedFd>> {
    let Some(timeout) = timeout.and_then(|timeout| Timespec::try_from(timeout).ok()) else { return Ok(None) };
    let clock = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    // Zero would disarm the timer.
    let timeout = if timeout == DISARMED { Timespec { tv_sec: 0, tv_nsec: 1 } } else { timeout };
    timerfd_settime(&clock, TimerfdTimerFlags::empty(), &alarm_in(timeout))?;
    Ok(Some(clock))
}

/// Stops a timer. Returns what was left of it, or `None` if it had run out.
fn stop(clock: &OwnedFd) -> io::Result<Option<Timespec>> {
    let left = timerfd_settime(clock, TimerfdTimerFlags::empty(), &alarm_in(DISARMED))?.it_value;
    Ok((left != DISARMED).then_some(left))
}

/// How long the rest of a message from the runner may take.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(1);

/// The time that disarms a timer.
const DISARMED: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The setting of a timer that expires once.
fn alarm_in(it_value: Timespec) -> Itimerspec {
    Itimerspec { it_interval: DISARMED, it_value }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::*;

    /// A process that stands for init, and sleeps until it is killed.
    fn sleeping_init() -> (Child, Init) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        (child, Init { pid, pidfd, disks: None, _alive: io::pipe().unwrap().1 })
    }

    /// How the command ends when the runner has sent this, and continues.
    fn end_after(bytes: &[u8], timeout: Option<Duration>) -> End {
        let (mut child, mut init) = sleeping_init();
        let (mut runner, launcher) = UnixStream::pair().unwrap();
        runner.write_all(bytes).unwrap();
        let ended = watch(&mut init, timeout, &launcher).unwrap().expect("init has reported nothing");
        // It has been reaped already.
        let _ = child.wait();
        ended.end
    }

    #[test]
    fn a_runner_that_sends_what_it_never_sends_is_lost() {
        let whole = frame(&Request::StopTimer);
        assert!(matches!(end_after(&whole[..2], None), End::Lost), "a part of a header");
        assert!(matches!(end_after(&whole[..4], None), End::Lost), "a header");
        assert!(matches!(end_after(&[1, 0, 0, 0, 250], None), End::Lost), "no request");
        assert!(matches!(end_after(&frame(&Request::Pipe), None), End::Lost), "another request");
    }

    #[test]
    fn messages_that_came_before_are_read_in_order() {
        let messages = [Request::StopTimer, Request::StopTimer, Request::ContinueTimer, Request::ContinueTimer];
        let sent: Vec<u8> = messages.iter().flat_map(frame).collect();
        assert!(matches!(end_after(&sent, Some(Duration::from_millis(200))), End::TimedOut));
    }

    #[test]
    fn a_limit_that_has_run_out_cannot_be_stopped() {
        let clock = alarm(Some(Duration::from_nanos(1))).unwrap().unwrap();
        poll(&mut [PollFd::new(&clock, PollFlags::IN)], None).unwrap();
        assert!(stop(&clock).unwrap().is_none());
        let clock = alarm(Some(Duration::from_secs(1000))).unwrap().unwrap();
        assert!(stop(&clock).unwrap().is_some_and(|left| left.tv_sec > 900));
    }
}
