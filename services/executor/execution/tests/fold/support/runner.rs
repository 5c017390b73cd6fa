//! A tool runner that plays a script: each call runs once under its own name, and its result is kept for whoever asks again.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    time::Duration,
};

use belay_execution::{CallId, CallRequest, ErrorClass, EventKind, Failure, Json, Receipt, Timestamp};

/// How a call ends.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Completed(Json),
    Failed(Failure),
    /// Although nobody asked for it.
    Cancelled,
    Unknown(Failure),
}

/// What the script says about one call.
#[derive(Clone, Debug)]
pub(crate) struct Reply {
    pub(crate) outcome: Outcome,
    pub(crate) latency: Duration,
    /// How long stopping it takes; `None` when it cannot be stopped and ends as it would have ended anyway.
    pub(crate) stops_in: Option<Duration>,
}

/// From the call and how many calls its step made before.
pub(crate) type Script = Box<dyn Fn(CallId, usize) -> Reply>;

pub(crate) struct Runner {
    script: Script,
    calls: BTreeMap<CallId, Call>,
}

struct Call {
    /// `None` for a call that was stopped before it arrived.
    request: Option<CallRequest>,
    outcome: Outcome,
    ends_at: Timestamp,
    stops_in: Option<Duration>,
}

impl Runner {
    pub(crate) fn new(script: Script) -> Self {
        Self { script, calls: BTreeMap::new() }
    }

    /// Starts a call, or attaches to it.
    pub(crate) fn send(&mut self, request: &CallRequest, now: Timestamp) {
        let id = request.call;
        let before = self.calls.range(CallId { attempt: 0, number: 0, ..id }..id).count();
        match self.calls.entry(id) {
            Entry::Occupied(known) => {
                let known = known.get().request.as_ref();
                assert!(known.is_none_or(|known| known == request), "{id} was sent again with other arguments");
            }
            Entry::Vacant(place) => {
                let Reply { mut outcome, mut latency, stops_in } = (self.script)(id, before);
                if latency > request.timeout {
                    outcome =
                        Outcome::Failed(Failure::new(ErrorClass::Timeout, "TOOL_TIMEOUT", "The tool took too long."));
                    latency = request.timeout;
                }
                let ends_at = now.saturating_add(latency);
                place.insert(Call { request: Some(request.clone()), outcome, ends_at, stops_in });
            }
        }
    }

    /// Stops a call, also one that never arrived.
    pub(crate) fn stop(&mut self, id: CallId, now: Timestamp) {
        let gone = Call { request: None, outcome: Outcome::Cancelled, ends_at: now, stops_in: None };
        let call = self.calls.entry(id).or_insert(gone);
        let Some(stops_in) = call.stops_in.take() else { return };
        let stopped_at = now.saturating_add(stops_in);
        if stopped_at < call.ends_at {
            call.outcome = Outcome::Cancelled;
            call.ends_at = stopped_at;
        }
    }

    /// When a call ends; `None` when it is not known here.
    pub(crate) fn ends_at(&self, id: CallId) -> Option<Timestamp> {
        self.calls.get(&id).map(|call| call.ends_at)
    }

    /// What the executor records about the end of a call.
    pub(crate) fn end(&self, id: CallId) -> EventKind {
        let receipt = Receipt { ledger_id: "ledger".to_owned(), duration: Duration::ZERO };
        match self.calls[&id].outcome.clone() {
            Outcome::Completed(result) => EventKind::CallCompleted { call: id, result, receipt },
            Outcome::Failed(failure) => EventKind::CallFailed { call: id, failure, receipt },
            Outcome::Cancelled => EventKind::CallCancelled { call: id },
            Outcome::Unknown(failure) => EventKind::CallOutcomeUnknown { call: id, failure },
        }
    }
}
