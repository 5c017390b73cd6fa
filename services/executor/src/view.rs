//! What readers see of an execution: a fold of its own, apart from the driver's, that follows the committed events.
//!
//! The first reader has it folded from the journal. From then on the driver hands over what it commits, which costs it a reference, and the
//! next reader applies that. So neither a reader nor the number of steps that it looks at holds up the execution. A view that is not looked
//! at is given up after a while, and all views together are bounded: the next reader folds again.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};

use belay_execution::{Event, Execution, StepKey};
use belay_journal::ExecutionKey;
use belay_proto::v1;
use belay_redaction::Redactor;
use tonic::Status;

use crate::{journal_reads::JournalReads, names::ExecutionName, replayed::Replayed, secrets::shown, wire};

/// How many bytes of events, as they are stored, a driver keeps for the next reader of its execution. Beyond that
/// readers come too rarely for it to be worth keeping.
const MAX_KEPT_BYTES: usize = 4 * 1024 * 1024;

/// How many bytes all drivers keep for readers.
const MAX_KEPT_BYTES_OF_ALL: usize = 32 * 1024 * 1024;

/// How many times a view is folded again when a driver gave it up meanwhile. More than one in a row would take a driver that commits faster
/// than the journal is read.
const MAX_FOLDS: usize = 3;

/// What readers see of one execution.
#[derive(Debug)]
pub(crate) struct View {
    folded: tokio::sync::Mutex<Option<Folded>>,
    /// What the driver has committed since; `None` while no reader follows.
    kept: Mutex<Option<Kept>>,
    /// How many bytes all drivers keep.
    kept_of_all: Arc<AtomicUsize>,
    /// The reasons for waiting that are in no event.
    waits: Mutex<Arc<LiveWaits>>,
    /// The size of its events as they are stored.
    bytes: AtomicUsize,
    /// The last event that a reader was shown from the journal, which has events before the driver hands them over.
    shown: AtomicU64,
    /// When the execution ended, as a reader was shown from the journal; 0 when none was.
    shown_end: AtomicI64,
}

/// The execution as of its last event that a reader has applied.
#[derive(Debug)]
struct Folded {
    execution: Execution,
    redactor: Redactor,
}

/// Transitions that no reader has applied yet.
#[derive(Debug)]
struct Kept {
    events: Vec<Arc<[Event]>>,
    bytes: usize,
    of_all: Arc<AtomicUsize>,
    /// Hides the secrets that are known after them; `None` before the first.
    redactor: Option<Redactor>,
}

impl Kept {
    fn nothing(of_all: &Arc<AtomicUsize>) -> Self {
        Self { events: Vec::new(), bytes: 0, of_all: Arc::clone(of_all), redactor: None }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.of_all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Reasons for waiting that only the driver knows: services that do not answer or are at their limit, calls that wait for others.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LiveWaits {
    /// Those of the execution.
    pub(crate) execution: Vec<v1::WaitingReason>,
    /// Those of its steps.
    pub(crate) steps: Vec<(StepKey, v1::WaitingReason)>,
}

/// An execution that a reader looks at.
pub(crate) struct Seen<'a> {
    name: &'a ExecutionName,
    pub(crate) execution: &'a Execution,
    redactor: &'a Redactor,
    waits: &'a LiveWaits,
}

impl Seen<'_> {
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
        message.waiting.extend(self.waits.execution.iter().cloned());
        for (step, waiting) in &self.waits.steps {
            if let Some(step) = message.steps.get_mut(step.position()) {
                step.waiting = Some(waiting.clone());
            }
        }
        shown(self.redactor, message)
    }

    /// What hides its secrets.
    pub(crate) fn redactor(&self) -> Redactor {
        self.redactor.clone()
    }

    /// A step in this view, with its secrets hidden.
    pub(crate) fn step(&self, step: StepKey, view: wire::StepDetails) -> v1::Step {
        let mut message = wire::step(self.name, self.execution, self.execution.step(step), view);
        if let Some((_, waiting)) = self.waits.steps.iter().rev().find(|(waiting, _)| *waiting == step) {
            message.waiting = Some(waiting.clone());
        }
        shown(self.redactor, message)
    }
}

