//! What clients were told, outside of the simulated machines: no crash takes it back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_proto::v1::decide_approval_request::Decision;
use belay_proto::v1::{self, approval};

use super::picture::Picture;
use crate::checker::Checker;
use crate::trace;

/// What clients were told. Clones are one memory.
#[derive(Debug, Clone, Default)]
pub(super) struct Told {
    state: Arc<Mutex<State>>,
    checker: Checker,
    /// Whether the gate keeps what it has shown.
    gate_remembers: bool,
    /// Whether the executor keeps what it has shown.
    journal_remembers: bool,
}

#[derive(Debug, Default)]
struct State {
    healed: bool,
    /// Requests whose execution has ended, as their client saw it.
    ended: BTreeSet<String>,
    executions: BTreeMap<String, Heard>,
    /// Where the journal is replaced: the events that were shown, by execution, journal and sequence.
    shown: BTreeMap<(String, String, i64), v1::ExecutionEvent>,
    approvals: BTreeMap<String, Asked>,
}

/// What was heard of one approval.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// What was shown, by revision.
    pub(super) shown: BTreeMap<i64, v1::Approval>,
    /// What a person decided, and was told that it counts.
    pub(super) decided: Option<Decision>,
}

/// Whether an approval that is in state `before` may be in state `after` later.
pub(super) fn may_become(before: approval::State, after: approval::State) -> bool {
    use approval::State as S;
    match before {
        S::Pending => true,
        S::Approved => matches!(after, S::Approved | S::Consumed | S::Stale),
        _ => before == after,
    }
}

/// Whether a decision can have led to a state.
pub(super) fn leads_to(decision: Decision, state: approval::State) -> bool {
    use approval::State as S;
    match decision {
        Decision::Approve => matches!(state, S::Approved | S::Consumed | S::Stale),
        Decision::Deny => state == S::Denied,
        Decision::Skip => state == S::Skipped,
        Decision::Unspecified => false,
    }
}

/// What was heard of one execution.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    pub(super) uid: String,
    pub(super) shard: i32,
    /// The request that it was started with.
    pub(super) request_id: String,
    /// Events by sequence.
    pub(super) events: BTreeMap<i64, v1::ExecutionEvent>,
    /// The server's own account, by the sequence of the last event in it.
    pub(super) accounts: BTreeMap<i64, Picture>,
    /// The ids of the requests to pause, resume and cancel that were acknowledged.
    pub(super) requests: BTreeSet<String>,
}

