//! The view of one call: the workspace, overlaid with the changes of the call.
//!
//! A command gets the view as a mounted overlay (the sandbox mounts it, see [`View::directory`]); a file tool uses the functions here on the
//! same layers, without a mount and in the same format. Nothing reaches the workspace before a commit, and dropping the view undoes the
//! call.

use std::{
    collections::BTreeMap,
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
    disk::{IoContext as _, IoFailure, Rename},
    dropped::{Dropped, DroppedChange},
    inner::Inner,
    lookup::{Entry, Follow, Layer, MergedFolder, PathEntry, find},
    manifest::Manifest,
    open::{DIRECTORY, NotAFile, open_entry, open_file, stat_entry},
    overlay_format::{is_whiteout, mark_copied_up, mark_opaque},
    path::{OWN, RelPath},
    remove::remove_tree,
    stat::{FileKind, FileTime, Stat},
    view_error::ViewError,
};

/// The directory of a view that holds its changes.
pub const UPPER: &str = "upper";

/// The directory of a view that a mounted overlay uses internally.
pub const WORK: &str = "work";

/// The directory of a view for the changes of the caches that a command sees: for each a directory of its name, with [`UPPER`] and [`WORK`].
pub const CACHES: &str = "caches";

/// Where a file is written before it is renamed into place.
const INCOMING: &str = "incoming";

/// The view of a call. Dropping it discards it; [`crate::Workspace::stage`] turns it into a commit.
///
/// While a command uses the mounted view, these functions must not be called.
pub struct View {
    pub(crate) workspace: Arc<Inner>,
    pub(crate) id: String,
    /// The directory of the view.
    pub(crate) own: OwnedFd,
    /// The time of the file system when it began.
    pub(crate) began: FileTime,
    /// The changes that it began with, beyond the workspace: see [`crate::Workspace::view_over`].
    pub(crate) before: Manifest,
    /// The changes of those layers that it does not begin with: see [`crate::Workspace::view_without_conflicts`].
    pub(crate) dropped: Dropped,
    /// Its number in [`crate::retention::Retention`], by which replaced files are kept for it.
    number: u64,
}

/// The metadata of a path in a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Its type.
    pub kind: FileKind,
    /// Its size in bytes; meaningful for regular files only.
    pub size: u64,
    /// Its permission bits, `07777`.
    pub mode: u32,
    /// When it was last modified.
    pub modified: FileTime,
    /// The target of a symbolic link, escaped.
    pub target: Option<String>,
}

impl View {
    pub(crate) fn begin(workspace: Arc<Inner>, id: &str) -> Result<Self, ViewError> {
        let refused = |why| ViewError::Id { id: belay_text::visible_bytes(id.as_bytes()), why };
        if !is_plain(id) {
            return Err(refused("is not 1 to 64 letters, digits, `-` and `_`"));
        }
        if stat_entry(&workspace.commits, id.as_ref()).at("looking for the commit", id)?.is_some() {
            return Err(refused("is already used by a commit: use a new id for each call"));
        }
        match workspace.disk.create_directory(&workspace.views, id.as_ref(), 0o700) {
            Err(Errno::EXIST) => return Err(refused("is already used by a view: use a new id for each call")),
            made => made.at("creating the view", id)?,
        }
        let own = open_entry(&workspace.views, id.as_ref(), DIRECTORY).at("opening the view", id)?;
        let number = workspace.retention().begin();
        let mut view = Self {
            workspace,
            id: id.to_owned(),
            own,
            began: FileTime(0, 0),
            before: Manifest::default(),
            dropped: Dropped::default(),
            number,
        };
        view.began = view.workspace.beginning().at("reading the time of", view.workspace.path.display())?;
        Ok(view)
    }

    /// The changes of the layers that it does not begin with, because the workspace has changed since at their paths: see
    /// [`crate::Workspace::view_without_conflicts`]. Sorted by path.
    #[must_use]
    pub fn dropped_changes(&self) -> &[DroppedChange] {
        &self.dropped.changes
    }

    /// How many more such changes there are than [`View::dropped_changes`] lists.
    #[must_use]
    pub fn unlisted_dropped_changes(&self) -> usize {
        self.dropped.unlisted
    }

