//! The limits of a hostile command, and what is rejected before it starts.

use std::{
    ffi::CString,
    fs,
    io::Read as _,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::{UnixDatagram, UnixListener},
    },
    path::Path,
    process::{Command, ExitCode},
};

use belay_defects::{Defect, assert_attack_needs};
use belay_sandbox::{
    CommandNetwork, LaunchError, Launcher as _, Layer, Limits, Mount, MountKind, NamespaceLauncher, OutputCaps,
    Scratch, ScratchPlace, Settings, Spec, Status, WorkspaceMount, WriteBudget, self_test,
};
use rustix::{
    mount::{MountFlags, UnmountFlags, mount, unmount},
    process::{Resource, Rlimit, setrlimit},
};

use crate::{
    harness::{Test, Verdict, tests},
    support::{
        Fixture, fail, fail_by, is_root, launch, launcher, nap, refusal, run, run_by, sleepers, status_field, succeed,
        succeed_by,
    },
};

pub(crate) const TESTS: &[Test] = tests![
    every_attack_is_blocked,
    its_user_outside_is_not_root,
    an_open_descriptor_is_not_inherited,
    a_read_only_workspace_cannot_be_written,
    file_size_is_limited,
    cpu_time_is_limited,
    temporary_space_is_limited,
    open_files_and_memory_are_limited,
    descriptors_in_flight_do_not_stop_other_commands,
    each_command_has_its_own_process_limit,
    a_toolchain_outside_usr_is_mounted_read_only,
    no_source_is_followed_through_a_link,
    no_socket_of_the_host_is_reached,
    mounts_below_a_source_are_shown,
    where_no_overlay_can_be_mounted_a_socket_is_refused,
    settings_that_weaken_the_sandbox_are_rejected,
    a_landlock_below_the_minimum_is_rejected,
    a_missing_workspace_is_rejected,
];

// S2-FR-045, S2-FR-073, S2-NFR-011, S2-NFR-012. Files, sockets, processes, kernel calls, x32 and i386 calls,
// descriptors, variables: the list is in src/attacks.
fn every_attack_is_blocked() {
    assert!(std::env::var_os("PATH").is_some(), "the runner has an environment to leak");
    let results = self_test(&launcher()).unwrap();
    let possible: Vec<_> = results.iter().filter(|result| result.possible).collect();
    assert!(possible.is_empty(), "{possible:#?}");
    assert!(results.len() > 40, "{} attacks", results.len());
}

fn its_user_outside_is_not_root() {
    let fixture = Fixture::new();
    let nap = nap();
    let mut running = launch(fixture.script(&format!("echo ready; exec sleep {nap}")));
    let mut ready = [0; 6];
    running.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let ids_of = |pid| [status_field(pid, "Uid"), status_field(pid, "Gid")];
    let (user, inits) = loop {
        // The shell prints before it executes `sleep`.
        if let [pid] = sleepers(&nap)[..] {
            break (ids_of(pid), ids_of(status_field(pid, "PPid").parse().unwrap()));
        }
    };
    let ids =
        if is_root() { [65533; 2] } else { [rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw()] };
    // Real, effective, saved, and for files.
    assert_eq!(user, ids.map(|id| [id; 4].map(|id| id.to_string()).join("\t")));
    assert_eq!(inits, user, "init sets up the sandbox as the same user");
    running.kill_handle().kill().unwrap();
    running.wait().unwrap();
}

fn an_open_descriptor_is_not_inherited() {
    let fixture = Fixture::new();
    // Unlike the files that the standard library opens, a plain duplicate is inherited across exec.
    let _open = [1, 2, 3].map(|_| rustix::io::dup(fs::File::open(fixture.workspace.join("file")).unwrap()).unwrap());
    // The fourth is the directory being listed.
    assert_eq!(succeed(fixture.script("exec ls /proc/self/fd")), "0\n1\n2\n3\n");
}

fn a_read_only_workspace_cannot_be_written() {
    let fixture = Fixture::new();
    for script in
        ["echo x >> file", "echo x > new", "rm file", "mv file other", "chmod 600 file", "touch file", "mkdir folder"]
    {
        fail(fixture.script(script));
    }
    assert_eq!(fs::read_to_string(fixture.workspace.join("file")).unwrap(), "as it was\n");
    assert_eq!(fs::read_dir(&fixture.workspace).unwrap().count(), 1);
}

