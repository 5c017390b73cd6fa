//! The reader of the port: runs the queries where they may block.

use std::sync::Arc;

use belay_journal::{
    AwaitedLimit, Changes, Cursor, Deletion, ExecutionKey, ExecutionRow, InboxRow, JournalReader, LimitClaim,
    LimitStanding, OutboxRow, Page, Position, Query, Reading, Refused, ScheduleRow, StartRequest, StoreError,
    StoredExecution, StoredTransition, Transition, UsageRow,
};
use belay_sqlite::Lane;

use crate::queries::Queries;

/// The reads of one kind of caller. They wait for each other when the lane is full, and for no other reads.
pub(crate) struct SqliteReader {
    queries: Arc<Queries>,
    lane: Lane,
}

impl SqliteReader {
    /// The lanes of all readers of a store have together at most as many slots as the store has connections.
    pub(crate) fn new(queries: Arc<Queries>, lane: Lane) -> Self {
        Self { queries, lane }
    }

    /// Waits without a thread while the lane is full.
    fn run<T: Send + 'static>(
        &self,
        query: impl FnOnce(&Queries) -> Result<T, StoreError> + Send + 'static,
    ) -> Reading<'_, T> {
        let queries = Arc::clone(&self.queries);
        Box::pin(self.lane.run(move || query(&queries)))
    }
}

impl JournalReader for SqliteReader {
    fn find(&self, namespace: &str, id: &str) -> Reading<'_, Option<ExecutionRow>> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.run(move |queries| queries.find(&namespace, &id))
    }

    fn get(&self, key: ExecutionKey) -> Reading<'_, Option<ExecutionRow>> {
        self.run(move |queries| queries.get(key))
    }

    fn list(&self, query: &Query) -> Reading<'_, Page> {
        let query = query.clone();
        self.run(move |queries| queries.list(&query))
    }

    fn namespaces(&self, after: &str, limit: usize) -> Reading<'_, Vec<String>> {
        let after = after.to_owned();
        self.run(move |queries| queries.namespaces(&after, limit))
    }

    fn load(&self, key: ExecutionKey, snapshot: Option<u32>) -> Reading<'_, StoredExecution> {
        self.run(move |queries| queries.load(key, snapshot))
    }

    fn read(&self, key: ExecutionKey, after: u64, limit: usize) -> Reading<'_, Vec<Transition>> {
        self.run(move |queries| queries.read(key, after, limit))
    }

    fn stored(&self, key: ExecutionKey, first_sequence: u64) -> Reading<'_, Option<StoredTransition>> {
        self.run(move |queries| queries.stored(key, first_sequence))
    }

    fn changes(&self, after: Cursor, limit: usize) -> Reading<'_, Changes> {
        self.run(move |queries| queries.changes(after, limit))
    }

    fn latest(&self) -> Reading<'_, Cursor> {
        self.run(Queries::latest)
    }

    fn newest_token(&self) -> Reading<'_, i64> {
        self.run(Queries::newest_token)
    }

    fn seal_key(&self, key: ExecutionKey) -> Reading<'_, Option<Vec<u8>>> {
        self.run(move |queries| queries.seal_key(key))
    }

    fn next_sealed(&self, after: ExecutionKey) -> Reading<'_, Option<ExecutionKey>> {
        self.run(move |queries| queries.next_sealed(after))
    }

    fn claimable(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.run(move |queries| queries.claimable(after, limit))
    }

    fn due(&self, after: Position, until: i64, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.run(move |queries| queries.due(after, until, limit))
    }

    fn next_wake(&self, after: i64) -> Reading<'_, Option<i64>> {
        self.run(move |queries| queries.next_wake(after))
    }

    fn parked_since(&self, after: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.run(move |queries| queries.parked_since(after, limit))
    }

    fn finished(&self, after: Position, until: Position, limit: usize) -> Reading<'_, Vec<ExecutionRow>> {
        self.run(move |queries| queries.finished(after, until, limit))
    }

    fn finished_beyond(&self, keep: usize) -> Reading<'_, Option<Position>> {
        self.run(move |queries| queries.finished_beyond(keep))
    }

    fn deletion(&self, namespace: &str, id: &str) -> Reading<'_, Option<Deletion>> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.run(move |queries| queries.deletion(&namespace, &id))
    }

    fn request_used(&self, request: &StartRequest) -> Reading<'_, Option<Refused>> {
        let request = request.clone();
        self.run(move |queries| queries.request_used(&request))
    }

    fn deleted_after(&self, after: Position, limit: usize) -> Reading<'_, Vec<Deletion>> {
        self.run(move |queries| queries.deleted_after(after, limit))
    }

    fn inbox(&self, key: ExecutionKey, limit: usize) -> Reading<'_, Vec<InboxRow>> {
        self.run(move |queries| queries.inbox(key, limit))
    }

    fn usage(&self, namespace: &str) -> Reading<'_, Vec<UsageRow>> {
        let namespace = namespace.to_owned();
        self.run(move |queries| queries.usage(&namespace))
    }

    fn limit_standing(
        &self,
        namespace: &str,
        execution: Option<ExecutionKey>,
        claim: &LimitClaim,
        at: i64,
    ) -> Reading<'_, LimitStanding> {
        let (namespace, claim) = (namespace.to_owned(), claim.clone());
        self.run(move |queries| queries.limit_standing(&namespace, execution, &claim, at))
    }

    fn limits_held(&self, key: ExecutionKey) -> Reading<'_, Vec<String>> {
        self.run(move |queries| queries.limits_held(key))
    }

    fn awaited_limits(&self, after: (&str, &str), limit: usize) -> Reading<'_, Vec<AwaitedLimit>> {
        let after = (after.0.to_owned(), after.1.to_owned());
        self.run(move |queries| queries.awaited_limits((&after.0, &after.1), limit))
    }

    fn next_in_limit(&self, namespace: &str, key: &str) -> Reading<'_, Option<ExecutionKey>> {
        let (namespace, key) = (namespace.to_owned(), key.to_owned());
        self.run(move |queries| queries.next_in_limit(&namespace, &key))
    }

    fn schedule(&self, namespace: &str, id: &str) -> Reading<'_, Option<ScheduleRow>> {
        let (namespace, id) = (namespace.to_owned(), id.to_owned());
        self.run(move |queries| queries.schedule(&namespace, &id))
    }

    fn schedules(&self, namespace: &str, after: (&str, &str), limit: usize) -> Reading<'_, Vec<ScheduleRow>> {
        let (namespace, after) = (namespace.to_owned(), (after.0.to_owned(), after.1.to_owned()));
        self.run(move |queries| queries.schedules(&namespace, (&after.0, &after.1), limit))
    }

    fn recipients(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<ExecutionKey>> {
        self.run(move |queries| queries.recipients(after, limit))
    }

    fn open_deletions(&self, after: ExecutionKey, limit: usize) -> Reading<'_, Vec<Deletion>> {
        self.run(move |queries| queries.open_deletions(after, limit))
    }

    fn outbox(&self, webhook: &str, until: i64, limit: usize) -> Reading<'_, Vec<OutboxRow>> {
        let webhook = webhook.to_owned();
        self.run(move |queries| queries.outbox(&webhook, until, limit))
    }

    fn next_message(&self, webhook: &str) -> Reading<'_, Option<i64>> {
        let webhook = webhook.to_owned();
        self.run(move |queries| queries.next_message(&webhook))
    }

    fn outbox_len(&self, limit: usize) -> Reading<'_, usize> {
        self.run(move |queries| queries.outbox_len(limit))
    }
}
