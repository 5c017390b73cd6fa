//! A journal whose operations take simulated time, on their way to the store and back: SQLite answers at once, and a store elsewhere does not.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_journal::{
    Changes, Committed, Cursor, Deletion, ExecutionKey, ExecutionRow, JournalReader, JournalWriter, Loaded, Opened,
    Operation, OutboxRow, Page, Position, Query, Reading, StoreError, StoredTransition, Transition,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::trace;

/// The delays of one opening of the journal.
struct Delays {
    random: Mutex<StdRng>,
    longest: Duration,
}

impl Delays {
    /// Every other operation is not delayed on this way.
    async fn pass(&self) {
        let delay = {
            let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
            random.random_bool(0.5).then(|| self.longest.mul_f64(random.random()))
        };
        if let Some(delay) = delay {
            tokio::time::sleep(delay).await;
        }
    }
}

/// The journal with seeded delays.
pub(super) fn slow<W: JournalWriter>(journal: Opened<W>, seed: u64) -> Opened<SlowWriter<W>> {
    let mut random = StdRng::seed_from_u64(seed);
    let longest = Duration::from_micros([50, 500, 4000][random.random_range(0..3)]);
    let delays = Arc::new(Delays { random: Mutex::new(random), longest });
    let reader = |reader| -> Arc<dyn JournalReader> { Arc::new(SlowReader { reader, delays: Arc::clone(&delays) }) };
    let Opened { writer, reader: own, client_reader, store_id, stores, fence } = journal;
    let (reader, client_reader) = (reader(own), reader(client_reader));
    Opened { writer: SlowWriter { writer, delays }, reader, client_reader, store_id, stores, fence }
}

pub(super) struct SlowWriter<W> {
    writer: W,
    delays: Arc<Delays>,
}

impl<W: JournalWriter> JournalWriter for SlowWriter<W> {
    fn blocks(&self) -> bool {
        false
    }

    async fn commit(&mut self, batch: &[Operation]) -> Committed {
        self.delays.pass().await;
        let committed = self.writer.commit(batch).await;
        if matches!(committed, Err(StoreError::OutcomeUnknown(_))) {
            trace::count("answers of the journal lost");
        }
        self.delays.pass().await;
        committed
    }
}

struct SlowReader {
    reader: Arc<dyn JournalReader>,
    delays: Arc<Delays>,
}

impl SlowReader {
    fn delayed<'a, T: Send + 'a>(&'a self, read: Reading<'a, T>) -> Reading<'a, T> {
        Box::pin(async move {
            self.delays.pass().await;
            let found = read.await;
            self.delays.pass().await;
            found
        })
    }
}

impl JournalReader for SlowReader {
    fn find(&self, namespace: &str, id: &str) -> Reading<'_, Option<ExecutionRow>> {
        self.delayed(self.reader.find(namespace, id))
    }

    fn get(&self, key: ExecutionKey) -> Reading<'_, Option<ExecutionRow>> {
        self.delayed(self.reader.get(key))
    }

    fn list(&self, query: &Query) -> Reading<'_, Page> {
        self.delayed(self.reader.list(query))
    }

    fn namespaces(&self, after: &str, limit: usize) -> Reading<'_, Vec<String>> {
        self.delayed(self.reader.namespaces(after, limit))
    }

    fn load(&self, key: ExecutionKey, snapshot: Option<u32>) -> Reading<'_, Loaded> {
        self.delayed(self.reader.load(key, snapshot))
    }

    fn read(&self, key: ExecutionKey, after: u64, limit: usize) -> Reading<'_, Vec<Transition>> {
        self.delayed(self.reader.read(key, after, limit))
    }

    fn stored(&self, key: ExecutionKey, first_sequence: u64) -> Reading<'_, Option<StoredTransition>> {
        self.delayed(self.reader.stored(key, first_sequence))
    }

    fn changes(&self, after: Cursor, limit: usize) -> Reading<'_, Changes> {
        self.delayed(self.reader.changes(after, limit))
    }

    fn latest(&self) -> Reading<'_, Cursor> {
        self.delayed(self.reader.latest())
    }

    fn seal_key(&self, key: ExecutionKey) -> Reading<'_, Option<Vec<u8>>> {
        self.delayed(self.reader.seal_key(key))
    }

    fn claimable(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.delayed(self.reader.claimable(after, limit))
    }

    fn due(&self, after: Position, until: i64, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.delayed(self.reader.due(after, until, limit))
    }

    fn next_wake(&self, after: i64) -> Reading<'_, Option<i64>> {
        self.delayed(self.reader.next_wake(after))
    }

    fn parked_since(&self, after: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.delayed(self.reader.parked_since(after, limit))
    }

    fn finished(&self, after: Position, until: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.delayed(self.reader.finished(after, until, limit))
    }

    fn finished_beyond(&self, keep: usize) -> Reading<'_, Option<Position>> {
        self.delayed(self.reader.finished_beyond(keep))
    }

    fn deletion(&self, namespace: &str, id: &str) -> Reading<'_, Option<Deletion>> {
        self.delayed(self.reader.deletion(namespace, id))
    }

    fn deleted_after(&self, after: Position, limit: usize) -> Reading<'_, Vec<Deletion>> {
        self.delayed(self.reader.deleted_after(after, limit))
    }

    fn open_deletions(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<Deletion>> {
        self.delayed(self.reader.open_deletions(after, limit))
    }

    fn outbox(&self, webhook: &str, until: i64, limit: usize) -> Reading<'_, Vec<OutboxRow>> {
        self.delayed(self.reader.outbox(webhook, until, limit))
    }

    fn next_message(&self, webhook: &str) -> Reading<'_, Option<i64>> {
        self.delayed(self.reader.next_message(webhook))
    }

    fn outbox_len(&self, limit: usize) -> Reading<'_, usize> {
        self.delayed(self.reader.outbox_len(limit))
    }
}
