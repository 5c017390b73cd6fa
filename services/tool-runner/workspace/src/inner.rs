//! The open directories of a workspace, and what is done in them.

use std::{
    ffi::{OsStr, OsString},
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::{
    fs::{FlockOperation, flock},
    io::Errno,
};

use crate::{
    disk::{Disk, IoContext as _, IoFailure, Rename},
    open::{DIRECTORY, names, open_beneath, stat_entry},
    open_error::OpenError,
    order::Order,
    overlay_format,
    path::{OWN, RelPath},
    remove::{open_writable, remove_tree},
    retention::Retention,
    stat::FileTime,
    stores,
};

/// The state that a workspace, its views and its commits share.
pub(crate) struct Inner {
    pub(crate) disk: Disk,
    pub(crate) path: PathBuf,
    pub(crate) root: OwnedFd,
    pub(crate) own: OwnedFd,
    pub(crate) views: OwnedFd,
    pub(crate) commits: OwnedFd,
    /// The layers that were kept, by their sets.
    pub(crate) layers: OwnedFd,
    pub(crate) trash: OwnedFd,
    pub(crate) trashed: AtomicU64,
    /// The owner of committed files, if the runner is root.
    pub(crate) owner: Option<(u32, u32)>,
    /// Held while a commit renames files.
    pub(crate) moving: Mutex<()>,
    /// When a commit last renamed files.
    pub(crate) last_commit: Mutex<Option<FileTime>>,
    /// The replaced files, by the ids of their commits.
    pub(crate) retention: Mutex<Retention<String>>,
    /// The names in the trash of what views have left, which [`Inner::clear`] removes.
    pub(crate) left: Mutex<Vec<String>>,
    /// The directories hidden from commands.
    pub(crate) hidden: Mutex<stores::HiddenStores>,
    pub(crate) _lock: Lock,
}

/// The most entries of a small tree: what a command leaves that writes nothing has some thirty.
const SMALL_ENTRIES: usize = 128;

/// The most bytes in the files of a small tree.
const SMALL_BYTES: u64 = 1 << 20;

/// Whether a directory that is to be removed has few entries with few bytes. It is made accessible: overlays make directories that nobody may open.
fn is_small(disk: &Disk, folder: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
    let mut folders = vec![open_writable(disk, folder.as_fd(), name)?];
    let (mut entries, mut bytes) = (0, 0);
    while let Some(next) = folders.pop() {
        for name in names(&next)? {
            entries += 1;
            match stat_entry(&next, &name)? {
                Some(found) if found.is_directory() => folders.push(open_writable(disk, next.as_fd(), &name)?),
                Some(found) => bytes += found.size,
                None => {}
            }
            if entries > SMALL_ENTRIES || bytes > SMALL_BYTES {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

impl Drop for Inner {
    fn drop(&mut self) {
        // What cannot be removed now is removed at the next opening of the workspace.
        let _ = self.clear();
    }
}

impl Inner {
    /// Removes a directory of ours: first moves it to the trash, in one step, then deletes it.
    pub(crate) fn discard(&self, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        match self.move_to_trash(folder, name)? {
            Some(trash) => self.remove_trash(trash.as_ref()),
            None => Ok(()),
        }
    }

    /// Moves a directory of ours to the trash, in one step. If it is small, [`Inner::clear`] deletes it. A large one is deleted now: its space is free when the
    /// next call starts, whatever calls follow each other.
    pub(crate) fn discard_later(&self, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        let Some(trash) = self.move_to_trash(folder, name)? else { return Ok(()) };
        // One that cannot be looked at may be large.
        if !is_small(&self.disk, &self.trash, trash.as_ref()).unwrap_or_default() {
            return self.remove_trash(trash.as_ref());
        }
        self.left().push(trash);
        Ok(())
    }

    /// The name that it has in the trash; `None` if it does not exist.
    fn move_to_trash(&self, folder: &OwnedFd, name: &OsStr) -> Result<Option<String>, Errno> {
        if stat_entry(folder, name)?.is_none() {
            return Ok(None);
        }
        let trash = self.trashed.fetch_add(1, Ordering::Relaxed).to_string();
        self.disk.rename((folder, name), (&self.trash, trash.as_ref()), Rename::New)?;
        Ok(Some(trash))
    }

    fn left(&self) -> MutexGuard<'_, Vec<String>> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether [`Inner::clear`] has something to do.
    pub(crate) fn has_to_clear(&self) -> bool {
        !self.left().is_empty() || self.retention().releasable() > 0
    }

    /// Moves the slots of a commit to the trash, in one step, under the name `to`. Does nothing if they do not exist.
    pub(crate) fn retire(&self, id: &str, to: &OsStr) -> Result<(), Errno> {
        match self.disk.rename((&self.commits, id.as_ref()), (&self.trash, to), Rename::New) {
            Err(Errno::NOENT) => return Ok(()),
            moved => moved?,
        }
        match self.disk.order() {
            Order::Kept => Ok(()),
            // If slots reappeared after some were emptied, they would show finished operations as not done.
            Order::Unknown => self.disk.sync(&self.commits),
        }
    }

    pub(crate) fn remove_trash(&self, name: &OsStr) -> Result<(), Errno> {
        remove_tree(&self.disk, &self.trash, name)
    }

    pub(crate) fn empty_trash(&self) -> Result<(), IoFailure> {
        let shown = self.path.join(OWN).join("trash");
        for name in names(&self.trash).at("listing", shown.display())? {
            remove_tree(&self.disk, &self.trash, &name).at("emptying", shown.display())?;
        }
        Ok(())
    }

    /// The parent directory of a path beneath the root, following no link.
    pub(crate) fn parent(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        let parent = path.parent().expect("no operation touches the root");
        open_beneath(&self.root, &parent, DIRECTORY)
    }

    /// Serialises renames. Views and readers do not wait for it.
    pub(crate) fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a commit has renamed files.
    pub(crate) fn moved(&self) -> Result<(), IoFailure> {
        let now = self.disk.now(&self.own).at("reading the time of", self.path.display())?;
        *self.last_commit.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(())
    }

    pub(crate) fn retention(&self) -> MutexGuard<'_, Retention<String>> {
        self.retention.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what views have left, and replaced files that no earlier view may use.
    pub(crate) fn clear(&self) -> Result<(), IoFailure> {
        let left = std::mem::take(&mut *self.left());
        let free = self.retention().release();
        let mut cleared = Ok(());
        for name in left {
            let removed = self.remove_trash(name.as_ref());
            cleared = cleared.and(removed.at("removing what a view has left", &name));
        }
        for id in free {
            let removed = self.remove_trash(&retired_name(&id));
            cleared = cleared.and(removed.at("removing the files replaced by commit", id));
        }
        cleared
    }

    /// The start time of a view: later than all commits.
    pub(crate) fn beginning(&self) -> Result<FileTime, Errno> {
        let last = *self.last_commit.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = self.disk.now(&self.own)?;
            // Loops only on kernels with coarse timestamps (see `Disk::now`), and for at most one tick.
            if Some(now) != last {
                return Ok(now);
            }
            std::thread::yield_now();
        }
    }

    /// Checks that the file system supports views and commits: better now than in the middle of a call.
    pub(crate) fn probe(&self) -> Result<(), OpenError> {
        let lacks = |lacks| OpenError::FileSystem { path: self.path.clone(), lacks };
        let [gone, file] = ["probe-gone", "probe-file"].map(OsStr::new);
        let probe = || -> Result<Option<&'static str>, Errno> {
            if self.disk.make_whiteout(&self.trash, gone).is_err() {
                return Ok(Some("whiteouts (character devices 0:0, Linux 5.8)"));
            }
            let created = self.disk.create(&self.trash, file)?;
            if overlay_format::mark_opaque(&self.disk, &created).is_err() {
                return Ok(Some("user extended attributes"));
            }
            match self.disk.rename((&self.trash, gone), (&self.trash, file), Rename::Exchange) {
                Err(Errno::INVAL | Errno::NOSYS) => Ok(Some("exchanging two names (renameat2)")),
                exchanged => exchanged.map(|()| None),
            }
        };
        let found = probe().at("probing", self.path.join(OWN).display());
        self.empty_trash()?;
        found?.map_or(Ok(()), |missing| Err(lacks(missing)))
    }
}

/// A held lock.
pub(crate) struct Lock(pub(crate) OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave it locked while a process that is just being started holds a copy.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// The name of the slots of a commit in the trash, unique there.
pub(crate) fn retired_name(id: &str) -> OsString {
    format!("commit-{id}").into()
}
