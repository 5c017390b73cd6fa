//! Recognises the state directory of a Belay: a key next to a store. No call may reach one.

use std::{
    collections::{HashMap, VecDeque},
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{CWD, Dir, FileType, Mode, OFlags, fstat, openat},
    io::Errno,
    time::{ClockId, clock_gettime},
};

use crate::{
    open::{DIRECTORY, open_beneath, stat_entry},
    path::{OWN, RelPath, is_own},
    stat::{FileTime, Stat},
};

/// How many directories of a workspace are searched for directories to hide, nearest to the top first.
const MAX_FOLDERS: usize = 20_000;

/// How many directories are hidden from a command: each costs a mount.
const MAX_HIDDEN: usize = 256;

/// How many directories are searched per command: about two milliseconds. The result of a search in a larger workspace is reused for as
/// many commands as pay for it.
const FOLDERS_PER_COMMAND: usize = 500;

/// A directory with more entries is listed again only when it has changed, so that the search takes time by the number of directories, not of files.
const MANY_ENTRIES: usize = 128;

/// The directories to hide from commands, as last found.
#[derive(Debug, Default)]
pub(crate) struct HiddenStores {
    paths: Arc<[PathBuf]>,
    /// For how many more commands it is reused.
    commands_left: usize,
    large: LargeFolders,
}

/// Directories with many entries, as last listed.
type LargeFolders = HashMap<RelPath, (FolderState, Listing)>;

/// Changes with the entries of a directory: device, inode, and when it was modified and changed.
type FolderState = (u64, u64, FileTime, FileTime);

/// The facts about the entries of a directory that the search needs.
#[derive(Clone, Debug, Default)]
struct Listing {
    folders: Vec<OsString>,
    has_key: bool,
    has_store: bool,
    entries: usize,
}

impl HiddenStores {
    /// The directories to hide from the next command: the one at the top first, then those nearest to it.
    pub(crate) fn next(&mut self, root: BorrowedFd<'_>) -> Arc<[PathBuf]> {
        if self.commands_left == 0 {
            let StorePaths { mut paths, folders } = within(root, &mut self.large);
            paths.retain(|path| path != Path::new(OWN));
            paths.truncate(MAX_HIDDEN);
            paths.insert(0, PathBuf::from(OWN));
            (self.paths, self.commands_left) = (paths.into(), folders / FOLDERS_PER_COMMAND);
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
fn within(root: BorrowedFd<'_>, large: &mut LargeFolders) -> StorePaths {
    let mut found = StorePaths { paths: Vec::new(), folders: 0 };
    let mut next = VecDeque::from([RelPath::root()]);
    let mut before = std::mem::take(large);
    while let Some(path) = next.pop_front().filter(|_| found.folders < MAX_FOLDERS) {
        found.folders += 1;
        let Ok((listing, state)) = look(root, &path, before.remove(&path)) else { continue };
        if !path.is_root() && listing.has_key && listing.has_store {
            found.paths.push(path.as_ref().to_owned());
            continue;
        }
        for name in &listing.folders {
            let place = path.join(name);
            if is_own(name) {
                found.paths.push(place.as_ref().to_owned());
            } else {
                next.push_back(place);
            }
        }
        if let Some(state) = state.filter(|_| listing.entries > MANY_ENTRIES) {
            large.insert(path, (state, listing));
        }
    }
    found
}

/// Lists a directory, or knows its listing from before; and its state, if a later change is certain to change it.
fn look(
    root: BorrowedFd<'_>,
    path: &RelPath,
    before: Option<(FolderState, Listing)>,
) -> Result<(Listing, Option<FolderState>), Errno> {
    let folder = open_beneath(root, path, DIRECTORY)?;
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let stat = Stat::from(fstat(&folder)?);
    let state = (stat.dev, stat.ino, stat.modified, stat.changed);
    if let Some((known, listing)) = before
        && known == state
    {
        return Ok((listing, Some(state)));
    }
    let certain = !is_recent(stat.changed, (now.tv_sec, now.tv_nsec));
    Ok((list(&folder)?, certain.then_some(state)))
}

/// Whether something that happens from now on may have the same time in the file system, whose clock advances in steps.
fn is_recent(FileTime(seconds, nanoseconds): FileTime, now: (i64, i64)) -> bool {
    // Some file systems keep seconds only, or every other one.
    let step = if nanoseconds == 0 { 2_000_000_000 } else { 50_000_000 };
    let since = (i128::from(now.0) - i128::from(seconds)) * 1_000_000_000 + i128::from(now.1) - i128::from(nanoseconds);
    since <= step
}

fn list(folder: impl AsFd) -> Result<Listing, Errno> {
    let mut listing = Listing::default();
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
        listing.entries += 1;
        if is_folder {
            listing.folders.push(name.to_owned());
        } else {
            listing.has_key |= STATE_KEYS.iter().any(|key| name == *key);
            listing.has_store |= STATE_STORES.iter().any(|store| name == *store);
        }
    }
    Ok(listing)
}

/// The keys in a state directory, by the names that services give them.
pub const STATE_KEYS: [&str; 2] = ["seal.key", "gate.key"];

/// The stores next to them.
pub const STATE_STORES: [&str; 3] = ["journal.db", "ledger.db", "gate.db"];

/// Whether a directory is the state directory of a Belay.
pub(crate) fn is_state_directory(folder: impl AsFd) -> Result<bool, Errno> {
    Ok(holds_any(&folder, &STATE_KEYS)? && holds_any(&folder, &STATE_STORES)?)
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
    let found = within(root.as_fd(), &mut LargeFolders::new())
        .paths
        .into_iter()
        .find(|found| !found.file_name().is_some_and(is_own))?;
    Some(path.join(found))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A workspace with a directory of many files, that has not changed for long enough to be known.
    fn settled() -> (tempfile::TempDir, HiddenStores) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("large/inside")).unwrap();
        for n in 0..=MANY_ENTRIES {
            fs::write(folder.path().join(format!("large/{n}")), "").unwrap();
        }
        let mut hidden = HiddenStores::default();
        while hidden.large.is_empty() {
            hidden.next(open(&folder).as_fd());
            std::thread::yield_now();
        }
        (folder, hidden)
    }

