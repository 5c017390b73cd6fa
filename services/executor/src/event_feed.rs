//! The event feed of an execution: what its driver publishes to watchers.
//!
//! Live and replay are one path: a watcher asks for the events after its cursor, and gets them from the last transitions in memory or from
//! the journal. The driver only signals that there are more. An event is encoded once, for the store; watchers get those bytes.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicUsize},
    time::Duration,
};

use belay_journal::{ExecutionKey, Transition};
use belay_proto::v1;
use prost::{Message as _, bytes::Bytes, encoding::decode_varint};
use tokio::sync::watch;

use crate::{
    names::ExecutionName,
    view::View,
    wire::{DecodeError, is_end},
};

/// How many bytes of transitions are kept in memory for watchers; the latest is kept whatever its size.
const MAX_RECENT_BYTES: usize = 1024 * 1024;

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
    /// The execution after its end.
    ended: watch::Sender<Option<Arc<v1::Execution>>>,
    /// What readers see.
    pub(crate) view: View,
}

/// The transitions that are kept in memory.
#[derive(Debug, Default)]
struct Recent {
    transitions: VecDeque<Encoded>,
    bytes: usize,
}

/// Events of one transition as they are stored, and as watchers get them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Encoded {
    first: u64,
    count: u64,
    /// Whether the last is the end of the execution.
    is_end: bool,
    /// One after the other, each with its length before it.
    bytes: Bytes,
}

impl From<&Transition> for Encoded {
    fn from(transition: &Transition) -> Self {
        let Transition { first_sequence, count, shown, .. } = transition;
        let mut encoded = Self {
            first: *first_sequence,
            count: u64::from(*count),
            is_end: false,
            bytes: Bytes::copy_from_slice(shown),
        };
        encoded.is_end = encoded.after(0).last().is_some_and(|last| last.is_ok_and(|(_, event)| is_end(&event)));
        encoded
    }
}

impl Encoded {
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
#[derive(Debug, Default)]
struct RecentOutput {
    chunks: VecDeque<OutputChunk>,
    bytes: usize,
}

/// The position of the feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Head {
    /// The last committed sequence; 0 before the first, and while it is not known.
    pub(crate) last: u64,
    /// The number of output chunks so far.
    pub(crate) chunks: u64,
}

impl EventFeed {
    pub(crate) fn new(max_recent: usize, kept_of_all: Arc<AtomicUsize>) -> Self {
        Self {
            max_recent,
            recent: Mutex::default(),
            output: Mutex::default(),
            head: watch::Sender::default(),
            ended: watch::Sender::default(),
            view: View::new(kept_of_all),
        }
    }

    /// Whether there are watchers; else what is published need not be copied.
    pub(crate) fn is_watched(&self) -> bool {
        self.head.receiver_count() > 0
    }

    /// Publishes a committed transition whose last event is `last`. `events` is `None` without watchers: a later watcher reads the journal.
    pub(crate) fn publish(&self, last: u64, events: Option<Encoded>) {
        let mut recent = lock(&self.recent);
        match events {
            None => {
                *recent = Recent::default();
                *lock(&self.output) = RecentOutput::default();
            }
            Some(events) => {
                recent.bytes += events.len();
                recent.transitions.push_back(events);
                while recent.transitions.len() > self.max_recent
                    || recent.bytes > MAX_RECENT_BYTES && recent.transitions.len() > 1
                {
                    let oldest = recent.transitions.pop_front();
                    recent.bytes -= oldest.map_or(0, |oldest| oldest.len());
                }
            }
        }
        drop(recent);
        self.head.send_modify(|head| head.last = last);
    }

    /// Makes readers and watchers read the journal: a driver has ended, and may have committed events that it did not publish.
    pub(crate) fn read_again(&self) {
        self.view.give_up();
        // The last sequence is not known.
        self.publish(0, None);
    }

