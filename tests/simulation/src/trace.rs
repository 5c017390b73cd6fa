//! The trace of a simulation: printed as it happens, and folded into one hash.
//!
//! Two runs of one seed must end with the same hash; otherwise the simulation could not be replayed. The trace belongs to the thread that runs the
//! simulation.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

#[derive(Default)]
struct Trace {
    now: Duration,
    show_details: bool,
    // Without keys: the same in every process.
    hash: DefaultHasher,
    counters: BTreeMap<&'static str, u64>,
}

thread_local! {
    static TRACE: RefCell<Trace> = RefCell::default();
}

/// The summary of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// Over every event and detail, in order, with its simulated time.
    pub hash: u64,
    /// The counters, by name.
    pub counters: BTreeMap<&'static str, u64>,
}

/// Begins a new trace on this thread. Details are always hashed; `show_details` prints them too.
pub fn begin(show_details: bool) {
    TRACE.set(Trace { show_details, ..Trace::default() });
}

/// Sets the simulated time of the following lines.
pub fn set_now(now: Duration) {
    TRACE.with_borrow_mut(|trace| trace.now = now);
}

/// Records an event, which is always printed.
pub fn event(text: impl Display) {
    record(text, true);
}

/// Records a detail, such as one disk operation, which is printed only on request.
pub fn detail(text: impl Display) {
    record(text, false);
}

fn record(text: impl Display, always_shown: bool) {
    let text = text.to_string();
    TRACE.with_borrow_mut(|trace| {
        (trace.now, &text).hash(&mut trace.hash);
        if always_shown || trace.show_details {
            println!("{:>9.3}s  {text}", trace.now.as_secs_f64());
        }
    });
}

/// Increments the counter `what`; counters are summed over all seeds and shown with the verdict.
pub fn count(what: &'static str) {
    TRACE.with_borrow_mut(|trace| *trace.counters.entry(what).or_default() += 1);
}

/// The hash and counters so far.
pub fn summary() -> Summary {
    TRACE.with_borrow(|trace| Summary { hash: trace.hash.finish(), counters: trace.counters.clone() })
}
