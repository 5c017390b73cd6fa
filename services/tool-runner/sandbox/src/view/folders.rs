//! The directories of the host in the view of a command, besides the system: each is the lower layer of an overlay.
//!
//! A process can connect to a unix socket below a read-only mount, because that changes no file. It cannot connect to one in a lower layer: the
//! socket file in the overlay is another inode than the one that the listener is bound to.

use std::{
    ffi::CString,
    fs, io,
    os::{
        fd::{AsFd as _, BorrowedFd},
        unix::{ffi::OsStringExt as _, fs::FileTypeExt as _},
    },
    path::{Path, PathBuf},
};

use belay_defects::{Defect, is_planted};
use rustix::{
    fs::{AtFlags, Mode, chmodat, mkdirat, statat},
    io::Errno,
    mount::{MountFlags, OpenTreeFlags, mount, open_tree},
    process::fchdir,
};

use super::places::{EMPTY, ROOT, SCAFFOLD, SCRATCH, STAGING, attach, mount_point, show};
use crate::{
    UPPER, WORK,
    layer::Layer,
    mounts::MountKind,
    protocol::{Context as _, Failure},
    scratch,
    sources::ConfiguredMount,
};

/// How many entries of a directory are searched for sockets where no overlay can be mounted.
const MAX_SEARCHED: usize = 200_000;

/// File systems that expose the running system. They are not visible below a directory that is.
const OF_THE_SYSTEM: [&str; 14] = [
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "devtmpfs",
    "mqueue",
    "proc",
    "securityfs",
    "sysfs",
    "tracefs",
];

/// Mounts the directories and files in this order; as many as `mounted` have been before.
pub(super) fn mount_all(
    scaffold: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    mounted: usize,
    mounts: &[ConfiguredMount],
) -> Result<(), Failure> {
    if mounts.is_empty() {
        return Ok(());
    }
    let mounting = |shown: &ConfiguredMount| format!("mounting {}", shown.piece.place.display());
    let is_plain = |kind| kind == MountKind::ReadOnly && is_planted(Defect::HostSocketsReached);
    let is_layer = |shown: &ConfiguredMount| shown.piece.folder && !is_plain(shown.kind);
    let mounts = || mounts.iter().enumerate().map(|(n, shown)| (mounted + n, shown));
    for (n, shown) in mounts().filter(|(_, shown)| is_layer(shown)) {
        let lower = lower(n);
        mkdirat(scaffold, &lower, Mode::RWXU)
            .and_then(|()| attach(shown.piece.mount.as_fd(), scaffold, &lower))
            .at(Layer::View, || mounting(shown))?;
    }
    // Only a read-only one shows what is mounted below it.
    let below = match mounts().any(|(_, shown)| is_layer(shown) && shown.kind == MountKind::ReadOnly) {
        true => mounts_below().at(Layer::View, || "listing the mounts".to_owned())?,
        false => Vec::new(),
    };
    for (n, shown) in mounts() {
        let doing = || mounting(shown);
        match shown.kind {
            _ if !is_layer(shown) => show(root, &shown.piece).at(Layer::View, doing)?,
            MountKind::Scratch | MountKind::Staged => private(scaffold, root, n, shown).at(Layer::View, doing)?,
            MountKind::ReadOnly => {
                let place = shown.piece.place.strip_prefix("/").unwrap_or(&shown.piece.place);
                drop(mount_point(root, place, true).at(Layer::View, doing)?);
                read_only(scaffold, root, &lower(n), place)?;
                let own = below.iter().filter(|(of, _)| *of == lower(n));
                for (k, (of, inside)) in own.enumerate() {
                    mount_below(scaffold, root, &format!("{of}-{k}"), (of.as_ref(), inside), place)?;
                }
            }
        }
    }
    Ok(())
}

/// The lower layer of a mount, on the scaffold.
fn lower(n: usize) -> String {
    format!("l{n}")
}

/// The mounts below the lower layers: the layer, and the path in it. Parents come before their children.
fn mounts_below() -> io::Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for line in fs::read("/proc/self/mountinfo")?.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b' ');
        let Some(place) = fields.nth(4).map(unescaped) else { continue };
        let Ok(below) = place.strip_prefix(SCAFFOLD) else { continue };
        let mut names = below.components();
        let (Some(layer), inside) = (names.next(), names.as_path()) else { continue };
        let layer = layer.as_os_str().to_string_lossy();
        let is_layer = layer.strip_prefix('l').is_some_and(|n| n.parse::<usize>().is_ok());
        let kind = fields.skip_while(|field| *field != b"-").nth(1).unwrap_or_default();
        if is_layer && !inside.as_os_str().is_empty() && !OF_THE_SYSTEM.iter().any(|name| name.as_bytes() == kind) {
            found.push((layer.into_owned(), inside.to_owned()));
        }
    }
    Ok(found)
}

