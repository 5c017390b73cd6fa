//! A disk that loses its power and keeps no order, such as ext4 without a journal. It is the real one with a memory.
//!
//! Each folder is left as it was at some time since its last sync, or each of its names is; no folder knows of another one. A file that
//! was moved may be in both places then, or in neither. A sync of a file brings its contents and not its name, and
//! one of a folder the names in it. A folder cannot be in two places: which
//! of them it gets is left to chance, as it is to `e2fsck`.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    fs,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{Arc, Mutex},
};

use belay_workspace::{Call, Order, Seam};
use rustix::fs::{
    AtFlags, FileType, Mode, RenameFlags, fchmod, fstat, ftruncate, linkat, mkdirat, renameat, renameat_with, statat,
    unlinkat,
};

use crate::{lossy::Loses, support::Ground};

type Inode = u64;
/// A folder that was changed, kept open.
type Folder = Arc<OwnedFd>;

/// A name in a folder.
#[derive(Clone)]
struct Spot {
    folder: Folder,
    of: Inode,
    name: OsString,
}

impl Spot {
    fn holds(&self) -> Option<Inode> {
        statat(&*self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|found| found.st_ino)
    }
}

/// The entry of a name, before and after.
struct Change {
    spot: Spot,
    old: Option<Inode>,
    new: Option<Inode>,
}

struct State {
    dies_at: u64,
    reached: u64,
    syncs: u64,
    attic: Folder,
    folders: HashMap<Inode, Folder>,
    /// The names that the last call may change, and their entries before.
    pending: Vec<(Spot, Option<Inode>)>,
    /// Everything since the last sync of its folder, the oldest first.
    changes: Vec<Change>,
    /// Every name that a file or a folder ever had.
    spots: HashMap<Inode, Vec<Spot>>,
    /// Files with contents that were not synced, and with modes.
    unsynced: HashMap<Inode, OwnedFd>,
    modes: HashMap<Inode, (OwnedFd, u32)>,
    chance: u64,
}

/// The disk that keeps no order.
pub(crate) struct Blocks {
    taken_for: Order,
    state: Mutex<State>,
}

