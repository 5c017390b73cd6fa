//! The file system of a command: a tmpfs as the root, with mounts of the host.

use std::{
    collections::BTreeSet,
    ffi::CString,
    io::Write as _,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{CWD, Mode, OFlags, mkdirat, openat, openat2, symlinkat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, OpenTreeFlags, UnmountFlags,
        fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_change, open_tree,
        unmount,
    },
    process::{chdir, fchdir, pivot_root},
};

use crate::{
    HOME, INNER_ID, UPPER, WORK,
    budget::WriteBudget,
    layer::Layer,
    protocol::{Armed, Command, Context as _, Failure},
    scratch,
    sources::{BaseSources, CallSources},
    sys::{self, Reach},
};

mod folders;
mod names;
mod places;

use places::{EMPTY, ROOT, SCAFFOLD, SCRATCH, STAGING, attach, folders_above, inside, show};

const WORKSPACE: &str = "workspace";

/// Generated files of `/etc`, because the host's describe its users and network.
const ETC: [(&str, &str); 5] = [
    // The host name resolves too: Java and others look it up.
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 sandbox\n"),
    // Names are resolved from the file only, so no program waits for a name server.
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/host.conf", "multi on\n"),
    (
        "etc/resolv.conf",
        "# The sandbox has no network beyond its own loopback interface.\noptions timeout:1 attempts:1\n",
    ),
    ("etc/hostname", "sandbox\n"),
];

/// Directories that always exist.
const FOLDERS: [&str; 12] =
    ["dev", "dev/pts", "dev/shm", "etc", "home", "home/belay", "proc", "run", "sys", "tmp", "var", WORKSPACE];

const LINKS: [(&str, &str); 8] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
    ("etc/mtab", "/proc/self/mounts"),
    ("var/tmp", "/tmp"),
    ("var/run", "/run"),
];

/// A view without what depends on the command: it is not the root of this mount namespace yet.
pub(crate) struct BaseView {
    scaffold: OwnedFd,
    root: OwnedFd,
    /// How many directories and files of the host have been mounted.
    mounted: usize,
}

impl BaseView {
    /// Builds it from mounts that the command does not choose.
    pub(crate) fn build(sources: &BaseSources, armed: &Armed) -> Result<Self, Failure> {
        // What the host unmounts meanwhile is unmounted here too, and no mount made here is seen there.
        mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)
            .at(Layer::Namespaces, || "separating the mounts from the host's".to_owned())?;
        let scaffold = fresh("tmpfs", &[("size", "64k"), ("mode", "700")], NOSUID_NODEV)
            .and_then(|scaffold| attach(scaffold.as_fd(), CWD, SCAFFOLD).map(|()| scaffold))
            .at(Layer::View, || "mounting the scaffold".to_owned())?;
        mkdirat(&scaffold, EMPTY, Mode::from(0o755)).at(Layer::View, || "creating an empty directory".to_owned())?;
        let made = fresh("tmpfs", &[("size", "4m"), ("nr_inodes", "4096"), ("mode", "755")], NOSUID_NODEV)
            .and_then(|root| {
                mkdirat(&scaffold, ROOT, Mode::RWXU)?;
                attach(root.as_fd(), scaffold.as_fd(), ROOT).map(|()| root)
            })
            .at(Layer::View, || "mounting the root".to_owned())?;
        let root = made.as_fd();

