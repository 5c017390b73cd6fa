//! The disk writes of a command are bounded by its budgets and by the reserve of the disk.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use belay_sandbox::{
    LaunchError, Launcher as _, Limits, Mount, MountKind, NamespaceLauncher, Outcome, Reserve, RunningCommand, Scratch,
    ScratchPlace, Settings, Spec, Status, Unit, WorkspaceMount, WriteBound, WriteBudget,
};

use crate::{
    harness::{Test, Verdict, tests},
    support::{Fixture, is_root, run_by, succeed, succeed_by},
};

pub(crate) const TESTS: &[Test] = tests![
    each_place_on_disk_has_a_budget,
    the_kernel_enforces_budgets_in_memory,
    unlinked_files_count,
    inaccessible_directories_count,
    the_view_is_emptied_after_a_disk_limit,
    preallocation_is_refused,
    a_single_file_is_no_larger_than_the_budget,
    a_command_starts_only_above_the_reserve,
    only_the_command_that_fills_the_disk_is_terminated,
    commands_are_terminated_before_others_fill_the_disk,
];

const MIB: u64 = 1 << 20;

/// 8 MiB and 500 inodes in each place.
fn small() -> Settings {
    let size = WriteBudget { bytes: 8 * MIB, inodes: 500 };
    Settings { view: size, scratch: Scratch { tmp: size, home: size, ..Scratch::default() }, ..Settings::default() }
}

fn launched_by(launcher: &NamespaceLauncher, spec: Spec) -> RunningCommand {
    launcher.launch(spec).unwrap_or_else(|error| panic!("{error}"))
}

/// The exit status of a shell script with these settings.
fn end(fixture: &Fixture, settings: Settings, script: &str) -> Status {
    let spec = Spec::new("sh", ["-c", script], fixture.staged().0);
    launched_by(&NamespaceLauncher::new(settings).unwrap(), spec).tear_down().unwrap().status
}

/// The bound that a script exceeded, with its limit and the measured value.
fn bound_of(status: Status) -> (WriteBound, Unit, u64, u64) {
    match status {
        Status::DiskLimit(limit) => (limit.bound, limit.unit, limit.limit, limit.found),
        status => panic!("{status:?}"),
    }
}

const PLACES: [(&str, WriteBound); 4] = [
    ("/workspace", WriteBound::View),
    ("/tmp", WriteBound::Tmp),
    ("/var/tmp", WriteBound::Tmp),
    ("$HOME", WriteBound::Home),
];

fn each_place_on_disk_has_a_budget() {
    let fixture = Fixture::new();
    // Writes within the budgets are fine, for however long. Holes take no space.
    let within = "for place in /workspace /tmp ~; do head -c 4000000 /dev/zero > $place/a; truncate -s 1G $place/hole; done; sleep 1.5";
    let wide = WriteBudget { bytes: 2 << 30, inodes: 1000 };
    // A budget of 8 MiB would also limit the file size.
    let settings = Settings { scratch: Scratch { tmp: wide, ..small().scratch }, ..small() };
    assert_eq!(end(&fixture, settings, within), Status::Exited(0));
    // Each of these runs until it is terminated.
    for (place, bound) in PLACES {
        let bytes = format!("n=0; while :; do head -c 1000000 /dev/zero > {place}/$n; n=$((n + 1)); done");
        let (found_bound, unit, limit, found) = bound_of(end(&fixture, small(), &bytes));
        assert_eq!((found_bound, unit, limit), (bound, Unit::Bytes, 8 * MIB), "bytes in {place}");
        assert!(found > 8 * MIB, "{place}: {found}");
        let inodes =
            format!("mkdir {place}/d; for n in $(seq 600); do : > {place}/d/$n; done; while :; do sleep 1; done");
        let (found_bound, unit, limit, found) = bound_of(end(&fixture, small(), &inodes));
        assert_eq!((found_bound, unit, limit), (bound, Unit::Inodes, 500), "inodes in {place}");
        assert!(found > 500, "{place}: {found}");
    }
}

