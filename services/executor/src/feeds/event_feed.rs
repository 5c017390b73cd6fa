//! The event feed of an execution: what was committed of it, for its watchers and readers.
//!
//! Live and replay are one path: a watcher asks for the events after its cursor, and gets them from the last transitions in memory or from
//! the journal. The commit only signals that there are more. An event is encoded once, for the store; watchers get those bytes.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use belay_journal::Transition;
use belay_proto::v1;
use prost::{Message as _, bytes::Bytes, encoding::decode_varint};
use tokio::sync::watch;

use super::{
    memory::{Memory, Share},
    view::{LiveWaits, View},
};
use crate::wire::{DecodeError, is_end};

/// How many bytes of transitions are kept in memory for watchers; the latest is kept whatever its size.
const MAX_RECENT_BYTES: usize = 1024 * 1024;

/// How many bytes of transitions all feeds keep together. Beyond that a feed that publishes keeps its latest transition alone, and its watchers
/// read the journal.
pub(super) const MAX_RECENT_BYTES_OF_ALL: usize = 8 * 1024 * 1024;

/// How many bytes of output are kept in memory for watchers. A watcher that is further behind misses some, and sees that from the offsets.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// The latest events of one execution.
#[derive(Debug)]
pub(crate) struct EventFeed {
    /// How many transitions are kept in memory for watchers.
    max_recent: usize,
    recent: Mutex<Recent>,
    output: Mutex<RecentOutput>,
    head: watch::Sender<Head>,
    /// The end of the execution; `None` while it has not ended, or that is not known.
    end: watch::Sender<Option<End>>,
    /// The state that readers see.
    pub(super) view: View,
    /// The round in which something was published last; see [`Memory::round`].
    published_in: AtomicU64,
    is_deleted: AtomicBool,
    memory: Arc<Memory>,
}

/// The end of an execution, as it was committed.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// The execution in BASIC view; `None` when the commit did not bring it, and it has to be read.
    pub(crate) shown: Option<Arc<v1::Execution>>,
}

/// The transitions that are kept in memory.
#[derive(Debug)]
struct Recent {
    transitions: VecDeque<EncodedEvents>,
    bytes: Share,
}

impl Recent {
    /// Removes the oldest transitions until as many are left, with as many bytes; the latest stays.
    fn keep(&mut self, transitions: usize, bytes: usize) {
        while self.transitions.len() > 1 && (self.transitions.len() > transitions || self.bytes.own() > bytes) {
            let oldest = self.transitions.pop_front();
            self.bytes.subtract(oldest.map_or(0, |oldest| oldest.len()));
        }
    }

    fn clear(&mut self) {
        self.transitions = VecDeque::new();
        self.bytes.clear();
    }
}

/// Events of one transition as they are stored, and as watchers get them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EncodedEvents {
    first: u64,
    count: u64,
    /// Whether the last is the end of the execution.
    is_end: bool,
    /// The events, one after the other, each with its length before it.
    bytes: Bytes,
}

impl From<Transition> for EncodedEvents {
    fn from(transition: Transition) -> Self {
        let Transition { first_sequence, count, shown, .. } = transition;
        let mut encoded = Self { first: first_sequence, count: u64::from(count), is_end: false, bytes: shown.into() };
        encoded.is_end = encoded.after(0).last().is_some_and(|last| last.is_ok_and(|(_, event)| is_end(&event)));
        encoded
    }
}

