//! However a command ends, nothing of it is left.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use belay_sandbox::{Running, Spec, Status, WorkspaceMount};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use crate::{
    harness::{Test, tests},
    support::{Room, launch, nap, refusal, run, sleepers, status_field},
};

pub(crate) const TESTS: &[Test] = tests![
    descendants_end_with_the_command,
    a_time_out_ends_all_of_it,
    a_time_that_is_up_at_once_starts_nothing,
    a_kill_ends_all_of_it,
    a_kill_after_the_end_changes_nothing,
    dropping_it_ends_it,
    the_launchers_death_ends_it,
    the_runners_death_ends_it,
    nothing_is_left_after_tear_down,
];

/// The argument that makes this binary a runner for a test to kill.
pub(crate) const RUNNER: &str = "--be-a-runner-that-waits";

/// A child in its own session, an orphan of two forks, one deaf to polite signals, and the command itself; says so when all are there.
fn family(nap: &str) -> String {
    format!(
        "setsid sleep {nap} & (sleep {nap} &) & sh -c 'trap \"\" TERM HUP INT; sleep {nap}; :' & \
         while [ $(ls -d /proc/[0-9]* | while read p; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null | grep -c '^sleep {nap}') -lt 3 ]; do :; done; \
         echo ready"
    )
}

fn wait_until_ready(running: &mut Running) {
    let mut said = [0; 6];
    running.stdout.as_mut().unwrap().read_exact(&mut said).unwrap();
    assert_eq!(&said, b"ready\n");
}

/// Descriptors of all sleepers: a number may be used again, a descriptor stays with its process.
fn watch_sleepers(nap: &str) -> Vec<OwnedFd> {
    let pids = sleepers(nap);
    assert!(pids.len() >= 3, "the family is not there: {pids:?}");
    pids.iter().map(|pid| pidfd_open(Pid::from_raw(*pid).unwrap(), PidfdFlags::empty()).unwrap()).collect()
}

fn wait_for_deaths(watched: &[OwnedFd]) {
    // They are over in an instant, or never.
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
    let (room, nap) = (Room::new(), nap());
    let mut spec = room.script(&format!("{}; exit 5", family(&nap)));
    // If its descendants kept it alive, it would end all the same, and otherwise than by itself.
    spec.wall = Some(Duration::from_secs(60));
    let (outcome, output) = run(spec);
    assert_eq!(
        (outcome.status, output.stdout.text().as_str()),
        (Status::Exited(5), "ready\n"),
        "{}",
        output.stderr.text()
    );
    assert_eq!(sleepers(&nap), []);
}

// S2-FR-048, S2-ASM-018: the time-out is enforced, on every process.
fn a_time_out_ends_all_of_it() {
    let (room, nap) = (Room::new(), nap());
    let mut spec = room.script(&format!("{}; sleep {nap}", family(&nap)));
    spec.wall = Some(Duration::from_secs(3));
    let (outcome, output) = run(spec);
    assert_eq!((outcome.status, output.stdout.text().as_str()), (Status::TimedOut, "ready\n"));
    assert!(outcome.usage.max_resident_bytes > 0, "what was used is told all the same");
    assert_eq!(sleepers(&nap), []);
}

fn a_time_that_is_up_at_once_starts_nothing() {
    let room = Room::new();
    let mut spec = room.script("echo started");
    spec.wall = Some(Duration::ZERO);
    let error = refusal(spec).to_string();
    assert!(error.starts_with("wall:"), "{error}");
}

fn a_kill_ends_all_of_it() {
    let (room, nap) = (Room::new(), nap());
    let mut running = launch(room.script(&format!("{}; sleep {nap}", family(&nap))));
    wait_until_ready(&mut running);
    running.kill_handle().kill().unwrap();
    assert_eq!(running.wait().unwrap().status, Status::Killed);
    assert_eq!(sleepers(&nap), []);
}

fn a_kill_after_the_end_changes_nothing() {
    let room = Room::new();
    let mut running = launch(room.script("exit 7"));
    let handle = running.kill_handle();
    assert_eq!(running.wait().unwrap().status, Status::Exited(7));
    handle.kill().unwrap();
    assert_eq!(running.wait().unwrap().status, Status::Exited(7));
    running.tear_down().unwrap();
    handle.kill().unwrap();
}

fn dropping_it_ends_it() {
    let (room, nap) = (Room::new(), nap());
    let mut running = launch(room.script(&format!("{}; sleep {nap}", family(&nap))));
    wait_until_ready(&mut running);
    let watched = watch_sleepers(&nap);
    drop(running);
    wait_for_deaths(&watched);
}

fn the_launchers_death_ends_it() {
    let (room, nap) = (Room::new(), nap());
    let mut running = launch(room.script(&format!("{}; exec sleep {nap}", family(&nap))));
    wait_until_ready(&mut running);
    // The family's own parent is init in there, and init's is the launcher.
    let mut pid = sleepers(&nap)[0];
    let launcher = loop {
        let parent: i32 = status_field(pid, "PPid").parse().unwrap();
        if parent == std::process::id() as i32 {
            break pid;
        }
        pid = parent;
    };
    let watched = watch_sleepers(&nap);
    kill_process(Pid::from_raw(launcher).unwrap(), Signal::KILL).unwrap();
    wait_for_deaths(&watched);
    assert_eq!(running.wait().unwrap().status, Status::Lost);
    assert_eq!(sleepers(&nap), []);
}

// A runner that is killed leaves no process behind.
fn the_runners_death_ends_it() {
    let room = Room::new();
    let mut runner = Command::new(std::env::current_exe().unwrap())
        .args([RUNNER.as_ref(), room.workspace.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut nap = String::new();
    let mut said = runner.stdout.take().unwrap();
    while !nap.ends_with('\n') {
        let mut byte = [0];
        said.read_exact(&mut byte).unwrap();
        nap.push(byte[0].into());
    }
    let watched = watch_sleepers(nap.trim());
    runner.kill().unwrap();
    assert_eq!(runner.wait().unwrap().signal(), Some(9));
    wait_for_deaths(&watched);
}

/// The other process of [`the_runners_death_ends_it`]: launches a family, tells its nap, and waits.
pub(crate) fn be_a_runner_that_waits(workspace: &Path) -> ExitCode {
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
    let room = Room::new();
    let (mount, upper) = room.staged();
    let children = || fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id())).unwrap();
    let before = children();
    let running = launch(Spec::new("sh", ["-c", "echo x > new"], mount));
    assert_eq!(running.tear_down().unwrap().status, Status::Exited(0));
    // Those of earlier tests may still be ending.
    let known: Vec<&str> = before.split(' ').collect();
    assert!(children().split(' ').all(|child| known.contains(&child)), "the launcher is left, if only as a zombie");
    assert_eq!(fs::read_to_string(upper.join("new")).unwrap(), "x\n");
}
