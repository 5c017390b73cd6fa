//! The launcher process: sets up a sandbox, hands it a command, and monitors that from outside.

use std::{
    io::{self, Write as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::Mode,
    io::Errno,
    process::{Signal, pidfd_send_signal, umask},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime},
};

use crate::{
    arming::{self, InitProcess},
    command_table::OwnRow,
    connection::{receive, send_message},
    disk_watch::DiskWatch,
    ended::{CommandEnd, End},
    handover::CallPipes,
    layer::Layer,
    probe_layers,
    protocol::{Armed, Command, Failure, Invocation, Message, Request},
    sys::{self, SingleThreaded},
    wire::frame,
};

/// Runs the launcher and returns its exit code. The request arrives over the connection to the runner.
pub(crate) fn serve(one: SingleThreaded, runner: UnixStream) -> i32 {
    match serve_order(one, runner) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("belay-sandbox: the launcher failed: {error}");
            1
        }
    }
}

fn serve_order(one: SingleThreaded, mut runner: UnixStream) -> io::Result<()> {
    umask(Mode::from(0o022));
    match receive(&mut runner)? {
        Some((Request::Arm(armed, owner), table)) => serve_command(one, &armed, owner, table, runner),
        Some((Request::Probe(uid, gid), _)) => {
            runner.write_all(&frame(&Message::Probed(probe_layers::layers(one, uid, gid))))
        }
        Some((Request::Run(_) | Request::Pipe | Request::StopTimer | Request::ContinueTimer, _)) | None => Ok(()),
    }
}

/// The next end of a pipe of the command.
fn pipe_end(runner: &mut UnixStream) -> io::Result<OwnedFd> {
    match receive(runner)? {
        Some((Request::Pipe, Some(end))) => Ok(end),
        _ => Err(io::Error::other("the runner has sent no pipe")),
    }
}

/// Sets up a sandbox, runs a command in it, and watches it to its end.
fn serve_command(
    one: SingleThreaded,
    armed: &Armed,
    owner: Option<(u32, u32)>,
    table: Option<OwnedFd>,
    mut runner: UnixStream,
) -> io::Result<()> {
    let mut sandbox = match arming::arm(one, armed, owner, &runner) {
        Ok(sandbox) => sandbox,
        Err(failure) => return runner.write_all(&frame(&Message::Failed(failure))),
    };
    // The runner can then kill init, and wait for it, itself.
    if let Err(error) = send_message(&runner, &Message::Init, sandbox.init.pidfd.as_fd()) {
        // The runner could neither wait for it nor kill it.
        kill(&sandbox.init)?;
        let error = error.raw_os_error().unwrap_or(libc::EIO);
        let failure = Failure::Layer(Layer::Launcher, "handing the process to the runner".to_owned(), error);
        return runner.write_all(&frame(&Message::Failed(failure)));
    }
    let Some(call) = next_call(&sandbox.init, &mut runner)? else { return kill(&sandbox.init) };
    let pipes = CallPipes::take(&call, || pipe_end(&mut runner))?;
    let row = table.zip(call.row).map(|(table, row)| OwnRow::new(table, row));
    let mut disks = match sandbox.hand_over(Command { armed, call: &call }, row, pipes) {
        Ok(disks) => disks,
        Err(failure) => {
            kill(&sandbox.init)?;
            return runner.write_all(&frame(&Message::Failed(failure)));
        }
    };
    let ended = watch(&sandbox.init, &mut disks, call.timeout, &runner)?;
    // Its files are discarded, because others need the space.
    let over = matches!(ended, Some(CommandEnd { end: End::DiskLimit(_), .. }));
    if let Some(ended) = ended {
        // The runner may be dead.
        let _ = runner.write_all(&frame(&Message::Ended(ended)));
    }
    match &disks {
        Some(disks) if over => {
            disks.empty(true)?;
            disks.wait_for_space()
        }
        // What is in the staging directory is removed with it, after the answer.
        Some(disks) if call.own_scratch().is_some() => disks.empty(false),
        _ => Ok(()),
    }
}

/// Kills init, and waits until it and everything in its namespace are gone.
fn kill(init: &InitProcess) -> io::Result<()> {
    match pidfd_send_signal(&init.pidfd, Signal::KILL) {
        // Ended by itself.
        Err(Errno::SRCH) => {}
        sent => sent?,
    }
    sys::wait(init.pid)?;
    Ok(())
}

/// The command. `None` if there will be none: init has ended, or the runner wants none, or is gone.
fn next_call(init: &InitProcess, runner: &mut UnixStream) -> io::Result<Option<Invocation>> {
    let mut fds = [PollFd::new(&init.pidfd, PollFlags::IN), PollFd::new(runner, PollFlags::IN)];
    poll(&mut fds, None)?;
    if fds[0].revents().contains(PollFlags::IN) {
        return Ok(None);
    }
    match receive(runner)? {
        Some((Request::Run(call), _)) => Ok(Some(call)),
        _ => Ok(None),
    }
}

/// Waits for the end of init. Kills it when the timeout expires, a disk bound is exceeded or the runner is gone. Returns `None` if init has
/// reported the end itself.
fn watch(
    init: &InitProcess,
    disks: &mut Option<DiskWatch>,
    timeout: Option<Duration>,
    runner: &UnixStream,
) -> io::Result<Option<CommandEnd>> {
    let clock = alarm(timeout)?;
    let mut requests = runner.try_clone()?;
    // The runner writes a message at once. One that stays incomplete must not keep the limits from being watched.
    requests.set_read_timeout(Some(MESSAGE_TIMEOUT))?;
    // What was left of the time limit when it was stopped.
    let mut left: Option<Timespec> = None;
    let why = loop {
        let mut fds = vec![PollFd::new(&init.pidfd, PollFlags::IN), PollFd::new(runner, PollFlags::IN)];
        fds.extend(clock.as_ref().map(|clock| PollFd::new(clock, PollFlags::IN)));
        let pause = disks.as_ref().map(DiskWatch::pause);
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
        if let (Some(disks), Some(slept)) = (&mut *disks, pause)
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
    fn sleeping_init() -> (Child, InitProcess) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let pidfd = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap();
        (child, InitProcess { pid, pidfd, _alive: io::pipe().unwrap().1 })
    }

    /// How the command ends when the runner has sent this, and continues.
    fn end_after(bytes: &[u8], timeout: Option<Duration>) -> End {
        let (mut child, init) = sleeping_init();
        let (mut runner, launcher) = UnixStream::pair().unwrap();
        runner.write_all(bytes).unwrap();
        let ended = watch(&init, &mut None, timeout, &launcher).unwrap().expect("init has reported nothing");
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
