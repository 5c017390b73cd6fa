//! The scratch directories of a command on disk: created before it starts, and emptied when it has ended. While it runs the launcher
//! measures them, see `disk_watch`.

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
    usage::open_directory,
};

/// The name of the scratch directory in a staging directory.
pub(crate) const NAME: &str = "scratch";

/// The parent of one runner's scratch directories. A lock on it marks the runner as alive.
#[derive(Debug)]
pub(crate) struct RunnerScratch {
    folder: PathBuf,
    used: AtomicU64,
    _lock: OwnedFd,
}

impl RunnerScratch {
    /// Removes what dead runners left behind, and creates a directory for this one.
    pub(crate) fn new(shared: &Path) -> io::Result<Self> {
        // Serialises runners that start at once: one must lock its directory before the other looks for leftovers.
        let lock_of_shared = open_directory(CWD, shared)?;
        flock(&lock_of_shared, FlockOperation::LockExclusive)?;
        for left in fs::read_dir(shared)? {
            let left = left?.path();
            let Ok(folder) = open_directory(CWD, &left) else { continue };
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
                    let lock = open_directory(CWD, &folder)?;
                    flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
                    return Ok(Self { folder, used: AtomicU64::new(0), _lock: lock });
                }
            }
        }
    }

    /// A path for one command, which does not exist yet.
    pub(crate) fn next(&self) -> PathBuf {
        self.folder.join(self.used.fetch_add(1, Ordering::Relaxed).to_string())
    }
}

impl Drop for RunnerScratch {
    fn drop(&mut self) {
        // Commands that are still ending keep it; the next runner removes it then.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Creates the directory with its places, for the given owner.
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

/// Removes the content of a directory, whatever its modes and depth.
pub(crate) fn empty(folder: &OwnedFd) -> Result<(), Errno> {
    // Each subdirectory is moved to the top before it is emptied, so that deep trees need no stack.
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

/// Opens a directory that its owner may have made inaccessible.
fn open_own_folder(at: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
    open_directory(at, name)
}

/// Removes the files of a directory and moves its subdirectories to `top` under new names. Returns the names of the subdirectories if the
/// directory is `top`.
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
                // Moving a directory needs write permission to it.
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
