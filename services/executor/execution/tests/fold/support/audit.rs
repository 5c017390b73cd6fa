//! Checks the rules that every list of events must obey, from the list alone, without the fold.

mod again;
mod agents;
mod budget;
mod calls;
mod end;
mod groups;

use std::collections::{BTreeMap, BTreeSet};

use belay_execution::{
    ApprovalMode, Body, BudgetUnit, ChildEnd, Decision, ErrorClass, Event, ExecutionEvent, ExecutionState, Failure,
    Finished, Json, OperationEvent, OperationId, PauseCause, Payload, PlanUpdated, Progress, Resolution, Retried,
    SkipReason, StepEvent, StepId, SubjectKind, Timestamp, ToolCallEnd, Totals, WaitCondition, WaitEnd,
};
use belay_plan::{
    COMMIT_TOOL, COMPLETION_TOOL, CheckPlace, OnExhausted, Outcome, Plan, QUEUE_DELAY, RecoveryStrategy, RunWhen,
    StepDraft, StepKind, StepSpec, Then,
};

use super::conditions::{EARLIER, EARLIER_RESULT};

/// REQUIREMENTS section 4, as far as events can show it. Checks events one by one and panics at the first violation.
pub(crate) struct Audit {
    plan: Plan,
    /// The steps that it has or had, in the order in which they came.
    ids: Vec<String>,
    revision: u32,
    /// For the step of an entry of a list: the step that runs for each entry.
    lists: BTreeMap<usize, usize>,
    /// The steps for the entries of the lists, by the step that runs for each, all that there ever were.
    items: BTreeMap<usize, Vec<usize>>,
    /// How many entries the lists have that were read since their steps started.
    listed: BTreeMap<usize, usize>,
    /// The entries, by their steps.
    values: BTreeMap<usize, Json>,
    /// How often a call has taken the place of another, by step, and how many attempts had been made by then.
    fallbacks: BTreeMap<usize, (usize, u32)>,
    /// For each step that undoes another: that one, and the one that is undone before.
    undoes: BTreeMap<usize, (usize, Option<usize>)>,
    /// The steps that completed, in the order in which they did.
    order: Vec<usize>,
    /// The steps that are being compensated since the execution began or resumed, and why no further step had started before that.
    undoing: Option<(Vec<usize>, Option<Stop>)>,
    /// Steps that the plan no longer has.
    removed: BTreeSet<usize>,
    last_sequence: u64,
    last_time: Timestamp,
    started: bool,
    paused: bool,
    /// When the pause ends by itself.
    resume_at: Option<Timestamp>,
    /// Until when a rate limit pauses it.
    queued_until: Option<Timestamp>,
    /// How often its plan's escalation has had what failed run again, and whether that has paused it for a person since.
    escalations: u32,
    is_escalated: bool,
    /// Why nothing may start any more.
    stop: Option<Stop>,
    finished: bool,
    /// The attempts of steps that have started since they were last made to run again.
    attempts: BTreeMap<usize, u32>,
    /// How many attempts a step had made before it was made to run again.
    attempts_before: BTreeMap<usize, u32>,
    /// Steps that a person skips.
    to_skip: BTreeSet<usize>,
    /// Steps that started, have not ended and have not been parked.
    holding: BTreeSet<usize>,
    not_before: BTreeMap<usize, Timestamp>,
    requested: BTreeSet<OperationId>,
    open: BTreeSet<OperationId>,
    /// The steps whose call has completed.
    effects: BTreeSet<usize>,
    /// The results of steps' own calls, with the times at which they were returned.
    results: BTreeSet<(Timestamp, String)>,
    /// The steps whose output is an earlier result.
    cached: BTreeSet<usize>,
    /// Calls in flight that checks take.
    checking: BTreeMap<OperationId, CheckPlace>,
    /// The checks of each step's attempt whose calls have completed.
    passed: BTreeSet<(usize, CheckPlace)>,
    /// The steps of which it is not known whether a check took effect.
    doubted: BTreeMap<usize, CheckPlace>,
    /// The steps whose output a principal has given.
    given: BTreeSet<usize>,
    /// How many turns of another execution steps begin with, and whether with changes too.
    carried: BTreeMap<usize, (u32, bool)>,
    completed: BTreeSet<usize>,
    failed: BTreeSet<usize>,
    /// The failed steps that would fail again.
    unlikely: BTreeSet<usize>,
    /// Steps whose call has an unknown outcome.
    unknown: BTreeSet<usize>,
    ended: BTreeSet<usize>,
    totals: Totals,
    first_failure: Option<Failure>,
    /// Why each skipped step was skipped, and because of which.
    skipped: BTreeMap<usize, (SkipReason, Option<usize>)>,
    /// The steps of these that were last skipped because of a failure in their group.
    by_group: BTreeSet<usize>,
    mode: ApprovalMode,
    /// The last hold of each open call.
    held: BTreeMap<OperationId, LastHold>,
    /// Steps that were left out because that was decided about their call.
    left_out: BTreeSet<usize>,
    /// Approved calls that wait for a slot.
    queued: BTreeSet<OperationId>,
    /// The condition of each wait.
    waits: BTreeMap<OperationId, WaitCondition>,
    /// The forms that the gate asks.
    asked: BTreeSet<OperationId>,
    /// The executions of steps' plans that are in progress, and whether they are paused.
    /// Whether each is paused; `None` since the execution was paused or resumed.
    children: BTreeMap<OperationId, Option<bool>>,
    names_of_children: BTreeSet<String>,
    created_children: BTreeSet<OperationId>,
    accounts: budget::Accounts,
    limits: Limits,
    /// Signals that no step has taken, by the sequence number of their event.
    signals: BTreeMap<u64, String>,
}