impl View {
    /// A view without readers. `kept_of_all` is shared by all views.
    pub(crate) fn new(kept_of_all: Arc<AtomicUsize>) -> Self {
        Self {
            folded: tokio::sync::Mutex::default(),
            kept: Mutex::default(),
            kept_of_all,
            waits: Mutex::default(),
            bytes: AtomicUsize::new(0),
            shown: AtomicU64::new(0),
            shown_end: AtomicI64::new(0),
        }
    }

    /// Keeps committed events for the next reader, if one follows. `bytes` is their size as they are stored.
    pub(crate) fn keep(&self, events: Vec<Event>, bytes: usize, redactor: &Redactor) {
        let mut kept = lock(&self.kept);
        let Some(following) = kept.as_mut() else { return };
        following.bytes += bytes;
        let of_all = self.kept_of_all.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if following.bytes > MAX_KEPT_BYTES || of_all > MAX_KEPT_BYTES_OF_ALL {
            *kept = None;
            return;
        }
        following.events.push(events.into());
        following.redactor = Some(redactor.clone());
    }

    /// Replaces the reasons for waiting that are in no event.
    pub(crate) fn set_waits(&self, waits: LiveWaits) {
        *lock(&self.waits) = Arc::new(waits);
    }

    /// Records that a reader was shown an event from the journal: no reader is shown an earlier state from now on.
    pub(crate) fn has_shown(&self, sequence: u64) {
        self.shown.fetch_max(sequence, Ordering::SeqCst);
    }

    /// Records that a reader was shown from the journal that the execution ended at this time. It may go on since.
    pub(crate) fn has_shown_end(&self, ended_at: i64) {
        self.shown_end.fetch_max(ended_at, Ordering::SeqCst);
    }

