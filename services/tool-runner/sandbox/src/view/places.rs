//! Places in the view: where it is staged, and how a mount gets to its path in it.

use std::{
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags, mkdirat, openat, openat2},
    io::Errno,
    mount::{MoveMountFlags, move_mount},
};

use crate::sources::HostMount;

/// Where mounts are staged until the new root becomes the root. The directory exists wherever commands can run, and may be covered: its own
/// content was cloned before.
pub(super) const SCAFFOLD: &str = "/usr";

/// The new root on the scaffold. The layers of the overlay are beside it and are removed with the old root: unmounting each separately
/// would cost a kernel grace period each.
pub(super) const ROOT: &str = "root";

/// The scratch places on the scaffold if they are on disk; else the tmpfs that HOME and the overlays share.
pub(super) const SCRATCH: &str = "scratch";

/// The staging directory of the call, on the scaffold.
pub(super) const STAGING: &str = "s";

/// An empty directory on the scaffold: the second lower directory of overlays that have no upper one.
pub(super) const EMPTY: &str = "empty";

pub(super) fn attach(mount: BorrowedFd<'_>, at: BorrowedFd<'_>, place: impl AsRef<Path>) -> Result<(), Errno> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if place.as_ref().as_os_str().is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    move_mount(mount, "", at, place.as_ref(), flags)
}

/// No symbolic links, and nothing outside: what a command left in a persistent directory must not choose what is covered.
pub(super) fn inside() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS
}

pub(super) const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// Attaches a mount at its path.
pub(super) fn show(root: BorrowedFd<'_>, piece: &HostMount) -> Result<(), Errno> {
    let place = mount_point(root, piece.place.strip_prefix("/").unwrap_or(&piece.place), piece.folder)?;
    attach(piece.mount.as_fd(), place.as_fd(), "")
}

/// A mount point, created with its parents if missing.
pub(super) fn mount_point(root: BorrowedFd<'_>, place: &Path, folder: bool) -> Result<OwnedFd, Errno> {
    let above = folders_above(root, place)?;
    let name = place.file_name().ok_or(Errno::INVAL)?;
    let made = match folder {
        true => mkdirat(&above, name, Mode::from(0o755)),
        false => {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&above, name, flags, Mode::from(0o644)).map(drop)
        }
    };
    if let Err(error) = made
        && error != Errno::EXIST
    {
        return Err(error);
    }
    openat2(&above, name, PLACE, Mode::empty(), inside())
}

/// The parent directory of a path, created if missing.
pub(super) fn folders_above(root: BorrowedFd<'_>, place: &Path) -> Result<OwnedFd, Errno> {
    let open = |at: BorrowedFd<'_>, path: &Path| openat2(at, path, PLACE | OFlags::DIRECTORY, Mode::empty(), inside());
    let above = place.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(".".as_ref());
    match open(root, above) {
        Err(Errno::NOENT) => {}
        found => return found,
    }
    let mut folder = open(root, ".".as_ref())?;
    for part in above {
        match mkdirat(&folder, part, Mode::from(0o755)) {
            // It may exist already, or the mount may be read-only: opening it below reports an error if there is one.
            Err(Errno::EXIST | Errno::ROFS) => {}
            made => made?,
        }
        folder = open(folder.as_fd(), part.as_ref())?;
    }
    Ok(folder)
}
