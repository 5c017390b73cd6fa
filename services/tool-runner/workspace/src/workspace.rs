//! A workspace: a folder that is opened once, with Belay's own folder inside it.
//!
//! ```text
//! <root>/.belay/            0700, ignored by git, shown in no view
//!     lock                  held while the workspace is open
//!     views/<id>/           one call's view: upper, work
//!     commits/<id>/<n>      what a commit puts in place, afterwards what it displaced
//!     trash/                what is being removed
//! ```
//! It lies inside the workspace because a commit renames, and names can only move within one file system.

use std::{
    ffi::OsStr,
    fs, io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rustix::{
    fs::{Access, AtFlags, FlockOperation, Mode, OFlags, accessat, flock, fstat, openat},
    io::Errno,
    process::geteuid,
};

use crate::{
    commit::retired_name,
    disk::{At as _, Disk, IoFailure, Rename, Seam, Undisturbed},
    open::{FOLDER, names, open_entry, stat_entry},
    order::Order,
    overlay_format,
    path::{OWN, RelPath},
    remove::remove_tree,
    retention::Retention,
    stat::{FileTime, Stat},
    stores,
    view::{View, ViewError},
};

/// A workspace that is open. Clones are the same one.
#[derive(Clone)]
pub struct Workspace {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) disk: Disk,
    pub(crate) path: PathBuf,
    pub(crate) root: OwnedFd,
    pub(crate) own: OwnedFd,
    pub(crate) views: OwnedFd,
    pub(crate) commits: OwnedFd,
    pub(crate) trash: OwnedFd,
    trashed: AtomicU64,
    /// Whose the committed files are, when the runner is root and can say so.
    pub(crate) owner: Option<(u32, u32)>,
    /// Held while names are moved.
    moving: Mutex<()>,
    /// When a commit last moved names.
    last_commit: Mutex<Option<FileTime>>,
    /// By the ids of commits, what they displaced.
    retention: Mutex<Retention<String>>,
    /// What commands must not see.
    pub(crate) hidden: Mutex<stores::Hidden>,
    _lock: Lock,
}