impl State {
    /// Chooses one of so many.
    fn choose(&mut self, of: usize) -> usize {
        self.chance = self.chance.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.chance;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % of as u64).unwrap()
    }

    fn spot(&mut self, folder: BorrowedFd<'_>, name: &OsStr) -> Spot {
        let of = fstat(folder).unwrap().st_ino;
        let opened = || Arc::new(folder.try_clone_to_owned().unwrap());
        Spot { folder: Arc::clone(self.folders.entry(of).or_insert_with(opened)), of, name: name.to_owned() }
    }

    /// Looks at what came of the last call.
    fn settle(&mut self) {
        for (spot, old) in std::mem::take(&mut self.pending) {
            let new = spot.holds();
            if new == old {
                continue;
            }
            if let Some(new) = new {
                self.spots.entry(new).or_default().push(spot.clone());
            }
            self.changes.push(Change { spot, old, new });
        }
    }

    /// Keeps what is at a spot from going for good.
    fn keep(&self, spot: &Spot) {
        if let Ok(found) = statat(&*spot.folder, &spot.name, AtFlags::SYMLINK_NOFOLLOW)
            && FileType::from_raw_mode(found.st_mode) != FileType::Directory
        {
            let _ = linkat(&*spot.folder, &spot.name, &*self.attic, found.st_ino.to_string(), AtFlags::empty());
        }
    }

    fn note(&mut self, call: &Call<'_>) {
        match (call.name, call.entry) {
            ("fsync", None) => return self.sync(call.on),
            ("syncfs", None) => {
                self.syncs += 1;
                self.changes.clear();
                self.unsynced.clear();
                self.modes.clear();
                return;
            }
            ("write", None) => {
                self.unsynced.insert(fstat(call.on).unwrap().st_ino, call.on.try_clone_to_owned().unwrap());
                return;
            }
            ("fchmod", None) => {
                let found = fstat(call.on).unwrap();
                if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
                    let kept = || (call.on.try_clone_to_owned().unwrap(), found.st_mode);
                    self.modes.entry(found.st_ino).or_insert_with(kept);
                }
                return;
            }
            ("mkdir" | "create" | "mknod" | "rename" | "unlink" | "rmdir", Some(_)) => {}
            // Marks of views, times of our own folder, and owners, of which nothing depends.
            ("setxattr" | "removexattr" | "utimens" | "chown" | "chmod", _) => return,
            other => panic!("{other:?} is an unexpected call"),
        }
        let spot = self.spot(call.on, call.entry.unwrap());
        let old = spot.holds();
        if let Some(old) = old.filter(|_| call.name == "rmdir") {
            // The very folder is kept, and another one removed in its place.
            renameat(&*spot.folder, &spot.name, &*self.attic, old.to_string()).unwrap();
            mkdirat(&*spot.folder, &spot.name, Mode::RWXU).unwrap();
        } else if !call.exchanges {
            self.keep(&spot);
        }
        self.pending.push((spot, old));
        if let Some((from, name)) = call.from {
            let spot = self.spot(from, name);
            let old = spot.holds();
            self.spots.entry(old.unwrap_or_default()).or_default().push(spot.clone());
            self.pending.push((spot, old));
        }
    }

    fn sync(&mut self, file: BorrowedFd<'_>) {
        self.syncs += 1;
        let found = fstat(file).unwrap();
        let inode = found.st_ino;
        self.unsynced.remove(&inode);
        self.modes.remove(&inode);
        if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
            self.changes.retain(|change| change.spot.of != inode);
        }
    }

    /// The entry of each changed name after the loss.
    fn left(&mut self) -> Vec<(Spot, Option<Inode>)> {
        let mut by_folder = BTreeMap::<Inode, Vec<Change>>::new();
        for change in std::mem::take(&mut self.changes) {
            by_folder.entry(change.spot.of).or_default().push(change);
        }
        let mut left = Vec::new();
        for changes in by_folder.into_values() {
            let whole = self.choose(2) == 0;
            let until = self.choose(changes.len() + 1);
            let mut names = BTreeMap::<OsString, Vec<(usize, Change)>>::new();
            for (at, change) in changes.into_iter().enumerate() {
                names.entry(change.spot.name.clone()).or_default().push((at, change));
            }
            for changes in names.into_values() {
                let own = self.choose(changes.len() + 1);
                let kept = if whole { changes.iter().filter(|(at, _)| *at < until).count() } else { own };
                let holds = if kept == 0 { changes[0].1.old } else { changes[kept - 1].1.new };
                left.push((changes[0].1.spot.clone(), holds));
            }
        }
        left
    }

    fn lose(&mut self) {
        let mut left = self.left();
        let attic = Arc::clone(&self.attic);
        let in_attic = |inode: Inode| statat(&*attic, inode.to_string(), AtFlags::SYMLINK_NOFOLLOW).ok();
        for inode in left.iter().filter_map(|(_, holds)| *holds) {
            let known = self.spots.get(&inode).into_iter().flatten();
            known.filter(|spot| spot.holds() == Some(inode)).for_each(|spot| self.keep(spot));
        }
        for (spot, holds) in &left {
            let Some(there) = spot.holds().filter(|there| Some(*there) != *holds) else { continue };
            self.keep(spot);
            if in_attic(there).is_some() {
                unlinkat(&*spot.folder, &spot.name, AtFlags::empty()).unwrap();
            } else {
                renameat(&*spot.folder, &spot.name, &*attic, there.to_string()).unwrap();
            }
        }
        // In which of its places a folder turns up.
        for last in (1..left.len()).rev() {
            let other = self.choose(last + 1);
            left.swap(last, other);
        }
        for (spot, holds) in left {
            let Some(inode) = holds.filter(|_| spot.holds() != holds) else { continue };
            match in_attic(inode) {
                Some(found) if FileType::from_raw_mode(found.st_mode) == FileType::Directory => {
                    renameat_with(&*attic, inode.to_string(), &*spot.folder, &spot.name, RenameFlags::NOREPLACE)
                        .unwrap();
                }
                Some(_) => linkat(&*attic, inode.to_string(), &*spot.folder, &spot.name, AtFlags::empty()).unwrap(),
                // A folder that turned up elsewhere.
                None => {}
            }
        }
        self.unsynced.drain().for_each(|(_, file)| ftruncate(file, 0).unwrap());
        self.modes.drain().for_each(|(_, (file, mode))| fchmod(file, Mode::from_raw_mode(mode & 0o7777)).unwrap());
    }
}

impl Blocks {
    /// `taken_for` is what the workspace believes of it.
    pub(crate) fn dies_at(ground: &Ground, dies_at: u64, taken_for: Order) -> Arc<Self> {
        let attic = tempfile::Builder::new().prefix("attic").tempdir_in(ground.root.parent().unwrap()).unwrap().keep();
        let attic = Arc::new(OwnedFd::from(fs::File::open(attic).unwrap()));
        let state = Mutex::new(State {
            dies_at,
            reached: 0,
            syncs: 0,
            attic,
            folders: HashMap::new(),
            pending: Vec::new(),
            changes: Vec::new(),
            spots: HashMap::new(),
            unsynced: HashMap::new(),
            modes: HashMap::new(),
            chance: 0,
        });
        Arc::new(Self { taken_for, state })
    }
}

impl Loses for Blocks {
    fn reached(&self) -> u64 {
        self.state.lock().unwrap().reached
    }

    fn syncs(&self) -> u64 {
        self.state.lock().unwrap().syncs
    }

    fn fail(&self, how: u64) {
        let mut state = self.state.lock().unwrap();
        state.settle();
        state.chance = how;
        state.lose();
    }
}

impl Seam for Blocks {
    fn alive(&self, call: &Call<'_>) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.reached >= state.dies_at {
            return false;
        }
        state.settle();
        state.reached += 1;
        state.note(call);
        true
    }

    fn order(&self, _: Order) -> Order {
        self.taken_for
    }
}
