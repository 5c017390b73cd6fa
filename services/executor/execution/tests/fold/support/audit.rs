//! Checks the rules that every list of events must obey, from the list alone, without the fold.

use std::collections::{BTreeMap, BTreeSet};

use belay_execution::{
    ApprovalEvent, ApprovalMode, Body, ChildEnd, ChildEvent, Decision, ErrorClass, Event, ExecutionEvent,
    ExecutionState, Failure, Finished, Json, OperationId, PlanUpdated, Progress, Resolution, Retried, SkipReason,
    StepEvent, StepId, SubjectKind, Timestamp, ToolCallEnd, ToolCallEvent, Totals, WaitCondition, WaitEnd, WaitEvent,
};
use belay_plan::{CheckPlace, Plan, RunWhen, StepKind, StepSpec, Then};

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
    /// What is undone since the execution began or went on, and why no further step had started before that.
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
    /// Of steps that have started since they were last made to run again.
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
    /// Calls in flight that checks take.
    checking: BTreeMap<OperationId, CheckPlace>,
    /// The checks of each step's attempt whose calls have completed.
    passed: BTreeSet<(usize, CheckPlace)>,
    /// The steps of which it is not known whether a check took effect.
    doubted: BTreeMap<usize, CheckPlace>,
    /// The steps whose output a principal has given.
    given: BTreeSet<usize>,
    completed: BTreeSet<usize>,
    failed: BTreeSet<usize>,
    /// Those of them that would fail again.
    unlikely: BTreeSet<usize>,
    /// Steps whose call has an unknown outcome.
    unknown: BTreeSet<usize>,
    ended: BTreeSet<usize>,
    totals: Totals,
    first_failure: Option<Failure>,
    /// Why each skipped step was skipped, and because of which.
    skipped: BTreeMap<usize, (SkipReason, Option<usize>)>,
    mode: ApprovalMode,
    /// What each open call was held for last.
    held: BTreeMap<OperationId, Held>,
    /// Steps that were left out because that was decided about their call.
    left_out: BTreeSet<usize>,
    /// Approved calls that wait for a slot.
    queued: BTreeSet<OperationId>,
    /// What waits, and for what.
    waits: BTreeMap<OperationId, WaitCondition>,
    /// The forms that the gate asks.
    asked: BTreeSet<OperationId>,
    /// The executions of steps' plans that go on, and whether they are paused.
    children: BTreeMap<OperationId, bool>,
    names_of_children: BTreeSet<String>,
    /// Signals that no step has taken, by the sequence number of their event.
    signals: BTreeMap<u64, String>,
}

#[derive(Default)]
struct Held {
    kind: Option<SubjectKind>,
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
    Kill,
    Deadline,
}

impl Audit {
    /// Of a plan whose `created` has sequence 1 and is not shown to it.
    pub(crate) fn new(plan: Plan, mode: ApprovalMode) -> Self {
        Self {
            mode,
            held: BTreeMap::new(),
            left_out: BTreeSet::new(),
            queued: BTreeSet::new(),
            waits: BTreeMap::new(),
            asked: BTreeSet::new(),
            children: BTreeMap::new(),
            names_of_children: BTreeSet::new(),
            signals: BTreeMap::new(),
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
            checking: BTreeMap::new(),
            passed: BTreeSet::new(),
            doubted: BTreeMap::new(),
            given: BTreeSet::new(),
            completed: BTreeSet::new(),
            failed: BTreeSet::new(),
            unlikely: BTreeSet::new(),
            unknown: BTreeSet::new(),
            ended: BTreeSet::new(),
            first_failure: None,
            skipped: BTreeMap::new(),
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
            Body::ToolCall { call, event } => self.about_call(call, event),
            Body::Approval { operation, event } => self.about_approval(operation, event),
            Body::Wait { wait, event: kind } => self.about_wait(wait, kind, event),
            Body::Child { child, event: kind } => self.about_child(child, kind, event.time),
        }
    }

    fn step_of(&self, operation: &OperationId) -> usize {
        self.index_of(&operation.step).expect("a step of the plan")
    }

