//! The content of one path: a file, a link, or a directory with its content, with the digest of each file.

use std::{
    ffi::OsStr,
    fmt,
    os::fd::{AsFd, BorrowedFd},
};

use rustix::{
    fs::{fstat, readlinkat},
    io::Errno,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

use crate::{
    disk::{Disk, IoContext as _, IoFailure},
    open::{DIRECTORY, NotAFile, names, open_entry, open_file, stat_entry},
    overlay_format::{is_whiteout, lies_elsewhere, open_for_reading},
    path::{self, RelPath},
    stat::{FileKind, FileTime, Stat},
    stores,
};

/// A SHA-256 digest; 64 hexadecimal digits in text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&path::hex(&self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = path::unhex(&String::deserialize(deserializer)?).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| de::Error::custom("expected 64 hexadecimal digits"))
    }
}

/// A file, directory or link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Its path in the workspace.
    pub path: RelPath,
    /// Its permission bits, `07777`; 0 for a symbolic link.
    pub mode: u32,
    /// Its content.
    #[serde(flatten)]
    pub content: Content,
}

/// The content of a [`Node`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Content {
    /// A regular file.
    File {
        /// Its size in bytes.
        size: u64,
        /// The digest of its content.
        digest: Digest,
    },
    /// A directory; its entries are separate nodes.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Its target, as bytes.
        #[serde(serialize_with = "path::serialize_name", deserialize_with = "path::deserialize_name")]
        target: Vec<u8>,
    },
    /// An existing pipe, socket or device. A change never contains one.
    Special {
        /// Its type.
        special: FileKind,
    },
}

impl Node {
    /// An injective encoding.
    pub(crate) fn write_canonical(&self, out: &mut Vec<u8>) {
        write_bytes(out, self.path.as_bytes());
        out.extend_from_slice(&self.mode.to_be_bytes());
        match &self.content {
            Content::File { size, digest } => {
                out.push(b'f');
                out.extend_from_slice(&size.to_be_bytes());
                out.extend_from_slice(&digest.0);
            }
            Content::Directory => out.push(b'd'),
            Content::Symlink { target } => {
                out.push(b'l');
                write_bytes(out, target);
            }
            Content::Special { special } => {
                out.push(b's');
                write_bytes(out, special.name().as_bytes());
            }
        }
    }
}

/// Prefixed with the length, so that concatenations are unambiguous.
pub(crate) fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The digest of a tree: of its nodes, the top first.
pub(crate) fn digest(nodes: &[Node]) -> Digest {
    let mut bytes = Vec::new();
    nodes.iter().for_each(|node| node.write_canonical(&mut bytes));
    Digest::of(&bytes)
}

/// The limits of one effect, before and after combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Files, folders and links.
    pub entries: u64,
    /// Bytes of file contents.
    pub bytes: u64,
    /// The depth of directories, counted from where a change begins.
    pub depth: u32,
}

impl Limits {
    /// 200,000 entries and 8 GiB, which fits an installed `node_modules` but not an accidental disk image. Depth 128; each level is an open
    /// file during the walk.
    pub const USUAL: Self = Self { entries: 200_000, bytes: 8 << 30, depth: 128 };
}

impl Default for Limits {
    /// [`Limits::USUAL`].
    fn default() -> Self {
        Self::USUAL
    }
}

/// Polled between entries of a tree and chunks of a file; returns true to stop.
pub type Stop<'a> = &'a dyn Fn() -> bool;

/// A pipe, socket or device that a call left, which cannot be committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecialFile {
    /// The path.
    pub path: RelPath,
    /// Its type.
    pub kind: FileKind,
}

