//! The scratch places of one command on disk: made, measured while it runs, and emptied afterwards.
//!
//! An ordinary folder has no bounds of its own. Until it has (a project quota would be one), the launcher measures it. What that does not
//! see at once: a file that grows by gigabytes between two looks, and a file that has no name any more.

use std::{
    ffi::{CStr, CString},
    fs, io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::{PermissionsExt as _, chown},
    },
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, chmodat, flock, fstatvfs, openat, renameat, statat,
        unlinkat,
    },
    io::Errno,
};

use crate::scratch::{HOME, Scratch, ScratchSize, TMP};

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

/// The folder while the command runs.
pub(crate) struct ScratchFolder {
    folder: OwnedFd,
    bounds: [(&'static CStr, ScratchSize); 2],
    /// What the file system held when it was last measured, and what the places held then.
    last: Option<(Used, Measured)>,
    /// What the file system held at first.
    first: Used,
    /// Looks since the last measurement.
    skipped: u32,
}

/// What a whole file system holds.
#[derive(Clone, Copy, Default)]
struct Used {
    bytes: u64,
    inodes: u64,
}

/// What a place holds.
#[derive(Clone, Copy, Default)]
struct Measured {
    bytes: u64,
    inodes: u64,
    /// Some of it could not be looked into.
    partly: bool,
}

/// What a look at the folder found.
pub(crate) enum Look {
    /// All is within bounds. The number of entries seen, by which the next look can be put off.
    Within(u64),
    /// One of the places holds more than it may.
    Over,
}

/// Deeper folders than this count as not looked into: each level takes a descriptor.
const MAX_DEPTH: usize = 128;

/// Looks that may be skipped in a row because the file system does not fill: others may free what the command takes.
const MAX_SKIPPED: u32 = 20;

impl ScratchFolder {
    pub(crate) fn new(folder: OwnedFd, scratch: &Scratch) -> Self {
        let first = used(&folder).unwrap_or_default();
        Self { folder, bounds: [(c"tmp", scratch.tmp), (c"home", scratch.home)], last: None, first, skipped: 0 }
    }

    /// Measures the places, unless the file system has filled too little since the last time for any to be over.
    pub(crate) fn look(&mut self) -> io::Result<Look> {
        let now = used(&self.folder)?;
        if let Some((then, held)) = self.last
            && self.skipped < MAX_SKIPPED
            && self.bounds.iter().all(|(_, bound)| {
                let (bytes, inodes) = (grown(then.bytes, now.bytes), grown(then.inodes, now.inodes));
                bytes < bound.bytes.saturating_sub(held.bytes) / 4
                    && inodes < bound.inodes.saturating_sub(held.inodes) / 4
            })
        {
            self.skipped += 1;
            return Ok(Look::Within(0));
        }
        self.skipped = 0;
        let mut all = Measured::default();
        for (name, bound) in self.bounds {
            let mut held = Measured::default();
            measure(open_folder(&self.folder, name)?, &mut held);
            if held.partly {
                // What cannot be seen is at most what the whole file system has gained.
                held.bytes = held.bytes.max(grown(self.first.bytes, now.bytes));
                held.inodes = held.inodes.max(grown(self.first.inodes, now.inodes));
            }
            if held.bytes > bound.bytes || held.inodes > bound.inodes {
                return Ok(Look::Over);
            }
            all.bytes += held.bytes;
            all.inodes += held.inodes;
        }
        self.last = Some((now, all));
        Ok(Look::Within(all.inodes))
    }

    /// Removes all that is in it. Nothing else may work in it any more.
    pub(crate) fn empty(&self) -> Result<(), Errno> {
        empty(&self.folder)
    }
}

/// Removes all that is in a folder, whatever its modes and however deep.
fn empty(folder: &OwnedFd) -> Result<(), Errno> {
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

fn grown(then: u64, now: u64) -> u64 {
    now.saturating_sub(then)
}

fn used(folder: &OwnedFd) -> Result<Used, Errno> {
    let all = fstatvfs(folder)?;
    Ok(Used { bytes: (all.f_blocks - all.f_bfree) * all.f_frsize, inodes: all.f_files.saturating_sub(all.f_ffree) })
}

fn open_folder(at: impl AsFd, name: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat(at, name, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a folder whose owner may have been shut out of it.
fn open_own_folder(at: &OwnedFd, name: &CStr) -> Result<OwnedFd, Errno> {
    chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
    open_folder(at, name)
}

/// Adds up what a folder holds.
fn measure(folder: OwnedFd, held: &mut Measured) {
    let Ok(entries) = Dir::new(folder) else {
        held.partly = true;
        return;
    };
    let mut above = vec![entries];
    loop {
        let depth = above.len();
        let Some(entries) = above.last_mut() else { return };
        let Some(entry) = entries.read() else {
            above.pop();
            continue;
        };
        let Ok(entry) = entry else {
            held.partly = true;
            continue;
        };
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(at) = entries.fd() else {
            held.partly = true;
            continue;
        };
        // One that is gone meanwhile holds nothing.
        let Ok(stat) = statat(at, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        held.inodes += 1;
        // The names of one file share what it takes. Its blocks and not its length: a file may have holes.
        held.bytes += stat.st_blocks as u64 * 512 / u64::from(stat.st_nlink.max(1) as u32);
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let below = if depth < MAX_DEPTH { openat(at, name, flags, Mode::empty()) } else { Err(Errno::MFILE) };
            match below.and_then(Dir::new) {
                Ok(below) => above.push(below),
                Err(Errno::NOENT) => {}
                Err(_) => held.partly = true,
            }
        }
    }
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
