//! Records what clients observed, outside of the simulated machines, so that no crash affects it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belay_proto::v1::Decision;
use belay_proto::v1::{self, approval, execution};
use belay_service_kit::cursor::Source;

use super::super::backup::Backup;
use super::super::damage::DamagedCalls;
use super::super::picture::{Account, Depth};
use super::super::retention::DeletedExecutions;
use super::deletion::Deletion;
use super::fork::Fork;
use super::look::Look;
use crate::checker::Checker;
use crate::trace;

/// Observations of clients. Clones share their state.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Observations {
    state: Arc<Mutex<State>>,
    checker: Checker,
    /// Whether the gate keeps its store.
    gate_remembers: bool,
    /// Whether the executor keeps its journal.
    journal_remembers: bool,
    /// Whether an executor may be replaced without noticing it.
    replaces_executors: bool,
    damaged: DamagedCalls,
    /// Executions that retention has deleted.
    taken: DeletedExecutions,
    /// The backup that is put back.
    backup: Backup,
    /// Whether there is one that only reads the executor's journal.
    has_reader: bool,
}

#[derive(Debug, Clone, Default)]
pub(in super::super) struct State {
    /// The true time at which all faults have ended, in microseconds since the Unix epoch.
    healed_at: Option<i64>,
    /// Requests whose client has seen the end of the execution.
    ended: BTreeSet<String>,
    executions: BTreeMap<String, ObservedExecution>,
    /// When the journal is replaced: the events shown, by execution, source and sequence.
    shown: BTreeMap<(String, Source, i64), v1::ExecutionEvent>,
    approvals: BTreeMap<String, ObservedApproval>,
    /// By the names of the executions.
    deletions: BTreeMap<String, Deletion>,
    looks: Vec<Look>,
    /// By the names of the forks.
    forks: BTreeMap<String, Fork>,
}

impl State {
    fn unused_approvals(&self) -> usize {
        use approval::State as S;
        let is_used = |asked: &ObservedApproval| {
            asked.shown.values().next_back().is_some_and(|newest| matches!(newest.state(), S::Consumed | S::Stale))
        };
        let is_approved = |asked: &&ObservedApproval| asked.decided == Some(Decision::Approve) && !is_used(asked);
        self.approvals.values().filter(is_approved).count()
    }
}

/// The observations of one approval.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct ObservedApproval {
    /// The approval, by revision.
    pub(in super::super) shown: BTreeMap<i64, v1::Approval>,
    /// The decision that was acknowledged to a person.
    pub(in super::super) decided: Option<Decision>,
    /// The answer to a form that was acknowledged to a person.
    pub(in super::super) answer: Option<String>,
}

/// Whether an approval in state `before` may later be in state `after`.
pub(in super::super) fn may_become(before: approval::State, after: approval::State) -> bool {
    use approval::State as S;
    match before {
        S::Pending => true,
        S::Approved => matches!(after, S::Approved | S::Consumed | S::Stale),
        _ => before == after,
    }
}

/// Whether a decision can have led to a state.
pub(in super::super) fn leads_to(decision: Decision, state: approval::State) -> bool {
    use approval::State as S;
    match decision {
        Decision::Approve => matches!(state, S::Approved | S::Consumed | S::Stale),
        Decision::Deny => state == S::Denied,
        Decision::Skip => state == S::Skipped,
        Decision::Expire => state == S::Expired,
        Decision::Unspecified => false,
    }
}

/// The observations of one execution.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct ObservedExecution {
    pub(in super::super) uid: String,
    /// The request that it was started with.
    pub(in super::super) request_id: String,
    /// Events by sequence.
    pub(in super::super) events: BTreeMap<i64, v1::ExecutionEvent>,
    /// The server's snapshots, by the sequence of their last event.
    pub(in super::super) accounts: BTreeMap<i64, Account>,
    /// The ids of the requests to pause, resume and cancel that were acknowledged.
    pub(in super::super) requests: BTreeSet<String>,
}