#[derive(Default)]
struct LastHold {
    kind: Option<SubjectKind>,
    digest: String,
    approval: Option<String>,
    decision: Option<Decision>,
}

impl LastHold {
    fn waits(&self) -> bool {
        self.approval.is_some() && self.decision.is_none()
    }
}

/// How the execution stands in its limits over executions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Limits {
    /// It has none.
    None,
    /// It has some, and has not asked for them since it began, ended or was paused.
    Needed,
    Awaited,
    Held,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    Error,
    Cancel,
    Kill,
    Deadline,
}

impl Audit {
    /// Returns an audit of a plan whose `created` has sequence 1 and is not shown to it.
    pub(crate) fn new(plan: Plan, mode: ApprovalMode, is_limited: bool) -> Self {
        Self {
            mode,
            held: BTreeMap::new(),
            left_out: BTreeSet::new(),
            queued: BTreeSet::new(),
            waits: BTreeMap::new(),
            asked: BTreeSet::new(),
            children: BTreeMap::new(),
            names_of_children: BTreeSet::new(),
            created_children: BTreeSet::new(),
            signals: BTreeMap::new(),
            accounts: budget::Accounts::default(),
            limits: if is_limited { Limits::Needed } else { Limits::None },
            totals: Totals { total: plan.steps().len(), ..Totals::default() },
            ids: plan.steps().iter().map(|step| step.id().to_owned()).collect(),
            revision: 0,
            undoes: BTreeMap::new(),
            order: Vec::new(),
            undoing: None,
            lists: BTreeMap::new(),
            items: BTreeMap::new(),
            listed: BTreeMap::new(),
            values: BTreeMap::new(),
            fallbacks: BTreeMap::new(),
            removed: BTreeSet::new(),
            plan,
            last_sequence: 1,
            last_time: Timestamp::default(),
            started: false,
            paused: false,
            resume_at: None,
            queued_until: None,
            escalations: 0,
            is_escalated: false,
            stop: None,
            finished: false,
            attempts: BTreeMap::new(),
            attempts_before: BTreeMap::new(),
            to_skip: BTreeSet::new(),
            holding: BTreeSet::new(),
            not_before: BTreeMap::new(),
            requested: BTreeSet::new(),
            open: BTreeSet::new(),
            effects: BTreeSet::new(),
            results: BTreeSet::new(),
            cached: BTreeSet::new(),
            checking: BTreeMap::new(),
            passed: BTreeSet::new(),
            doubted: BTreeMap::new(),
            given: BTreeSet::new(),
            carried: BTreeMap::new(),
            completed: BTreeSet::new(),
            failed: BTreeSet::new(),
            unlikely: BTreeSet::new(),
            unknown: BTreeSet::new(),
            ended: BTreeSet::new(),
            first_failure: None,
            skipped: BTreeMap::new(),
            by_group: BTreeSet::new(),
        }
    }

    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn see(&mut self, event: &Event) {
        // Number 5.
        assert_eq!(event.sequence, self.last_sequence + 1, "a gap before {event:?}");
        assert!(event.time >= self.last_time, "time runs backwards at {event:?}");
        let goes_on = matches!(event.body, Body::Execution(ExecutionEvent::Retried(_)));
        assert!(!self.finished || goes_on, "{event:?} after the end");
        self.last_sequence = event.sequence;
        self.last_time = event.time;
        match &event.body {
            Body::Execution(kind) => self.about_execution(event, kind),
            Body::Step { step, attempt, event: kind } => {
                let step = self.index_of(step).expect("a step of the plan");
                self.about_step(step, *attempt, kind, event.time);
            }
            Body::Operation { id, event: kind } => self.about_operation(id, kind, event),
        }
    }

