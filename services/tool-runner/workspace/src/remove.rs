//! Removes a tree that a hostile command may have created.
//!
//! It can be deeper than the limits of file descriptors or stack, and its directories can deny listing. So grandchildren are moved up into
//! the directory being emptied before their parent is removed: nothing recurses, and two directories are open at a time.

use std::{
    ffi::{OsStr, OsString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{CWD, FlockOperation, Mode, OFlags, flock, fsync, openat},
    io::Errno,
};

use crate::{
    QuietSeam,
    disk::{Disk, Rename},
    open::{DIRECTORY, names, open_beneath, open_entry, stat_entry},
    open_error::OpenError,
    path::{OWN, RelPath},
};

/// Removes a workspace with everything in it, and returns when that is durable. Only for a directory that no person owns. Does nothing when there is
/// none; does not follow a symbolic link.
///
/// # Errors
///
/// [`OpenError::InUse`] when the workspace is open, here or in another process; otherwise an error of the file system.
pub fn remove_workspace(path: &Path) -> Result<(), OpenError> {
    let unreachable = |source: Errno| OpenError::Unreachable { path: path.to_owned(), source: source.into() };
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(OpenError::Root) };
    let parent = match openat(CWD, parent, DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(unreachable(errno)),
    };
    if stat_entry(&parent, name).map_err(unreachable)?.is_none() {
        return Ok(());
    }
    // Held until the directory is gone.
    let _lock =
        match open_beneath(&parent, &RelPath::root().join(name).join(OWN.as_ref()).join("lock".as_ref()), OFlags::RDWR)
        {
            Ok(lock) => match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { path: path.to_owned() }),
                _ => Some(lock),
            },
            // It was never opened, or an earlier removal was interrupted.
            Err(_) => None,
        };
    let disk = Disk::of(&parent, Arc::new(QuietSeam));
    remove_tree(&disk, &parent, name).map_err(unreachable)?;
    fsync(&parent).map_err(unreachable)
}

/// Removes the entry of this name, if there is one. Never follows a symbolic link.
pub(crate) fn remove_tree(disk: &Disk, folder: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    match stat_entry(&folder, name)? {
        None => Ok(()),
        Some(found) if found.is_directory() => {
            let top = open_writable(disk, folder.as_fd(), name)?;
            empty(disk, top.as_fd())?;
            disk.remove_directory(folder, name)
        }
        Some(_) => disk.unlink(folder, name),
    }
}

fn empty(disk: &Disk, top: BorrowedFd<'_>) -> Result<(), Errno> {
    let mut lifted = 0_u64;
    let mut free_name = || loop {
        let name = OsString::from(format!("lifted-{lifted}"));
        lifted += 1;
        if stat_entry(top, &name)?.is_none() {
            return Ok::<_, Errno>(name);
        }
    };
    loop {
        let children = names(top)?;
        if children.is_empty() {
            return Ok(());
        }
        for child in children {
            if !stat_entry(top, &child)?.is_some_and(|found| found.is_directory()) {
                disk.unlink(top, &child)?;
                continue;
            }
            let folder = open_writable(disk, top, &child)?;
            for grandchild in names(&folder)? {
                if stat_entry(&folder, &grandchild)?.is_some_and(|found| found.is_directory()) {
                    // Moving a directory needs write permission to it.
                    drop(open_writable(disk, folder.as_fd(), &grandchild)?);
                    disk.rename((&folder, &grandchild), (top, &free_name()?), Rename::New)?;
                } else {
                    disk.unlink(&folder, &grandchild)?;
                }
            }
            disk.remove_directory(top, &child)?;
        }
    }
}

/// Opens a directory after giving its owner all permissions.
pub(crate) fn open_writable(disk: &Disk, folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    if stat_entry(folder, name)?.is_some_and(|found| found.mode & 0o700 != 0o700) {
        disk.set_mode_of(folder, name, 0o700)?;
    }
    open_entry(folder, name, DIRECTORY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Workspace;
    use rustix::fs::mkdirat;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn a_workspace_is_removed_unless_it_is_open() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("workspace");
        fs::create_dir_all(path.join("deep/er")).unwrap();
        fs::write(path.join("deep/file"), "x").unwrap();
        let open = Workspace::open(&path, &[]).unwrap();
        assert!(matches!(remove_workspace(&path), Err(OpenError::InUse { .. })));
        assert!(path.join("deep/file").exists());
        drop(open);
        remove_workspace(&path).unwrap();
        assert!(!path.exists() && place.path().exists());
        remove_workspace(&path).expect("there is none");
        remove_workspace(&place.path().join("no/parent")).expect("there is none");
        fs::create_dir(place.path().join("kept")).unwrap();
        fs::write(place.path().join("kept/file"), "x").unwrap();
        symlink(place.path().join("kept"), &path).unwrap();
        remove_workspace(&path).unwrap();
        assert!(!path.is_symlink() && place.path().join("kept/file").exists(), "the link goes, its target stays");
    }

    /// Deeper than the limit of open files, with directories that deny listing and a link to elsewhere.
    #[test]
    fn any_tree_is_removed_and_nothing_else() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("kept")).unwrap();
        fs::write(place.path().join("kept/file"), "x").unwrap();
        let root = OwnedFd::from(fs::File::open(place.path()).unwrap());
        mkdirat(&root, "tree", Mode::RWXU).unwrap();
        let mut at = open_entry(&root, OsStr::new("tree"), DIRECTORY).unwrap();
        symlink(place.path().join("kept"), place.path().join("tree/link")).unwrap();
        fs::write(place.path().join("tree/lifted-0"), "in the way").unwrap();
        let disk = Disk::of(&root, Arc::new(QuietSeam));
        for depth in 0..1500 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            let next = open_entry(&at, OsStr::new("d"), DIRECTORY).unwrap();
            if depth % 100 == 7 {
                disk.set_mode(&at, 0).unwrap();
            }
            at = next;
        }
        remove_tree(&disk, &root, OsStr::new("tree")).unwrap();
        remove_tree(&disk, &root, OsStr::new("never-was")).unwrap();
        assert_eq!(names(&root).unwrap(), ["kept"]);
        assert!(place.path().join("kept/file").exists());
    }
}
