//! The command's file system: a tmpfs of ours as the root, with pieces of the host mounted in it.

use std::{
    ffi::CString,
    io::Write as _,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{AtFlags, CWD, Mode, OFlags, ResolveFlags, chmodat, mkdirat, openat, openat2, statat, symlinkat},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
        UnmountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, mount, mount_change,
        move_mount, open_tree, unmount,
    },
    process::{chdir, fchdir, pivot_root},
};

use crate::{
    HOME, INNER_ID, UPPER, WORK,
    budget::WriteBudget,
    layer::Layer,
    mounts::MountKind,
    order::{At as _, Command, Failure},
    scratch,
    sources::{Piece, Shown, Sources},
    sys::{self, Reach},
};

/// Where things stand until the new root is the root. It exists wherever there is anything to run, and may be covered: its own
/// contents have been taken before.
const SCAFFOLD: &str = "/usr";

/// The new root's place on the scaffold. Beside it stand the overlay's layers, which go away with the old root: taking each of them
/// down by itself would cost the kernel a grace period each.
const ROOT: &str = "root";

const WORKSPACE: &str = "workspace";

/// Where the scratch places stand on the scaffold, when they are on disk, and what HOME and the overlays share, when they are memory.
const SCRATCH: &str = "scratch";

/// Files of `/etc` that are generated: the host's would tell of its users and network.
const ETC: [(&str, &str); 5] = [
    // The host's own name resolves as well: Java and others look it up.
    ("etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 sandbox\n"),
    // No name is looked up beyond the file: there is nobody to ask, and so no program waits for an answer.
    ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
    ("etc/host.conf", "multi on\n"),
    (
        "etc/resolv.conf",
        "# The sandbox has no network beyond its own loopback interface.\noptions timeout:1 attempts:1\n",
    ),
    ("etc/hostname", "sandbox\n"),
];

/// Folders that are always there.
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

/// Builds the view and makes it the root of this mount namespace. What the host had mounted is gone afterwards.
pub(crate) fn build(sources: Sources, command: &Command) -> Result<(), Failure> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .at(Layer::Namespaces, || "keeping our mounts to ourselves".to_owned())?;
    let scaffold = fresh("tmpfs", &[("size", "64k"), ("mode", "700")], WALLED)
        .and_then(|scaffold| attach(scaffold.as_fd(), CWD, SCAFFOLD).map(|()| scaffold))
        .at(Layer::View, || "making a scaffold".to_owned())?;
    let root = fresh("tmpfs", &[("size", "4m"), ("nr_inodes", "4096"), ("mode", "755")], WALLED)
        .and_then(|root| {
            mkdirat(&scaffold, ROOT, Mode::RWXU)?;
            attach(root.as_fd(), scaffold.as_fd(), ROOT).map(|()| root)
        })
        .at(Layer::View, || "making the root".to_owned())?;
    let root = root.as_fd();

    furnish(root, &sources).at(Layer::View, || "furnishing the root".to_owned())?;
    for piece in sources.pieces.iter().chain(&sources.devices) {
        show(root, piece).at(Layer::View, || format!("showing {}", piece.place.display()))?;
    }
    let proc = fresh("proc", &[], WALLED | MountAttrFlags::MOUNT_ATTR_NOEXEC);
    proc.and_then(|proc| attach(proc.as_fd(), root, "proc")).at(Layer::Proc, || "mounting /proc".to_owned())?;
    // Terminals of the command's own: the host's are in another instance.
    let terminals = [("newinstance", ""), ("ptmxmode", "666"), ("mode", "620"), ("max", "256")];
    fresh("devpts", &terminals, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)
        .and_then(|terminals| attach(terminals.as_fd(), root, "dev/pts"))
        .at(Layer::View, || "mounting /dev/pts".to_owned())?;
    in_memory(command.scratch.shm, "1777")
        .and_then(|shm| attach(shm.as_fd(), root, "dev/shm"))
        .at(Layer::View, || "mounting /dev/shm".to_owned())?;
    mount_scratch(scaffold.as_fd(), root, command, &sources).at(Layer::View, || "mounting /tmp and HOME".to_owned())?;
    for (n, shown) in sources.mounts.iter().enumerate() {
        mount_shown(scaffold.as_fd(), root, n, shown)
            .at(Layer::View, || format!("showing {}", shown.piece.place.display()))?;
    }

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

/// A new file system, mounted nowhere yet. An option without a value is a flag.
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

fn attach(mount: BorrowedFd<'_>, at: BorrowedFd<'_>, place: impl AsRef<Path>) -> Result<(), Errno> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if place.as_ref().as_os_str().is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    move_mount(mount, "", at, place.as_ref(), flags)
}

