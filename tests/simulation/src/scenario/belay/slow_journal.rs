//! A journal whose operations take simulated time, on their way to the store and back: SQLite answers at once, and a store elsewhere does not.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belay_journal::{
    AwaitedLimit, BatchOutcome, Changes, Cursor, Deletion, ExecutionKey, ExecutionRow, InboxRow, JournalReader,
    JournalWriter, LimitClaim, LimitStanding, OutboxRow, Page, Position, Query, Reading, Refused, ScheduleRow,
    StartRequest, StoreError, StoreWrite, StoredExecution, StoredTransition, Transition, UsageRow,
};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::shared_journal::SharedJournal;
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

/// A writer with seeded delays, and a reader of the journal that it writes.
pub(super) fn slow<W>(writer: W, journal: SharedJournal, seed: u64) -> (SlowWriter<W>, Arc<dyn JournalReader>) {
    let mut random = StdRng::seed_from_u64(seed);
    let longest = Duration::from_micros([50, 500, 4000][random.random_range(0..3)]);
    let delays = Arc::new(Delays { random: Mutex::new(random), longest });
    let reader = Arc::new(SlowReader { journal, delays: Arc::clone(&delays) });
    (SlowWriter { writer, delays }, reader)
}

pub(super) struct SlowWriter<W> {
    writer: W,
    delays: Arc<Delays>,
}

impl<W: JournalWriter> JournalWriter for SlowWriter<W> {
    fn blocks(&self) -> bool {
        false
    }

    async fn commit(&mut self, batch: &[StoreWrite]) -> BatchOutcome {
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
    journal: SharedJournal,
    delays: Arc<Delays>,
}

impl SlowReader {
    fn delayed<'a, T: Send + 'a>(
        &'a self,
        read: impl for<'r> FnOnce(&'r dyn JournalReader) -> Reading<'r, T> + Send + 'a,
    ) -> Reading<'a, T> {
        Box::pin(async move {
            self.delays.pass().await;
            let found = self.journal.read(read).await;
            self.delays.pass().await;
            found
        })
    }
}

