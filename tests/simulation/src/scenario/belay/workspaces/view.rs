//! One call's view of a modelled workspace: in memory, and gone with its machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use belay_tool_runner::{Mount, View};
use belay_workspace::{
    Act, Change, Content, Digest, FileKind, FileTime, Fingerprint, Manifest, Metadata, Node, RelPath, ViewError,
};

use super::files::Op;

/// The rights of every file.
const MODE: u32 = 0o644;

/// A picture of a workspace with one call's changes on it.
pub(in super::super) struct ModelView {
    id: String,
    workspace: PathBuf,
    /// How many changes the workspace had seen.
    began: usize,
    base: BTreeMap<String, String>,
    /// What is to be in each file that the call touched; nothing where it is to be gone.
    touched: BTreeMap<String, Option<String>>,
}

impl ModelView {
    pub(super) fn new(id: &str, workspace: &Path, began: usize, base: BTreeMap<String, String>) -> Self {
        Self { id: id.to_owned(), workspace: workspace.to_owned(), began, base, touched: BTreeMap::new() }
    }

    /// Its name, which will be its commit's.
    pub(in super::super) fn id(&self) -> &str {
        &self.id
    }

    /// The workspace that it is of.
    pub(in super::super) fn workspace(&self) -> &Path {
        &self.workspace
    }

    pub(super) fn began(&self) -> usize {
        self.began
    }

    fn content(&self, path: &str) -> Option<&str> {
        match self.touched.get(path) {
            Some(content) => content.as_deref(),
            None => self.base.get(path).map(String::as_str),
        }
    }

    /// The touched paths that are another than before, with what is to be there.
    fn changed(&self) -> impl Iterator<Item = (&String, Option<&str>, Option<&str>)> {
        self.touched
            .iter()
            .map(|(path, after)| (path, self.base.get(path).map(String::as_str), after.as_deref()))
            .filter(|(_, before, after)| before != after)
    }

    pub(super) fn ops(&self) -> Vec<Op> {
        let op = |(path, before, after): (&String, Option<&str>, Option<&str>)| Op {
            path: path.clone(),
            base: before.map(|content| Digest::of(content.as_bytes())),
            content: after.map(str::to_owned),
        };
        self.changed().map(op).collect()
    }

    pub(super) fn manifest(&self) -> Manifest {
        let change = |(path, before, after): (&String, Option<&str>, Option<&str>)| {
            let path = RelPath::parse(path).expect("it was a path before");
            let base = before.map(|content| fingerprint(content, self.began));
            let act = match (base, after) {
                (Some(base), None) => Act::Away { base },
                (base, after) => Act::Put { base, staged: fingerprint(after.unwrap_or_default(), self.began) },
            };
            let nodes = |content: Option<&str>| content.map(|content| node(&path, content)).into_iter().collect();
            Change { act, before: nodes(before), after: nodes(after), flags: Vec::new(), path: path.clone() }
        };
        Manifest { changes: self.changed().map(change).collect(), ..Manifest::default() }
    }
}

fn node(path: &RelPath, content: &str) -> Node {
    let content = Content::File { size: content.len() as u64, digest: Digest::of(content.as_bytes()) };
    Node { path: path.clone(), mode: MODE, content }
}

/// There are no inodes and no times here: contents are compared.
fn fingerprint(content: &str, seen: usize) -> Fingerprint {
    let never = FileTime(0, 0);
    let seen = FileTime(i64::try_from(seen).unwrap_or(i64::MAX), 0);
    let (digest, size) = (Digest::of(content.as_bytes()), content.len() as u64);
    Fingerprint { digest, inode: 0, mode: MODE, size, modified: never, seen }
}

impl View for ModelView {
    fn read(&self, path: &RelPath, start: u64, length: Option<u64>) -> Result<Vec<u8>, ViewError> {
        let path = path.to_string();
        let content = self.content(&path).ok_or(ViewError::NotFound { path: path.clone() })?.as_bytes();
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
        let paths: std::collections::BTreeSet<&String> = self.base.keys().chain(self.touched.keys()).collect();
        let there = paths.into_iter().filter(|path| self.content(path).is_some());
        Ok(there.map(|path| (RelPath::parse(path).expect("it was a path before"), FileKind::File)).collect())
    }

    fn write(&mut self, path: &RelPath, bytes: &[u8], _mode: Option<u32>) -> Result<(), ViewError> {
        let content = String::from_utf8_lossy(bytes).into_owned();
        self.touched.insert(path.to_string(), Some(content));
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

    fn mount(&self) -> Option<Mount> {
        None
    }
}
