//! The folders with documents that the operator has named. Their indexes are kept, and brought up to date by what has changed.
//!
//! Every plan may search them, so that an index shows nobody what is not theirs.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Once},
};

use belay_redaction::Redactor;
use belay_service_kit::program;
use belay_settings::DocumentRoot;
use belay_sqlite::{Lane, Threads};
use belay_workspace::{FileKind, Folder, FolderEntry, RelPath};
use tokio::{
    sync::OwnedMutexGuard,
    time::{Instant, timeout_at},
};

use super::{
    depth::Bounds,
    findings::best,
    found::{Found, Problem, asked},
    index::{Content, Document, Index, IndexError, state_of},
    left_out::{Place, Reason},
    masked::masked,
    question::Question,
    walk::{Folders, MAX_FILE, Reading, why_not, why_not_content},
};
use crate::{ToolFailure, digests::content_digest};

/// The most files of a folder that are indexed, and the most bytes of them.
const MAX_FILES: u64 = 50_000;
const MAX_BYTES: u64 = 512 << 20;
/// The most entries of one directory.
const MAX_ENTRIES: usize = 100_000;
/// What is added at most before it is there for others, and stays when the call is stopped.
const BATCH_BYTES: u64 = 8 << 20;
const BATCH_FILES: u64 = 500;
/// The indexes that are worked on at a time.
const LANE_SLOTS: usize = 4;

/// The folders with documents.
#[derive(Debug)]
pub(super) struct Roots {
    roots: Vec<Root>,
    /// The directory of the indexes; `None` for a runner that keeps no files.
    kept_in: Option<PathBuf>,
    lane: Lane,
    extent: Extent,
    redactor: Redactor,
    prepared: Arc<Once>,
}

#[derive(Clone, Debug)]
struct Root {
    name: String,
    path: PathBuf,
    /// Held by the call that brings the index up to date. Others read what it has committed.
    turn: Arc<tokio::sync::Mutex<()>>,
}

/// The bounds of an index.
#[derive(Clone, Copy, Debug)]
struct Extent {
    files: u64,
    bytes: u64,
    entries: usize,
}

impl Default for Extent {
    fn default() -> Self {
        Self { files: MAX_FILES, bytes: MAX_BYTES, entries: MAX_ENTRIES }
    }
}

impl Roots {
    /// These folders, with their indexes in a directory.
    pub(super) fn new<'a>(
        roots: impl Iterator<Item = &'a DocumentRoot>,
        kept_in: Option<PathBuf>,
        redactor: &Redactor,
    ) -> Self {
        let roots = roots.map(|root| Root { name: root.name.clone(), path: root.path.clone(), turn: Arc::default() });
        Self {
            roots: roots.collect(),
            kept_in,
            lane: Lane::new(Threads::Real, LANE_SLOTS),
            extent: Extent::default(),
            redactor: redactor.clone(),
            prepared: Arc::new(Once::new()),
        }
    }

    /// Searches all folders.
    ///
    /// # Errors
    /// When the call was stopped. What goes wrong with a folder is in what was left out.
    pub(super) async fn search(
        &self,
        question: &Arc<Question>,
        bounds: Bounds,
        reading: &Reading,
    ) -> Result<Found, ToolFailure> {
        let mut found = Found::default();
        let until = Instant::now() + bounds.reading;
        for root in &self.roots {
            let place = Place::Root(root.name.clone());
            let Ok(slot) = timeout_at(until, self.lane.slot()).await else {
                found.left_out.say(&place, Reason::TimeLimit);
                continue;
            };
            // Another call may bring a large index up to date for as long as it has time.
            let turn = timeout_at(until, Arc::clone(&root.turn).lock_owned()).await.ok();
            let search = Search {
                place,
                root: root.clone(),
                kept_in: self.kept_in.clone(),
                redactor: self.redactor.clone(),
                question: Arc::clone(question),
                bounds,
                reading: reading.clone(),
                extent: self.extent,
            };
            let (prepared, all) = (Arc::clone(&self.prepared), self.files());
            found.append(slot.run(move || search.run(turn, &prepared, &all)).await?);
        }
        Ok(found)
    }

    /// The files of all indexes.
    fn files(&self) -> Vec<PathBuf> {
        self.kept_in.iter().flat_map(|kept_in| self.roots.iter().map(|root| file_of(kept_in, &root.path))).collect()
    }
}