impl Observations {
    /// `gate_remembers`: the gate keeps its store; `journal_remembers`: so does the executor; `damaged`: whose calls' rows are damaged; `taken`: what retention
    /// has deleted.
    pub(in super::super) fn new(
        checker: &Checker,
        gate_remembers: bool,
        journal_remembers: bool,
        damaged: DamagedCalls,
        taken: DeletedExecutions,
        backup: Backup,
        has_reader: bool,
    ) -> Self {
        let checker = checker.clone();
        Self { checker, gate_remembers, journal_remembers, damaged, taken, backup, has_reader, ..Self::default() }
    }

    /// Those of a site where all services keep what they know, and nothing is deleted.
    pub(in super::super) fn of_a_site_that_remembers(checker: &Checker) -> Self {
        Self { checker: checker.clone(), gate_remembers: true, journal_remembers: true, ..Self::default() }
    }

    /// The same, of a run in which an executor may be replaced without noticing it.
    #[must_use]
    pub(in super::super) fn of_replaced_executors(self, replaces_executors: bool) -> Self {
        Self { replaces_executors, ..self }
    }

    /// Whether there is one that only reads the executor's journal.
    pub(in super::super) fn has_reader(&self) -> bool {
        self.has_reader
    }

    /// The observations so far.
    pub(in super::super) fn copy(&self) -> State {
        self.state().clone()
    }

    /// Restores a copy: the observations since are of a history that is gone.
    pub(in super::super) fn restore(&self, copy: State) {
        let mut state = self.state();
        let lost = state.executions.keys().filter(|name| !copy.executions.contains_key(*name));
        lost.for_each(|_| trace::count("executions of a history that is gone"));
        (0..copy.unused_approvals()).for_each(|_| trace::count("approvals in a backup that are not used yet"));
        *state = copy;
    }

    /// How many approvals are approved, as far as people were shown, and not used yet.
    pub(in super::super) fn unused_approvals(&self) -> usize {
        self.state().unused_approvals()
    }

    /// How many times everything was restored from a backup.
    pub(in super::super) fn restores(&self) -> u32 {
        self.backup.restores()
    }

    /// Whether a watcher has to know by itself that everything was restored.
    pub(in super::super) fn restores_are_silent(&self) -> bool {
        self.backup.is_silent()
    }

