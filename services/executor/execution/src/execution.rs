//! The current state of an execution after its events so far.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use belay_plan::{Plan, Step};

use crate::{
    CallId, CallRequest, Created, Event, EventKind, ExecutionState, Failure, Json, PendingApproval, Receipt,
    SkipReason, StepState, Timestamp, ToolFacts, apply::IllegalEvent,
};

/// One execution. Created from events and changed only by events.
///
/// The sets beside `steps` are indexes into it that `apply` maintains, so that deciding what to do next costs the same at step 10,000 as at
/// step 10.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    pub(crate) created: Created,
    pub(crate) created_at: Timestamp,
    pub(crate) state: ExecutionState,
    pub(crate) steps: Vec<StepRecord>,
    pub(crate) last_sequence: u64,
    pub(crate) last_time: Timestamp,
    pub(crate) started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    /// Since when it is in `AwaitingApproval`; `None` in other states.
    pub(crate) awaiting_since: Option<Timestamp>,
    /// How long it has been in `AwaitingApproval` before.
    pub(crate) waited: Duration,
    pub(crate) paused: Option<PausedBy>,
    pub(crate) stop: Option<Stop>,
    /// The ids of the requests that paused, resumed or cancelled it.
    pub(crate) requests: BTreeSet<String>,
    /// The ledger that the last intent names.
    pub(crate) ledger_id: String,
    pub(crate) first_failure: Option<Failure>,
    pub(crate) totals: Totals,
    /// Steps that have started and not ended, except those with an unknown outcome and those that wait for approval or for a slot. Each
    /// holds one of the plan's `parallelism` slots; there are more only while effects are being committed or discarded.
    pub(crate) active: usize,
    /// Steps in `Pending`.
    pub(crate) pending_steps: usize,
    /// Steps in `Ready` whose first attempt has not started.
    pub(crate) ready: BTreeSet<usize>,
    /// Steps that have started and whose next call is still to be sent: those in `Running` whose attempt has made no call, and those in
    /// `Ready` whose call was discarded. They keep their slot.
    pub(crate) to_dispatch: BTreeSet<usize>,
    /// Steps to skip because of a step that they depend on.
    pub(crate) to_skip: BTreeMap<usize, (SkipReason, usize)>,
    /// Running steps whose call has ended and that have not been resolved.
    pub(crate) to_resolve: BTreeSet<usize>,
    pub(crate) backing_off: BTreeSet<(Timestamp, usize)>,
    pub(crate) unknown: BTreeSet<usize>,
    pub(crate) in_flight: BTreeMap<CallId, CallInFlight>,
    /// Approved calls that wait for one of the plan's `parallelism` slots.
    pub(crate) queued: BTreeSet<CallId>,
    /// Held calls whose approval is still to be requested from the gate.
    pub(crate) to_request: BTreeSet<CallId>,
    /// Calls whose approval is pending at the gate.
    pub(crate) awaiting: BTreeSet<CallId>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PausedBy {
    pub(crate) principal: String,
    pub(crate) since: Timestamp,
    pub(crate) discard_calls: bool,
    /// The sequence number of the event.
    pub(crate) sequence: u64,
}

/// Why no further step starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// A step failed in a plan that stops on an error, or failed fatally.
    Error {
        step: usize,
    },
    Cancelled,
    Deadline,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StepRecord {
    pub(crate) state: StepState,
    pub(crate) attempt: u32,
    /// Calls made in this attempt.
    pub(crate) calls: u32,
    /// Calls of this attempt that conflicted with another commit.
    pub(crate) conflicts: u32,
    /// Whether a call of this attempt failed while others committed, and was made again for that reason.
    pub(crate) failed_beside: bool,
    /// Dependencies that have not completed.
    pub(crate) open_dependencies: usize,
    pub(crate) started_at: Option<Timestamp>,
    /// When the current attempt started.
    pub(crate) attempt_started_at: Option<Timestamp>,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) not_before: Option<Timestamp>,
    pub(crate) since: Timestamp,
    /// How long it has waited for approvals; not counted as its own time.
    pub(crate) waited: Duration,
    pub(crate) output: Option<Json>,
    /// Boxed, like `authorization`: most steps have neither, and a plan may have 10,000 steps.
    pub(crate) failure: Option<Box<Failure>>,
    pub(crate) failed_attempts: Vec<FailedAttempt>,
    pub(crate) skipped: Option<(SkipReason, Option<usize>)>,
    pub(crate) call_end: Option<CallEnd>,
    /// What authorized the call that completed it.
    pub(crate) authorization: Option<Box<Authorization>>,
}

