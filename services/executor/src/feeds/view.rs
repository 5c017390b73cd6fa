//! The state of an execution that readers see: a fold of its own, apart from the driver's, of the committed events.
//!
//! A reader asks for a revision, and gets the execution as of that or a later one: from the fold of the reader before, if it is recent enough, else
//! folded from the journal. For as long as the fold is kept, commits bring their events, so that the next reader applies these and does not
//! fold anew; that is an optimisation, and nothing depends on it. So neither a reader nor the number of steps that it looks at holds up the execution.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use belay_defects::{Defect, is_planted};
use belay_execution::{Event, Execution, StepKey};
use belay_journal::ExecutionKey;
use belay_proto::v1;
use belay_reading::{event_index::EventIndex, explanation::Blocker};
use belay_redaction::Redactor;
use tonic::Status;

use super::memory::{Memory, Share};
use crate::{
    names::ExecutionName,
    store::{journal_reads::JournalReads, replayed_execution::ReplayedExecution, secrets::shown},
    wire,
};

/// How many bytes of committed events are kept in memory for the next reader of one execution. Beyond that readers come too rarely for it to be
/// worth keeping.
const MAX_PENDING_BYTES: usize = 4 * 1024 * 1024;

/// How many bytes of committed events are kept in memory for readers of all executions.
pub(super) const MAX_PENDING_BYTES_OF_ALL: usize = 8 * 1024 * 1024;

/// How much memory an index may take that is kept, in bytes.
const MAX_INDEX_BYTES: usize = 16 * 1024 * 1024;

/// An estimate of the memory that an event takes beside its texts, which are about as long as it is stored.
const EVENT_BYTES: usize = 512;

/// An estimate of the memory that a folded step takes beside its texts.
const STEP_BYTES: usize = 1536;

/// The state of one execution that readers see.
#[derive(Debug)]
pub(super) struct View {
    folded: tokio::sync::Mutex<Option<FoldedExecution>>,
    /// The committed events since the last reader; `None` while no reader follows.
    pending: Mutex<Option<Pending>>,
    /// The reasons for waiting that are in no event.
    waits: Mutex<Arc<LiveWaits>>,
    /// The memory that the fold takes, in bytes; 0 without one.
    weight: AtomicUsize,
    /// The index of the events, as far as readers have needed it.
    index: tokio::sync::Mutex<Option<EventIndex>>,
    /// The memory that the index takes, in bytes; 0 without one.
    index_weight: AtomicUsize,
    /// The round in which a reader looked last; see [`Memory::round`].
    looked_in: AtomicU64,
    memory: Arc<Memory>,
}

/// The execution as of the last event that a reader has applied.
#[derive(Debug)]
struct FoldedExecution {
    execution: Execution,
    redactor: Redactor,
}

/// Committed events that no reader has applied yet.
#[derive(Debug)]
struct Pending {
    events: Vec<Arc<[Event]>>,
    /// The memory that they take.
    bytes: Share,
    /// Their size as they are stored.
    stored: usize,
    /// Hides the secrets that are known after them; `None` before the first.
    redactor: Option<Redactor>,
}

impl Pending {
    fn nothing(memory: &Arc<Memory>) -> Self {
        Self { events: Vec::new(), bytes: memory.pending(), stored: 0, redactor: None }
    }
}

/// Reasons for waiting that only the driver knows: services that do not answer or are at their limit, calls that wait for others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LiveWaits {
    /// Waits of the execution.
    pub(crate) execution: Vec<Blocker>,
    /// Waits of its steps.
    pub(crate) steps: Vec<(StepKey, Blocker)>,
}

/// The execution as a reader sees it.
pub(crate) struct ReadView<'a> {
    name: &'a ExecutionName,
    pub(crate) execution: &'a Execution,
    redactor: &'a Redactor,
    waits: &'a LiveWaits,
}

impl ReadView<'_> {
    /// The execution in this view, with its secrets hidden.
    pub(crate) fn execution(&self, view: v1::ExecutionView) -> v1::Execution {
        let mut message = match view {
            v1::ExecutionView::Unspecified | v1::ExecutionView::Basic => wire::brief(self.name, self.execution),
            v1::ExecutionView::Full => wire::full(self.name, self.execution),
        };
        // The driver replaces its reasons after the commit that made them void.
        if message.end_time.is_some() {
            return shown(self.redactor, message);
        }
        message.waiting.extend(self.waits.execution.iter().map(wire::blocker));
        for (step, blocker) in &self.waits.steps {
            if let Some(step) = message.steps.get_mut(step.position()) {
                step.waiting = Some(wire::blocker(blocker));
            }
        }
        shown(self.redactor, message)
    }

    /// The waits that are in no event.
    pub(crate) fn waits(&self) -> &LiveWaits {
        self.waits
    }

    /// The redactor that hides its secrets.
    pub(crate) fn redactor(&self) -> Redactor {
        self.redactor.clone()
    }

    /// A step in this view, with its secrets hidden.
    pub(crate) fn step(&self, step: StepKey, view: wire::StepDetails) -> v1::Step {
        let mut message = wire::step(self.name, self.execution, self.execution.step(step), view);
        if let Some((_, blocker)) = self.waits.steps.iter().rev().find(|(held_up, _)| *held_up == step) {
            message.waiting = Some(wire::blocker(blocker));
        }
        shown(self.redactor, message)
    }
}