/// Why a tree could not be read.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// More than a limit allows.
    #[error(
        "the limit `{limit}` of {allowed} is exceeded at `{path}`: change fewer files in one call, or raise the limit"
    )]
    Limit {
        /// The field of [`Limits`].
        limit: &'static str,
        /// Its value.
        allowed: u64,
        /// Where it was exceeded.
        path: String,
    },
    /// The caller stopped it.
    #[error("it was stopped before everything was examined")]
    Stopped,
    /// It is or contains a directory of Belay, or a state directory.
    #[error("`{path}` belongs to Belay: do not move or change it")]
    Reserved {
        /// The path.
        path: String,
    },
    /// The overlay was mounted with options that are not supported.
    #[error("`{path}` only refers to its content: mount the view with redirect_dir and metacopy off")]
    Elsewhere {
        /// The path.
        path: String,
    },
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}

/// The side that is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The workspace: read only.
    Workspace,
    /// An upper directory: not used by anyone else. Whiteouts are not part of its content, and set-id bits and special files are skipped.
    Upper,
}

/// The result of a walk at one path.
pub(crate) struct Tree {
    /// The top first, then by path.
    pub(crate) nodes: Vec<Node>,
    /// The status of the top.
    pub(crate) top: Stat,
    /// The last change of anything inside, without the top.
    pub(crate) newest_inside: Option<FileTime>,
    /// The paths whose set-id bits were skipped.
    pub(crate) stripped: Vec<RelPath>,
    /// The skipped special files.
    pub(crate) left_out: Vec<SpecialFile>,
}

impl Tree {
    /// The last change of anything in it.
    pub(crate) fn newest(&self) -> FileTime {
        self.newest_inside.map_or(self.top.changed, |inside| inside.max(self.top.changed))
    }
}

