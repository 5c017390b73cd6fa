//! Sandboxes that are set up before their commands are known.

use std::{
    fs,
    io::{Read as _, Write as _},
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    path::Path,
    process::{Command, ExitCode, Stdio},
    thread,
    time::Duration,
};

use belay_sandbox::{
    Launcher as _, Limits, Mount, NamespaceLauncher, Settings, Spec, Status, WorkspaceMount, self_test,
};
use rustix::{
    fs::CWD,
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open},
};

use crate::{
    endings::wait_for_deaths,
    harness::{Test, Verdict, tests},
    support::{Fixture, is_root, launcher, nap, sleepers, status_field, succeed_by},
};

pub(crate) const TESTS: &[Test] = tests![
    a_command_after_another_finds_a_sandbox,
    nothing_of_a_call_reaches_the_next,
    two_workspaces_in_turn_show_their_own_files,
    two_hundred_commands_see_what_each_has_changed,
    a_limit_of_a_call_holds,
    a_deadline_and_a_kill_end_it,
    a_killed_sandbox_is_not_used,
    a_killed_fork_server_is_replaced,
    what_was_replaced_since_is_shown,
    a_file_system_that_was_mounted_since_is_shown,
    sandboxes_end_when_no_command_comes,
    sandboxes_end_with_their_launcher,
    sandboxes_end_with_their_runner,
];

/// The argument that makes this binary a runner that a test kills while sandboxes wait.
pub(crate) const RUNNER: &str = "--run-with-waiting-sandboxes";

/// Waits until the launcher has all its sandboxes.
pub(crate) fn wait_for_sandboxes(launcher: &NamespaceLauncher) {
    while launcher.armed() < Settings::default().armed_sandboxes {
        thread::yield_now();
    }
}

/// Runs a command, so that sandboxes are set up for the next.
pub(crate) fn warm(launcher: &NamespaceLauncher, fixture: &Fixture) {
    launcher.launch(fixture.script("true")).unwrap().tear_down().unwrap();
    wait_for_sandboxes(launcher);
}

/// Runs a command in a sandbox that waits, and returns its output.
fn served(launcher: &NamespaceLauncher, spec: Spec) -> String {
    wait_for_sandboxes(launcher);
    let (output, was_armed) = output_of(launcher, spec);
    assert!(was_armed);
    output
}

/// Runs a command, and returns its output, and whether its sandbox had waited.
fn output_of(launcher: &NamespaceLauncher, spec: Spec) -> (String, bool) {
    let mut running = launcher.launch(spec).unwrap();
    let was_armed = running.was_armed();
    let (outcome, output) = running.collect(belay_sandbox::OutputCaps::default()).unwrap();
    assert_eq!(outcome.status, Status::Exited(0), "{}", output.stderr.text());
    running.tear_down().unwrap();
    (output.stdout.text(), was_armed)
}

/// The processes of the sandboxes that wait: launchers without a command, their inits, and the fork server.
fn waiting_processes(parent: u32) -> Vec<i32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    let of = |pid: i32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let is_child = |pid: &i32, parent: &str| {
        let status = of(*pid);
        status.lines().any(|line| line == format!("PPid:\t{parent}")) && !status.contains("State:\tZ")
    };
    let all: Vec<i32> = all.collect();
    let children_of = |parents: &[i32]| -> Vec<i32> {
        let is_of = |pid: &i32| parents.iter().any(|parent| is_child(pid, &parent.to_string()));
        all.iter().copied().filter(is_of).collect()
    };
    let servers = children_of(&[i32::try_from(parent).unwrap()]);
    let launchers = children_of(&servers);
    let inits = children_of(&launchers);
    [launchers, inits, servers].concat()
}

fn watch(pids: &[i32]) -> Vec<OwnedFd> {
    pids.iter().filter_map(|pid| pidfd_open(Pid::from_raw(*pid).unwrap(), PidfdFlags::empty()).ok()).collect()
}