/// Why a folder cannot be a workspace.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Nothing is there, or it cannot be reached.
    #[error("workspace `{path}` cannot be reached: {source}; create it, or name another folder")]
    Unreachable {
        /// As it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is a file.
    #[error("workspace `{path}` is not a directory: name the folder that holds the files")]
    NotADirectory {
        /// Where it is.
        path: PathBuf,
    },
    /// It is the root of the machine.
    #[error("workspace `/` is the whole machine: name the folder of one project")]
    Root,
    /// It may not be written.
    #[error(
        "workspace `{path}` cannot be written by the user that runs Belay: change its owner or mode, or name another folder"
    )]
    ReadOnly {
        /// Where it is.
        path: PathBuf,
    },
    /// It and a folder that calls must not reach lie one inside the other.
    #[error(
        "workspace `{path}` contains `{forbidden}`, or lies inside it, which calls must not reach: keep the two apart"
    )]
    Forbidden {
        /// Where it is.
        path: PathBuf,
        /// The folder that must not be reached.
        forbidden: PathBuf,
    },
    /// Something else is in the place of Belay's own folder.
    #[error("`{path}` is where Belay keeps its own files, but it is {found}: move it away")]
    Occupied {
        /// Where.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// Another process has it open.
    #[error("workspace `{path}` is in use by another Belay: stop that one, or use it as its client")]
    InUse {
        /// Where it is.
        path: PathBuf,
    },
    /// The file system cannot hold a view.
    #[error(
        "the file system of workspace `{path}` lacks {lacks}, without which no change can be kept apart: use a local one such as ext4, xfs or btrfs"
    )]
    FileSystem {
        /// Where it is.
        path: PathBuf,
        /// What it lacks.
        lacks: &'static str,
    },
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl Workspace {
    /// Opens a folder as a workspace, making Belay's own folder in it where there is none yet. One process at a time has it open.
    ///
    /// `forbidden` are folders that calls must never reach, first of all the one with Belay's stores and keys.
    ///
    /// # Errors
    ///
    /// [`OpenError`], which names the folder and says what to do.
    pub fn open(root: &Path, forbidden: &[&Path]) -> Result<Self, OpenError> {
        Self::open_with(root, forbidden, Arc::new(Undisturbed))
    }

    /// The same with a seam through which a test can kill the process at any change to the disk.
    ///
    /// # Errors
    ///
    /// As [`Workspace::open`].
    pub fn open_with(root: &Path, forbidden: &[&Path], seam: Arc<dyn Seam>) -> Result<Self, OpenError> {
        let unreachable = |source| OpenError::Unreachable { path: root.to_owned(), source };
        let path = fs::canonicalize(root).map_err(unreachable)?;
        if path == Path::new("/") {
            return Err(OpenError::Root);
        }
        if !fs::metadata(&path).map_err(unreachable)?.is_dir() {
            return Err(OpenError::NotADirectory { path });
        }
        for forbidden in forbidden {
            let forbidden = fs::canonicalize(forbidden).unwrap_or_else(|_| forbidden.to_path_buf());
            if forbidden.starts_with(&path) || path.starts_with(&forbidden) {
                return Err(OpenError::Forbidden { path, forbidden });
            }
        }
        let flags = FOLDER | OFlags::CLOEXEC;
        let root = openat(rustix::fs::CWD, &path, flags, Mode::empty()).at("opening", path.display())?;
        match accessat(&root, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => return Err(OpenError::ReadOnly { path }),
            checked => checked.at("checking the rights to", path.display())?,
        }
        let disk = Disk::of(&root, seam);
        let own = own_folder(&disk, &root, &path)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = openat(&own, "lock", flags, Mode::RUSR | Mode::WUSR)
            .at("opening", path.join(OWN).join("lock").display())?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => return Err(OpenError::InUse { path }),
            locked => locked.at("locking", path.join(OWN).join("lock").display())?,
        }
        let lock = Lock(lock);
        let part = |name: &'static str| -> Result<OwnedFd, OpenError> {
            let shown = path.join(OWN).join(name);
            folder(&disk, &own, name.as_ref()).at("opening", shown.display()).map_err(OpenError::from)
        };
        let (views, commits, trash) = (part("views")?, part("commits")?, part("trash")?);
        let stat = Stat::from(fstat(&root).at("looking at", path.display())?);
        let owner = geteuid().is_root().then_some(stat.owner);
        let trashed = AtomicU64::new(0);
        let (moving, last_commit, retention) = (Mutex::default(), Mutex::default(), Mutex::default());
        let inner = Inner {
            disk,
            path,
            root,
            own,
            views,
            commits,
            trash,
            trashed,
            owner,
            moving,
            hidden: Mutex::default(),
            last_commit,
            retention,
            _lock: lock,
        };
        inner.empty_trash()?;
        inner.probe()?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Where it is, without symbolic links.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Begins a view for one call. It is gone when the value is dropped, and with it all that was written there.
    ///
    /// `id` names its folder: 1 to 64 letters, digits, `-` and `_`, never used twice.
    ///
    /// # Errors
    ///
    /// [`ViewError::Id`], and what the file system refuses.
    pub fn view(&self, id: &str) -> Result<View, ViewError> {
        View::begin(Arc::clone(&self.inner), id)
    }

    /// Whether something that commits displaced waits for [`Workspace::clear`].
    #[must_use]
    pub fn has_to_clear(&self) -> bool {
        self.inner.retention().releasable() > 0
    }

    /// Removes what commits displaced and no view needs any more: see [`Workspace::finish`]. To be called after a view has ended. What is
    /// left when the process is lost goes when the workspace is opened again.
    ///
    /// # Errors
    ///
    /// What the file system refuses.
    pub fn clear(&self) -> Result<(), IoFailure> {
        self.inner.clear()
    }

    /// Brings every commit that was applied onto the disk for good.
    ///
    /// # Errors
    ///
    /// What the file system refuses. How much of it is on the disk is not known then, nor ever will be: a later sync may succeed without
    /// having brought what this one lost.
    pub fn sync(&self) -> Result<(), IoFailure> {
        let Inner { disk, own, path, .. } = &*self.inner;
        match disk.order() {
            // What is synced has to be changed last.
            Order::Kept => disk.now(own).and_then(|_| disk.sync(own)).at("syncing", path.display()),
            // Each was synced when it was applied.
            Order::Unknown => Ok(()),
        }
    }

    /// Removes what a process left that died: every view, and every staged commit that is not to be kept. To be called after opening,
    /// before the first view, with the commits that the ledger knows of.
    ///
    /// # Errors
    ///
    /// What the file system refuses.
    pub fn sweep(&self, keep: impl Fn(&str) -> bool) -> Result<(), IoFailure> {
        let inner = &self.inner;
        let old = |folder| names(folder).at("listing", inner.path.join(OWN).display());
        for view in old(&inner.views)? {
            inner.discard(&inner.views, &view).at("removing view", view.display())?;
        }
        for commit in old(&inner.commits)? {
            if !commit.to_str().is_some_and(&keep) {
                inner.discard(&inner.commits, &commit).at("removing the staged files of commit", commit.display())?;
            }
        }
        Ok(())
    }
}

impl Inner {
    /// Removes a folder of ours: first from its place, in one step, then from the disk.
    pub(crate) fn discard(&self, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        if stat_entry(folder, name)?.is_none() {
            return Ok(());
        }
        let trash = self.trashed.fetch_add(1, Ordering::Relaxed).to_string();
        self.disk.rename((folder, name), (&self.trash, trash.as_ref()), Rename::New)?;
        self.remove_trash(trash.as_ref())
    }

    /// Takes the slots of a commit from their place, in one step; `to` is their name in the trash. Nothing happens if they are not there.
    pub(crate) fn retire(&self, id: &str, to: &OsStr) -> Result<(), Errno> {
        match self.disk.rename((&self.commits, id.as_ref()), (&self.trash, to), Rename::New) {
            Err(Errno::NOENT) => return Ok(()),
            moved => moved?,
        }
        match self.disk.order() {
            Order::Kept => Ok(()),
            // Slots that turn up again after some of them were emptied would say that what was done is not.
            Order::Unknown => self.disk.sync(&self.commits),
        }
    }