/// Walks trees within one set of limits.
pub(crate) struct Walk<'a> {
    disk: &'a Disk,
    limits: Limits,
    side: Side,
    stop: Option<Stop<'a>>,
    /// If false, content is not read: only times are needed.
    hash: bool,
    entries: u64,
    bytes: u64,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(disk: &'a Disk, limits: Limits, side: Side) -> Self {
        Self { disk, limits, side, stop: None, hash: true, entries: 0, bytes: 0 }
    }

    /// A walk of the workspace for its times: the digests are meaningless.
    pub(crate) fn of_times(disk: &'a Disk, limits: Limits) -> Self {
        Self { hash: false, ..Self::new(disk, limits, Side::Workspace) }
    }

    /// Stops with [`TreeError::Stopped`] once `stop` returns true.
    pub(crate) fn until(self, stop: Stop<'a>) -> Self {
        Self { stop: Some(stop), ..self }
    }

    fn check(&self) -> Result<(), TreeError> {
        if self.stop.is_some_and(|stop| stop()) { Err(TreeError::Stopped) } else { Ok(()) }
    }

    /// Switches the side; the limits continue.
    pub(crate) fn turn(&mut self, side: Side) {
        self.side = side;
    }

    /// The tree at `name` in `folder`; `None` if nothing is there.
    pub(crate) fn tree(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
    ) -> Result<Option<Tree>, TreeError> {
        let Some(top) = stat_entry(folder, name).at("inspecting", path)? else {
            return Ok(None);
        };
        let mut tree = Tree { nodes: Vec::new(), top, newest_inside: None, stripped: Vec::new(), left_out: Vec::new() };
        self.visit(folder, name, path, top, 0, &mut tree)?;
        // The names of each directory were sorted; as whole paths `a.b` sorts before `a/b`.
        tree.nodes.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Some(tree))
    }

    fn visit(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
        found: Stat,
        depth: u32,
        tree: &mut Tree,
    ) -> Result<(), TreeError> {
        let over = |limit, allowed| TreeError::Limit { limit, allowed, path: path.to_string() };
        self.check()?;
        self.entries += 1;
        if self.entries > self.limits.entries {
            return Err(over("entries", self.limits.entries));
        }
        if depth > self.limits.depth {
            return Err(over("depth", self.limits.depth.into()));
        }
        let mut mode = found.mode;
        let content = match found.kind {
            FileKind::File => self.file(folder, name, path, &found)?,
            FileKind::Directory => {
                self.inside(folder, name, path, &found, depth, tree)?;
                Content::Directory
            }
            FileKind::Symlink => {
                mode = 0;
                let target = readlinkat(folder, name, Vec::new()).at("reading the link", path)?;
                Content::Symlink { target: target.into_bytes() }
            }
            special if self.side == Side::Workspace => Content::Special { special },
            kind => {
                tree.left_out.push(SpecialFile { path: path.clone(), kind });
                return Ok(());
            }
        };
        if self.side == Side::Upper && mode & 0o6000 != 0 {
            tree.stripped.push(path.clone());
            mode &= 0o1777;
        }
        tree.nodes.push(Node { path: path.clone(), mode, content });
        Ok(())
    }

    fn inside(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
        found: &Stat,
        depth: u32,
        tree: &mut Tree,
    ) -> Result<(), TreeError> {
        let (within, mode) = match self.side {
            Side::Workspace => (open_entry(folder, name, DIRECTORY).at("opening", path)?, None),
            Side::Upper => open_for_reading(self.disk, folder, name, found).at("opening", path)?,
        };
        if self.side == Side::Upper && lies_elsewhere(&within).at("reading the overlay attributes of", path)? {
            return Err(TreeError::Elsewhere { path: path.to_string() });
        }
        if self.side == Side::Workspace && stores::is_state_directory(&within).at("inspecting", path)? {
            return Err(TreeError::Reserved { path: path.to_string() });
        }
        for child in names(&within).at("listing", path)? {
            let place = path.join(&child);
            let Some(found) = stat_entry(&within, &child).at("inspecting", &place)? else {
                continue;
            };
            if self.side == Side::Upper && is_whiteout(self.disk, &within, &child, &found).at("inspecting", &place)? {
                continue;
            }
            if path::is_own(&child) {
                return Err(TreeError::Reserved { path: place.to_string() });
            }
            tree.newest_inside = tree.newest_inside.max(Some(found.changed));
            self.visit(within.as_fd(), &child, &place, found, depth + 1, tree)?;
        }
        // A name added or removed during the listing has updated the ctime of the directory.
        let after = Stat::from(fstat(&within).at("inspecting", path)?);
        tree.newest_inside = tree.newest_inside.max((depth > 0).then_some(after.changed));
        mode.map_or(Ok(()), |mode| self.disk.set_mode(&within, mode)).at("restoring the mode of", path)?;
        Ok(())
    }

    fn file(
        &mut self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
        found: &Stat,
    ) -> Result<Content, TreeError> {
        if !self.hash {
            return Ok(Content::File { size: found.size, digest: Digest([0; 32]) });
        }
        let (file, mode) = match self.side {
            Side::Workspace => match open_file(folder, name) {
                Ok((file, _)) => (file, None),
                Err(NotAFile::Other(found)) => return Ok(Content::Special { special: found.kind }),
                Err(NotAFile::Unopened(error)) => {
                    return Err(Err::<(), _>(error).at("opening", path).unwrap_err().into());
                }
            },
            Side::Upper => open_for_reading(self.disk, folder, name, found).at("opening", path)?,
        };
        if self.side == Side::Upper && lies_elsewhere(&file).at("reading the overlay attributes of", path)? {
            return Err(TreeError::Elsewhere { path: path.to_string() });
        }
        let mut hash = Sha256::new();
        let mut size = 0;
        let mut buffer = vec![0; 64 << 10];
        loop {
            self.check()?;
            let length = match rustix::io::read(&file, &mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(Err::<(), _>(error).at("reading", path).unwrap_err().into()),
            };
            size += length as u64;
            self.bytes += length as u64;
            if self.bytes > self.limits.bytes {
                let allowed = self.limits.bytes;
                return Err(TreeError::Limit { limit: "bytes", allowed, path: path.to_string() });
            }
            hash.update(&buffer[..length]);
        }
        mode.map_or(Ok(()), |mode| self.disk.set_mode(&file, mode)).at("restoring the mode of", path)?;
        Ok(Content::File { size, digest: Digest(hash.finalize().into()) })
    }
}
