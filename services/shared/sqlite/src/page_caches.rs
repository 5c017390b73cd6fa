//! The page caches of all connections of the process, which are given up while it is idle.

use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};

use rusqlite::Connection;

/// The connections of all open stores.
static CONNECTIONS: Mutex<Vec<Weak<Mutex<Connection>>>> = Mutex::new(Vec::new());

/// Has [`release_page_caches`] know a connection, as long as it is open.
pub(crate) fn register(connection: &Arc<Mutex<Connection>>) {
    let mut connections = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
    connections.retain(|known| known.strong_count() > 0);
    connections.push(Arc::downgrade(connection));
}

/// Frees the pages that the connections of this process keep of their databases: up to 2 MiB each, five for a store. The operating system has the same pages in its cache.
/// Call it while the process is idle; connections that are in use keep theirs.
pub fn release_page_caches() {
    let known: Vec<Arc<Mutex<Connection>>> = {
        let connections = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        connections.iter().filter_map(Weak::upgrade).collect()
    };
    for connection in known {
        let connection = match connection.try_lock() {
            Ok(connection) => connection,
            // A statement that panicked was finalized when its guard was dropped.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => continue,
        };
        if let Err(error) = connection.execute_batch("PRAGMA shrink_memory") {
            tracing::debug!(%error, "A page cache cannot be given up");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cached(connection: &Connection) -> i32 {
        let (mut now, mut most) = (0, 0);
        // SAFETY: the handle is that of an open connection, and both numbers are written before it returns.
        #[expect(unsafe_code, reason = "the bindings have no safe way to ask")]
        let code = unsafe {
            rusqlite::ffi::sqlite3_db_status(
                connection.handle(),
                rusqlite::ffi::SQLITE_DBSTATUS_CACHE_USED,
                &raw mut now,
                &raw mut most,
                0,
            )
        };
        assert_eq!(code, rusqlite::ffi::SQLITE_OK);
        now
    }

    #[test]
    fn connections_that_are_free_give_up_their_pages() {
        let folder = tempfile::tempdir().unwrap();
        let [free, held, closed] = ["free", "held", "closed"].map(|name| {
            let connection = Connection::open(folder.path().join(name)).unwrap();
            let fill = "CREATE TABLE t (x); WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999) \
                        INSERT INTO t SELECT zeroblob(900) FROM n";
            connection.execute_batch(fill).unwrap();
            let connection = Arc::new(Mutex::new(connection));
            register(&connection);
            connection
        });
        let before = [&free, &held].map(|connection| cached(&connection.lock().unwrap()));
        assert!(before.iter().all(|bytes| *bytes > 500_000), "{before:?}");
        drop(closed);
        let guard = held.lock().unwrap();
        release_page_caches();
        assert_eq!(cached(&guard), before[1], "what works is not disturbed");
        drop(guard);
        let after = cached(&free.lock().unwrap());
        assert!(after < 50_000, "{after}");
        let rows: i64 = free.lock().unwrap().query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 999);
    }
}