    fn about_execution(&mut self, event: &Event, kind: &ExecutionEvent) {
        let sequence = event.sequence;
        match kind {
            ExecutionEvent::Created(_) => panic!("created twice"),
            ExecutionEvent::Started => {
                assert!(!self.started && !self.paused && self.stop.is_none());
                self.started = true;
            }
            ExecutionEvent::Paused { resume_at, .. } => {
                let by_rate_limit = resume_at.is_some() && *resume_at == self.queued_until;
                let by_plan = event.actor.is_none() && !by_rate_limit;
                assert!(
                    !by_plan || resume_at.is_none() && self.escalates_to() == Some(Then::Pause),
                    "nothing has paused it"
                );
                self.is_escalated |= by_plan;
                (self.paused, self.resume_at, self.queued_until) = (true, *resume_at, None);
            }
            ExecutionEvent::Resumed => {
                let is_due = self.resume_at.is_some_and(|at| at <= event.time);
                assert!(event.actor.is_some() || is_due, "no person has resumed it, and its time has not come");
                self.paused = false;
            }
            ExecutionEvent::CancelRequested { kill, .. } => {
                assert!(self.stop != Some(Stop::Kill), "it is being killed");
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
                let waits = |call| self.held.get(call).is_some_and(Held::waits);
                assert!(self.stop.is_some() || !in_doubt.iter().any(waits));
            }
            ExecutionEvent::AwaitingApproval => {
                assert!(self.started && !self.paused && self.stop.is_none());
                let waits = |call| self.held.get(call).is_some_and(Held::waits);
                assert!(!self.open.is_empty() && self.open.iter().all(waits), "something is under way");
                assert!(self.waits.is_empty(), "a wait ends without a decision");
                assert!(self.not_before.keys().all(|step| self.ended.contains(step)), "a retry is due by itself");
            }
            ExecutionEvent::CompensationStarted { steps } => self.compensation_started(steps),
            ExecutionEvent::Finished(finished) => self.finished(finished),
            ExecutionEvent::Retried(retried) => self.retried(retried, event.time),
            ExecutionEvent::PlanUpdated(updated) => self.updated(updated),
        }
    }

