//! The command's file system: a tmpfs of ours as the root, with pieces of the host mounted in it.

use std::{
    ffi::CString,
    io::Write as _,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{CWD, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, symlinkat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, UnmountFlags,
        fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount, mount_change, move_mount, unmount,
    },
    process::{chdir, fchdir, pivot_root},
};

use crate::{
    INNER_ID, UPPER, WORK,
    layer::Layer,
    order::{At as _, Command, Failure},
    sources::{Piece, Sources},
    sys::{self, Reach},
};

/// Where things stand until the new root is the root. It exists wherever there is anything to run, and may be covered: its own
/// contents have been taken before.
const SCAFFOLD: &str = "/usr";

/// The new root's place on the scaffold. Beside it stand the overlay's layers, which go away with the old root: taking each of them
/// down by itself would cost the kernel a grace period each.
const ROOT: &str = "root";

const WORKSPACE: &str = "workspace";

/// Files of `/etc` that are ours: the host's would tell of its users and network.
const ETC: [(&str, &str); 4] = [
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/resolv.conf", ""),
    ("etc/hostname", "sandbox\n"),
];

const DEVICE_LINKS: [(&str, &str); 4] = [
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
];

/// Builds the view and makes it the root of this mount namespace. What the host had mounted is gone afterwards.
pub(crate) fn build(sources: Sources, command: &Command) -> Result<(), Failure> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at(Layer::Namespaces, || "keeping our mounts to ourselves".to_owned())?;
    let scaffold = fresh("tmpfs", &[("size", "64k"), ("mode", "700")], WALLED)
        .and_then(|scaffold| attach(scaffold.as_fd(), CWD, SCAFFOLD).map(|()| scaffold))
        .at(Layer::View, || "making a scaffold".to_owned())?;
    let root = fresh("tmpfs", &[("size", "1m"), ("nr_inodes", "512"), ("mode", "755")], WALLED)
        .and_then(|root| {
            mkdirat(&scaffold, ROOT, Mode::RWXU)?;
            attach(root.as_fd(), scaffold.as_fd(), ROOT).map(|()| root)
        })
        .at(Layer::View, || "making the root".to_owned())?;
    let root = root.as_fd();

    furnish(root, &sources).at(Layer::View, || "furnishing the root".to_owned())?;
    for Piece { place, mount, folder } in sources.pieces.iter().chain(&sources.devices) {
        let inside = place.strip_prefix("/").unwrap_or(place);
        mount_point(root, inside, *folder)
            .and_then(|()| attach(mount.as_fd(), root, inside))
            .at(Layer::View, || format!("showing {}", place.display()))?;
    }
    let proc = fresh("proc", &[], WALLED | MountAttrFlags::MOUNT_ATTR_NOEXEC);
    proc.and_then(|proc| attach(proc.as_fd(), root, "proc")).at(Layer::Proc, || "mounting /proc".to_owned())?;
    let size = command.limits.tmp_bytes.to_string();
    let tmp = fresh("tmpfs", &[("size", &size), ("mode", "700")], WALLED);
    tmp.and_then(|tmp| {
        attach(tmp.as_fd(), root, "tmp")?;
        mkdirat(tmp, "home", Mode::RWXU)
    })
    .at(Layer::View, || "mounting /tmp".to_owned())?;

    mount_workspace(scaffold.as_fd(), root, &sources)?;
    for folder in &command.hidden {
        hide(root, folder)?;
    }
    // The new root on top of the old one, then the old one away from below it: pivot_root(2), "." twice.
    fchdir(root)
        .and_then(|()| pivot_root(".", "."))
        .and_then(|()| unmount(".", UnmountFlags::DETACH))
        .and_then(|()| chdir("/"))
        .at(Layer::View, || "leaving the host's root".to_owned())?;
    sys::mount_setattr(root, Reach::One, libc::MOUNT_ATTR_RDONLY, None)
        .at(Layer::View, || "closing the root".to_owned())
}

const WALLED: MountAttrFlags = MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV);

/// A new file system, mounted nowhere yet.
fn fresh(kind: &str, options: &[(&str, &str)], attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        fsconfig_set_string(context.as_fd(), *key, *value)?;
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn attach(mount: BorrowedFd<'_>, at: BorrowedFd<'_>, place: impl AsRef<Path>) -> Result<(), Errno> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if place.as_ref().as_os_str().is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    move_mount(mount, "", at, place.as_ref(), flags)
}

