//! Checks a whole store for damage.

use rusqlite::Connection;

use crate::{DamagedRow, Location, Schema, SqliteError, Table, open};

/// The result of a check of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The damaged rows.
    pub rows: Vec<DamagedRow>,
    /// Damage between rows, such as an index that does not fit to its table, in a sentence each.
    pub structure: Vec<String>,
}

/// Reads every row of a store and every page of its file, whether or not a process has it open. Changes nothing. `more` may add what only the
/// store's service can find. Returns `None` when there is no such store.
///
/// # Errors
/// [`SqliteError`] when it cannot be opened: another format, no database, no right to read it.
pub fn check(
    location: &Location,
    schema: &Schema,
    tables: &[&Table],
    more: impl FnOnce(&Connection, &mut CheckReport) -> Result<(), rusqlite::Error>,
) -> Result<Option<CheckReport>, SqliteError> {
    let Some(connection) = open::to_check(location, schema)? else { return Ok(None) };
    let mut report = CheckReport::default();
    for table in tables {
        match table.damaged_rows(&connection) {
            Ok(damaged) => report.rows.extend(damaged),
            Err(error) => report.structure.push(format!("table `{}` cannot be read to its end: {error}", table.name)),
        }
    }
    let words = connection
        .prepare("PRAGMA integrity_check")
        .and_then(|mut check| check.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<String>, _>>());
    match words {
        Ok(words) => report.structure.extend(words.into_iter().filter(|word| word != "ok")),
        Err(error) => report.structure.push(error.to_string()),
    }
    if let Err(error) = more(&connection, &mut report) {
        report.structure.push(error.to_string());
    }
    Ok(Some(report))
}

/// Reads a store with a connection that changes nothing, whether or not a process has it open. Returns `None` when there is no such store.
///
/// # Errors
/// [`SqliteError`] when it cannot be opened or read.
pub fn inspect<T>(
    location: &Location,
    schema: &Schema,
    read: impl FnOnce(&Connection) -> Result<T, rusqlite::Error>,
) -> Result<Option<T>, SqliteError> {
    let Some(connection) = open::to_check(location, schema)? else { return Ok(None) };
    Ok(Some(read(&connection)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Table = Table { name: "t", columns: &["key", "number", "text", "bytes"], sum: "sum", affects: "a test" };

    #[test]
    fn a_check_names_rows_beside_a_process_that_has_the_store() {
        const SCHEMA: Schema = Schema {
            application_id: 78,
            format: 1,
            earlier_lacks: "nothing",
            create: "CREATE TABLE t (key TEXT PRIMARY KEY, number INTEGER, text TEXT, bytes BLOB, sum INTEGER NOT NULL) STRICT;",
        };
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("store"));
        let report = || check(&location, &SCHEMA, &[&T], |_, _| Ok(())).unwrap();
        assert_eq!(report(), None, "there is none, and none is made");
        assert!(!location.path.exists());
        let store = crate::open(&location, &SCHEMA).unwrap();
        let run = |sql: &str| store.writer.lock().unwrap().execute(sql, []).unwrap();
        store.writer.lock().unwrap().execute(&T.insert(), ("a", 7, "words", vec![1_u8, 2])).unwrap();
        assert_eq!(report(), Some(CheckReport::default()));
        run("UPDATE t SET number = 8 WHERE key = 'a'");
        assert_eq!(report(), Some(CheckReport { rows: vec![T.damaged("a")], structure: vec![] }));
        assert_eq!(store.check_in_place(), Ok(()), "the check left its files alone");
        assert_eq!(
            T.damaged("a").to_string(),
            "the row `a` of table `t` is damaged, and a test is affected; see `belay store check`"
        );
        drop(store);
        assert_eq!(report().map(|report| report.rows.len()), Some(1));
        let other = Schema { application_id: 79, ..SCHEMA };
        assert!(matches!(
            check(&location, &other, &[], |_, _| Ok(())),
            Err(SqliteError::Fault(belay_reasons::StoreFault::Corrupt(_)))
        ));
    }
}
