//! Errors of a database file, grouped by what a person can do about them.

use belay_reasons as reasons;
use rusqlite::ErrorCode;
use thiserror::Error;

use crate::DamagedRow;

/// Why a database cannot be opened, read or written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SqliteError {
    /// Another process has it open.
    #[error("the store is in use by another process")]
    Locked,
    /// Its bytes make no sense, or belong to another program.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A row is damaged; the others can be used.
    #[error("{0}")]
    Row(DamagedRow),
    /// The disk is full.
    #[error("the disk is full")]
    Full,
    /// Its files were removed or replaced while it was open: further writes would be lost.
    #[error("the store's file was removed or replaced while it was in use")]
    Gone,
    /// Another service has seen a later position of it.
    #[error("{0}")]
    Behind(String),
    /// A newer version of Belay wrote it.
    #[error("the store has format {found}, and this version of Belay reads up to {known}")]
    Newer {
        /// The file's format.
        found: i64,
        /// The newest format known.
        known: i64,
    },
    /// An earlier, unreleased version of Belay wrote it.
    #[error(
        "the store has format {found} of an earlier version of Belay, and this version reads format {known}: it lacks {lacks}"
    )]
    Older {
        /// The file's format.
        found: i64,
        /// The format that is read.
        known: i64,
        /// The part that the earlier format lacks.
        lacks: &'static str,
    },
    /// Anything else, in SQLite's words.
    #[error("{0}")]
    Other(String),
}

impl SqliteError {
    /// The reason code, for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Locked => reasons::STORE_LOCKED,
            Self::Corrupt(_) | Self::Row(_) => reasons::STORE_CORRUPT,
            Self::Full => reasons::STORE_FULL,
            Self::Gone => reasons::STORE_GONE,
            Self::Behind(_) => reasons::STORE_BEHIND,
            Self::Newer { .. } => reasons::STORE_NEWER,
            Self::Older { .. } => reasons::STORE_OLDER,
            Self::Other(_) => reasons::STORE_FAILED,
        }
    }
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Corrupt(error.to_string()),
            Some(ErrorCode::DiskFull) => Self::Full,
            // The log's shared memory could not grow, which happens when the disk is full.
            Some(ErrorCode::SystemIoFailure) if extended_code(&error) == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => {
                Self::Full
            }
            _ => Self::Other(error.to_string()),
        }
    }
}

pub(crate) fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}
