//! Checks the rules that every list of events must obey, from the list alone, without the fold.

use std::collections::{BTreeMap, BTreeSet};

use belay_execution::{
    ApprovalMode, CallId, Decision, ErrorClass, Event, EventKind, ExecutionState, Failure, Finished, Progress,
    SkipReason, Timestamp, Totals,
};
use belay_plan::Plan;

/// REQUIREMENTS section 4, as far as events can show it. Checks events one by one and panics at the first violation.
pub(crate) struct Audit {
    plan: Plan,
    last_sequence: u64,
    last_time: Timestamp,
    started: bool,
    paused: bool,
    /// Why nothing may start any more.
    stop: Option<Stop>,
    finished: bool,
    attempts: BTreeMap<usize, u32>,
    /// Steps that started, have not ended and have not been parked.
    holding: BTreeSet<usize>,
    not_before: BTreeMap<usize, Timestamp>,
    requested: BTreeSet<CallId>,
    open: BTreeSet<CallId>,
    /// The steps whose call has completed.
    effects: BTreeSet<usize>,
    completed: BTreeSet<usize>,
    ended: BTreeSet<usize>,
    totals: Totals,
    first_failure: Option<Failure>,
    /// Whether a step was skipped that another one needed.
    missed: bool,
    mode: ApprovalMode,
    /// What each open call was held for last.
    held: BTreeMap<CallId, Held>,
    /// Steps that were left out because that was decided about their call.
    left_out: BTreeSet<usize>,
}

#[derive(Default)]
struct Held {
    digest: String,
    approval: Option<String>,
    decision: Option<Decision>,
}

