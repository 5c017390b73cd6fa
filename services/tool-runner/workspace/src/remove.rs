//! Removing a tree that a hostile command may have made.
//!
//! It can be deeper than there are file descriptors or stack, and its folders can forbid their own listing. So grandchildren are
//! lifted up to the folder that is being emptied before their parent is removed: nothing recurses, and two folders are open at a time.

use std::{
    ffi::{OsStr, OsString},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::io::Errno;

use crate::{
    disk::{Disk, Rename},
    open::{FOLDER, names, open_entry, stat_entry},
};

/// Removes what is there by this name, if anything is. Never follows a symbolic link.
pub(crate) fn remove_tree(disk: &Disk, folder: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    match stat_entry(&folder, name)? {
        None => Ok(()),
        Some(found) if found.is_directory() => {
            let top = unlocked(disk, folder.as_fd(), name)?;
            empty(disk, top.as_fd())?;
            disk.remove_folder(folder, name)
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
            let folder = unlocked(disk, top, &child)?;
            for grandchild in names(&folder)? {
                if stat_entry(&folder, &grandchild)?.is_some_and(|found| found.is_directory()) {
                    // A folder that changes its parent has to be writable itself.
                    drop(unlocked(disk, folder.as_fd(), &grandchild)?);
                    disk.rename((&folder, &grandchild), (top, &free_name()?), Rename::New)?;
                } else {
                    disk.unlink(&folder, &grandchild)?;
                }
            }
            disk.remove_folder(top, &child)?;
        }
    }
}

/// Opens a folder after giving its owner every right to it.
fn unlocked(disk: &Disk, folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    if stat_entry(folder, name)?.is_some_and(|found| found.mode & 0o700 != 0o700) {
        disk.set_mode_of(folder, name, 0o700)?;
    }
    open_entry(folder, name, FOLDER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Undisturbed;
    use rustix::fs::{Mode, mkdirat};
    use std::{fs, os::unix::fs::symlink, sync::Arc};

    /// Deeper than a process may have files open, with folders that forbid their listing and a link that leads away.
    #[test]
    fn any_tree_goes_and_nothing_beside_it() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("kept")).unwrap();
        fs::write(place.path().join("kept/file"), "x").unwrap();
        let root = OwnedFd::from(fs::File::open(place.path()).unwrap());
        mkdirat(&root, "tree", Mode::RWXU).unwrap();
        let mut at = open_entry(&root, OsStr::new("tree"), FOLDER).unwrap();
        symlink(place.path().join("kept"), place.path().join("tree/link")).unwrap();
        fs::write(place.path().join("tree/lifted-0"), "in the way").unwrap();
        let disk = Disk::of(&root, Arc::new(Undisturbed));
        for depth in 0..1500 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            let next = open_entry(&at, OsStr::new("d"), FOLDER).unwrap();
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