fn limited(fixture: &Fixture, script: &str, change: impl FnOnce(&mut Limits)) -> Spec {
    let mut spec = fixture.script(script);
    change(spec.limits.insert(Limits::default()));
    spec
}

fn file_size_is_limited() {
    let fixture = Fixture::new();
    let spec = limited(&fixture, "exec head -c 100000 /dev/zero > /tmp/big", |limits| limits.file_size = Some(50_000));
    assert_eq!(run(spec).0.status, Status::Signalled(libc_signal::SIGXFSZ));
}

// S2-FR-048, S3-17.
fn cpu_time_is_limited() {
    let fixture = Fixture::new();
    let spec =
        limited(&fixture, "while :; do :; done", |limits| limits.cpu = Some(std::time::Duration::from_millis(300)));
    assert_eq!(run(spec).0.status, Status::Signalled(libc_signal::SIGXCPU));
}

/// The documented signal numbers of `Status::Signalled`.
mod libc_signal {
    pub(super) const SIGXCPU: i32 = 24;
    pub(super) const SIGXFSZ: i32 = 25;
}

fn with_scratch(change: impl FnOnce(&mut Scratch)) -> NamespaceLauncher {
    let mut settings = Settings::default();
    change(&mut settings.scratch);
    NamespaceLauncher::new(settings).unwrap()
}

fn small(bytes: u64, inodes: u64) -> WriteBudget {
    WriteBudget { bytes, inodes }
}

fn temporary_space_is_limited() {
    let fixture = Fixture::new();
    let launcher = with_scratch(|scratch| {
        scratch.tmp = small(200_000, 50);
        scratch.home = small(300_000, 60);
        scratch.shm = small(100_000, 40);
    });
    for (place, size) in [("/tmp", 200_000), ("$HOME", 300_000), ("/dev/shm", 100_000)] {
        let script = format!("head -c {} /dev/zero > {place}/big", size * 2);
        assert!(fail_by(&launcher, fixture.script(&script)).contains("No space left"), "{place}");
        let script = format!("for n in $(seq 100); do : > {place}/$n || exit 1; done");
        assert!(fail_by(&launcher, fixture.script(&script)).contains("No space left"), "{place}");
    }
}

fn open_files_and_memory_are_limited() {
    let fixture = Fixture::new();
    let spec = limited(&fixture, "ulimit -n; ulimit -v; ulimit -c", |limits| {
        limits.open_files = 77;
        limits.open_files_at_start = None;
        limits.address_space = Some(512 << 20);
    });
    assert_eq!(succeed(spec), format!("77\n{}\n0\n", 512 << 10));
}

/// B-31: the kernel counts the descriptors that a user has in flight over unix sockets, and each start of a command sends one.
fn descriptors_in_flight_do_not_stop_other_commands() -> Verdict {
    let fixture = Fixture::new();
    if !matches!(run(fixture.script("command -v python3")).0.status, Status::Exited(0)) {
        return Verdict::Skipped("python3, which can send descriptors, is not installed".to_owned());
    }
    let status = Command::new(std::env::current_exe().unwrap()).arg(WITH_FEW_OPEN_FILES).status().unwrap();
    assert!(status.success(), "{status}");
    Verdict::Passed
}

/// The argument with which this binary runs [`with_few_open_files`].
pub(crate) const WITH_FEW_OPEN_FILES: &str = "--run-with-few-open-files";

/// A runner that may open fewer files than others, so that what the attack puts in flight does not stop the commands of other tests.
pub(crate) fn with_few_open_files() -> ExitCode {
    let few = Some(4096);
    setrlimit(Resource::Nofile, Rlimit { current: few, maximum: few }).unwrap();
    assert_attack_needs(Defect::RunnersOpenFiles, "another command was not started", descriptors_in_flight);
    ExitCode::SUCCESS
}

fn descriptors_in_flight() -> Result<(), String> {
    let fixture = Fixture::new();
    let script = "
import array, os, resource, socket, sys, time
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
fds = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [1] * 253))]
pairs = []
try:
    while True:
        pairs.append(socket.socketpair())
        pairs[-1][0].setblocking(False)
        try:
            while True:
                pairs[-1][0].sendmsg([b'x'], fds)
        except BlockingIOError:
            pass
