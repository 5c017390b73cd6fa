//! Reads a value that a program prints.

use std::{
    ffi::OsString,
    io,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use crate::{
    buffer::{Buffer, ReadOnce},
    problem::{CommandProblem, LIMIT_SECONDS},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{OFlags, fcntl_setfl},
    io::Errno,
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
    time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime},
};

/// The variables that the program gets.
const VARIABLES: [&str; 2] = ["HOME", "PATH"];

/// Runs a program and returns what it printed.
///
/// It has `PATH` and `HOME`, no input, a process group of its own and 10 seconds. What it writes to standard error goes nowhere: a program that fails may write the
/// value, or a part of it, there. All processes of its group are killed at its end, however that comes.
///
/// # Errors
/// [`CommandProblem`].
pub(crate) fn read(
    words: &[String],
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<u8>, CommandProblem> {
    let limit = timer(Duration::from_secs(LIMIT_SECONDS.into())).map_err(CommandProblem::Lost)?;
    read_until(words, environment, limit.as_fd())
}

/// A descriptor that is readable after this time.
fn timer(after: Duration) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
    let it_value =
        Timespec { tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX), tv_nsec: after.subsec_nanos().into() };
    let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
    timerfd_settime(&timer, TimerfdTimerFlags::empty(), &once)?;
    Ok(timer)
}

/// The same until `limit` is readable.
fn read_until(
    words: &[String],
    environment: &dyn Fn(&str) -> Option<OsString>,
    limit: BorrowedFd<'_>,
) -> Result<Vec<u8>, CommandProblem> {
    let [program, arguments @ ..] = words else { return Err(CommandProblem::NotAbsolute) };
    if !Path::new(program).is_absolute() {
        return Err(CommandProblem::NotAbsolute);
    }
    let variables = VARIABLES.into_iter().filter_map(|name| Some((name, environment(name)?)));
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(variables)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(CommandProblem::Start)?;
    Running(child).finish(limit)
}

/// A program whose process group is killed when it is dropped.
struct Running(Child);

impl Running {
    fn finish(mut self, limit: BorrowedFd<'_>) -> Result<Vec<u8>, CommandProblem> {
        let mut printed = Buffer::of_value();
        let ended = self.follow(limit, &mut printed).map_err(CommandProblem::Lost)?;
        match ended {
            End::Limit => Err(CommandProblem::TooSlow),
            End::TooLong => Err(CommandProblem::TooLong),
            End::Exit => {
                let status = self.end().map_err(CommandProblem::Lost)?;
                match status.success() {
                    true => Ok(printed.into_bytes()),
                    false => Err(CommandProblem::Failed { ending: ending(status) }),
                }
            }
        }
    }

