//! A workspace to run commands in, and access to the processes of the host.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

use belay_sandbox::{
    LaunchError, Launcher as _, NamespaceLauncher, Outcome, Output, OutputCaps, RunningCommand, Settings, Spec, Status,
    WorkspaceMount,
};
use tempfile::TempDir;

/// A workspace with one file, and staging directories.
pub(crate) struct Fixture {
    pub(crate) folder: TempDir,
    pub(crate) workspace: PathBuf,
    stagings: AtomicU32,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The sandbox, not file modes, has to keep commands out.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let workspace = folder.path().join("workspace");
        fs::create_dir(&workspace).unwrap();
        fs::write(workspace.join("file"), "as it was\n").unwrap();
        Self { folder, workspace, stagings: AtomicU32::new(0) }
    }

    pub(crate) fn read_only(&self) -> WorkspaceMount {
        WorkspaceMount::read_only(&self.workspace)
    }

    /// The workspace with a new staging directory, and its `upper`.
    pub(crate) fn staged(&self) -> (WorkspaceMount, PathBuf) {
        let staging = self.folder.path().join(format!("staging-{}", self.stagings.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&staging).unwrap();
        (WorkspaceMount::staged(&self.workspace, &staging), staging.join(belay_sandbox::UPPER))
    }

    /// A shell script in the read-only workspace.
    pub(crate) fn script(&self, script: &str) -> Spec {
        Spec::new("sh", ["-c", script], self.read_only())
    }

    /// Runs a shell script in a staged workspace, expects success, and returns its output and the `upper` directory.
    pub(crate) fn change(&self, script: &str) -> (String, PathBuf) {
        let (workspace, upper) = self.staged();
        (succeed(Spec::new("sh", ["-c", script], workspace)), upper)
    }
}

pub(crate) fn launcher() -> NamespaceLauncher {
    NamespaceLauncher::new(Settings::default()).unwrap()
}

pub(crate) fn launch(spec: Spec) -> RunningCommand {
    launcher().launch(spec).unwrap_or_else(|error| panic!("{error}"))
}

pub(crate) fn refusal(spec: Spec) -> LaunchError {
    launcher().launch(spec).map(|_| "it was started").unwrap_err()
}

/// Runs a command with this launcher, expects success, and returns its standard output.
pub(crate) fn succeed_by(launcher: &NamespaceLauncher, spec: Spec) -> String {
    let (outcome, output) = run_by(launcher, spec);
    assert_eq!(outcome.status, Status::Exited(0), "{}{}", output.stdout.text(), output.stderr.text());
    output.stdout.text()
}

/// Runs a command with this launcher, expects failure, and returns its standard error.
pub(crate) fn fail_by(launcher: &NamespaceLauncher, spec: Spec) -> String {
    let (outcome, output) = run_by(launcher, spec);
    assert!(matches!(outcome.status, Status::Exited(1..)), "{:?}: {}", outcome.status, output.stdout.text());
    output.stderr.text()
}

pub(crate) fn run_by(launcher: &NamespaceLauncher, spec: Spec) -> (Outcome, Output) {
    let mut running = launcher.launch(spec).unwrap_or_else(|error| panic!("{error}"));
    running.collect(OutputCaps::default()).unwrap()
}

pub(crate) fn run(spec: Spec) -> (Outcome, Output) {
    launch(spec).collect(OutputCaps::default()).unwrap()
}

/// Runs a command, expects success, and returns its standard output.
pub(crate) fn succeed(spec: Spec) -> String {
    let (outcome, output) = run(spec);
    assert_eq!(outcome.status, Status::Exited(0), "{}{}", output.stdout.text(), output.stderr.text());
    output.stdout.text()
}

/// Runs a command, expects failure, and returns its standard error.
pub(crate) fn fail(spec: Spec) -> String {
    let (outcome, output) = run(spec);
    assert!(matches!(outcome.status, Status::Exited(1..)), "{:?}: {}", outcome.status, output.stdout.text());
    output.stderr.text()
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs these tests with mounts of their own, if they run as root. Tests of other crates mount file systems meanwhile, and a sandbox that waits is not used once the mounts of its machine
/// have changed.
pub(crate) fn leave_mounts_of_others(args: &[String]) {
    const HAS_LEFT: &str = "BELAY_TEST_OWN_MOUNTS";
    if !is_root() || std::env::var_os(HAS_LEFT).is_some() || args.iter().any(|arg| arg == "--list") {
        return;
    }
    let unshare = || {
        let mut command = process::Command::new("unshare");
        command.args(["--mount", "--"]);
        command
    };
    // Where root may not, as in some containers, the tests say themselves what is missing.
    if !unshare().arg("true").output().is_ok_and(|done| done.status.success()) {
        return;
    }
    let mut again = unshare();
    again.arg(std::env::current_exe().unwrap()).args(args).env(HAS_LEFT, "1");
    panic!("unshare: {}", again.exec());
}

/// A number of seconds that no other process sleeps for, by which the processes are found.
pub(crate) fn nap() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}", 1_000_000 + process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// The host's processes whose command is `sleep <nap>`.
pub(crate) fn sleepers(nap: &str) -> Vec<i32> {
    let command = format!("sleep\0{nap}\0");
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == command.as_bytes()))
        .collect()
}

/// A field in the status of a process.
pub(crate) fn status_field(pid: i32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap().trim().to_owned()
}

/// Every path below a directory with its content or type.
pub(crate) fn contents(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let meta = fs::symlink_metadata(&path).unwrap();
            let what = if meta.is_dir() {
                folders.push(path.clone());
                "folder".to_owned()
            } else if meta.is_file() {
                String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()
            } else {
                format!("{:?}", meta.file_type())
            };
            all.push((
                path.strip_prefix(folder).unwrap().to_owned(),
                format!("{:o} {what}", meta.permissions().mode()),
            ));
        }
    }
    all.sort();
    all
}
