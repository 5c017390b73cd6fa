//! A workspace on the simulated disk: a log of applied changes, and staged effects.
//!
//! ```text
//! <workspace>/log            one line a change, in the order in which they were put in place
//! <workspace>/staged-<id>    what a commit is to put in place
//! <workspace>/layer-<name>   what a call of a step has changed
//! ```
//! Each line has a checksum: a power loss may tear unsynced lines, and a torn line counts as not written.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use belay_workspace::Digest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::disk::{self, Mode, OpenFile};

const LOG: &str = "log";
const STAGED: &str = "staged-";
const LAYER: &str = "layer-";

/// An applied change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in super::super) struct Change {
    /// Its commit.
    pub(in super::super) commit: String,
    pub(in super::super) path: String,
    /// The new content; `None` when the file is removed.
    pub(in super::super) content: Option<String>,
}

/// A change of a staged effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Op {
    pub(super) path: String,
    /// The digest of the required previous content; `None` when there must be no file.
    pub(super) base: Option<Digest>,
    pub(super) content: Option<String>,
}

/// The files of one workspace.
pub(super) struct Files {
    folder: PathBuf,
    log: OpenFile,
    /// The length of the log's whole lines, in bytes.
    length: u64,
    changes: Vec<Change>,
    /// The log may hold changes that are not durable.
    is_dirty: bool,
    /// Finished staged effects, which are removed when the log has been synced, and not before.
    done: Vec<String>,
}