impl EncodedEvents {
    /// The sequence of the last event.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.count.saturating_sub(1)
    }

    /// Whether the last event is the end of the execution.
    pub(crate) fn is_end(&self) -> bool {
        self.is_end
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The events after `cursor` by their sequence, each with its length before it; an error when the bytes are no such list.
    pub(crate) fn after(&self, cursor: u64) -> impl Iterator<Item = Result<(u64, Bytes), DecodeError>> + use<> {
        let (mut rest, mut sequence) = (self.bytes.clone(), self.first);
        let events = std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let mut content = &*rest;
            let length = decode_varint(&mut content).map_err(|error| DecodeError::Damaged(error.to_string()));
            let event = length.and_then(|length| {
                let length = usize::try_from(length).unwrap_or(usize::MAX);
                if length > content.len() {
                    return Err(DecodeError::Damaged("an event is longer than its transition".to_owned()));
                }
                Ok(rest.len() - content.len() + length)
            });
            let event = event.map(|length| (sequence, rest.split_to(length)));
            if event.is_err() {
                rest.clear();
            }
            sequence += 1;
            Some(event)
        });
        events.skip_while(move |event| event.as_ref().is_ok_and(|(sequence, _)| *sequence <= cursor))
    }
}

/// A chunk of a tool's output.
#[derive(Clone, Debug)]
pub(crate) struct OutputChunk {
    /// 1, 2, 3, … within this feed.
    pub(crate) number: u64,
    /// The last committed sequence when it was written: watchers get it after that event.
    pub(crate) after: u64,
    /// The event, with its length before it.
    pub(crate) event: Bytes,
}

/// The chunks that are kept in memory.
#[derive(Debug)]
struct RecentOutput {
    chunks: VecDeque<OutputChunk>,
    bytes: Share,
}

/// The position of the feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The execution's revision: the sequence of its last event that is known to be committed; 0 while none is.
    pub(crate) last: u64,
    /// The number of output chunks so far.
    pub(crate) chunks: u64,
}

impl EventFeed {
    /// A feed without watchers, which keeps at most `max_recent` transitions for those to come.
    pub(super) fn new(max_recent: usize, memory: &Arc<Memory>) -> Self {
        Self {
            max_recent,
            recent: Mutex::new(Recent { transitions: VecDeque::new(), bytes: memory.recent() }),
            output: Mutex::new(RecentOutput { chunks: VecDeque::new(), bytes: memory.recent() }),
            head: watch::Sender::default(),
            end: watch::Sender::default(),
            view: View::new(memory),
            published_in: AtomicU64::new(memory.round()),
            is_deleted: AtomicBool::new(false),
            memory: Arc::clone(memory),
        }
    }

    /// The execution is deleted, by this process.
    pub(super) fn set_deleted(&self) {
        self.is_deleted.store(true, Ordering::Release);
    }

