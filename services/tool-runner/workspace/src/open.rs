//! Opens files beneath a directory, and nowhere else.
//!
//! Each is one call to `openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)`: the kernel rejects paths that leave the directory
//! or pass a symbolic link, without a race. Links that a *reader* may follow are resolved in the view first, to a path without any.

use std::{
    ffi::OsStr,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags, ResolveFlags, fstat, openat, openat2, statat},
    io::Errno,
};

use crate::{path::RelPath, stat::Stat};

/// Flags for a directory whose entries are read or changed.
pub(crate) const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

/// Opens `path` beneath `folder`, following no symbolic link. `flags` gain `O_CLOEXEC` and `O_NOFOLLOW`.
pub(crate) fn open_beneath(folder: impl AsFd, path: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let name = if path.is_root() { OsStr::new(".") } else { path.as_ref().as_os_str() };
    match openat2(&folder, name, flags, Mode::empty(), resolve) {
        // An old kernel, gVisor, or an old container seccomp profile.
        Err(Errno::NOSYS | Errno::PERM) => walk_beneath(folder.as_fd(), path, flags),
        opened => opened,
    }
}

/// The same without `openat2`: opens name by name, none of them a symbolic link.
fn walk_beneath(folder: BorrowedFd<'_>, path: &RelPath, flags: OFlags) -> Result<OwnedFd, Errno> {
    let step = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = openat(folder, ".", step, Mode::empty())?;
    let mut names = path.names();
    let last = names.next_back().unwrap_or(OsStr::new("."));
    for name in names {
        at = openat(&at, name, step, Mode::empty())?;
    }
    openat(&at, last, flags, Mode::empty())
}

/// Opens one entry of a directory. See [`open_beneath`].
pub(crate) fn open_entry(folder: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    open_beneath(folder, &RelPath::root().join(name), flags)
}

/// Opens a regular file in a directory for reading.
///
/// Opening a pipe without a writer would block, and opening a device may have effects, so the type is checked first, and again afterwards
/// in case the file was exchanged.
pub(crate) fn open_file(folder: impl AsFd, name: &OsStr) -> Result<(OwnedFd, Stat), NotAFile> {
    let found = stat_entry(&folder, name)?.ok_or(Errno::NOENT)?;
    if !found.is_file() {
        return Err(NotAFile::Other(found));
    }
    let file = open_entry(folder, name, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
    let opened = Stat::from(fstat(&file)?);
    if opened.is_file() { Ok((file, opened)) } else { Err(NotAFile::Other(opened)) }
}

/// Why no regular file was opened.
#[derive(Debug)]
pub(crate) enum NotAFile {
    /// It is something else.
    Other(Stat),
    /// It cannot be opened.
    Unopened(Errno),
}

impl From<Errno> for NotAFile {
    fn from(error: Errno) -> Self {
        Self::Unopened(error)
    }
}

/// The status of an entry, without following a symbolic link.
pub(crate) fn stat_entry(folder: impl AsFd, name: &OsStr) -> Result<Option<Stat>, Errno> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found.into())),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names in a directory, sorted, so that results are deterministic.
pub(crate) fn names(folder: impl AsFd) -> Result<Vec<std::ffi::OsString>, Errno> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    type Method = fn(BorrowedFd<'_>, &RelPath, OFlags) -> Result<OwnedFd, Errno>;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    /// S2-FR-043, S2-X-12: with `openat2` and without.
    #[test]
    fn both_methods_open_the_same_and_follow_no_symbolic_link() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir_all(inside.path().join("d/e")).unwrap();
        fs::write(inside.path().join("d/e/f"), "x").unwrap();
        fs::write(outside.path().join("f"), "secret").unwrap();
        symlink(outside.path(), inside.path().join("out")).unwrap();
        symlink("d", inside.path().join("in")).unwrap();
        symlink("f", inside.path().join("d/e/link")).unwrap();
        let root = fs::File::open(inside.path()).unwrap();
        let methods: [Method; 2] = [
            |at, path, flags| open_beneath(at, path, flags),
            |at, path, flags| walk_beneath(at, path, flags | OFlags::CLOEXEC | OFlags::NOFOLLOW),
        ];
        for method in methods {
            let open = |text: &str| method(root.as_fd(), &path(text), OFlags::RDONLY).map(drop);
            assert_eq!((open("d/e/f"), open(".")), (Ok(()), Ok(())));
            for linked in ["out/f", "in/e/f", "d/e/link", "out"] {
                let refused = open(linked).expect_err(linked);
                assert!(matches!(refused, Errno::LOOP | Errno::NOTDIR), "{linked}: {refused}");
            }
            assert_eq!(open("d/none"), Err(Errno::NOENT));
        }
    }

    /// S2-FR-039: opening a named pipe without a writer for reading would block.
    #[test]
    fn only_regular_files_are_opened_without_blocking() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::File::open(folder.path()).unwrap();
        rustix::fs::mkfifoat(&root, "pipe", Mode::RWXU).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("socket")).unwrap();
        symlink("pipe", folder.path().join("link")).unwrap();
        for name in ["pipe", "socket", "link", "."] {
            let refused = open_file(&root, OsStr::new(name)).map(|_| ()).expect_err(name);
            assert!(matches!(refused, NotAFile::Other(_)), "{name}: {refused:?}");
        }
        let missing = open_file(&root, OsStr::new("none")).map(|_| ()).unwrap_err();
        assert!(matches!(missing, NotAFile::Unopened(Errno::NOENT)));
    }
}
