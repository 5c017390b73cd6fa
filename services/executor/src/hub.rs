//! Where watchers of one execution meet its driver.
//!
//! Live and replay are one path: a watcher asks for what comes after its cursor, and gets it from the last few transitions in memory
//! or from the journal, whichever has it. The driver only says that there is more.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, PoisonError, Weak},
};

use belay_journal::ExecutionKey;
use belay_proto::v1;
use prost::Message as _;
use tokio::sync::watch;

/// How many transitions are kept for watchers that are close behind.
const KEPT: usize = 256;

/// How many bytes of output are kept for watchers that are close behind. Whoever is further behind misses some, and sees that by the
/// offsets.
const SAID: usize = 1024 * 1024;

/// The events of one execution that were committed last.
#[derive(Debug)]
pub(crate) struct Hub {
    recent: Mutex<VecDeque<Arc<[v1::ExecutionEvent]>>>,
    said: Mutex<Output>,
    told: watch::Sender<Told>,
    /// The execution as it ended.
    ended: watch::Sender<Option<Arc<v1::Execution>>>,
}

/// A piece of what a tool said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// 1, 2, 3, … among the pieces of this hub.
    pub(crate) number: u64,
    /// The last committed sequence when it was said: it belongs behind that event.
    pub(crate) after: u64,
    pub(crate) event: Arc<v1::ExecutionEvent>,
    bytes: usize,
}

/// The pieces that are kept.
#[derive(Debug, Default)]
struct Output {
    pieces: VecDeque<Said>,
    bytes: usize,
}

/// What a hub was told so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The last committed sequence; 0 before anything was told.
    pub(crate) last: u64,
    /// How many pieces of output there were.
    pub(crate) said: u64,
}

impl Hub {
    pub(crate) fn new() -> Self {
        Self {
            recent: Mutex::default(),
            said: Mutex::default(),
            told: watch::Sender::default(),
            ended: watch::Sender::default(),
        }
    }

    /// Tells watchers of a committed transition.
    pub(crate) fn publish(&self, events: Vec<v1::ExecutionEvent>) {
        let Some(event) = events.last() else { return };
        let last = sequence(event);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if self.told.receiver_count() == 0 {
            // Whoever comes later reads the journal.
            recent.clear();
            *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Output::default();
        } else {
            if recent.len() == KEPT {
                recent.pop_front();
            }
            recent.push_back(events.into());
        }
        self.told.send_modify(|told| told.last = last);
    }

    /// Tells whoever waits for the end how the execution ended, so that nobody has to read it from the store.
    pub(crate) fn finish(&self, describe: impl FnOnce() -> v1::Execution) {
        if self.ended.receiver_count() > 0 {
            self.ended.send_replace(Some(Arc::new(describe())));
        }
    }

    /// Hears of the end, and of nothing before it: no event is kept for that.
    pub(crate) fn end(&self) -> watch::Receiver<Option<Arc<v1::Execution>>> {
        self.ended.subscribe()
    }

    /// Tells watchers what a tool said, if there are any.
    pub(crate) fn say(&self, event: v1::ExecutionEvent) {
        if self.told.receiver_count() == 0 {
            return;
        }
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = event.encoded_len();
        said.bytes += bytes;
        self.told.send_modify(|told| {
            told.said += 1;
            let (number, after) = (told.said, told.last);
            said.pieces.push_back(Said { number, after, bytes, event: Arc::new(event) });
        });
        while said.bytes > SAID
            && let Some(oldest) = said.pieces.pop_front()
        {
            said.bytes -= oldest.bytes;
        }
    }

    /// What was said after piece `number` and is still in memory.
    pub(crate) fn said_after(&self, number: u64) -> Vec<Said> {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let known = said.pieces.partition_point(|piece| piece.number <= number);
        said.pieces.range(known..).cloned().collect()
    }

    /// Hears of new transitions.
    pub(crate) fn follow(&self) -> watch::Receiver<Told> {
        self.told.subscribe()
    }