    /// How long a watcher that has got events leaves the next ones to gather: a tenth of a millisecond for each that watches the same
    /// execution. A thousand watchers that each wake for every event would take the time from the execution that they watch.
    pub(crate) fn pace(&self) -> Duration {
        WATCHER_PACE * u32::try_from(self.head.receiver_count()).unwrap_or(u32::MAX)
    }

    /// Publishes the execution after its end, so that waiting requests need not read it from the store.
    pub(crate) fn finish(&self, describe: impl FnOnce() -> v1::Execution) {
        if self.ended.receiver_count() > 0 {
            self.ended.send_replace(Some(Arc::new(describe())));
        }
    }

    /// Forgets the end of an execution that goes on.
    pub(crate) fn go_on(&self) {
        self.ended.send_if_modified(|ended| ended.take().is_some());
    }

    /// Subscribes to the end only; no events are kept for that.
    pub(crate) fn subscribe_end(&self) -> watch::Receiver<Option<Arc<v1::Execution>>> {
        self.ended.subscribe()
    }

    /// Publishes output, if anyone is watching.
    pub(crate) fn publish_output(&self, event: &v1::ExecutionEvent) {
        if !self.is_watched() {
            return;
        }
        let event = Bytes::from(event.encode_length_delimited_to_vec());
        let mut output = lock(&self.output);
        output.bytes += event.len();
        self.head.send_modify(|head| {
            head.chunks += 1;
            let (number, after) = (head.chunks, head.last);
            output.chunks.push_back(OutputChunk { number, after, event });
        });
        while output.bytes > MAX_OUTPUT_BYTES
            && let Some(oldest) = output.chunks.pop_front()
        {
            output.bytes -= oldest.event.len();
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
    pub(crate) fn after(&self, cursor: u64, max_bytes: usize) -> Vec<Encoded> {
        let recent = lock(&self.recent);
        let next = recent.transitions.partition_point(|events| events.last() <= cursor);
        if recent.transitions.get(next).is_none_or(|events| events.first > cursor + 1) {
            return Vec::new();
        }
        let mut bytes = 0;
        let fits = |events: &&Encoded| {
            let is_first = bytes == 0;
            bytes += events.len();
            is_first || bytes <= max_bytes
        };
        recent.transitions.range(next..).take_while(fits).cloned().collect()
    }
}

/// The number of entries from which on unused ones are swept.
const MIN_SWEEP_ENTRIES: usize = 1024;

/// The feeds in use.
#[derive(Debug)]
pub(crate) struct EventFeeds {
    max_recent: usize,
    known: HashMap<ExecutionKey, Weak<EventFeed>>,
    /// The number of entries at which unused ones are swept; it doubles, so that sweeps are rare.
    sweep_at: usize,
    /// Executions that readers look at: their feeds, with what readers see, stay in memory.
    viewed: HashMap<ExecutionName, Viewed>,
    /// How often readers have looked.
    looks: u64,
    /// How many bytes all views keep that no reader has applied yet.
    kept_of_all: Arc<AtomicUsize>,
}

/// An execution that readers look at.
#[derive(Debug)]
struct Viewed {
    key: ExecutionKey,
    feed: Arc<EventFeed>,
    /// When readers looked last, by [`EventFeeds::looks`].
    last: u64,
}

impl Viewed {
    fn weight(&self) -> usize {
        self.feed.view.bytes() + MIN_VIEW_BYTES
    }
}

/// How much the views that are kept for readers may weigh together: the events that they were folded from, as they are stored. In memory they
/// are some three times as large.
const MAX_VIEWED_BYTES: usize = 32 * 1024 * 1024;

/// What a view weighs at least: so there are at most 4,096.
const MIN_VIEW_BYTES: usize = 8 * 1024;

impl EventFeeds {
    /// Feeds that each keep `max_recent` transitions.
    pub(crate) fn new(max_recent: usize) -> Self {
        Self {
            max_recent,
            known: HashMap::new(),
            sweep_at: 0,
            viewed: HashMap::new(),
            looks: 0,
            kept_of_all: Arc::default(),
        }
    }

    /// The feed of an execution; a new one when none is in use.
    pub(crate) fn of(&mut self, key: ExecutionKey) -> Arc<EventFeed> {
        if let Some(feed) = self.known.get(&key).and_then(Weak::upgrade) {
            return feed;
        }
        if self.known.len() >= self.sweep_at.max(MIN_SWEEP_ENTRIES) {
            self.known.retain(|_, feed| feed.strong_count() > 0);
            self.sweep_at = 2 * self.known.len();
        }
        let feed = Arc::new(EventFeed::new(self.max_recent, Arc::clone(&self.kept_of_all)));
        self.known.insert(key, Arc::downgrade(&feed));
        feed
    }

    /// The key and feed of an execution that readers have looked at lately.
    pub(crate) fn viewed(&mut self, name: &ExecutionName) -> Option<(ExecutionKey, Arc<EventFeed>)> {
        self.looks += 1;
        let viewed = self.viewed.get_mut(name)?;
        viewed.last = self.looks;
        Some((viewed.key, Arc::clone(&viewed.feed)))
    }

    /// Gives up what readers see of an execution.
    pub(crate) fn forget(&mut self, key: ExecutionKey) {
        self.viewed.retain(|_, viewed| viewed.key != key);
        if let Some(feed) = self.known.get(&key).and_then(Weak::upgrade) {
            feed.view.give_up();
        }
    }

    /// Records that a reader was shown from the journal that the execution ended at this time, in microseconds since the Unix epoch.
    pub(crate) fn has_shown_end(&self, key: ExecutionKey, ended_at: i64) {
        if let Some(feed) = self.known.get(&key).and_then(Weak::upgrade) {
            feed.view.has_shown_end(ended_at);
        }
    }

    /// Keeps what readers see of an execution, and gives up what has not been looked at for longest.
    pub(crate) fn keep_view(&mut self, name: ExecutionName, key: ExecutionKey) -> Arc<EventFeed> {
        let feed = self.of(key);
        self.looks += 1;
        self.viewed.insert(name, Viewed { key, feed: Arc::clone(&feed), last: self.looks });
        let mut weight: usize = self.viewed.values().map(Viewed::weight).sum();
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
            for (_, viewed) in self.viewed.extract_if(|_, viewed| viewed.last <= until) {
                viewed.feed.view.give_up();
            }
        }
        feed
    }
}

/// See [`EventFeed::pace`].
const WATCHER_PACE: Duration = Duration::from_micros(100);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(sequences: std::ops::RangeInclusive<u64>, size: usize) -> Encoded {
        let (first, count) = (*sequences.start(), sequences.clone().count() as u64);
        let mut bytes = Vec::new();
        for sequence in sequences {
            let event =
                v1::ExecutionEvent { sequence: sequence as i64, step_id: "x".repeat(size), ..Default::default() };
            event.encode_length_delimited(&mut bytes).unwrap();
        }
        Encoded { first, count, is_end: false, bytes: bytes.into() }
    }