/// The file of the index of a folder.
fn file_of(kept_in: &Path, root: &Path) -> PathBuf {
    let digest = content_digest(root.as_os_str().as_encoded_bytes());
    kept_in.join(format!("{}.db", digest.trim_start_matches("sha256:")))
}

/// Makes the directory of the indexes, and removes those of folders that the settings name no more.
fn prepare(kept_in: &Path, all: &[PathBuf]) -> io::Result<()> {
    program::private_folder(kept_in)?;
    for entry in fs::read_dir(kept_in)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "db") && !all.contains(&path) {
            Index::remove(&path)?;
        }
    }
    Ok(())
}

/// The search of one folder by one call.
struct Search {
    place: Place,
    root: Root,
    kept_in: Option<PathBuf>,
    redactor: Redactor,
    question: Arc<Question>,
    bounds: Bounds,
    reading: Reading,
    extent: Extent,
}

impl Search {
    fn run(self, turn: Option<OwnedMutexGuard<()>>, prepared: &Once, all: &[PathBuf]) -> Result<Found, ToolFailure> {
        self.reading.stop.check()?;
        let mut found = Found::default();
        let folder = match Folder::open(&self.root.path) {
            Ok(folder) => folder,
            Err(error) => {
                let reason = match error.kind() {
                    io::ErrorKind::NotFound => Reason::RootMissing,
                    io::ErrorKind::NotADirectory => Reason::RootNotAFolder,
                    // A link is followed when the settings are read.
                    _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => Reason::RootNotAFolder,
                    _ => Reason::RootUnreadable,
                };
                found.left_out.say_why(&self.place, reason, format!("`{}`: {error}", self.root.path.display()));
                return Ok(found);
            }
        };
        let file = self.kept_in.as_ref().map(|kept_in| file_of(kept_in, &self.root.path));
        if let Some(kept_in) = &self.kept_in {
            prepared.call_once(|| {
                if let Err(error) = prepare(kept_in, all) {
                    tracing::warn!(%error, path = %kept_in.display(), "Cannot prepare the directory of the indexes of documents");
                }
            });
        }
        let mut is_second = false;
        loop {
            let mut found = Found::default();
            let searched = match &file {
                Some(file) => Index::open(file),
                None => Index::in_memory(),
            };
            let searched = searched.map_err(Problem::from).and_then(|index| {
                let searched = self.search(&index, &folder, turn.is_some(), &mut found);
                if searched.is_err() {
                    index.take_back();
                }
                searched
            });
            match (searched, &file) {
                (Ok(()), _) => return Ok(found),
                (Err(Problem::Stopped(failure)), _) => return Err(failure),
                // Only the call whose turn it is makes it anew.
                (Err(Problem::Index(error)), Some(file)) if error.is_damage() && turn.is_some() && !is_second => {
                    tracing::warn!(%error, path = %file.display(), "An index of documents is damaged, and is made anew");
                    is_second = true;
                    if let Err(error) = Index::remove(file) {
                        return Ok(self.failed(&error.into()));
                    }
                }
                (Err(Problem::Index(error)), _) => return Ok(self.failed(&error)),
            }
        }
    }

    fn failed(&self, error: &IndexError) -> Found {
        let mut found = Found::default();
        found.left_out.say_why(&self.place, Reason::IndexFailed, error.to_string());
        found
    }

    fn search(&self, index: &Index, folder: &Folder, may_change: bool, found: &mut Found) -> Result<(), Problem> {
        if may_change {
            self.refresh(index, folder, found)?;
        } else {
            found.left_out.say(&self.place, Reason::TimeLimit);
        }
        for (why, count, example) in index.without_words()? {
            let example = RelPath::from_bytes(&example).map(|path| path.written());
            if let Some(reason) = Reason::named(&why) {
                found.left_out.add_many(&self.place, reason, count, example);
            }
        }
        (found.files, found.bytes) = index.extent()?;
        let lists = asked(index, &self.question, &self.bounds, &self.reading)?;
        for candidate in best(lists, self.bounds.findings) {
            self.reading.stop.check()?;
            let Some(path) = RelPath::from_bytes(&candidate.hit.path) else { continue };
            let bytes = folder.read(&path, MAX_FILE + 1).map(|(bytes, _)| bytes).unwrap_or_default();
            found.cite(&self.place, path.written(), candidate, &bytes, &self.redactor, &self.question);
        }
        Ok(())
    }

