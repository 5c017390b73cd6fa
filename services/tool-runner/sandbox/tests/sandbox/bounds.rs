//! What a command writes is bounded: by its budgets, and by what has to stay free on the disk.

use std::{
    fs,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use belay_sandbox::{
    LaunchError, Launcher as _, Limits, Mount, MountKind, NamespaceLauncher, Outcome, Reserve, Running, Scratch,
    ScratchPlace, Settings, Spec, Status, Unit, WorkspaceMount, WriteBound, WriteBudget,
};

use crate::{
    harness::{Test, Verdict, tests},
    support::{Room, is_root, run_by, succeed, succeed_by},
};

pub(crate) const TESTS: &[Test] = tests![
    each_place_on_disk_has_a_budget,
    memory_keeps_its_budget_itself,
    files_without_a_name_count,
    what_is_shut_counts,
    what_is_over_is_gone_when_the_launcher_has_ended,
    room_is_not_taken_in_advance,
    a_single_file_is_no_larger_than_the_budget,
    a_command_begins_only_above_the_reserve,
    the_command_that_fills_the_disk_ends_and_others_go_on,
    a_disk_that_others_fill_ends_commands_before_it_is_full,
];

const MIB: u64 = 1 << 20;

/// 8 MiB and 500 inodes in each place.
fn small() -> Settings {
    let size = WriteBudget { bytes: 8 * MIB, inodes: 500 };
    Settings { view: size, scratch: Scratch { tmp: size, home: size, ..Scratch::default() }, ..Settings::default() }
}

fn launched_by(launcher: &NamespaceLauncher, spec: Spec) -> Running {
    launcher.launch(spec).unwrap_or_else(|error| panic!("{error}"))
}

/// The end of a shell script with these settings.
fn end(room: &Room, settings: Settings, script: &str) -> Status {
    let spec = Spec::new("sh", ["-c", script], room.staged().0);
    launched_by(&NamespaceLauncher::new(settings).unwrap(), spec).tear_down().unwrap().status
}

/// The bound for which a script was ended, with its limit and what was found.
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
    let room = Room::new();
    // What is within the budgets stays, however long. A hole takes no room.
    let within = "for place in /workspace /tmp ~; do head -c 4000000 /dev/zero > $place/a; truncate -s 1G $place/hole; done; sleep 1.5";
    let wide = WriteBudget { bytes: 2 << 30, inodes: 1000 };
    // A budget of 8 MiB would be the largest file, too.
    let settings = Settings { scratch: Scratch { tmp: wide, ..small().scratch }, ..small() };
    assert_eq!(end(&room, settings, within), Status::Exited(0));
    // Each of these goes on until it is ended.
    for (place, bound) in PLACES {
        let bytes = format!("n=0; while :; do head -c 1000000 /dev/zero > {place}/$n; n=$((n + 1)); done");
        let (found_bound, unit, limit, found) = bound_of(end(&room, small(), &bytes));
        assert_eq!((found_bound, unit, limit), (bound, Unit::Bytes, 8 * MIB), "bytes in {place}");
        assert!(found > 8 * MIB, "{place}: {found}");
        let inodes =
            format!("mkdir {place}/d; for n in $(seq 600); do : > {place}/d/$n; done; while :; do sleep 1; done");
        let (found_bound, unit, limit, found) = bound_of(end(&room, small(), &inodes));
        assert_eq!((found_bound, unit, limit), (bound, Unit::Inodes, 500), "inodes in {place}");
        assert!(found > 500, "{place}: {found}");
    }
}

fn memory_keeps_its_budget_itself() {
    let room = Room::new();
    let scratch = Scratch { place: ScratchPlace::Memory, ..small().scratch };
    let launcher = NamespaceLauncher::new(Settings { scratch, ..small() }).unwrap();
    let script = "for place in /tmp ~; do ! head -c 20000000 /dev/zero 2>/dev/null > $place/a; stat -c %s $place/a; rm $place/a; \
                  for n in $(seq 600); do : > $place/$n || break; done 2>/dev/null; ls $place | wc -l; done";
    let said = succeed_by(&launcher, Spec::new("bash", ["-c", script], room.staged().0));
    let numbers: Vec<u64> = said.lines().map(|line| line.parse().unwrap()).collect();
    // The limit on a single file is that of the largest place, so that the kernel's own bound is the one that is met.
    assert!(matches!(numbers[..], [a, m, b, n] if a <= 8 * MIB && b <= 8 * MIB && m < 500 && n < 500), "{said}");
}

