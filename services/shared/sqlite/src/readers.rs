//! The connections that read a store.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, TryLockError,
    atomic::{AtomicUsize, Ordering},
};

use rusqlite::Connection;

use crate::page_caches;

/// How many connections read a store at the same time. More readers than that gain nothing on the processors that Belay is made for, and
/// each has a page cache of up to 2 MiB.
pub const READERS: usize = 4;

/// The connections that read a store. A reader takes one that is free, so that a slow query delays no quick one while fewer than
/// [`READERS`] are slow.
#[derive(Debug)]
pub struct Readers {
    /// At least one; the writer's when only one connection may exist.
    connections: Vec<Arc<Mutex<Connection>>>,
    /// The one to wait for when none is free.
    next: AtomicUsize,
}

impl Readers {
    pub(crate) fn new(connections: Vec<Arc<Mutex<Connection>>>) -> Self {
        connections.iter().for_each(page_caches::register);
        Self { connections, next: AtomicUsize::new(0) }
    }

    /// A connection, for as long as the guard is held. Waits when all are taken.
    ///
    /// # Panics
    /// Never: a store has at least one connection.
    pub fn connection(&self) -> MutexGuard<'_, Connection> {
        for connection in &self.connections {
            match connection.try_lock() {
                Ok(guard) => return guard,
                // A statement that panicked was finalized when its guard was dropped.
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len();
        self.connections[next].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_do_not_wait_for_each_other() {
        let connections = (0..READERS).map(|_| Arc::new(Mutex::new(Connection::open_in_memory().unwrap())));
        let readers = Readers::new(connections.collect());
        let held: Vec<_> = (0..READERS).map(|_| readers.connection()).collect();
        assert_eq!(held.len(), READERS, "each took another one");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(readers.connection()));
            assert!(!waits.is_finished());
            drop(held);
        });
    }
}
