//! Folders to work in, pictures of what is in them, and scripts to run on them.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use belay_workspace::{Call, Commit, Limits, Manifest, Order, RelPath, Seam, View, Workspace};
use proptest::prelude::*;

/// A folder on a file system that can hold a workspace: in memory where that can, for speed.
pub(crate) fn folder() -> tempfile::TempDir {
    let in_memory = tempfile::tempdir_in("/dev/shm").ok();
    let usable = |folder: &tempfile::TempDir| Workspace::open(folder.path(), &[]).is_ok();
    in_memory.filter(usable).unwrap_or_else(|| tempfile::tempdir().unwrap())
}

/// A folder inside a [`folder`], so that it is empty.
pub(crate) struct Ground {
    pub(crate) root: PathBuf,
    folder: tempfile::TempDir,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let folder = folder();
        let root = folder.path().join("workspace");
        fs::create_dir(&root).unwrap();
        Self { root, folder }
    }

    /// With files: a path that ends in `/` is a folder, `-> ` makes a link.
    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let ground = Self::new();
        for (path, contents) in files {
            let place = ground.root.join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            if path.ends_with('/') {
                fs::create_dir_all(place).unwrap();
            } else if let Some(target) = contents.strip_prefix("-> ") {
                symlink(target, place).unwrap();
            } else {
                fs::write(place, contents).unwrap();
            }
        }
        ground
    }

    pub(crate) fn open(&self) -> Workspace {
        Workspace::open(&self.root, &[]).unwrap()
    }

    pub(crate) fn picture(&self) -> FolderContents {
        picture(&self.root)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }
}

/// Tests lock folders, and overlayfs leaves a locked one beside each view; only root removes those as they are.
impl Drop for Ground {
    fn drop(&mut self) {
        unlock(self.folder.path());
    }
}

fn unlock(folder: &Path) {
    // What cannot be unlocked stays behind; the test's own result matters more.
    drop(fs::set_permissions(folder, fs::Permissions::from_mode(0o700)));
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            unlock(&entry.path());
        }
    }
}

/// The contents of a folder, Belay's own aside: mode and contents by path.
pub(crate) type FolderContents = BTreeMap<PathBuf, String>;

pub(crate) fn picture(root: &Path) -> FolderContents {
    let mut picture = FolderContents::new();
    draw(root, Path::new(""), &mut picture);
    picture
}

fn draw(root: &Path, within: &Path, picture: &mut FolderContents) {
    for entry in fs::read_dir(root.join(within)).unwrap() {
        let path = within.join(entry.unwrap().file_name());
        if path == Path::new(".belay") {
            continue;
        }
        let place = root.join(&path);
        let found = fs::symlink_metadata(&place).unwrap();
        let shown = if found.is_symlink() {
            format!("-> {:?}", fs::read_link(&place).unwrap())
        } else if found.is_dir() {
            draw(root, &path, picture);
            format!("{:o} folder", found.mode() & 0o7777)
        } else if found.is_file() {
            format!("{:o} {:?}", found.mode() & 0o7777, String::from_utf8_lossy(&fs::read(&place).unwrap()))
        } else {
            assert!(found.file_type().is_fifo() || found.file_type().is_char_device(), "{place:?}");
            "special".to_owned()
        };
        picture.insert(path, shown);
    }
}

pub(crate) fn path(text: &str) -> RelPath {
    RelPath::parse(text).unwrap()
}

/// Commits the changes of a view.
pub(crate) fn commit(workspace: &Workspace, id: &str, change: impl FnOnce(&mut View)) -> (Manifest, Commit) {
    let mut view = workspace.view(id).unwrap();
    change(&mut view);
    let manifest = view.effect(Limits::default()).unwrap();
    let commit = workspace.stage(view, &manifest).unwrap();
    workspace.apply(&commit).unwrap();
    (manifest, commit)
}

/// How many cases a property is tried with: so many, or what the variable says.
pub(crate) fn cases(variable: &str, usual: u32) -> u32 {
    std::env::var(variable)
        .map_or(usual, |set| set.parse().unwrap_or_else(|_| panic!("{variable} is not a number: {set}")))
}

/// A change that a file tool makes.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Write(String, String, Option<u32>),
    Remove(String),
}

impl Step {
    pub(crate) fn in_view(&self, view: &mut View) -> bool {
        match self {
            Self::Write(at, contents, mode) => view.write(&path(at), contents.as_bytes(), *mode).is_ok(),
            Self::Remove(at) => view.remove(&path(at)).is_ok(),
        }
    }