fn files_without_a_name_count() {
    let room = Room::new();
    for (place, bound) in PLACES {
        let script = format!(
            "n=3; while [ $n -lt 9 ]; do eval \"exec $n>{place}/f$n\"; rm {place}/f$n; head -c 2000000 /dev/zero >&$n; n=$((n + 1)); done; \
             while :; do sleep 1; done"
        );
        let (found_bound, unit, limit, _) = bound_of(end(&room, small(), &script));
        assert_eq!((found_bound, unit, limit), (bound, Unit::Bytes, 8 * MIB), "{place}");
    }
}

fn what_is_shut_counts() {
    let room = Room::new();
    for (place, bound) in PLACES {
        let script = format!(
            "mkdir -p {place}/shut/deeper; for n in 1 2 3; do head -c 4000000 /dev/zero > {place}/shut/deeper/$n; done; \
             chmod 0 {place}/shut/deeper {place}/shut; while :; do sleep 1; done"
        );
        assert_eq!(bound_of(end(&room, small(), &script)).0, bound, "{place}");
        let itself = format!(
            "for n in 1 2 3; do head -c 4000000 /dev/zero > {place}/$n; done; chmod 0 {place}; while :; do sleep 1; done"
        );
        assert_eq!(bound_of(end(&room, small(), &itself)).0, bound, "{place} itself");
    }
}

fn what_is_over_is_gone_when_the_launcher_has_ended() {
    let room = Room::new();
    let (workspace, upper) = room.staged();
    let script = "mkdir -p d/e; chmod 0 d/e; n=0; while :; do head -c 1000000 /dev/zero > $n; n=$((n + 1)); done";
    let running = launched_by(&NamespaceLauncher::new(small()).unwrap(), Spec::new("sh", ["-c", script], workspace));
    bound_of(running.tear_down().unwrap().status);
    assert_eq!(fs::read_dir(upper).unwrap().count(), 0, "others need the room");
}

fn room_is_not_taken_in_advance() -> Verdict {
    if !Path::new("/usr/bin/python3").exists() {
        return Verdict::Skipped("there is no /usr/bin/python3".to_owned());
    }
    let room = Room::new();
    let program = "
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
for place in ('/workspace/f', '/tmp/f', os.path.expanduser('~/f')):
    fd = os.open(place, os.O_RDWR | os.O_CREAT)
    assert libc.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(1 << 30)) == -1
    assert ctypes.get_errno() == errno.EOPNOTSUPP, ctypes.get_errno()
    # As the C library does on file systems that cannot: it writes.
    os.posix_fallocate(fd, 0, 1 << 20)
    assert os.fstat(fd).st_blocks * 512 >= 1 << 20
    # What gives room back works where the file system can.
    PUNCH_HOLE_KEEP_SIZE = 3
    assert libc.fallocate(fd, PUNCH_HOLE_KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(1 << 20)) == 0
    assert os.fstat(fd).st_blocks == 0
print('done')
";
    assert_eq!(succeed(Spec::new("/usr/bin/python3", ["-c", program], room.staged().0)), "done\n");
    Verdict::Passed
}

fn a_single_file_is_no_larger_than_the_budget() {
    let room = Room::new();
    let limits = Limits { file_size: None, ..Limits::default() };
    let launcher = NamespaceLauncher::new(Settings { limits, ..small() }).unwrap();
    // SIGXFSZ ends it.
    let script = "truncate -s 100M a; echo $?; ulimit -f";
    let said = succeed_by(&launcher, Spec::new("bash", ["-c", script], room.staged().0));
    assert_eq!(said, format!("153\n{}\n", 8 * MIB / 1024));
}

/// A small file system of its own; gone with this value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(room: &Room, options: &str) -> Option<Self> {
        let folder = room.folder.path().join("disk");
        fs::create_dir(&folder).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(&folder).status();
        mounted.is_ok_and(|status| status.success()).then_some(Self(folder))
    }

    /// A workspace and a folder for a view on it.
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