    fn about_step(&mut self, step: usize, attempt: u32, event: &StepEvent, time: Timestamp) {
        match event {
            StepEvent::Started => self.step_started(step, attempt, time),
            StepEvent::RetryScheduled { failure, retry_count, delay, not_before } => {
                self.check_attempt(step, attempt);
                let retry = self.spec(step).retry();
                let attempt = attempt - self.of_others(step);
                assert!(failure.class.is_retryable() && attempt < retry.max_attempts && self.stop.is_none());
                // S2-FR-067: the count is kept; S0-08, S2-FR-065, S4-21: the delay is the plan's, or what the failure asks for.
                let planned = match failure.class {
                    ErrorClass::RateLimit => retry.delay_after_rate_limit(attempt - 1).expect("it is tried again"),
                    _ => retry.delay(attempt - 1),
                };
                let queues = failure.class == ErrorClass::RateLimit && retry.rate_limit.queues_for_later();
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
                let all = attempt - attempts == retry.max_attempts && failure.class.is_retryable();
                assert!(is_requested || all || never || failure.class == ErrorClass::AgentUnavailable, "{failure}");
                self.fallbacks.insert(step, (place + 1, attempt));
                self.not_before.insert(step, time);
            }
            StepEvent::ItemsListed { items } => self.items_listed(step, attempt, items),
            StepEvent::ItemsCollected { .. } => {
                self.check_attempt(step, attempt);
                self.check_may_start();
                let items = self.current(step).expect("the list was read");
                let done = |item: &usize| self.completed.contains(item) || self.skipped.contains_key(item);
                assert!(items.iter().all(done), "an entry of step {step} has not ended, or has failed");
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
                // Before its first attempt only its condition fails a step.
                let is_added = self.lists.contains_key(&step) || self.undoes.contains_key(&step);
                let has_condition = self.spec(step).condition().is_some() && !is_added;
                if has_condition && attempt == self.before(step) {
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
                self.first_failure.get_or_insert_with(|| failure.clone());
                if (self.plan.stop_on_error() || failure.class == ErrorClass::Fatal) && self.undoing.is_none() {
                    self.stop.get_or_insert(Stop::Error);
                }
            }
            StepEvent::Skipped { progress, reason, because } => {
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
                match reason {
                    SkipReason::ConditionFalse => {
                        let spec = self.spec(step);
                        assert!(
                            spec.condition().is_some() && self.may_run(step) || spec.run_when() == RunWhen::Failure
                        );
                        assert!(self.dependencies_ended(step));
                    }
                    SkipReason::DependencyFailed => assert!(self.failed.contains(&because.unwrap())),
                    SkipReason::DependencySkipped => assert!(!self.completed.contains(&because.unwrap())),
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
        usize::from(!self.undoes.contains_key(&step))
    }

    /// Everything has ended, and not well: what says how it is undone is, the last to complete first.
    fn compensation_started(&mut self, steps: &[StepId]) {
        assert!(
            self.undoing.is_none() && !self.paused && !self.finished && self.open.is_empty() && self.waits.is_empty()
        );
        let counted = self.ended.iter().filter(|step| self.counted(**step) == 1).count();
        assert_eq!(counted, self.totals.total, "something is left to end");
        let is_stopped = matches!(self.stop, Some(Stop::Cancel | Stop::Kill | Stop::Deadline));
        assert!(self.totals.failed > 0 || is_stopped && self.totals.completed < self.totals.total);
        let says_how = |step: &usize| {
            let has_done = self.completed.contains(step) || self.has_checks_after(*step) && self.effects.contains(step);
            let has_tried = self.attempts.get(step).is_some_and(|attempts| *attempts > 0) || self.before(*step) > 0;
            has_done && has_tried && self.spec(*step).compensate().is_some() && !self.is_for_each(*step)
        };
        let mut seen = BTreeSet::new();
        let last = self.order.iter().rev().copied().filter(|step| self.counted(*step) == 1 && says_how(step));
        let expected: Vec<usize> = last.filter(|step| seen.insert(*step)).collect();
        let named: Vec<usize> = steps.iter().map(|id| self.index_of(id).unwrap()).collect();
        assert_eq!(named, expected, "something else is undone, or in another order");
        assert!(!named.is_empty());
        let mut before = None;
        let mut undoing = Vec::new();
        for step in named {
            let id = format!("{}~compensate", self.ids[step]);
            let undoes = match self.index_of(&id) {
                Some(known) => {
                    self.runs_again(known);
                    known
                }
                None => {
                    self.ids.push(id);
                    self.ids.len() - 1
                }
            };
            self.undoes.insert(undoes, (step, before));
            before = Some(undoes);
            undoing.push(undoes);
        }
        self.undoing = Some((undoing, self.stop.take()));
    }

    fn index_of(&self, id: &str) -> Option<usize> {
        self.ids.iter().position(|known| known == id)
    }

    /// Whether a step runs for each entry of a list.
    fn is_for_each(&self, step: usize) -> bool {
        let is_added = self.lists.contains_key(&step) || self.undoes.contains_key(&step);
        !is_added && self.spec(step).for_each().is_some()
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
    fn items_listed(&mut self, list: usize, attempt: u32, items: &[Json]) {
        self.check_attempt(list, attempt);
        self.check_may_start();
        assert!(self.is_for_each(list) && !self.listed.contains_key(&list), "step {list} has read its list");
        let known = self.items.get(&list).cloned().unwrap_or_default();
        for (index, item) in items.iter().enumerate() {
            let Some(&step) = known.get(index) else {
                let step = self.ids.len();
                self.ids.push(format!("{}~{index}", self.ids[list]));
                self.items.entry(list).or_default().push(step);
                self.lists.insert(step, list);
                self.values.insert(step, item.clone());
                self.totals.total += 1;
                continue;
            };
            let by_a_person = [SkipReason::Requested, SkipReason::ApprovalSkipped, SkipReason::NonInteractive];
            let skipped = self.skipped.get(&step).is_some_and(|(reason, _)| by_a_person.contains(reason));
            if self.ended.contains(&step) {
                if (self.completed.contains(&step) || skipped) && self.values[&step] == *item {
                    continue;
                }
                self.runs_again(step);
            }
            self.removed.remove(&step);
            self.values.insert(step, item.clone());
        }
        self.listed.insert(list, items.len());
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

    /// What has started or ended is as it was; what is missing is left out.
    fn updated(&mut self, updated: &PlanUpdated) {
        assert!(!self.finished && self.stop.is_none());
        self.revision += 1;
        assert_eq!((updated.revision, updated.plan.id()), (self.revision, self.plan.id()));
        let planned = |step: &usize| {
            !self.removed.contains(step) && !self.lists.contains_key(step) && !self.undoes.contains_key(step)
        };
        for step in (0..self.ids.len()).filter(planned) {
            let new = updated.plan.step_index(&self.ids[step]).map(|place| updated.plan.steps()[place].to_draft());
            if self.attempts.contains_key(&step) || self.ended.contains(&step) {
                assert_eq!(new, Some(self.spec(step).to_draft()), "step {step} has started or ended");
            }
        }
        self.plan = updated.plan.clone();
        for spec in updated.plan.steps() {
            match self.ids.iter().position(|known| known == spec.id()) {
                Some(step) if self.removed.remove(&step) => {
                    self.totals.skipped -= 1;
                    assert!(self.ended.remove(&step) && self.skipped.remove(&step).is_some());
                    self.to_skip.remove(&step);
                }
                Some(_) => {}
                None => {
                    self.ids.push(spec.id().to_owned());
                    self.totals.total += 1;
                }
            }
        }
        let is_planned = |step: usize| updated.plan.step_index(&self.ids[step]).is_some();
        let gone = (0..self.ids.len()).filter(|&step| match self.lists.get(&step) {
            Some(&list) => !is_planned(list) && (!self.ended.contains(&step) || self.removed.contains(&step)),
            None => !is_planned(step) && !self.undoes.contains_key(&step),
        });
        self.removed = gone.collect();
    }

    fn before(&self, step: usize) -> u32 {
        self.attempts_before.get(&step).copied().unwrap_or(0)
    }

    /// A person changes what becomes of a step only while it has nothing in flight.
    fn check_can_be_changed(&self, step: usize, attempt: u32) {
        assert_eq!(attempt, self.attempts.get(&step).copied().unwrap_or(self.before(step)));
        assert!(self.stop.is_none() && !self.ended.contains(&step) && !self.unknown.contains(&step));
        let in_flight = self.open.iter().chain(self.waits.keys()).any(|open| self.step_of(open) == step);
        assert!(!in_flight && !self.finished, "step {step} has an operation in flight");
    }

    /// A completed step runs again only when it was named, or depends on one that does.
    fn retried(&mut self, retried: &Retried, time: Timestamp) {
        let by_plan = retried.escalation;
        // What a failure has stopped runs again by the plan, or when only a pause keeps it from what follows.
        let has_nothing_left = (0..self.ids.len()).all(|step| self.ended.contains(&step));
        let may_go_on = by_plan.is_some() || self.paused && has_nothing_left;
        let is_stopped = self.stop.is_some_and(|stop| !may_go_on || stop != Stop::Error);
        assert!(self.finished || !is_stopped);
        if may_go_on && !self.finished {
            self.stop = None;
        }
        (self.escalations, self.is_escalated) = match by_plan {
            None => (0, false),
            // S2-X-20, S2-FR-061: only what may succeed runs again, as often as the plan says, after its delays.
            Some(retry) => {
                assert!(!self.finished && !self.paused && self.escalates_to().is_none());
                let plan = self.plan.escalation().expect("it escalates");
                assert_eq!((retry.number, retry.retries), (self.escalations + 1, plan.retries));
                assert_eq!(retry.resume_at, time.saturating_add(plan.backoff.delay(self.escalations)));
                (self.paused, self.resume_at) = (true, Some(retry.resume_at));
                (retry.number, false)
            }
        };
        let steps: BTreeSet<usize> = retried.steps.iter().map(|id| self.index_of(id).unwrap()).collect();
        assert!(!steps.is_empty() && steps.len() == retried.steps.len());
        let from = retried.request.from.as_ref().map(|id| self.index_of(id).unwrap());
        for &step in &steps {
            assert!(self.ended.contains(&step), "step {step} has not ended");
            let list = self.lists.get(&step).copied();
            let of_entry = self.items.get(&step).is_some_and(|items| items.iter().any(|item| steps.contains(item)));
            let is_undone = self.undoes.iter().any(|(undoes, (undone, _))| {
                *undone == step && self.completed.contains(undoes) && self.is_being_undone(*undoes)
            });
            assert!(!self.undoes.contains_key(&step));
            let depends = of_entry || is_undone || self.dependencies(step).iter().any(|on| steps.contains(on));
            let named = from == Some(step) || list.is_some() && list == from;
            assert!(!self.completed.contains(&step) || depends || named, "step {step} had completed");
            assert!(list.is_none_or(|list| steps.contains(&list)), "the list of {step} is not read again");
            self.runs_again(step);
        }
        for &step in &steps {
            for dependent in self.dependents(step).iter().filter(|dependent| !steps.contains(dependent)) {
                let has_run = self.attempts.contains_key(dependent) || self.ended.contains(dependent);
                assert!(!has_run, "step {dependent} depends on {step}, which runs again");
            }
        }
        // Every failed step runs again, so that the execution is as if none had failed.
        assert!(self.failed.iter().all(|step| self.undoes.contains_key(step)));
        self.first_failure = None;
        self.undoing = None;
        if self.finished {
            (self.finished, self.stop, self.paused) = (false, None, false);
        }
    }

    /// Whether a step undoes another since the execution began or went on.
    fn is_being_undone(&self, undoes: usize) -> bool {
        self.undoing.as_ref().is_some_and(|(steps, _)| steps.contains(&undoes))
    }

    /// A step that has ended is as if it had not run, but for its attempts.
    fn runs_again(&mut self, step: usize) {
        assert!(self.ended.remove(&step));
        self.unlikely.remove(&step);
        let counted = self.counted(step);
        if self.completed.remove(&step) {
            self.totals.completed -= counted;
        } else if self.failed.remove(&step) {
            self.totals.failed -= counted;
        } else if self.skipped.remove(&step).is_some() {
            self.totals.skipped -= counted;
        } else {
            self.totals.cancelled -= counted;
        }
        self.order.retain(|completed| *completed != step);
        self.passed.retain(|(of, _)| *of != step);
        for gone in [&mut self.effects, &mut self.left_out, &mut self.to_skip, &mut self.given] {
            gone.remove(&step);
        }
        self.not_before.remove(&step);
        self.fallbacks.remove(&step);
        self.listed.remove(&step);
        let attempts = self.attempts.remove(&step).unwrap_or(self.before(step));
        self.attempts_before.insert(step, attempts);
    }

    fn about_call(&mut self, call: &OperationId, event: &ToolCallEvent) {
        match event {
            ToolCallEvent::Requested(request) => self.requested(call, request.check),
            ToolCallEvent::Held(requirement) => {
                assert!(self.open.contains(call) && self.stop.is_none());
                let (kind, digest) = (requirement.kind, requirement.subject_digest.clone());
                let held = Held { kind: Some(kind), digest: digest.clone(), ..Held::default() };
                let before = self.held.insert(call.clone(), held);
                let again = before.is_none_or(|held| held.digest != digest && !held.waits());
                assert!(again, "{call} was held twice for the same, or before a decision");
                self.holding.remove(&self.step_of(call));
            }
            ToolCallEvent::Dispatched => {
                self.check_may_start();
                let held = &self.held[call];
                assert_eq!((held.kind, held.decision), (Some(SubjectKind::Call), Some(Decision::Approved)));
                assert!(self.queued.remove(call), "{call} did not wait for a slot");
                self.holding.insert(self.step_of(call));
                assert!(self.holding.len() <= self.plan.parallelism(), "more steps at once than the plan allows");
            }
            ToolCallEvent::Ended(end) => {
                match end {
                    ToolCallEnd::Completed { .. } => {
                        // Number 3: what was held completes with a yes to what it was held for last.
                        let yes = self.held.get(call).is_none_or(|held| held.decision == Some(Decision::Approved));
                        assert!(yes, "{call} completed, and nobody had approved it");
                        let step = self.step_of(call);
                        match self.checking.get(call) {
                            Some(place) => assert!(self.passed.insert((step, *place)), "{call} checks again"),
                            None => {
                                // S2-NFR-007: whatever happens, a step takes effect once.
                                let first = self.effects.insert(step);
                                assert!(first, "{call} took effect after another call of its step had");
                                self.took_effect(step);
                            }
                        }
                    }
                    ToolCallEnd::Denied { .. } => {
                        if self.held.get(call).is_some_and(|held| held.decision == Some(Decision::Skipped)) {
                            self.left_out.insert(self.step_of(call));
                        }
                    }
                    ToolCallEnd::OutcomeUnknown { .. } => {
                        let place = self.checking.get(call).copied();
                        place.map(|place| self.doubted.insert(self.step_of(call), place));
                    }
                    ToolCallEnd::Failed { .. } | ToolCallEnd::Cancelled { .. } => {}
                }
                self.call_ended(call);
            }
        }
    }

    fn about_approval(&mut self, call: &OperationId, event: &ApprovalEvent) {
        match event {
            ApprovalEvent::Requested { subject_digest, .. } if self.waits.contains_key(call) => {
                assert_eq!(self.mode, ApprovalMode::Wait, "a run that cannot ask has asked");
                let form = self.waits[call].form().expect("only a form is asked");
                assert_eq!(&form.subject_digest, subject_digest);
                assert!(self.asked.insert(call.clone()), "{call} was asked twice");
            }
            ApprovalEvent::Requested { approval, subject_digest } => {
                let held = self.held.get_mut(call).expect("only what is held is asked about");
                assert_eq!(&held.digest, subject_digest);
                assert!(held.decision.is_none() && held.approval.replace(approval.clone()).is_none());
            }
            ApprovalEvent::Decided { approval, decision, .. } => {
                let step = self.step_of(call);
                let held = self.held.get_mut(call).expect("only what is held is decided about");
                let asks_nobody = matches!(self.mode, ApprovalMode::Fail | ApprovalMode::Skip);
                match &held.approval {
                    Some(asked) => assert_eq!(asked, approval),
                    None => assert!(approval.is_empty() && asks_nobody && *decision != Decision::Approved),
                }
                assert!(held.decision.replace(*decision).is_none(), "it was decided about {call} twice");
                match (held.kind, *decision) {
                    (Some(SubjectKind::Call), Decision::Approved) => drop(self.queued.insert(call.clone())),
                    _ => drop(self.holding.insert(step)),
                }
            }
        }
    }

    fn about_wait(&mut self, wait: &OperationId, kind: &WaitEvent, event: &Event) {
        let (step, time) = (self.step_of(wait), event.time);
        match kind {
            WaitEvent::Started(condition) => {
                self.requested(wait, None);
                self.open.remove(wait);
                self.waits.insert(wait.clone(), condition.clone());
            }
            WaitEvent::Ended(end) => {
                let condition = self.waits.remove(wait).expect("it waits");
                match end {
                    WaitEnd::Elapsed => {
                        assert!(matches!(condition, WaitCondition::Time { until } if until <= time), "too early");
                        self.effects.insert(step);
                    }
                    WaitEnd::Signalled { sequence } => {
                        // Each signal is taken once, the oldest first.
                        let signal = self.signals.remove(sequence).expect("a signal that nobody has taken");
                        assert_eq!(condition.signal(), Some(signal.as_str()));
                        assert!(!self.signals.range(..sequence).any(|(_, older)| *older == signal));
                        self.effects.insert(step);
                    }
                    WaitEnd::TimedOut => {
                        let by_limit = condition.signal().is_some() || condition.form().is_some();
                        assert!(by_limit && condition.until().is_some_and(|until| until <= time));
                    }
                    WaitEnd::Answered { .. } => {
                        let asked = condition.form().is_some() && self.asked.contains(wait);
                        assert!(asked && event.actor.is_some() && self.stop.is_none(), "{wait} was not asked");
                        self.effects.insert(step);
                    }
                    WaitEnd::Declined { decision, .. } => {
                        assert!(condition.form().is_some() && self.stop.is_none());
                        // A person declines what they were asked, and the mode what nobody is asked.
                        assert_eq!(event.actor.is_some(), self.mode == ApprovalMode::Wait);
                        assert_eq!(event.actor.is_some(), self.asked.contains(wait));
                        match decision {
                            Decision::Denied => assert_ne!(self.mode, ApprovalMode::Skip),
                            Decision::Skipped => drop(self.left_out.insert(step)),
                            Decision::Approved | Decision::Expired => panic!("a form is denied or skipped"),
                        }
                    }
                    WaitEnd::Refused { .. } => {
                        assert!(condition.form().is_some() && event.actor.is_none() && self.stop.is_none());
                    }
                    WaitEnd::Cancelled => assert!(self.stop.is_some(), "nothing was stopped"),
                }
            }
        }
    }

    fn about_child(&mut self, child: &OperationId, kind: &ChildEvent, time: Timestamp) {
        let step = self.step_of(child);
        match kind {
            ChildEvent::Started(started) => {
                self.requested(child, None);
                assert!(started.until.is_none_or(|until| until >= time), "{child} has no time left");
                self.open.remove(child);
                assert!(self.names_of_children.insert(started.execution.clone()), "two children have one name");
                self.children.insert(child.clone(), false);
            }
            ChildEvent::Paused => {
                assert!(
                    self.paused && self.children.insert(child.clone(), true) == Some(false),
                    "{child} is not to pause"
                );
            }
            ChildEvent::Resumed => {
                assert_eq!(self.children.insert(child.clone(), false), Some(true), "{child} was not paused");
            }
            ChildEvent::Ended(end) => {
                assert!(self.children.remove(child).is_some(), "{child} has not begun");
                match end {
                    ChildEnd::Completed { .. } => drop(self.effects.insert(step)),
                    ChildEnd::Failed { .. } => {}
                    ChildEnd::Cancelled => assert!(self.stop.is_some(), "nothing was stopped"),
                }
            }
        }
    }

    fn step_started(&mut self, step: usize, attempt: u32, time: Timestamp) {
        self.check_may_start();
        // Number 1, S2-FR-006, S4-12.
        assert!(self.may_run(step), "step {step} started before what it waits for");
        assert!(!self.ended.contains(&step), "step {step} started after its end");
        let before = self.before(step);
        assert!(attempt - self.of_others(step) <= self.spec(step).retry().max_attempts);
        assert_eq!(attempt, self.attempts.get(&step).copied().unwrap_or(before) + 1);
        assert!(self.not_before.remove(&step).is_none_or(|not_before| not_before <= time), "step {step} did not wait");
        self.attempts.insert(step, attempt);
        self.passed.retain(|(of, _)| *of != step);
        // A wait holds no slot, and a step that runs for each entry of a list does nothing itself.
        if matches!(self.spec(step).kind(), StepKind::Wait(_)) || self.is_for_each(step) {
            return;
        }
        let used = self.spec(step).resources();
        let others = self.attempts.keys().filter(|&&other| other != step && !self.ended.contains(&other));
        let others: Vec<_> = others.filter(|&&other| !self.is_for_each(other)).collect();
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

    /// The checks of a step that take calls.
    fn checks_with_calls(&self, step: usize) -> impl Iterator<Item = CheckPlace> {
        let is_checked = !self.is_for_each(step) && !self.undoes.contains_key(&step);
        let spec = self.spec(step);
        let before = spec.preconditions().iter().enumerate().map(|(place, check)| (CheckPlace::Before(place), check));
        let after = spec.postconditions().iter().enumerate().map(|(place, check)| (CheckPlace::After(place), check));
        let checks = before.chain(after).filter(move |(_, check)| is_checked && check.call().is_some());
        checks.map(|(place, _)| place).collect::<Vec<_>>().into_iter()
    }

    fn took_effect(&mut self, step: usize) {
        self.effects.insert(step);
        if self.has_checks_after(step) {
            self.order.push(step);
        }
    }

    fn has_checks_after(&self, step: usize) -> bool {
        let spec = self.spec(step);
        let has_some = !spec.postconditions().is_empty() || spec.output_schema().is_some();
        has_some && !self.is_for_each(step) && !self.undoes.contains_key(&step)
    }

    fn requested(&mut self, id: &OperationId, check: Option<CheckPlace>) {
        self.check_may_start();
        let step = self.step_of(id);
        self.check_attempt(step, id.attempt);
        // Number 12.
        let is_after = matches!(check, Some(CheckPlace::After(_)));
        assert_eq!(
            self.effects.contains(&step),
            is_after,
            "{id} was requested after its step had taken effect, or before"
        );
        // S4-08, S4-20: all checks before this call hold.
        let earlier = self.checks_with_calls(step).take_while(|place| match check {
            None => matches!(place, CheckPlace::Before(_)),
            Some(check) => *place < check,
        });
        for place in earlier {
            assert!(self.passed.contains(&(step, place)), "{id} was requested before {place:?}");
        }
        if let Some(place) = check {
            assert!(self.checks_with_calls(step).any(|known| known == place), "{id}: no call checks {place:?}");
            self.checking.insert(id.clone(), place);
        }
        let other = self.open.iter().chain(self.waits.keys()).any(|open| open.step == id.step);
        assert!(!other, "{id} was requested while another was in flight");
        let first = OperationId { number: 0, ..id.clone() };
        assert_eq!(
            self.requested.range(&first..id).count() + 1,
            usize::try_from(id.number).unwrap(),
            "{id} is out of turn"
        );
        assert!(self.requested.insert(id.clone()), "{id} was requested twice");
        self.open.insert(id.clone());
    }

    fn call_ended(&mut self, call: &OperationId) {
        // Number 2, first half: never two ends.
        assert!(self.open.remove(call), "{call} ended and was not in flight");
        self.held.remove(call);
        self.queued.remove(call);
        self.checking.remove(call);
        let step = self.step_of(call);
        if !self.ended.contains(&step) {
            self.holding.insert(step);
        }
    }

    fn step_ended(&mut self, step: usize, progress: Progress) {
        // S4-13: every step has its end, and only one.
        assert!(self.ended.insert(step), "step {step} ended twice");
        self.holding.remove(&step);
        // S2-FR-072.
        let done = self.ended.iter().filter(|step| self.counted(**step) == 1).count();
        assert_eq!(progress, Progress { done, total: self.totals.total });
    }

    /// What its plan's escalation has follow, now that everything has ended and a step has failed: `None` for another retry, which comes first.
    fn escalates_to(&self) -> Option<Then> {
        assert!(self.open.is_empty() && self.waits.is_empty() && !self.failed.is_empty() && self.undoing.is_none());
        assert!(matches!(self.stop, None | Some(Stop::Error)) && !self.is_escalated);
        assert_eq!(self.ended.iter().filter(|step| self.counted(**step) == 1).count(), self.totals.total);
        let plan = self.plan.escalation()?;
        let retries = self.escalations < plan.retries && self.unlikely.is_empty();
        (!retries).then_some(plan.then)
    }

    fn finished(&mut self, finished: &Finished) {
        let has_failed =
            self.totals.failed > 0 && matches!(self.stop, None | Some(Stop::Error)) && self.undoing.is_none();
        if has_failed && self.plan.escalation().is_some() && !self.is_escalated {
            assert_eq!(self.escalates_to(), Some(Then::Fail), "it has ended before its escalation");
        }
        self.finished = true;
        // Number 2, second half: never none.
        assert!(self.open.is_empty(), "calls without an end: {:?}", self.open);
        assert!(self.waits.is_empty(), "waits without an end: {:?}", self.waits);
        // Number 8, S4-09, S4-11.
        let counted = self.ended.iter().filter(|step| self.counted(**step) == 1).count();
        assert_eq!(counted, self.totals.total);
        let (undoing, before) = self.undoing.clone().unwrap_or_default();
        assert!(undoing.iter().all(|step| self.ended.contains(step)));
        // Something is left of an execution where a step that has completed was not undone; one that has only made its call counts for nothing.
        let both = |step: &&usize| self.completed.contains(step) && self.completed.contains(&self.undoes[*step].0);
        let undone = undoing.iter().filter(both).count();
        let stop = before.filter(|stop| *stop != Stop::Error).or(self.stop);
        assert_eq!((finished.totals, &finished.failure), (self.totals, &self.first_failure));
        let Totals { total, completed, failed, .. } = self.totals;
        let expected = match stop {
            Some(Stop::Cancel | Stop::Kill) if completed < total => ExecutionState::Cancelled,
            Some(Stop::Deadline) if completed < total => ExecutionState::TimedOut,
            // Skipping is not success where others needed what was skipped, or everything was.
            _ if failed == 0 && self.missed() => ExecutionState::Partial,
            _ if failed == 0 => ExecutionState::Completed,
            _ if completed > undone && !self.plan.stop_on_error() => ExecutionState::Partial,
            _ => ExecutionState::Failed,
        };
        assert_eq!(finished.state, expected);
    }

    fn dependencies_ended(&self, step: usize) -> bool {
        self.dependencies(step).iter().all(|on| self.ended.contains(on))
    }

    /// Whether the steps that it depends on have ended as it wants.
    fn may_run(&self, step: usize) -> bool {
        if self.undoes.contains_key(&step) {
            return self.is_being_undone(step) && self.dependencies_ended(step);
        }
        if let Some(&list) = self.lists.get(&step) {
            return self.current(list).is_some_and(|current| current.contains(&step));
        }
        let spec = self.spec(step);
        let dependencies = self.dependencies(step);
        let mut on = dependencies.iter();
        match spec.run_when() {
            RunWhen::Success => on.all(|on| {
                let by_request = matches!(self.skipped.get(on), Some((SkipReason::Requested, _)));
                self.completed.contains(on) || by_request
            }),
            RunWhen::Always => self.dependencies_ended(step),
            RunWhen::Failure => self.dependencies_ended(step) && on.any(|&on| self.failed.contains(&self.root(on))),
        }
    }

    /// The step at which the reason for skipping a step begins.
    fn root(&self, step: usize) -> usize {
        match self.skipped.get(&step) {
            Some((SkipReason::DependencySkipped | SkipReason::DependencyFailed, Some(because))) => self.root(*because),
            _ => step,
        }
    }

    /// Whether a step was skipped that another one needed, or all were, and no condition is the reason.
    fn missed(&self) -> bool {
        self.skipped.iter().any(|(&step, (reason, _))| {
            let root = self.skipped.get(&self.root(step)).map(|(reason, _)| *reason);
            self.counted(step) == 1
                && (*reason == SkipReason::DependencySkipped || self.totals.completed == 0)
                && root != Some(SkipReason::ConditionFalse)
        })
    }

    fn check_attempt(&self, step: usize, attempt: u32) {
        assert_eq!(self.attempts.get(&step), Some(&attempt), "not the attempt that step {step} is in");
    }

    fn check_may_start(&self) {
        assert!(self.started && !self.paused && self.stop.is_none(), "something started that must not");
    }
}
