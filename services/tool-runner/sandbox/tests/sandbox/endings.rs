//! However a command ends, nothing of it is left.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{
        fd::OwnedFd,
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use belay_sandbox::{RunningCommand, Spec, Status, WorkspaceMount};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_current_process_group, kill_process, pidfd_open},
};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    harness::{Test, tests},
    support::{Fixture, launch, nap, refusal, run, sleepers, status_field},
};

pub(crate) const TESTS: &[Test] = tests![
    descendants_end_with_the_command,
    a_timeout_ends_all_of_it,
    a_zero_timeout_starts_nothing,
    a_kill_ends_all_of_it,
    a_kill_after_the_end_changes_nothing,
    dropping_it_ends_it,
    the_launchers_death_ends_it,
    the_runners_death_ends_it,
    nothing_is_left_after_tear_down,
    keys_at_the_runners_terminal_end_no_launch,
];

/// The argument that makes this binary a runner that a test kills.
pub(crate) const RUNNER: &str = "--run-as-waiting-runner";

/// The argument that makes this binary a runner whose process group gets the signals of keys while it launches commands.
pub(crate) const AT_A_TERMINAL: &str = "--run-at-a-terminal";

/// Starts a child in its own session, an orphan of two forks, one that ignores polite signals, and the command itself. Prints `ready` when
/// all are running.
fn family(nap: &str) -> String {
    format!(
        "setsid sleep {nap} & (sleep {nap} &) & sh -c 'trap \"\" TERM HUP INT; sleep {nap}; :' & \
         while [ $(ls -d /proc/[0-9]* | while read p; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null | grep -c '^sleep {nap}') -lt 3 ]; do :; done; \
         echo ready"
    )
}

fn wait_until_ready(running: &mut RunningCommand) {
    let mut output = [0; 6];
    running.stdout.as_mut().unwrap().read_exact(&mut output).unwrap();
    assert_eq!(&output, b"ready\n");
}

/// Pidfds of all sleepers: a pid may be reused, a pidfd stays with its process.
fn watch_sleepers(nap: &str) -> Vec<OwnedFd> {
    let pids = sleepers(nap);
    assert!(pids.len() >= 3, "the processes are not running: {pids:?}");
    pids.iter().map(|pid| pidfd_open(Pid::from_raw(*pid).unwrap(), PidfdFlags::empty()).unwrap()).collect()
}

pub(crate) fn wait_for_deaths(watched: &[OwnedFd]) {
    // They end at once, or never.
    let never = Timespec { tv_sec: 60, tv_nsec: 0 };
    for pidfd in watched {
        assert_eq!(
            poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&never)),
            Ok(1),
            "a process outlives its command"
        );
    }
}

fn descendants_end_with_the_command() {
    let (fixture, nap) = (Fixture::new(), nap());
    let mut spec = fixture.script(&format!("{}; exit 5", family(&nap)));
    // If descendants kept it alive, this timeout would end it, with another status.
    spec.timeout = Some(Duration::from_secs(60));
    let (outcome, output) = run(spec);
    assert_eq!(
        (outcome.status, output.stdout.text().as_str()),
        (Status::Exited(5), "ready\n"),
        "{}",
        output.stderr.text()
    );
    assert_eq!(sleepers(&nap), []);
}

// S2-FR-048: the timeout applies to every process.
fn a_timeout_ends_all_of_it() {
    let (fixture, nap) = (Fixture::new(), nap());
    let mut spec = fixture.script(&format!("{}; sleep {nap}", family(&nap)));
    spec.timeout = Some(Duration::from_secs(3));
    let (outcome, output) = run(spec);
    assert_eq!((outcome.status, output.stdout.text().as_str()), (Status::TimedOut, "ready\n"));
    assert!(outcome.usage.max_resident_bytes > 0, "usage is reported in any case");
    assert_eq!(sleepers(&nap), []);
}

fn a_zero_timeout_starts_nothing() {
    let fixture = Fixture::new();
    let mut spec = fixture.script("echo started");
    spec.timeout = Some(Duration::ZERO);
    let error = refusal(spec).to_string();
    assert!(error.starts_with("timeout:"), "{error}");
}

fn a_kill_ends_all_of_it() {
    let (fixture, nap) = (Fixture::new(), nap());
    let mut running = launch(fixture.script(&format!("{}; sleep {nap}", family(&nap))));
    wait_until_ready(&mut running);
    running.kill_handle().kill().unwrap();
    assert_eq!(running.wait().unwrap().status, Status::Killed);
    assert_eq!(sleepers(&nap), []);
}

fn a_kill_after_the_end_changes_nothing() {
    let fixture = Fixture::new();
    let mut running = launch(fixture.script("exit 7"));
    let handle = running.kill_handle();
    assert_eq!(running.wait().unwrap().status, Status::Exited(7));
    handle.kill().unwrap();
    assert_eq!(running.wait().unwrap().status, Status::Exited(7));
    running.tear_down().unwrap();
    handle.kill().unwrap();
}

