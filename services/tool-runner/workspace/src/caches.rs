//! The changes that a command makes in the caches that it sees: kept apart until the call has ended, then merged into the caches, or dropped.
//!
//! A command sees each cache as the lower layer of an overlay whose upper layer is in the directory of its view. Everything in there is by the command:
//! nothing is followed, and names and modes may be anything.

use std::{
    cell::Cell,
    ffi::{OsStr, OsString},
    fmt,
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    sync::Arc,
};

use rustix::{
    fs::{fstat, readlinkat, symlinkat},
    io::Errno,
};

use crate::{
    disk::{Disk, IoContext as _, IoFailure, Rename},
    inner::Inner,
    kept_cache::CacheMerge,
    open::{DIRECTORY, names, open_beneath, open_entry, open_file, stat_entry},
    overlay_format::{is_opaque, is_whiteout},
    path::RelPath,
    remove::{open_writable, remove_tree},
    stat::{FileKind, Stat},
    view::{CACHES, UPPER, View},
};

/// The name of a file that is being copied into a cache from another file system.
const COPIED: &str = ".belay-copied";

/// Where a layer puts the directories that it replaces in a cache, until it is removed.
const REPLACED: &str = ".belay-replaced";

/// The changes of caches that the command of a call has left. Dropping this removes them.
pub struct CacheChanges {
    workspace: Arc<Inner>,
    folder: OwnedFd,
    id: OsString,
}

impl fmt::Debug for CacheChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CacheChanges").field(&self.id).finish()
    }
}

/// See [`crate::Workspace::stage_caches`].
pub(crate) fn stage(inner: &Inner, view: &View) -> Result<(), IoFailure> {
    let Inner { disk, own, .. } = inner;
    if stat_entry(view.own(), CACHES.as_ref()).at("looking for the caches of view", view.id())?.is_none() {
        return Ok(());
    }
    match disk.create_directory(own, CACHES.as_ref(), 0o700) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error).at("creating", CACHES),
    }
    let kept = open_entry(own, CACHES.as_ref(), DIRECTORY).at("opening", CACHES)?;
    let (from, to) = ((view.own(), CACHES.as_ref()), (&kept, view.id().as_ref()));
    disk.rename(from, to, Rename::New).at("taking the caches of view", view.id())
}

/// See [`crate::Workspace::caches`].
pub(crate) fn of_view(inner: &Arc<Inner>, id: &str) -> Result<Option<CacheChanges>, IoFailure> {
    let folder = match open_entry(&inner.own, CACHES.as_ref(), DIRECTORY) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.at("opening", CACHES)?,
    };
    let is_there = stat_entry(&folder, id.as_ref()).at("looking for the caches of view", id)?.is_some();
    let workspace = Arc::clone(inner);
    Ok(is_there.then(|| CacheChanges { workspace, folder, id: id.into() }))
}

/// Removes the changes of caches that `keep` rejects.
pub(crate) fn sweep(inner: &Inner, keep: impl Fn(&str) -> bool) -> Result<(), IoFailure> {
    let folder = match open_entry(&inner.own, CACHES.as_ref(), DIRECTORY) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.at("opening", CACHES)?,
    };
    for id in names(&folder).at("listing", CACHES)? {
        if !id.to_str().is_some_and(&keep) {
            inner.discard(&folder, &id).at("removing the changes of caches of", id.display())?;
        }
    }
    Ok(())
}