    /// Returns when nothing will be restored from a backup any more.
    pub(in super::super) async fn until_settled(&self) {
        self.backup.until_settled().await;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change is one insertion: a panic elsewhere leaves nothing half-done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a violation.
    pub(in super::super) fn violation(&self, what: impl std::fmt::Display) {
        self.checker.violation(what);
    }

    /// Records that `request_id` has started `execution`.
    pub(in super::super) fn started(&self, request_id: &str, execution: &v1::Execution) {
        trace::count("executions started");
        {
            let mut state = self.state();
            let heard = state.executions.entry(execution.name.clone()).or_default();
            heard.uid.clone_from(&execution.uid);
            heard.request_id = request_id.to_owned();
        }
        self.saw(execution);
    }

    /// Records an answer about an execution.
    pub(in super::super) fn saw(&self, execution: &v1::Execution) {
        let depth = if execution.plan.is_some() { Depth::Steps } else { Depth::Basic };
        self.saw_to(execution, depth);
    }

    /// Records what the server told of an execution.
    pub(in super::super) fn saw_to(&self, execution: &v1::Execution, depth: Depth) {
        let mut state = self.state();
        let heard = state.executions.entry(execution.name.clone()).or_default();
        if !self.journal_remembers {
            return;
        }
        let account = Account::new(execution, depth);
        let known = heard.accounts.entry(execution.last_sequence).or_insert_with(|| account.clone());
        let agrees = known.agrees(&account);
        if known.depth < depth {
            *known = account;
        }
        drop(state);
        if !agrees {
            let (name, sequence) = (&execution.name, execution.last_sequence);
            self.violation(format_args!("{name} was one thing at event {sequence}, which is gone, and is another"));
        }
    }

    /// Records that a watcher of execution `name` got `event` from `source`.
    pub(in super::super) fn shown(&self, name: &str, source: Source, event: v1::ExecutionEvent) {
        let mut state = self.state();
        let sequence = event.sequence;
        let before = if self.journal_remembers {
            let heard = state.executions.entry(name.to_owned()).or_default();
            heard.events.insert(sequence, event.clone())
        } else {
            state.shown.insert((name.to_owned(), source, sequence), event.clone())
        };
        drop(state);
        if before.is_some_and(|before| before != event) {
            self.violation(format_args!("event {sequence} of {name} is gone: another was shown before"));
        }
    }

    /// Records an acknowledged request to pause, resume or cancel execution `name`.
    pub(in super::super) fn acknowledged(&self, name: &str, request_id: String) {
        trace::count("requests acknowledged");
        let mut state = self.state();
        let heard = state.executions.entry(name.to_owned()).or_default();
        heard.requests.insert(request_id);
    }

    /// Records an approval that a person got.
    pub(in super::super) fn saw_approval(&self, approval: v1::Approval) {
        let (name, revision, state) = (approval.name.clone(), approval.revision, approval.state());
        trace::event(format_args!("{name} is {state:?} for {}", approval.call));
        if !self.gate_remembers {
            // Two stores may assign the same names and revisions to different approvals.
            return;
        }
        let mut observed = self.state();
        let asked = observed.approvals.entry(name.clone()).or_default();
        let is_asked_again = |before| self.may_be_asked_again(approval.kind(), before);
        let may_become = |before, after| may_become(before, after) || is_asked_again(before);
        let later = asked.shown.range(revision + 1..).find(|(_, later)| !may_become(state, later.state()));
        let earlier = asked.shown.range(..revision).find(|(_, earlier)| !may_become(earlier.state(), state));
        let other = later.or(earlier).map(|(_, other)| other.state());
        let before = asked.shown.insert(revision, approval.clone());
        drop(observed);
        if let Some(other) = other {
            self.violation(format_args!("{name} was {other:?}, which is gone, and {state:?}"));
        }
        if before.is_some_and(|before| before != approval) {
            self.violation(format_args!("{name} was another at revision {revision}, which is gone"));
        }
    }

    /// Whether an executor may ask for an approval again that was in this state. One that has lost the answer with its journal does, or that it had cancelled
    /// the form. So does the successor of one that withdrew the form while it was replaced.
    pub(in super::super) fn may_be_asked_again(&self, kind: v1::approval_need::Kind, before: approval::State) -> bool {
        match before {
            approval::State::Answered => !self.journal_remembers,
            approval::State::Cancelled => {
                !self.journal_remembers || self.replaces_executors && kind == v1::approval_need::Kind::Form
            }
            _ => false,
        }
    }

    /// Records an acknowledged decision.
    pub(in super::super) fn decided(&self, decision: Decision, approval: &v1::Approval) {
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

    /// Records an acknowledged answer.
    pub(in super::super) fn answered(&self, form: &v1::Approval, answer: &str) {
        if form.state() != approval::State::Answered {
            self.violation(format_args!("{} was answered, and is {:?}", form.name, form.state()));
        }
        if self.gate_remembers {
            self.state().approvals.entry(form.name.clone()).or_default().answer = Some(answer.to_owned());
        }
    }

    /// Whether an execution that has ended may resume from before its end: a backup has been put back, or will be.
    pub(in super::super) fn end_may_be_gone(&self) -> bool {
        self.execution_may_be_gone() || self.backup.is_due()
    }

    /// Returns whether an acknowledged execution may be missing.
    pub(in super::super) fn execution_may_be_gone(&self) -> bool {
        !self.journal_remembers || self.restores() > 0
    }

    /// Whether the journal keeps what was written in it: false where a copy from before takes its place.
    pub(in super::super) fn journal_remembers(&self) -> bool {
        self.journal_remembers
    }

    /// Whether an execution is known in the history that is left.
    pub(in super::super) fn is_known(&self, name: &str) -> bool {
        self.journal_remembers && self.state().executions.get(name).is_some_and(|known| !known.uid.is_empty())
    }

    /// Records that a request to delete an execution is sent, and the step that it belongs to.
    pub(in super::super) fn deleting(&self, name: &str, parent_step: &str) {
        let mut state = self.state();
        let deletion = state.deletions.entry(name.to_owned()).or_default();
        deletion.open += 1;
        parent_step.clone_into(&mut deletion.parent_step);
    }

    /// Records that a request to delete an execution was refused.
    pub(in super::super) fn not_deleted(&self, name: &str) {
        if let Some(deletion) = self.state().deletions.get_mut(name) {
            deletion.open -= 1;
        }
    }

    /// Records that a request to delete an execution was acknowledged, at this true time in microseconds since the Unix epoch.
    pub(in super::super) fn deleted(&self, name: &str, now: i64, complete: bool) {
        let mut state = self.state();
        let deletion = state.deletions.entry(name.to_owned()).or_default();
        deletion.acknowledged_at.get_or_insert(now);
        deletion.is_complete |= complete;
    }

    /// The executions that may have been deleted.
    pub(in super::super) fn deletions(&self) -> BTreeMap<String, Deletion> {
        let mut deletions = self.state().deletions.clone();
        for (name, taken) in self.taken.all() {
            let deletion = deletions.entry(name).or_default();
            deletion.open += taken.open;
            deletion.acknowledged_at = deletion.acknowledged_at.into_iter().chain(taken.acknowledged_at).min();
            deletion.is_complete |= taken.is_complete;
            deletion.parent_step = taken.parent_step;
        }
        deletions.retain(|_, deletion| deletion.open > 0 || deletion.acknowledged_at.is_some());
        deletions
    }

    /// Whether retention has deleted an execution, or may have.
    pub(in super::super) fn is_taken(&self, name: &str) -> bool {
        self.taken.has(name)
    }

    /// Records two answers that fit together only if an execution went on after its end.
    pub(in super::super) fn looked(&self, look: Look) {
        self.state().looks.push(look);
    }

    /// All that [`Self::looked`] has recorded.
    pub(in super::super) fn looks(&self) -> Vec<Look> {
        self.state().looks.clone()
    }

    /// Records a fork that was acknowledged.
    pub(in super::super) fn forked(&self, name: &str, fork: Fork) {
        self.state().forks.insert(name.to_owned(), fork);
    }

    /// All forks that were acknowledged, by their names.
    pub(in super::super) fn forks(&self) -> BTreeMap<String, Fork> {
        self.state().forks.clone()
    }

    /// The newest state of an execution that a client was shown.
    pub(in super::super) fn last_state(&self, name: &str) -> Option<execution::State> {
        let state = self.state();
        let (_, newest) = state.executions.get(name)?.accounts.last_key_value()?;
        execution::State::try_from(newest.picture.state).ok()
    }

    /// Records that an approval that was shown is missing.
    pub(in super::super) fn approval_is_gone(&self, message: &str) {
        if self.gate_remembers && self.deletions().is_empty() && self.restores() == 0 {
            self.violation(format_args!("an approval that was shown is gone: {message}"));
        }
    }

    /// The observations of all approvals, by name.
    pub(in super::super) fn approvals(&self) -> BTreeMap<String, ObservedApproval> {
        self.state().approvals.clone()
    }

    /// Records that the client has seen the end of the execution that it requested.
    pub(in super::super) fn ended(&self, request_id: &str) {
        self.state().ended.insert(request_id.to_owned());
    }

    /// The number of requests whose client has seen the end of the execution.
    pub(in super::super) fn ended_count(&self) -> usize {
        self.state().ended.len()
    }

    /// The requests among `requests` whose client has not seen the end of the execution.
    pub(in super::super) fn open(&self, requests: &[String]) -> Vec<String> {
        let state = self.state();
        requests.iter().filter(|id| !state.ended.contains(*id)).cloned().collect()
    }

    /// Records that all faults have ended, at this true time in microseconds since the Unix epoch.
    pub(in super::super) fn set_healed(&self, now: i64) {
        self.state().healed_at = Some(now);
    }

    /// Whether all faults have ended.
    pub(in super::super) fn is_healed(&self) -> bool {
        self.healed_at().is_some()
    }

    /// The true time at which all faults have ended, in microseconds since the Unix epoch.
    pub(in super::super) fn healed_at(&self) -> Option<i64> {
        self.state().healed_at
    }

    /// Whether the ledger's row of a call of this step was damaged.
    pub(in super::super) fn is_row_damaged(&self, step: &str) -> bool {
        self.damaged.is_of_step(step)
    }

    /// The observations of all executions, by name.
    pub(in super::super) fn all(&self) -> BTreeMap<String, ObservedExecution> {
        self.state().executions.clone()
    }
}
