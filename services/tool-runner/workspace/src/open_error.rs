//! Why a workspace cannot be opened.

use std::{io, path::PathBuf};

use crate::disk::IoFailure;

/// Why a directory cannot be opened as a workspace.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// It does not exist, or cannot be reached.
    #[error("cannot access workspace `{path}`: {source}; create it, or name another directory")]
    Unreachable {
        /// As given.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// It is a file.
    #[error("workspace `{path}` is not a directory: name the directory that contains the files")]
    NotADirectory {
        /// Its path.
        path: PathBuf,
    },
    /// It is `/`.
    #[error("workspace `/` is the whole machine: name the directory of one project")]
    Root,
    /// It is not writable.
    #[error(
        "workspace `{path}` is not writable by the user that runs Belay: change its owner or mode, or name another directory"
    )]
    ReadOnly {
        /// Its path.
        path: PathBuf,
    },
    /// Its file system is mounted read-only, or was made so by the kernel after an error.
    #[error(
        "the file system of workspace `{path}` is read-only: check its disk and remount it for writing, or name another directory"
    )]
    ReadOnlyFileSystem {
        /// Its path.
        path: PathBuf,
    },
    /// It contains, or is in, a directory that calls must not reach.
    #[error(
        "workspace `{path}` contains, or is inside, `{forbidden}`, which calls must not access: use separate directories"
    )]
    Forbidden {
        /// Its path.
        path: PathBuf,
        /// The directory that calls must not reach.
        forbidden: PathBuf,
    },
    /// Another entry has the name of Belay's own directory.
    #[error("`{path}` is reserved for Belay's own files, but it is {found}: move it away")]
    Occupied {
        /// The path.
        path: PathBuf,
        /// The entry that is there.
        found: &'static str,
    },
    /// Another process has it open.
    #[error("workspace `{path}` is in use by another Belay: stop it, or connect to it as a client")]
    InUse {
        /// Its path.
        path: PathBuf,
    },
    /// The file system lacks a required feature.
    #[error(
        "the file system of workspace `{path}` does not support {lacks}, which views need: use a local file system such as ext4, xfs or btrfs"
    )]
    FileSystem {
        /// Its path.
        path: PathBuf,
        /// The missing feature.
        lacks: &'static str,
    },
    /// A call failed.
    #[error(transparent)]
    Io(#[from] IoFailure),
}
