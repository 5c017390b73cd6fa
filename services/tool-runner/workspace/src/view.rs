//! What one call sees: the workspace, with the call's own changes over it.
//!
//! A command gets the view as a mounted overlay (the sandbox mounts it, see [`View::folder`]); a file tool uses the functions here on the
//! same layers, without a mount and in the same format. Nothing reaches the workspace before a commit, and dropping the view is all that
//! it takes to undo a call.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read as _, Seek as _},
    os::fd::{AsFd as _, OwnedFd},
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use rustix::{
    fs::{fstat, readlinkat},
    io::Errno,
};

use crate::{
    disk::{At as _, IoFailure, Rename},
    lookup::{Entry, Follow, Found, Layer, Merged, find},
    open::{FOLDER, NotAFile, open_entry, open_file, stat_entry},
    overlay_format::{is_whiteout, mark_copied_up, mark_opaque},
    path::{OWN, RelPath},
    remove::remove_tree,
    stat::{FileKind, FileTime, Stat},
    workspace::Inner,
};

/// The folder of a view that holds its changes.
pub const UPPER: &str = "upper";

/// The folder of a view that a mounted overlay uses for itself.
pub const WORK: &str = "work";

/// Where a file is written before it takes its place.
const INCOMING: &str = "incoming";

/// One call's view. Dropping it discards it; [`crate::Workspace::stage`] turns it into a commit.
///
/// A view that a command changes while it is mounted must not be used through these functions at the same time.
pub struct View {
    pub(crate) workspace: Arc<Inner>,
    pub(crate) id: String,
    /// The view's own folder, opened.
    pub(crate) own: OwnedFd,
    /// The file system's time when it began.
    pub(crate) began: FileTime,
    /// By which what commits displace is kept for it.
    number: u64,
}

/// What a path in a view is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its kind.
    pub kind: FileKind,
    /// Its size in bytes; only a regular file's means anything.
    pub size: u64,
    /// Its permission bits, `07777`.
    pub mode: u32,
    /// When it was last modified.
    pub modified: FileTime,
    /// What a symbolic link says, made printable.
    pub target: Option<String>,
}

/// Why something in a view could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The view's name cannot be used.
    #[error("view id `{id}` {why}")]
    Id {
        /// As it was given.
        id: String,
        /// What about it.
        why: &'static str,
    },
    /// Nothing is there.
    #[error("`{path}` does not exist")]
    NotFound {
        /// Where.
        path: String,
    },
    /// A symbolic link leads out of the workspace.
    #[error(
        "`{path}` is outside workspace: it is a symbolic link to `{target}`; use a path that stays in the workspace"
    )]
    Outside {
        /// The link.
        path: String,
        /// What it says.
        target: String,
    },
    /// A change would go through a symbolic link, or too many links lead to one another.
    #[error("`{path}` is a symbolic link to `{target}`, which is not followed here: use the path it leads to")]
    Link {
        /// The link.
        path: String,
        /// What it says.
        target: String,
    },
    /// A folder was needed.
    #[error("`{path}` is not a directory")]
    NotADirectory {
        /// Where.
        path: String,
    },
    /// A regular file was needed.
    #[error("`{path}` is {}: only regular files are read and written", kind.name())]
    NotAFile {
        /// Where.
        path: String,
        /// What it is.
        kind: FileKind,
    },
    /// It is the state directory of a Belay.
    #[error("`{path}` is outside workspace: it holds the stores and keys of a Belay, which no call reaches")]
    Stores {
        /// Where.
        path: String,
    },
    /// The workspace itself cannot be overwritten or removed.
    #[error("`.` is the workspace itself: name something in it")]
    Root,
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

impl View {
    pub(crate) fn begin(workspace: Arc<Inner>, id: &str) -> Result<Self, ViewError> {
        let refused = |why| ViewError::Id { id: crate::path::printable(id.as_bytes()), why };
        if !is_plain(id) {
            return Err(refused("is not 1 to 64 letters, digits, `-` and `_`"));
        }
        if stat_entry(&workspace.commits, id.as_ref()).at("looking for the commit", id)?.is_some() {
            return Err(refused("names a commit already: give each call its own"));
        }
        match workspace.disk.make_folder(&workspace.views, id.as_ref(), 0o700) {
            Err(Errno::EXIST) => return Err(refused("names a view already: give each call its own")),
            made => made.at("making the view", id)?,
        }
        let own = open_entry(&workspace.views, id.as_ref(), FOLDER).at("opening the view", id)?;
        let number = workspace.retention().begin();
        let mut view = Self { workspace, id: id.to_owned(), own, began: FileTime(0, 0), number };
        view.began = view.workspace.beginning().at("reading the time of", view.workspace.path.display())?;
        Ok(view)
    }