impl Files {
    /// Opens a workspace's folder, and truncates a torn end of its log.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let mode = Mode { create: true, writable: true, is_journal: true, ..Mode::default() };
        let mut log = OpenFile::open(&folder.join(LOG), mode)?;
        let bytes = log.read_all()?;
        let (changes, length) = lines(&bytes);
        if length < bytes.len() as u64 {
            log.truncate(length)?;
            log.sync()?;
        }
        // The process that wrote it may have ended before its sync.
        Ok(Self { folder: folder.to_owned(), log, length, changes, is_dirty: true, done: Vec::new() })
    }

    /// Removes everything in a workspace's folder, if there is one.
    pub(super) fn remove(folder: &Path) -> io::Result<()> {
        if disk::exists(folder)? {
            for name in disk::names(folder)? {
                disk::remove(&folder.join(name), true)?;
            }
        }
        Ok(())
    }

    /// All applied changes, the oldest first.
    pub(super) fn changes(&self) -> &[Change] {
        &self.changes
    }

    /// The content of each file.
    pub(super) fn contents(&self) -> BTreeMap<String, String> {
        contents(&self.changes)
    }

    /// The content of one file.
    pub(super) fn content(&self, path: &str) -> Option<&str> {
        self.changes.iter().rev().find(|change| change.path == path)?.content.as_deref()
    }

    /// Whether a commit has put this path in place.
    pub(super) fn has_put(&self, commit: &str, path: &str) -> bool {
        self.changes.iter().any(|change| change.commit == commit && change.path == path)
    }

    /// Applies changes; they are durable after [`Files::sync`].
    pub(super) fn put(&mut self, changes: Vec<Change>) -> io::Result<()> {
        for change in changes {
            self.is_dirty = true;
            let line = line(&change);
            self.log.write(line.as_bytes(), self.length)?;
            self.length += line.len() as u64;
            self.changes.push(change);
        }
        Ok(())
    }

    /// Removes all but the first `count` changes, durably.
    pub(super) fn take_back(&mut self, count: usize) -> io::Result<()> {
        let length = self.changes[..count].iter().map(|change| line(change).len() as u64).sum();
        self.log.truncate(length)?;
        self.log.sync()?;
        (self.length, _) = (length, self.changes.drain(count..));
        Ok(())
    }

    /// Makes all applied changes durable.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        if self.is_dirty {
            self.log.sync()?;
            self.is_dirty = false;
        }
        std::mem::take(&mut self.done).iter().try_for_each(|id| self.remove_staged(id))
    }

    /// Removes an applied staged effect as soon as the log is synced.
    pub(super) fn finish(&mut self, id: &str) -> io::Result<()> {
        if self.is_dirty {
            self.done.push(id.to_owned());
            return Ok(());
        }
        self.remove_staged(id)
    }

    /// Writes a staged effect, durably when `sync` is set.
    pub(super) fn stage(&self, id: &str, ops: &[Op], sync: bool) -> io::Result<()> {
        let mode = Mode { create: true, exclusive: true, writable: true, is_journal: true, ..Mode::default() };
        let mut file = OpenFile::open(&self.staged(id), mode)?;
        let text: String = ops.iter().map(line).collect();
        file.write(text.as_bytes(), 0)?;
        if sync {
            file.sync()?;
        }
        Ok(())
    }

    /// The first `count` changes of a staged effect; `None` when they are missing or torn.
    pub(super) fn read_staged(&self, id: &str, count: usize) -> io::Result<Option<Vec<Op>>> {
        if !self.is_staged(id)? {
            return Ok(None);
        }
        let file = OpenFile::open(&self.staged(id), Mode::default())?;
        let (ops, _) = lines(&file.read_all()?);
        Ok((ops.len() == count).then_some(ops))
    }

    pub(super) fn is_staged(&self, id: &str) -> io::Result<bool> {
        Ok(disk::exists(&self.staged(id))?)
    }

    /// The ids of all staged effects.
    pub(super) fn all_staged(&self) -> io::Result<Vec<String>> {
        let names = disk::names(&self.folder)?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(STAGED)).map(str::to_owned).collect())
    }

    /// Removes a staged effect, if it is there. A power loss may bring it back.
    pub(super) fn remove_staged(&self, id: &str) -> io::Result<()> {
        match disk::remove(&self.staged(id), false) {
            Err(disk::Failure::NotFound) => Ok(()),
            removed => Ok(removed?),
        }
    }

    /// Writes a layer durably, unless it is there.
    pub(super) fn keep_layer(&self, name: &str, text: &str) -> io::Result<()> {
        if self.layer(name)?.is_some() {
            return Ok(());
        }
        self.remove_layer(name)?;
        let mode = Mode { create: true, exclusive: true, writable: true, is_journal: true, ..Mode::default() };
        let mut file = OpenFile::open(&self.folder.join(format!("{LAYER}{name}")), mode)?;
        file.write(line(&text).as_bytes(), 0)?;
        Ok(file.sync()?)
    }

    /// A layer; `None` when it is missing or torn.
    pub(super) fn layer(&self, name: &str) -> io::Result<Option<String>> {
        let path = self.folder.join(format!("{LAYER}{name}"));
        if !disk::exists(&path)? {
            return Ok(None);
        }
        let (mut texts, _) = lines(&OpenFile::open(&path, Mode::default())?.read_all()?);
        Ok(texts.pop())
    }

    /// The names of all layers.
    pub(super) fn all_layers(&self) -> io::Result<Vec<String>> {
        let names = disk::names(&self.folder)?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(LAYER)).map(str::to_owned).collect())
    }

    /// Removes a layer, if it is there. A power loss may bring it back.
    pub(super) fn remove_layer(&self, name: &str) -> io::Result<()> {
        match disk::remove(&self.folder.join(format!("{LAYER}{name}")), false) {
            Err(disk::Failure::NotFound) => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn staged(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{STAGED}{id}"))
    }
}

/// The content of each file after these changes.
pub(in super::super) fn contents(changes: &[Change]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for change in changes {
        match &change.content {
            Some(content) => files.insert(change.path.clone(), content.clone()),
            None => files.remove(&change.path),
        };
    }
    files
}

fn line(value: &impl Serialize) -> String {
    let json = serde_json::to_string(value).expect("texts are always JSON");
    format!("{} {json}\n", Digest::of(json.as_bytes()))
}

/// The lines up to the first torn one, and their length in bytes.
fn lines<T: DeserializeOwned>(bytes: &[u8]) -> (Vec<T>, u64) {
    let (mut values, mut length) = (Vec::new(), 0);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let whole = line.strip_suffix(b"\n").and_then(|line| std::str::from_utf8(line).ok());
        let parts = whole.and_then(|line| line.split_once(' '));
        let sound = parts.filter(|(checksum, json)| Digest::of(json.as_bytes()).to_string() == *checksum);
        let Some(value) = sound.and_then(|(_, json)| serde_json::from_str(json).ok()) else { break };
        values.push(value);
        length += line.len() as u64;
    }
    (values, length)
}