    pub(crate) fn remove_trash(&self, name: &OsStr) -> Result<(), Errno> {
        remove_tree(&self.disk, &self.trash, name)
    }

    fn empty_trash(&self) -> Result<(), IoFailure> {
        let shown = self.path.join(OWN).join("trash");
        for name in names(&self.trash).at("listing", shown.display())? {
            remove_tree(&self.disk, &self.trash, &name).at("emptying", shown.display())?;
        }
        Ok(())
    }

    /// The folder that one path is in, beneath the root; following no link.
    pub(crate) fn parent(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        let parent = path.parent().expect("the root of a workspace is never put or taken away");
        crate::open::open_beneath(&self.root, &parent, FOLDER)
    }

    /// Holds off all other moving of names. Nobody else waits for that: neither views nor readers.
    pub(crate) fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A commit has moved names.
    pub(crate) fn moved(&self) -> Result<(), IoFailure> {
        let now = self.disk.now(&self.own).at("reading the time of", self.path.display())?;
        *self.last_commit.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        Ok(())
    }

    pub(crate) fn retention(&self) -> MutexGuard<'_, Retention<String>> {
        self.retention.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what commits displaced, where no view is left from before.
    pub(crate) fn clear(&self) -> Result<(), IoFailure> {
        let free = self.retention().release();
        let mut cleared = Ok(());
        for id in free {
            let removed = self.remove_trash(&retired_name(&id));
            cleared = cleared.and(removed.at("removing what was displaced by commit", id));
        }
        cleared
    }

    /// The file system's time at which a view begins: later than all that was committed.
    pub(crate) fn beginning(&self) -> Result<FileTime, Errno> {
        let last = *self.last_commit.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let now = self.disk.now(&self.own)?;
            // Only where files are stamped by a ticking clock (see `Disk::now`), and for no longer than one tick.
            if Some(now) != last {
                return Ok(now);
            }
            std::thread::yield_now();
        }
    }

    /// Whether changes can be kept apart and exchanged here: better known now than in the middle of a call.
    fn probe(&self) -> Result<(), OpenError> {
        let lacks = |lacks| OpenError::FileSystem { path: self.path.clone(), lacks };
        let [gone, file] = ["probe-gone", "probe-file"].map(OsStr::new);
        let probe = || -> Result<Option<&'static str>, Errno> {
            if self.disk.make_whiteout(&self.trash, gone).is_err() {
                return Ok(Some("device files 0:0 as marks for removed names (Linux 5.8)"));
            }
            let created = self.disk.create(&self.trash, file)?;
            if overlay_format::mark_opaque(&self.disk, &created).is_err() {
                return Ok(Some("user extended attributes"));
            }
            match self.disk.rename((&self.trash, gone), (&self.trash, file), Rename::Exchange) {
                Err(Errno::INVAL | Errno::NOSYS) => Ok(Some("the exchange of two names (renameat2)")),
                exchanged => exchanged.map(|()| None),
            }
        };
        let found = probe().at("trying out", self.path.join(OWN).display());
        self.empty_trash()?;
        found?.map_or(Ok(()), |missing| Err(lacks(missing)))
    }
}

/// A lock that is held.
struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave it locked for as long as a process that is just being started holds a copy.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Opens or makes `.belay`. A workspace may come from anywhere, and so may what is in its place.
fn own_folder(disk: &Disk, root: &OwnedFd, path: &Path) -> Result<OwnedFd, OpenError> {
    let shown = path.join(OWN);
    let occupied = |found| OpenError::Occupied { path: shown.clone(), found };
    let found = stat_entry(root, OWN.as_ref()).at("looking at", shown.display())?;
    if let Some(found) = found {
        if !found.is_directory() {
            return Err(occupied(found.kind.name()));
        }
        if found.owner.0 != geteuid().as_raw() {
            return Err(occupied("another user's"));
        }
    }
    let own = match folder(disk, root, OWN.as_ref()) {
        // What is no file system for files, such as /proc.
        Err(Errno::NOENT | Errno::OPNOTSUPP) => {
            return Err(OpenError::FileSystem { path: path.to_owned(), lacks: "folders that can be made" });
        }
        opened => opened.at("opening", shown.display())?,
    };
    disk.set_mode(&own, 0o700).at("closing to others", shown.display())?;
    if stat_entry(&own, ".gitignore".as_ref()).at("looking into", shown.display())?.is_none() {
        let ignore = disk.create(&own, ".gitignore".as_ref()).at("writing .gitignore in", shown.display())?;
        disk.write_all(&ignore, b"*\n").at("writing .gitignore in", shown.display())?;
    }
    Ok(own)
}

/// Opens a folder, made first if need be.
fn folder(disk: &Disk, parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match disk.make_folder(parent, name, 0o700) {
        Ok(()) => disk.sync(parent.as_fd())?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    open_entry(parent, name, FOLDER)
}