    /// Whether the execution was deleted in this process. What a reader was looking at then is still there.
    pub(super) fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Acquire)
    }

    /// Whether there are watchers; without them no transition is kept.
    fn is_watched(&self) -> bool {
        self.head.receiver_count() > 0
    }

    /// Whether a reader follows, so that a commit is to bring its events.
    pub(crate) fn is_followed(&self) -> bool {
        self.view.is_followed()
    }

    /// Replaces the reasons for waiting that are in no event.
    pub(crate) fn set_waits(&self, waits: LiveWaits) {
        self.view.set_waits(waits);
    }

    /// Whether a request waits for the end, so that a commit of it is to bring the execution.
    pub(crate) fn is_awaited(&self) -> bool {
        self.end.receiver_count() > 0
    }

    /// Whether its end is known.
    pub(super) fn has_end(&self) -> bool {
        self.end.borrow().is_some()
    }

    /// The execution's revision as far as it is known; see [`Head::last`].
    pub(super) fn revision(&self) -> u64 {
        self.head.borrow().last
    }

    /// Publishes a committed transition. `end` is set when the execution's summary was written with it: `Some(None)` when that has not ended.
    /// Returns whether it is kept for watchers.
    pub(super) fn publish(&self, transition: Transition, end: Option<Option<End>>) -> bool {
        let last = transition.last_sequence();
        self.published_in.store(self.memory.round(), Ordering::Relaxed);
        let mut recent = lock(&self.recent);
        let is_watched = self.is_watched();
        if is_watched {
            let events = EncodedEvents::from(transition);
            recent.bytes.add(events.len());
            recent.transitions.push_back(events);
            let of_all = recent.bytes.of_all();
            recent.keep(self.max_recent, if of_all > MAX_RECENT_BYTES_OF_ALL { 0 } else { MAX_RECENT_BYTES });
        } else {
            // What follows would leave a gap.
            recent.clear();
        }
        drop(recent);
        self.raise(last);
        if let Some(end) = end {
            self.replace_end(end);
        }
        is_watched
    }

    /// Publishes that another process has committed the events up to this one; they are read from the store.
    pub(super) fn observe(&self, last: u64) {
        self.published_in.store(self.memory.round(), Ordering::Relaxed);
        self.view.keep(None, 0);
        self.raise(last);
    }

    /// Publishes whether the execution has ended, as its row in the store says.
    pub(super) fn set_end(&self, has_ended: bool) {
        self.replace_end(has_ended.then_some(End { shown: None }));
    }

    fn replace_end(&self, end: Option<End>) {
        self.end.send_if_modified(|known| {
            let changes = known.is_some() || end.is_some();
            *known = end;
            changes
        });
    }

    /// Records that the execution has a revision, which was committed here, or read from the journal: from now on no reader is shown an earlier one.
    pub(crate) fn raise(&self, revision: u64) {
        self.head.send_if_modified(|head| {
            let is_newer = revision > head.last;
            head.last = head.last.max(revision);
            is_newer
        });
    }

    /// Gives up what is not needed any more: transitions and output without watchers, or of an execution of which nothing was published for two
    /// rounds. Returns whether some is left.
    pub(super) fn sweep(&self, round: u64) -> bool {
        let is_quiet = round.saturating_sub(self.published_in.load(Ordering::Relaxed)) >= 2;
        let (mut recent, mut output) = (lock(&self.recent), lock(&self.output));
        if is_quiet || !self.is_watched() {
            recent.clear();
            output.chunks = VecDeque::new();
            output.bytes.clear();
        }
        !(recent.transitions.is_empty() && output.chunks.is_empty())
    }

    /// How long a watcher that has got events leaves the next ones to gather: four tenths of a millisecond for each that watches the same
    /// execution. A thousand watchers that each wake for every event would take the time from the execution that they watch.
    pub(crate) fn pace(&self) -> Duration {
        WATCHER_PACE * u32::try_from(self.head.receiver_count()).unwrap_or(u32::MAX)
    }

    /// Subscribes to the end only; no events are kept for that.
    pub(crate) fn subscribe_end(&self) -> watch::Receiver<Option<End>> {
        self.end.subscribe()
    }

    /// Publishes output, if anyone is watching.
    pub(crate) fn publish_output(&self, event: &v1::ExecutionEvent) {
        if !self.is_watched() {
            return;
        }
        let event = Bytes::from(event.encode_length_delimited_to_vec());
        let mut output = lock(&self.output);
        output.bytes.add(event.len());
        self.head.send_modify(|head| {
            head.chunks += 1;
            let (number, after) = (head.chunks, head.last);
            output.chunks.push_back(OutputChunk { number, after, event });
        });
        while output.bytes.own() > MAX_OUTPUT_BYTES
            && let Some(oldest) = output.chunks.pop_front()
        {
            output.bytes.subtract(oldest.event.len());
        }
    }

    /// The chunks after chunk `number` that are still in memory.
    pub(crate) fn output_after(&self, number: u64) -> Vec<OutputChunk> {
        let output = lock(&self.output);
        let known = output.chunks.partition_point(|chunk| chunk.number <= number);
        output.chunks.range(known..).cloned().collect()
    }

    /// Subscribes to new transitions and output.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Head> {
        self.head.subscribe()
    }

    /// The transitions with the events after `cursor`, if the first of these is in memory; at least one, and no more than fit into `max_bytes`.
    pub(crate) fn after(&self, cursor: u64, max_bytes: usize) -> Vec<EncodedEvents> {
        let recent = lock(&self.recent);
        let next = recent.transitions.partition_point(|events| events.last() <= cursor);
        if recent.transitions.get(next).is_none_or(|events| events.first > cursor + 1) {
            return Vec::new();
        }
        let mut bytes = 0;
        let fits = |events: &&EncodedEvents| {
            let is_first = bytes == 0;
            bytes += events.len();
            is_first || bytes <= max_bytes
        };
        recent.transitions.range(next..).take_while(fits).cloned().collect()
    }
}

