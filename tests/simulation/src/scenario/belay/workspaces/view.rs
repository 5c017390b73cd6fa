//! A call's view of a modelled workspace: its changes are in memory, and lost with its machine.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use belay_tool_runner::{Mount, View};
use belay_workspace::{
    Act, Change, Content, Digest, DroppedChange, DroppedContent, FileKind, FileTime, Fingerprint, Manifest, Metadata,
    Node, OwnChanges, RelPath, RevertedPath, ViewError,
};

use super::files::{Files, Op};
use super::support::lock;

/// The mode of every file.
const MODE: u32 = 0o644;

/// A view of a workspace with one call's changes. The lower layer is the workspace itself, not a copy: a name that the call has looked up keeps its
/// content, and any other name shows the current one. An overlay mount whose lower folder changes behaves the same way.
pub(in super::super) struct ModelView {
    id: String,
    workspace: PathBuf,
    /// The number of changes in the workspace when the view began.
    began: usize,
    files: Arc<Mutex<Files>>,
    /// The content of each looked-up name; `None` when there was no file.
    base: Mutex<BTreeMap<String, Option<String>>>,
    /// The new content of each touched file; `None` when it is deleted.
    touched: BTreeMap<String, Option<String>>,
    /// The changes that it began with, beyond the workspace.
    before: Manifest,
    /// The changes of layers that it does not begin with.
    dropped: Vec<DroppedChange>,
}

impl ModelView {
    pub(super) fn new(id: &str, workspace: &Path, began: usize, files: Arc<Mutex<Files>>) -> Self {
        let (id, workspace) = (id.to_owned(), workspace.to_owned());
        Self {
            id,
            workspace,
            began,
            files,
            base: Mutex::default(),
            touched: BTreeMap::new(),
            before: Manifest::default(),
            dropped: Vec::new(),
        }
    }

    /// Begins with a change of a layer.
    pub(super) fn begin_with(&mut self, files: &Files, op: &Op) {
        let base = files.content(&op.path).map(str::to_owned);
        lock(&self.base).entry(op.path.clone()).or_insert(base);
        self.touched.insert(op.path.clone(), op.content.clone());
    }

    /// Has at a path what the workspace has.
    pub(super) fn undo(&mut self, path: &str) {
        self.touched.remove(path);
    }

    /// All layers are in it, but for these changes.
    pub(super) fn begun(&mut self, dropped: BTreeMap<String, Option<String>>) {
        self.before = self.manifest();
        let change = |(path, content): (String, Option<String>)| {
            let was = content.map_or(DroppedContent::Nothing, |text| DroppedContent::File {
                size: text.len() as u64,
                bytes: text.into_bytes(),
            });
            DroppedChange { path: RelPath::parse(&path).expect("the simulation's paths are valid"), was }
        };
        self.dropped = dropped.into_iter().map(change).collect();
    }

    /// All that it has changed is its own, also what it began with.
    pub(super) fn own_everything(&mut self) {
        self.before = Manifest::default();
    }

    pub(super) fn own_changes(&self, manifest: &Manifest) -> OwnChanges {
        let mut own = OwnChanges::between(&self.before, manifest);
        let reverted = |dropped: &DroppedChange| RevertedPath { path: dropped.path.clone(), is_mode: false };
        own.undone.extend(self.dropped.iter().map(reverted));
        own
    }

    /// Its id, which becomes the commit's.
    pub(in super::super) fn id(&self) -> &str {
        &self.id
    }

    /// Its workspace.
    pub(in super::super) fn workspace(&self) -> &Path {
        &self.workspace
    }

    pub(super) fn began(&self) -> usize {
        self.began
    }

    /// The lower layer's content of a name, fixed at the first look-up.
    fn base(&self, path: &str) -> Option<String> {
        let now = || lock(&self.files).content(path).map(str::to_owned);
        lock(&self.base).entry(path.to_owned()).or_insert_with(now).clone()
    }

    fn content(&self, path: &str) -> Option<String> {
        match self.touched.get(path) {
            Some(content) => content.clone(),
            None => self.base(path),
        }
    }