impl Told {
    /// `gate_remembers`: the gate keeps its store; `journal_remembers`: so does the executor.
    pub(super) fn new(checker: &Checker, gate_remembers: bool, journal_remembers: bool) -> Self {
        Self { checker: checker.clone(), gate_remembers, journal_remembers, ..Self::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one insertion: a panic elsewhere leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something is not as it must be.
    pub(super) fn violation(&self, what: impl std::fmt::Display) {
        self.checker.violation(what);
    }

    /// `request_id` was answered with `execution`.
    pub(super) fn started(&self, request_id: &str, execution: &v1::Execution) {
        trace::count("executions started");
        {
            let mut state = self.state();
            let heard = state.executions.entry(execution.name.clone()).or_default();
            heard.uid.clone_from(&execution.uid);
            heard.request_id = request_id.to_owned();
        }
        self.saw(execution);
    }

    /// A client got the server's full account of an execution.
    pub(super) fn saw(&self, execution: &v1::Execution) {
        let mut state = self.state();
        let heard = state.executions.entry(execution.name.clone()).or_default();
        heard.shard = execution.shard;
        if !self.journal_remembers {
            return;
        }
        let account = Picture::of(execution);
        let before = heard.accounts.insert(execution.last_sequence, account.clone());
        drop(state);
        if before.is_some_and(|before| before != account) {
            let (name, sequence) = (&execution.name, execution.last_sequence);
            self.violation(format_args!("{name} was one thing at event {sequence}, which is gone, and is another"));
        }
    }

    /// A watcher of execution `name` was shown `event` out of `journal`.
    pub(super) fn shown(&self, name: &str, journal: &str, event: v1::ExecutionEvent) {
        let mut state = self.state();
        let sequence = event.sequence;
        let before = if self.journal_remembers {
            let heard = state.executions.entry(name.to_owned()).or_default();
            heard.events.insert(sequence, event.clone())
        } else {
            state.shown.insert((name.to_owned(), journal.to_owned(), sequence), event.clone())
        };
        drop(state);
        if before.is_some_and(|before| before != event) {
            self.violation(format_args!("event {sequence} of {name} is gone: another was shown before"));
        }
    }

    /// A pause, resumption or cancellation of execution `name` was acknowledged.
    pub(super) fn acknowledged(&self, name: &str, request_id: String) {
        trace::count("requests acknowledged");
        let mut state = self.state();
        let heard = state.executions.entry(name.to_owned()).or_default();
        heard.requests.insert(request_id);
    }

    /// A person was shown an approval.
    pub(super) fn saw_approval(&self, approval: v1::Approval) {
        let (name, revision, state) = (approval.name.clone(), approval.revision, approval.state());
        trace::event(format_args!("{name} is {state:?} for {}", approval.call));
        if !self.gate_remembers {
            // Two stores give the same names and revisions to different things.
            return;
        }
        let mut told = self.state();
        let asked = told.approvals.entry(name.clone()).or_default();
        let later = asked.shown.range(revision + 1..).find(|(_, later)| !may_become(state, later.state()));
        let earlier = asked.shown.range(..revision).find(|(_, earlier)| !may_become(earlier.state(), state));
        let other = later.or(earlier).map(|(_, other)| other.state());
        let before = asked.shown.insert(revision, approval.clone());
        drop(told);
        if let Some(other) = other {
            self.violation(format_args!("{name} was {other:?}, which is gone, and {state:?}"));
        }
        if before.is_some_and(|before| before != approval) {
            self.violation(format_args!("{name} was another at revision {revision}, which is gone"));
        }
    }

    /// A person was told that a decision counts.
    pub(super) fn decided(&self, decision: Decision, approval: &v1::Approval) {
        let (name, state) = (&approval.name, approval.state());
        if !self.gate_remembers {
            if !leads_to(decision, state) {
                self.violation(format_args!("{name} was decided {decision:?}, and is {state:?}"));
            }
            return;
        }
        let before = self.state().approvals.entry(name.clone()).or_default().decided.replace(decision);
        if before.is_some_and(|before| before != decision) || !leads_to(decision, state) {
            self.violation(format_args!("{name} was decided {before:?}, then {decision:?}, and is {state:?}"));
        }
    }

    /// An execution that was acknowledged is not there. Returns whether that may be.
    pub(super) fn execution_may_be_gone(&self) -> bool {
        !self.journal_remembers
    }

    /// An approval that was shown is not there.
    pub(super) fn approval_is_gone(&self, message: &str) {
        if self.gate_remembers {
            self.violation(format_args!("an approval that was shown is gone: {message}"));
        }
    }

    /// All that was heard of approvals, by their names.
    pub(super) fn approvals(&self) -> BTreeMap<String, Asked> {
        self.state().approvals.clone()
    }

    /// The client has seen the end of the execution that it requested.
    pub(super) fn ended(&self, request_id: &str) {
        self.state().ended.insert(request_id.to_owned());
    }

    /// How many requests have seen their execution end.
    pub(super) fn ended_count(&self) -> usize {
        self.state().ended.len()
    }

    /// Which of `requests` have not.
    pub(super) fn open(&self, requests: &[String]) -> Vec<String> {
        let state = self.state();
        requests.iter().filter(|id| !state.ended.contains(*id)).cloned().collect()
    }

    /// From now on nothing fails any more.
    pub(super) fn set_healed(&self) {
        self.state().healed = true;
    }

    /// Whether nothing fails any more.
    pub(super) fn is_healed(&self) -> bool {
        self.state().healed
    }

    /// The shard of an execution, if it was heard of.
    pub(super) fn shard(&self, execution: &str) -> Option<i32> {
        self.state().executions.get(execution).map(|heard| heard.shard)
    }

    /// All that was heard, by the executions' names.
    pub(super) fn all(&self) -> BTreeMap<String, Heard> {
        self.state().executions.clone()
    }
}