/// A disk of 512 MiB of which 256 MiB have to stay free, and budgets that are far above that. The reserve is what several processors write in
/// the time that a machine at work with other things may take to let the launcher look.
fn small_disk(room: &Room) -> Option<(SmallDisk, NamespaceLauncher)> {
    let disk = SmallDisk::mount(room, "size=512m,nr_inodes=120000,mode=755").filter(|_| is_root())?;
    let reserve = Reserve { bytes: Some(256 * MIB), inodes: Some(100_000) };
    Some((disk, NamespaceLauncher::new(Settings { reserve, ..Settings::default() }).unwrap()))
}

fn needs_a_mount() -> Verdict {
    Verdict::Skipped("no file system can be mounted here".to_owned())
}

fn a_command_begins_only_above_the_reserve() -> Verdict {
    let room = Room::new();
    let Some((disk, launcher)) = small_disk(&room) else { return needs_a_mount() };
    fs::write(disk.0.join("others"), vec![0; 300 << 20]).unwrap();
    let refused = launcher.launch(Spec::new("true", [""; 0], disk.workspace("a"))).map(drop).unwrap_err();
    match &refused {
        LaunchError::NoRoom { place, limit } => {
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

/// A command that has said `ready` after this script, and then waits for the file `/tmp/never`, its own.
fn waiting(launcher: &NamespaceLauncher, disk: &SmallDisk, name: &str, script: &str) -> Running {
    let script = format!("{script}\necho ready; while ! test -e /tmp/end; do sleep 0.05; done");
    let mut running = launched_by(launcher, Spec::new("sh", ["-c", &script], disk.workspace(name)));
    let mut ready = [0; 6];
    running.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    running
}

/// Ends a command that waits, from outside: it has to be running still.
fn end_of(disk: &SmallDisk, name: &str, running: Running) -> Status {
    fs::write(disk.0.join(format!("{name}-staging/scratch/tmp/end")), "").unwrap();
    running.tear_down().unwrap().status
}

/// Writes for ever, and no faster than an ordinary disk: memory would be full before a launcher is scheduled on a machine at work with other
/// tests.
const SLOW: &str = "slow() { while :; do head -c 1000000 /dev/zero; sleep 0.005; done; }\n";

fn the_command_that_fills_the_disk_ends_and_others_go_on() -> Verdict {
    let room = Room::new();
    let Some((disk, launcher)) = small_disk(&room) else { return needs_a_mount() };
    // Two that were there before, one of them with some megabytes of its own.
    let idle = waiting(&launcher, &disk, "idle", "true");
    let builds = waiting(&launcher, &disk, "builds", "head -c 5000000 /dev/zero > ~/cache");
    let scripts = [
        ("several writers", "for w in 1 2 3; do slow > $w & done; wait", Unit::Bytes),
        ("scratch", "slow > /tmp/a", Unit::Bytes),
        ("files without a name", "exec 3> a; rm a; slow >&3", Unit::Bytes),
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
    // Two that fill it together: both may have to go, and nobody else.
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
    // A cache that outlives the command is bounded by nothing but the reserve.
    let cache = disk.0.join("cache");
    fs::create_dir(&cache).unwrap();
    let idle = waiting(&launcher, &disk, "idle-3", "head -c 3000000 /dev/zero > ~/cache");
    let script = format!("{SLOW}slow > /opt/cache/a");
    let mut spec = Spec::new("sh", ["-c", &script], disk.workspace("keeps"));
    spec.mounts = vec![Mount { source: cache.clone(), target: "/opt/cache".into(), kind: MountKind::Writable }];
    let (outcome, _) = run_by(&launcher, spec);
    assert_eq!(bound_of(outcome.status).0, WriteBound::Reserve);
    fs::remove_dir_all(cache).unwrap();
    assert_eq!(end_of(&disk, "idle-3", idle), Status::Exited(0));
    Verdict::Passed
}

fn a_disk_that_others_fill_ends_commands_before_it_is_full() -> Verdict {
    let room = Room::new();
    let Some((disk, launcher)) = small_disk(&room) else { return needs_a_mount() };
    let small = waiting(&launcher, &disk, "small", "true");
    let large = waiting(&launcher, &disk, "large", "head -c 100000000 /dev/zero > a");
    let mut others = fs::File::create(disk.0.join("others")).unwrap();
    // Some 220 MiB are left of 256, until the large one gives back what it holds.
    others.write_all(&vec![0; 200 << 20]).unwrap();
    assert_eq!(bound_of(large.tear_down().unwrap().status).0, WriteBound::Reserve);
    assert_eq!(end_of(&disk, "small", small), Status::Exited(0));
    drop(launcher);
    Verdict::Passed
}
