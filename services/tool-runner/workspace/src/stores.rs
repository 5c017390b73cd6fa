//! What the state directory of a Belay is known by: a key beside a store. No call may reach one, whosever it is.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, openat},
    io::Errno,
};

use crate::{
    open::{FOLDER, open_beneath, stat_entry},
    path::{OWN, RelPath, is_own},
};

/// How many folders of a workspace are looked into for what is to be hidden: those nearest to its top.
const MAX_FOLDERS: usize = 20_000;

/// How many folders are hidden from one command: each is a mount.
const MAX_HIDDEN: usize = 256;

/// So many folders are looked into for each command: some two milliseconds. What was found in a larger workspace counts for as many
/// commands as pay for looking again.
const FOLDERS_PER_COMMAND: usize = 500;

/// What is to be hidden from the commands of a workspace, as it was found last.
#[derive(Debug, Default)]
pub(crate) struct Hidden {
    paths: Arc<[PathBuf]>,
    /// For how many more commands it counts.
    commands_left: usize,
}

impl Hidden {
    /// The folders to hide from the next command: the one at the top of the workspace first, then those nearest to it.
    pub(crate) fn next(&mut self, root: BorrowedFd<'_>) -> Arc<[PathBuf]> {
        if self.commands_left == 0 {
            let Found { mut paths, folders } = within(root);
            paths.retain(|path| path != Path::new(OWN));
            paths.truncate(MAX_HIDDEN);
            paths.insert(0, PathBuf::from(OWN));
            *self = Self { paths: paths.into(), commands_left: folders / FOLDERS_PER_COMMAND };
        } else {
            self.commands_left -= 1;
        }
        Arc::clone(&self.paths)
    }
}

/// Belay's own folders in a workspace.
struct Found {
    paths: Vec<PathBuf>,
    /// How many folders were looked into.
    folders: usize,
}

/// Every `.belay` and every state directory in a folder, whosever they are, nearest to its top first. What cannot be looked into is passed
/// over: a command cannot either.
fn within(root: BorrowedFd<'_>) -> Found {
    let mut found = Found { paths: Vec::new(), folders: 0 };
    let mut next = VecDeque::from([RelPath::root()]);
    while let Some(path) = next.pop_front().filter(|_| found.folders < MAX_FOLDERS) {
        found.folders += 1;
        let Ok(entries) = open_beneath(root, &path, FOLDER).and_then(entries) else { continue };
        let has =
            |wanted: &[&str]| entries.iter().any(|(name, folder)| !folder && wanted.iter().any(|one| name == one));
        if !path.is_root() && has(&KEYS) && has(&STORES) {
            found.paths.push(path.as_ref().to_owned());
            continue;
        }
        for (name, _) in entries.iter().filter(|(_, folder)| *folder) {
            let place = path.join(name);
            if is_own(name) {
                found.paths.push(place.as_ref().to_owned());
            } else {
                next.push_back(place);
            }
        }
    }
    found
}

/// The files and folders in a folder by name, with whether each is a folder.
fn entries(folder: impl AsFd) -> Result<Vec<(OsString, bool)>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let is_folder = match entry.file_type() {
            _ if name == "." || name == ".." => continue,
            FileType::Directory => true,
            FileType::RegularFile => false,
            // A file system that does not say so.
            FileType::Unknown => stat_entry(&folder, name)?.is_some_and(|found| found.is_directory()),
            _ => continue,
        };
        entries.push((name.to_owned(), is_folder));
    }
    Ok(entries)
}

/// Keys that services keep in their state directories.
const KEYS: [&str; 2] = ["seal.key", "gate.key"];

/// Stores that stand beside them.
const STORES: [&str; 3] = ["journal.db", "ledger.db", "gate.db"];

/// Whether a folder is the state directory of a Belay.
pub(crate) fn are_in(folder: impl AsFd) -> Result<bool, Errno> {
    Ok(holds_any(&folder, &KEYS)? && holds_any(&folder, &STORES)?)
}

fn holds_any(folder: impl AsFd, names: &[&str]) -> Result<bool, Errno> {
    for name in names {
        if stat_entry(&folder, name.as_ref())?.is_some_and(|found| found.is_file()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The state directory of a Belay, this one's or another's, that `path` is or lies in. A folder that cannot be looked into is none: what
/// lies in it has a path that others may pass and not read.
#[must_use]
pub fn enclosing_state_directory(path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_one = |folder: &&Path| openat(CWD, *folder, flags, Mode::empty()).and_then(are_in).unwrap_or(false);
    path.ancestors().find(is_one).map(Path::to_owned)
}