fn the_kernel_enforces_budgets_in_memory() {
    let fixture = Fixture::new();
    let scratch = Scratch { place: ScratchPlace::Memory, ..small().scratch };
    let launcher = NamespaceLauncher::new(Settings { scratch, ..small() }).unwrap();
    let script = "for place in /tmp ~; do ! head -c 20000000 /dev/zero 2>/dev/null > $place/a; stat -c %s $place/a; rm $place/a; \
                  for n in $(seq 600); do : > $place/$n || break; done 2>/dev/null; ls $place | wc -l; done";
    let output = succeed_by(&launcher, Spec::new("bash", ["-c", script], fixture.staged().0));
    let numbers: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
    // The file size limit is that of the largest place, so the tmpfs limit applies first.
    assert!(matches!(numbers[..], [a, m, b, n] if a <= 8 * MIB && b <= 8 * MIB && m < 500 && n < 500), "{output}");
}

fn unlinked_files_count() {
    let fixture = Fixture::new();
    for (place, bound) in PLACES {
        let script = format!(
            "n=3; while [ $n -lt 9 ]; do eval \"exec $n>{place}/f$n\"; rm {place}/f$n; head -c 2000000 /dev/zero >&$n; n=$((n + 1)); done; \
             while :; do sleep 1; done"
        );
        let (found_bound, unit, limit, _) = bound_of(end(&fixture, small(), &script));
        assert_eq!((found_bound, unit, limit), (bound, Unit::Bytes, 8 * MIB), "{place}");
    }
}

fn inaccessible_directories_count() {
    let fixture = Fixture::new();
    for (place, bound) in PLACES {
        let script = format!(
            "mkdir -p {place}/denied/deeper; for n in 1 2 3; do head -c 4000000 /dev/zero > {place}/denied/deeper/$n; done; \
             chmod 0 {place}/denied/deeper {place}/denied; while :; do sleep 1; done"
        );
        assert_eq!(bound_of(end(&fixture, small(), &script)).0, bound, "{place}");
        let itself = format!(
            "for n in 1 2 3; do head -c 4000000 /dev/zero > {place}/$n; done; chmod 0 {place}; while :; do sleep 1; done"
        );
        assert_eq!(bound_of(end(&fixture, small(), &itself)).0, bound, "{place} itself");
    }
}

fn the_view_is_emptied_after_a_disk_limit() {
    let fixture = Fixture::new();
    let (workspace, upper) = fixture.staged();
    let script = "mkdir -p d/e; chmod 0 d/e; n=0; while :; do head -c 1000000 /dev/zero > $n; n=$((n + 1)); done";
    let running = launched_by(&NamespaceLauncher::new(small()).unwrap(), Spec::new("sh", ["-c", script], workspace));
    bound_of(running.tear_down().unwrap().status);
    assert_eq!(fs::read_dir(upper).unwrap().count(), 0, "others need the space");
}

fn preallocation_is_refused() -> Verdict {
    if !Path::new("/usr/bin/python3").exists() {
        return Verdict::Skipped("/usr/bin/python3 is not installed".to_owned());
    }
    let fixture = Fixture::new();
    let program = "
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
for place in ('/workspace/f', '/tmp/f', os.path.expanduser('~/f')):
    fd = os.open(place, os.O_RDWR | os.O_CREAT)
    assert libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(1 << 30)) == -1
    assert ctypes.get_errno() == errno.EOPNOTSUPP, ctypes.get_errno()
    # The C library falls back to writing.
    os.posix_fallocate(fd, 0, 1 << 20)
    assert os.fstat(fd).st_blocks * 512 >= 1 << 20
    # Deallocation works where the file system supports it.
    PUNCH_HOLE_KEEP_SIZE = 3
    assert libc.fallocate(fd, PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(1 << 20)) == 0
    assert os.fstat(fd).st_blocks == 0
print('done')
";
    assert_eq!(succeed(Spec::new("/usr/bin/python3", ["-c", program], fixture.staged().0)), "done\n");
    Verdict::Passed
}

