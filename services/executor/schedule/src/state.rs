//! The state of a schedule: what was decided, and what has become of it.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::{Firing, Origin};

/// How many records are kept.
const MAX_RECORDS: usize = 20;
/// How many requests for triggers are remembered, so that a repeated one starts nothing.
const MAX_REQUESTS: usize = 32;

/// The state of a schedule. It is stored whole before anything is done that follows from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Every nominal time up to this one is decided. It never goes back, whatever the clock does.
    pub decided: i64,
    /// The reason for which it is paused.
    pub paused: Option<String>,
    /// Firings that are to be started, and whose executions are not known to exist.
    pub starting: Vec<Firing>,
    /// Firings whose executions exist and are not known to have ended.
    pub running: Vec<Firing>,
    /// The running ones that are cancelled, until they have ended.
    pub cancelling: Vec<Firing>,
    /// Firings that wait for the end of others, in order.
    pub queue: VecDeque<Firing>,
    /// The outcomes of the last times.
    pub records: VecDeque<Record>,
    /// How many executions were started.
    pub started: u64,
    /// How many times were skipped.
    pub skipped: u64,
    /// How many firings could not be started.
    pub failed: u64,
    /// The last time of a trigger.
    pub last_trigger: i64,
    /// The last requests for triggers and backfills, with the time of the trigger.
    pub requests: VecDeque<(String, i64)>,
}

/// The outcome of a time, or of several in a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The first nominal time.
    pub first: i64,
    /// The last one, which may be the first.
    pub last: i64,
    /// How many there are; after a long outage, at least as many.
    pub count: u64,
    /// The origin of the firings.
    pub origin: Origin,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a firing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Its execution was started.
    Started,
    /// It was skipped.
    Skipped(SkipReason),
    /// Its execution could not be started, and never can.
    Failed(String),
}

/// The reason why a time was skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SkipReason {
    /// It was later than the catch-up window allows.
    Missed,
    /// The schedule was paused.
    Paused,
    /// An execution of the schedule had not ended.
    Overlap,
    /// As many were waiting as may.
    QueueFull,
    /// A later one took its place before it could start.
    Superseded,
}

impl State {
    /// The state of a new schedule: its first nominal time is after now.
    #[must_use]
    pub fn new(now: i64) -> Self {
        Self { decided: now, last_trigger: i64::MIN, ..Self::default() }
    }

    /// Whether an execution of the schedule is in progress, or about to be.
    pub(crate) fn is_busy(&self) -> bool {
        !self.starting.is_empty() || !self.running.is_empty()
    }

    /// Records that the execution of a firing exists.
    pub fn record_start(&mut self, firing: Firing) {
        self.starting.retain(|kept| *kept != firing);
        if !self.running.contains(&firing) {
            self.running.push(firing);
            self.started += 1;
            self.record(firing, Outcome::Started);
        }
    }

    /// Records that a firing can never be started.
    pub fn record_failure(&mut self, firing: Firing, why: String) {
        self.starting.retain(|kept| *kept != firing);
        self.failed += 1;
        self.record(firing, Outcome::Failed(why));
    }

    /// Records that the execution of a firing has ended.
    pub fn record_end(&mut self, firing: Firing) {
        self.running.retain(|kept| *kept != firing);
        self.cancelling.retain(|kept| *kept != firing);
    }

    /// Asks for a firing now. Its time is later than that of each trigger before, so that it has a name of its own. A repeated request gets the
    /// firing that it asked for first.
    pub fn trigger(&mut self, request: &str, now: i64) -> Firing {
        let origin = Origin::Trigger;
        if let Some(nominal) = self.requested(request) {
            return Firing { nominal, origin };
        }
        let nominal = now.max(self.last_trigger.saturating_add(1));
        self.last_trigger = nominal;
        self.remember(request, nominal);
        let firing = Firing { nominal, origin };
        self.starting.push(firing);
        firing
    }

    /// The answer that a request got before.
    #[must_use]
    pub fn requested(&self, request: &str) -> Option<i64> {
        self.requests.iter().find(|(known, _)| !request.is_empty() && known == request).map(|(_, answer)| *answer)
    }

    pub(crate) fn remember(&mut self, request: &str, answer: i64) {
        if !request.is_empty() {
            self.requests.push_back((request.to_owned(), answer));
            while self.requests.len() > MAX_REQUESTS {
                self.requests.pop_front();
            }
        }
    }

    pub(crate) fn skip(&mut self, firing: Firing, reason: SkipReason) {
        self.skipped += 1;
        self.record(firing, Outcome::Skipped(reason));
    }

    pub(crate) fn record(&mut self, firing: Firing, outcome: Outcome) {
        let Firing { nominal, origin } = firing;
        self.record_all(Record { first: nominal, last: nominal, count: 1, origin, outcome });
    }

    /// Times in a row with one outcome are one record.
    pub(crate) fn record_all(&mut self, record: Record) {
        if let Some(last) = self.records.back_mut()
            && matches!(record.outcome, Outcome::Skipped(_))
            && (&last.outcome, last.origin) == (&record.outcome, record.origin)
        {
            last.last = record.last;
            last.count += record.count;
            return;
        }
        self.records.push_back(record);
        while self.records.len() > MAX_RECORDS {
            self.records.pop_front();
        }
    }
}
