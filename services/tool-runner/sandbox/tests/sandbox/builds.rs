//! The needs of builds and test suites of ordinary projects: loopback, terminals, shared memory, disk space, toolchains.

use std::{
    fs,
    io::Read as _,
    net::TcpListener,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use belay_sandbox::{
    HOME, Limits, Mount, MountKind, NamespaceLauncher, OutputCaps, Scratch, ScratchPlace, Settings, Spec, Status,
};

use crate::{
    harness::{Test, Verdict, tests},
    support::{Fixture, fail, is_root, launcher, succeed, succeed_by},
};

pub(crate) const TESTS: &[Test] = tests![
    a_server_and_client_connect_over_loopback,
    the_loopback_is_not_the_hosts,
    python_processes_share_memory,
    a_program_opens_its_own_terminal,
    a_program_raises_its_limit_on_open_files,
    thousands_of_threads_run,
    java_compiles_and_runs,
    go_builds_with_its_cache_at_home,
    a_large_file_fits_into_tmp,
    inaccessible_scratch_is_removed,
    scratch_is_removed_afterwards,
    scratch_in_a_configured_directory,
    mounts_are_read_only_private_or_staged,
    mounts_lie_below_home_and_below_each_other,
    etc_has_the_link_targets_of_toolchains,
    names_are_resolved_from_the_file_alone,
];

/// Skips if one of these programs is missing.
macro_rules! needs {
    ($($program:literal),*) => {
        $(if !Path::new($program).exists() {
            return Verdict::Skipped(concat!($program, " is not installed").to_owned());
        })*
    };
}

/// Runs a Python program in a staged workspace; it has to succeed.
fn python(fixture: &Fixture, program: &str) -> String {
    succeed(Spec::new("/usr/bin/python3", ["-c", program], fixture.staged().0))
}

const SERVER: &str = "
import socket, threading
for family, address in [(socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1')]:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        server = socket.socket(family, kind)
        server.bind((address, 0))
        client = socket.socket(family, kind)
        if kind == socket.SOCK_STREAM:
            server.listen()
            client.connect(server.getsockname())
            peer = server.accept()[0]
            client.sendall(b'hello')
        else:
            client.sendto(b'hello', server.getsockname())
            peer = server
        print(address, peer.recv(5).decode())
print(sorted(name for _, name in socket.if_nameindex()))
print(socket.gethostbyname('localhost'), socket.getaddrinfo(socket.gethostname(), 80)[0][4][0])
";

fn a_server_and_client_connect_over_loopback() -> Verdict {
    needs!("/usr/bin/python3");
    let output = python(&Fixture::new(), SERVER);
    let expected = "127.0.0.1 hello\n127.0.0.1 hello\n::1 hello\n::1 hello\n['lo']\n127.0.0.1 127.0.1.1\n";
    assert_eq!(output, expected);
    Verdict::Passed
}

// S2-FR-073.
fn the_loopback_is_not_the_hosts() -> Verdict {
    needs!("/usr/bin/python3");
    let fixture = Fixture::new();
    for address in ["127.0.0.1", "::1"] {
        let Ok(listener) = TcpListener::bind((address, 0)) else { continue };
        listener.set_nonblocking(true).unwrap();
        let port = listener.local_addr().unwrap().port();
        let program = format!(
            "import socket\ntry:\n    socket.create_connection(({address:?}, {port}))\n    print('connected')\n\
             except ConnectionRefusedError:\n    print('refused')"
        );
        assert_eq!(python(&fixture, &program), "refused\n", "{address}");
        assert!(listener.accept().is_err(), "a connection to {address} arrived");
    }
    Verdict::Passed
}

fn python_processes_share_memory() -> Verdict {
    needs!("/usr/bin/python3");
    let program = "
import multiprocessing, concurrent.futures
from multiprocessing import shared_memory
if __name__ == '__main__':
    with multiprocessing.Pool(4) as pool:
        print(sum(pool.map(abs, range(-50, 50))))
    with concurrent.futures.ProcessPoolExecutor(2) as pool:
        print(list(pool.map(abs, [-1, -2])))
    block = shared_memory.SharedMemory(create=True, size=1 << 20)
    block.buf[0] = 7
    other = shared_memory.SharedMemory(block.name)
    print(other.buf[0])
    block.unlink()
";
    assert_eq!(python(&Fixture::new(), program), "2500\n[1, 2]\n7\n");
    Verdict::Passed
}

fn a_program_opens_its_own_terminal() -> Verdict {
    needs!("/usr/bin/python3", "/usr/bin/script");
    let fixture = Fixture::new();
    let program = "
import os, pty, sys
master, slave = pty.openpty()
print(os.ttyname(slave), os.isatty(slave))
os.write(slave, b'through\\n')
print(os.read(master, 100))
os.close(slave)
# The child's terminal is its /dev/tty.
pid, master = pty.fork()
if pid == 0:
    with open('/dev/tty', 'w') as terminal:
        terminal.write('own terminal')
    os._exit(os.get_terminal_size(1).columns)
print(os.read(master, 100), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
";
    let output = python(&fixture, program);
    assert_eq!(output, "/dev/pts/0 True\nb'through\\r\\n'\nb'own terminal' 0\n");
    // script(1) opens one with posix_openpt and sets its modes.
    let output = succeed(fixture.script("script -qec 'tty; stty -a | head -1' /dev/null"));
    assert!(output.starts_with("/dev/pts/") && output.contains("speed"), "{output}");
    // The command itself has no terminal.
    assert!(fail(fixture.script("echo > /dev/tty")).contains("/dev/tty"));
    Verdict::Passed
}

fn a_program_raises_its_limit_on_open_files() {
    let fixture = Fixture::new();
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum.unwrap_or(u64::MAX);
    // The other half is for descriptors in flight of the runner.
    let hard = hard / 2;
    let open = hard.min(5000);
    assert!(open > 1024, "the machine allows the tests {hard} open files");
    // Leaves some for the shell.
    let script = format!(
        "ulimit -S -n {open}; exec perl -e 'my @all; for (1..{}) {{ open(my $f, \"<\", \"/dev/null\") or die \"$_: $!\"; push @all, $f }} print scalar(@all)'",
        open - 10
    );
    assert_eq!(succeed(fixture.script(&script)), (open - 10).to_string());
    // It starts with the soft limit of the runner, if that is not more, unless the operator sets one.
    let soft = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let mut spec = fixture.script("ulimit -S -n");
    assert_eq!(succeed(spec.clone()), format!("{}\n", soft.min(hard).min(1 << 20)));
    spec.limits = Some(Limits { open_files_at_start: Some(1024), ..Limits::default() });
    assert_eq!(succeed(spec), "1024\n");
}

fn thousands_of_threads_run() -> Verdict {
    needs!("/usr/bin/python3");
    let program = "
import threading
threading.stack_size(64 << 10)
done = threading.Event()
all = [threading.Thread(target=done.wait) for _ in range(2000)]
for thread in all: thread.start()
print(threading.active_count())
done.set()
";
    assert_eq!(python(&Fixture::new(), program), "2001\n");
    Verdict::Passed
}

fn java_compiles_and_runs() -> Verdict {
    needs!("/usr/bin/javac", "/usr/bin/java");
    let fixture = Fixture::new();
    let source = "import java.net.*;\n\
        public class Hello {\n  public static void main(String[] args) throws Exception {\n\
        try (ServerSocket server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());\n\
        Socket client = new Socket(server.getInetAddress(), server.getLocalPort())) {\n\
        System.out.println(client.isConnected() + \" \" + java.security.MessageDigest.getInstance(\"SHA-256\").getAlgorithm());\n\
        }\n    System.out.println(Runtime.getRuntime().availableProcessors());\n  }\n}\n";
    fs::write(fixture.workspace.join("Hello.java"), source).unwrap();
    let (output, upper) = fixture.change("javac Hello.java && java -cp . Hello");
    let processors = std::thread::available_parallelism().unwrap();
    assert_eq!(output, format!("true SHA-256\n{processors}\n"));
    assert!(upper.join("Hello.class").exists());
    Verdict::Passed
}

fn go_builds_with_its_cache_at_home() -> Verdict {
    needs!("/usr/local/go/bin/go");
    let fixture = Fixture::new();
    fs::write(fixture.workspace.join("go.mod"), "module example.org/hello\n\ngo 1.16\n").unwrap();
    let source = "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"built\") }\n";
    fs::write(fixture.workspace.join("main.go"), source).unwrap();
    let mut settings = Settings::default();
    settings.path.push("/usr/local/go/bin".into());
    let launcher = NamespaceLauncher::new(settings).unwrap();
    let (workspace, upper) = fixture.staged();
    let script = "go build -o hello . && ./hello && go env GOCACHE && test -n \"$(ls $(go env GOCACHE))\"";
    let output = succeed_by(&launcher, Spec::new("sh", ["-c", script], workspace));
    assert_eq!(output, format!("built\n{HOME}/.cache/go-build\n"));
    // The cache is not part of the effect.
    assert!(upper.join("hello").exists() && !upper.join(".cache").exists());
    Verdict::Passed
}

fn a_large_file_fits_into_tmp() {
    let fixture = Fixture::new();
    let script =
        "dd if=/dev/zero of=/tmp/large bs=1M count=600 2>/dev/null && stat -c %s /tmp/large && stat -f -c %T /tmp";
    let (workspace, _) = fixture.staged();
    let output = succeed(Spec::new("sh", ["-c", script], workspace));
    let (size, kind) = output.trim().split_once('\n').unwrap();
    assert_eq!(size, (600 << 20).to_string());
    assert_ne!(kind, "tmpfs");
}

fn inaccessible_scratch_is_removed() {
    let fixture = Fixture::new();
    let (launcher, scratch) = with_scratch_folder(&fixture);
    let script = "mkdir -p /tmp/shut/deeper; echo x > /tmp/shut/deeper/a; chmod 0 /tmp/shut/deeper /tmp/shut";
    let running = launch_with(&launcher, fixture.script(script));
    assert_eq!(running.tear_down().unwrap().status, Status::Exited(0));
    assert_no_scratch(&scratch);
    // Deeper than PATH_MAX.
    let script = "cd /tmp; exec perl -e 'for (1..1500) { mkdir(\"ddd\") && chdir(\"ddd\") or die } chmod 0, \".\"'";
    let running = launch_with(&launcher, fixture.script(script));
    assert_eq!(running.tear_down().unwrap().status, Status::Exited(0));
    assert_no_scratch(&scratch);
}

/// A launcher whose commands have their scratch places in a folder of their own, and that folder.
fn with_scratch_folder(fixture: &Fixture) -> (NamespaceLauncher, PathBuf) {
    let folder = fixture.folder.path().join("scratch-of-all");
    fs::create_dir(&folder).unwrap();
    let scratch = Scratch { place: ScratchPlace::Folder(folder.clone()), ..Scratch::default() };
    (NamespaceLauncher::new(Settings { scratch, ..Settings::default() }).unwrap(), folder)
}

fn launch_with(launcher: &NamespaceLauncher, spec: Spec) -> belay_sandbox::RunningCommand {
    belay_sandbox::Launcher::launch(launcher, spec).unwrap()
}

/// The only runner has a folder there, and no command has one in it.
fn assert_no_scratch(scratch: &Path) {
    let runners: Vec<_> = fs::read_dir(scratch).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(runners.len(), 1);
    assert_eq!(fs::read_dir(&runners[0]).unwrap().count(), 0);
}

// S1-31: a command that was killed leaves nothing to the next one.
fn scratch_is_removed_afterwards() {
    let fixture = Fixture::new();
    let (launcher, scratch) = with_scratch_folder(&fixture);
    for end in ["true", "false", "kill -9 $$"] {
        let script =
            format!("mkdir ~/.cache; echo x > ~/.cache/a; echo x > /tmp/b; ln -s /etc /tmp/etc; mkfifo /tmp/f; {end}");
        let running = launch_with(&launcher, fixture.script(&script));
        running.tear_down().unwrap();
        assert_no_scratch(&scratch);
    }
    // The next command finds none of it.
    assert_eq!(
        succeed(Spec::new("sh", ["-c", "ls -A /tmp ~ /dev/shm /run"], fixture.staged().0)),
        "/dev/shm:\n\n/home/belay:\n\n/run:\n\n/tmp:\n"
    );
}

fn scratch_in_a_configured_directory() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().join("scratch-of-all");
    fs::create_dir(&folder).unwrap();
    // Left by a killed runner.
    fs::create_dir_all(folder.join("1-0/7/tmp/shut")).unwrap();
    fs::write(folder.join("1-0/7/tmp/shut/a"), "x").unwrap();
    fs::set_permissions(folder.join("1-0/7/tmp/shut"), fs::Permissions::from_mode(0o000)).unwrap();
    let scratch = Scratch { place: ScratchPlace::Folder(folder.clone()), ..Scratch::default() };
    let launcher = NamespaceLauncher::new(Settings { scratch, ..Settings::default() }).unwrap();
    assert!(!folder.join("1-0").exists());
    // Another runner does not touch what belongs to a live one.
    let scratch = Scratch { place: ScratchPlace::Folder(folder.clone()), ..Scratch::default() };
    let mut running = launch_with(
        &launcher,
        fixture.script("echo x > /tmp/a; echo x > ~/b; echo ready; read line < /tmp/never; sleep 100"),
    );
    let mut ready = [0; 6];
    running.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let other = NamespaceLauncher::new(Settings { scratch, ..Settings::default() }).unwrap();
    running.kill_handle().kill().unwrap();
    running.tear_down().unwrap();
    for launcher in [launcher, other] {
        let mut running =
            launch_with(&launcher, fixture.script("test -z \"$(ls -A ~ /tmp | grep -v :)\" && stat -f -c %T /tmp"));
        let mut output = String::new();
        running.stdout.take().unwrap().read_to_string(&mut output).unwrap();
        running.tear_down().unwrap();
        assert!(!output.is_empty() && output != "tmpfs\n", "{output}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

fn mounts_are_read_only_private_or_staged() {
    let fixture = Fixture::new();
    let source = |name: &str| {
        let folder = fixture.folder.path().join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("there"), name).unwrap();
        folder
    };
    let (only_read, dropped, kept) = (source("only-read"), source("dropped"), source("kept"));
    let mount = |source: &Path, target: &str, kind| Mount { source: source.to_owned(), target: target.into(), kind };
    let mounts = vec![
        mount(&only_read, "/opt/only-read", MountKind::ReadOnly),
        mount(&dropped, "/opt/dropped", MountKind::Scratch),
    ];
    let launcher = NamespaceLauncher::new(Settings { mounts, ..Settings::default() }).unwrap();
    let mut changes = Vec::new();
    for staged in [true, true, false] {
        let workspace = if staged { fixture.staged().0 } else { fixture.read_only() };
        changes.extend(workspace.staging.as_ref().map(|staging| staging.join("caches/kept/upper")));
        let script = "cat /opt/*/there; echo; \
            ! echo x 2>/dev/null > /opt/only-read/new; ! rm -f /opt/only-read/there 2>/dev/null; \
            rm /opt/dropped/there; echo x > /opt/dropped/new; ls /opt/dropped; \
            echo $((1 + $(ls /opt/kept | wc -l))) > /opt/kept/count; ! touch /opt/beside 2>/dev/null";
        let mut spec = Spec::new("sh", ["-c", script], workspace);
        // A mount of the call, such as a cache of its workspace.
        spec.mounts.push(mount(&kept, "/opt/kept", MountKind::Staged));
        assert_eq!(succeed_by(&launcher, spec), "droppedkeptonly-read\nnew\n");
    }
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!((names(&only_read), names(&dropped)), (vec!["there".into()], vec!["there".into()]));
    assert_eq!(names(&kept), ["there"], "no command has seen what another has left");
    let owner = fs::metadata(&fixture.workspace).unwrap().uid();
    for changes in changes {
        assert_eq!(names(&changes), ["count"]);
        assert_eq!(fs::read_to_string(changes.join("count")).unwrap(), "2\n");
        assert_eq!(fs::metadata(changes.join("count")).unwrap().uid(), owner);
    }
}

fn mounts_lie_below_home_and_below_each_other() {
    let fixture = Fixture::new();
    let toolchain = fixture.folder.path().join("rustup/toolchains/stable/bin");
    fs::create_dir_all(&toolchain).unwrap();
    fs::write(toolchain.join("tool"), "#!/bin/sh\necho from the toolchain\n").unwrap();
    fs::set_permissions(toolchain.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    let credentials = fixture.folder.path().join("rustup/credentials");
    fs::write(&credentials, "secret").unwrap();
    let cache = fixture.folder.path().join("cache");
    fs::create_dir(&cache).unwrap();
    // A link planted by an earlier command must not choose where a mount goes.
    std::os::unix::fs::symlink("/etc", cache.join("planted")).unwrap();
    let target = PathBuf::from(HOME).join(".rustup/toolchains/stable");
    let mount = |source: &Path, target: PathBuf, kind| Mount { source: source.to_owned(), target, kind };
    // The deeper one first: the order of mounts does not matter.
    let mounts = vec![
        mount(&toolchain, PathBuf::from(HOME).join(".cache/tools/bin"), MountKind::ReadOnly),
        mount(&cache, PathBuf::from(HOME).join(".cache"), MountKind::Scratch),
        mount(toolchain.parent().unwrap(), target.clone(), MountKind::ReadOnly),
        mount(&toolchain.join("tool"), "/opt/one/file".into(), MountKind::ReadOnly),
    ];
    let mut path = Settings::default().path;
    path.push(target.join("bin"));
    let launcher = NamespaceLauncher::new(Settings { mounts: mounts.clone(), path, ..Settings::default() }).unwrap();
    let script = "tool; ~/.cache/tools/bin/tool; /opt/one/file; ls -A ~/.rustup; ! touch ~/.rustup/toolchains/stable/x 2>/dev/null; \
                  echo x > ~/.rustup/settings.toml && echo x > ~/.cache/y && echo home is writable";
    let expected = format!("{}toolchains\nhome is writable\n", "from the toolchain\n".repeat(3));
    assert_eq!(succeed_by(&launcher, Spec::new("sh", ["-c", script], fixture.staged().0)), expected);
    assert!(!cache.join("y").exists() && credentials.exists());

    let mut planted = Settings { mounts, ..Settings::default() };
    planted.mounts.push(mount(&toolchain, PathBuf::from(HOME).join(".cache/planted/new"), MountKind::ReadOnly));
    let launcher = NamespaceLauncher::new(planted).unwrap();
    let error = belay_sandbox::Launcher::launch(&launcher, fixture.script("true")).map(drop).unwrap_err();
    assert!(error.to_string().contains(".cache/planted/new"), "{error}");
}

fn etc_has_the_link_targets_of_toolchains() {
    let fixture = Fixture::new();
    let shown =
        ["/etc/ld.so.cache", "/etc/alternatives", "/etc/ssl/certs", "/etc/localtime", "/etc/services", "/etc/maven"];
    for path in shown.iter().filter(|path| Path::new(path).exists()) {
        assert_eq!(succeed(fixture.script(&format!("test -r {path} && echo yes"))), "yes\n", "{path}");
    }
    for path in ["/etc/shadow", "/etc/ssl/private", "/etc/ssh", "/etc/machine-id"] {
        fail(fixture.script(&format!("test -e {path}")));
    }
    if is_root() {
        assert_eq!(fs::metadata("/etc/shadow").map(|file| file.mode() & 0o7).unwrap_or(0), 0);
    }
}

/// No program waits for a name server. Bounded by the time limit.
fn names_are_resolved_from_the_file_alone() {
    let fixture = Fixture::new();
    let mut spec = fixture.script("getent hosts localhost; getent hosts example.org; echo $?");
    spec.timeout = Some(std::time::Duration::from_secs(20));
    let mut running = launch_with(&launcher(), spec);
    let (outcome, output) = running.collect(OutputCaps::default()).unwrap();
    assert_eq!(outcome.status, Status::Exited(0));
    assert!(
        output.stdout.text().contains("localhost") && output.stdout.text().ends_with("2\n"),
        "{}",
        output.stdout.text()
    );
}
