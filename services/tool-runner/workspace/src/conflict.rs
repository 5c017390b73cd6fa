//! Whether the workspace still is what a call believed it to be.
//!
//! A workspace may be a folder in which a person works too, so nothing is scanned when a view begins. Instead each touched path is
//! judged by the one mark that no ordinary write avoids, the time of change (ctime) that the kernel keeps:
//!
//! 1. **From the view's beginning to its effect.** A touched path whose file, or anything inside it if it is a folder, changed in that
//!    time is a conflict, whatever it changed to: the call may have seen either. A path that a call overwrote and that is gone since is
//!    known by the mark of its copy-up, if its folder lost or gained a name in that time.
//! 2. **From the effect to the commit**, which may be days. The effect holds the digest of what each path held. The check reads it
//!    again, unless nothing in it changed since by inode, size and times. Equal contents and modes are no conflict, however they came
//!    about, and nothing else in the workspace matters.
//! 3. **In the instant of the commit.** What the exchange displaced is checked the same way once it lies in our own folder. A save that
//!    slipped in between is found there and exchanged back.
//!
//! Not seen: a write through a shared memory mapping that was already dirty, or through a file kept open across the commit; a change
//! under a clock that was set back meanwhile, if it also left size, inode and time of modification as they were; between 1's two ends,
//! a folder on the way that a person replaced by another one (of Belay's own commits the caller knows it), and a folder's own mode; and a
//! write-after-read of a path that the call read but did not touch. Before Linux 6.13, a path that changed in the very tick in which the view began is a conflict that is none: running
//! the call again clears it.

use std::{ffi::OsStr, os::fd::BorrowedFd};

use serde::{Deserialize, Serialize};

use crate::{
    disk::Disk,
    path::RelPath,
    stat::FileTime,
    tree::{self, Digest, Limits, Side, Tree, TreeError, Walk},
};

/// What a path held, precisely enough to know it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Of everything at the path: kinds, names, modes, contents.
    pub digest: Digest,
    /// The inode of its top.
    pub inode: u64,
    /// The permission bits of its top.
    pub mode: u32,
    /// The size of its top.
    pub size: u64,
    /// When its top was last modified.
    pub modified: FileTime,
    /// The file system's time just before it was read.
    pub seen: FileTime,
}

/// Where a path is looked for when it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At its own place.
    Still,
    /// Renamed since, which the top's time of change shows.
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

    /// Whether that is what `name` in `folder` holds. `path` is what it is called in the workspace.
    pub(crate) fn matches(
        &self,
        disk: &Disk,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
        place: Place,
    ) -> Result<bool, TreeError> {
        if self.is_untouched(disk, folder, name, path, place)? {
            return Ok(true);
        }
        let read = beyond_is_none(Walk::new(disk, BOUNDLESS, Side::Workspace).tree(folder, name, path))?;
        Ok(read.is_some_and(|tree| tree::digest(&tree.nodes) == self.digest))
    }

    /// Whether `name` in `folder`, renamed since, holds an earlier state of the very thing: what a loss of power leaves of it where its last
    /// change had not been written through.
    pub(crate) fn matches_what_was_before(
        &self,
        disk: &Disk,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
    ) -> Result<bool, TreeError> {
        let Some(times) = beyond_is_none(Walk::of_times(disk, BOUNDLESS).tree(folder, name, path))? else {
            return Ok(false);
        };
        let changed_since =
            [Some(times.top.modified), times.newest_inside].into_iter().flatten().any(|at| at >= self.seen);
        Ok(times.top.ino == self.inode && !changed_since)
    }

    /// Whether that is what `name` in `folder` holds, by inode, size and times alone. If not, its contents can still be the same.
    pub(crate) fn is_untouched(
        &self,
        disk: &Disk,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &RelPath,
        place: Place,
    ) -> Result<bool, TreeError> {
        let Some(times) = beyond_is_none(Walk::of_times(disk, BOUNDLESS).tree(folder, name, path))? else {
            return Ok(false);
        };
        let newest = if place == Place::Moved { times.newest_inside } else { Some(times.newest()) };
        let top = times.top;
        let same_top = (top.ino, top.mode, top.size, top.modified) == (self.inode, self.mode, self.size, self.modified);
        // A top that was renamed has lost its time of change as a witness; the time of modification stands in, if it is old enough.
        Ok(same_top && top.modified < self.seen && newest.is_none_or(|newest| newest < self.seen))
    }
}

/// For comparing: what is there now may be larger than what was agreed to, and is something else then.
pub(crate) const BOUNDLESS: Limits = Limits { entries: u64::MAX, bytes: u64::MAX, ..Limits::USUAL };

fn beyond_is_none(walked: Result<Option<Tree>, TreeError>) -> Result<Option<Tree>, TreeError> {
    match walked {
        Err(TreeError::Limit { .. }) => Ok(None),
        walked => walked,
    }
}