except OSError as error:
    print(error.errno, flush=True)
time.sleep(100000)
";
    let attack = Spec::new("python3", ["-c", script], fixture.read_only());
    let mut attacker = launch(attack);
    let mut error = [0; 4];
    attacker.stdout.as_mut().unwrap().read_exact(&mut error).unwrap();
    // ETOOMANYREFS: there is no room for more.
    assert_eq!(&error, b"109\n");
    // The sockets of a network are in flight for a moment too.
    let listen = (0..80).map(|port| ([127, 77, 0, 1], 21000 + port).into()).collect();
    let network = Some(CommandNetwork { listen, ..CommandNetwork::default() });
    let others = [None, network.clone(), network].into_iter().try_for_each(|network| {
        match launcher().launch(Spec { network, ..fixture.script("echo started") }) {
            Ok(mut running) => {
                assert_eq!(running.collect(OutputCaps::default()).unwrap().1.stdout.text(), "started\n");
                Ok(())
            }
            Err(error) => Err(format!("another command was not started: {error}")),
        }
    });
    attacker.kill_handle().kill().unwrap();
    attacker.wait().unwrap();
    others
}

fn each_command_has_its_own_process_limit() {
    let fixture = Fixture::new();
    let nap = nap();
    // Two commands at once, each with its own count.
    let script = format!("for n in 1 2 3 4 5 6 7; do sleep {nap} & done; echo started; wait");
    let few = || limited(&fixture, &script, |limits| limits.processes = 8);
    let mut both = [launch(few()), launch(few())];
    for running in &mut both {
        let mut output = [0; 8];
        running.stdout.as_mut().unwrap().read_exact(&mut output).unwrap();
        assert_eq!(&output, b"started\n");
    }
    drop(both);
    let too_many = limited(&fixture, "for n in 1 2 3 4 5 6 7 8 9 10; do sleep 100 & done; echo started", |limits| {
        limits.processes = 8
    });
    let (outcome, output) = run(too_many);
    assert_ne!(outcome.status, Status::Exited(0), "{}", output.stdout.text());
    assert!(output.stderr.text().contains("fork"), "{}", output.stderr.text());
}

fn a_toolchain_outside_usr_is_mounted_read_only() {
    let fixture = Fixture::new();
    let shown = Path::new("/var/lib/dpkg");
    let shown = if shown.is_dir() { shown } else { Path::new("/var/tmp") };
    let launcher =
        NamespaceLauncher::new(Settings { mounts: vec![Mount::read_only(shown)], ..Settings::default() }).unwrap();
    let script = format!("ls -d {0} && ! touch {0}/new", shown.display());
    assert_eq!(succeed_by(&launcher, fixture.script(&script)), format!("{}\n", shown.display()));
}

/// The listeners of other programs: in the workspace, staged and read-only, and in every kind of folder that a command sees.
fn no_socket_of_the_host_is_reached() {
    assert_attack_needs(Defect::HostSocketsReached, "connected in /opt/tool", connections_to_sockets_of_the_host);
}

fn connections_to_sockets_of_the_host() -> Result<(), String> {
    let fixture = Fixture::new();
    let ground = fixture.folder.path().canonicalize().unwrap();
    let mut listeners = Vec::new();
    for folder in ["tool", "tool/deep", "cache", "workspace"] {
        let folder = ground.join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let (stream, datagram) = (folder.join("stream"), folder.join("datagram"));
        listeners.push((Some(UnixListener::bind(&stream).unwrap()), None));
        listeners.push((None, Some(UnixDatagram::bind(&datagram).unwrap())));
        for socket in [stream, datagram] {
            fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).unwrap();
        }
    }
    let mount = |source: &str, target: &str, kind| Mount { source: ground.join(source), target: target.into(), kind };
    let mounts =
        vec![mount("tool", "/opt/tool", MountKind::ReadOnly), mount("cache", "/opt/cache", MountKind::Scratch)];
    let launcher = NamespaceLauncher::new(Settings { mounts, ..Settings::default() }).unwrap();
    let attack = r#"