/// What authorized a call: a person, the policy on behalf of one, or a rule alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// The policy rule that allowed it or that required the approval.
    pub rule: String,
    /// Who approved it: a person, or `policy` in an execution that asks no person; `None` when no approval was required.
    pub approver: Option<String>,
    /// How many paths it created, modified and deleted.
    pub changes: [u32; 3],
}

impl Authorization {
    /// The authorization of a call with this receipt; `None` for a call that changed nothing and needed no approval.
    pub(crate) fn of(receipt: &Receipt, pending: Option<&PendingApproval>) -> Option<Self> {
        let approver = pending.and_then(|pending| pending.decided.as_ref()).map(|decided| decided.principal.clone());
        if receipt.effect.is_none() && approver.is_none() {
            return None;
        }
        let asked = pending.map(|pending| &pending.requirement.decision);
        let rule = asked.or(receipt.decision.as_ref()).map(|decision| decision.rule.clone()).unwrap_or_default();
        let changes =
            receipt.effect.as_ref().map_or([0; 3], |effect| [effect.created, effect.modified, effect.deleted]);
        Some(Self { rule, approver, changes })
    }
}

/// How many of a step's failed attempts keep their last output in memory, the latest first. The events keep the output of all.
const MAX_OUTPUTS_KEPT: usize = 3;

/// An attempt that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct FailedAttempt {
    /// Its number, from 1.
    pub attempt: u32,
    /// What went wrong.
    pub failure: Failure,
    /// When it ended.
    pub ended_at: Timestamp,
}

impl StepRecord {
    /// Records the failure of an attempt.
    pub(crate) fn failed(&mut self, attempt: u32, failure: &Failure, ended_at: Timestamp) {
        self.failure = Some(Box::new(failure.clone()));
        self.failed_attempts.push(FailedAttempt { attempt, failure: failure.clone(), ended_at });
        let with_output = self.failed_attempts.iter_mut().rev().filter(|failed| failed.failure.last_output.is_some());
        with_output.skip(MAX_OUTPUTS_KEPT).for_each(|failed| failed.failure.last_output = None);
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CallEnd {
    Completed,
    Failed(Failure),
    Denied(Failure),
    /// Denied by a decision that skips the step.
    Skipped(SkipReason),
    Cancelled,
    Unknown(Failure),
}

/// A call whose intent is recorded and whose end is not.
#[derive(Clone, Debug, PartialEq)]
pub struct CallInFlight {
    /// The request.
    pub request: Arc<CallRequest>,
    /// When it was recorded.
    pub since: Timestamp,
    /// The approval that it waits for or waited for.
    pub pending_approval: Option<PendingApproval>,
}

/// How many steps there are and how they ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // named after the states
pub struct Totals {
    pub total: usize,
    pub completed: usize,
    pub failed: usize,
    pub skipped: usize,
    pub cancelled: usize,
}

impl Totals {
    /// Steps that have ended, in whatever state.
    pub fn done(self) -> usize {
        self.completed + self.failed + self.skipped + self.cancelled
    }
}

/// What an execution or a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// A point in time.
    Timer {
        /// Since when.
        since: Timestamp,
        /// Until when.
        until: Timestamp,
    },
    /// A principal has to resume it.
    Resume {
        /// Since when.
        since: Timestamp,
    },
    /// A person has to find out what a call did.
    Outcome {
        /// Since when.
        since: Timestamp,
    },
    /// A running call.
    Call {
        /// Since when.
        since: Timestamp,
    },
    /// A call has to be approved.
    Approval {
        /// Since when.
        since: Timestamp,
        /// The call.
        call: CallId,
    },
}

/// The current state of one step.
#[derive(Clone, Copy, Debug)]
pub struct StepView<'a> {
    /// The step in the plan.
    pub step: &'a Step,
    record: &'a StepRecord,
    call: Option<&'a CallInFlight>,
}

impl<'a> StepView<'a> {
    /// Its state.
    pub fn state(&self) -> StepState {
        self.record.state
    }