fn a_single_file_is_no_larger_than_the_budget() {
    let fixture = Fixture::new();
    let limits = Limits { file_size: None, ..Limits::default() };
    let launcher = NamespaceLauncher::new(Settings { limits, ..small() }).unwrap();
    // Terminated by SIGXFSZ.
    let script = "truncate -s 100M a; echo $?; ulimit -f";
    let output = succeed_by(&launcher, Spec::new("bash", ["-c", script], fixture.staged().0));
    assert_eq!(output, format!("153\n{}\n", 8 * MIB / 1024));
}

/// A small file system, unmounted on drop.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(fixture: &Fixture, options: &str) -> Option<Self> {
        let folder = fixture.folder.path().join("disk");
        fs::create_dir(&folder).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&folder).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }

    /// A workspace and a staging directory on it.
    fn workspace(&self, name: &str) -> WorkspaceMount {
        let [workspace, staging] = ["workspace", "staging"].map(|kind| self.0.join(format!("{name}-{kind}")));
        fs::create_dir(&workspace).unwrap();
        fs::create_dir(&staging).unwrap();
        WorkspaceMount::staged(workspace, staging)
    }

    fn free(&self) -> u64 {
        let all = rustix::fs::statvfs(&self.0).unwrap();
        all.f_bavail * all.f_frsize
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).status());
    }
}

/// A disk of 512 MiB with a reserve of 256 MiB, and much larger budgets. The reserve is what several processors can write while a busy
/// machine delays the launcher.
fn small_disk(fixture: &Fixture) -> Option<(SmallDisk, NamespaceLauncher)> {
    let disk = SmallDisk::mount(fixture, "size=512m,nr_inodes=120000,mode=755").filter(|_| is_root())?;
    let reserve = Reserve { bytes: Some(256 * MIB), inodes: Some(100_000) };
    Some((disk, NamespaceLauncher::new(Settings { reserve, ..Settings::default() }).unwrap()))
}

fn needs_a_mount() -> Verdict {
    Verdict::Skipped("no file system can be mounted here".to_owned())
}

fn a_command_starts_only_above_the_reserve() -> Verdict {
    let fixture = Fixture::new();
    let Some((disk, launcher)) = small_disk(&fixture) else { return needs_a_mount() };
    fs::write(disk.0.join("others"), vec![0; 300 << 20]).unwrap();
    let refused = launcher.launch(Spec::new("true", [""; 0], disk.workspace("a"))).map(drop).unwrap_err();
    match &refused {
        LaunchError::DiskFull { place, limit } => {
            assert!(place.starts_with(&disk.0), "{refused}");
            assert_eq!((limit.bound, limit.unit, limit.limit), (WriteBound::Reserve, Unit::Bytes, 256 * MIB));
            assert!(limit.found <= 212 * MIB);
        }
        _ => panic!("{refused}"),
    }
    fs::remove_file(disk.0.join("others")).unwrap();
    succeed_by(&launcher, Spec::new("true", [""; 0], disk.workspace("b")));
    Verdict::Passed
}

/// A command that prints `ready` after this script, and then waits for the file `/tmp/end`.
fn waiting(launcher: &NamespaceLauncher, disk: &SmallDisk, name: &str, script: &str) -> RunningCommand {
    let script = format!("{script}\necho ready; while ! test -e /tmp/end; do sleep 0.05; done");
    let mut running = launched_by(launcher, Spec::new("sh", ["-c", &script], disk.workspace(name)));
    let mut ready = [0; 6];
    running.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    running
}

/// Ends a waiting command from outside: it has to be running still.
fn end_of(disk: &SmallDisk, name: &str, running: RunningCommand) -> Status {
    fs::write(disk.0.join(format!("{name}-staging/scratch/tmp/end")), "").unwrap();
    running.tear_down().unwrap().status
}

/// Writes forever, but no faster than an ordinary disk: otherwise memory is full before the launcher runs on a busy machine.
const SLOW: &str = "slow() { while :; do head -c 1000000 /dev/zero; sleep 0.005; done; }\n";