    fn publish(feed: &EventFeed, events: Encoded) {
        feed.publish(events.last(), feed.is_watched().then_some(events));
    }

    #[test]
    fn recent_transitions_are_found_by_sequence() {
        let feed = EventFeed::new(256, Arc::default());
        publish(&feed, events(1..=2, 1));
        let subscriber = feed.subscribe();
        assert_eq!(feed.after(0, 1000), [], "there was no watcher");
        publish(&feed, events(3..=5, 1));
        publish(&feed, events(6..=6, 1));
        let first = |cursor| feed.after(cursor, 1000).first().map(|events| events.first);
        assert_eq!((first(1), first(2), first(3), first(5), first(6)), (None, Some(3), Some(3), Some(6), None));
        assert_eq!(*subscriber.borrow(), Head { last: 6, chunks: 0 });
        let lasts = |cursor, max| feed.after(cursor, max).iter().map(Encoded::last).collect::<Vec<_>>();
        assert_eq!((lasts(2, 1000), lasts(3, 1000), lasts(2, 1)), (vec![5, 6], vec![5, 6], vec![5]), "as many as fit");
        for n in 7..1000 {
            publish(&feed, events(n..=n, 1));
        }
        assert_eq!((first(5), first(998)), (None, Some(999)), "only the last ones are kept");
    }

