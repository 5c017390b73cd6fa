//! The follower of the store: what was committed of executions, for all that read them, watch them or wait for them.
//!
//! An execution's revision is the sequence of its last event. Every commit passes through [`Follower::committed`] in the order of the store,
//! before its caller learns of it. A row that is read from the store may be newer by the moment in between; it names its revision, which is raised
//! where the row is read. A reader of an execution gets it as of the highest known revision: a row that says that it has ended is never followed
//! by a state that has not. What a commit brings along (events that are decoded already) only saves reading them.

mod event_feed;
pub(crate) mod followed_executions;
mod memory;
mod reader;
mod tail;
mod view;

use belay_reasons::StoreFault;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use belay_execution::Event;
use belay_journal::{
    Change, Changes, Cursor, Deletion, ExecutionKey, ExecutionRow, InboxMessage, JournalReader, LimitClaim,
    LimitStanding, Page, Position, Query, Reading, Refused, ScheduleRow, StartRequest, StoreError, StoreWrite,
    StoreWriteOutcome, TakenMessage, Transition, UsageRow,
};
use belay_proto::v1;
use belay_reading::event_index::EventIndex;
use belay_redaction::Redactor;
use tokio::sync::{Notify, mpsc, watch};
use tonic::{Code, Status};

use self::memory::Memory;
pub use self::reader::{ExecutionReader, ReaderParts};
pub(crate) use self::{
    event_feed::{EncodedEvents, End, EventFeed, Head, OutputChunk},
    view::{LiveWaits, ReadView},
};
use crate::{
    names::ExecutionName,
    owned::messages::{ChildResult, EndedChild},
    store::{
        blobs::Opener,
        journal_reads::{JournalReads, StoredEvents, unreadable},
    },
};

/// The number of entries from which on unused ones are swept.
const MIN_SWEEP_ENTRIES: usize = 1024;

/// How many committed transitions of another process are read at a time.
const BATCH: usize = 1024;

/// How much memory the folds that are kept for readers may take together, in bytes.
const MAX_VIEWED_BYTES: usize = 12 * 1024 * 1024;

/// The memory that a fold takes at least, in bytes: so at most 3,072 are kept.
const MIN_VIEW_BYTES: usize = 8 * 1024;

/// How long a round of giving up lasts; see [`Memory::round`]. A reader that pages through an execution comes again sooner.
const ROUND: Duration = Duration::from_secs(1);

/// The data that a commit brings along about its execution, so that they need not be read again.
#[derive(Debug, Default)]
pub(crate) struct Push {
    /// The feed of the execution; `None` for one that is created by this commit.
    pub(crate) feed: Option<Arc<EventFeed>>,
    /// The transition's events, with their secrets, and what hides them; `None` when no reader follows.
    pub(crate) events: Option<(Arc<[Event]>, Redactor)>,
    /// The execution in BASIC view, when it has ended and a request waits for that.
    pub(crate) end: Option<Arc<v1::Execution>>,
    /// The last part of its name and how it ended, when its parent is sent its end.
    pub(crate) child: Option<(String, ChildResult)>,
}

/// A message that was committed to the inbox of an execution.
#[derive(Debug)]
pub(crate) struct Mail {
    /// The execution.
    pub(crate) to: ExecutionKey,
    /// The end, if the commit brought it along; otherwise it has to be read.
    pub(crate) ended: Option<EndedChild>,
}

/// The follower of the store.
pub(crate) struct Follower {
    /// Reads for clients. Private: a row that is read raises the execution's revision.
    reads: JournalReads,
    feeds: Mutex<Feeds>,
    memory: Arc<Memory>,
    /// Changes with every commit, for those who follow all executions.
    committed: watch::Sender<()>,
    /// Something is kept that may have to be given up.
    keeps: Notify,
    /// Messages to executions, to be delivered. Not bounded: there are as many as executions end.
    mail: mpsc::UnboundedSender<Mail>,
    /// The last transition that readers and watchers know of, where another process writes the store: then each look reads what was committed since.
    /// `None` where this process writes it: then every commit passes through here.
    tail: Option<tokio::sync::Mutex<Cursor>>,
    /// Locked by the task that delivers them.
    pub(crate) mailed: tokio::sync::Mutex<mpsc::UnboundedReceiver<Mail>>,
}

/// The feeds in use.
#[derive(Debug)]
struct Feeds {
    max_recent: usize,
    known: HashMap<ExecutionKey, Weak<EventFeed>>,
    /// The number of entries at which unused ones are swept; it doubles, so that sweeps are rare.
    sweep_at: usize,
    /// Executions that readers look at: their feeds, with the state that readers see, stay in memory.
    viewed: HashMap<ExecutionName, ViewedExecution>,
    /// The number of looks so far.
    looks: u64,
    memory: Arc<Memory>,
}