use IO::Socket::UNIX;
for my $folder (@ARGV) {
    -e "$folder/file" && -S "$folder/stream" && -S "$folder/datagram" or die "$folder is not shown";
    die "connected in $folder" if IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => "$folder/stream");
    die "connected in $folder" if IO::Socket::UNIX->new(Type => SOCK_DGRAM, Peer => "$folder/datagram");
}
# What it makes itself works, also where it found the others.
for my $folder ("/tmp", split / /, $ENV{WRITABLE}) {
    my $own = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => "$folder/own", Listen => 1) or die "$folder: $!";
    IO::Socket::UNIX->new(Type => SOCK_STREAM, Peer => "$folder/own") or die "$folder: $!";
}
print "done";
"#;
    for (workspace, writable) in [(fixture.read_only(), "/opt/cache"), (fixture.staged().0, "/opt/cache /workspace")] {
        let folders = ["/opt/tool", "/opt/tool/deep", "/opt/cache", "/workspace"];
        let words = ["-e", attack].into_iter().chain(folders);
        let mut spec = Spec::new("perl", words, workspace);
        spec.env.push(("WRITABLE".to_owned(), writable.into()));
        let (outcome, output) = run_by(&launcher, spec);
        if outcome.status != Status::Exited(0) {
            return Err(output.stderr.text());
        }
        assert_eq!(output.stdout.text(), "done");
    }
    Ok(())
}

