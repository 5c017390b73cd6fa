//! A disk that loses its power. It is the real one with a memory: each change since the last sync can be undone. A sync makes durable what
//! was changed up to the last change of that very file or folder, and no more.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    fs,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
};

use belay_workspace::{Call, Order, Seam};
use rustix::{
    fs::{
        AtFlags, Mode, RenameFlags, chmodat, fchmod, fstat, ftruncate, linkat, mkdirat, renameat, renameat_with,
        statat, unlinkat,
    },
    io::Errno,
};

use crate::support::Ground;

/// A folder that was changed, kept open.
type Folder = Arc<OwnedFd>;

/// How a change is undone.
enum Undo {
    Nothing,
    /// Something was made there.
    Made {
        at: (Folder, OsString),
        is_folder: bool,
    },
    /// Something was moved there.
    Moved {
        from: (Folder, OsString),
        to: (Folder, OsString),
        exchanged: bool,
        replaced: Option<OsString>,
    },
    /// Something was removed from there, and is in the attic.
    Removed {
        at: (Folder, OsString),
        attic: OsString,
        is_folder: bool,
    },
    Mode {
        file: OwnedFd,
        mode: u32,
    },
    ModeOf {
        at: (Folder, OsString),
        mode: u32,
    },
}

struct Change {
    /// The files and folders that were changed, by inode.
    touched: Vec<u64>,
    undo: Undo,
    /// By what it is known that the call did what it was made for: what is there now.
    there: Option<((Folder, OsString), Option<u64>)>,
}

struct State {
    dies_at: u64,
    reached: u64,
    attic: OwnedFd,
    stored: u64,
    folders: HashMap<u64, Folder>,
    /// Everything since the last sync, the oldest first.
    changes: Vec<Change>,
    /// Files with contents that were not synced.
    unsynced: HashMap<u64, OwnedFd>,
    syncs: u64,
}

/// A disk that can be counted on to lose what it may.
pub(crate) trait Loses: Seam {
    /// How many calls were made.
    fn reached(&self) -> u64;

    /// How many of them were syncs.
    fn syncs(&self) -> u64;

    /// Takes away of all that is not durable what `how` says, which differs from one disk to the other.
    fn fail(&self, how: u64);
}

/// The disk with a memory.
pub(crate) struct Power(Mutex<State>);

fn inode(folder: impl std::os::fd::AsFd, name: &OsStr) -> Option<rustix::fs::Stat> {
    statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()
}

impl State {
    fn folder(&mut self, folder: BorrowedFd<'_>) -> Folder {
        let opened = || Arc::new(folder.try_clone_to_owned().unwrap());
        Arc::clone(self.folders.entry(fstat(folder).unwrap().st_ino).or_insert_with(opened))
    }

    fn free_name(&mut self) -> OsString {
        self.stored += 1;
        self.stored.to_string().into()
    }

    /// Looks at what came of the last call.
    fn settle(&mut self) {
        let Some(last) = self.changes.last_mut() else { return };
        let Some(((folder, name), expected)) = last.there.take() else { return };
        let found = inode(&*folder, &name).map(|found| found.st_ino);
        match expected {
            // It was made: now it has an inode.
            Some(0) if found.is_some() => last.touched.extend(found),
            expected if expected == found => {}
            _ => drop(self.changes.pop()),
        }
    }

