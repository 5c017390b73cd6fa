//! Changes of layers that a view does not begin with, because others have changed the same paths since.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::{fs::readlinkat, io::Errno};

use crate::{
    commit::{self, Op, slot_name},
    disk::IoFailure,
    inner::Inner,
    layer::{Layer, Paths, RevertedPath},
    layers::{not_compared, slots_of},
    open::{names, stat_entry},
    overlay_format::open_for_reading,
    path::RelPath,
    stat::FileKind,
    view_error::ViewError,
};

/// How many bytes of a file are kept of a change.
pub(crate) const MAX_BYTES: u64 = 64 * 1024;

/// How many changes are kept, each file of a directory being one: more would not fit into what anyone reads of them.
pub(crate) const MAX_CHANGES: usize = 256;

/// A change of a layer that a view does not begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedChange {
    /// The path.
    pub path: RelPath,
    /// What the layer has there.
    pub was: DroppedContent,
}

/// What a layer has at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DroppedContent {
    /// A file.
    File {
        /// Its first 64 KiB.
        bytes: Vec<u8>,
        /// Its size in bytes.
        size: u64,
    },
    /// An empty directory.
    Directory,
    /// A symbolic link.
    Link {
        /// Its target.
        target: Vec<u8>,
    },
    /// Nothing: it was removed.
    Nothing,
    /// A directory with other permission bits than it had.
    Mode(u32),
}

/// The changes that a view does not begin with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dropped {
    /// The changes, as far as they are kept, by path.
    pub(crate) changes: Vec<DroppedChange>,
    /// The paths at which the view has what the workspace has.
    pub(crate) paths: Vec<RevertedPath>,
}

impl Dropped {
    /// Takes out of the operations of these layers those at whose paths the workspace has changed, and all inside of such paths.
    pub(crate) fn take(inner: &Inner, layers: &[Layer], ops: &mut [Vec<&Op>]) -> Result<Self, ViewError> {
        let mut conflicting = Vec::new();
        for ops in &*ops {
            conflicting.extend(commit::conflicting(inner, ops.iter().copied()).map_err(not_compared)?);
        }
        if conflicting.is_empty() {
            return Ok(Self::default());
        }
        let is_mode = |op: &Op| matches!(op, Op::Meta { .. });
        let whole = Paths::of(conflicting.iter().filter(|op| !is_mode(op)).map(|op| (op.path(), true)));
        let modes = Paths::of(conflicting.iter().filter(|op| is_mode(op)).map(|op| (op.path(), false)));
        let is_dropped = |op: &Op| whole.cover(op.path()) || is_mode(op) && modes.cover(op.path());
        // The last layer that has something at a path, or around it, says what the set has there.
        let mut last: BTreeMap<RelPath, (&Layer, &Op)> = BTreeMap::new();
        for (layer, ops) in layers.iter().zip(&mut *ops) {
            for &op in ops.iter().filter(|op| is_dropped(op)) {
                if !is_mode(op) {
                    last.retain(|path, _| !path.is_inside(op.path()));
                }
                last.insert(op.path().clone(), (layer, op));
            }
            ops.retain(|op| !is_dropped(op));
        }
        let mut paths: BTreeMap<&RelPath, bool> = BTreeMap::new();
        for op in conflicting {
            *paths.entry(op.path()).or_insert(true) &= is_mode(op);
        }
        let mut dropped = Self::default();
        dropped.paths.extend(paths.into_iter().map(|(path, is_mode)| RevertedPath { path: path.clone(), is_mode }));
        for (path, (layer, op)) in &last {
            match op {
                Op::Put { slot, .. } => {
                    let slots = slots_of(inner, layer)?;
                    let failed =
                        |source| IoFailure { doing: "reading a change of a layer of", path: path.to_string(), source };
                    dropped.add(inner, slots.as_fd(), &slot_name(*slot), path).map_err(failed)?;
                }
                Op::Away { .. } => dropped.push(path, DroppedContent::Nothing),
                Op::Meta { new, .. } => dropped.push(path, DroppedContent::Mode(*new)),
            }
        }
        Ok(dropped)
    }

    fn push(&mut self, path: &RelPath, was: DroppedContent) {
        if self.changes.len() < MAX_CHANGES {
            self.changes.push(DroppedChange { path: path.clone(), was });
        }
    }

    /// Keeps what is at a name: a file, or all that is in a directory.
    fn add(&mut self, inner: &Inner, folder: BorrowedFd<'_>, name: &OsStr, path: &RelPath) -> io::Result<()> {
        if self.changes.len() >= MAX_CHANGES {
            return Ok(());
        }
        let found = stat_entry(folder, name)?.ok_or(Errno::NOENT)?;
        let was = match found.kind {
            FileKind::Symlink => DroppedContent::Link { target: readlinkat(folder, name, Vec::new())?.into_bytes() },
            FileKind::Directory => {
                let (within, mode) = open_for_reading(&inner.disk, folder, name, &found)?;
                let children = names(&within)?;
                for child in &children {
                    self.add(inner, within.as_fd(), child, &path.join(child))?;
                }
                mode.map_or(Ok(()), |mode| inner.disk.set_mode(&within, mode))?;
                if !children.is_empty() {
                    return Ok(());
                }
                DroppedContent::Directory
            }
            FileKind::File => {
                let (file, mode) = open_for_reading(&inner.disk, folder, name, &found)?;
                mode.map_or(Ok(()), |mode| inner.disk.set_mode(&file, mode))?;
                let mut bytes = Vec::new();
                File::from(file).take(MAX_BYTES).read_to_end(&mut bytes)?;
                DroppedContent::File { bytes, size: found.size }
            }
            FileKind::Fifo | FileKind::Socket | FileKind::Device => return Ok(()),
        };
        self.push(path, was);
        Ok(())
    }
}