    /// The touched paths whose content differs, with the old and the new content.
    fn changed(&self) -> Vec<(String, Option<String>, Option<String>)> {
        let base = lock(&self.base);
        let change = |(path, after): (&String, &Option<String>)| {
            let before = base.get(path).cloned().flatten();
            (before != *after).then(|| (path.clone(), before, after.clone()))
        };
        self.touched.iter().filter_map(change).collect()
    }

    pub(super) fn ops(&self) -> Vec<Op> {
        let op = |(path, before, content): (String, Option<String>, Option<String>)| Op {
            path,
            base: before.map(|content| Digest::of(content.as_bytes())),
            content,
        };
        self.changed().into_iter().map(op).collect()
    }

    pub(super) fn manifest(&self) -> Manifest {
        let change = |(path, before, after): (String, Option<String>, Option<String>)| {
            let path = RelPath::parse(&path).expect("it was a path before");
            let base = before.as_deref().map(|content| fingerprint(content, self.began));
            let act = match (base, &after) {
                (Some(base), None) => Act::Away { base },
                (base, after) => {
                    Act::Put { base, staged: fingerprint(after.as_deref().unwrap_or_default(), self.began) }
                }
            };
            let nodes = |content: Option<String>| content.map(|content| node(&path, &content)).into_iter().collect();
            Change { act, before: nodes(before), after: nodes(after), flags: Vec::new(), path: path.clone() }
        };
        Manifest { changes: self.changed().into_iter().map(change).collect(), ..Manifest::default() }
    }
}

fn node(path: &RelPath, content: &str) -> Node {
    let content = Content::File { size: content.len() as u64, digest: Digest::of(content.as_bytes()) };
    Node { path: path.clone(), mode: MODE, content }
}

/// The model has no inodes and no times, so contents are compared.
fn fingerprint(content: &str, seen: usize) -> Fingerprint {
    let never = FileTime(0, 0);
    let seen = FileTime(i64::try_from(seen).unwrap_or(i64::MAX), 0);
    let (digest, size) = (Digest::of(content.as_bytes()), content.len() as u64);
    Fingerprint { digest, inode: 0, mode: MODE, size, modified: never, seen }
}

impl View for ModelView {
    fn read(&self, path: &RelPath, start: u64, length: Option<u64>) -> Result<Vec<u8>, ViewError> {
        let path = path.to_string();
        let content = self.content(&path).ok_or(ViewError::NotFound { path: path.clone() })?.into_bytes();
        let place = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).min(content.len());
        let end = length.map_or(content.len(), |length| place(start.saturating_add(length)));
        Ok(content[place(start)..end].to_vec())
    }

    fn metadata(&self, path: &RelPath) -> Result<Metadata, ViewError> {
        let size = self.size(path)?;
        Ok(Metadata { kind: FileKind::File, size, mode: MODE, modified: FileTime(0, 0), target: None })
    }

    fn list(&self, path: &RelPath) -> Result<Vec<(RelPath, FileKind)>, ViewError> {
        if !path.is_root() {
            return Err(ViewError::NotADirectory { path: path.to_string() });
        }
        let below = lock(&self.files).contents();
        let paths: BTreeSet<String> = below.into_keys().chain(self.touched.keys().cloned()).collect();
        let there = paths.into_iter().filter(|path| self.content(path).is_some());
        Ok(there.map(|path| (RelPath::parse(&path).expect("it was a path before"), FileKind::File)).collect())
    }

    fn write(&mut self, path: &RelPath, bytes: &[u8], _mode: Option<u32>) -> Result<(), ViewError> {
        let (path, content) = (path.to_string(), String::from_utf8_lossy(bytes).into_owned());
        self.base(&path);
        self.touched.insert(path, Some(content));
        Ok(())
    }

    fn remove(&mut self, path: &RelPath) -> Result<(), ViewError> {
        let path = path.to_string();
        if self.content(&path).is_none() {
            return Err(ViewError::NotFound { path });
        }
        self.touched.insert(path, None);
        Ok(())
    }

    fn dropped_changes(&self) -> &[DroppedChange] {
        &self.dropped
    }

    fn mount(&self) -> Option<Mount> {
        None
    }
}