impl Held {
    fn waits(&self) -> bool {
        self.approval.is_some() && self.decision.is_none()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Error,
    Cancel,
    Deadline,
}

impl Audit {
    /// Of a plan whose `created` has sequence 1 and is not shown to it.
    pub(crate) fn new(plan: Plan, mode: ApprovalMode) -> Self {
        Self {
            mode,
            held: BTreeMap::new(),
            left_out: BTreeSet::new(),
            totals: Totals { total: plan.steps().len(), ..Totals::default() },
            plan,
            last_sequence: 1,
            last_time: Timestamp::default(),
            started: false,
            paused: false,
            stop: None,
            finished: false,
            attempts: BTreeMap::new(),
            holding: BTreeSet::new(),
            not_before: BTreeMap::new(),
            requested: BTreeSet::new(),
            open: BTreeSet::new(),
            effects: BTreeSet::new(),
            completed: BTreeSet::new(),
            ended: BTreeSet::new(),
            first_failure: None,
            missed: false,
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn see(&mut self, event: &Event) {
        // Number 5.
        assert_eq!(event.sequence, self.last_sequence + 1, "a gap before {event:?}");
        assert!(event.time >= self.last_time, "time runs backwards at {event:?}");
        assert!(!self.finished, "{event:?} after the end");
        self.last_sequence = event.sequence;
        self.last_time = event.time;
        match &event.kind {
            EventKind::Created(_) => panic!("created twice"),
            EventKind::Started => {
                assert!(!self.started && !self.paused && self.stop.is_none());
                self.started = true;
            }
            EventKind::Paused { .. } => self.paused = true,
            EventKind::Resumed { .. } => self.paused = false,
            EventKind::CancelRequested { .. } => (self.stop, self.paused) = (Some(Stop::Cancel), false),
            EventKind::DeadlineExceeded => (self.stop, self.paused) = (Some(Stop::Deadline), false),
            EventKind::Recovered { in_doubt } => {
                assert!(in_doubt.iter().all(|call| self.open.contains(call)));
                // What was never held is; what waits for a decision is not, unless it is being stopped.
                assert!(self.open.iter().all(|call| self.held.contains_key(call) || in_doubt.contains(call)));
                let waits = |call| self.held.get(call).is_some_and(Held::waits);
                assert!(self.stop.is_some() || !in_doubt.iter().any(waits));
            }
            EventKind::AwaitingApproval => {
                assert!(self.started && !self.paused && self.stop.is_none());
                let waits = |call| self.held.get(call).is_some_and(Held::waits);
                assert!(!self.open.is_empty() && self.open.iter().all(waits), "something is under way");
                assert!(self.not_before.keys().all(|step| self.ended.contains(step)), "a retry is due by itself");
            }
            EventKind::Finished(finished) => self.finished(finished),
            EventKind::StepStarted { step, attempt } => self.step_started(*step, *attempt, event.time),
            EventKind::RetryScheduled { step, attempt, failure, retry_count, delay, not_before } => {
                self.check_attempt(*step, *attempt);
                let retry = self.plan.steps()[*step].retry();
                assert!(failure.class.is_retryable() && *attempt < retry.max_attempts && self.stop.is_none());
                // S2-FR-067: the count is kept; S0-08, S2-FR-065, S4-21: the delay is the plan's, or what the failure asks for.
                let expected = retry.delay(attempt - 1).max(failure.retry_after.unwrap_or_default());
                assert_eq!((*retry_count, *delay), (*attempt, expected));
                assert_eq!(*not_before, event.time.saturating_add(*delay));
                self.not_before.insert(*step, *not_before);
            }
            EventKind::StepCompleted { step, attempt, progress, .. } => {
                self.check_attempt(*step, *attempt);
                assert!(self.effects.contains(step), "step {step} completed without a completed call");
                self.completed.insert(*step);
                self.totals.completed += 1;
                self.step_ended(*step, *progress);
            }
            EventKind::StepFailed { step, attempt, failure, progress } => {
                self.check_attempt(*step, *attempt);
                self.totals.failed += 1;
                self.step_ended(*step, *progress);
                self.first_failure.get_or_insert_with(|| failure.clone());
                if self.plan.stop_on_error() || failure.class == ErrorClass::Fatal {
                    self.stop.get_or_insert(Stop::Error);
                }
            }
            EventKind::StepSkipped { step, progress, reason, .. } => {
                let left_out = self.left_out.contains(step);
                let reasons = [SkipReason::ApprovalSkipped, SkipReason::NonInteractive];
                assert_eq!(left_out, reasons.contains(reason), "step {step} was skipped for another reason");
                assert!(left_out || !self.attempts.contains_key(step), "step {step} was skipped after it had started");
                self.totals.skipped += 1;
                self.missed |= *reason == SkipReason::DependencySkipped;
                self.step_ended(*step, *progress);
            }
            EventKind::StepCancelled { step, attempt, progress } => {
                self.check_attempt(*step, *attempt);
                assert!(self.stop.is_some(), "step {step} was cancelled, and nothing was stopped");
                self.totals.cancelled += 1;
                self.step_ended(*step, *progress);
            }
            EventKind::StepOutcomeUnknown { step, attempt, .. } => {
                self.check_attempt(*step, *attempt);
                self.holding.remove(step);
            }
            EventKind::CallRequested(request) => self.call_requested(request.call),
            EventKind::CallCompleted { call, .. } => {
                // Number 3: what was held completes with a yes to what it was held for last.
                let yes = self.held.get(call).is_none_or(|held| held.decision == Some(Decision::Approved));
                assert!(yes, "{call} completed, and nobody had approved it");
                self.call_ended(*call);
                // S2-NFR-007: whatever happens, a step takes effect once.
                assert!(self.effects.insert(call.step), "{call} took effect after another call of its step had");
            }
            EventKind::CallDenied { call, .. } => {
                if self.held.get(call).is_some_and(|held| held.decision == Some(Decision::Skipped)) {
                    self.left_out.insert(call.step);
                }
                self.call_ended(*call);
            }
            EventKind::CallHeld { call, requirement } => {
                assert!(self.open.contains(call) && self.stop.is_none());
                let digest = requirement.subject_digest.clone();
                let before = self.held.insert(*call, Held { digest: digest.clone(), ..Held::default() });
                let again = before.is_none_or(|held| held.digest != digest && !held.waits());
                assert!(again, "{call} was held twice for the same, or before a decision");
                self.holding.remove(&call.step);
            }
            EventKind::ApprovalRequested { call, approval, subject_digest } => {
                let held = self.held.get_mut(call).expect("only what is held is asked about");
                assert_eq!(&held.digest, subject_digest);
                assert!(held.decision.is_none() && held.approval.replace(approval.clone()).is_none());
            }
            EventKind::ApprovalDecided { call, approval, decision, .. } => {
                let held = self.held.get_mut(call).expect("only what is held is decided about");
                let asks_nobody = matches!(self.mode, ApprovalMode::Fail | ApprovalMode::Skip);
                match &held.approval {
                    Some(asked) => assert_eq!(asked, approval),
                    None => assert!(approval.is_empty() && asks_nobody && *decision != Decision::Approved),
                }
                assert!(held.decision.replace(*decision).is_none(), "it was decided about {call} twice");
                self.holding.insert(call.step);
            }
            EventKind::CallFailed { call, .. }
            | EventKind::CallCancelled { call, .. }
            | EventKind::CallOutcomeUnknown { call, .. } => {
                self.call_ended(*call);
            }
        }
    }

    fn step_started(&mut self, step: usize, attempt: u32, time: Timestamp) {
        self.check_may_start();
        // Number 1, S2-FR-006, S4-12.
        for dependency in self.plan.steps()[step].dependencies() {
            assert!(self.completed.contains(dependency), "step {step} started before step {dependency} had completed");
        }
        assert!(!self.ended.contains(&step), "step {step} started after its end");
        assert!(attempt <= self.plan.steps()[step].retry().max_attempts);
        assert_eq!(attempt, self.attempts.get(&step).copied().unwrap_or(0) + 1);
        assert!(self.not_before.remove(&step).is_none_or(|not_before| not_before <= time), "step {step} did not wait");
        self.attempts.insert(step, attempt);
        self.holding.insert(step);
        // A decision brings its step back, whoever has taken its place meanwhile; nothing further starts then.
        assert!(
            attempt > 1 || self.holding.len() <= self.plan.parallelism(),
            "more steps at once than the plan allows"
        );
    }

    fn call_requested(&mut self, call: CallId) {
        self.check_may_start();
        self.check_attempt(call.step, call.attempt);
        // Number 12.
        assert!(!self.effects.contains(&call.step), "{call} was requested after its step had taken effect");
        assert!(
            !self.open.iter().any(|open| open.step == call.step),
            "{call} was requested while another was in flight"
        );
        let before = self.requested.range(CallId { number: 0, ..call }..call).count();
        assert_eq!(before + 1, usize::try_from(call.number).unwrap(), "{call} is out of turn");
        assert!(self.requested.insert(call), "{call} was requested twice");
        self.open.insert(call);
    }

    fn call_ended(&mut self, call: CallId) {
        // Number 2, first half: never two ends.
        assert!(self.open.remove(&call), "{call} ended and was not in flight");
        self.held.remove(&call);
        if !self.ended.contains(&call.step) {
            self.holding.insert(call.step);
        }
    }

    fn step_ended(&mut self, step: usize, progress: Progress) {
        // S4-13: every step has its end, and only one.
        assert!(self.ended.insert(step), "step {step} ended twice");
        self.holding.remove(&step);
        // S2-FR-072.
        assert_eq!(progress, Progress { done: self.ended.len(), total: self.plan.steps().len() });
    }

    fn finished(&mut self, finished: &Finished) {
        self.finished = true;
        // Number 2, second half: never none.
        assert!(self.open.is_empty(), "calls without an end: {:?}", self.open);
        // Number 8, S4-09, S4-11.
        assert_eq!(self.ended.len(), self.totals.total);
        assert_eq!((finished.totals, &finished.failure), (self.totals, &self.first_failure));
        let Totals { total, completed, failed, .. } = self.totals;
        let expected = match self.stop {
            Some(Stop::Cancel) if completed < total => ExecutionState::Cancelled,
            Some(Stop::Deadline) if completed < total => ExecutionState::TimedOut,
            // Skipping is not success where others needed what was skipped, or everything was.
            _ if failed == 0 && (completed == 0 && total > 0 || self.missed) => ExecutionState::Partial,
            _ if failed == 0 => ExecutionState::Completed,
            _ if completed > 0 && !self.plan.stop_on_error() => ExecutionState::Partial,
            _ => ExecutionState::Failed,
        };
        assert_eq!(finished.state, expected);
    }

    fn check_attempt(&self, step: usize, attempt: u32) {
        assert_eq!(self.attempts.get(&step), Some(&attempt), "not the attempt that step {step} is in");
    }

    fn check_may_start(&self) {
        assert!(self.started && !self.paused && self.stop.is_none(), "something started that must not");
    }
}