/// An execution that readers look at.
#[derive(Debug)]
struct ViewedExecution {
    key: ExecutionKey,
    feed: Arc<EventFeed>,
    /// When readers looked last, by [`Feeds::looks`].
    last: u64,
}

impl ViewedExecution {
    fn weight(&self) -> usize {
        self.feed.view.weight() + MIN_VIEW_BYTES
    }
}

impl Follower {
    /// A follower of the store that this process writes, whose feeds each keep `max_recent` transitions. `reads` are those for clients.
    pub(crate) fn new(reads: JournalReads, max_recent: usize) -> Self {
        Self::with(reads, max_recent, None)
    }

    /// A follower of a store that another process writes, from what is committed now on; [`Self::catch_up`] reads on.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn of_another(reads: JournalReads) -> Result<Self, StoreError> {
        let last = reads.read(|reader| reader.latest()).await?;
        Ok(Self::with(reads, 0, Some(last)))
    }

    fn with(reads: JournalReads, max_recent: usize, last: Option<Cursor>) -> Self {
        let memory = Arc::<Memory>::default();
        let (mail, mailed) = mpsc::unbounded_channel();
        Self {
            mail,
            tail: last.map(tokio::sync::Mutex::new),
            mailed: tokio::sync::Mutex::new(mailed),
            reads,
            feeds: Mutex::new(Feeds::new(max_recent, &memory)),
            memory,
            committed: watch::Sender::default(),
            keeps: Notify::new(),
        }
    }

    /// Publishes an operation that is committed. Called in the order of the commits, before any caller learns of them.
    pub(crate) fn committed(&self, operation: StoreWrite, push: Option<Push>, done: &StoreWriteOutcome) {
        let Push { feed, events, end: shown, mut child } = push.unwrap_or_default();
        let (key, transition, summary, inbox) = match (operation, done) {
            (StoreWrite::Create { transition, summary, inbox, .. }, StoreWriteOutcome::Created(key)) => {
                (*key, transition, Some(summary), inbox)
            }
            (StoreWrite::Append { key, transition, summary, inbox, .. }, _) => (key, transition, summary, inbox),
            (StoreWrite::Delete { key, .. }, _) => return lock(&self.feeds).deleted(key),
            _ => return,
        };
        for InboxMessage { to, revision, .. } in inbox.sent {
            let message = TakenMessage { from: key, revision };
            let ended = child.take().map(|(id, end)| EndedChild { id, end: Some((message, end)) });
            // An error means that the executor is stopping: the message is in the inbox.
            drop(self.mail.send(Mail { to, ended }));
        }
        // An execution without a feed has neither readers nor watchers.
        let Some(feed) = feed.or_else(|| lock(&self.feeds).get(key)) else { return };
        feed.view.keep(events.as_ref().map(|(events, redactor)| (events, redactor)), transition.shown.len());
        let end = summary.map(|summary| summary.ended.then_some(End { shown }));
        if feed.publish(transition, end) {
            self.keeps.notify_one();
        }
    }

    /// Publishes what another process has committed since the last time; nothing where this process writes the store. Returns whether that is something.
    ///
    /// # Errors
    /// When the store cannot be read; nothing is left out by that.
    pub(crate) async fn catch_up(&self) -> Result<bool, StoreError> {
        let Some(last) = &self.tail else { return Ok(false) };
        let mut last = last.lock().await;
        // A bound: an owner that commits all the time keeps nobody here.
        let latest = self.read(|reader| reader.latest()).await?;
        if latest < *last {
            // An older copy of the store was put in its place.
            return Err(StoreError::Fault(StoreFault::Gone));
        }
        let found = *last < latest;
        while *last < latest {
            let after = *last;
            let changes = self.read(move |reader| reader.changes(after, BATCH)).await?;
            self.observed(&changes.changes).await?;
            // A deletion has a number and is no change.
            *last = if changes.next == after { latest } else { changes.next };
            // At once: the request that this is done for may be dropped at the next read.
            self.has_committed();
        }
        Ok(found)
    }

    /// Whether an execution is gone that another process has deleted; its watchers are not told of that by any event.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub(crate) async fn has_lost(&self, key: ExecutionKey) -> Result<bool, StoreError> {
        Ok(self.tail.is_some() && self.row(key).await?.is_none())
    }

    /// Publishes what another process has committed, without its events: readers and watchers read them from the store.
    async fn observed(&self, changes: &[Change]) -> Result<(), StoreError> {
        for change in changes {
            // An execution without a feed has neither readers nor watchers.
            let Some(feed) = self.feed_in_use(change.key) else { continue };
            feed.observe(change.last_sequence);
            // Also an end that nobody waits for any more: the execution may have gone on since.
            if feed.is_awaited() || feed.has_end() {
                match self.row(change.key).await {
                    // Whoever waits for one that was deleted is told so.
                    Ok(row) => feed.set_end(row.is_none_or(|row| row.summary.ended)),
                    // Whoever waits for it reads it, and is told.
                    Err(StoreError::Damaged(_)) => feed.set_end(true),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Tells those who follow all executions that something was committed.
    pub(crate) fn has_committed(&self) {
        if self.committed.receiver_count() > 0 {
            self.committed.send_replace(());
        }
    }

    /// Subscribes to commits of all executions.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.committed.subscribe()
    }

    /// The event feed of an execution.
    pub(crate) fn feed(&self, key: ExecutionKey) -> Arc<EventFeed> {
        lock(&self.feeds).of(key)
    }

    /// The event feed of an execution, if it has readers or watchers.
    fn feed_in_use(&self, key: ExecutionKey) -> Option<Arc<EventFeed>> {
        lock(&self.feeds).get(key)
    }

    /// Reads what has no rows of executions from the store.
    pub(crate) fn read<'a, T>(&'a self, read: impl FnOnce(EventReader<'a>) -> Reading<'a, T>) -> Reading<'a, T> {
        self.reads.read(|reader| read(EventReader(reader)))
    }

    /// The events of an execution, with their secrets.
    ///
    /// # Errors
    /// Why they cannot be read.
    pub(crate) async fn events(&self, key: ExecutionKey) -> Result<StoredEvents, Status> {
        self.reads.events(key).await
    }

    /// Returns the opener for the blobs of an execution with this uid.
    ///
    /// # Errors
    /// Why its key cannot be read.
    pub(crate) async fn opener(&self, key: ExecutionKey, name: &ExecutionName, uid: String) -> Result<Opener, Status> {
        self.reads.opener(key, name, uid).await
    }

    /// The row of an execution.
    ///
    /// # Errors
    /// EXECUTION_NOT_FOUND, or why the store cannot be read.
    pub(crate) async fn find(&self, name: &ExecutionName) -> Result<ExecutionRow, Status> {
        let known = lock(&self.feeds).key_of(name);
        let found = self.reads.find(name).await;
        if let Some(key) = known.filter(|_| found.as_ref().is_err_and(|error| error.code() == Code::NotFound)) {
            // It is gone, and the answer to the commit that deleted it may be on its way still: nobody is shown it after that. One that was created since has
            // another key.
            lock(&self.feeds).deleted(key);
        }
        let row = found?;
        self.raise(std::slice::from_ref(&row));
        Ok(row)
    }

    /// The row of an execution; `None` when it was deleted.
    pub(crate) async fn row(&self, key: ExecutionKey) -> Result<Option<ExecutionRow>, StoreError> {
        let row = self.reads.read(move |reader| reader.get(key)).await?;
        self.raise(row.as_slice());
        Ok(row)
    }

    /// A page of a list.
    pub(crate) async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let query = query.clone();
        let page = self.reads.read(move |reader| reader.list(&query)).await?;
        self.raise(&page.rows);
        Ok(page)
    }

    /// Raises the revisions of executions to those of their rows.
    fn raise(&self, rows: &[ExecutionRow]) {
        let feeds = lock(&self.feeds);
        for row in rows {
            if let Some(feed) = feeds.get(row.key) {
                feed.raise(row.revision);
            }
        }
    }

    /// Looks at an execution as of its highest known revision, apart from its driver.
    ///
    /// # Errors
    /// EXECUTION_NOT_FOUND, or why it cannot be read.
    pub(crate) async fn look<T>(
        &self,
        name: &ExecutionName,
        look: impl FnOnce(&ReadView<'_>) -> T,
    ) -> Result<T, Status> {
        self.catch_up().await.map_err(|error| unreadable(&error))?;
        let viewed = lock(&self.feeds).viewed(name);
        let (key, feed) = match viewed {
            Some(viewed) if self.tail.is_none() => viewed,
            // Another process may have deleted it, and even created another one of this name.
            viewed => {
                let row = self.find(name).await?;
                let feed = match viewed {
                    Some((key, feed)) if key == row.key => feed,
                    _ => lock(&self.feeds).keep_view(name.clone(), row.key),
                };
                feed.raise(row.revision);
                (row.key, feed)
            }
        };
        self.keeps.notify_one();
        // What is read may be later than what is known: a reader that has seen it is shown nothing earlier.
        let look = |view: &ReadView<'_>| {
            feed.raise(view.execution.last_sequence());
            look(view)
        };
        let looked = feed.view.look(&self.reads, key, name, || feed.revision(), look).await;
        if feed.is_deleted() {
            // It was deleted while this or another reader was looking at it, and what they saw is not to be kept. A new one may have its name.
            self.forget(key);
            self.find(name).await?;
            return Err(another_has_the_name());
        }
        looked.inspect_err(|_| self.forget(key))
    }

    /// Selects from the index of an execution's events, which is read as far as it is needed and kept as what readers see is: returns what `select` does.
    /// It is told whether the index has all events; then it has to return something.
    ///
    /// # Errors
    /// Why the events cannot be read.
    pub(crate) async fn select<T>(
        &self,
        key: ExecutionKey,
        page: usize,
        select: impl FnMut(&EventIndex, bool) -> Option<T>,
    ) -> Result<T, Status> {
        let feed = self.feed(key);
        self.keeps.notify_one();
        feed.view.select(&self.reads, key, page, select).await
    }

    /// Gives up what readers see of an execution.
    fn forget(&self, key: ExecutionKey) {
        lock(&self.feeds).forget(key);
    }

    /// A driver leaves memory: what is left of its feed goes in the next round.
    pub(crate) fn driver_leaves(&self) {
        self.keeps.notify_one();
    }

    /// Gives up, round by round, what is kept for readers and watchers that do not come any more.
    pub(crate) async fn give_up_left_overs(&self) {
        loop {
            self.keeps.notified().await;
            loop {
                tokio::time::sleep(ROUND).await;
                if !self.sweep() {
                    break;
                }
            }
        }
    }

    /// Begins a round: gives up what was not used for two. Returns whether something is left for the next.
    fn sweep(&self) -> bool {
        let round = self.memory.next_round();
        lock(&self.feeds).sweep(round)
    }
}

