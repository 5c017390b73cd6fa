//! Extended attributes: access lists, labels, and what people note.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
};

use rustix::{
    fs::{fgetxattr, fgetxattr_query, flistxattr, flistxattr_query},
    io::Errno,
};

use crate::disk::Disk;

/// Gives a file the attributes of another one, except what the overlay needs and what gives rights to programs.
pub(crate) fn copy_attributes(disk: &Disk, from: &OwnedFd, to: &OwnedFd) -> Result<(), Errno> {
    for name in attributes(from.as_fd())? {
        if name.as_bytes().starts_with(b"user.overlay.") || name.as_bytes() == b"security.capability" {
            continue;
        }
        let Some(value) = value(Some(from.as_fd()), &name)? else { continue };
        match disk.set_attribute(to, &name, &value) {
            // The security module labels every new file.
            Err(Errno::ACCESS | Errno::PERM | Errno::NOTSUP) if name.as_bytes().starts_with(b"security.") => {}
            set => set?,
        }
    }
    Ok(())
}

/// The names of the extended attributes of a file or directory.
pub(crate) fn attributes(file: BorrowedFd<'_>) -> Result<Vec<OsString>, Errno> {
    let mut list = match flistxattr_query(file) {
        Err(Errno::NOTSUP) => return Ok(Vec::new()),
        length => vec![0_u8; length?],
    };
    let length = if list.is_empty() { 0 } else { flistxattr(file, &mut list[..])? };
    let names = list[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty());
    Ok(names.map(|name| OsStr::from_bytes(name).to_owned()).collect())
}

/// The value of an extended attribute; `None` when there is no file, or it has no such attribute.
pub(crate) fn value(file: Option<BorrowedFd<'_>>, name: &OsStr) -> Result<Option<Vec<u8>>, Errno> {
    let Some(file) = file else {
        return Ok(None);
    };
    let mut value = match fgetxattr_query(file, name) {
        Err(Errno::NODATA | Errno::NOTSUP) => return Ok(None),
        length => vec![0_u8; length?],
    };
    let length = if value.is_empty() { 0 } else { fgetxattr(file, name, &mut value[..])? };
    value.truncate(length);
    Ok(Some(value))
}
