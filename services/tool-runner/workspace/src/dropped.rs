//! Changes of layers that a view does not begin with, because others have changed the same paths since.

use serde::{Deserialize, Serialize};

use crate::path::RelPath;

/// A path that is as it is in the workspace again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RevertedPath {
    /// The path.
    pub path: RelPath,
    /// Whether it is a directory of which the mode alone had changed.
    pub is_mode: bool,
}

/// A change of a layer that a view does not begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedChange {
    /// The path.
    pub path: RelPath,
    /// The content of the layer there.
    pub was: DroppedContent,
}

/// The content of a layer at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DroppedContent {
    /// A file.
    File {
        /// Its first 64 KiB; none of the files after the first 256.
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
    /// How many more there are.
    pub(crate) unlisted: usize,
    /// The paths at which the view has what the workspace has.
    pub(crate) paths: Vec<RevertedPath>,
}