/// A reader of the store for what has no rows of executions in it.
pub(crate) struct EventReader<'a>(&'a dyn JournalReader);

impl<'a> EventReader<'a> {
    /// See [`JournalReader::read`].
    pub(crate) fn read(self, key: ExecutionKey, after: u64, limit: usize) -> Reading<'a, Vec<Transition>> {
        self.0.read(key, after, limit)
    }

    /// See [`JournalReader::changes`].
    pub(crate) fn changes(self, after: Cursor, limit: usize) -> Reading<'a, Changes> {
        self.0.changes(after, limit)
    }

    /// See [`JournalReader::latest`].
    pub(crate) fn latest(self) -> Reading<'a, Cursor> {
        self.0.latest()
    }

    /// See [`JournalReader::seal_key`].
    pub(crate) fn seal_key(self, key: ExecutionKey) -> Reading<'a, Option<Vec<u8>>> {
        self.0.seal_key(key)
    }

    /// See [`JournalReader::namespaces`].
    pub(crate) fn namespaces(self, after: &str, limit: usize) -> Reading<'a, Vec<String>> {
        self.0.namespaces(after, limit)
    }

    /// See [`JournalReader::schedule`].
    pub(crate) fn schedule(self, namespace: &str, id: &str) -> Reading<'a, Option<ScheduleRow>> {
        self.0.schedule(namespace, id)
    }

    /// See [`JournalReader::schedules`].
    pub(crate) fn schedules(self, namespace: &str, after: (&str, &str), limit: usize) -> Reading<'a, Vec<ScheduleRow>> {
        self.0.schedules(namespace, after, limit)
    }

    /// See [`JournalReader::usage`].
    pub(crate) fn usage(self, namespace: &str) -> Reading<'a, Vec<UsageRow>> {
        self.0.usage(namespace)
    }

    /// See [`JournalReader::limit_standing`].
    pub(crate) fn limit_standing(
        self,
        namespace: &str,
        execution: ExecutionKey,
        claim: &LimitClaim,
        at: i64,
    ) -> Reading<'a, LimitStanding> {
        self.0.limit_standing(namespace, Some(execution), claim, at)
    }

    /// See [`JournalReader::deletion`].
    pub(crate) fn deletion(self, namespace: &str, id: &str) -> Reading<'a, Option<Deletion>> {
        self.0.deletion(namespace, id)
    }

    /// See [`JournalReader::request_used`].
    pub(crate) fn request_used(self, request: &StartRequest) -> Reading<'a, Option<Refused>> {
        self.0.request_used(request)
    }

    /// See [`JournalReader::deleted_after`].
    pub(crate) fn deleted_after(self, after: Position, limit: usize) -> Reading<'a, Vec<Deletion>> {
        self.0.deleted_after(after, limit)
    }

    /// See [`JournalReader::outbox_len`].
    pub(crate) fn outbox_len(self, limit: usize) -> Reading<'a, usize> {
        self.0.outbox_len(limit)
    }
}

