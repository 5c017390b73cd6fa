//! How large a store is, and how much is in it.

use crate::{Location, Schema, SqliteError, open};

/// The size of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// The bytes of the database file.
    pub file_bytes: u64,
    /// The bytes of its write-ahead log.
    pub log_bytes: u64,
    /// The part of the database file that is free: the next rows use it, and the file does not shrink.
    pub free_bytes: u64,
    /// The bytes of each table with its indexes, the largest first.
    pub tables: Vec<(String, u64)>,
    /// The counts, by name.
    pub counts: Vec<(&'static str, u64)>,
}

/// Measures a store, whether or not a process has it open. Changes nothing, and reads all of it. `counts` are names with SQL queries that return
/// one number. Returns `None` when there is no such store.
///
/// # Errors
/// [`SqliteError`] when it cannot be opened or read.
pub fn measure(
    location: &Location,
    schema: &Schema,
    counts: &[(&'static str, &str)],
) -> Result<Option<StoreSize>, SqliteError> {
    const TABLES: &str = "SELECT coalesce((SELECT tbl_name FROM sqlite_schema WHERE sqlite_schema.name = dbstat.name), dbstat.name), sum(pgsize)
                          FROM dbstat WHERE aggregate = TRUE GROUP BY 1 ORDER BY 2 DESC, 1";
    let Some(connection) = open::to_check(location, schema)? else { return Ok(None) };
    // One state of the store for everything below.
    connection.execute_batch("BEGIN")?;
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, u64>(0));
    let page = pragma("page_size")?;
    let tables = connection
        .prepare(TABLES)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<Result<Vec<(String, u64)>, _>>()?;
    let counted = counts.iter().map(|(name, query)| Ok((*name, connection.query_row(query, [], |row| row.get(0))?)));
    let counts = counted.collect::<Result<Vec<(&'static str, u64)>, rusqlite::Error>>()?;
    let mut log = location.path.clone().into_os_string();
    log.push("-wal");
    Ok(Some(StoreSize {
        file_bytes: pragma("page_count")? * page,
        log_bytes: std::fs::metadata(log).map_or(0, |log| log.len()),
        free_bytes: pragma("freelist_count")? * page,
        tables,
        counts,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_measured_beside_its_process() {
        const SCHEMA: Schema = Schema {
            application_id: 79,
            format: 1,
            earlier_lacks: "nothing",
            create: "CREATE TABLE t (key INTEGER PRIMARY KEY, text TEXT) STRICT; CREATE INDEX by_text ON t (text);",
        };
        let folder = tempfile::tempdir().unwrap();
        let location = Location::file(folder.path().join("store"));
        let measured = || measure(&location, &SCHEMA, &[("rows", "SELECT count(*) FROM t")]).unwrap();
        assert_eq!(measured(), None, "there is none, and none is made");
        let store = crate::open(&location, &SCHEMA).unwrap();
        let run = |sql: &str| store.writer.lock().unwrap().execute_batch(sql).unwrap();
        let table = |size: &StoreSize| size.tables.iter().find(|(name, _)| name == "t").unwrap().1;
        let empty = measured().unwrap();
        assert_eq!((empty.counts[0], empty.free_bytes), (("rows", 0), 0));
        run("WITH RECURSIVE n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < 100)
             INSERT INTO t SELECT value, printf('%.2000c', 'x') FROM n");
        let full = measured().unwrap();
        assert_eq!(full.counts, [("rows", 100)]);
        assert!(table(&full) > table(&empty) + 2 * 200_000, "with its index");
        assert!(full.log_bytes > 400_000 && full.file_bytes >= table(&full));
        run("DELETE FROM t");
        let deleted = measured().unwrap();
        assert!(deleted.free_bytes > 400_000 && deleted.file_bytes == full.file_bytes, "it does not shrink");
    }
}
