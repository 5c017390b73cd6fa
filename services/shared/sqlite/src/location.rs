//! Where a database is, and how it reaches the disk.

use std::path::PathBuf;

use belay_group_commit::MAX_BATCH;

/// Where a database is.
#[derive(Clone, Debug)]
pub struct Location {
    /// The file. Its folder must exist.
    pub path: PathBuf,
    /// The name of a registered VFS to use, with one exclusive connection: a simulated disk. `None` means the real disk.
    pub vfs: Option<String>,
    /// How a commit reaches the disk.
    pub synchronous: Synchronous,
    /// Accepts a store that is behind the positions that other services have seen, and starts this generation, in microseconds since the Unix
    /// epoch. `None` unless the operator requests it.
    pub accepted: Option<i64>,
    /// The maximum number of operations in one commit.
    pub max_batch: usize,
}

impl Location {
    /// A file on the real disk.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), vfs: None, synchronous: Synchronous::Full, accepted: None, max_batch: MAX_BATCH }
    }
}

/// How a commit reaches the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Synchronous {
    /// A commit is on the disk when it returns.
    #[default]
    Full,
    /// A power loss may lose a commit. Only for proving that the simulation detects that.
    Normal,
}