    /// An execution is pending until it starts, and again whenever it is no longer paused or stopped before that.
    pub(crate) fn check_state(&self, state: ExecutionState) {
        let is_pending = !self.started && !self.paused && self.stop.is_none();
        assert_eq!(state == ExecutionState::Pending, is_pending, "it is {state:?}");
    }

    /// Checks that the execution holds its limits: without them it does nothing.
    fn check_limits(&self) {
        assert!(matches!(self.limits, Limits::None | Limits::Held), "it does not hold its limits");
    }

    fn step_of(&self, operation: &OperationId) -> usize {
        self.index_of(&operation.step).expect("a step of the plan")
    }

    fn about_execution(&mut self, event: &Event, kind: &ExecutionEvent) {
        let sequence = event.sequence;
        match kind {
            ExecutionEvent::Created(_) => panic!("created twice"),
            ExecutionEvent::LimitsRequested => {
                assert!(
                    self.limits == Limits::Needed && !self.paused,
                    "it asks for its limits twice, or while it is paused"
                );
                self.limits = Limits::Awaited;
            }
            ExecutionEvent::LimitsAcquired => {
                assert!(self.limits == Limits::Awaited && !self.paused, "it has not asked for its limits");
                self.limits = Limits::Held;
            }
            ExecutionEvent::Started => {
                assert!(!self.started && !self.paused && self.stop.is_none());
                self.check_limits();
                self.started = true;
            }
            ExecutionEvent::BudgetReported(report) => self.about_budget(report),
            ExecutionEvent::Paused { resume_at, cause, .. } => {
                let by_budget = *cause == PauseCause::Budget;
                let by_model = *cause == PauseCause::Verification;
                assert!(!by_model || self.asks_for_verification(), "no model has asked for verification");
                if self.limits == Limits::Awaited {
                    self.limits = Limits::Needed;
                }
                self.children.values_mut().for_each(|paused| *paused = None);
                let by_rate_limit = resume_at.is_some() && *resume_at == self.queued_until;
                assert!(
                    !by_budget || event.actor.is_none() && self.is_exhausted(OnExhausted::Pause),
                    "no budget is used up"
                );
                let by_plan = event.actor.is_none() && !by_rate_limit && !by_budget && !by_model;
                assert!(
                    !by_plan || resume_at.is_none() && self.escalates_to() == Some(Then::Pause),
                    "nothing has paused it"
                );
                self.is_escalated |= by_plan;
                (self.paused, self.resume_at, self.queued_until) = (true, *resume_at, None);
            }
            ExecutionEvent::Resumed => {
                self.children.values_mut().for_each(|paused| *paused = None);
                let is_due = self.resume_at.is_some_and(|at| at <= event.time);
                assert!(event.actor.is_some() || is_due, "no person has resumed it, and its time has not come");
                self.paused = false;
            }
            ExecutionEvent::CancelRequested { kill, .. } => {
                assert!(self.stop != Some(Stop::Kill), "the execution is being killed");
                (self.stop, self.paused) = (Some(if *kill { Stop::Kill } else { Stop::Cancel }), false);
            }
            ExecutionEvent::DeadlineExceeded => (self.stop, self.paused) = (Some(Stop::Deadline), false),
            ExecutionEvent::SignalReceived(received) => {
                self.signals.insert(sequence, received.signal.clone());
            }
            ExecutionEvent::Recovered { in_doubt } => {
                assert!(in_doubt.iter().all(|call| self.open.contains(call)));
                // What was never held is; what waits for a decision is not, unless it is being stopped.
                assert!(self.open.iter().all(|call| self.held.contains_key(call) || in_doubt.contains(call)));
                let waits = |call| self.held.get(call).is_some_and(LastHold::waits);
                assert!(self.stop.is_some() || !in_doubt.iter().any(waits));
            }
            ExecutionEvent::AwaitingApproval => {
                assert!(self.started && !self.paused && self.stop.is_none());
                let waits = |call| self.held.get(call).is_some_and(LastHold::waits);
                assert!(!self.open.is_empty() && self.open.iter().all(waits), "something is under way");
                assert!(self.waits.is_empty(), "a wait ends without a decision");
                assert!(self.not_before.keys().all(|step| self.ended.contains(step)), "a retry is due by itself");
            }
            ExecutionEvent::CompensationStarted { steps } => {
                self.check_limits();
                self.compensation_started(steps);
            }
            ExecutionEvent::Finished(finished) => {
                if self.limits != Limits::None {
                    self.limits = Limits::Needed;
                }
                self.finished(finished);
            }
            ExecutionEvent::Retried(retried) => self.retried(retried, event.time),
            ExecutionEvent::PlanUpdated(updated) => {
                self.budgets_change(&updated.plan);
                self.updated(updated);
            }
        }
    }