    /// Its name, which will be its commit's.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The folders that lie below its changes, the topmost first, as an overlay takes them.
    ///
    /// [`View::hidden`] in the last of them has to be hidden from the command.
    #[must_use]
    pub fn lower(&self) -> Vec<PathBuf> {
        vec![self.workspace.path.clone()]
    }

    /// The folders that a command must not see, relative to the workspace: [`OWN`], that of every workspace inside this one, and every state
    /// directory of a Belay, as far as they are found. Looking for them takes some milliseconds at most, on average.
    #[must_use]
    pub fn hidden(&self) -> Vec<PathBuf> {
        let mut hidden = self.workspace.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        hidden.next(self.workspace.root.as_fd()).to_vec()
    }

    /// The view's own folder. Whoever mounts it makes [`UPPER`] and [`WORK`] in it, unless a file tool made the first already.
    ///
    /// Commits to the workspace may be applied while it is mounted, because they replace files and folders by rename and never write into
    /// them: a name that was looked up goes on showing what it showed, whole, as long as the view is open; any other shows what is there
    /// now. The kernel leaves it undefined what a listing of a folder shows that was changed meanwhile, but does not fail (seen on Linux
    /// 6.18, and held by `tests/workspace/beside.rs`).
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.workspace.path.join(OWN).join("views").join(&self.id)
    }

    /// Bytes of a file: all, or at most `length` from `start` on. Fewer if the file ends before.
    ///
    /// # Errors
    ///
    /// As [`View::open`], and what reading refuses.
    pub fn read(&self, path: &RelPath, start: u64, length: Option<u64>) -> Result<Vec<u8>, ViewError> {
        let failed = |source: io::Error| IoFailure { doing: "reading", path: path.to_string(), source };
        let mut file = self.open(path)?;
        let mut bytes = Vec::new();
        file.seek(io::SeekFrom::Start(start)).map_err(failed)?;
        file.take(length.unwrap_or(u64::MAX)).read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// A file, to be read as a stream. Symbolic links are followed as long as they stay in the workspace.
    ///
    /// # Errors
    ///
    /// [`ViewError::NotFound`], [`ViewError::NotAFile`] for folders, pipes, sockets and devices (without waiting for any of them),
    /// [`ViewError::Outside`] for a link that leads out.
    pub fn open(&self, path: &RelPath) -> Result<File, ViewError> {
        let root = self.root()?;
        let found = find(&root, path, Follow::All)?;
        let Found { folder, name: Some(name), entry } = &found else {
            return Err(not_a_file(path, FileKind::Directory));
        };
        let Some(entry) = entry else {
            return Err(ViewError::NotFound { path: path.to_string() });
        };
        match open_file(folder.layer(entry.layer), name) {
            Ok((file, _)) => Ok(file.into()),
            Err(NotAFile::Other(found)) => Err(not_a_file(path, found.kind)),
            Err(NotAFile::Unopened(error)) => Err(Err::<(), _>(error).at("opening", path).unwrap_err().into()),
        }
    }

    /// What is at a path. A symbolic link is described itself; those on the way to it are followed.
    ///
    /// # Errors
    ///
    /// [`ViewError::NotFound`], [`ViewError::Outside`].
    pub fn metadata(&self, path: &RelPath) -> Result<Metadata, ViewError> {
        let root = self.root()?;
        let found = find(&root, path, Follow::OnTheWay)?;
        let Some(name) = &found.name else {
            let stat = fstat(&self.workspace.root).at("looking at", path)?.into();
            return Ok(metadata(&stat, None));
        };
        let Some(entry) = found.entry else {
            return Err(ViewError::NotFound { path: path.to_string() });
        };
        let target = (entry.stat.kind == FileKind::Symlink)
            .then(|| readlinkat(found.folder.layer(entry.layer), &**name, Vec::new()))
            .transpose()
            .at("reading the link", path)?;
        Ok(metadata(&entry.stat, target.map(|target| crate::path::printable(target.as_bytes()))))
    }

    /// What is in a folder: its paths, sorted, with their kinds. Symbolic links to folders are followed; those in it are not.
    ///
    /// # Errors
    ///
    /// [`ViewError::NotFound`], [`ViewError::NotADirectory`], [`ViewError::Outside`].
    pub fn list(&self, path: &RelPath) -> Result<Vec<(RelPath, FileKind)>, ViewError> {
        let root = self.root()?;
        let found = find(&root, path, Follow::All)?;
        let folder = match (&found.name, found.entry) {
            (None, _) => found.folder,
            (Some(_), None) => return Err(ViewError::NotFound { path: path.to_string() }),
            (Some(name), Some(entry)) if entry.stat.is_directory() => found.folder.folder(name, entry)?,
            (Some(_), Some(_)) => return Err(ViewError::NotADirectory { path: path.to_string() }),
        };
        let entries = folder.entries().at("listing", path)?;
        Ok(entries.into_iter().map(|(name, entry)| (path.join(&name), entry.stat.kind)).collect())
    }

    /// Writes a whole file, making the folders above it (0755) where they are missing.
    ///
    /// Without `mode` a file that is overwritten keeps its own, and a new one gets 0644.
    ///
    /// # Errors
    ///
    /// [`ViewError::Link`] where a symbolic link is in its place or above it, [`ViewError::NotAFile`], [`ViewError::NotADirectory`].
    /// What was there before stays.
    pub fn write(&mut self, path: &RelPath, bytes: &[u8], mode: Option<u32>) -> Result<(), ViewError> {
        let (parent, name) = path.parent().zip(path.name()).ok_or(ViewError::Root)?;
        let root = self.writable_root()?;
        let folder = self.make_folders(root, &parent)?;
        let there = folder.entry(name).at("looking at", path)?;
        match there.map(|there| there.stat.kind) {
            None | Some(FileKind::File) => {}
            Some(FileKind::Symlink) => return Err(link(&folder, name, there.expect("it is there"))?),
            Some(kind) => return Err(not_a_file(path, kind)),
        }
        let kept = there.map(|there| there.stat.mode & 0o1777);
        let overwrites = folder.below(name).at("looking at", path)?.is_some_and(|below| below.is_file());

        let disk = &self.workspace.disk;
        remove_tree(disk, &self.own, INCOMING.as_ref()).at("making room for", path)?;
        let file = disk.create(&self.own, INCOMING.as_ref()).at("creating", path)?;
        disk.write_all(&file, bytes).at("writing", path)?;
        if overwrites {
            mark_copied_up(disk, &file).at("marking", path)?;
        }
        disk.set_mode(&file, mode.or(kept).unwrap_or(0o644) & 0o1777).at("setting the mode of", path)?;
        let upper = folder.layer(Layer::Upper);
        disk.rename((&self.own, INCOMING.as_ref()), (upper, name), Rename::Replace).at("putting in place", path)?;
        Ok(())
    }

    /// Removes a file, a link itself, or a folder with all that is in it.
    ///
    /// # Errors
    ///
    /// [`ViewError::NotFound`], and [`ViewError::Link`] where a symbolic link is above it.
    pub fn remove(&mut self, path: &RelPath) -> Result<(), ViewError> {
        let (parent, name) = path.parent().zip(path.name()).ok_or(ViewError::Root)?;
        let root = self.writable_root()?;
        if find(&root, path, Follow::None)?.entry.is_none() {
            return Err(ViewError::NotFound { path: path.to_string() });
        }
        let folder = self.make_folders(root, &parent)?;
        let upper = folder.layer(Layer::Upper);
        let disk = &self.workspace.disk;
        remove_tree(disk, upper, name).at("removing", path)?;
        if folder.below(name).at("looking at", path)?.is_some() {
            disk.make_whiteout(upper, name).at("marking as removed", path)?;
        }
        Ok(())
    }

    /// The upper folder, if anything made it yet.
    pub(crate) fn upper(&self) -> Result<Option<OwnedFd>, IoFailure> {
        match open_entry(&self.own, UPPER.as_ref(), FOLDER) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some).at("opening the changes of view", &self.id),
        }
    }

    /// Its top folder, to be looked into.
    fn root(&self) -> Result<Merged<'_>, IoFailure> {
        let lower = self.workspace.root.try_clone();
        let lower = lower.map_err(|source| IoFailure { doing: "opening", path: ".".to_owned(), source })?;
        Ok(Merged {
            disk: &self.workspace.disk,
            path: RelPath::root(),
            upper: self.upper()?.map(Arc::new),
            lower: Some(Arc::new(lower)),
        })
    }

    /// The same, with an upper folder in any case.
    fn writable_root(&self) -> Result<Merged<'_>, IoFailure> {
        let mode = Stat::from(fstat(&self.workspace.root).at("looking at", ".")?).mode;
        match self.workspace.disk.make_folder(&self.own, UPPER.as_ref(), mode & 0o1777) {
            Ok(()) | Err(Errno::EXIST) => self.root(),
            Err(error) => Err(error).at("making a place for changes in view", &self.id),
        }
    }

    /// The folder at `path`, in the upper layer in any case: copied up, or new where there is none.
    fn make_folders<'a>(&'a self, root: Merged<'a>, path: &RelPath) -> Result<Merged<'a>, ViewError> {
        let disk = &self.workspace.disk;
        let mut at = root;
        for name in path.names() {
            let place = at.path.join(name);
            let upper = at.layer(Layer::Upper);
            let there = at.entry(name).at("looking at", &place)?;
            match there {
                Some(entry) if entry.stat.is_directory() => {
                    if entry.layer == Layer::Lower {
                        disk.make_folder(upper, name, entry.stat.mode & 0o1777).at("making", &place)?;
                        let made = open_entry(upper, name, FOLDER).at("opening", &place)?;
                        mark_copied_up(disk, &made).at("marking", &place)?;
                    }
                }
                Some(entry) if entry.stat.kind == FileKind::Symlink => return Err(link(&at, name, entry)?),
                Some(_) => return Err(ViewError::NotADirectory { path: place.to_string() }),
                None => {
                    if let Some(mark) = stat_entry(upper, name).at("looking at", &place)?
                        && is_whiteout(disk, upper, name, &mark).at("looking at", &place)?
                    {
                        disk.unlink(upper, name).at("making room for", &place)?;
                    }
                    disk.make_folder(upper, name, 0o755).at("making", &place)?;
                    if at.below(name).at("looking at", &place)?.is_some() {
                        let made = open_entry(upper, name, FOLDER).at("opening", &place)?;
                        mark_opaque(disk, &made).at("marking", &place)?;
                    }
                }
            }
            let stat = stat_entry(upper, name).and_then(|made| made.ok_or(Errno::NOENT)).at("looking at", &place)?;
            at = at.folder(name, Entry { layer: Layer::Upper, stat })?;
        }
        Ok(at)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // What cannot be removed now is swept when the workspace is opened the next time; it changes nothing until then.
        let _ = self.workspace.discard(&self.workspace.views, self.id.as_ref());
        self.workspace.retention().end(self.number);
    }
}

/// Whether that can be a view's name, and a commit's.
pub(crate) fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&id.len()) && id.bytes().all(plain)
}

fn metadata(stat: &Stat, target: Option<String>) -> Metadata {
    Metadata { kind: stat.kind, size: stat.size, mode: stat.mode, modified: stat.modified, target }
}

fn not_a_file(path: &RelPath, kind: FileKind) -> ViewError {
    ViewError::NotAFile { path: path.to_string(), kind }
}

/// The refusal of a link, with what it says.
fn link(folder: &Merged<'_>, name: &OsStr, entry: Entry) -> Result<ViewError, IoFailure> {
    let path = folder.path.join(name);
    let target = readlinkat(folder.layer(entry.layer), name, Vec::new()).at("reading the link", &path)?;
    let target = target.into_bytes();
    let leads = crate::lookup::follow_text(&folder.path, &target).filter(|end| !end.is_own());
    let (path, target) = (path.to_string(), crate::path::printable(&target));
    Ok(if leads.is_some() { ViewError::Link { path, target } } else { ViewError::Outside { path, target } })
}
