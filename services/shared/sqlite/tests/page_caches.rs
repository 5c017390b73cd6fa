//! What connections keep of their stores in memory. A program of its own: the caches are those of the whole process.
#![allow(unsafe_code)]

use belay_sqlite::{Location, Schema, open, release_page_caches};
use rusqlite::{Connection, ffi};

const SCHEMA: Schema =
    Schema { application_id: 77, format: 1, earlier_lacks: "", create: "CREATE TABLE t (a BLOB) STRICT;" };

/// The bytes that a connection keeps of its pages.
fn cached(connection: &Connection) -> i32 {
    let (mut now, mut most) = (0, 0);
    // SAFETY: the handle is that of an open connection, and both numbers are written before it returns.
    let code = unsafe {
        ffi::sqlite3_db_status(connection.handle(), ffi::SQLITE_DBSTATUS_CACHE_USED, &raw mut now, &raw mut most, 0)
    };
    assert_eq!(code, ffi::SQLITE_OK);
    now
}

/// B-22: what is not in use is given up, what is in use is not disturbed, and everything is there afterwards.
#[test]
fn connections_that_are_free_give_up_their_pages() {
    let folder = tempfile::tempdir().unwrap();
    let stores = ["one", "other"].map(|name| open(&Location::file(folder.path().join(name)), &SCHEMA).unwrap());
    for store in &stores {
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999) \
                    INSERT INTO t SELECT zeroblob(900) FROM n";
        store.writer.lock().unwrap().execute_batch(fill).unwrap();
    }
    let [one, other] = &stores;
    let reads = || one.readers.connection().query_row("SELECT sum(length(a)) FROM t", [], |row| row.get::<_, i64>(0));
    assert_eq!(reads().unwrap(), 999 * 900);
    assert!(cached(&one.readers.connection()) > 500_000 && cached(&one.writer.lock().unwrap()) > 500_000);
    let held = other.writer.lock().unwrap();
    let before = cached(&held);
    release_page_caches();
    assert_eq!(cached(&held), before, "what is in use is not disturbed");
    assert!(cached(&one.readers.connection()) < 50_000 && cached(&one.writer.lock().unwrap()) < 50_000);
    assert_eq!(reads().unwrap(), 999 * 900);
}
