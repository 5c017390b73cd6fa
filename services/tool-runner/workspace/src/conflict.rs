//! Detects whether the workspace has changed under a call.
//!
//! People may work in the workspace too, so nothing is scanned when a view begins. Instead each touched path is judged by its change time
//! (ctime), which every ordinary write updates:
//!
//! 1. **From the start of the view to its effect.** A touched path that changed in that time, or that contains something that did, is a
//!    conflict, whatever it changed to: the call may have seen either state. A path that a call overwrote and that was removed since is
//!    recognised by the attribute of its copy-up, if its directory changed in that time.
//! 2. **From the effect to the commit**, which may be days. The effect holds the digest of each path. The check computes it again, unless
//!    inode, size and times are all unchanged. Equal content and modes are no conflict, however they came about, and nothing else in the
//!    workspace matters.
//! 3. **At the commit.** The replaced file is checked in the same way once the exchange has moved it into our own directory. A save in
//!    between is found there and exchanged back.
//!
//! Not detected: a write through a shared memory mapping that was already dirty, or through a file kept open across the commit; a change
//! under a clock that was set back, if size, inode and modification time are unchanged too; in case 1, a parent directory that a person
//! replaced with another (the caller knows it for commits of Belay), and the mode of a directory; and a write to a path that the call read
//! but did not touch. Before Linux 6.13, a path that changed in the very tick in which the view began is a false conflict: running the call
//! again clears it.

use std::{ffi::OsStr, os::fd::BorrowedFd};

use serde::{Deserialize, Serialize};

use crate::{
    disk::Disk,
    path::RelPath,
    stat::{FileTime, Stat},
    tree::{self, Digest, Limits, Side, Tree, TreeError, Walk},
};

/// Identifies the content of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The digest of everything at the path: kinds, names, modes, contents.
    pub digest: Digest,
    /// The inode of its top.
    pub inode: u64,
    /// The permission bits of its top.
    pub mode: u32,
    /// The size of its top.
    pub size: u64,
    /// When its top was last modified.
    pub modified: FileTime,
    /// The time of the file system just before it was read.
    pub seen: FileTime,
}

/// Where an entry is when it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Position {
    /// At its original path.
    InPlace,
    /// Renamed since, which updates the ctime of its top.
    Moved,
}

impl Fingerprint {
    pub(crate) fn of(tree: &Tree, seen: FileTime) -> Self {
        Self {
            digest: tree::digest(&tree.nodes),
            inode: tree.top.ino,
            mode: tree.top.mode,
            size: tree.top.size,
            modified: tree.top.modified,
            seen,
        }
    }

    /// Whether `name` in `folder` has this content. `path` is its path in the workspace.
    pub(crate) fn matches(
        &self,
        disk: &Disk,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
        position: Position,
    ) -> Result<bool, TreeError> {
        if self.is_untouched(disk, folder, name, path, position)? {
            return Ok(true);
        }
        let read = none_beyond_limits(Walk::new(disk, BOUNDLESS, Side::Workspace).tree(folder, name, path))?;
        Ok(read.is_some_and(|tree| tree::digest(&tree.nodes) == self.digest))
    }

    /// Whether `name` in `folder`, renamed since, is an earlier state of the same file, as a power loss leaves it if its last change was
    /// not synced.
    pub(crate) fn matches_earlier_state(
        &self,
        disk: &Disk,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
    ) -> Result<bool, TreeError> {
        let Some(times) = none_beyond_limits(Walk::of_times(disk, BOUNDLESS).tree(folder, name, path))? else {
            return Ok(false);
        };
        let changed_since =
            [Some(times.top.modified), times.newest_inside].into_iter().flatten().any(|at| at >= self.seen);
        Ok(times.top.ino == self.inode && !changed_since)
    }

    /// Whether this is the same top by inode, mode, size and modification time.
    pub(crate) fn is_top(&self, top: &Stat) -> bool {
        (top.ino, top.mode, top.size, top.modified) == (self.inode, self.mode, self.size, self.modified)
    }

    /// Whether `name` in `folder` is unchanged by inode, size and times alone. If not, its content may still be equal.
    pub(crate) fn is_untouched(
        &self,
        disk: &Disk,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
        position: Position,
    ) -> Result<bool, TreeError> {
        let Some(times) = none_beyond_limits(Walk::of_times(disk, BOUNDLESS).tree(folder, name, path))? else {
            return Ok(false);
        };
        let newest = if position == Position::Moved { times.newest_inside } else { Some(times.newest()) };
        let top = times.top;
        // A rename updates the ctime of the top; its modification time is used instead, if it is old enough.
        Ok(self.is_top(&top) && top.modified < self.seen && newest.is_none_or(|newest| newest < self.seen))
    }
}

/// For comparisons: the current content may be larger than the approved one, and differs then.
pub(crate) const BOUNDLESS: Limits = Limits { entries: u64::MAX, bytes: u64::MAX, ..Limits::USUAL };

fn none_beyond_limits(walked: Result<Option<Tree>, TreeError>) -> Result<Option<Tree>, TreeError> {
    match walked {
        Err(TreeError::Limit { .. }) => Ok(None),
        walked => walked,
    }
}