fn a_command_after_another_finds_a_sandbox() {
    let (fixture, launcher) = (Fixture::new(), launcher());
    let mut first = launcher.launch(fixture.script("true")).unwrap();
    assert!(!first.was_armed(), "no process waits before there has been a command");
    assert_eq!(launcher.armed(), 0);
    first.wait().unwrap();
    first.tear_down().unwrap();
    for _ in 0..3 {
        assert_eq!(served(&launcher, fixture.script("cat file; id -u")), "as it was\n1000\n");
    }
    // B-10: the built-in attacks run in a sandbox that was set up before.
    let possible: Vec<_> = self_test(&launcher).unwrap().into_iter().filter(|attack| attack.possible).collect();
    assert!(possible.is_empty(), "{possible:#?}");
}

/// Neither its variables, its arguments, its files nor its processes.
fn nothing_of_a_call_reaches_the_next() {
    let (fixture, launcher) = (Fixture::new(), launcher());
    warm(&launcher, &fixture);
    let (mount, _) = fixture.staged();
    let script =
        "echo $CANARY > ~/kept; echo $CANARY > /tmp/kept; echo $CANARY > /dev/shm/kept; sleep 1000 & echo done";
    let mut spec = Spec::new("sh", ["-c", script, "canary-of-a-call"], mount);
    spec.env.push(("CANARY".into(), "canary-of-a-call".into()));
    assert_eq!(served(&launcher, spec), "done\n");
    wait_for_sandboxes(&launcher);
    for pid in waiting_processes(std::process::id()) {
        for part in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{pid}/{part}")).unwrap_or_default();
            assert!(!String::from_utf8_lossy(&text).contains("canary"), "{part} of {pid}");
        }
    }
    let look = "env; ls -A ~ /tmp /dev/shm; cat /proc/*/cmdline | tr '\\0' ' '; ls /proc/self/fd";
    let seen = served(&launcher, fixture.script(look));
    assert!(!seen.contains("canary") && !seen.contains("kept") && !seen.contains("sleep"), "{seen}");
    assert!(seen.ends_with("0\n1\n2\n3\n"), "{seen}");
}

fn two_workspaces_in_turn_show_their_own_files() {
    let (fixtures, launcher) = ([Fixture::new(), Fixture::new()], launcher());
    warm(&launcher, &fixtures[0]);
    for n in 0..6 {
        let (mine, others) = (&fixtures[n % 2], &fixtures[1 - n % 2]);
        fs::write(mine.workspace.join("file"), format!("round {n}")).unwrap();
        fs::write(others.workspace.join("others"), "of the other").unwrap();
        let _ = fs::remove_file(mine.workspace.join("others"));
        assert_eq!(served(&launcher, mine.script("cat file; ls")), format!("round {n}file\n"));
    }
}

/// A sandbox that was set up before a commit shows what it has committed.
fn two_hundred_commands_see_what_each_has_changed() {
    let (fixture, launcher) = (Fixture::new(), launcher());
    fs::create_dir(fixture.workspace.join("folder")).unwrap();
    fs::write(fixture.workspace.join("folder/count"), "0").unwrap();
    warm(&launcher, &fixture);
    let mut armed = 0;
    for n in 0..200 {
        let (mount, upper) = fixture.staged();
        let script = "n=$(cat folder/count); echo $((n + 1)) > folder/new && mv folder/new folder/count; echo $n";
        let mut running = launcher.launch(Spec::new("sh", ["-c", script], mount)).unwrap();
        armed += u32::from(running.was_armed());
        let (outcome, output) = running.collect(belay_sandbox::OutputCaps::default()).unwrap();
        assert_eq!((outcome.status, output.stdout.text()), (Status::Exited(0), format!("{n}\n")));
        // As a commit does, while the sandboxes for the next commands may be being set up.
        rustix::fs::renameat(CWD, upper.join("folder/count"), CWD, fixture.workspace.join("folder/count")).unwrap();
        running.tear_down().unwrap();
    }
    assert!(armed > 0, "no command found a sandbox");
    assert_eq!(fs::read_to_string(fixture.workspace.join("folder/count")).unwrap(), "200\n");
}

