//! The event feed of an execution: what its driver publishes to watchers.
//!
//! Live and replay are one path: a watcher asks for the events after its cursor, and gets them from the last transitions in memory or from
//! the journal. The driver only signals that there are more.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use belay_journal::ExecutionKey;
use belay_proto::v1;
use prost::Message as _;
use tokio::sync::watch;

/// How many bytes of output are kept in memory for watchers. A watcher that is further behind misses some, and sees that from the offsets.
const MAX_OUTPUT_BYTES: usize = 1024 * 1024;

/// The latest events of one execution.
#[derive(Debug)]
pub(crate) struct EventFeed {
    /// How many transitions are kept in memory for watchers.
    max_recent: usize,
    recent: Mutex<VecDeque<Arc<[v1::ExecutionEvent]>>>,
    output: Mutex<RecentOutput>,
    head: watch::Sender<Head>,
    /// The execution after its end.
    ended: watch::Sender<Option<Arc<v1::Execution>>>,
}

/// A chunk of a tool's output.
#[derive(Clone, Debug)]
pub(crate) struct OutputChunk {
    /// 1, 2, 3, … within this feed.
    pub(crate) number: u64,
    /// The last committed sequence when it was written: watchers get it after that event.
    pub(crate) after: u64,
    pub(crate) event: Arc<v1::ExecutionEvent>,
    bytes: usize,
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
    /// The last committed sequence; 0 before the first.
    pub(crate) last: u64,
    /// The number of output chunks so far.
    pub(crate) chunks: u64,
}

impl EventFeed {
    pub(crate) fn new(max_recent: usize) -> Self {
        Self {
            max_recent,
            recent: Mutex::default(),
            output: Mutex::default(),
            head: watch::Sender::default(),
            ended: watch::Sender::default(),
        }
    }

    /// Publishes a committed transition.
    pub(crate) fn publish(&self, events: Vec<v1::ExecutionEvent>) {
        let Some(event) = events.last() else { return };
        let last = sequence(event);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if self.head.receiver_count() == 0 {
            // A later watcher reads the journal.
            recent.clear();
            *self.output.lock().unwrap_or_else(PoisonError::into_inner) = RecentOutput::default();
        } else {
            recent.push_back(events.into());
            if recent.len() > self.max_recent {
                recent.pop_front();
            }
        }
        self.head.send_modify(|head| head.last = last);
    }

    /// Publishes the execution after its end, so that waiting requests need not read it from the store.
    pub(crate) fn finish(&self, describe: impl FnOnce() -> v1::Execution) {
        if self.ended.receiver_count() > 0 {
            self.ended.send_replace(Some(Arc::new(describe())));
        }
    }

    /// Subscribes to the end only; no events are kept for that.
    pub(crate) fn subscribe_end(&self) -> watch::Receiver<Option<Arc<v1::Execution>>> {
        self.ended.subscribe()
    }

    /// Publishes output, if anyone is watching.
    pub(crate) fn publish_output(&self, event: v1::ExecutionEvent) {
        if self.head.receiver_count() == 0 {
            return;
        }
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = event.encoded_len();
        output.bytes += bytes;
        self.head.send_modify(|head| {
            head.chunks += 1;
            let (number, after) = (head.chunks, head.last);
            output.chunks.push_back(OutputChunk { number, after, bytes, event: Arc::new(event) });
        });
        while output.bytes > MAX_OUTPUT_BYTES
            && let Some(oldest) = output.chunks.pop_front()
        {
            output.bytes -= oldest.bytes;
        }
    }

    /// The chunks after chunk `number` that are still in memory.
    pub(crate) fn output_after(&self, number: u64) -> Vec<OutputChunk> {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let known = output.chunks.partition_point(|chunk| chunk.number <= number);
        output.chunks.range(known..).cloned().collect()
    }

    /// Subscribes to new transitions and output.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Head> {
        self.head.subscribe()
    }

    /// The transition that contains the event after `cursor`, if it is in memory.
    pub(crate) fn after(&self, cursor: u64) -> Option<Arc<[v1::ExecutionEvent]>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |events: &Arc<[v1::ExecutionEvent]>| {
            events.first().is_some_and(|first| sequence(first) <= cursor + 1)
                && events.last().is_some_and(|last| sequence(last) > cursor)
        };
        // Most watchers are close behind.
        recent.iter().rev().find(|events| holds(events)).cloned()
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
}

impl EventFeeds {
    /// Feeds that each keep `max_recent` transitions.
    pub(crate) fn new(max_recent: usize) -> Self {
        Self { max_recent, known: HashMap::new(), sweep_at: 0 }
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
        let feed = Arc::new(EventFeed::new(self.max_recent));
        self.known.insert(key, Arc::downgrade(&feed));
        feed
    }
}

pub(crate) fn sequence(event: &v1::ExecutionEvent) -> u64 {
    u64::try_from(event.sequence).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(sequences: std::ops::RangeInclusive<i64>) -> Vec<v1::ExecutionEvent> {
        sequences.map(|sequence| v1::ExecutionEvent { sequence, ..v1::ExecutionEvent::default() }).collect()
    }

    #[test]
    fn recent_transitions_are_found_by_sequence() {
        let feed = EventFeed::new(256);
        feed.publish(events(1..=2));
        let subscriber = feed.subscribe();
        assert_eq!(feed.after(0), None, "there was no watcher");
        feed.publish(events(3..=5));
        feed.publish(events(6..=6));
        let first = |cursor| feed.after(cursor).map(|events| sequence(&events[0]));
        assert_eq!((first(1), first(2), first(3), first(5), first(6)), (None, Some(3), Some(3), Some(6), None));
        assert_eq!(*subscriber.borrow(), Head { last: 6, chunks: 0 });
        for n in 7..1000 {
            feed.publish(events(n..=n));
        }
        assert_eq!((first(5), first(998)), (None, Some(999)), "only the last ones are kept");
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
        let feed = EventFeed::new(256);
        feed.finish(|| unreachable!("no request waits"));
        let end = feed.subscribe_end();
        feed.publish(events(1..=2));
        assert_eq!(feed.after(0), None);
        feed.finish(|| v1::Execution { name: "e".into(), ..v1::Execution::default() });
        assert_eq!(end.borrow().as_ref().map(|execution| execution.name.as_str()), Some("e"));
    }

    #[test]
    fn output_is_kept_for_watchers_and_bounded() {
        let feed = EventFeed::new(256);
        let chunk = |bytes| v1::ExecutionEvent { step_id: "x".repeat(bytes), ..v1::ExecutionEvent::default() };
        feed.publish_output(chunk(1));
        assert!(feed.output_after(0).is_empty(), "there was no watcher");
        let _subscriber = feed.subscribe();
        feed.publish(events(1..=2));
        feed.publish_output(chunk(1));
        feed.publish(events(3..=3));
        feed.publish_output(chunk(2));
        let kept =
            |number| feed.output_after(number).iter().map(|output| (output.number, output.after)).collect::<Vec<_>>();
        assert_eq!((kept(0), kept(1)), (vec![(1, 2), (2, 3)], vec![(2, 3)]));
        feed.publish_output(chunk(MAX_OUTPUT_BYTES - 4));
        assert_eq!(kept(0), [(3, 3)], "the oldest go");
    }
}
