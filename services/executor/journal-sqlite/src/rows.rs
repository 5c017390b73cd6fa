//! Queries that the reader and the writer share.

use std::collections::BTreeMap;

use belay_journal::ExecutionKey;
use rusqlite::{Connection, OptionalExtension as _};

use crate::Head;

/// The wrapped key to the execution's secrets, if it has any.
pub(crate) fn seal_key(connection: &Connection, key: ExecutionKey) -> Result<Option<Vec<u8>>, rusqlite::Error> {
    connection
        .prepare_cached("SELECT wrapped FROM seal_key WHERE exec = ?1")?
        .query_row([key.0], |row| row.get(0))
        .optional()
}

/// The head that the execution's own row names.
pub(crate) fn recorded_head(connection: &Connection, key: ExecutionKey) -> Result<Option<Head>, rusqlite::Error> {
    connection
        .prepare_cached("SELECT last_log, last_seq, log_rows FROM execution WHERE exec = ?1")?
        .query_row([key.0], |row| Ok(Head { row: row.get(0)?, last_sequence: row.get(1)?, rows: row.get(2)? }))
        .optional()
}

/// Labels as one text: `key`, unit separator, `value`, record separator, for each. Control characters cannot stand in labels.
pub(crate) fn write_labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().flat_map(|(key, value)| [key, "\u{1f}", value, "\u{1e}"]).collect()
}

pub(crate) fn read_labels(text: &str) -> BTreeMap<String, String> {
    text.split_terminator('\u{1e}')
        .filter_map(|pair| pair.split_once('\u{1f}'))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