    fn note(&mut self, call: &Call<'_>) {
        let on = fstat(call.on).unwrap();
        let mut change = Change { touched: vec![on.st_ino], undo: Undo::Nothing, there: None };
        let at = call.entry.map(|entry| (self.folder(call.on), entry.to_owned()));
        let found = call.entry.and_then(|entry| inode(call.on, entry));
        change.touched.extend(found.map(|found| found.st_ino));
        match (call.name, at) {
            ("mkdir" | "create" | "mknod", Some(at)) if found.is_none() => {
                change.there = Some((at.clone(), Some(0)));
                change.undo = Undo::Made { at, is_folder: call.name == "mkdir" };
            }
            ("rename", Some(to)) => {
                let (from, name) = call.from.unwrap();
                // Without a source nothing comes of it.
                let Some(moved) = inode(from, name) else { return };
                change.touched.extend([fstat(from).unwrap().st_ino, moved.st_ino]);
                let replaced = found.filter(|_| !call.exchanges).map(|_| {
                    let attic = self.free_name();
                    // A folder in the way makes the call fail.
                    let _ = linkat(&*to.0, &to.1, &self.attic, &attic, AtFlags::empty());
                    attic
                });
                change.there = Some((to.clone(), Some(moved.st_ino)));
                let from = (self.folder(from), name.to_owned());
                change.undo = Undo::Moved { from, to, exchanged: call.exchanges, replaced };
            }
            ("unlink", Some(at)) if found.is_some() => {
                let attic = self.free_name();
                linkat(&*at.0, &at.1, &self.attic, &attic, AtFlags::empty()).unwrap();
                change.there = Some((at.clone(), None));
                change.undo = Undo::Removed { at, attic, is_folder: false };
            }
            ("rmdir", Some(at)) if found.is_some() => {
                // The very folder is kept, and another one removed in its place.
                let attic = self.free_name();
                renameat(&*at.0, &at.1, &self.attic, &attic).unwrap();
                mkdirat(&*at.0, &at.1, Mode::RWXU).unwrap();
                change.there = Some((at.clone(), None));
                change.undo = Undo::Removed { at, attic, is_folder: true };
            }
            ("fchmod", None) => {
                change.undo = Undo::Mode { file: call.on.try_clone_to_owned().unwrap(), mode: on.st_mode };
            }
            ("chmod", Some(at)) => {
                change.undo = Undo::ModeOf { at, mode: found.expect("it was just looked at").st_mode };
            }
            ("write", None) => {
                self.unsynced.insert(on.st_ino, call.on.try_clone_to_owned().unwrap());
            }
            ("fsync", None) => {
                self.syncs += 1;
                self.unsynced.remove(&on.st_ino);
                let last = self.changes.iter().rposition(|change| change.touched.contains(&on.st_ino));
                drop(self.changes.drain(..last.map_or(0, |last| last + 1)));
                return;
            }
            ("syncfs", None) => {
                self.syncs += 1;
                self.unsynced.clear();
                self.changes.clear();
                return;
            }
            // Marks of views, times of our own folder, and owners, of which nothing depends.
            ("setxattr" | "removexattr" | "utimens" | "chown", _)
            | ("mkdir" | "create" | "mknod" | "unlink" | "rmdir", _) => {}
            other => panic!("{other:?} is an unexpected call"),
        }
        self.changes.push(change);
    }

    fn undo(&self, undo: Undo) {
        // A folder that was removed for good has nothing that could come back.
        let gone = |result: Result<(), Errno>| assert!(matches!(result, Ok(()) | Err(Errno::NOENT)), "{result:?}");
        match undo {
            Undo::Nothing => {}
            Undo::Made { at: (folder, name), is_folder } => {
                gone(unlinkat(&*folder, &name, if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() }));
            }
            Undo::Moved { from, to, exchanged, replaced } => {
                let how = if exchanged { RenameFlags::EXCHANGE } else { RenameFlags::NOREPLACE };
                renameat_with(&*to.0, &to.1, &*from.0, &from.1, how).unwrap();
                if let Some(attic) = replaced {
                    linkat(&self.attic, &attic, &*to.0, &to.1, AtFlags::empty()).unwrap();
                }
            }
            Undo::Removed { at, attic, is_folder: true } => renameat(&self.attic, &attic, &*at.0, &at.1).unwrap(),
            Undo::Removed { at, attic, .. } => gone(linkat(&self.attic, &attic, &*at.0, &at.1, AtFlags::empty())),
            Undo::Mode { file, mode } => fchmod(file, Mode::from_raw_mode(mode)).unwrap(),
            Undo::ModeOf { at, mode } => {
                chmodat(&*at.0, &at.1, Mode::from_raw_mode(mode), AtFlags::empty()).unwrap();
            }
        }
    }
}

impl Power {
    pub(crate) fn dies_at(ground: &Ground, dies_at: u64) -> Arc<Self> {
        let attic = tempfile::Builder::new().prefix("attic").tempdir_in(ground.root.parent().unwrap()).unwrap().keep();
        let attic = OwnedFd::from(fs::File::open(attic).unwrap());
        let (folders, unsynced) = (HashMap::new(), HashMap::new());
        let state = State { dies_at, reached: 0, attic, stored: 0, folders, changes: Vec::new(), unsynced, syncs: 0 };
        Arc::new(Self(Mutex::new(state)))
    }
}

impl Loses for Power {
    fn reached(&self) -> u64 {
        self.0.lock().unwrap().reached
    }

    fn syncs(&self) -> u64 {
        self.0.lock().unwrap().syncs
    }

    /// All but for the first `kept` of every thousand changes.
    fn fail(&self, kept: u64) {
        let mut state = self.0.lock().unwrap();
        state.settle();
        let kept = (state.changes.len() as u64 * kept).div_ceil(1000);
        for change in state.changes.split_off(usize::try_from(kept).unwrap()).into_iter().rev() {
            state.undo(change.undo);
        }
        state.unsynced.drain().for_each(|(_, file)| ftruncate(file, 0).unwrap());
    }
}

impl Seam for Power {
    fn alive(&self, call: &Call<'_>) -> bool {
        let mut state = self.0.lock().unwrap();
        if state.reached >= state.dies_at {
            return false;
        }
        state.settle();
        state.reached += 1;
        state.note(call);
        true
    }

    fn order(&self, _: Order) -> Order {
        Order::Kept
    }
}