impl View {
    /// A view without readers.
    pub(super) fn new(memory: &Arc<Memory>) -> Self {
        Self {
            folded: tokio::sync::Mutex::default(),
            pending: Mutex::default(),
            waits: Mutex::default(),
            weight: AtomicUsize::new(0),
            index: tokio::sync::Mutex::default(),
            index_weight: AtomicUsize::new(0),
            looked_in: AtomicU64::new(0),
            memory: Arc::clone(memory),
        }
    }

    /// Whether a reader follows: then commits bring their events.
    pub(super) fn is_followed(&self) -> bool {
        lock(&self.pending).is_some()
    }

    /// Keeps committed events for the next reader, if one follows. `bytes` is their size as they are stored. `None` when the commit did not bring
    /// them: the next reader folds.
    pub(super) fn keep(&self, pushed: Option<(&Arc<[Event]>, &Redactor)>, bytes: usize) {
        let mut pending = lock(&self.pending);
        let Some(following) = pending.as_mut() else { return };
        let Some((events, redactor)) = pushed else {
            *pending = None;
            return;
        };
        following.bytes.add(bytes + events.len() * EVENT_BYTES);
        if following.bytes.own() > MAX_PENDING_BYTES || following.bytes.of_all() > MAX_PENDING_BYTES_OF_ALL {
            *pending = None;
            return;
        }
        following.stored += bytes;
        following.events.push(Arc::clone(events));
        following.redactor = Some(redactor.clone());
    }

    /// Replaces the reasons for waiting that are in no event.
    pub(super) fn set_waits(&self, waits: LiveWaits) {
        *lock(&self.waits) = Arc::new(waits);
    }