    /// The current or last attempt, from 1; 0 before the first.
    pub fn attempt(&self) -> u32 {
        self.record.attempt
    }

    /// When its first attempt started.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.record.started_at
    }

    /// When the current attempt started; `None` between attempts and after the last.
    pub fn attempt_started_at(&self) -> Option<Timestamp> {
        self.record.attempt_started_at
    }

    /// How long it has waited for decisions so far, without a wait that goes on.
    pub fn waited(&self) -> Duration {
        self.record.waited
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.record.ended_at
    }

    /// Its output, once it has completed.
    pub fn output(&self) -> Option<&'a Json> {
        self.record.output.as_ref()
    }

    /// The last failure.
    pub fn failure(&self) -> Option<&'a Failure> {
        self.record.failure.as_deref()
    }

    /// Its attempts that failed, in order.
    pub fn failed_attempts(&self) -> &'a [FailedAttempt] {
        &self.record.failed_attempts
    }

    /// The authorization of the call that completed it; `None` before that, and when the call changed nothing.
    pub fn authorization(&self) -> Option<&Authorization> {
        self.record.authorization.as_deref()
    }

    /// Why it was skipped, and because of which step.
    pub fn skipped(&self) -> Option<(SkipReason, Option<usize>)> {
        self.record.skipped
    }

    /// The approval that it waits for.
    pub fn approval(&self) -> Option<&'a str> {
        self.call?.pending_approval.as_ref().filter(|pending| pending.decided.is_none())?.approval.as_deref()
    }

    /// What it waits for.
    pub fn waiting(&self) -> Option<Waiting> {
        let since = self.record.since;
        match self.record.state {
            StepState::BackingOff => self.record.not_before.map(|until| Waiting::Timer { since, until }),
            StepState::OutcomeUnknown => Some(Waiting::Outcome { since }),
            StepState::Running => Some(Waiting::Call { since }),
            StepState::AwaitingApproval => {
                self.call.map(|in_flight| Waiting::Approval { since, call: in_flight.request.call })
            }
            _ => None,
        }
    }
}

impl Execution {
    /// How many calls of a step's current attempt conflicted with another commit.
    pub fn conflicts(&self, step: usize) -> u32 {
        self.steps.get(step).map_or(0, |record| record.conflicts)
    }

    /// Whether a call of a step's current attempt was made again because it failed while others committed.
    pub fn failed_beside_commits(&self, step: usize) -> bool {
        self.steps.get(step).is_some_and(|record| record.failed_beside)
    }

    /// The state after these events, the first of which is `Created`.
    ///
    /// # Errors
    /// [`IllegalEvent`], naming the event, when the list has a gap or contains an illegal transition: the store is corrupt, or a newer
    /// version wrote it.
    pub fn replay(events: impl IntoIterator<Item = Event>) -> Result<Self, IllegalEvent> {
        let mut events = events.into_iter();
        let first = events.next().ok_or(IllegalEvent { sequence: 1, what: "the list of events is empty".into() })?;
        let mut execution = Self::create(first)?;
        for event in events {
            execution.apply(&event)?;
        }
        Ok(execution)
    }

    /// A new execution from its first event.
    ///
    /// # Errors
    /// [`IllegalEvent`] when the event is not `Created` with sequence 1.
    pub fn create(first: Event) -> Result<Self, IllegalEvent> {
        let Event { sequence: 1, time, kind: EventKind::Created(created) } = first else {
            return Err(IllegalEvent { sequence: first.sequence, what: "the first event must be `created`".into() });
        };
        let steps: Vec<StepRecord> = created
            .plan
            .steps()
            .iter()
            .map(|step| StepRecord {
                state: if step.dependencies().is_empty() { StepState::Ready } else { StepState::Pending },
                attempt: 0,
                calls: 0,
                conflicts: 0,
                failed_beside: false,
                open_dependencies: step.dependencies().len(),
                started_at: None,
                attempt_started_at: None,
                ended_at: None,
                not_before: None,
                since: time,
                waited: Duration::ZERO,
                output: None,
                failure: None,
                failed_attempts: Vec::new(),
                skipped: None,
                call_end: None,
                authorization: None,
            })
            .collect();
        let ready: BTreeSet<usize> = steps
            .iter()
            .enumerate()
            .filter(|(_, step)| step.state == StepState::Ready)
            .map(|(index, _)| index)
            .collect();
        Ok(Self {
            created: *created,
            created_at: time,
            state: ExecutionState::Pending,
            last_sequence: 1,
            last_time: time,
            started_at: None,
            ended_at: None,
            awaiting_since: None,
            waited: Duration::ZERO,
            paused: None,
            stop: None,
            requests: BTreeSet::new(),
            ledger_id: String::new(),
            first_failure: None,
            totals: Totals { total: steps.len(), ..Totals::default() },
            active: 0,
            pending_steps: steps.len() - ready.len(),
            steps,
            ready,
            to_dispatch: BTreeSet::new(),
            to_skip: BTreeMap::new(),
            to_resolve: BTreeSet::new(),
            backing_off: BTreeSet::new(),
            unknown: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            queued: BTreeSet::new(),
            to_request: BTreeSet::new(),
            awaiting: BTreeSet::new(),
        })
    }