fn furnish(root: BorrowedFd<'_>, sources: &Sources) -> std::io::Result<()> {
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
    // The groups that archives and builds name.
    write(root, "etc/group", format!("root:x:0:\ntty:x:5:\nbelay:x:{INNER_ID}:\nnogroup:x:65534:\n").as_bytes())?;
    for (place, contents) in &sources.copies {
        let inside = place.strip_prefix("/").unwrap_or(place);
        drop(folders_above(root, inside)?);
        write(root, inside, contents)?;
    }
    for (place, target) in &sources.links {
        let inside = place.strip_prefix("/").unwrap_or(place);
        drop(folders_above(root, inside)?);
        symlinkat(target, root, inside)?;
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

/// No symbolic links and nothing outside: what a command left in a folder that outlives it must not choose what is covered.
fn inside() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Mounts a piece at its place.
fn show(root: BorrowedFd<'_>, piece: &Piece) -> Result<(), Errno> {
    let place = mount_point(root, piece.place.strip_prefix("/").unwrap_or(&piece.place), piece.folder)?;
    attach(piece.mount.as_fd(), place.as_fd(), "")
}

/// Something to mount upon, with the folders above it.
fn mount_point(root: BorrowedFd<'_>, place: &Path, folder: bool) -> Result<OwnedFd, Errno> {
    let above = folders_above(root, place)?;
    let name = place.file_name().ok_or(Errno::INVAL)?;
    match openat2(&above, name, PLACE, Mode::empty(), inside()) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    if folder {
        mkdirat(&above, name, Mode::from(0o755))?;
    } else {
        openat(&above, name, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from(0o644))?;
    }
    openat2(&above, name, PLACE, Mode::empty(), inside())
}

/// The folder that a place is in, made where it is missing.
fn folders_above(root: BorrowedFd<'_>, place: &Path) -> Result<OwnedFd, Errno> {
    let open = |at: BorrowedFd<'_>, path: &Path| openat2(at, path, PLACE | OFlags::DIRECTORY, Mode::empty(), inside());
    let above = place.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(".".as_ref());
    match open(root, above) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    let mut folder = open(root, ".".as_ref())?;
    for part in above {
        match mkdirat(&folder, part, Mode::from(0o755)) {
            // The one may be there already, in the other nothing can be made: the next line says what is wrong, if anything is.
            Err(Errno::EXIST | Errno::ROFS) => {}
            made => made?,
        }
        folder = open(folder.as_fd(), part.as_ref())?;
    }
    Ok(folder)
}

/// Memory that holds no more than this.
fn in_memory(size: WriteBudget, mode: &str) -> Result<OwnedFd, Errno> {
    let (bytes, inodes) = (size.bytes.to_string(), size.inodes.to_string());
    fresh("tmpfs", &[("size", &bytes), ("nr_inodes", &inodes), ("mode", mode)], WALLED)
}

/// A folder below something mounted on the scaffold, as a mount of its own.
fn part_of(scaffold: BorrowedFd<'_>, folder: &Path) -> Result<OwnedFd, Errno> {
    open_tree(scaffold, folder, OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC)
}

/// `/tmp` and HOME; what the overlays of [`MountKind::Scratch`] need stands beside HOME on the scaffold afterwards.
fn mount_scratch(
    scaffold: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    command: &Command,
    sources: &Sources,
) -> Result<(), Errno> {
    mkdirat(scaffold, SCRATCH, Mode::RWXU)?;
    let home = Path::new(SCRATCH).join(scratch::HOME);
    match &sources.scratch {
        Some(folder) => {
            attach(folder.as_fd(), scaffold, SCRATCH)?;
            attach(part_of(scaffold, &Path::new(SCRATCH).join(scratch::TMP))?.as_fd(), root, "tmp")?;
        }
        None => {
            attach(in_memory(command.scratch.tmp, "1777")?.as_fd(), root, "tmp")?;
            mkdirat(scaffold, &home, Mode::RWXU)?;
            attach(in_memory(command.scratch.home, "700")?.as_fd(), scaffold, &home)?;
        }
    }
    let user = home.join("user");
    mkdirat(scaffold, &user, Mode::RWXU)?;
    attach(part_of(scaffold, &user)?.as_fd(), root, HOME.trim_start_matches('/'))
}

/// The operator's mount number `n`.
fn mount_shown(scaffold: BorrowedFd<'_>, root: BorrowedFd<'_>, n: usize, shown: &Shown) -> Result<(), Errno> {
    if shown.kind != MountKind::Scratch {
        return show(root, &shown.piece);
    }
    let (lower, changes) = (format!("l{n}"), Path::new(SCRATCH).join(scratch::HOME).join(n.to_string()));
    mkdirat(scaffold, &lower, Mode::RWXU)?;
    attach(shown.piece.mount.as_fd(), scaffold, &lower)?;
    mkdirat(scaffold, &changes, Mode::RWXU)?;
    // The upper folder stands for the source itself.
    let mode = Mode::from_raw_mode(statat(scaffold, &lower, AtFlags::empty())?.st_mode & 0o777);
    for (name, mode) in [(UPPER, mode), (WORK, Mode::RWXU)] {
        mkdirat(scaffold, changes.join(name), Mode::RWXU)?;
        chmodat(scaffold, changes.join(name), mode, AtFlags::empty())?;
    }
    let target = shown.piece.place.strip_prefix("/").unwrap_or(&shown.piece.place);
    drop(mount_point(root, target, true)?);
    let changes = changes.display();
    let options = format!("lowerdir={lower},userxattr,upperdir={changes}/{UPPER},workdir={changes}/{WORK},volatile");
    fchdir(scaffold)?;
    let options = CString::new(options).expect("made of names without NUL");
    let place = Path::new(ROOT).join(target);
    mount("overlay", &place, "overlay", MountFlags::NOSUID | MountFlags::NODEV, options.as_c_str())
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
    let found = openat(root, WORKSPACE, flags, Mode::empty())
        .and_then(|workspace| openat2(workspace, folder, flags, Mode::empty(), inside()));
    let covered = match found {
        // It was removed, or replaced by a file, since the runner looked. A link in its place is refused: what it hid may be behind it.
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
        Err(error) => Err(error),
        Ok(place) => fresh("tmpfs", &[("size", "4k"), ("mode", "755")], WALLED | MountAttrFlags::MOUNT_ATTR_RDONLY)
            .and_then(|empty| attach(empty.as_fd(), place.as_fd(), "")),
    };
    covered.at(Layer::Workspace, || format!("hiding `{}` in the workspace", folder.display()))
}