fn dropping_it_ends_it() {
    let (fixture, nap) = (Fixture::new(), nap());
    let mut running = launch(fixture.script(&format!("{}; sleep {nap}", family(&nap))));
    wait_until_ready(&mut running);
    let watched = watch_sleepers(&nap);
    drop(running);
    wait_for_deaths(&watched);
}

fn the_launchers_death_ends_it() {
    let (fixture, nap) = (Fixture::new(), nap());
    let mut running = launch(fixture.script(&format!("{}; exec sleep {nap}", family(&nap))));
    wait_until_ready(&mut running);
    // Init is above the sleepers, and has the first pid of its namespace; its parent is the launcher.
    let mut pid = sleepers(&nap)[0];
    while !status_field(pid, "NSpid").ends_with("\t1") {
        pid = status_field(pid, "PPid").parse().unwrap();
    }
    let launcher: i32 = status_field(pid, "PPid").parse().unwrap();
    let watched = watch_sleepers(&nap);
    kill_process(Pid::from_raw(launcher).unwrap(), Signal::KILL).unwrap();
    wait_for_deaths(&watched);
    assert_eq!(running.wait().unwrap().status, Status::Lost);
    assert_eq!(sleepers(&nap), []);
}

// A killed runner leaves no process behind.
fn the_runners_death_ends_it() {
    let fixture = Fixture::new();
    let mut runner = Command::new(std::env::current_exe().unwrap())
        .args([RUNNER.as_ref(), fixture.workspace.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut nap = String::new();
    let mut output = runner.stdout.take().unwrap();
    while !nap.ends_with('\n') {
        let mut byte = [0];
        output.read_exact(&mut byte).unwrap();
        nap.push(byte[0].into());
    }
    let watched = watch_sleepers(nap.trim());
    runner.kill().unwrap();
    assert_eq!(runner.wait().unwrap().signal(), Some(9));
    wait_for_deaths(&watched);
}

/// The other process of [`the_runners_death_ends_it`]: launches the sleepers, prints their duration, and waits.
pub(crate) fn run_as_waiting_runner(workspace: &Path) -> ExitCode {
    let nap = nap();
    let script = format!("{}; exec sleep {nap}", family(&nap));
    let mut running = launch(Spec::new("sh", ["-c", &script], WorkspaceMount::read_only(workspace)));
    wait_until_ready(&mut running);
    println!("{nap}");
    std::io::stdout().flush().unwrap();
    running.wait().unwrap();
    ExitCode::FAILURE
}

fn nothing_is_left_after_tear_down() {
    let fixture = Fixture::new();
    let (mount, upper) = fixture.staged();
    let children = || fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id())).unwrap();
    let before = children();
    let running = launch(Spec::new("sh", ["-c", "echo x > new"], mount));
    assert_eq!(running.tear_down().unwrap().status, Status::Exited(0));
    // Launchers of earlier tests may still be ending.
    let known: Vec<&str> = before.split(' ').collect();
    assert!(children().split(' ').all(|child| known.contains(&child)), "the launcher was not reaped");
    assert_eq!(fs::read_to_string(upper.join("new")).unwrap(), "x\n");
}

// S0-11: a launcher that inherits the runner's process group for an instant inherits its signals too, and must not act on them.
fn keys_at_the_runners_terminal_end_no_launch() {
    let fixture = Fixture::new();
    let this = std::env::current_exe().unwrap();
    let runner = Command::new(this).arg(AT_A_TERMINAL).arg(&fixture.workspace).process_group(0).output().unwrap();
    assert!(runner.status.success(), "{}", String::from_utf8_lossy(&runner.stderr));
}

/// Launches commands while another thread sends Ctrl-C, Ctrl-Z, Ctrl-\ and the end of the terminal to the process group.
pub(crate) fn run_at_a_terminal(workspace: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _context = runtime.enter();
    // A signal that the runner handles is not ignored in what it starts.
    let keys = [Signal::INT, Signal::TSTP, Signal::QUIT, Signal::HUP];
    let _handled = keys.map(|key| signal(SignalKind::from_raw(key.as_raw())).unwrap());
    let pressed = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in keys.iter().cycle().take_while(|_| pressed.load(Ordering::Acquire)) {
                kill_current_process_group(*key).unwrap();
            }
        });
        let launched = std::panic::catch_unwind(|| {
            for _ in 0..20 {
                // The command itself has every signal as a program expects it.
                let script = "kill -INT $$; echo not reached";
                let mut spec = Spec::new("sh", ["-c", script], WorkspaceMount::read_only(workspace));
                spec.timeout = Some(Duration::from_secs(60));
                let (outcome, output) = run(spec);
                assert_eq!(outcome.status, Status::Signalled(Signal::INT.as_raw()), "{}", output.stderr.text());
            }
        });
        pressed.store(false, Ordering::Release);
        launched.unwrap();
    });
    ExitCode::SUCCESS
}
