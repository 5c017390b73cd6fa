//! Translation of SQLite's errors to those of the journal's port.

use belay_journal::StoreError;
use belay_sqlite::SqliteError;

pub(crate) fn store_error(error: SqliteError) -> StoreError {
    match error {
        SqliteError::Locked => StoreError::Locked,
        SqliteError::Corrupt(what) => StoreError::Corrupt(what),
        SqliteError::Row(row) => StoreError::Damaged(row.to_string()),
        SqliteError::Full => StoreError::Full,
        SqliteError::Gone => StoreError::Gone,
        SqliteError::Behind(what) => StoreError::Behind(what),
        SqliteError::Newer { found, known } => StoreError::Newer { found, known },
        SqliteError::Older { found, known, lacks } => StoreError::Older { found, known, lacks },
        SqliteError::Other(what) => StoreError::Other(what),
    }
}
