//! A workspace: a directory that one process has open, with Belay's own directory inside it.
//!
//! It is inside the workspace because a commit renames files, which works within one file system only.

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
    open::{DIRECTORY, names, open_entry, stat_entry},
    order::Order,
    overlay_format,
    path::{OWN, RelPath},
    remove::remove_tree,
    retention::Retention,
    stat::{FileTime, Stat},
    stores,
    view::{View, ViewError},
};

/// An open workspace. Clones share it.
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
    /// The owner of committed files, if the runner is root.
    pub(crate) owner: Option<(u32, u32)>,
    /// Held while a commit renames files.
    moving: Mutex<()>,
    /// When a commit last renamed files.
    last_commit: Mutex<Option<FileTime>>,
    /// The replaced files, by the ids of their commits.
    retention: Mutex<Retention<String>>,
    /// The directories hidden from commands.
    pub(crate) hidden: Mutex<stores::Hidden>,
    _lock: Lock,
}

/// Why a directory cannot be opened as a workspace.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It does not exist, or cannot be reached.
    #[error("cannot access workspace `{path}`: {source}; create it, or name another directory")]
    Unreachable {
        /// As given.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is a file.
    #[error("workspace `{path}` is not a directory: name the directory that contains the files")]
    NotADirectory {
        /// Its path.
        path: PathBuf,
    },
    /// It is `/`.
    #[error("workspace `/` is the whole machine: name the directory of one project")]
    Root,
    /// It is not writable.
    #[error(
        "workspace `{path}` is not writable by the user that runs Belay: change its owner or mode, or name another directory"
    )]
    ReadOnly {
        /// Its path.
        path: PathBuf,
    },
    /// It contains, or is in, a directory that calls must not reach.
    #[error(
        "workspace `{path}` contains, or is inside, `{forbidden}`, which calls must not access: use separate directories"
    )]
    Forbidden {
        /// Its path.
        path: PathBuf,
        /// The directory that calls must not reach.
        forbidden: PathBuf,
    },
    /// Another entry has the name of Belay's own directory.
    #[error("`{path}` is reserved for Belay's own files, but it is {found}: move it away")]
    Occupied {
        /// The path.
        path: PathBuf,
        /// The entry that is there.
        found: &'static str,
    },
    /// Another process has it open.
    #[error("workspace `{path}` is in use by another Belay: stop it, or connect to it as a client")]
    InUse {
        /// Its path.
        path: PathBuf,
    },
    /// The file system lacks a required feature.
    #[error(
        "the file system of workspace `{path}` does not support {lacks}, which views need: use a local file system such as ext4, xfs or btrfs"
    )]
    FileSystem {
        /// Its path.
        path: PathBuf,
        /// The missing feature.
        lacks: &'static str,
    },
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl Workspace {
    /// Opens a directory as a workspace, creating Belay's own directory in it if needed. Only one process can have it open.
    ///
    /// `forbidden` are directories that calls must never reach, such as the one with Belay's stores and keys.
    ///
    /// # Errors
    ///
    /// [`OpenError`], which names the directory and says what to do.
    pub fn open(root: &Path, forbidden: &[&Path]) -> Result<Self, OpenError> {
        Self::open_with(root, forbidden, Arc::new(Undisturbed))
    }

    /// As [`Workspace::open`], with a seam at which a test can kill the process before any change to the disk.
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
        let flags = DIRECTORY | OFlags::CLOEXEC;
        let root = openat(rustix::fs::CWD, &path, flags, Mode::empty()).at("opening", path.display())?;
        match accessat(&root, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS) {
            Err(Errno::ACCESS | Errno::ROFS | Errno::PERM) => return Err(OpenError::ReadOnly { path }),
            checked => checked.at("checking the permissions of", path.display())?,
        }
        let disk = Disk::of(&root, seam);
        let own = own_directory(&disk, &root, &path)?;
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
        let stat = Stat::from(fstat(&root).at("inspecting", path.display())?);
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

    /// Its canonical path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Creates a view for one call. It is removed, with everything written to it, when the value is dropped.
    ///
    /// `id` names its directory: 1 to 64 letters, digits, `-` and `_`, never reused.
    ///
    /// # Errors
    ///
    /// [`ViewError::Id`], or an error of the file system.
    pub fn view(&self, id: &str) -> Result<View, ViewError> {
        View::begin(Arc::clone(&self.inner), id)
    }

    /// Whether replaced files wait for [`Workspace::clear`].
    #[must_use]
    pub fn has_to_clear(&self) -> bool {
        self.inner.retention().releasable() > 0
    }

    /// Removes replaced files that no view needs any more: see [`Workspace::finish`]. Call it after a view has ended. What is left after a
    /// crash is removed at the next opening of the workspace.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn clear(&self) -> Result<(), IoFailure> {
        self.inner.clear()
    }

    /// Makes every applied commit durable.
    ///
    /// # Errors
    ///
    /// An error of the file system. How much is durable is unknown then, and stays so: a later sync may succeed without having written what
    /// this one lost.
    pub fn sync(&self) -> Result<(), IoFailure> {
        let Inner { disk, own, path, .. } = &*self.inner;
        match disk.order() {
            // The synced directory has to be the last change.
            Order::Kept => disk.now(own).and_then(|_| disk.sync(own)).at("syncing", path.display()),
            // Each commit was synced when it was applied.
            Order::Unknown => Ok(()),
        }
    }

    /// Removes what a crashed process left: every view, and every staged commit that `keep` rejects. Call it after opening, before the
    /// first view, with the commits in the ledger.
    ///
    /// # Errors
    ///
    /// An error of the file system.
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
    /// Removes a directory of ours: first moves it to the trash, in one step, then deletes it.
    pub(crate) fn discard(&self, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        if stat_entry(folder, name)?.is_none() {
            return Ok(());
        }
        let trash = self.trashed.fetch_add(1, Ordering::Relaxed).to_string();
        self.disk.rename((folder, name), (&self.trash, trash.as_ref()), Rename::New)?;
        self.remove_trash(trash.as_ref())
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

    fn empty_trash(&self) -> Result<(), IoFailure> {
        let shown = self.path.join(OWN).join("trash");
        for name in names(&self.trash).at("listing", shown.display())? {
            remove_tree(&self.disk, &self.trash, &name).at("emptying", shown.display())?;
        }
        Ok(())
    }

    /// The parent directory of a path beneath the root, following no link.
    pub(crate) fn parent(&self, path: &RelPath) -> Result<OwnedFd, Errno> {
        let parent = path.parent().expect("no operation touches the root");
        crate::open::open_beneath(&self.root, &parent, DIRECTORY)
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

    /// Removes replaced files that no earlier view may use.
    pub(crate) fn clear(&self) -> Result<(), IoFailure> {
        let free = self.retention().release();
        let mut cleared = Ok(());
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
    fn probe(&self) -> Result<(), OpenError> {
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
struct Lock(OwnedFd);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing alone would leave it locked while a process that is just being started holds a copy.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Opens or creates `.belay`. The workspace may come from anywhere, and so may an entry of this name.
fn own_directory(disk: &Disk, root: &OwnedFd, path: &Path) -> Result<OwnedFd, OpenError> {
    let shown = path.join(OWN);
    let occupied = |found| OpenError::Occupied { path: shown.clone(), found };
    let found = stat_entry(root, OWN.as_ref()).at("inspecting", shown.display())?;
    if let Some(found) = found {
        if !found.is_directory() {
            return Err(occupied(found.kind.name()));
        }
        if found.owner.0 != geteuid().as_raw() {
            return Err(occupied("another user's"));
        }
    }
    let own = match folder(disk, root, OWN.as_ref()) {
        // A file system that is not for files, such as /proc.
        Err(Errno::NOENT | Errno::OPNOTSUPP) => {
            return Err(OpenError::FileSystem { path: path.to_owned(), lacks: "creating directories" });
        }
        opened => opened.at("opening", shown.display())?,
    };
    disk.set_mode(&own, 0o700).at("restricting access to", shown.display())?;
    if stat_entry(&own, ".gitignore".as_ref()).at("inspecting", shown.display())?.is_none() {
        let ignore = disk.create(&own, ".gitignore".as_ref()).at("writing .gitignore in", shown.display())?;
        disk.write_all(&ignore, b"*\n").at("writing .gitignore in", shown.display())?;
    }
    Ok(own)
}

/// Opens a directory, and creates it if needed.
fn folder(disk: &Disk, parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    match disk.create_directory(parent, name, 0o700) {
        Ok(()) => disk.sync(parent.as_fd())?,
        Err(Errno::EXIST) => {}
        Err(error) => return Err(error),
    }
    open_entry(parent, name, DIRECTORY)
}