    /// The transition that holds the event after `cursor`, if it is in memory.
    pub(crate) fn after(&self, cursor: u64) -> Option<Arc<[v1::ExecutionEvent]>> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let holds = |events: &Arc<[v1::ExecutionEvent]>| {
            events.first().is_some_and(|first| sequence(first) <= cursor + 1)
                && events.last().is_some_and(|last| sequence(last) > cursor)
        };
        // A watcher is as a rule close behind.
        recent.iter().rev().find(|events| holds(events)).cloned()
    }
}

/// How many entries there are at least before those are looked for that are not needed any more.
const SWEPT_AT: usize = 1024;

/// The hubs that somebody holds.
#[derive(Debug, Default)]
pub(crate) struct Hubs {
    known: HashMap<ExecutionKey, Weak<Hub>>,
    /// When there are so many entries, those go whose hubs are gone: seldom enough to cost nothing.
    sweep_at: usize,
}

impl Hubs {
    /// The hub of an execution; a new one when nobody holds one.
    pub(crate) fn of(&mut self, key: ExecutionKey) -> Arc<Hub> {
        if let Some(hub) = self.known.get(&key).and_then(Weak::upgrade) {
            return hub;
        }
        if self.known.len() >= self.sweep_at.max(SWEPT_AT) {
            self.known.retain(|_, hub| hub.strong_count() > 0);
            self.sweep_at = 2 * self.known.len();
        }
        let hub = Arc::new(Hub::new());
        self.known.insert(key, Arc::downgrade(&hub));
        hub
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
    fn what_is_in_memory_is_found_by_its_place() {
        let hub = Hub::new();
        hub.publish(events(1..=2));
        let follower = hub.follow();
        assert_eq!(hub.after(0), None, "nobody was watching");
        hub.publish(events(3..=5));
        hub.publish(events(6..=6));
        let first = |cursor| hub.after(cursor).map(|events| sequence(&events[0]));
        assert_eq!((first(1), first(2), first(3), first(5), first(6)), (None, Some(3), Some(3), Some(6), None));
        assert_eq!(*follower.borrow(), Told { last: 6, said: 0 });
        for n in 7..1000 {
            hub.publish(events(n..=n));
        }
        assert_eq!((first(5), first(998)), (None, Some(999)), "only the last ones are kept");
    }

    #[test]
    fn a_hub_lives_as_long_as_somebody_holds_it() {
        let mut hubs = Hubs::default();
        let held = hubs.of(ExecutionKey(0));
        for key in 1..10 * SWEPT_AT {
            drop(hubs.of(ExecutionKey(key.try_into().unwrap())));
        }
        assert!(hubs.known.len() <= SWEPT_AT, "the others are not kept");
        assert!(Arc::ptr_eq(&held, &hubs.of(ExecutionKey(0))));
    }

    #[test]
    fn whoever_waits_for_the_end_gets_it_and_has_no_event_kept() {
        let hub = Hub::new();
        hub.finish(|| unreachable!("nobody waits"));
        let end = hub.end();
        hub.publish(events(1..=2));
        assert_eq!(hub.after(0), None);
        hub.finish(|| v1::Execution { name: "e".into(), ..v1::Execution::default() });
        assert_eq!(end.borrow().as_ref().map(|execution| execution.name.as_str()), Some("e"));
    }

    #[test]
    fn output_is_kept_for_whoever_is_there_and_bounded() {
        let hub = Hub::new();
        let piece = |bytes| v1::ExecutionEvent { call: "x".repeat(bytes), ..v1::ExecutionEvent::default() };
        hub.say(piece(1));
        assert!(hub.said_after(0).is_empty(), "nobody was watching");
        let _follower = hub.follow();
        hub.publish(events(1..=2));
        hub.say(piece(1));
        hub.publish(events(3..=3));
        hub.say(piece(2));
        let kept = |number| hub.said_after(number).iter().map(|said| (said.number, said.after)).collect::<Vec<_>>();
        assert_eq!((kept(0), kept(1)), (vec![(1, 2), (2, 3)], vec![(2, 3)]));
        hub.say(piece(SAID - 4));
        assert_eq!(kept(0), [(3, 3)], "the oldest go");
    }
}