/// See [`EventFeed::pace`].
const WATCHER_PACE: Duration = Duration::from_micros(400);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(sequences: std::ops::RangeInclusive<u64>, size: usize) -> EncodedEvents {
        let (first, count) = (*sequences.start(), sequences.clone().count() as u64);
        let mut bytes = Vec::new();
        for sequence in sequences {
            let event =
                v1::ExecutionEvent { sequence: sequence as i64, step_id: "x".repeat(size), ..Default::default() };
            event.encode_length_delimited(&mut bytes).unwrap();
        }
        EncodedEvents { first, count, is_end: false, bytes: bytes.into() }
    }

    fn feed() -> EventFeed {
        EventFeed::new(256, &Arc::default())
    }

    fn transition(events: EncodedEvents) -> Transition {
        let (first_sequence, count) = (events.first, u32::try_from(events.count).unwrap());
        Transition { first_sequence, count, version: 1, shown: events.bytes.to_vec(), sealed: None, facts: None }
    }

    fn publish(feed: &EventFeed, events: EncodedEvents) {
        feed.publish(transition(events), None);
    }

    #[test]
    fn recent_transitions_are_found_by_sequence() {
        let feed = feed();
        publish(&feed, events(1..=2, 1));
        let subscriber = feed.subscribe();
        assert_eq!(feed.after(0, 1000), [], "there was no watcher");
        publish(&feed, events(3..=5, 1));
        publish(&feed, events(6..=6, 1));
        let first = |cursor| feed.after(cursor, 1000).first().map(|events| events.first);
        assert_eq!((first(1), first(2), first(3), first(5), first(6)), (None, Some(3), Some(3), Some(6), None));
        assert_eq!(*subscriber.borrow(), Head { last: 6, chunks: 0 });
        let lasts = |cursor, max| feed.after(cursor, max).iter().map(EncodedEvents::last).collect::<Vec<_>>();
        assert_eq!((lasts(2, 1000), lasts(3, 1000), lasts(2, 1)), (vec![5, 6], vec![5, 6], vec![5]), "as many as fit");
        for n in 7..1000 {
            publish(&feed, events(n..=n, 1));
        }
        assert_eq!((first(5), first(998)), (None, Some(999)), "only the last ones are kept");
    }

    /// B-22: what watchers share is bounded in bytes, not only in events.
    #[test]
    fn recent_transitions_are_bounded_in_bytes() {
        let feed = feed();
        let _subscriber = feed.subscribe();
        for n in 1..=9 {
            publish(&feed, events(n..=n, MAX_RECENT_BYTES / 4));
        }
        let kept: Vec<u64> = (0..9).filter(|&cursor| !feed.after(cursor, 1).is_empty()).collect();
        assert_eq!(kept, [6, 7, 8]);
        publish(&feed, events(10..=10, 2 * MAX_RECENT_BYTES));
        let last = |cursor| feed.after(cursor, 1).last().map(EncodedEvents::last);
        assert_eq!((last(8), last(9)), (None, Some(10)), "the latest is kept");
    }

    #[test]
    fn events_are_taken_out_of_a_transition_as_they_are_stored() {
        let transition = events(3..=5, 200);
        let after = |cursor| transition.after(cursor).collect::<Result<Vec<_>, _>>().unwrap();
        let all = after(0);
        assert_eq!(all.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [3, 4, 5]);
        for (sequence, bytes) in &all {
            let event = v1::ExecutionEvent::decode_length_delimited(bytes.clone()).unwrap();
            assert_eq!((event.sequence as u64, event.step_id.len()), (*sequence, 200));
        }
        assert_eq!((after(2).len(), after(4).len(), after(5).len()), (3, 1, 0));
        let cut = EncodedEvents { bytes: transition.bytes.slice(..transition.bytes.len() - 1), ..transition };
        let read: Vec<_> = cut.after(0).map(|event| event.map(|(sequence, _)| sequence).ok()).collect();
        assert_eq!(read, [Some(3), Some(4), None], "damage is noticed");
    }

    #[test]
    fn waiting_for_the_end_keeps_no_events() {
        let feed = feed();
        let end = feed.subscribe_end();
        publish(&feed, events(1..=2, 1));
        assert_eq!(feed.after(0, 1000), []);
        let shown = Some(Arc::new(v1::Execution { name: "e".into(), ..v1::Execution::default() }));
        feed.publish(transition(events(3..=3, 1)), Some(Some(End { shown })));
        let name = || end.borrow().as_ref().and_then(|end| end.shown.as_ref().map(|shown| shown.name.clone()));
        assert_eq!(name().as_deref(), Some("e"));
        feed.publish(transition(events(4..=4, 1)), None);
        assert_eq!(name().as_deref(), Some("e"), "the summary did not change");
        feed.publish(transition(events(5..=5, 1)), Some(None));
        assert!(end.borrow().is_none(), "it was retried");
    }

    /// B-22: what nobody reads any more is given up.
    #[test]
    fn transitions_are_given_up_without_watchers_and_after_two_quiet_rounds() {
        let memory = Arc::<Memory>::default();
        let feed = EventFeed::new(256, &memory);
        let subscriber = feed.subscribe();
        publish(&feed, events(1..=2, 100));
        assert!(feed.sweep(memory.next_round()));
        assert_eq!(feed.after(0, 1).len(), 1);
        assert!(!feed.sweep(memory.next_round()), "nothing was published for two rounds");
        assert_eq!((feed.after(0, 1), memory.recent().of_all()), (Vec::new(), 0));
        publish(&feed, events(3..=3, 100));
        drop(subscriber);
        assert!(!feed.sweep(memory.next_round()), "nobody watches");
        assert_eq!(memory.recent().of_all(), 0);
    }

    /// A gap is never handed out as if it were none.
    #[test]
    fn transitions_without_watchers_leave_no_gap() {
        let feed = feed();
        let subscriber = feed.subscribe();
        publish(&feed, events(1..=2, 1));
        drop(subscriber);
        publish(&feed, events(3..=3, 1));
        let _subscriber = feed.subscribe();
        publish(&feed, events(4..=4, 1));
        assert_eq!(feed.after(0, 1000), [], "2 is not followed by 4");
        assert_eq!(feed.after(3, 1000).len(), 1);
    }

    #[test]
    fn output_is_kept_for_watchers_and_bounded() {
        let feed = feed();
        let chunk = |bytes| v1::ExecutionEvent { step_id: "x".repeat(bytes), ..v1::ExecutionEvent::default() };
        feed.publish_output(&chunk(1));
        assert!(feed.output_after(0).is_empty(), "there was no watcher");
        let _subscriber = feed.subscribe();
        publish(&feed, events(1..=2, 1));
        feed.publish_output(&chunk(1));
        publish(&feed, events(3..=3, 1));
        feed.publish_output(&chunk(2));
        let kept =
            |number| feed.output_after(number).iter().map(|output| (output.number, output.after)).collect::<Vec<_>>();
        assert_eq!((kept(0), kept(1)), (vec![(1, 2), (2, 3)], vec![(2, 3)]));
        feed.publish_output(&chunk(MAX_OUTPUT_BYTES - 8));
        assert_eq!(kept(0), [(3, 3)], "the oldest go");
    }
}
