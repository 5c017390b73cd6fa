//! The scratch places of one command on disk: made before it starts, and emptied afterwards. While it runs the launcher measures them, see
//! `disk_watch`.

use std::{
    ffi::{CStr, CString},
    fs, io,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::fs::{PermissionsExt as _, chown},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{AtFlags, CWD, Dir, FlockOperation, Mode, chmodat, flock, renameat, statat, unlinkat},
    io::Errno,
};

use crate::{
    scratch::{HOME, TMP},
    usage::open_folder,
};

/// The scratch folder in a staging folder.
pub(crate) const NAME: &str = "scratch";

/// The folder of one runner's scratch folders, in the folder that the settings name. The lock on it says that the runner lives.
#[derive(Debug)]
pub(crate) struct OwnScratch {
    folder: PathBuf,
    used: AtomicU64,
    _lock: OwnedFd,
}

impl OwnScratch {
    /// Removes what runners that have ended left behind, and makes a folder for this one.
    pub(crate) fn new(shared: &Path) -> io::Result<Self> {
        // Two runners that start at once: one makes its folder before the other looks for what is left.
        let one_at_a_time = open_folder(CWD, shared)?;
        flock(&one_at_a_time, FlockOperation::LockExclusive)?;
        for left in fs::read_dir(shared)? {
            let left = left?.path();
            let Ok(folder) = open_folder(CWD, &left) else { continue };
            if flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok() {
                empty(&folder)?;
                fs::remove_dir(&left)?;
            }
        }
        let mut number = 0_u32;
        loop {
            let folder = shared.join(format!("{}-{number}", std::process::id()));
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                made => {
                    made?;
                    let lock = open_folder(CWD, &folder)?;
                    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
                    return Ok(Self { folder, used: AtomicU64::new(0), _lock: lock });
                }
            }
        }
    }

    /// A folder for one command, which does not exist yet.
    pub(crate) fn next(&self) -> PathBuf {
        self.folder.join(self.used.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

impl Drop for OwnScratch {
    fn drop(&mut self) {
        // Commands that are still ending keep it until the next runner starts.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Makes the folder with its places, for this owner if one is given.
pub(crate) fn make(folder: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    for (path, mode) in [(folder.to_owned(), 0o700), (folder.join(TMP), 0o1777), (folder.join(HOME), 0o700)] {
        fs::create_dir(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
        if let Some((uid, gid)) = owner {
            chown(&path, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

/// Removes all that is in a folder, whatever its modes and however deep.
pub(crate) fn empty(folder: &OwnedFd) -> Result<(), Errno> {
    // Each folder is brought to the top before it is emptied, so that no depth needs a stack.
    let mut moved = 0_u64;
    loop {
        let folders = remove_files(folder, folder, &mut moved)?;
        if folders.is_empty() {
            return Ok(());
        }
        for name in folders {
            remove_files(&open_own_folder(folder, &name)?, folder, &mut moved)?;
            unlinkat(folder, name, AtFlags::REMOVEDIR)?;
        }
    }
}

/// Opens a folder whose owner may have been shut out of it.
fn open_own_folder(at: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
    open_folder(at, name)
}

/// Removes the files of a folder and brings its folders to `top` under new names. Gives the folders' names, where they are in `top`.
fn remove_files(folder: &OwnedFd, top: &OwnedFd, moved: &mut u64) -> Result<Vec<CString>, Errno> {
    let mut folders = Vec::new();
    let same = std::ptr::eq(folder, top);
    for entry in Dir::read_from(folder.as_fd())? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        match unlinkat(folder, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) if same => folders.push(name.to_owned()),
            Err(Errno::ISDIR | Errno::PERM) => {
                // To give a folder another one above it takes writing to it.
                chmodat(folder, name, Mode::RWXU, AtFlags::empty())?;
                let place = loop {
                    *moved += 1;
                    let place = format!(".{moved}");
                    match statat(top, &place, AtFlags::SYMLINK_NOFOLLOW) {
                        Err(Errno::NOENT) => break place,
                        _ => continue,
                    }
                };
                renameat(folder, name, top, &place)?;
            }
            removed => removed?,
        }
    }
    Ok(folders)
}