    /// Looks at the execution as it is committed.
    ///
    /// # Errors
    /// Why the journal cannot be read.
    pub(crate) async fn look<T>(
        &self,
        reads: &JournalReads,
        key: ExecutionKey,
        name: &ExecutionName,
        look: impl FnOnce(&Seen<'_>) -> T,
    ) -> Result<T, Status> {
        let mut folded = self.folded.lock().await;
        for _ in 0..MAX_FOLDS {
            if let Some(current) = self.follow(&mut folded) {
                let waits = Arc::clone(&lock(&self.waits));
                let Folded { execution, redactor } = current;
                return Ok(look(&Seen { name, execution, redactor, waits: &waits }));
            }
            // What is committed from now on is kept; what was committed before is in the journal, and what is in both is applied once.
            *lock(&self.kept) = Some(Kept::nothing(&self.kept_of_all));
            let replayed = reads.replay(key).await.inspect_err(|_| *lock(&self.kept) = None)?;
            let Replayed { execution, secrets, bytes, .. } = replayed;
            self.bytes.store(bytes, Ordering::Relaxed);
            *folded = Some(Folded { execution, redactor: secrets.redactor().clone() });
        }
        Err(Status::unavailable("the execution changes faster than its journal is read; retry"))
    }

    /// Applies what was kept; `None` when the execution has to be folded from the journal.
    fn follow<'a>(&self, folded: &'a mut Option<Folded>) -> Option<&'a Folded> {
        let kept = lock(&self.kept).as_mut().map(|kept| mem::replace(kept, Kept::nothing(&self.kept_of_all)));
        let (Some(kept), Some(current)) = (kept, folded.as_mut()) else {
            *folded = None;
            return None;
        };
        self.bytes.fetch_add(kept.bytes, Ordering::Relaxed);
        for event in kept.events.iter().flat_map(|events| events.iter()) {
            if event.sequence > current.execution.last_sequence() && current.execution.apply(event).is_err() {
                *folded = None;
                return None;
            }
        }
        let execution = &current.execution;
        let shown_end = self.shown_end.load(Ordering::SeqCst);
        let has_gone_on = execution.went_on_at().is_some_and(|at| at.as_micros() >= shown_end);
        let is_behind = execution.last_sequence() < self.shown.load(Ordering::SeqCst);
        if is_behind || shown_end > 0 && !execution.state().is_terminal() && !has_gone_on {
            *folded = None;
            return None;
        }
        if let Some(redactor) = &kept.redactor {
            current.redactor = redactor.clone();
        }
        folded.as_ref()
    }

    /// The size of the events it was folded from, as they are stored.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Gives up what was folded, unless a reader is looking at it: then what follows is not kept, and the next reader folds again.
    pub(crate) fn give_up(&self) {
        *lock(&self.kept) = None;
        if let Ok(mut folded) = self.folded.try_lock() {
            *folded = None;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use belay_execution::{Actor, ApprovalMode, Created, ExecutionEvent, Timestamp};
    use belay_plan::{Format, Plan};

    use super::*;

    fn event() -> Vec<Event> {
        let body = ExecutionEvent::Started.into();
        vec![Event { sequence: 1, time: Timestamp::from_micros(0), actor: None, body }]
    }

    /// B-22: what drivers keep for readers who do not come back is bounded, for one execution and for all.
    #[test]
    fn what_is_kept_for_readers_is_bounded() {
        let (of_all, redactor) = (Arc::new(AtomicUsize::new(0)), Redactor::new());
        let views: Vec<View> = (0..20).map(|_| View::new(Arc::clone(&of_all))).collect();
        let keep = |view: &View, bytes| {
            view.keep(event(), bytes, &redactor);
            lock(&view.kept).as_ref().map(|kept| kept.events.len())
        };
        assert_eq!(keep(&views[0], 1), None, "no reader follows");
        for view in &views {
            *lock(&view.kept) = Some(Kept::nothing(&of_all));
        }
        assert_eq!(keep(&views[0], MAX_KEPT_BYTES), Some(1));
        assert_eq!((keep(&views[0], 1), of_all.load(Ordering::Relaxed)), (None, 0), "it is given up");
        let kept: Vec<_> = views[1..].iter().map(|view| keep(view, MAX_KEPT_BYTES)).collect();
        let most = MAX_KEPT_BYTES_OF_ALL / MAX_KEPT_BYTES;
        assert_eq!(kept.iter().filter(|kept| kept.is_some()).count(), most);
        assert_eq!(of_all.load(Ordering::Relaxed), MAX_KEPT_BYTES_OF_ALL);
        drop(views);
        assert_eq!(of_all.load(Ordering::Relaxed), 0);
    }

    fn execution() -> Execution {
        let created = Created {
            uid: "8x4k2m9q1p7r3s5t6v8w".into(),
            plan: Plan::parse(Format::Yaml, "{id: p, steps: [{id: a, tool: noop}]}").unwrap(),
            inputs: belay_execution::Json::from_text("{}"),
            start_at: None,
            parent_step: String::new(),
            forked_from: String::new(),
            approval_mode: ApprovalMode::Wait,
            workspace: belay_execution::Workspace::MadeFolder("e".into()),
            labels: BTreeMap::new(),
            tools: Vec::new(),
            deadline: None,
            trace: (String::new(), String::new()),
            shard: 0,
        };
        let (time, actor) = (Timestamp::from_micros(0), Some(Actor::new("unix:1")));
        let body = ExecutionEvent::Created(Box::new(created)).into();
        Execution::create(Event { sequence: 1, time, actor, body }).unwrap()
    }

    /// A watcher can be shown the end from the journal before the driver hands it over. A client that then asks for the execution gets its result.
    #[test]
    fn what_a_reader_was_shown_is_not_taken_back() {
        let view = View::new(Arc::default());
        let follows = |kept: Option<Event>| {
            *lock(&view.kept) = Some(Kept::nothing(&view.kept_of_all));
            view.keep(kept.into_iter().collect(), 1, &Redactor::new());
            view.follow(&mut Some(Folded { execution: execution(), redactor: Redactor::new() })).is_some()
        };
        view.has_shown(1);
        assert!(follows(None), "this reader has as much");
        view.has_shown(2);
        assert!(!follows(None), "folded anew, from the journal");
        let started = Event { sequence: 2, ..event().remove(0) };
        assert!(follows(Some(started.clone())), "the driver has handed it over");
        view.has_shown_end(5);
        assert!(!follows(Some(started.clone())), "the end is not handed over yet");
    }
}