    /// The same on a plain folder, with nothing of this crate in it.
    pub(crate) fn in_folder(&self, root: &Path) -> bool {
        let (Self::Write(at, ..) | Self::Remove(at)) = self;
        let place = root.join(at);
        // Changes pass no symbolic link.
        let mut above = place.parent().unwrap();
        while above != root {
            match fs::symlink_metadata(above) {
                Ok(found) if !found.is_dir() => return false,
                _ => above = above.parent().unwrap(),
            }
        }
        match self {
            Self::Write(_, contents, mode) => plain_write(&place, contents, *mode),
            Self::Remove(_) => match fs::symlink_metadata(&place) {
                Ok(found) if found.is_dir() => fs::remove_dir_all(place).is_ok(),
                Ok(_) => fs::remove_file(place).is_ok(),
                Err(_) => false,
            },
        }
    }
}

fn plain_write(place: &Path, contents: &str, mode: Option<u32>) -> bool {
    let old = fs::symlink_metadata(place).ok();
    if old.as_ref().is_some_and(|old| !old.is_file()) {
        return false;
    }
    let mut missing: Vec<&Path> = place.ancestors().skip(1).take_while(|above| !above.exists()).collect();
    while let Some(above) = missing.pop() {
        fs::create_dir(above).unwrap();
        fs::set_permissions(above, fs::Permissions::from_mode(0o755)).unwrap();
    }
    // One that forbids to be written is replaced.
    let _ = fs::remove_file(place);
    fs::write(place, contents).unwrap();
    let mode = mode.or(old.map(|old| old.mode() & 0o1777)).unwrap_or(0o644);
    fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
    true
}

/// Few names, so that scripts meet what is there and what they made.
fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c.txt", "C.txt"]).prop_map(str::to_owned)
}

pub(crate) fn place() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join("/"))
}

pub(crate) fn script(steps: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Step>> {
    let mode = prop::option::weighted(0.3, prop::sample::select(vec![0o644, 0o755, 0o600, 0o444]));
    let step = prop_oneof![
        3 => (place(), "[a-z]{0,12}", mode).prop_map(|(at, contents, mode)| Step::Write(at, contents, mode)),
        2 => place().prop_map(Step::Remove),
    ];
    prop::collection::vec(step, steps)
}

/// The content of a directory before a script: files, directories and links, with modes.
#[derive(Clone, Debug, Default)]
pub(crate) struct InitialTree(Vec<(String, InitialEntry)>);

#[derive(Clone, Debug)]
enum InitialEntry {
    File(String, u32),
    Folder(u32),
    Link(String),
}

pub(crate) fn before() -> impl Strategy<Value = InitialTree> {
    let thing = prop_oneof![
        5 => ("[a-z]{0,12}", prop::sample::select(vec![0o644, 0o755, 0o600])).prop_map(|(text, mode)| InitialEntry::File(text, mode)),
        2 => prop::sample::select(vec![0o755, 0o700, 0o775]).prop_map(InitialEntry::Folder),
        1 => prop::sample::select(vec!["a", "../b", "/etc/passwd", "gone"]).prop_map(|to| InitialEntry::Link(to.to_owned())),
    ];
    prop::collection::vec((place(), thing), 0..8).prop_map(InitialTree)
}

impl InitialTree {
    /// With files that are there for sure.
    pub(crate) fn and_files(mut self, files: &[&str]) -> Self {
        self.0.splice(0..0, files.iter().map(|at| ((*at).to_owned(), InitialEntry::File("first".into(), 0o644))));
        self
    }

    /// Makes it; what finds its place taken is left out.
    pub(crate) fn build(&self, root: &Path) {
        for (at, thing) in &self.0 {
            let place = root.join(at);
            let parent = place.parent().unwrap();
            let plain = parent.ancestors().take_while(|above| *above != root).all(|above| !above.is_symlink());
            if !plain || fs::create_dir_all(parent).is_err() || place.symlink_metadata().is_ok() {
                continue;
            }
            let set = |mode| fs::set_permissions(&place, fs::Permissions::from_mode(mode));
            let made: io::Result<()> = match thing {
                InitialEntry::File(contents, mode) => fs::write(&place, contents).and_then(|()| set(*mode)),
                InitialEntry::Folder(mode) => fs::create_dir(&place).and_then(|()| set(*mode)),
                InitialEntry::Link(target) => symlink(target, &place),
            };
            made.unwrap();
        }
    }
}

/// Counts the points at which a process could crash, and crashes at a chosen one. The disk is taken to keep such an order.
pub(crate) struct Deadly {
    order: Order,
    dies_at: u64,
    reached: AtomicU64,
}

impl Deadly {
    pub(crate) fn at(instant: u64, order: Order) -> Arc<Self> {
        Arc::new(Self { order, dies_at: instant, reached: AtomicU64::new(0) })
    }

    pub(crate) fn never(order: Order) -> Arc<Self> {
        Self::at(u64::MAX, order)
    }

    pub(crate) fn reached(&self) -> u64 {
        self.reached.load(Ordering::Relaxed)
    }
}

impl Seam for Deadly {
    fn alive(&self, _: &Call<'_>) -> bool {
        self.reached.fetch_add(1, Ordering::Relaxed) < self.dies_at
    }

    fn order(&self, _: Order) -> Order {
        self.order
    }
}