fn only_the_command_that_fills_the_disk_is_terminated() -> Verdict {
    let fixture = Fixture::new();
    let Some((disk, launcher)) = small_disk(&fixture) else { return needs_a_mount() };
    // Two other commands, one of which holds some megabytes.
    let idle = waiting(&launcher, &disk, "idle", "true");
    let builds = waiting(&launcher, &disk, "builds", "head -c 5000000 /dev/zero > ~/cache");
    let scripts = [
        ("several writers", "for w in 1 2 3; do slow > $w & done; wait", Unit::Bytes),
        ("scratch", "slow > /tmp/a", Unit::Bytes),
        ("unlinked files", "exec 3> a; rm a; slow >&3", Unit::Bytes),
        ("a sparse file that is filled", "truncate -s 1G a; slow | dd of=a bs=1M conv=notrunc", Unit::Bytes),
        ("inodes", "n=0; while :; do : > $n; n=$((n + 1)); done", Unit::Inodes),
        ("fallocate", "fallocate -l 500M a; slow > a", Unit::Bytes),
    ];
    for (n, (what, script, unit)) in scripts.into_iter().enumerate() {
        let script = format!("{SLOW}{script}");
        let spec = Spec::new("sh", ["-c", &script], disk.workspace(&format!("culprit-{n}")));
        let outcome = launched_by(&launcher, spec).tear_down().unwrap();
        let (bound, found_unit, _, found) = bound_of(outcome.status);
        assert_eq!((bound, found_unit), (WriteBound::Reserve, unit), "{what}");
        assert!(found > 0, "{what}: the reserve was used up");
        assert!(disk.free() > 256 * MIB, "{what}: {} are free afterwards", disk.free());
    }
    assert_eq!(end_of(&disk, "idle", idle), Status::Exited(0));
    assert_eq!(end_of(&disk, "builds", builds), Status::Exited(0));
    // Two commands fill the disk together: both may have to end, and no other.
    let idle = waiting(&launcher, &disk, "idle-2", "true");
    let ends: Vec<Outcome> = thread::scope(|scope| {
        let runs: Vec<_> = (0..2)
            .map(|n| {
                let script = format!("{SLOW}slow > a");
                let spec = Spec::new("sh", ["-c", &script], disk.workspace(&format!("both-{n}")));
                let launcher = &launcher;
                scope.spawn(move || launched_by(launcher, spec).tear_down().unwrap())
            })
            .collect();
        runs.into_iter().map(|run| run.join().unwrap()).collect()
    });
    for end in ends {
        assert_eq!(bound_of(end.status).0, WriteBound::Reserve);
    }
    assert_eq!(end_of(&disk, "idle-2", idle), Status::Exited(0));
    // What is staged of a cache is bounded by the reserve only.
    let cache = disk.0.join("cache");
    fs::create_dir(&cache).unwrap();
    let idle = waiting(&launcher, &disk, "idle-3", "head -c 3000000 /dev/zero > ~/cache");
    let script = format!("{SLOW}slow > /opt/cache/a");
    let mut spec = Spec::new("sh", ["-c", &script], disk.workspace("keeps"));
    spec.mounts = vec![Mount { source: cache.clone(), target: "/opt/cache".into(), kind: MountKind::Staged }];
    let (outcome, _) = run_by(&launcher, spec);
    assert_eq!(bound_of(outcome.status).0, WriteBound::Reserve);
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0);
    fs::remove_dir_all(disk.0.join("keeps-staging")).unwrap();
    assert_eq!(end_of(&disk, "idle-3", idle), Status::Exited(0));
    Verdict::Passed
}

fn commands_are_terminated_before_others_fill_the_disk() -> Verdict {
    let fixture = Fixture::new();
    let Some((disk, launcher)) = small_disk(&fixture) else { return needs_a_mount() };
    let small = waiting(&launcher, &disk, "small", "true");
    let large = waiting(&launcher, &disk, "large", "head -c 100000000 /dev/zero > a");
    let mut others = fs::File::create(disk.0.join("others")).unwrap();
    // About 220 MiB of 256 stay free until the large command ends.
    others.write_all(&vec![0; 200 << 20]).unwrap();
    assert_eq!(bound_of(large.tear_down().unwrap().status).0, WriteBound::Reserve);
    assert_eq!(end_of(&disk, "small", small), Status::Exited(0));
    drop(launcher);
    Verdict::Passed
}