    fn open(folder: &tempfile::TempDir) -> std::os::fd::OwnedFd {
        openat(CWD, folder.path(), DIRECTORY, Mode::empty()).unwrap()
    }

    fn found(hidden: &mut HiddenStores, folder: &tempfile::TempDir) -> Vec<PathBuf> {
        hidden.next(open(folder).as_fd()).to_vec()
    }

    /// The search for what is hidden from a command does not list unchanged directories again, and misses no change.
    #[test]
    fn a_large_directory_is_listed_again_when_it_has_changed() {
        let (folder, mut hidden) = settled();
        let (_, listing) = hidden.large.get_mut(&RelPath::root().join(OsStr::new("large"))).unwrap();
        listing.folders.push("kept-from-before".into());
        found(&mut hidden, &folder);
        let (_, listing) = &hidden.large[&RelPath::root().join(OsStr::new("large"))];
        assert!(listing.folders.iter().any(|name| name == "kept-from-before"), "it was not listed again");

        fs::create_dir(folder.path().join("large/.belay")).unwrap();
        assert_eq!(found(&mut hidden, &folder), [OWN, "large/.belay"].map(PathBuf::from));
        fs::write(folder.path().join("large/inside/seal.key"), "").unwrap();
        fs::write(folder.path().join("large/inside/ledger.db"), "").unwrap();
        let mut all = found(&mut hidden, &folder);
        all.sort();
        assert_eq!(all, [OWN, "large/.belay", "large/inside"].map(PathBuf::from));
        fs::write(folder.path().join("large/gate.key"), "").unwrap();
        fs::write(folder.path().join("large/gate.db"), "").unwrap();
        assert_eq!(found(&mut hidden, &folder), [OWN, "large"].map(PathBuf::from));
    }

    #[test]
    fn another_directory_in_the_place_of_a_large_one_is_listed() {
        let (folder, mut hidden) = settled();
        fs::rename(folder.path().join("large"), folder.path().join("before")).unwrap();
        fs::create_dir_all(folder.path().join("large/.belay")).unwrap();
        assert_eq!(found(&mut hidden, &folder), [OWN, "large/.belay"].map(PathBuf::from));
    }

    #[test]
    fn a_time_is_recent_for_as_long_as_a_change_may_have_it_too() {
        let now = (100, 0);
        assert!(is_recent(FileTime(99, 960_000_000), now) && !is_recent(FileTime(99, 940_000_000), now));
        assert!(is_recent(FileTime(98, 0), now) && !is_recent(FileTime(97, 0), now), "seconds only");
        assert!(is_recent(FileTime(101, 5), now), "the clock was set back");
    }
}
