//! A workspace: a directory that one process has open, with Belay's own directory inside it.
//!
//! It is inside the workspace because a commit renames files, which works within one file system only.

use std::{
    ffi::OsStr,
    fs,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    sync::{Arc, Mutex, atomic::AtomicU64},
};

use rustix::{
    fs::{Access, AtFlags, FlockOperation, Mode, OFlags, accessat, flock, fstat, openat, statat},
    io::Errno,
    process::geteuid,
};

use crate::{
    caches::{self, CacheChanges},
    disk::{Disk, IoContext as _, IoFailure, QuietSeam, Seam},
    inner::{Inner, Lock},
    open::{DIRECTORY, names, open_entry, stat_entry},
    open_error::OpenError,
    order::Order,
    path::OWN,
    stat::Stat,
    view::View,
    view_error::ViewError,
};

/// An open workspace. Clones share it.
#[derive(Clone)]
pub struct Workspace {
    pub(crate) inner: Arc<Inner>,
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
        Self::open_with(root, forbidden, Arc::new(QuietSeam))
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
            Err(Errno::ROFS) => return Err(OpenError::ReadOnlyFileSystem { path }),
            Err(Errno::ACCESS | Errno::PERM) => return Err(OpenError::ReadOnly { path }),
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
        let [views, commits, layers, trash] = [part("views")?, part("commits")?, part("layers")?, part("trash")?];
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
            layers,
            trash,
            trashed,
            owner,
            moving,
            hidden: Mutex::default(),
            last_commit,
            retention,
            left: Mutex::default(),
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

    /// Whether the directory, or Belay's own in it, was removed or replaced since it was opened: no view can be created in this one any more.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        let Inner { path, own, .. } = &*self.inner;
        let opened = fstat(own).map(|stat| (stat.st_dev, stat.st_ino));
        match statat(rustix::fs::CWD, path.join(OWN), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => opened.is_ok_and(|opened| opened != (there.st_dev, there.st_ino)),
            Err(error) => matches!(error, Errno::NOENT | Errno::NOTDIR),
        }
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

    /// Whether files wait for [`Workspace::clear`].
    #[must_use]
    pub fn has_to_clear(&self) -> bool {
        self.inner.has_to_clear()
    }

    /// Removes what views that have ended have left, and replaced files that no view needs any more: see [`Workspace::finish`]. Call it after a view has
    /// ended. What is left after a crash is removed at the next opening of the workspace.
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

    /// Keeps the changes of caches in a view when that is staged or dropped, until [`Workspace::caches`] takes them; a sweep removes those of unknown
    /// commits.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn stage_caches(&self, view: &View) -> Result<(), IoFailure> {
        caches::stage(&self.inner, view)
    }

    /// The changes of caches that the call with this view left, if it left any.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn caches(&self, id: &str) -> Result<Option<CacheChanges>, IoFailure> {
        caches::of_view(&self.inner, id)
    }

    /// Removes what a crashed process left: every view, and every staged commit that `keep` rejects, with its changes of caches. Call it after opening, before the
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
        caches::sweep(inner, keep)
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
