//! Errors of a database file, grouped by what a person can do about them.

use belay_reasons::{self as reasons, StoreFault};
use rusqlite::ErrorCode;
use thiserror::Error;

use crate::DamagedRow;

/// Why a database cannot be opened, read or written.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SqliteError {
    /// It cannot be used; any other fault is in SQLite's words.
    #[error(transparent)]
    Fault(#[from] StoreFault),
    /// A row is damaged; the others can be used.
    #[error("{0}")]
    Row(DamagedRow),
}

impl SqliteError {
    /// The reason code, for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Fault(fault) => fault.reason(),
            Self::Row(_) => reasons::STORE_CORRUPT,
        }
    }
}

impl From<rusqlite::Error> for SqliteError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Fault(match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreFault::Locked,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreFault::Corrupt(error.to_string()),
            Some(ErrorCode::DiskFull) => StoreFault::Full,
            // The log's shared memory could not grow, which happens when the disk is full.
            Some(ErrorCode::SystemIoFailure) if extended_code(&error) == Some(rusqlite::ffi::SQLITE_IOERR_SHMSIZE) => {
                StoreFault::Full
            }
            _ => StoreFault::Other(error.to_string()),
        })
    }
}

pub(crate) fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    error.sqlite_error().map(|error| error.extended_code)
}