    /// Looks at the execution as of a revision or a later one. `revision` is asked again after each wait, as it may rise meanwhile.
    ///
    /// # Errors
    /// Why the journal cannot be read.
    pub(super) async fn look<T>(
        &self,
        reads: &JournalReads,
        key: ExecutionKey,
        name: &ExecutionName,
        revision: impl Fn() -> u64,
        look: impl FnOnce(&ReadView<'_>) -> T,
    ) -> Result<T, Status> {
        let mut folded = self.folded.lock().await;
        self.looked_in.store(self.memory.round() + 1, Ordering::Relaxed);
        self.follow(&mut folded);
        let at_least = revision();
        let current = match folded.as_ref() {
            Some(current) if current.execution.last_sequence() >= at_least || is_planted(Defect::StaleView) => current,
            _ => {
                // What is committed from now on is kept; what was committed before is in the journal, and what is in both is applied once.
                *lock(&self.pending) = Some(Pending::nothing(&self.memory));
                let read = reads.replay(key).await.inspect_err(|_| *lock(&self.pending) = None);
                let ReplayedExecution { execution, secrets, bytes, .. } = read?;
                if execution.last_sequence() < at_least {
                    return Err(Status::unavailable(
                        "the journal cannot be read as far as it is known to reach; retry",
                    ));
                }
                self.weight.store(bytes + execution.steps().len() * STEP_BYTES, Ordering::Relaxed);
                folded.insert(FoldedExecution { execution, redactor: secrets.redactor().clone() })
            }
        };
        let waits = Arc::clone(&lock(&self.waits));
        let FoldedExecution { execution, redactor } = current;
        Ok(look(&ReadView { name, execution, redactor, waits: &waits }))
    }

    /// Selects from the index of the events: returns what `select` does of the index as far as it reaches, and otherwise reads `page` more transitions
    /// and asks again. It is told whether the index has all events; then it returns something.
    ///
    /// # Errors
    /// Why the journal cannot be read.
    pub(super) async fn select<T>(
        &self,
        reads: &JournalReads,
        key: ExecutionKey,
        page: usize,
        mut select: impl FnMut(&EventIndex, bool) -> Option<T>,
    ) -> Result<T, Status> {
        let mut kept = self.index.lock().await;
        self.looked_in.store(self.memory.round() + 1, Ordering::Relaxed);
        let index = kept.get_or_insert_default();
        let mut is_complete = false;
        loop {
            if let Some(selected) = select(index, is_complete) {
                // A larger one is made anew by each reader.
                if index.bytes() > MAX_INDEX_BYTES {
                    *kept = None;
                    self.index_weight.store(0, Ordering::Relaxed);
                }
                return Ok(selected);
            }
            if is_complete {
                return Err(Status::internal("nothing was selected from all events"));
            }
            let events = reads.events_after(key, index.last(), page).await?;
            is_complete = events.is_empty();
            events.iter().for_each(|event| index.apply(event));
            self.index_weight.store(index.bytes(), Ordering::Relaxed);
        }
    }

    /// Applies what was kept since the last reader.
    fn follow(&self, folded: &mut Option<FoldedExecution>) {
        let taken = lock(&self.pending).as_mut().map(|pending| mem::replace(pending, Pending::nothing(&self.memory)));
        let (Some(pending), Some(current)) = (taken, folded.as_mut()) else { return };
        self.weight.fetch_add(pending.stored, Ordering::Relaxed);
        for event in pending.events.iter().flat_map(|events| events.iter()) {
            let last = current.execution.last_sequence();
            if event.sequence > last && (event.sequence != last + 1 || current.execution.apply(event).is_err()) {
                *folded = None;
                return;
            }
        }
        if let Some(redactor) = pending.redactor {
            current.redactor = redactor;
        }
    }

    /// The memory that the fold and the index take, in bytes.
    pub(super) fn weight(&self) -> usize {
        self.weight.load(Ordering::Relaxed) + self.index_weight.load(Ordering::Relaxed)
    }

    /// Gives up the fold and the index, unless a reader is looking at one of them. Returns whether nothing is kept any more.
    pub(super) fn give_up(&self) -> bool {
        let (Ok(mut folded), Ok(mut index)) = (self.folded.try_lock(), self.index.try_lock()) else { return false };
        *index = None;
        self.index_weight.store(0, Ordering::Relaxed);
        *folded = None;
        *lock(&self.pending) = None;
        self.weight.store(0, Ordering::Relaxed);
        true
    }

    /// Gives up the fold and the index if no reader has looked for two rounds. Returns whether nothing is kept any more.
    pub(super) fn sweep(&self, round: u64) -> bool {
        let is_left = (round + 1).saturating_sub(self.looked_in.load(Ordering::Relaxed)) >= 2;
        is_left && self.give_up()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use belay_execution::{ExecutionEvent, Timestamp};

    use super::*;

    fn events(sequence: u64) -> Arc<[Event]> {
        let body = ExecutionEvent::Started.into();
        [Event { sequence, time: Timestamp::from_micros(0), actor: None, body }].into()
    }

    /// B-22: what is kept for readers who do not come back is bounded, for one execution and for all, by the memory that it takes.
    #[test]
    fn what_is_kept_for_readers_is_bounded() {
        let (memory, redactor) = (Arc::<Memory>::default(), Redactor::new());
        let views: Vec<View> = (0..20).map(|_| View::new(&memory)).collect();
        let follow = |view: &View| *lock(&view.pending) = Some(Pending::nothing(&memory));
        let keep = |view: &View, bytes: usize| {
            view.keep(Some((&events(1), &redactor)), bytes);
            lock(&view.pending).as_ref().map(|pending| pending.events.len())
        };
        let most = MAX_PENDING_BYTES - EVENT_BYTES;
        assert_eq!(keep(&views[0], 1), None, "no reader follows");
        views.iter().for_each(follow);
        assert_eq!(keep(&views[0], most), Some(1));
        assert_eq!((keep(&views[0], 1), memory.pending().of_all()), (None, 0), "it is given up");
        let kept: Vec<_> = views[1..].iter().map(|view| keep(view, most)).collect();
        let fit = MAX_PENDING_BYTES_OF_ALL / MAX_PENDING_BYTES;
        assert_eq!(kept.iter().filter(|kept| kept.is_some()).count(), fit);
        assert_eq!(memory.pending().of_all(), MAX_PENDING_BYTES_OF_ALL);
        drop(views);
        assert_eq!(memory.pending().of_all(), 0);
    }

    /// A commit that did not bring its events leaves a gap, and what follows a gap is not applied.
    #[test]
    fn a_commit_without_its_events_ends_the_following() {
        let memory = Arc::<Memory>::default();
        let view = View::new(&memory);
        *lock(&view.pending) = Some(Pending::nothing(&memory));
        view.keep(None, 1);
        assert!(!view.is_followed());
        view.keep(Some((&events(2), &Redactor::new())), 1);
        assert!(!view.is_followed());
    }
}