    /// Brings the index up to date by what has changed in the folder.
    fn refresh(&self, index: &Index, folder: &Folder, found: &mut Found) -> Result<(), Problem> {
        index.begin()?;
        let mut update =
            Update { search: self, index, folder, found, gone: index.known()?, files: 0, bytes: 0, batch: (0, 0) };
        let is_whole = match update.folders() {
            Ok(is_whole) => is_whole,
            // What was committed before is searched.
            Err(Problem::Index(error)) if error.is_full() => {
                index.take_back();
                found.left_out.say(&self.place, Reason::IndexFull);
                return Ok(());
            }
            Err(problem) => return Err(problem),
        };
        // What there was no time for may still be there.
        if is_whole {
            for known in std::mem::take(&mut update.gone).into_values() {
                index.forget(&known)?;
            }
        }
        Ok(index.commit()?)
    }
}

/// An index that is brought up to date.
struct Update<'a> {
    search: &'a Search,
    index: &'a Index,
    folder: &'a Folder,
    found: &'a mut Found,
    /// The documents of the index that were not met yet.
    gone: std::collections::HashMap<Vec<u8>, super::index::Known>,
    files: u64,
    bytes: u64,
    /// Files and bytes that are not committed yet.
    batch: (u64, u64),
}

impl Update<'_> {
    /// Reads all folders. Returns whether there was time for it.
    fn folders(&mut self) -> Result<bool, Problem> {
        let mut folders = Folders::default();
        folders.add(RelPath::root());
        while let Some(next) = folders.next() {
            let place = &self.search.place;
            if !self.search.reading.goes_on()? {
                self.found.left_out.say(place, Reason::TimeLimit);
                return Ok(false);
            }
            let entries = match self.folder.list(&next, self.search.extent.entries) {
                Ok((entries, is_cut)) => {
                    if is_cut {
                        self.found.left_out.say(place, Reason::FileLimit);
                    }
                    entries
                }
                Err(error) if next.is_root() => {
                    self.found.left_out.say_why(place, Reason::RootUnreadable, error.to_string());
                    return Ok(true);
                }
                Err(_) => {
                    self.found.left_out.add(place, Reason::Unreadable, next.written());
                    continue;
                }
            };
            for (path, entry) in entries {
                match entry.kind {
                    FileKind::Directory if entry.is_elsewhere => {
                        self.found.left_out.add(place, Reason::OtherFileSystem, path.written());
                    }
                    FileKind::Directory => folders.add(path),
                    FileKind::File => {
                        if !self.search.reading.goes_on()? {
                            self.found.left_out.say(place, Reason::TimeLimit);
                            return Ok(false);
                        }
                        if let Some(over) = self.file(&path, &entry)? {
                            self.found.left_out.say(place, over);
                            return Ok(true);
                        }
                    }
                    _ => {}
                }
            }
        }
        Ok(true)
    }

    /// Adds a file that is new or has changed. Returns the bound that it is beyond.
    fn file(&mut self, path: &RelPath, entry: &FolderEntry) -> Result<Option<Reason>, Problem> {
        let extent = self.search.extent;
        if self.files == extent.files {
            return Ok(Some(Reason::FileLimit));
        }
        let known = self.gone.get(path.as_bytes()).filter(|known| known.state == state_of(entry));
        let is_text = known.map_or(why_not(path, entry.size).is_none(), |known| known.is_text);
        if is_text && self.bytes + entry.size > extent.bytes {
            return Ok(Some(Reason::ByteLimit));
        }
        self.files += 1;
        if known.is_some() {
            self.bytes += if is_text { entry.size } else { 0 };
            self.gone.remove(path.as_bytes());
            return Ok(None);
        }
        if let Some(old) = self.gone.remove(path.as_bytes()) {
            self.index.forget(&old)?;
        }
        let (bytes, entry, why) = match why_not(path, entry.size) {
            Some(why) => (Vec::new(), *entry, Some(why)),
            None => match self.folder.read(path, MAX_FILE + 1) {
                Ok((bytes, entry)) => {
                    let why = why_not_content(&bytes);
                    (bytes, entry, why)
                }
                Err(_) => {
                    self.found.left_out.add(&self.search.place, Reason::Unreadable, path.written());
                    return Ok(None);
                }
            },
        };
        let (state, digest) = (state_of(&entry), content_digest(&bytes));
        let bytes = masked(&self.search.redactor, &bytes);
        let content = match why {
            Some(why) => Content::Without(why.word()),
            None => Content::Text(&bytes, &digest),
        };
        self.index.add(Document { path, state: &state, size: entry.size, content })?;
        self.bytes += if why.is_none() { bytes.len() as u64 } else { 0 };
        self.batch = (self.batch.0 + 1, self.batch.1 + bytes.len() as u64);
        if self.batch.0 >= BATCH_FILES || self.batch.1 >= BATCH_BYTES {
            self.index.commit()?;
            self.index.begin()?;
            self.batch = (0, 0);
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::depth::Depth;
    use super::*;

    /// S3-13: a huge folder is indexed up to its bounds, and the answer says so; what no longer fits is forgotten.
    #[tokio::test]
    async fn a_huge_folder_is_bounded() {
        let (folder, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for n in 10..40 {
            fs::create_dir_all(folder.path().join(format!("{}", n % 3))).unwrap();
            fs::write(folder.path().join(format!("{}/{n}.md", n % 3)), "needle\n".repeat(100)).unwrap();
        }
        let root = DocumentRoot { name: "docs".to_owned(), path: folder.path().to_owned() };
        let question = Arc::new(Question::new("needle"));
        let bounds = Depth::Medium.bounds(Duration::from_secs(600));
        let all = Extent::default();
        for (extent, files, reason) in [
            (all, 30, None),
            (Extent { files: 12, ..all }, 12, Some("file_limit")),
            (Extent { bytes: 700 * 7, ..all }, 7, Some("byte_limit")),
            (Extent { entries: 2, ..all }, 4, Some("file_limit")),
            (all, 30, None),
        ] {
            let roots =
                Roots { extent, ..Roots::new(std::iter::once(&root), Some(state.path().to_owned()), &Redactor::new()) };
            let found = roots.search(&question, bounds, &Reading::default()).await.unwrap();
            assert_eq!(found.files, files, "{reason:?}");
            let said: Vec<String> =
                found.left_out.shown().iter().map(|left| left["reason"].as_str().unwrap().to_owned()).collect();
            assert_eq!(said, Vec::from_iter(reason), "{reason:?}");
            assert_eq!(found.findings.len(), bounds.findings);
        }
    }

    /// Work on other folders takes all slots: a call whose time is over answers without this one.
    #[tokio::test]
    async fn a_call_does_not_wait_for_others_beyond_its_time() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.md"), "needle").unwrap();
        let root = DocumentRoot { name: "docs".to_owned(), path: folder.path().to_owned() };
        let roots = Roots::new(std::iter::once(&root), None, &Redactor::new());
        let question = Arc::new(Question::new("needle"));
        let bounds = Bounds { reading: Duration::from_millis(50), ..Depth::Medium.bounds(Duration::from_secs(600)) };
        let turn = Arc::clone(&roots.roots[0].turn).lock_owned().await;
        let found = roots.search(&question, bounds, &Reading::default()).await.unwrap();
        assert_eq!((found.findings.len(), &found.left_out.shown()[0]["reason"]), (0, &"time_limit".into()));
        drop(turn);
        let slots = futures::future::join_all((0..LANE_SLOTS).map(|_| roots.lane.slot())).await;
        let found = roots.search(&question, bounds, &Reading::default()).await.unwrap();
        assert_eq!((found.findings.len(), &found.left_out.shown()[0]["reason"]), (0, &"time_limit".into()));
        drop(slots);
        assert_eq!(roots.search(&question, bounds, &Reading::default()).await.unwrap().findings.len(), 1);
    }
}
