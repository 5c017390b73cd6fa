//! Recognises the state directory of a Belay: a key next to a store. No call may reach one.

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
    open::{DIRECTORY, open_beneath, stat_entry},
    path::{OWN, RelPath, is_own},
};

/// How many directories of a workspace are searched for directories to hide, nearest to the top first.
const MAX_FOLDERS: usize = 20_000;

/// How many directories are hidden from a command: each costs a mount.
const MAX_HIDDEN: usize = 256;

/// How many directories are searched per command: about two milliseconds. The result of a search in a larger workspace is reused for as
/// many commands as pay for it.
const FOLDERS_PER_COMMAND: usize = 500;

/// The directories to hide from commands, as last found.
#[derive(Debug, Default)]
pub(crate) struct HiddenStores {
    paths: Arc<[PathBuf]>,
    /// For how many more commands it is reused.
    commands_left: usize,
}

impl HiddenStores {
    /// The directories to hide from the next command: the one at the top first, then those nearest to it.
    pub(crate) fn next(&mut self, root: BorrowedFd<'_>) -> Arc<[PathBuf]> {
        if self.commands_left == 0 {
            let StorePaths { mut paths, folders } = within(root);
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

/// The directories of Belay in a workspace.
struct StorePaths {
    paths: Vec<PathBuf>,
    /// How many directories were searched.
    folders: usize,
}

/// Every `.belay` and every state directory below a directory, nearest to the top first. Inaccessible directories are skipped: a command
/// cannot access them either.
fn within(root: BorrowedFd<'_>) -> StorePaths {
    let mut found = StorePaths { paths: Vec::new(), folders: 0 };
    let mut next = VecDeque::from([RelPath::root()]);
    while let Some(path) = next.pop_front().filter(|_| found.folders < MAX_FOLDERS) {
        found.folders += 1;
        let Ok(entries) = open_beneath(root, &path, DIRECTORY).and_then(entries) else { continue };
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

/// The files and directories in a directory by name, each with whether it is a directory.
fn entries(folder: impl AsFd) -> Result<Vec<(OsString, bool)>, Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(&folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        let is_folder = match entry.file_type() {
            _ if name == "." || name == ".." => continue,
            FileType::Directory => true,
            FileType::RegularFile => false,
            // Some file systems do not report the type.
            FileType::Unknown => stat_entry(&folder, name)?.is_some_and(|found| found.is_directory()),
            _ => continue,
        };
        entries.push((name.to_owned(), is_folder));
    }
    Ok(entries)
}

/// The keys in a state directory.
const KEYS: [&str; 2] = ["seal.key", "gate.key"];

/// The stores next to them.
const STORES: [&str; 3] = ["journal.db", "ledger.db", "gate.db"];

/// Whether a directory is the state directory of a Belay.
pub(crate) fn is_state_directory(folder: impl AsFd) -> Result<bool, Errno> {
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

/// The state directory of this or another Belay that `path` is or lies in. An inaccessible directory is not one: a path may pass through it
/// without being able to read it.
#[must_use]
pub fn enclosing_state_directory(path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let is_one =
        |folder: &&Path| openat(CWD, *folder, flags, Mode::empty()).and_then(is_state_directory).unwrap_or(false);
    path.ancestors().find(is_one).map(Path::to_owned)
}

/// A state directory that `path` contains, of the 20,000 directories nearest to it. Links are not followed.
#[must_use]
pub fn contained_state_directory(path: &Path) -> Option<PathBuf> {
    let root = openat(CWD, path, DIRECTORY, Mode::empty()).ok()?;
    let found = within(root.as_fd()).paths.into_iter().find(|found| !found.file_name().is_some_and(is_own))?;
    Some(path.join(found))
}