    /// The values that its creation fixed.
    pub fn created(&self) -> &Created {
        &self.created
    }

    /// The plan it carries out.
    pub fn plan(&self) -> &Plan {
        &self.created.plan
    }

    /// Its state.
    pub fn state(&self) -> ExecutionState {
        self.state
    }

    /// The number of the last event.
    pub fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// The time of its last event.
    pub fn last_time(&self) -> Timestamp {
        self.last_time
    }

    /// When it was accepted.
    pub fn created_at(&self) -> Timestamp {
        self.created_at
    }

    /// When its first step started.
    pub fn started_at(&self) -> Option<Timestamp> {
        self.started_at
    }

    /// When it ended.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    /// How long no step could make progress without a decision, without such a wait that goes on.
    pub fn waited(&self) -> Duration {
        self.waited
    }

    /// How many steps have ended in each state.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The failure of the first step that failed.
    pub fn first_failure(&self) -> Option<&Failure> {
        self.first_failure.as_ref()
    }

    /// Its steps, in the plan's order.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = StepView<'_>> {
        self.created.plan.steps().iter().zip(&self.steps).enumerate().map(|(index, (step, record))| {
            let call = CallId { step: index, attempt: record.attempt, number: record.calls };
            StepView { step, record, call: self.in_flight.get(&call) }
        })
    }

    /// The calls whose intent is recorded and whose end is not.
    pub fn in_flight(&self) -> impl ExactSizeIterator<Item = &CallInFlight> {
        self.in_flight.values()
    }

    /// One of the calls in flight.
    pub fn call(&self, call: CallId) -> Option<&CallInFlight> {
        self.in_flight.get(&call)
    }

    /// The calls whose approval is pending at the gate; none while the execution is being stopped.
    pub fn requested_approvals(&self) -> impl Iterator<Item = CallId> + '_ {
        self.awaiting.iter().copied().filter(|_| self.stop.is_none())
    }

    /// The principal that paused it; `None` when it is not paused.
    pub fn paused_by(&self) -> Option<&str> {
        self.paused.as_ref().map(|paused| paused.principal.as_str())
    }

    /// The ledger that its last intent names; empty before the first intent.
    pub fn ledger_id(&self) -> &str {
        &self.ledger_id
    }

    /// Whether a request with this id has paused, resumed or cancelled it.
    pub fn has_seen(&self, request_id: &str) -> bool {
        self.requests.contains(request_id)
    }

    /// What the execution as a whole waits for; empty when it has ended or can make progress.
    pub fn waiting(&self) -> Vec<Waiting> {
        if self.state.is_terminal() {
            return Vec::new();
        }
        if let Some(paused) = &self.paused {
            return vec![Waiting::Resume { since: paused.since }];
        }
        let mut waiting: Vec<Waiting> =
            self.unknown.iter().map(|&step| Waiting::Outcome { since: self.steps[step].since }).collect();
        waiting
            .extend(self.awaiting.iter().map(|&call| Waiting::Approval { since: self.steps[call.step].since, call }));
        if self.is_parked()
            && let Some(&(until, step)) = self.backing_off.first()
        {
            waiting.push(Waiting::Timer { since: self.steps[step].since, until });
        }
        waiting
    }

    /// The facts about the tool that the plan names `used_as`.
    pub(crate) fn tool(&self, used_as: &str) -> Option<&ToolFacts> {
        self.created.tools.iter().find(|facts| facts.used_as == used_as)
    }
}