    fn about_step(&mut self, step: usize, attempt: u32, event: &StepEvent, time: Timestamp) {
        match event {
            StepEvent::Started => {
                self.check_limits();
                self.step_started(step, attempt, time);
            }
            StepEvent::RetryScheduled { failure, retry_count, delay, not_before } => {
                self.check_attempt(step, attempt);
                // That a model says that it is done changes nothing, and is judged again where its judge could not be asked.
                if self.agent_item(step).is_some_and(|item| item["tool"] == COMPLETION_TOOL) {
                    self.effects.remove(&step);
                }
                let retry = self.spec(step).retry();
                let attempt = attempt - self.of_others(step);
                let most = self.spec(step).max_attempts(failure.class);
                assert!(failure.class.is_retryable() && attempt < most && self.stop.is_none());
                let queues = failure.class == ErrorClass::RateLimit && self.spec(step).queues_for_later();
                // S2-FR-067: the count is kept; S0-08, S2-FR-065, S4-21: the delay is the plan's, or what the failure asks for.
                let planned = match failure.class {
                    _ if queues => QUEUE_DELAY,
                    ErrorClass::RateLimit => retry.delay_after_rate_limit(attempt - 1).expect("it is tried again"),
                    _ => retry.delay(attempt - 1),
                };
                let expected = match failure.retry_after {
                    Some(after) if queues => after,
                    after => planned.max(after.unwrap_or_default()),
                };
                if queues {
                    self.queued_until = Some(*not_before);
                }
                assert_eq!((*retry_count, *delay), (attempt, expected));
                assert_eq!(*not_before, time.saturating_add(*delay));
                self.not_before.insert(step, *not_before);
            }
            StepEvent::FallbackSwitched { failure, from, to, reason: _ } => {
                // Only one that waits for its next attempt can be asked to go to its next call.
                let is_requested = self.not_before.contains_key(&step);
                if is_requested {
                    self.check_can_be_changed(step, attempt);
                } else {
                    self.check_attempt(step, attempt);
                }
                assert!(self.stop.is_none());
                let spec = self.spec(step);
                let (place, attempts) = self.fallbacks.get(&step).map_or((0, self.before(step)), |&(n, at)| (n, at));
                let tools: Vec<&str> = spec.calls().map(|call| call.tool.as_str()).collect();
                assert_eq!((tools[place], tools[place + 1]), (from.as_str(), to.as_str()));
                // S1-20, S1-21, S1-32: all attempts of the one before, unless another cannot help.
                let retry = spec.retry();
                let never = failure.class == ErrorClass::RateLimit && retry.delay_after_rate_limit(0).is_none();
                let all = attempt - attempts >= spec.max_attempts(failure.class) && failure.class.is_retryable();
                assert!(is_requested || all || never || failure.class == ErrorClass::AgentUnavailable, "{failure}");
                self.fallbacks.insert(step, (place + 1, attempt));
                self.not_before.insert(step, time);
            }
            // S4-29: for the class that the plan names, instead of a failure, the last result of the same call.
            StepEvent::CachedResultUsed { failure, result, source } => {
                self.check_attempt(step, attempt);
                assert!(
                    self.stop.is_none() && self.spec(step).recovery(failure.class) == Some(RecoveryStrategy::UseCache)
                );
                assert_eq!(source.age, time.since(source.completed_at));
                match source.execution.as_str() {
                    "" => {
                        assert!(self.results.contains(&(source.completed_at, text_of(result))), "no call returned this")
                    }
                    _ => assert_eq!((text_of(result).as_str(), source.completed_at), (EARLIER_RESULT, EARLIER)),
                }
                assert!(self.effects.insert(step) && self.cached.insert(step), "step {step} took effect");
                self.took_effect(step);
            }
            StepEvent::ItemsListed { first, items } => self.items_listed(step, attempt, (*first, items), time),
            StepEvent::ItemsCollected { .. } => {
                self.check_attempt(step, attempt);
                self.check_may_start();
                let items = self.current(step).expect("the list was read");
                let is_agent = self.spec(step).agent().is_some();
                let done = |item: &usize| {
                    self.completed.contains(item)
                        || self.skipped.contains_key(item)
                        || is_agent && self.failed.contains(item)
                };
                assert!(items.iter().all(done), "an entry of step {step} has not ended, or has failed");
                // After a conflict there is another commit.
                let commit = items.iter().rfind(|item| self.commits_step(**item));
                let is_committed = commit.is_none_or(|commit| self.completed.contains(commit));
                assert!(is_committed, "step {step} completed, and its effect was not committed");
                let is_last = items.last().is_some_and(|last| self.completed.contains(last));
                assert!(self.spec(step).repeat().is_none() || is_last, "step {step} has no last round");
                assert!(self.effects.insert(step));
            }
            StepEvent::Completed { progress, .. } => {
                self.check_attempt(step, attempt);
                assert!(self.effects.contains(&step), "step {step} completed without a completed call");
                if !self.given.contains(&step) {
                    let after = self.checks_with_calls(step).filter(|place| matches!(place, CheckPlace::After(_)));
                    let open: Vec<CheckPlace> = after.filter(|place| !self.passed.contains(&(step, *place))).collect();
                    assert!(open.is_empty(), "step {step} completed before {open:?}");
                }
                self.completed.insert(step);
                self.order.retain(|before| *before != step);
                self.order.push(step);
                self.totals.completed += self.counted(step);
                self.step_ended(step, *progress);
            }
            StepEvent::Failed { failure, progress } => {
                // Before its first attempt only its condition fails a step, or the time limit of its group.
                let is_added = self.lists.contains_key(&step) || self.undoes.contains_key(&step);
                let has_condition = self.spec(step).condition().is_some() && !is_added;
                let is_limited = !self.spec(step).group_timeouts().is_empty() || self.is_of_agent(step);
                let is_late = is_limited && failure.reason == "STEP_TIMEOUT";
                if is_late && attempt == self.before(step) {
                    assert!(!self.attempts.contains_key(&step), "step {step} had started");
                } else if has_condition && attempt == self.before(step) {
                    assert!(!self.attempts.contains_key(&step) && self.may_run(step));
                    assert!(
                        ["CONDITION_FAILED", "UNRESOLVED_REFERENCE"].contains(&failure.reason.as_str()),
                        "{failure}"
                    );
                } else {
                    self.check_attempt(step, attempt);
                }
                self.failed.insert(step);
                if !failure.class.is_retryable() && self.counted(step) == 1 {
                    self.unlikely.insert(step);
                }
                self.totals.failed += self.counted(step);
                self.step_ended(step, *progress);
                if self.is_of_agent(step) {
                    return;
                }
                self.first_failure.get_or_insert_with(|| failure.clone());
                let undoes = self.spec(step).recovery(failure.class) == Some(RecoveryStrategy::Compensate);
                let stops = self.plan.stop_on_error() || failure.class == ErrorClass::Fatal || undoes;
                if stops && self.undoing.is_none() {
                    self.stop.get_or_insert(Stop::Error);
                }
            }
            StepEvent::Skipped { progress, reason, because, group } => {
                self.check_group_skips(step, *reason, because.as_ref(), group.as_deref());
                let left_out = self.left_out.contains(&step);
                let reasons = [SkipReason::ApprovalSkipped, SkipReason::NonInteractive];
                assert_eq!(left_out, reasons.contains(reason), "step {step} was skipped for another reason");
                let by_request = self.to_skip.contains(&step);
                let is_removed = self.removed.contains(&step);
                assert_eq!(
                    is_removed,
                    *reason == SkipReason::PlanUpdated,
                    "step {step} was skipped for another reason"
                );
                let is_beyond = self.is_beyond(step);
                assert_eq!(is_beyond, *reason == SkipReason::NotListed, "step {step} was skipped for another reason");
                let because_of_list =
                    because.as_ref().and_then(|id| self.index_of(id)) == self.lists.get(&step).copied();
                let by_request = by_request || self.lists.contains_key(&step) && because_of_list && self.given(step);
                assert_eq!(by_request, *reason == SkipReason::Requested, "step {step} was skipped for another reason");
                let was_to_run = left_out || by_request || !self.attempts.contains_key(&step);
                assert!(was_to_run, "step {step} was skipped after it had started");
                self.totals.skipped += self.counted(step);
                let because = because.as_ref().map(|id| self.index_of(id).unwrap());
                self.skipped.insert(step, (*reason, because));
                self.commit_skipped(step, *reason);
                match reason {
                    SkipReason::ConditionFalse => match because {
                        None => assert!(self.spec(step).condition().is_some() && self.may_run(step)),
                        // It is for another course of things: a failure, or an outcome without success.
                        Some(on) => {
                            let named = self.spec(step).outcomes_of(&self.ids[on]);
                            let is_for_others = named.is_some_and(|named| !named.contains(&Outcome::Success));
                            assert!(self.spec(step).run_when() == RunWhen::Failure || is_for_others);
                            assert!(self.is_kept_by(step, on));
                        }
                    },
                    SkipReason::DependencyFailed => {
                        let on = because.unwrap();
                        let of_list = self.lists.get(&step) == Some(&on);
                        assert!(self.failed.contains(&on) && (of_list || self.needed(step, on)));
                    }
                    SkipReason::DependencySkipped => {
                        let on = because.unwrap();
                        let of_list = self.lists.get(&step) == Some(&on);
                        assert!(!self.completed.contains(&on) && !self.failed.contains(&on));
                        assert!(of_list || self.needed(step, on));
                    }
                    _ => {}
                }
                if let Some(&list) = self.lists.get(&step) {
                    assert!(
                        because.is_none_or(|because| because == list) || *reason == SkipReason::StopOnError,
                        "an entry depends on its list alone"
                    );
                }
                self.step_ended(step, *progress);
            }
            StepEvent::Cancelled { progress } => {
                self.check_attempt(step, attempt);
                assert!(self.stop.is_some(), "step {step} was cancelled, and nothing was stopped");
                self.totals.cancelled += self.counted(step);
                self.step_ended(step, *progress);
            }
            StepEvent::OutcomeUnknown { .. } => {
                self.check_attempt(step, attempt);
                self.holding.remove(&step);
                self.unknown.insert(step);
            }
            StepEvent::Resolved { resolution, .. } => {
                self.check_attempt(step, attempt);
                assert!(self.stop.is_none() && self.unknown.remove(&step), "step {step} had nothing to resolve");
                if matches!(resolution, Resolution::Completed(_)) {
                    match self.doubted.remove(&step) {
                        Some(place) => drop(self.passed.insert((step, place))),
                        None => self.took_effect(step),
                    }
                }
                self.doubted.remove(&step);
                self.holding.insert(step);
            }
            StepEvent::SkipRequested { .. } => {
                self.check_can_be_changed(step, attempt);
                self.to_skip.insert(step);
            }
            StepEvent::OutputSet { .. } => {
                self.check_can_be_changed(step, attempt);
                self.attempts.insert(step, attempt);
                self.effects.insert(step);
                self.given.insert(step);
            }
            StepEvent::ConversationCarriedOver { turns, layers, spent, .. } => {
                self.begins_with_spent(step, *spent);
                self.check_can_be_changed(step, attempt);
                assert_eq!(attempt, 0, "step {step} has begun before");
                self.carried.insert(step, (*turns, layers.is_some()));
            }
            StepEvent::RetryAdvanced { .. } => {
                self.check_can_be_changed(step, attempt);
                assert!(self.not_before.remove(&step).is_some(), "step {step} waited for no attempt");
                self.not_before.insert(step, time);
            }
            StepEvent::RetryCancelled { .. } => {
                self.check_can_be_changed(step, attempt);
                assert!(self.not_before.remove(&step).is_some(), "step {step} waited for no attempt");
            }
        }
    }