/// Disks that are mounted below a directory are part of it.
fn mounts_below_a_source_are_shown() -> Verdict {
    if !is_root() {
        return Verdict::Skipped("only root can mount".to_owned());
    }
    let fixture = Fixture::new();
    let ground = fixture.folder.path().canonicalize().unwrap();
    let below = ground.join("tool/with space/disk");
    fs::create_dir_all(&below).unwrap();
    fs::set_permissions(ground.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    mount("tmpfs", &below, "tmpfs", MountFlags::empty(), Some(c"mode=755")).unwrap();
    let listener = UnixListener::bind(below.join("socket"));
    fs::set_permissions(below.join("socket"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(below.join("file"), "of the disk").unwrap();
    let mounts = vec![Mount { source: ground.join("tool"), target: "/opt/tool".into(), kind: MountKind::ReadOnly }];
    let launcher = NamespaceLauncher::new(Settings { mounts, ..Settings::default() }).unwrap();
    let attack = r#"use IO::Socket::UNIX; print IO::Socket::UNIX->new(Peer => "/opt/tool/with space/disk/socket") ? "connected" : "refused""#;
    let seen = launcher.launch(
        fixture.script("cat '/opt/tool/with space/disk/file'; ! touch '/opt/tool/with space/disk/new' 2>/dev/null"),
    );
    let seen = seen.map(|mut running| running.collect(OutputCaps::default()).unwrap().1.stdout.text());
    let reached = launcher.launch(Spec::new("perl", ["-e", attack], fixture.read_only()));
    let reached = reached.map(|mut running| running.collect(OutputCaps::default()).unwrap().1.stdout.text());
    unmount(&below, UnmountFlags::DETACH).unwrap();
    drop(listener);
    assert_eq!(seen.unwrap(), "of the disk");
    assert_eq!(reached.unwrap(), "refused");
    Verdict::Passed
}

/// An overlay of two overlays cannot be a layer of a third one.
fn where_no_overlay_can_be_mounted_a_socket_is_refused() -> Verdict {
    if !is_root() {
        return Verdict::Skipped("only root can mount".to_owned());
    }
    let fixture = Fixture::new();
    let ground = fixture.folder.path().canonicalize().unwrap();
    for folder in ["a/deep", "b", "one", "two"] {
        fs::create_dir_all(ground.join(folder)).unwrap();
    }
    fs::write(ground.join("a/deep/file"), "shown").unwrap();
    for (lower, at) in [("a", "one"), ("one", "two")] {
        let options = CString::new(format!("lowerdir={0}/{lower}:{0}/b", ground.display())).unwrap();
        mount("overlay", ground.join(at), "overlay", MountFlags::empty(), options.as_c_str()).unwrap();
    }
    let mounts = vec![Mount { source: ground.join("two"), target: "/opt/two".into(), kind: MountKind::ReadOnly }];
    let launcher = NamespaceLauncher::new(Settings { mounts, ..Settings::default() }).unwrap();
    let started = || launcher.launch(fixture.script("cat /opt/two/deep/file"));
    let shown = started().map(|mut running| running.collect(OutputCaps::default()).unwrap().1.stdout.text());
    let listener = UnixListener::bind(ground.join("a/deep/socket"));
    let refused = started().map(|_| "it was started");
    for at in ["two", "one"] {
        unmount(ground.join(at), UnmountFlags::DETACH).unwrap();
    }
    drop(listener);
    assert_eq!(shown.unwrap(), "shown");
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("/opt/two contains the socket deep/socket"), "{refused}");
    Verdict::Passed
}

/// A link that was not there when the settings were checked leads nowhere.
fn no_source_is_followed_through_a_link() {
    assert_attack_needs(Defect::LinkedSourceTrusted, "ReadOnly: it was started", links_in_place_of_sources);
}

fn links_in_place_of_sources() -> Result<(), String> {
    let fixture = Fixture::new();
    let ground = fixture.folder.path().canonicalize().unwrap();
    fs::create_dir_all(ground.join("sdk/bin")).unwrap();
    fs::create_dir_all(ground.join("secrets/bin")).unwrap();
    let mount = |kind| Mount { source: ground.join("sdk/bin"), target: "/opt/bin".into(), kind };
    let started = |kind| {
        let settings = Settings { mounts: vec![mount(kind)], ..Settings::default() };
        NamespaceLauncher::new(settings)
            .unwrap()
            .launch(fixture.script("true"))
            .map(drop)
            .map_err(|error| error.to_string())
    };
    let kinds = [MountKind::ReadOnly, MountKind::Scratch, MountKind::Staged];
    let refused = || {
        kinds.into_iter().try_for_each(|kind| {
            let refused = started(kind).err().ok_or_else(|| format!("{kind:?}: it was started"))?;
            assert!(refused.contains("leads through a symbolic link"), "{kind:?}: {refused}");
            Ok::<_, String>(())
        })
    };
    for kind in kinds {
        assert_eq!(started(kind), Ok(()));
    }
    // The directory itself, then one above it.
    fs::remove_dir(ground.join("sdk/bin")).unwrap();
    symlink(ground.join("secrets"), ground.join("sdk/bin")).unwrap();
    refused()?;
    fs::remove_file(ground.join("sdk/bin")).unwrap();
    fs::remove_dir(ground.join("sdk")).unwrap();
    symlink(ground.join("secrets"), ground.join("sdk")).unwrap();
    refused()
}

fn settings_that_weaken_the_sandbox_are_rejected() {
    let refused = |settings: Settings| NamespaceLauncher::new(settings).unwrap_err().to_string();
    assert!(refused(Settings { service_uid: 0, ..Settings::default() }).contains("service_uid"));
    assert!(refused(Settings { landlock_floor: 0, ..Settings::default() }).contains("landlock_floor"));
    for path in ["/", "/proc/sys", "/dev", "/etc", "/etc/shadow", "relative", "/usr/../root"] {
        let error = refused(Settings { mounts: vec![Mount::read_only(path)], ..Settings::default() });
        assert!(error.starts_with("settings.mounts[0]."), "{path}: {error}");
    }
    let mut small = Settings::default();
    small.scratch.tmp.bytes = 0;
    assert!(refused(small).starts_with("settings.scratch.tmp.bytes:"));
    let mut missing = Settings::default();
    missing.scratch.place = ScratchPlace::Folder("/no/such/folder".into());
    assert!(refused(missing).starts_with("settings.scratch.place:"));
}

// Fail closed: below the minimum ABI nothing runs, and the error says what is missing.
fn a_landlock_below_the_minimum_is_rejected() {
    let fixture = Fixture::new();
    let launcher = NamespaceLauncher::new(Settings { landlock_floor: 200, ..Settings::default() }).unwrap();
    let error = launcher.launch(fixture.script("true")).map(drop).unwrap_err();
    assert!(matches!(error, LaunchError::Layer { layer: Layer::Landlock, .. }), "{error}");
    assert!(error.to_string().contains("to fix it"), "{error}");
}

fn a_missing_workspace_is_rejected() {
    let error = refusal(Spec::new("true", [""; 0], WorkspaceMount::read_only("/no/such/workspace")));
    assert!(matches!(error, LaunchError::Layer { layer: Layer::Workspace, .. }), "{error}");
    assert!(error.to_string().contains("/no/such/workspace"), "{error}");
}