/// A sandbox that was set up for other limits is not used.
fn a_limit_of_a_call_holds() {
    let (fixture, launcher) = (Fixture::new(), launcher());
    warm(&launcher, &fixture);
    let mut spec = fixture.script("ulimit -Hn");
    spec.limits = Some(Limits { open_files: 99, ..Limits::default() });
    assert_eq!(succeed_by(&launcher, spec), "99\n");
    assert_ne!(succeed_by(&launcher, fixture.script("ulimit -Hn")), "99\n");
}

fn a_deadline_and_a_kill_end_it() {
    let (fixture, launcher) = (Fixture::new(), launcher());
    warm(&launcher, &fixture);
    let mut spec = fixture.script("setsid sleep 1000 & sleep 1000");
    spec.timeout = Some(Duration::from_millis(100));
    let mut late = launcher.launch(spec).unwrap();
    assert!(late.was_armed());
    assert_eq!(late.wait().unwrap().status, Status::TimedOut);
    late.tear_down().unwrap();
    wait_for_sandboxes(&launcher);
    let nap = nap();
    let running = launcher.launch(fixture.script(&format!("sleep {nap} & exec sleep {nap}"))).unwrap();
    assert!(running.was_armed());
    running.kill_handle().kill().unwrap();
    assert_eq!(running.tear_down().unwrap().status, Status::Killed);
    assert!(sleepers(&nap).is_empty());
}

fn a_killed_sandbox_is_not_used() {
    let (fixture, launcher) = (Fixture::new(), launcher());
    for victims in [0..2, 2..4] {
        warm(&launcher, &fixture);
        let all = waiting_processes(std::process::id());
        assert_eq!(all.len(), 5, "two launchers, two inits, and the fork server");
        let victims = &all[victims];
        let watched = watch(&all[..4]);
        for pid in victims {
            kill_process(Pid::from_raw(*pid).unwrap(), Signal::KILL).unwrap();
        }
        wait_for_deaths(&watched);
        let mut running = launcher.launch(fixture.script("cat file")).unwrap();
        assert!(!running.was_armed());
        assert_eq!(running.wait().unwrap().status, Status::Exited(0));
    }
}

/// Sandboxes that wait serve all the same, and the next ones are forked by another server.
fn a_killed_fork_server_is_replaced() {
    let (fixture, launcher) = (Fixture::new(), launcher());
    for _ in 0..3 {
        warm(&launcher, &fixture);
        let server = waiting_processes(std::process::id())[4];
        let watched = watch(&[server]);
        kill_process(Pid::from_raw(server).unwrap(), Signal::KILL).unwrap();
        wait_for_deaths(&watched);
        let mut running = launcher.launch(fixture.script("exec sleep 1000")).unwrap();
        assert!(running.was_armed());
        let mut other = launcher.launch(fixture.script("cat file")).unwrap();
        assert!(other.was_armed());
        assert_eq!(other.wait().unwrap().status, Status::Exited(0));
        let mut anew = launcher.launch(fixture.script("cat file")).unwrap();
        assert_eq!(anew.wait().unwrap().status, Status::Exited(0));
        running.kill_handle().kill().unwrap();
        assert_eq!(running.wait().unwrap().status, Status::Killed);
        for running in [running, other, anew] {
            running.tear_down().unwrap();
        }
    }
}

/// A toolchain that was upgraded by a rename, while sandboxes wait that show the old one.
fn what_was_replaced_since_is_shown() {
    let fixture = Fixture::new();
    let ground = fixture.folder.path().canonicalize().unwrap();
    let make = |name: &str, text: &str| {
        fs::create_dir(ground.join(name)).unwrap();
        fs::write(ground.join(name).join("version"), text).unwrap();
    };
    make("tool", "old");
    let mount = Mount { target: "/opt/tool".into(), ..Mount::read_only(ground.join("tool")) };
    let launcher = NamespaceLauncher::new(Settings { mounts: vec![mount], ..Settings::default() }).unwrap();
    warm(&launcher, &fixture);
    assert_eq!(served(&launcher, fixture.script("cat /opt/tool/version")), "old");
    wait_for_sandboxes(&launcher);
    fs::rename(ground.join("tool"), ground.join("before")).unwrap();
    make("tool", "new");
    assert_eq!(output_of(&launcher, fixture.script("cat /opt/tool/version")), ("new".to_owned(), false));
    assert_eq!(served(&launcher, fixture.script("cat /opt/tool/version")), "new");
}