impl CacheChanges {
    /// Merges the changes of the cache with this name into the directory of the cache. Each file is the old or the new one at any instant. When this fails or is
    /// interrupted, [`crate::prepare_cache`] empties the cache.
    ///
    /// # Errors
    ///
    /// An error of the file system.
    pub fn merge(&self, name: &OsStr, into: &Path) -> Result<(), IoFailure> {
        let shown = into.display().to_string();
        let changes = open_entry(&self.folder, &self.id, DIRECTORY)
            .and_then(|caches| open_entry(caches, name, DIRECTORY))
            .and_then(|cache| open_entry(cache, UPPER.as_ref(), DIRECTORY));
        let changes = match changes {
            // The command saw no such cache.
            Err(Errno::NOENT) => return Ok(()),
            changes => changes.at("opening the changes of cache", &shown)?,
        };
        if names(&changes).at("listing the changes of cache", &shown)?.is_empty() {
            return Ok(());
        }
        let failed = |doing| {
            let path = shown.clone();
            move |source| IoFailure { doing, path, source }
        };
        let merging =
            CacheMerge::begin(&self.workspace.disk, into).map_err(failed("beginning a merge into the cache"))?;
        let into = File::open(into).map_err(failed("opening the cache"))?;
        let top = Stat::from(fstat(&into).at("inspecting the cache", ".")?);
        let layer = open_entry(&self.folder, &self.id, DIRECTORY).at("opening the changes of cache", &shown)?;
        match self.workspace.disk.create_directory(&layer, REPLACED.as_ref(), 0o700) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).at("creating", REPLACED),
        }
        let replaced = open_entry(&layer, REPLACED.as_ref(), DIRECTORY).at("opening", REPLACED)?;
        let owner = rustix::process::geteuid().is_root().then_some(top.owner);
        Merge { disk: &self.workspace.disk, from: changes, into: into.into(), replaced, count: Cell::new(0), owner }
            .run()?;
        merging.finish().map_err(failed("ending a merge into the cache"))
    }
}

impl Drop for CacheChanges {
    fn drop(&mut self) {
        // What cannot be removed now is swept when the workspace is opened next.
        let _ = self.workspace.discard(&self.folder, &self.id);
    }
}

struct Merge<'a> {
    disk: &'a Disk,
    from: OwnedFd,
    into: OwnedFd,
    /// See [`REPLACED`], and how many directories are in it.
    replaced: OwnedFd,
    count: Cell<u64>,
    /// The owner of the cache, if that may be somebody else.
    owner: Option<(u32, u32)>,
}