    /// B-22: what watchers share is bounded in bytes, not only in events.
    #[test]
    fn recent_transitions_are_bounded_in_bytes() {
        let feed = EventFeed::new(256, Arc::default());
        let _subscriber = feed.subscribe();
        for n in 1..=9 {
            publish(&feed, events(n..=n, MAX_RECENT_BYTES / 4));
        }
        let kept: Vec<u64> = (0..9).filter(|&cursor| !feed.after(cursor, 1).is_empty()).collect();
        assert_eq!(kept, [6, 7, 8]);
        publish(&feed, events(10..=10, 2 * MAX_RECENT_BYTES));
        let last = |cursor| feed.after(cursor, 1).last().map(Encoded::last);
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
        let cut = Encoded { bytes: transition.bytes.slice(..transition.bytes.len() - 1), ..transition };
        let read: Vec<_> = cut.after(0).map(|event| event.map(|(sequence, _)| sequence).ok()).collect();
        assert_eq!(read, [Some(3), Some(4), None], "damage is noticed");
    }

    /// B-22: what readers see is bounded, whatever they look at.
    #[test]
    fn the_executions_that_were_looked_at_for_longest_are_given_up() {
        let mut feeds = EventFeeds::new(256);
        let name = |n: usize| ExecutionName { namespace: "default".into(), id: format!("e{n}") };
        let key = |n: usize| ExecutionKey(n.try_into().unwrap());
        let most = MAX_VIEWED_BYTES / MIN_VIEW_BYTES;
        for n in 0..most {
            feeds.keep_view(name(n), key(n));
        }
        assert_eq!(feeds.viewed(&name(0)).map(|(key, _)| key), Some(key(0)), "looked at again");
        feeds.keep_view(name(most), key(most));
        assert!(feeds.viewed(&name(0)).is_some() && feeds.viewed(&name(most)).is_some());
        assert!(feeds.viewed(&name(1)).is_none() && feeds.viewed.len() == most / 8 * 7);
        feeds.forget(key(0));
        assert!(feeds.viewed(&name(0)).is_none());
    }

    #[test]
    fn a_feed_lives_as_long_as_it_is_used() {
        let mut feeds = EventFeeds::new(256);
        let held = feeds.of(ExecutionKey(0));
        for key in 1..10 * MIN_SWEEP_ENTRIES {
            drop(feeds.of(ExecutionKey(key.try_into().unwrap())));
        }
        assert!(feeds.known.len() <= MIN_SWEEP_ENTRIES, "the others are not kept");
        assert!(Arc::ptr_eq(&held, &feeds.of(ExecutionKey(0))));
    }

    #[test]
    fn waiting_for_the_end_keeps_no_events() {
        let feed = EventFeed::new(256, Arc::default());
        feed.finish(|| unreachable!("no request waits"));
        let end = feed.subscribe_end();
        publish(&feed, events(1..=2, 1));
        assert_eq!(feed.after(0, 1000), []);
        feed.finish(|| v1::Execution { name: "e".into(), ..v1::Execution::default() });
        assert_eq!(end.borrow().as_ref().map(|execution| execution.name.as_str()), Some("e"));
    }

    #[test]
    fn output_is_kept_for_watchers_and_bounded() {
        let feed = EventFeed::new(256, Arc::default());
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
