//! The store of blobs: values of executions that are too large for the journal.
//!
//! The store keeps files of bytes, each of one execution, and does not know what is in them: the executor seals them before it writes them.
//! The journal decides what counts. A file is durable before the event that names it is committed, so a file without an event is left over
//! from a crash, and an event whose file is missing is damage.
//!
//! Guarantees of a [`BlobStore`]:
//! 1. When `write` returns, the files are on stable storage under their names, each as a whole. A crash before leaves any of them whole or absent.
//! 2. A file is never changed. Writing a name again replaces it by the same bytes, or by other bytes that stand for the same.
//! 3. `remove` and `remove_files` can be repeated, and what they remove is not found any more.

pub mod conformance;
mod disk;
mod folder;

use std::io;

use thiserror::Error;

pub use disk::{Disk, SystemDisk};
pub use folder::Folder;

/// The execution that files belong to. Both parts are ids, which have no `/` and do not begin with a dot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The id of its namespace.
    pub namespace: String,
    /// Its id.
    pub id: String,
}

/// A file to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlobFile {
    /// Its name: letters, digits and dots, not beginning with a dot.
    pub name: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// Why the store did not do what it was asked for.
#[derive(Debug, Error)]
pub enum BlobError {
    /// There is no such file.
    #[error("the file does not exist")]
    Missing,
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// Anything else.
    #[error(transparent)]
    Failed(io::Error),
}

impl From<io::Error> for BlobError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => Self::Missing,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Failed(error),
        }
    }
}

/// A store of blobs. Every method blocks.
pub trait BlobStore: Send + Sync {
    /// Writes files of an execution, durably.
    ///
    /// # Errors
    /// [`BlobError`]; some of the files may have been written then.
    fn write(&self, owner: &Owner, files: &[BlobFile]) -> Result<(), BlobError>;

    /// At most `length` bytes of a file from `offset` on; fewer only at its end.
    ///
    /// # Errors
    /// [`BlobError::Missing`] when there is no such file.
    fn read(&self, owner: &Owner, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, BlobError>;

    /// The length of a file in bytes.
    ///
    /// # Errors
    /// [`BlobError::Missing`] when there is no such file.
    fn length(&self, owner: &Owner, name: &str) -> Result<u64, BlobError>;

    /// The names of an execution's files, with those that a crash has left unfinished.
    ///
    /// # Errors
    /// [`BlobError`] when they cannot be listed.
    fn names(&self, owner: &Owner) -> Result<Vec<String>, BlobError>;

    /// Removes files of an execution. One that does not exist is removed already.
    ///
    /// # Errors
    /// [`BlobError`]; some of the files may have been removed then.
    fn remove_files(&self, owner: &Owner, names: &[String]) -> Result<(), BlobError>;

    /// Removes all files of an execution.
    ///
    /// # Errors
    /// [`BlobError`]; some of the files may have been removed then.
    fn remove(&self, owner: &Owner) -> Result<(), BlobError>;
}
