//! Takes out of layers what conflicts with the workspace.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    io::{self, Read as _},
    os::fd::{AsFd as _, BorrowedFd},
};

use rustix::{fs::readlinkat, io::Errno};

use crate::{
    commit::{self, CommitError, Op, slot_name},
    disk::IoFailure,
    dropped::{Dropped, DroppedChange, DroppedContent, RevertedPath},
    inner::Inner,
    kept_layers::slots_of,
    layer::{Layer, Paths},
    open::{names, stat_entry},
    overlay_format::open_for_reading,
    path::RelPath,
    stat::FileKind,
    tree::Stop,
    view_error::ViewError,
};

/// How many bytes of a file are kept of a change.
const MAX_BYTES: u64 = 64 * 1024;

/// The number of changes whose content is kept, each file of a directory being one: more would not fit into what is read of them.
const MAX_CONTENTS: usize = 256;

/// The number of changes whose paths are kept. Those beyond are counted.
const MAX_CHANGES: usize = 10_000;

/// Why layers could not be compared with the workspace.
pub(crate) fn not_compared(error: CommitError) -> ViewError {
    match error {
        CommitError::Conflict { paths } => ViewError::LayerConflict { paths },
        CommitError::Io(failure) => failure.into(),
        other => ViewError::Layers { why: other.to_string() },
    }
}

/// Takes out of the operations of these layers those at whose paths the workspace has changed, and all inside of such paths.
pub(crate) fn drop_conflicts(
    inner: &Inner,
    layers: &[Layer],
    ops: &mut [Vec<&Op>],
    stop: Stop<'_>,
) -> Result<Dropped, ViewError> {
    let check = || if stop() { Err(ViewError::Stopped) } else { Ok(()) };
    let mut conflicting = Vec::new();
    for ops in &*ops {
        check()?;
        conflicting.extend(commit::conflicting(inner, ops.iter().copied()).map_err(not_compared)?);
    }
    if conflicting.is_empty() {
        return Ok(Dropped::default());
    }
    let is_mode = |op: &Op| matches!(op, Op::Meta { .. });
    let whole = Paths::of(conflicting.iter().filter(|op| !is_mode(op)).map(|op| (op.path(), true)));
    let modes = Paths::of(conflicting.iter().filter(|op| is_mode(op)).map(|op| (op.path(), false)));
    let is_dropped = |op: &Op| whole.cover(op.path()) || is_mode(op) && modes.cover(op.path());
    // The last layer that has something at a path, or around it, says what the set has there. In the order of their bytes, all that is inside of a path stands together.
    let mut last: BTreeMap<Vec<u8>, (&Layer, &Op)> = BTreeMap::new();
    for (layer, ops) in layers.iter().zip(&mut *ops) {
        check()?;
        for &op in ops.iter().filter(|op| is_dropped(op)) {
            let path = op.path().as_bytes().to_vec();
            if !is_mode(op) {
                let inside = [&*path, b"/"].concat();
                let covered: Vec<Vec<u8>> = last
                    .range(inside.clone()..)
                    .map(|(path, _)| path)
                    .take_while(|path| path.starts_with(&inside))
                    .cloned()
                    .collect();
                for path in covered {
                    last.remove(&path);
                }
            }
            last.insert(path, (layer, op));
        }
        ops.retain(|op| !is_dropped(op));
    }
    let mut paths: BTreeMap<&RelPath, bool> = BTreeMap::new();
    for op in conflicting {
        *paths.entry(op.path()).or_insert(true) &= is_mode(op);
    }
    let mut dropped = Dropped::default();
    dropped.paths.extend(paths.into_iter().map(|(path, is_mode)| RevertedPath { path: path.clone(), is_mode }));
    for (layer, op) in last.values() {
        check()?;
        let path = op.path();
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

impl Dropped {
    fn push(&mut self, path: &RelPath, was: DroppedContent) {
        if self.changes.len() < MAX_CHANGES {
            self.changes.push(DroppedChange { path: path.clone(), was });
        } else {
            self.unlisted += 1;
        }
    }

    /// Keeps what is at a name: a file, or all that is in a directory.
    fn add(&mut self, inner: &Inner, folder: BorrowedFd<'_>, name: &OsStr, path: &RelPath) -> io::Result<()> {
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
                if self.changes.len() >= MAX_CONTENTS {
                    self.push(path, DroppedContent::File { bytes: Vec::new(), size: found.size });
                    return Ok(());
                }
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