        populate_root(root, sources).at(Layer::View, || "populating the root".to_owned())?;
        for piece in sources.pieces.iter().chain(&sources.devices) {
            show(root, piece).at(Layer::View, || format!("mounting {}", piece.place.display()))?;
        }
        let proc = fresh("proc", &[], NOSUID_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC);
        proc.and_then(|proc| attach(proc.as_fd(), root, "proc")).at(Layer::Proc, || "mounting /proc".to_owned())?;
        // A new devpts instance, separate from the terminals of the host.
        let terminals = [("newinstance", ""), ("ptmxmode", "666"), ("mode", "620"), ("max", "256")];
        fresh("devpts", &terminals, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)
            .and_then(|terminals| attach(terminals.as_fd(), root, "dev/pts"))
            .at(Layer::View, || "mounting /dev/pts".to_owned())?;
        in_memory(armed.scratch.shm, "1777")
            .and_then(|shm| attach(shm.as_fd(), root, "dev/shm"))
            .at(Layer::View, || "mounting /dev/shm".to_owned())?;
        folders::mount_all(scaffold.as_fd(), root, 0, &sources.mounts)?;
        Ok(Self { scaffold, root: made, mounted: sources.mounts.len() })
    }

    /// Adds what the command chooses, and makes the view the root of this mount namespace. The mounts of the host are gone afterwards.
    pub(crate) fn enter(self, sources: &CallSources, command: Command<'_>) -> Result<(), Failure> {
        let (scaffold, root) = (self.scaffold.as_fd(), self.root.as_fd());
        mount_scratch(scaffold, root, command.armed, sources)
            .at(Layer::View, || "mounting /tmp and HOME".to_owned())?;
        if let Some(staging) = &sources.staging {
            mkdirat(scaffold, STAGING, Mode::RWXU)
                .and_then(|()| attach(staging.as_fd(), scaffold, STAGING))
                .at(Layer::Workspace, || "mounting the staging directory".to_owned())?;
        }
        folders::mount_all(scaffold, root, self.mounted, &sources.mounts)?;
        if let Some(server) = command.call.sockets.as_ref().and_then(|sockets| sockets.name_server) {
            names::ask(root, server.ip()).at(Layer::View, || format!("naming the name server {}", server.ip()))?;
        }

        mount_workspace(scaffold, sources)?;
        for folder in &command.call.hidden {
            hide(root, folder)?;
        }
        // Mounts the new root over the old one and unmounts the old one: pivot_root(2), "." twice.
        fchdir(root)
            .and_then(|()| pivot_root(".", "."))
            .and_then(|()| unmount(".", UnmountFlags::DETACH))
            .and_then(|()| chdir("/"))
            .at(Layer::View, || "unmounting the old root".to_owned())?;
        sys::mount_setattr(root, Reach::One, libc::MOUNT_ATTR_RDONLY, None)
            .at(Layer::View, || "making the root read-only".to_owned())
    }
}

const NOSUID_NODEV: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// Creates a detached file system. An option without a value is a flag.
fn fresh(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        match *value {
            "" => fsconfig_set_flag(context.as_fd(), *key)?,
            value => fsconfig_set_string(context.as_fd(), *key, value)?,
        }
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn populate_root<'a>(root: BorrowedFd<'_>, sources: &'a BaseSources) -> std::io::Result<()> {
    for folder in FOLDERS {
        mkdirat(root, folder, Mode::from(0o755))?;
    }
    for (name, text) in ETC {
        write(root, name, text.as_bytes())?;
    }
    let passwd = format!(
        "root:x:0:0::/:/usr/sbin/nologin\nbelay:x:{INNER_ID}:{INNER_ID}::{HOME}:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
    );
    write(root, "etc/passwd", passwd.as_bytes())?;
    // The groups that archives and builds refer to.
    write(root, "etc/group", format!("root:x:0:\ntty:x:5:\nbelay:x:{INNER_ID}:\nnogroup:x:65534:\n").as_bytes())?;
    let mut made: BTreeSet<&Path> = FOLDERS.iter().map(Path::new).chain([Path::new("")]).collect();
    let mut below_made = |place: &'a Path| -> Result<&'a Path, Errno> {
        let inside = place.strip_prefix("/").unwrap_or(place);
        if made.insert(inside.parent().unwrap_or(inside)) {
            drop(folders_above(root, inside)?);
        }
        Ok(inside)
    };
    for (place, contents) in &sources.copies {
        write(root, below_made(place)?, contents)?;
    }
    for (place, target) in &sources.links {
        symlinkat(target, root, below_made(place)?)?;
    }
    for (name, target) in LINKS {
        symlinkat(target, root, name)?;
    }
    Ok(())
}

fn write(root: BorrowedFd<'_>, name: impl rustix::path::Arg, contents: &[u8]) -> std::io::Result<()> {
    let file = openat(root, name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from(0o644))?;
    std::fs::File::from(file).write_all(contents)
}