impl Feeds {
    fn new(max_recent: usize, memory: &Arc<Memory>) -> Self {
        Self {
            max_recent,
            known: HashMap::new(),
            sweep_at: 0,
            viewed: HashMap::new(),
            looks: 0,
            memory: Arc::clone(memory),
        }
    }

    /// The feed of an execution; `None` when none is in use.
    fn get(&self, key: ExecutionKey) -> Option<Arc<EventFeed>> {
        self.known.get(&key).and_then(Weak::upgrade)
    }

    /// The feed of an execution; a new one when none is in use.
    fn of(&mut self, key: ExecutionKey) -> Arc<EventFeed> {
        if let Some(feed) = self.get(key) {
            return feed;
        }
        if self.known.len() >= self.sweep_at.max(MIN_SWEEP_ENTRIES) {
            self.known.retain(|_, feed| feed.strong_count() > 0);
            self.sweep_at = 2 * self.known.len();
        }
        let feed = Arc::new(EventFeed::new(self.max_recent, &self.memory));
        self.known.insert(key, Arc::downgrade(&feed));
        feed
    }

    /// The key and feed of an execution that readers have looked at lately.
    fn viewed(&mut self, name: &ExecutionName) -> Option<(ExecutionKey, Arc<EventFeed>)> {
        self.looks += 1;
        let viewed = self.viewed.get_mut(name)?;
        viewed.last = self.looks;
        Some((viewed.key, Arc::clone(&viewed.feed)))
    }

