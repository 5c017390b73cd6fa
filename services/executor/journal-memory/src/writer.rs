//! The writer.

use belay_journal::{BatchOutcome, JournalWriter, StoreWrite};

use crate::state::SharedStore;

/// The writer of a journal in memory.
#[derive(Debug)]
pub struct MemoryWriter(pub(crate) SharedStore);

impl JournalWriter for MemoryWriter {
    fn blocks(&self) -> bool {
        false
    }

    async fn commit(&mut self, batch: &[StoreWrite]) -> BatchOutcome {
        let mut state = self.0.lock();
        let answers = batch.iter().map(|operation| state.perform(operation.clone())).collect();
        self.0.stores.committed(state.position);
        self.0.writes.send_replace(());
        Ok(answers)
    }
}