/// A tmpfs of this size.
fn in_memory(size: WriteBudget, mode: &str) -> Result<OwnedFd, Errno> {
    let (bytes, inodes) = (size.bytes.to_string(), size.inodes.to_string());
    fresh("tmpfs", &[("size", &bytes), ("nr_inodes", &inodes), ("mode", mode)], NOSUID_NODEV)
}

/// A detached clone of a directory on the scaffold.
fn part_of(scaffold: BorrowedFd<'_>, folder: &Path) -> Result<OwnedFd, Errno> {
    open_tree(scaffold, folder, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

/// Mounts `/tmp` and HOME. The directories for the overlays of [`MountKind::Scratch`] are beside HOME on the scaffold afterwards.
fn mount_scratch(
    scaffold: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    armed: &Armed,
    sources: &CallSources,
) -> Result<(), Errno> {
    mkdirat(scaffold, SCRATCH, Mode::RWXU)?;
    let home = Path::new(SCRATCH).join(scratch::HOME);
    match &sources.scratch {
        Some(folder) => {
            attach(folder.as_fd(), scaffold, SCRATCH)?;
            attach(part_of(scaffold, &Path::new(SCRATCH).join(scratch::TMP))?.as_fd(), root, "tmp")?;
        }
        None => {
            attach(in_memory(armed.scratch.tmp, "1777")?.as_fd(), root, "tmp")?;
            mkdirat(scaffold, &home, Mode::RWXU)?;
            attach(in_memory(armed.scratch.home, "700")?.as_fd(), scaffold, &home)?;
        }
    }
    let user = home.join("user");
    mkdirat(scaffold, &user, Mode::RWXU)?;
    attach(part_of(scaffold, &user)?.as_fd(), root, HOME.trim_start_matches('/'))
}

/// Mounts the workspace.
fn mount_workspace(scaffold: BorrowedFd<'_>, sources: &CallSources) -> Result<(), Failure> {
    let (lower, staging) = (&sources.lower, &sources.staging);
    // Short names relative to the scaffold: all options of a mount have to fit on one page.
    let names: Vec<String> = (0..lower.len()).map(|n| n.to_string()).collect();
    let mut options = format!("lowerdir={},userxattr", names.join(":"));
    if let (1, None) = (lower.len(), staging) {
        // Without an upper directory there have to be two lower ones.
        options = format!("lowerdir=0:{EMPTY},userxattr");
    }
    if staging.is_some() {
        // Volatile: otherwise the end of each command would wait for a sync of the upper file system.
        options.push_str(&format!(",upperdir={STAGING}/{UPPER},workdir={STAGING}/{WORK},volatile"));
    }
    let options = CString::new(options).expect("made of names without NUL");
    let overlay = || -> Result<(), Errno> {
        fchdir(scaffold)?;
        for (name, layer) in names.iter().zip(lower) {
            mkdirat(scaffold, name, Mode::RWXU)?;
            attach(layer.as_fd(), scaffold, name)?;
        }
        let place = Path::new(ROOT).join(WORKSPACE);
        mount("overlay", &place, "overlay", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
    };
    overlay().at(Layer::Workspace, || "mounting the overlay of the workspace".to_owned())
}

/// Covers a directory of the workspace with an empty read-only one.
fn hide(root: BorrowedFd<'_>, folder: &Path) -> Result<(), Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let found = openat(root, WORKSPACE, flags, Mode::empty())
        .and_then(|workspace| openat2(workspace, folder, flags, Mode::empty(), inside()));
    let covered = match found {
        // It was removed, or replaced by a file, since the runner checked. A link in its place is an error: the hidden content may be
        // behind it.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(error) => Err(error),
        Ok(place) => {
            fresh("tmpfs", &[("size", "4k"), ("mode", "755")], NOSUID_NODEV | MountAttrFlags::MOUNT_ATTR_RDONLY)
                .and_then(|empty| attach(empty.as_fd(), place.as_fd(), ""))
        }
    };
    covered.at(Layer::Workspace, || format!("hiding `{}` in the workspace", folder.display()))
}
