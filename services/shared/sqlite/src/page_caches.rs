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