impl JournalReader for SlowReader {
    fn find(&self, namespace: &str, id: &str) -> Reading<'_, Option<ExecutionRow>> {
        let namespace = namespace.to_owned();
        let id = id.to_owned();
        self.delayed(move |reader| reader.find(&namespace, &id))
    }

    fn get(&self, key: ExecutionKey) -> Reading<'_, Option<ExecutionRow>> {
        self.delayed(move |reader| reader.get(key))
    }

    fn list(&self, query: &Query) -> Reading<'_, Page> {
        let query = query.clone();
        self.delayed(move |reader| reader.list(&query))
    }

    fn namespaces(&self, after: &str, limit: usize) -> Reading<'_, Vec<String>> {
        let after = after.to_owned();
        self.delayed(move |reader| reader.namespaces(&after, limit))
    }

    fn load(&self, key: ExecutionKey, snapshot: Option<u32>) -> Reading<'_, StoredExecution> {
        self.delayed(move |reader| reader.load(key, snapshot))
    }

    fn read(&self, key: ExecutionKey, after: u64, limit: usize) -> Reading<'_, Vec<Transition>> {
        self.delayed(move |reader| reader.read(key, after, limit))
    }

    fn stored(&self, key: ExecutionKey, first_sequence: u64) -> Reading<'_, Option<StoredTransition>> {
        self.delayed(move |reader| reader.stored(key, first_sequence))
    }

    fn changes(&self, after: Cursor, limit: usize) -> Reading<'_, Changes> {
        self.delayed(move |reader| reader.changes(after, limit))
    }

    fn latest(&self) -> Reading<'_, Cursor> {
        self.delayed(move |reader| reader.latest())
    }

    fn newest_token(&self) -> Reading<'_, i64> {
        self.delayed(move |reader| reader.newest_token())
    }

    fn seal_key(&self, key: ExecutionKey) -> Reading<'_, Option<Vec<u8>>> {
        self.delayed(move |reader| reader.seal_key(key))
    }

    fn next_sealed(&self, after: ExecutionKey) -> Reading<'_, Option<ExecutionKey>> {
        self.delayed(move |reader| reader.next_sealed(after))
    }

    fn claimable(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.delayed(move |reader| reader.claimable(after, limit))
    }

    fn due(&self, after: Position, until: i64, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.delayed(move |reader| reader.due(after, until, limit))
    }

    fn next_wake(&self, after: i64) -> Reading<'_, Option<i64>> {
        self.delayed(move |reader| reader.next_wake(after))
    }

    fn parked_since(&self, after: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.delayed(move |reader| reader.parked_since(after, limit))
    }

    fn finished(&self, after: Position, until: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.delayed(move |reader| reader.finished(after, until, limit))
    }

    fn finished_beyond(&self, keep: usize) -> Reading<'_, Option<Position>> {
        self.delayed(move |reader| reader.finished_beyond(keep))
    }

    fn deletion(&self, namespace: &str, id: &str) -> Reading<'_, Option<Deletion>> {
        let namespace = namespace.to_owned();
        let id = id.to_owned();
        self.delayed(move |reader| reader.deletion(&namespace, &id))
    }

    fn request_used(&self, request: &StartRequest) -> Reading<'_, Option<Refused>> {
        let request = request.clone();
        self.delayed(move |reader| reader.request_used(&request))
    }

    fn deleted_after(&self, after: Position, limit: usize) -> Reading<'_, Vec<Deletion>> {
        self.delayed(move |reader| reader.deleted_after(after, limit))
    }

    fn inbox(&self, key: ExecutionKey, limit: usize) -> Reading<'_, Vec<InboxRow>> {
        self.delayed(move |reader| reader.inbox(key, limit))
    }

    fn usage(&self, namespace: &str) -> Reading<'_, Vec<UsageRow>> {
        let namespace = namespace.to_owned();
        self.delayed(move |reader| reader.usage(&namespace))
    }

    fn limit_standing(
        &self,
        namespace: &str,
        execution: Option<ExecutionKey>,
        claim: &LimitClaim,
        at: i64,
    ) -> Reading<'_, LimitStanding> {
        let (namespace, claim) = (namespace.to_owned(), claim.clone());
        self.delayed(move |reader| reader.limit_standing(&namespace, execution, &claim, at))
    }

    fn limits_held(&self, key: ExecutionKey) -> Reading<'_, Vec<String>> {
        self.delayed(move |reader| reader.limits_held(key))
    }

    fn awaited_limits(&self, after: (&str, &str), limit: usize) -> Reading<'_, Vec<AwaitedLimit>> {
        let after = (after.0.to_owned(), after.1.to_owned());
        self.delayed(move |reader| reader.awaited_limits((&after.0, &after.1), limit))
    }

    fn next_in_limit(&self, namespace: &str, key: &str) -> Reading<'_, Option<ExecutionKey>> {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.delayed(move |reader| reader.next_in_limit(&namespace, &key))
    }

    fn schedule(&self, namespace: &str, id: &str) -> Reading<'_, Option<ScheduleRow>> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.delayed(move |reader| reader.schedule(&namespace, &id))
    }

    fn schedules(&self, namespace: &str, after: (&str, &str), limit: usize) -> Reading<'_, Vec<ScheduleRow>> {
        let (namespace, after) = (namespace.to_owned(), (after.0.to_owned(), after.1.to_owned()));
        self.delayed(move |reader| reader.schedules(&namespace, (&after.0, &after.1), limit))
    }

    fn recipients(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionKey>> {
        self.delayed(move |reader| reader.recipients(after, limit))
    }

    fn open_deletions(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<Deletion>> {
        self.delayed(move |reader| reader.open_deletions(after, limit))
    }

    fn outbox(&self, webhook: &str, until: i64, limit: usize) -> Reading<'_, Vec<OutboxRow>> {
        let webhook = webhook.to_owned();
        self.delayed(move |reader| reader.outbox(&webhook, until, limit))
    }

    fn next_message(&self, webhook: &str) -> Reading<'_, Option<i64>> {
        let webhook = webhook.to_owned();
        self.delayed(move |reader| reader.next_message(&webhook))
    }

    fn outbox_len(&self, limit: usize) -> Reading<'_, usize> {
        self.delayed(move |reader| reader.outbox_len(limit))
    }
}