    /// 1 for a step that the totals count.
    fn counted(&self, step: usize) -> usize {
        usize::from(!self.undoes.contains_key(&step) && !self.is_of_agent(step))
    }

    /// Whether it is a turn or a call of a step with a goal: what becomes of it is for the model to hear.
    fn is_of_agent(&self, step: usize) -> bool {
        self.lists.get(&step).is_some_and(|&list| self.spec(list).agent().is_some())
    }

    /// Whether its checks are made before its call, and after it: of a step with a goal, before the first turn, and after what the model says that it has done.
    fn checked(&self, step: usize) -> [bool; 2] {
        match self.agent_item(step) {
            Some(item) => {
                let of = self.lists.get(&step).and_then(|list| self.carried.get(list));
                let first = of.map_or(0, |(turns, _)| *turns) + 1;
                [item["turn"] == first && item["tool"].is_null(), item["tool"] == COMPLETION_TOOL]
            }
            None => [!self.has_entries(step) && !self.undoes.contains_key(&step); 2],
        }
    }

    fn index_of(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|known| known == id)
    }

    /// Whether a step runs for each entry of a list, or makes several calls.
    fn has_entries(&self, step: usize) -> bool {
        let is_added = self.lists.contains_key(&step) || self.undoes.contains_key(&step);
        !is_added && self.spec(step).has_entries()
    }

    /// The steps for the entries of a list that was read.
    fn current(&self, list: usize) -> Option<Vec<usize>> {
        let count = *self.listed.get(&list)?;
        Some(self.items.get(&list).map(|items| items[..count].to_vec()).unwrap_or_default())
    }

    /// Whether a list that was read again has no entry for this step any more.
    fn is_beyond(&self, step: usize) -> bool {
        let current = self.lists.get(&step).and_then(|&list| self.current(list));
        !self.ended.contains(&step) && current.is_some_and(|current| !current.contains(&step))
    }

    /// Whether a person gave the output of the step that runs for each entry, or did without it, before it was read.
    fn given(&self, step: usize) -> bool {
        let list = self.lists[&step];
        let skipped = matches!(self.skipped.get(&list), Some((SkipReason::Requested, _)));
        !self.listed.contains_key(&list) && (self.completed.contains(&list) || skipped)
    }

    /// There is a step for each entry; what has ended well for the same entry stays.
    fn items_listed(&mut self, list: usize, attempt: u32, (first, items): (usize, &[Json]), time: Timestamp) {
        self.check_attempt(list, attempt);
        self.check_may_start();
        let current = self.current(list).unwrap_or_default();
        let is_agent = self.spec(list).agent().is_some();
        let has_ended = |step: &usize| {
            self.completed.contains(step) || self.skipped.contains_key(step) || is_agent && self.failed.contains(step)
        };
        assert!(current.iter().all(has_ended), "an entry of step {list} has not ended, or has failed");
        assert_eq!(first, current.len(), "step {list} has listed that");
        // More is added for the next round, and for the call that commits what all others have changed.
        let repeat = self.spec(list).repeat().cloned();
        let commits = self.calls_with_one_effect(list) == Some(first);
        let is_added = !is_agent && (repeat.is_some() || first > 0);
        if is_agent {
            self.check_agent_items(list, first, items);
        }
        assert!(!is_added || items.len() == 1 && (repeat.is_some() || commits), "step {list} has read its list");
        assert!(repeat.as_ref().is_none_or(|repeat| first < repeat.max() as usize), "step {list} repeats too often");
        let delay = repeat.map(|repeat| repeat.delay()).filter(|delay| first > 0 && !delay.is_zero());
        assert!(self.has_entries(list));
        let known = self.items.get(&list).cloned().unwrap_or_default();
        for (index, item) in items.iter().enumerate().map(|(place, item)| (first + place, item)) {
            let step = known.get(index).copied().unwrap_or(self.ids.len());
            if let Some(delay) = delay {
                self.not_before.insert(step, time.saturating_add(delay));
            }
            let Some(&step) = known.get(index) else {
                let step = self.ids.len();
                self.ids.push(format!("{}~{index}", self.ids[list]));
                self.items.entry(list).or_default().push(step);
                self.lists.insert(step, list);
                self.values.insert(step, item.clone());
                self.totals.total += self.counted(step);
                continue;
            };
            let by_a_person = [SkipReason::Requested, SkipReason::ApprovalSkipped, SkipReason::NonInteractive];
            let skipped = self.skipped.get(&step).is_some_and(|(reason, _)| by_a_person.contains(reason));
            if self.ended.contains(&step) {
                if (self.completed.contains(&step) || skipped) && self.values[&step] == *item {
                    continue;
                }
                self.runs_again(step);
                if let Some(delay) = delay {
                    self.not_before.insert(step, time.saturating_add(delay));
                }
            }
            self.removed.remove(&step);
            self.values.insert(step, item.clone());
        }
        self.listed.insert(list, first + items.len());
    }

    /// How many attempts a step had made before those of its current call.
    fn of_others(&self, step: usize) -> u32 {
        self.fallbacks.get(&step).map_or(self.before(step), |&(_, attempts)| attempts)
    }

    fn spec(&self, step: usize) -> &StepSpec {
        let step = self.undoes.get(&step).map_or(step, |(undone, _)| *undone);
        let step = self.lists.get(&step).copied().unwrap_or(step);
        &self.plan.steps()[self.plan.step_index(&self.ids[step]).expect("the plan has it")]
    }

    fn dependencies(&self, step: usize) -> Vec<usize> {
        if let Some((_, before)) = self.undoes.get(&step) {
            return before.iter().copied().collect();
        }
        if self.lists.contains_key(&step) {
            return Vec::new();
        }
        let on = |&on: &usize| self.index_of(self.plan.steps()[on].id()).unwrap();
        self.spec(step).dependencies().iter().map(on).collect()
    }

    fn dependents(&self, step: usize) -> Vec<usize> {
        let all = (0..self.ids.len()).filter(|other| !self.removed.contains(other));
        all.filter(|&other| self.dependencies(other).contains(&step)).collect()
    }

    fn before(&self, step: usize) -> u32 {
        self.attempts_before.get(&step).copied().unwrap_or(0)
    }

    fn step_started(&mut self, step: usize, attempt: u32, time: Timestamp) {
        if let Some(&list) = self.lists.get(&step).filter(|list| self.spec(**list).fail_fast()) {
            let has_failed =
                self.current(list).is_some_and(|entries| entries.iter().any(|entry| self.failed.contains(entry)));
            assert!(
                !has_failed || self.attempts.contains_key(&step),
                "step {step} starts after another entry has failed"
            );
        }
        if !self.attempts.contains_key(&step) {
            self.check_groups_let_start(step);
        }
        self.check_may_start();
        // Number 1, S2-FR-006, S4-12.
        assert!(self.may_run(step), "step {step} started before what it waits for");
        assert!(!self.ended.contains(&step), "step {step} started after its end");
        let before = self.before(step);
        assert!(attempt - self.of_others(step) <= self.spec(step).max_attempts(ErrorClass::RateLimit));
        assert_eq!(attempt, self.attempts.get(&step).copied().unwrap_or(before) + 1);
        assert!(self.not_before.remove(&step).is_none_or(|not_before| not_before <= time), "step {step} did not wait");
        self.attempts.insert(step, attempt);
        self.passed.retain(|(of, _)| *of != step);
        // A wait holds no slot, and a step that runs for each entry of a list does nothing itself.
        if matches!(self.spec(step).kind(), StepKind::Wait(_)) || self.has_entries(step) {
            return;
        }
        let used = self.spec(step).resources();
        let others = self.attempts.keys().filter(|&&other| other != step && !self.ended.contains(&other));
        let others: Vec<_> = others.filter(|&&other| !self.has_entries(other)).collect();
        for resource in used {
            let users = others.iter().filter(|&&&other| self.spec(other).resources().contains(resource)).count();
            assert!(users < self.plan.capacity(resource), "step {step} started while {users} others used {resource}");
        }
        self.holding.insert(step);
        // A decision brings its step back, whoever has taken its place meanwhile; nothing further starts then.
        assert!(
            attempt > before + 1 || self.holding.len() <= self.plan.parallelism(),
            "more steps at once than the plan allows"
        );
    }

    fn step_ended(&mut self, step: usize, progress: Progress) {
        // S4-13: every step has its end, and only one.
        assert!(self.ended.insert(step), "step {step} ended twice");
        self.holding.remove(&step);
        // S2-FR-072.
        let done = self.ended.iter().filter(|step| self.counted(**step) == 1).count();
        assert_eq!(progress, Progress { done, total: self.totals.total });
    }

    fn check_attempt(&self, step: usize, attempt: u32) {
        assert_eq!(self.attempts.get(&step), Some(&attempt), "not the attempt that step {step} is in");
    }

    fn check_may_start(&self) {
        assert!(self.started && !self.paused && self.stop.is_none(), "something started that must not");
    }
}

/// A payload as text: these executions have no blobs.
fn text_of(payload: &Payload) -> String {
    payload.inline().map_or_else(String::new, |json| json.as_str().to_owned())
}