fn a_file_system_that_was_mounted_since_is_shown() -> Verdict {
    if !is_root() {
        return Verdict::Skipped("only root can mount".to_owned());
    }
    let fixture = Fixture::new();
    let ground = fixture.folder.path().canonicalize().unwrap();
    fs::create_dir_all(ground.join("tool/disk")).unwrap();
    fs::set_permissions(ground.join("tool"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mounts = vec![Mount { target: "/opt/tool".into(), ..Mount::read_only(ground.join("tool")) }];
    let launcher = NamespaceLauncher::new(Settings { mounts, ..Settings::default() }).unwrap();
    warm(&launcher, &fixture);
    mount("tmpfs", ground.join("tool/disk"), "tmpfs", MountFlags::empty(), Some(c"mode=755")).unwrap();
    fs::write(ground.join("tool/disk/file"), "of the disk").unwrap();
    let seen = std::panic::catch_unwind(|| output_of(&launcher, fixture.script("cat /opt/tool/disk/file")));
    unmount(ground.join("tool/disk"), UnmountFlags::DETACH).unwrap();
    assert_eq!(seen.unwrap(), ("of the disk".to_owned(), false));
    wait_for_sandboxes(&launcher);
    assert_eq!(output_of(&launcher, fixture.script("ls /opt/tool/disk")).0, "");
    Verdict::Passed
}

fn sandboxes_end_when_no_command_comes() {
    let fixture = Fixture::new();
    let settings = Settings { armed_for: Duration::from_millis(1), ..Settings::default() };
    let launcher = NamespaceLauncher::new(settings).unwrap();
    for _ in 0..2 {
        launcher.launch(fixture.script("true")).unwrap().tear_down().unwrap();
        while launcher.armed() == 0 {
            thread::yield_now();
        }
        let watched = watch(&waiting_processes(std::process::id()));
        while launcher.armed() > 0 {
            thread::yield_now();
        }
        wait_for_deaths(&watched);
    }
}

fn sandboxes_end_with_their_launcher() {
    let (fixture, launcher) = (Fixture::new(), launcher());
    warm(&launcher, &fixture);
    let watched = watch(&waiting_processes(std::process::id()));
    assert_eq!(watched.len(), 5);
    drop(launcher);
    wait_for_deaths(&watched);
}

fn sandboxes_end_with_their_runner() {
    let fixture = Fixture::new();
    let this = std::env::current_exe().unwrap();
    let mut runner = Command::new(this).arg(RUNNER).arg(&fixture.workspace).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    runner.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let waiting = waiting_processes(runner.id());
    assert_eq!(waiting.len(), 5, "{:?}", waiting.iter().map(|pid| status_field(*pid, "Name")).collect::<Vec<_>>());
    let watched = watch(&waiting);
    runner.kill().unwrap();
    assert_eq!(runner.wait().unwrap().signal(), Some(9));
    wait_for_deaths(&watched);
}

/// The other process of [`sandboxes_end_with_their_runner`]: has sandboxes that wait, says so, and waits.
pub(crate) fn run_with_waiting_sandboxes(workspace: &Path) -> ExitCode {
    let launcher = launcher();
    let spec = Spec::new("true", [""; 0], WorkspaceMount::read_only(workspace));
    launcher.launch(spec).unwrap().tear_down().unwrap();
    wait_for_sandboxes(&launcher);
    println!("ready");
    std::io::stdout().flush().unwrap();
    loop {
        thread::park();
    }
}
