//! Attacks on files outside the command's reach.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

use super::attack::{Attack, Targets, Verdict};
use crate::protocol::CANARY;

pub(super) const ATTACKS: &[Attack] = &[
    ("read a file outside the workspace", |targets| read(&targets.secret)),
    ("write a file outside the workspace", |targets| write(&targets.secret)),
    ("read it by climbing out", |targets| read(&Path::new("../../../../..").join(relative(targets)))),
    ("read it through a link in the workspace", |_| read("link-to-secret".as_ref())),
    ("read it through init's root", |targets| {
        Verdict::any(
            ["/proc/1/root", "/proc/self/root", "link-to-root"]
                .map(|root| read(&Path::new(root).join(relative(targets)))),
        )
    }),
    ("read a hidden folder of the workspace", |_| read("hidden/secret".as_ref())),
    ("write to a hidden folder of the workspace", |_| write("hidden/new".as_ref())),
    ("read the host's users and secrets", |_| {
        Verdict::any(
            [
                "/etc/shadow",
                "/etc/gshadow",
                "/etc/ssh",
                "/etc/ssl/private",
                "/etc/sudoers",
                "/root",
                "/var/lib",
                "/var/log",
            ]
            .map(|path| Verdict::of(fs::metadata(path))),
        )
    }),
    ("see the host's homes, services and devices", |_| {
        let only = |folder: &str, expected: &[&str]| {
            let names = names(folder);
            Verdict::expect(
                names.iter().all(|name| expected.contains(&name.as_str())),
                format!("{folder}: {}", names.join(" ")),
            )
        };
        Verdict::any([
            only("/home", &["belay"]),
            only("/run", &[]),
            only("/var", &["run", "tmp"]),
            only("/sys", &["devices"]),
            only("/sys/devices", &["system"]),
            only("/sys/devices/system", &["cpu"]),
            only("/dev/pts", &["ptmx"]),
            only("/dev/shm", &[]),
        ])
    }),
    ("write to what is shown of /sys", |_| write("/sys/devices/system/cpu/cpu0/online".as_ref())),
    ("write to the system's folders", |_| {
        Verdict::any(
            ["/new", "/usr/new", "/usr/bin/new", "/etc/passwd", "/etc/new", "/dev/new"]
                .map(|path| write(path.as_ref())),
        )
    }),
    ("change kernel settings", |_| {
        let settings = [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/pid_max",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sysrq-trigger",
        ];
        Verdict::any(settings.map(|path| Verdict::of(OpenOptions::new().write(true).open(path))))
    }),
    // Harmless to the host. Only Landlock forbids it, so it shows that Landlock is active.
    ("write where only Landlock forbids it", |_| Verdict::of(OpenOptions::new().write(true).open("/proc/self/comm"))),
    ("open devices that are not its own", devices),
    ("make a device", |_| {
        let make = |kind| mknodat(CWD, "/tmp/device", kind, Mode::from(0o666), makedev(1, 1)).map_err(io::Error::from);
        Verdict::any([FileType::CharacterDevice, FileType::BlockDevice].map(|kind| Verdict::of(make(kind))))
    }),
    ("make a setuid file", |_| {
        let make = || {
            File::create("/tmp/setuid")?;
            fs::set_permissions("/tmp/setuid", fs::Permissions::from_mode(0o4755))
        };
        Verdict::of(make())
    }),
    // Not blocked but isolated: the self-test checks the workspace afterwards.
    ("change the workspace in place", |_| match fs::write("file", "changed") {
        Ok(()) => Verdict::Blocked("written to the view".to_owned()),
        Err(error) => Verdict::Possible(format!("the view is not writable, so the attack proves nothing: {error}")),
    }),
];

fn relative(targets: &Targets) -> &Path {
    targets.secret.strip_prefix("/").unwrap_or(&targets.secret)
}

fn read(path: &Path) -> Verdict {
    match fs::read_to_string(path) {
        Ok(text) => Verdict::expect(!text.contains(CANARY), "opened"),
        Err(error) => Verdict::Blocked(error.to_string()),
    }
}

fn write(path: &Path) -> Verdict {
    Verdict::of(OpenOptions::new().append(true).create(true).open(path))
}

fn names(folder: &str) -> Vec<String> {
    let mut names: Vec<String> = match fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect(),
        Err(_) => Vec::new(),
    };
    names.sort();
    names
}

fn devices(_: &Targets) -> Verdict {
    let expected =
        ["fd", "full", "null", "ptmx", "pts", "random", "shm", "stderr", "stdin", "stdout", "tty", "urandom", "zero"];
    let found = names("/dev");
    // The session has no terminal, so /dev/tty cannot be opened.
    let others = [
        "/dev/tty",
        "/dev/console",
        "/dev/tty0",
        "/dev/tty1",
        "/dev/pts/0",
        "/dev/mem",
        "/dev/kmsg",
        "/dev/vda",
        "/dev/sda",
        "/dev/kvm",
        "/dev/fuse",
        "/dev/vsock",
        "/dev/vhost-vsock",
        "/dev/net/tun",
    ];
    let listed = Verdict::expect(found == expected, found.join(" "));
    Verdict::any(others.map(|path| Verdict::of(File::open(path))).into_iter().chain([listed]))
}