/// A path of `mountinfo`, in which some bytes are octal.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    std::ffi::OsString::from_vec(bytes).into()
}

/// Mounts a directory or file that is mounted below a lower layer, at its place in the view.
fn mount_below(
    scaffold: BorrowedFd<'_>,
    root: BorrowedFd<'_>,
    name: &str,
    (layer, inside): (&Path, &Path),
    place: &Path,
) -> Result<(), Failure> {
    let (from, place) = (layer.join(inside), place.join(inside));
    let doing = || format!("mounting /{}", place.display());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    let found = statat(scaffold, &from, AtFlags::SYMLINK_NOFOLLOW).at(Layer::View, doing)?;
    let clone = open_tree(scaffold, &from, flags).at(Layer::View, doing)?;
    match rustix::fs::FileType::from_raw_mode(found.st_mode) {
        rustix::fs::FileType::Directory => {
            mkdirat(scaffold, name, Mode::RWXU)
                .and_then(|()| attach(clone.as_fd(), scaffold, name))
                .at(Layer::View, doing)?;
            read_only(scaffold, root, name, &place)
        }
        rustix::fs::FileType::RegularFile => {
            let at = mount_point(root, &place, false).at(Layer::View, doing)?;
            attach(clone.as_fd(), at.as_fd(), "").at(Layer::View, doing)
        }
        // A device, or a socket, which is what must not be reached.
        _ => Ok(()),
    }
}

/// Mounts a read-only overlay of a lower layer at this place, which exists.
fn read_only(scaffold: BorrowedFd<'_>, root: BorrowedFd<'_>, lower: &str, place: &Path) -> Result<(), Failure> {
    let doing = || format!("mounting /{}", place.display());
    fchdir(scaffold).at(Layer::View, doing)?;
    let options = CString::new(format!("lowerdir={lower}:{EMPTY},userxattr")).expect("made of names without NUL");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY;
    match mount("overlay", Path::new(ROOT).join(place), "overlay", flags, options.as_c_str()) {
        Ok(()) => Ok(()),
        // A file system that cannot be a layer, or an overlay of overlays already.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => {
            refuse_sockets(Path::new(lower), place)?;
            let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
            let at = mount_point(root, place, true).at(Layer::View, doing)?;
            open_tree(scaffold, lower, flags)
                .and_then(|clone| attach(clone.as_fd(), at.as_fd(), ""))
                .at(Layer::View, doing)
        }
        Err(error) => Err(error).at(Layer::View, doing),
    }
}

/// Refuses a directory with a socket in it.
fn refuse_sockets(lower: &Path, place: &Path) -> Result<(), Failure> {
    let refused = |what: String| {
        let problem = format!(
            "/{} {what}, and no overlay, which would keep commands from the sockets in it, can be mounted there",
            place.display()
        );
        Err(Failure::Spec("mounts".to_owned(), problem))
    };
    let mut searched = 0;
    let mut folders = vec![lower.to_owned()];
    while let Some(folder) = folders.pop() {
        // What cannot be read here cannot be by the command.
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            searched += 1;
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_socket() => {
                    let path = entry.path();
                    let inside = path.strip_prefix(lower).unwrap_or(&path);
                    return refused(format!("contains the socket {}", inside.display()));
                }
                _ => {}
            }
        }
        if searched > MAX_SEARCHED {
            return refused(format!("contains more than {MAX_SEARCHED} files"));
        }
    }
    Ok(())
}

/// Mounts a directory of the host below changes that are private to the command, or staged.
fn private(scaffold: BorrowedFd<'_>, root: BorrowedFd<'_>, n: usize, shown: &ConfiguredMount) -> Result<(), Errno> {
    let lower = lower(n);
    let changes = match &shown.changes {
        Some(changes) => Path::new(STAGING).join(changes),
        None => Path::new(SCRATCH).join(scratch::HOME).join(n.to_string()),
    };
    mkdirat(scaffold, &changes, Mode::RWXU)?;
    // The upper directory represents the source itself.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_mountinfo_is_read() {
        assert_eq!(unescaped(br"/usr/l0/a\040b\134c"), Path::new(r"/usr/l0/a b\c"));
        assert_eq!(unescaped(br"/a\09"), Path::new(r"/a\09"));
    }
}