fn furnish(root: BorrowedFd<'_>, sources: &Sources) -> std::io::Result<()> {
    for folder in ["dev", "etc", "proc", "tmp", WORKSPACE] {
        mkdirat(root, folder, Mode::from(0o755))?;
    }
    for (name, text) in ETC {
        write(root, name, text)?;
    }
    let passwd = format!(
        "root:x:0:0::/:/usr/sbin/nologin\nbelay:x:{INNER_ID}:{INNER_ID}::/tmp/home:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n"
    );
    write(root, "etc/passwd", &passwd)?;
    write(root, "etc/group", &format!("root:x:0:\nbelay:x:{INNER_ID}:\nnogroup:x:65534:\n"))?;
    for (name, target) in &sources.links {
        symlinkat(target, root, name.trim_start_matches('/'))?;
    }
    for (name, target) in DEVICE_LINKS {
        symlinkat(target, root, name)?;
    }
    Ok(())
}

fn write(root: BorrowedFd<'_>, name: &str, text: &str) -> std::io::Result<()> {
    let file = openat(root, name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from(0o644))?;
    std::fs::File::from(file).write_all(text.as_bytes())
}

/// Something to mount upon, with the folders above it.
fn mount_point(root: BorrowedFd<'_>, place: &Path, folder: bool) -> Result<(), Errno> {
    let mut so_far = PathBuf::new();
    for part in place.parent().into_iter().flatten() {
        so_far.push(part);
        existing_is_fine(mkdirat(root, &so_far, Mode::from(0o755)))?;
    }
    if folder {
        existing_is_fine(mkdirat(root, place, Mode::from(0o755)))
    } else {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(root, place, flags, Mode::from(0o644)).map(drop)
    }
}

fn existing_is_fine(made: Result<(), Errno>) -> Result<(), Errno> {
    match made {
        Err(Errno::EXIST) => Ok(()),
        made => made,
    }
}

/// The workspace at its place.
fn mount_workspace(scaffold: BorrowedFd<'_>, root: BorrowedFd<'_>, sources: &Sources) -> Result<(), Failure> {
    let (lower, staging) = (&sources.lower, &sources.staging);
    if let ([only], None) = (&lower[..], staging) {
        return attach(only.as_fd(), root, WORKSPACE).at(Layer::Workspace, || "showing the workspace".to_owned());
    }
    // Short names, relative to the scaffold: all options of a mount have to fit on one page.
    let mut names: Vec<String> = (0..lower.len()).map(|n| n.to_string()).collect();
    let mut options = format!("lowerdir={},userxattr", names.join(":"));
    if staging.is_some() {
        // Volatile: without it the end of each command would wait for the upper file system to reach the disk.
        options.push_str(&format!(",upperdir=s/{UPPER},workdir=s/{WORK},volatile"));
        names.push("s".to_owned());
    }
    let options = CString::new(options).expect("made of names without NUL");
    let overlay = || -> Result<(), Errno> {
        fchdir(scaffold)?;
        for (name, layer) in names.iter().zip(lower.iter().chain(staging)) {
            mkdirat(scaffold, name, Mode::RWXU)?;
            attach(layer.as_fd(), scaffold, name)?;
        }
        let place = Path::new(ROOT).join(WORKSPACE);
        mount("overlay", &place, "overlay", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
    };
    overlay().at(Layer::Workspace, || "mounting the overlay of the workspace".to_owned())
}

/// Covers a folder of the workspace with an empty one that cannot be written.
fn hide(root: BorrowedFd<'_>, folder: &Path) -> Result<(), Failure> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    // No symbolic links: the workspace's contents must not choose what is covered.
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let found = openat(root, WORKSPACE, flags, Mode::empty())
        .and_then(|workspace| openat2(workspace, folder, flags, Mode::empty(), inside));
    let covered = match found {
        Err(Errno::NOENT) => return Ok(()),
        Err(error) => Err(error),
        Ok(place) => fresh("tmpfs", &[("size", "4k"), ("mode", "755")], WALLED | MountAttrFlags::MOUNT_ATTR_RDONLY)
            .and_then(|empty| attach(empty.as_fd(), place.as_fd(), "")),
    };
    covered.at(Layer::Workspace, || format!("hiding `{}` in the workspace", folder.display()))
}