    /// Reads what the program writes, until it ends or has to be killed. Reads once at a time, so that a program that writes without end does not
    /// outlast the limit.
    fn follow(&mut self, limit: BorrowedFd<'_>, printed: &mut Buffer) -> io::Result<End> {
        let ended = pidfd_open(Pid::from_child(&self.0), PidfdFlags::empty())?;
        let mut stdout = self.0.stdout.take();
        // What is written is taken, and nothing waited for: another process may keep the pipe open.
        if let Some(pipe) = &stdout {
            fcntl_setfl(pipe, OFlags::NONBLOCK)?;
        }
        loop {
            let (is_over, has_ended) = {
                let mut watched = vec![PollFd::new(&limit, PollFlags::IN), PollFd::new(&ended, PollFlags::IN)];
                watched.extend(stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
                match poll(&mut watched, None) {
                    Ok(_) => {}
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                }
                (!watched[0].revents().is_empty(), !watched[1].revents().is_empty())
            };
            if let Some(pipe) = &stdout {
                // After the end everything that was written is there, and at most what the buffer takes is read.
                loop {
                    match printed.read_once(pipe)? {
                        ReadOnce::Bytes if has_ended => {}
                        ReadOnce::Bytes | ReadOnce::NothingYet => break,
                        ReadOnce::Full => return Ok(End::TooLong),
                        ReadOnce::End => {
                            stdout = None;
                            break;
                        }
                    }
                }
            }
            match (has_ended, is_over) {
                (true, _) => return Ok(End::Exit),
                (false, true) => return Ok(End::Limit),
                (false, false) => {}
            }
        }
    }

    /// Kills what is left of the group, and returns how the program ended.
    fn end(&mut self) -> io::Result<ExitStatus> {
        // Its number belongs to the program until `wait` returns.
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        self.0.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Ended already, and waited for: the number may be another's.
        if !matches!(self.0.try_wait(), Ok(Some(_))) {
            let _ = self.end();
        }
    }
}

/// How following a program ended.
enum End {
    /// It has ended.
    Exit,
    /// Its time is over.
    Limit,
    /// It has printed too much.
    TooLong,
}

fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "did not end as a program does".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        io::{BufRead as _, BufReader, Read as _, Write as _},
        thread,
    };

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn script(text: &str) -> Vec<String> {
        ["/bin/sh", "-c", text].map(str::to_owned).into()
    }

    fn environment(name: &str) -> Option<OsString> {
        match name {
            "PATH" => Some("/usr/bin:/bin".into()),
            "HOME" => Some("/nowhere".into()),
            _ => Some("SECRET-OF-THE-SERVICE".into()),
        }
    }

    fn run(text: &str) -> Result<Vec<u8>, CommandProblem> {
        read(&script(text), &environment)
    }

    fn message(text: &str) -> String {
        run(text).unwrap_err().to_string()
    }

    #[test]
    fn a_program_prints_the_value() {
        assert_eq!(run("printf 0123456789").unwrap(), b"0123456789");
        // It has no input, and few variables.
        assert_eq!(run("cat; echo $PATH $HOME ${TOKEN-none}; pwd").unwrap(), b"/usr/bin:/bin /nowhere none\n/\n");
        // What it says besides is no part of it, however much it is.
        assert_eq!(run("head -c 1000000 /dev/zero >&2; echo 0123456789").unwrap(), b"0123456789\n");
        assert_eq!(run("exec 2>&-; echo 0123456789; exec 1>&-; exit 0").unwrap(), b"0123456789\n");
    }

    #[test]
    fn a_program_that_fails_is_named_and_nothing_that_it_writes() {
        let failed = "ended with exit code 3: run it as the user of this service to see why";
        assert_eq!(message("echo 0123456789; echo ' no such entry' >&2; exit 3"), failed);
        assert_eq!(message("set -x; TOKEN=0123456789; exit 3"), failed);
        assert!(message("kill -9 $$").starts_with("was ended by signal 9: run it"));
    }

    #[test]
    fn a_program_that_cannot_be_started_is_named() {
        let start = |program: &str| read(&[program.to_owned()], &environment).unwrap_err();
        assert!(start("/nowhere/pass").to_string().starts_with("could not be started: No such file"));
        assert!(start("/etc").to_string().starts_with("could not be started: Permission denied"));
        assert!(matches!(start("sh"), CommandProblem::NotAbsolute));
        assert!(matches!(read(&[], &environment), Err(CommandProblem::NotAbsolute)));
    }

    #[test]
    fn a_program_that_prints_too_much_is_killed() {
        let problem = run("yes 0123456789").unwrap_err();
        assert!(matches!(problem, CommandProblem::TooLong), "{problem}");
        assert!(problem.to_string().contains("9216 bytes: it has to print the value alone"), "{problem}");
    }

    #[test]
    fn a_process_that_is_left_does_not_keep_the_value_back() {
        // It has both pipes, and is killed with the group.
        assert_eq!(run("sleep 600 & echo 0123456789").unwrap(), b"0123456789\n");
    }

    #[test]
    fn a_program_that_hangs_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        // Both have the pipe open: it ends when both have.
        let text =
            format!("exec 3>{}; trap '' TERM INT; sleep 600 & echo 0123456789; echo started >&3; wait", fifo.display());
        let (limit, mut reach) = io::pipe().unwrap();
        let running = thread::spawn(move || read_until(&script(&text), &environment, limit.as_fd()));
        let mut pipe = BufReader::new(fs::File::open(&fifo).unwrap());
        let mut line = String::new();
        pipe.read_line(&mut line).unwrap();
        assert_eq!(line, "started\n");
        reach.write_all(b".").unwrap();
        let problem = running.join().unwrap().unwrap_err();
        assert_eq!(
            problem.to_string(),
            "did not end within 10 seconds and was killed: it has to print the value without asking anybody"
        );
        assert_eq!(pipe.read_to_end(&mut Vec::new()).unwrap(), 0);
    }

    #[test]
    fn the_limit_is_a_time_and_holds_for_a_program_that_never_stops_writing() {
        for text in ["sleep 600", "yes >&2", "while :; do :; done"] {
            let limit = timer(Duration::from_millis(20)).unwrap();
            let problem = read_until(&script(text), &environment, limit.as_fd()).unwrap_err();
            assert!(matches!(problem, CommandProblem::TooSlow), "{text}: {problem}");
        }
    }
}