    /// The key of an execution that readers have looked at lately.
    fn key_of(&self, name: &ExecutionName) -> Option<ExecutionKey> {
        self.viewed.get(name).map(|viewed| viewed.key)
    }

    /// The execution was deleted. A reader that is looking at it keeps what it sees for the moment, and one that has found its row may keep that anew.
    fn deleted(&mut self, key: ExecutionKey) {
        self.forget(key);
        if let Some(feed) = self.get(key) {
            feed.set_deleted();
        }
    }

    fn forget(&mut self, key: ExecutionKey) {
        self.viewed.retain(|_, viewed| viewed.key != key);
        if let Some(feed) = self.get(key) {
            feed.view.give_up();
        }
    }

    /// Keeps the state that readers see of an execution, and gives up those that were not looked at for longest and that no reader is looking at.
    fn keep_view(&mut self, name: ExecutionName, key: ExecutionKey) -> Arc<EventFeed> {
        let feed = self.of(key);
        self.looks += 1;
        self.viewed.insert(name, ViewedExecution { key, feed: Arc::clone(&feed), last: self.looks });
        let mut weight: usize = self.viewed.values().map(ViewedExecution::weight).sum();
        if weight > MAX_VIEWED_BYTES {
            let mut looked: Vec<(u64, usize)> =
                self.viewed.values().map(|viewed| (viewed.last, viewed.weight())).collect();
            looked.sort_unstable();
            looked.pop();
            // An eighth less than is allowed, so that this is rare.
            let given_up = looked.into_iter().take_while(|(_, bytes)| {
                let is_too_much = weight > MAX_VIEWED_BYTES / 8 * 7;
                weight -= bytes;
                is_too_much
            });
            let until = given_up.last().map_or(0, |(last, _)| last);
            self.viewed.retain(|_, viewed| viewed.last > until || !viewed.feed.view.give_up());
        }
        feed
    }

    fn sweep(&mut self, round: u64) -> bool {
        let mut is_left = false;
        // Also those of feeds that only a driver or a watcher holds.
        self.known.retain(|_, feed| match feed.upgrade() {
            Some(feed) => {
                is_left |= !feed.view.sweep(round) | feed.sweep(round);
                true
            }
            None => false,
        });
        self.viewed.retain(|_, viewed| !viewed.feed.view.sweep(round));
        is_left
    }
}

/// The error for a reader whose execution was deleted while it was read, when another one has been created under its name.
pub(crate) fn another_has_the_name() -> Status {
    Status::unavailable("another execution has the name now; retry")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
