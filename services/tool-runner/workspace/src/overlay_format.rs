//! The format of changes in the upper directory of an overlay.
//!
//! The kernel under a command and the file tools in this process use the same format, that of a mount with `userxattr`: a deleted name is a
//! character device 0:0 (or, where none can be created, an empty file with an attribute); an opaque directory has `user.overlay.opaque=y`;
//! a copied-up entry has `user.overlay.origin`, where an empty value means an unknown origin.

use std::{
    ffi::OsStr,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{OFlags, fgetxattr, fgetxattr_query},
    io::Errno,
};

use crate::{
    disk::Disk,
    open::{DIRECTORY, open_entry},
    stat::Stat,
};

const OPAQUE: &str = "user.overlay.opaque";
const ORIGIN: &str = "user.overlay.origin";
const WHITEOUT: &str = "user.overlay.whiteout";

/// Attributes of mount options that are never used: with them the content of an entry is elsewhere.
const ELSEWHERE: [&str; 2] = ["user.overlay.redirect", "user.overlay.metacopy"];

/// Whether the entry marks its name as deleted.
pub(crate) fn is_whiteout(disk: &Disk, folder: impl AsFd, name: &OsStr, found: &Stat) -> Result<bool, Errno> {
    if found.is_file() && found.size == 0 {
        let (file, mode) = open_for_reading(disk, folder, name, found)?;
        let gone = has(&file, WHITEOUT)?;
        mode.map_or(Ok(()), |mode| disk.set_mode(&file, mode))?;
        return Ok(gone);
    }
    Ok(found.is_null_device)
}

/// Whether the directory is opaque. (`x` instead of `y` only announces whiteouts in it.)
pub(crate) fn is_opaque(folder: impl AsFd) -> Result<bool, Errno> {
    let mut value = [0; 1];
    match fgetxattr(folder, OPAQUE, &mut value[..]) {
        Ok(length) => Ok(value[..length] == *b"y"),
        Err(Errno::NODATA | Errno::NOTSUP | Errno::RANGE) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the entry was copied up.
pub(crate) fn was_copied_up(file: impl AsFd) -> Result<bool, Errno> {
    has(file, ORIGIN)
}

/// Whether the entry only refers to its content.
pub(crate) fn lies_elsewhere(file: impl AsFd) -> Result<bool, Errno> {
    Ok(has(&file, ELSEWHERE[0])? || has(file, ELSEWHERE[1])?)
}

pub(crate) fn mark_opaque(disk: &Disk, folder: impl AsFd) -> Result<(), Errno> {
    disk.set_attribute(folder, OPAQUE, b"y")
}

pub(crate) fn mark_copied_up(disk: &Disk, file: impl AsFd) -> Result<(), Errno> {
    disk.set_attribute(file, ORIGIN, b"")
}

fn has(file: impl AsFd, attribute: &str) -> Result<bool, Errno> {
    match fgetxattr_query(file, attribute) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens a file or directory of an upper directory, whatever its mode: a command may have made it unreadable. Also returns the mode to
/// restore, if it had to be changed.
pub(crate) fn open_for_reading(
    disk: &Disk,
    folder: impl AsFd,
    name: &OsStr,
    found: &Stat,
) -> Result<(OwnedFd, Option<u32>), Errno> {
    let (flags, rights) = if found.is_directory() {
        (DIRECTORY, 0o700)
    } else {
        (OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY, 0o400)
    };
    // Tries first: root can read anything, so the mode need not change.
    match open_entry(&folder, name, flags) {
        Ok(opened) if rustix::process::geteuid().is_root() || found.mode & rights == rights => Ok((opened, None)),
        Ok(_) | Err(Errno::ACCESS) => {
            disk.set_mode_of(&folder, name, found.mode | rights)?;
            Ok((open_entry(folder, name, flags)?, Some(found.mode)))
        }
        Err(error) => Err(error),
    }
}
