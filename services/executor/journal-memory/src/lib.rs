//! The journal in memory, for tests: it keeps every guarantee of the port but the first, since nothing of it is on a disk.
//!
//! It shows what the port is apart from SQLite, and passes the same conformance suite. A [`Memory`] is what a disk is to other stores: it can
//! be opened again, and then the fence rises.

mod limits;
mod lost_answers;
mod reader;
mod state;
mod writer;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use belay_journal::{OpenedStore, OpenedToRead};
use belay_proto::stores::{Position, Service, Stores};

pub use lost_answers::LostAnswers;
pub use writer::MemoryWriter;

use crate::{reader::MemoryReader, state::SharedStore};

/// A store's content. Its clones are the same store.
#[derive(Clone, Debug)]
pub struct Memory(SharedStore);

impl Memory {
    /// An empty store with this identity.
    #[must_use]
    pub fn new(store_id: &str) -> Self {
        let own = Position { store_id: store_id.to_owned(), generation: 0, opened: 0, commit: 0 };
        let stores = Stores::new(Service::Executor, own, BTreeMap::new());
        Self(SharedStore::new(stores))
    }

    /// How many transitions all readers were given so far.
    #[must_use]
    pub fn transitions_read(&self) -> usize {
        self.0.transitions_read.load(Ordering::Relaxed)
    }

    /// Opens it. What the owner before writes from here on is refused.
    #[must_use]
    pub fn open(&self) -> OpenedStore<MemoryWriter> {
        let Self(shared) = self;
        let fence = shared.lock().raise_fence();
        OpenedStore {
            writer: MemoryWriter(shared.clone()),
            reader: Arc::new(MemoryReader(shared.clone())),
            client_reader: Arc::new(MemoryReader(shared.clone())),
            store_id: shared.stores.own().store_id,
            stores: Arc::clone(&shared.stores),
            fence,
        }
    }

    /// Opens it beside its owner, for a reader that writes nothing.
    #[must_use]
    pub fn open_to_read(&self) -> OpenedToRead {
        let Self(shared) = self;
        OpenedToRead {
            reader: Arc::new(MemoryReader(shared.clone())),
            identity: shared.stores.own().identity(),
            writes: shared.writes.subscribe(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Memory;

    /// B-08, B-15, B-26: the guarantees are those of the port, and not of SQLite.
    #[tokio::test]
    async fn behaves_like_a_journal() {
        let memory = Memory::new("a store");
        belay_journal::conformance::check(&mut || memory.open()).await;
    }
}