impl Merge<'_> {
    fn run(&self) -> Result<(), IoFailure> {
        let mut folders = vec![RelPath::root()];
        while let Some(path) = folders.pop() {
            // Paths instead of descriptors: a hostile tree may have any depth and width.
            let from = open_beneath(&self.from, &path, DIRECTORY).at("opening", &path)?;
            let into = open_beneath(&self.into, &path, DIRECTORY).at("opening", &path)?;
            for name in names(&from).at("listing", &path)? {
                let inside = path.join(&name);
                if self.entry(&from, &into, &name).at("merging", &inside)? {
                    folders.push(inside);
                }
            }
        }
        Ok(())
    }

    /// Merges one entry. Returns whether it is a directory whose content is to be merged.
    fn entry(&self, from: &OwnedFd, into: &OwnedFd, name: &OsStr) -> Result<bool, Errno> {
        let disk = self.disk;
        let Some(found) = stat_entry(from, name)? else { return Ok(false) };
        let below = stat_entry(into, name)?;
        if is_whiteout(disk, from, name, &found)? {
            self.remove(into, name)?;
            return Ok(false);
        }
        match found.kind {
            FileKind::Directory => {
                let opened = open_writable(disk, from.as_fd(), name)?;
                let is_there = below.is_some_and(|below| below.is_directory());
                if !is_there || is_opaque(&opened)? {
                    self.remove(into, name)?;
                    disk.create_directory(into, name, found.mode & 0o777 | 0o700)?;
                    self.own(into, name)?;
                } else {
                    disk.set_mode_of(into, name, found.mode & 0o777 | 0o700)?;
                }
                return Ok(true);
            }
            FileKind::File => {
                if found.mode & 0o7000 != 0 {
                    disk.set_mode_of(from, name, found.mode & 0o777)?;
                }
            }
            FileKind::Symlink => {}
            // Sockets, pipes and devices are of no use to a later command.
            FileKind::Fifo | FileKind::Socket | FileKind::Device => return Ok(false),
        }
        if below.is_some_and(|below| below.is_directory()) {
            self.remove(into, name)?;
        }
        self.own(from, name)?;
        match disk.rename((from, name), (into, name), Rename::Replace) {
            Err(Errno::XDEV) => self.copy(from, into, name, &found)?,
            moved => moved?,
        }
        Ok(false)
    }

    /// Removes an entry of the cache, in one step where that is possible: when it is interrupted, no half of a directory is left for later commands.
    fn remove(&self, into: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        self.count.set(self.count.get() + 1);
        let place = OsString::from(self.count.get().to_string());
        match self.disk.rename((into, name), (&self.replaced, &place), Rename::New) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            // Another file system, or a directory that cannot be moved.
            Err(_) => remove_tree(self.disk, into, name),
        }
    }

    fn own(&self, folder: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        self.owner.map_or(Ok(()), |owner| self.disk.set_owner(folder, name, owner))
    }

    /// Copies a file or a link from another file system.
    fn copy(&self, from: &OwnedFd, into: &OwnedFd, name: &OsStr, found: &Stat) -> Result<(), Errno> {
        let (disk, copied) = (self.disk, OsStr::new(COPIED));
        remove_tree(disk, into, copied)?;
        if found.kind == FileKind::Symlink {
            symlinkat(readlinkat(from, name, Vec::new())?, into, copied)?;
        } else {
            if found.mode & 0o400 == 0 {
                disk.set_mode_of(from, name, found.mode & 0o777 | 0o400)?;
            }
            let (mut file, _) =
                open_file(from, name).map_err(|_| Errno::IO).map(|(file, stat)| (File::from(file), stat))?;
            let mut target = File::from(disk.create(into, copied)?);
            io::copy(&mut file, &mut target).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            disk.set_mode(&target, found.mode & 0o777)?;
        }
        self.own(into, copied)?;
        disk.rename((into, copied), (into, name), Rename::Replace)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        fs,
        os::unix::fs::{PermissionsExt as _, symlink},
        path::PathBuf,
        sync::atomic::{AtomicU64, Ordering},
    };

    use proptest::prelude::*;
    use rustix::fs::{FileType, Mode, mknodat};

    use super::*;
    use crate::{QuietSeam, Seam, Workspace, disk::deadly::Deadly};

    /// A workspace, a cache beside it, and the changes of it that a command has left in a view.
    struct Scene {
        _place: tempfile::TempDir,
        workspace: Workspace,
        view: View,
        upper: PathBuf,
        cache: PathBuf,
    }

    impl Scene {
        fn new() -> Self {
            Self::with(Arc::new(QuietSeam))
        }

        fn with(seam: Arc<dyn Seam>) -> Self {
            let place = tempfile::tempdir().unwrap();
            let (folder, cache) = (place.path().join("w"), place.path().join("cache"));
            fs::create_dir(&folder).unwrap();
            fs::create_dir(&cache).unwrap();
            let workspace = Workspace::open_with(&folder, &[], seam).unwrap();
            let view = workspace.view("v-1").unwrap();
            let upper = view.directory().join(CACHES).join("cargo").join(UPPER);
            fs::create_dir_all(&upper).unwrap();
            Self { _place: place, workspace, view, upper, cache }
        }

        fn merge(&self) -> BTreeMap<PathBuf, String> {
            self.workspace.stage_caches(&self.view).unwrap();
            let changes = self.workspace.caches("v-1").unwrap().unwrap();
            changes.merge("cargo".as_ref(), &self.cache).unwrap();
            changes.merge("another".as_ref(), &self.cache).expect("there is nothing of it");
            tree(&self.cache)
        }
    }

    fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        let mut folders = vec![top.to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let kind = fs::symlink_metadata(&path).unwrap().file_type();
                let inside = path.strip_prefix(top).unwrap().to_owned();
                if kind.is_dir() {
                    folders.push(path);
                    found.insert(inside, "folder".to_owned());
                } else if kind.is_symlink() {
                    found.insert(inside, format!("to {}", fs::read_link(&path).unwrap().display()));
                } else {
                    found.insert(inside, fs::read_to_string(&path).unwrap());
                }
            }
        }
        found
    }

    fn whiteout(path: &Path) {
        let folder = File::open(path.parent().unwrap()).unwrap();
        mknodat(&folder, path.file_name().unwrap(), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    }

    #[test]
    fn changes_replace_add_and_remove_and_follow_nothing() {
        let scene = Scene::new();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("f"), "outside").unwrap();
        for (file, content) in
            [("old", "old"), ("gone", "x"), ("d/kept", "kept"), ("d/old", "old"), ("e/gone", "x"), ("g/x", "x")]
        {
            let path = scene.cache.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        symlink(outside.path(), scene.cache.join("link")).unwrap();
        let upper = &scene.upper;
        fs::write(upper.join("old"), "new").unwrap();
        fs::set_permissions(upper.join("old"), fs::Permissions::from_mode(0o4755)).unwrap();
        whiteout(&upper.join("gone"));
        fs::create_dir(upper.join("d")).unwrap();
        fs::write(upper.join("d/old"), "new").unwrap();
        fs::create_dir(upper.join("e")).unwrap();
        let opaque = File::open(upper.join("e")).unwrap();
        rustix::fs::fsetxattr(&opaque, "user.overlay.opaque", b"y", rustix::fs::XattrFlags::empty()).unwrap();
        fs::write(upper.join("e/new"), "new").unwrap();
        // A folder where a link of an earlier command leads out, a file where there was a folder, and a link that leads out.
        fs::create_dir(upper.join("link")).unwrap();
        fs::write(upper.join("link/f"), "inside").unwrap();
        fs::write(upper.join("g"), "file").unwrap();
        symlink("/etc/passwd", upper.join("to")).unwrap();
        rustix::fs::mkfifoat(File::open(upper).unwrap(), "pipe", Mode::RWXU).unwrap();
        fs::create_dir(upper.join("shut")).unwrap();
        fs::write(upper.join("shut/f"), "f").unwrap();
        fs::set_permissions(upper.join("shut"), fs::Permissions::from_mode(0o0)).unwrap();
        let own = scene.view.directory().ancestors().nth(2).unwrap().to_owned();
        let merged = scene.merge();
        let expected = [
            ("d", "folder"),
            ("d/kept", "kept"),
            ("d/old", "new"),
            ("e", "folder"),
            ("e/new", "new"),
            ("g", "file"),
            ("link", "folder"),
            ("link/f", "inside"),
            ("old", "new"),
            ("shut", "folder"),
            ("shut/f", "f"),
            ("to", "to /etc/passwd"),
        ];
        assert_eq!(merged, expected.map(|(path, what)| (path.into(), what.to_owned())).into());
        assert_eq!(fs::read_to_string(outside.path().join("f")).unwrap(), "outside");
        assert_eq!(fs::metadata(scene.cache.join("old")).unwrap().permissions().mode() & 0o7777, 0o755);
        for folder in ["trash", CACHES] {
            let left: Vec<_> = fs::read_dir(own.join(folder)).unwrap().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }

    #[test]
    fn changes_that_are_dropped_leave_the_cache_as_it_was() {
        let scene = Scene::new();
        fs::write(scene.cache.join("old"), "old").unwrap();
        fs::write(scene.upper.join("old"), "new").unwrap();
        scene.workspace.stage_caches(&scene.view).unwrap();
        scene.workspace.sweep(|id| id == "v-1").unwrap();
        drop(scene.workspace.caches("v-1").unwrap().unwrap());
        assert!(scene.workspace.caches("v-1").unwrap().is_none());
        assert_eq!(tree(&scene.cache), [("old".into(), "old".to_owned())].into());

        let later = scene.workspace.view("v-2").unwrap();
        fs::create_dir_all(later.directory().join(CACHES).join("cargo").join(UPPER)).unwrap();
        scene.workspace.stage_caches(&later).unwrap();
        scene.workspace.sweep(|id| id == "v-1").unwrap();
        assert!(scene.workspace.caches("v-2").unwrap().is_none(), "what nobody knows is swept");
    }

    /// The process ends at each change to the disk that a merge makes: a command finds everything of it or nothing, and never some.
    #[test]
    fn an_interrupted_merge_is_a_merge_or_an_empty_cache() {
        for changes in 0.. {
            let deadly = Arc::new(Deadly(AtomicU64::new(u64::MAX)));
            let scene = Scene::with(Arc::<Deadly>::clone(&deadly));
            for (file, content) in [("a", "old"), ("gone", "old"), ("d/b", "old"), ("e/c", "old")] {
                fs::create_dir_all(scene.cache.join(file).parent().unwrap()).unwrap();
                fs::write(scene.cache.join(file), content).unwrap();
            }
            let before = tree(&scene.cache);
            fs::write(scene.upper.join("a"), "new").unwrap();
            whiteout(&scene.upper.join("gone"));
            fs::create_dir(scene.upper.join("d")).unwrap();
            fs::write(scene.upper.join("d/b"), "new").unwrap();
            fs::write(scene.upper.join("d/n"), "new").unwrap();
            fs::write(scene.upper.join("e"), "a file now").unwrap();
            scene.workspace.stage_caches(&scene.view).unwrap();
            deadly.0.store(changes, Ordering::Relaxed);
            let merged = scene.workspace.caches("v-1").unwrap().unwrap().merge("cargo".as_ref(), &scene.cache).is_ok();
            deadly.0.store(u64::MAX, Ordering::Relaxed);

            let was_emptied = crate::prepare_cache(&scene.cache).unwrap();
            let found = tree(&scene.cache);
            let after = [("a", "new"), ("d", "folder"), ("d/b", "new"), ("d/n", "new"), ("e", "a file now")];
            let after = after.map(|(path, what)| (PathBuf::from(path), what.to_owned())).into();
            match (merged, was_emptied) {
                (true, _) => assert_eq!(found, after),
                (false, true) => assert_eq!(found, BTreeMap::new(), "after {changes} changes"),
                (false, false) => assert_eq!(found, before, "after {changes} changes"),
            }
            if merged {
                assert!(changes > 10, "{changes}");
                return;
            }
        }
    }

    proptest! {
        /// A cache has after a merge what an overlay with the changes showed, whether files are moved or copied.
        #[test]
        fn the_cache_becomes_what_the_command_saw(
            before in prop::collection::btree_map("[ab]/[ab]|[abc]", "[a-z]{0,3}", 0..6),
            changes in prop::collection::btree_map("[ab]/[ab]|[abc]", prop::option::of("[a-z]{0,3}"), 0..6),
        ) {
            let scene = Scene::new();
            let write = |top: &Path, path: &str, content: &str| {
                let path = top.join(path);
                let parent = path.parent().unwrap();
                // A file where a folder would be, or the other way round.
                if fs::create_dir_all(parent).is_err() || path.is_dir() {
                    return false;
                }
                fs::write(path, content).is_ok()
            };
            let mut seen = BTreeMap::new();
            for (path, content) in &before {
                if write(&scene.cache, path, content) {
                    seen.insert(PathBuf::from(path), content.clone());
                }
            }
            for (path, change) in &changes {
                let below = scene.cache.join(path);
                match change {
                    Some(content)
                        if !below.is_dir()
                            && !below.parent().unwrap().is_file()
                            && write(&scene.upper, path, content) =>
                    {
                        seen.insert(PathBuf::from(path), content.clone());
                    }
                    None if below.is_file() && !scene.upper.join(path).exists() => {
                        fs::create_dir_all(scene.upper.join(path).parent().unwrap()).unwrap();
                        whiteout(&scene.upper.join(path));
                        seen.remove(Path::new(path));
                    }
                    _ => {}
                }
            }
            let merged: BTreeMap<_, _> = scene.merge().into_iter().filter(|(_, what)| what != "folder").collect();
            prop_assert_eq!(merged, seen);
        }
    }
}