    /// Its id, which is also the id of its commit.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The lower layers, topmost first, as an overlay takes them.
    ///
    /// [`View::hidden`] in the last of them must be hidden from the command.
    #[must_use]
    pub fn lower(&self) -> Vec<PathBuf> {
        vec![self.workspace.path.clone()]
    }

    /// The directories that a command must not see, relative to the workspace: [`OWN`], that of every workspace inside this one, and every
    /// state directory of a Belay, as far as they are found. The search takes some milliseconds at most, on average.
    #[must_use]
    pub fn hidden(&self) -> Vec<PathBuf> {
        let mut hidden = self.workspace.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        hidden.next(self.workspace.root.as_fd()).to_vec()
    }

    /// The directory of the view. The caller that mounts it creates [`UPPER`] and [`WORK`] in it, unless a file tool has created the first.
    ///
    /// Commits to the workspace may be applied while it is mounted, because they replace files and directories by rename and never write
    /// into them: a name that was looked up keeps showing the same file or directory while the view is open; any other shows the current
    /// one. The kernel leaves the listing of a changed directory undefined, but it does not fail (observed on Linux 6.18, and tested in
    /// `tests/workspace/beside.rs`).
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.workspace.path.join(OWN).join("views").join(&self.id)
    }

    /// Reads a file: all of it, or at most `length` bytes from `start`. Returns fewer if the file ends first.
    ///
    /// # Errors
    ///
    /// As [`View::open`], and errors of reading.
    pub fn read(&self, path: &RelPath, start: u64, length: Option<u64>) -> Result<Vec<u8>, ViewError> {
        let failed = |source: io::Error| IoFailure { doing: "reading", path: path.to_string(), source };
        let mut file = self.open(path)?;
        let mut bytes = Vec::new();
        file.seek(io::SeekFrom::Start(start)).map_err(failed)?;
        file.take(length.unwrap_or(u64::MAX)).read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// Opens a file for reading. Follows symbolic links that stay in the workspace.
    ///
    /// # Errors
    ///
    /// [`ViewError::NotFound`], [`ViewError::NotAFile`] for directories, pipes, sockets and devices (without blocking on any),
    /// [`ViewError::Outside`] for a link that leaves the workspace.
    pub fn open(&self, path: &RelPath) -> Result<File, ViewError> {
        let root = self.root()?;
        let found = find(&root, path, Follow::All)?;
        let PathEntry { folder, name: Some(name), entry } = &found else {
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

    /// The metadata of a path. Does not follow a symbolic link at its end.
    ///
    /// # Errors
    ///
    /// [`ViewError::NotFound`], [`ViewError::Outside`].
    pub fn metadata(&self, path: &RelPath) -> Result<Metadata, ViewError> {
        let root = self.root()?;
        let found = find(&root, path, Follow::Parents)?;
        let Some(name) = &found.name else {
            let stat = fstat(&self.workspace.root).at("inspecting", path)?.into();
            return Ok(metadata(&stat, None));
        };
        let Some(entry) = found.entry else {
            return Err(ViewError::NotFound { path: path.to_string() });
        };
        let target = (entry.stat.kind == FileKind::Symlink)
            .then(|| readlinkat(found.folder.layer(entry.layer), &**name, Vec::new()))
            .transpose()
            .at("reading the link", path)?;
        Ok(metadata(&entry.stat, target.map(|target| crate::path::encoded(target.as_bytes()))))
    }

    /// The entries of a directory with their types, sorted by path. Follows symbolic links to the directory, not those in it.
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

    /// Writes a whole file, creating missing parent directories (0755).
    ///
    /// Without `mode` an existing file keeps its own, and a new one gets 0644.
    ///
    /// # Errors
    ///
    /// [`ViewError::Link`] if the path or a parent is a symbolic link, [`ViewError::NotAFile`], [`ViewError::NotADirectory`]. The file is
    /// unchanged then.
    pub fn write(&mut self, path: &RelPath, bytes: &[u8], mode: Option<u32>) -> Result<(), ViewError> {
        let (parent, name) = path.parent().zip(path.name()).ok_or(ViewError::Root)?;
        let root = self.writable_root()?;
        let folder = self.create_directories(root, &parent)?;
        let there = folder.entry(name).at("inspecting", path)?;
        match there.map(|there| there.stat.kind) {
            None | Some(FileKind::File) => {}
            Some(FileKind::Symlink) => {
                return Err(link(&folder, name, there.expect("the match arm requires an entry"))?);
            }
            Some(kind) => return Err(not_a_file(path, kind)),
        }
        let kept = there.map(|there| there.stat.mode & 0o1777);
        let overwrites = folder.below(name).at("inspecting", path)?.is_some_and(|below| below.is_file());

        let disk = &self.workspace.disk;
        remove_tree(disk, &self.own, INCOMING.as_ref()).at("removing an old entry at", path)?;
        let file = disk.create(&self.own, INCOMING.as_ref()).at("creating", path)?;
        disk.write_all(&file, bytes).at("writing", path)?;
        if overwrites {
            mark_copied_up(disk, &file).at("marking", path)?;
        }
        disk.set_mode(&file, mode.or(kept).unwrap_or(0o644) & 0o1777).at("setting the mode of", path)?;
        let upper = folder.layer(Layer::Upper);
        disk.rename((&self.own, INCOMING.as_ref()), (upper, name), Rename::Replace).at("renaming into place", path)?;
        Ok(())
    }

    /// Removes a file, a symbolic link itself, or a directory with its content.
    ///
    /// # Errors
    ///
    /// [`ViewError::NotFound`], and [`ViewError::Link`] if a parent is a symbolic link.
    pub fn remove(&mut self, path: &RelPath) -> Result<(), ViewError> {
        let (parent, name) = path.parent().zip(path.name()).ok_or(ViewError::Root)?;
        let root = self.writable_root()?;
        if find(&root, path, Follow::None)?.entry.is_none() {
            return Err(ViewError::NotFound { path: path.to_string() });
        }
        let folder = self.create_directories(root, &parent)?;
        let upper = folder.layer(Layer::Upper);
        let disk = &self.workspace.disk;
        remove_tree(disk, upper, name).at("removing", path)?;
        if folder.below(name).at("inspecting", path)?.is_some() {
            disk.make_whiteout(upper, name).at("marking as removed", path)?;
        }
        Ok(())
    }

    /// The directory of the view.
    pub(crate) fn own(&self) -> &OwnedFd {
        &self.own
    }

    /// The upper directory, if it exists yet.
    pub(crate) fn upper(&self) -> Result<Option<OwnedFd>, IoFailure> {
        match open_entry(&self.own, UPPER.as_ref(), DIRECTORY) {
            Err(Errno::NOENT) => Ok(None),
            opened => opened.map(Some).at("opening the changes of view", &self.id),
        }
    }

    /// The root, for reading.
    fn root(&self) -> Result<MergedFolder<'_>, IoFailure> {
        let lower = self.workspace.root.try_clone();
        let lower = lower.map_err(|source| IoFailure { doing: "opening", path: ".".to_owned(), source })?;
        Ok(MergedFolder {
            disk: &self.workspace.disk,
            path: RelPath::root(),
            upper: self.upper()?.map(Arc::new),
            lower: Some(Arc::new(lower)),
        })
    }

    /// The root, for writing: creates the upper directory.
    pub(crate) fn writable_root(&self) -> Result<MergedFolder<'_>, IoFailure> {
        let mode = Stat::from(fstat(&self.workspace.root).at("inspecting", ".")?).mode;
        match self.workspace.disk.create_directory(&self.own, UPPER.as_ref(), mode & 0o1777) {
            Ok(()) | Err(Errno::EXIST) => self.root(),
            Err(error) => Err(error).at("creating the upper directory of view", &self.id),
        }
    }

    /// The directory at `path` in the upper layer: copied up, or created.
    fn create_directories<'a>(&'a self, root: MergedFolder<'a>, path: &RelPath) -> Result<MergedFolder<'a>, ViewError> {
        self.open_directories(root, path, None)
    }

    /// The same. With `opened`, its owner gets all permissions to the directory and its parents, which get the modes back that are recorded there.
    pub(crate) fn open_directories<'a>(
        &'a self,
        root: MergedFolder<'a>,
        path: &RelPath,
        mut opened: Option<&mut BTreeMap<RelPath, u32>>,
    ) -> Result<MergedFolder<'a>, ViewError> {
        let disk = &self.workspace.disk;
        let mut at = root;
        for name in path.names() {
            let place = at.path.join(name);
            let upper = at.layer(Layer::Upper);
            let there = at.entry(name).at("inspecting", &place)?;
            match there {
                Some(entry) if entry.stat.is_directory() => {
                    if entry.layer == Layer::Lower {
                        let mode = entry.stat.mode & 0o1777;
                        let open = opened.as_ref().map_or(mode, |_| mode | 0o700);
                        disk.create_directory(upper, name, open).at("creating", &place)?;
                        if let Some(opened) = opened.as_mut().filter(|_| open != mode) {
                            opened.insert(place.clone(), mode);
                        }
                        if self.workspace.owner.is_some() {
                            // As the kernel copies it up, for a command that is to see it too.
                            disk.set_owner(upper, name, entry.stat.owner).at("changing the owner of", &place)?;
                        }
                        let made = open_entry(upper, name, DIRECTORY).at("opening", &place)?;
                        mark_copied_up(disk, &made).at("marking", &place)?;
                    } else if let Some(opened) = opened.as_mut().filter(|_| entry.stat.mode & 0o700 != 0o700) {
                        disk.set_mode_of(upper, name, entry.stat.mode | 0o700).at("opening", &place)?;
                        opened.insert(place.clone(), entry.stat.mode);
                    }
                }
                Some(entry) if entry.stat.kind == FileKind::Symlink => return Err(link(&at, name, entry)?),
                Some(_) => return Err(ViewError::NotADirectory { path: place.to_string() }),
                None => {
                    if let Some(mark) = stat_entry(upper, name).at("inspecting", &place)?
                        && is_whiteout(disk, upper, name, &mark).at("inspecting", &place)?
                    {
                        disk.unlink(upper, name).at("removing an old entry at", &place)?;
                    }
                    disk.create_directory(upper, name, 0o755).at("creating", &place)?;
                    if let Some(owner) = self.workspace.owner {
                        disk.set_owner(upper, name, owner).at("changing the owner of", &place)?;
                    }
                    if at.below(name).at("inspecting", &place)?.is_some() {
                        let made = open_entry(upper, name, DIRECTORY).at("opening", &place)?;
                        mark_opaque(disk, &made).at("marking", &place)?;
                    }
                }
            }
            let stat = stat_entry(upper, name).and_then(|made| made.ok_or(Errno::NOENT)).at("inspecting", &place)?;
            at = at.folder(name, Entry { layer: Layer::Upper, stat })?;
        }
        Ok(at)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // What cannot be removed now is swept at the next opening of the workspace, and has no effect until then.
        let _ = self.workspace.discard_later(&self.workspace.views, self.id.as_ref());
        self.workspace.retention().end(self.number);
    }
}

/// Whether it is a valid id of a view, a commit, and a set or an entry of layers: 1 to 64 letters, digits, `-` and `_`.
#[must_use]
pub fn is_plain(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&id.len()) && id.bytes().all(plain)
}

fn metadata(stat: &Stat, target: Option<String>) -> Metadata {
    Metadata { kind: stat.kind, size: stat.size, mode: stat.mode, modified: stat.modified, target }
}

fn not_a_file(path: &RelPath, kind: FileKind) -> ViewError {
    ViewError::NotAFile { path: path.to_string(), kind }
}

/// The error for a link, with its target.
fn link(folder: &MergedFolder<'_>, name: &OsStr, entry: Entry) -> Result<ViewError, IoFailure> {
    let path = folder.path.join(name);
    let target = readlinkat(folder.layer(entry.layer), name, Vec::new()).at("reading the link", &path)?;
    let target = target.into_bytes();
    let leads = crate::lookup::follow_text(&folder.path, &target).filter(|end| !end.is_own());
    let (path, target) = (path.to_string(), belay_text::visible_bytes(&target));
    Ok(if leads.is_some() { ViewError::Link { path, target } } else { ViewError::Outside { path, target } })
}
