//! Translation of SQLite's errors to those of the journal's port.

use belay_journal::StoreError;
use belay_sqlite::SqliteError;

pub(crate) fn store_error(error: SqliteError) -> StoreError {
    match error {
        SqliteError::Fault(fault) => fault.into(),
        SqliteError::Row(row) => StoreError::Damaged(row.to_string()),
    }
}
