//! A client's fold of the events, based on the contract alone.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use belay_proto::v1::{self, RunWhen, child_ended::End, execution, execution_event::Kind, step, wait_ended::Cause};

use super::plans;
use crate::trace;

mod changes;
mod groups;

/// The state that is the same for every client with the same events.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Picture {
    pub(super) state: i32,
    /// Without fields that follow from the plan or depend on the time.
    pub(super) steps: Vec<v1::Step>,
    totals: v1::StepTotals,
    start_time: Option<pbjson_types::Timestamp>,
    end_time: Option<pbjson_types::Timestamp>,
    failure: Option<v1::Failure>,
}

/// How much of an execution the server has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Depth {
    /// BASIC: nothing of the steps.
    Basic,
    /// FULL: the steps, without outputs.
    Steps,
    /// The steps with their outputs.
    Outputs,
}

/// The server's account of an execution.
#[derive(Debug, Clone)]
pub(super) struct Account {
    pub(super) depth: Depth,
    pub(super) picture: Picture,
}

impl Account {
    pub(super) fn new(execution: &v1::Execution, depth: Depth) -> Self {
        Self { depth, picture: Picture::of(execution).cut_to(depth) }
    }

    /// Whether it is part of this picture.
    pub(super) fn agrees_with(&self, picture: &Picture) -> bool {
        self.picture == picture.clone().cut_to(self.depth)
    }

    /// Whether two accounts of the same state agree as far as both go.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        let depth = self.depth.min(other.depth);
        self.picture.clone().cut_to(depth) == other.picture.clone().cut_to(depth)
    }
}

impl Picture {
    fn state(&self) -> execution::State {
        execution::State::try_from(self.state).unwrap_or_default()
    }

    /// As much of it as an answer of this depth tells.
    fn cut_to(mut self, depth: Depth) -> Self {
        match depth {
            Depth::Basic => self.steps.clear(),
            Depth::Steps => self.steps.iter_mut().for_each(|step| step.output = None),
            Depth::Outputs => {}
        }
        self
    }

    /// The server's own.
    pub(super) fn of(execution: &v1::Execution) -> Self {
        let steps = execution.steps.iter().map(|step| v1::Step {
            title: String::new(),
            name: String::new(),
            detail: None,
            item: None,
            item_count: None,
            compensates: String::new(),
            max_attempts: 0,
            // Follows from the output.
            output_bytes: 0,
            waiting: None,
            // Derived from receipts, which a client need not read to follow an execution.
            authorization: None,
            // A sum of times that the events have.
            approval_wait: None,
            // After the decision nothing waits for it.
            approvals: match step.state() {
                step::State::AwaitingApproval | step::State::Waiting | step::State::Running => step.approvals.clone(),
                _ => Vec::new(),
            },
            ..step.clone()
        });
        Self {
            state: execution.state,
            steps: steps.collect(),
            totals: execution.totals.unwrap_or_default(),
            start_time: execution.start_time,
            end_time: execution.end_time,
            failure: execution.failure.clone(),
        }
    }
}

/// A fold in progress.
#[derive(Debug, Default)]
pub(super) struct Fold {
    pub(super) picture: Picture,
    /// Its steps are those of the execution: those that were added come last.
    pub(super) plan: v1::Plan,
    /// The values of its plan's inputs.
    pub(super) inputs: Option<v1::Payload>,
    /// For each step, the indexes of its dependencies.
    pub(super) dependencies: Vec<Vec<usize>>,
    /// For each step, how many of its dependencies have not ended as it wants.
    open: Vec<usize>,
    /// Whether no new step may start.
    stopping: bool,
    /// For each step, how many attempts it had made when it was last made to run again.
    pub(super) attempts_before: Vec<i32>,
    /// How often it went on after its end.
    pub(super) went_on: usize,
    /// How often its plan was changed.
    pub(super) revision: i32,
    /// For each step, how many of its calls have been given up for the next.
    pub(super) calls: Vec<usize>,
    /// The steps whose newest call is one that a check takes.
    checking: BTreeSet<usize>,
    /// The open questions of calls, by step, attempt and operation: the approval, once there is one.
    questions: BTreeMap<(String, i32, i32), String>,
    /// For each step, the step for an entry of whose list it runs, and the entry.
    pub(super) entries: Vec<Option<(usize, serde_json::Value)>>,
    /// For each step that has read its list, how many entries that has.
    pub(super) listed: BTreeMap<usize, usize>,
    /// The results of calls, as they are shown, with the times at which they were returned.
    results: HashSet<(Option<pbjson_types::Timestamp>, String)>,
    /// For each step, the step that it undoes.
    pub(super) undoes: Vec<Option<usize>>,
    /// For each step that is undone, or was since the execution went on last, the step that undoes it.
    pub(super) undone_by: BTreeMap<usize, usize>,
    /// For each step, the event with which it completed last; 0 for none.
    completed_by: Vec<i64>,
    /// The payloads of signals that no step has taken, by the sequence of their event.
    signals: BTreeMap<i64, v1::Payload>,
}

impl Fold {
    /// The index of the event's step.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn index(&self, event: &v1::ExecutionEvent) -> Result<usize, String> {
        let place = self.plan.steps.iter().position(|step| step.id == event.step_id);
        place.ok_or_else(|| format!("event {} is about step {:?}", event.sequence, event.step_id))
    }

    /// Adds an event.
    ///
    /// # Errors
    /// When it has no kind, or is not valid in the current state.
    pub(super) fn apply(&mut self, event: &v1::ExecutionEvent) -> Result<(), String> {
        use execution::State as E;
        use step::State as S;
        let kind = event.kind.as_ref().ok_or_else(|| format!("event {} says nothing", event.sequence))?;
        let step = match event.step_id.as_str() {
            "" => None,
            _ => Some(self.index(event)?),
        };
        let operation = (event.step_id.clone(), event.attempt, event.operation);
        match (kind, step) {
            (Kind::ExecutionCreated(created), None) => self.create(created),
            (Kind::ExecutionStarted(_), None) => {
                self.picture.state = E::Running.into();
                self.picture.start_time = event.record_time;
            }
            (Kind::ExecutionPaused(_), None) => self.picture.state = E::Paused.into(),
            (Kind::ExecutionResumed(_), None) => self.picture.state = E::Running.into(),
            (Kind::ExecutionCancelRequested(_) | Kind::ExecutionDeadlineExceeded(_), None) => {
                self.picture.state = E::Cancelling.into();
                self.stopping = true;
            }
            (Kind::ExecutionRecovered(_), None) => {}
            (Kind::BudgetWarning(_) | Kind::BudgetExceeded(_) | Kind::BudgetOverrun(_), None) => {}
            (Kind::SignalReceived(received), None) => {
                self.signals.insert(event.sequence, received.payload.clone().unwrap_or_default());
            }
            (Kind::ExecutionAwaitingApproval(_), None) => self.picture.state = E::AwaitingApproval.into(),
            (Kind::ExecutionRetried(retried), None) => self.retry(retried)?,
            (Kind::ExecutionPlanUpdated(updated), None) => self.update(updated)?,
            (Kind::ExecutionCompensationStarted(started), None) => self.undo(started)?,
            (Kind::ExecutionFinished(finished), None) => {
                self.picture.state = finished.state;
                self.picture.end_time = event.record_time;
            }
            (Kind::StepStarted(_), Some(index)) => {
                let step = &mut self.picture.steps[index];
                step.set_state(S::Running);
                step.attempt = event.attempt;
                step.start_time = step.start_time.or(event.record_time);
            }
            (Kind::StepRetryScheduled(retry), Some(index)) => {
                let step = &mut self.picture.steps[index];
                step.set_state(S::BackingOff);
                step.failure = retry.failure.clone();
                self.fail_attempt(index, event, &retry.failure);
            }
            (Kind::StepFallbackSwitched(switched), Some(index)) => {
                // The failure of one that waits for its next attempt is known: a person asked for the next call.
                let is_known = self.picture.steps[index].state() == S::BackingOff;
                let step = &mut self.picture.steps[index];
                step.set_state(S::BackingOff);
                step.failure = switched.failure.clone();
                if !is_known {
                    self.fail_attempt(index, event, &switched.failure);
                }
                self.go_on();
                self.calls[index] += 1;
                trace::count("calls fallen back to");
            }
            (Kind::StepCachedResultUsed(used), Some(index)) => {
                let class = used.failure.as_ref().map(v1::Failure::error_class);
                let uses_cache =
                    plans::strategy(&self.plan.steps[index], class) == Some(v1::RecoveryStrategy::UseCache);
                if !uses_cache || self.stopping || self.picture.steps[index].state() != S::Running {
                    return Err(format!("event {} uses an earlier result, and nothing says so", event.sequence));
                }
                self.fail_attempt(index, event, &used.failure);
                let source = used.source.clone().unwrap_or_default();
                let is_own = source.execution.is_empty();
                let result = used.result.clone();
                if is_own && !self.results.contains(&(source.complete_time, format!("{result:?}"))) {
                    return Err(format!("event {} uses a result that no call has returned", event.sequence));
                }
                trace::count(if is_own { "own results used again" } else { "results of others used" });
                let step = &mut self.picture.steps[index];
                step.failure = used.failure.clone();
                step.cached_result = Some(source);
                step.output = result;
            }
            (Kind::StepItemsListed(listed), Some(index)) => self.list(index, listed)?,
            (Kind::StepItemsCollected(collected), Some(index)) => {
                let is_over = |state| matches!(state, S::Completed | S::Failed | S::Skipped | S::Cancelled);
                if self.of_list(index).any(|entry| !is_over(self.picture.steps[entry].state())) {
                    return Err(format!("event {} collects what is not done", event.sequence));
                }
                self.picture.steps[index].output = collected.output.clone();
                trace::count("lists collected");
            }
            (Kind::StepCompleted(_), Some(index)) => {
                self.end(index, S::Completed, event);
                self.completed_by[index] = event.sequence;
                self.count(index, |totals| totals.completed += 1);
                self.picture.steps[index].failure = None;
                self.release(index, true);
            }
            (Kind::StepFailed(failed), Some(index)) => {
                let class = failed.failure.as_ref().map(v1::Failure::error_class);
                if plans::strategy(&self.plan.steps[index], class) == Some(v1::RecoveryStrategy::UseCache) {
                    trace::count("calls without an earlier result");
                }
                self.end(index, S::Failed, event);
                self.count(index, |totals| totals.failed += 1);
                self.picture.steps[index].failure = failed.failure.clone();
                if failed
                    .failure
                    .as_ref()
                    .is_some_and(|failure| matches!(&*failure.reason, "PRECONDITION_FAILED" | "POSTCONDITION_FAILED"))
                {
                    trace::count("checks that did not hold");
                }
                let last = self.picture.steps[index].failed_attempts.last();
                // Its next attempt was cancelled.
                let is_known = last.is_some_and(|last| last.attempt == event.attempt && last.failure == failed.failure);
                // Before the first attempt only a condition fails a step.
                if event.attempt == self.attempts_before[index] {
                    trace::count("conditions without a value");
                } else if !is_known {
                    self.fail_attempt(index, event, &failed.failure);
                }
                self.release(index, false);
                self.picture.failure = self.picture.failure.take().or_else(|| failed.failure.clone());
                // What is being undone is undone as far as it can be.
                let undoes = plans::strategy(&self.plan.steps[index], class) == Some(v1::RecoveryStrategy::Compensate);
                let stops = self.plan.stop_on_error || class == Some(v1::ErrorClass::Fatal) || undoes;
                self.stopping |= stops && self.undone_by.is_empty();
            }
            (Kind::StepSkipped(skipped), Some(index)) => {
                self.check_because(index, skipped)?;
                self.end(index, S::Skipped, event);
                self.count(index, |totals| totals.skipped += 1);
                let step = &mut self.picture.steps[index];
                step.skip_reason = skipped.reason;
                step.skipped_because = skipped.because.clone();
                step.skipped_group = skipped.group.clone();
                if step.skip_reason() == v1::SkipReason::ConditionFalse {
                    trace::count("steps skipped by a condition");
                }
                let is_asked = step.skip_reason() == v1::SkipReason::Requested;
                self.release(index, is_asked);
            }
            (Kind::StepSkipRequested(_) | Kind::StepRetryAdvanced(_) | Kind::StepRetryCancelled(_), Some(index)) => {
                self.change(index, event.sequence)?
            }
            (Kind::StepOutputSet(set), Some(index)) => {
                self.change(index, event.sequence)?;
                self.picture.steps[index].output = set.output.clone();
            }
            (Kind::StepCancelled(_), Some(index)) => {
                self.end(index, S::Cancelled, event);
                self.count(index, |totals| totals.cancelled += 1);
                self.release(index, false);
            }
            (Kind::StepOutcomeUnknown(unknown), Some(index)) => {
                let step = &mut self.picture.steps[index];
                step.set_state(S::OutcomeUnknown);
                step.failure = unknown.failure.clone();
            }
            (Kind::StepResolved(resolved), Some(index)) => {
                let step = &mut self.picture.steps[index];
                step.set_state(S::Running);
                if resolved.result.is_some() && !self.checking.contains(&index) {
                    step.output = resolved.result.clone();
                }
                self.go_on();
            }
            (Kind::ToolCallRequested(requested), Some(index)) => {
                self.picture.steps[index].set_state(S::Running);
                match requested.check {
                    Some(_) => self.checking.insert(index),
                    None => self.checking.remove(&index),
                };
            }
            // The decision has moved the step.
            (Kind::ToolCallDispatched(_), Some(_)) => {}
            // A call asks, and its step runs on.
            (Kind::WaitStarted(started), Some(_)) if started.asking_call > 0 => {
                self.questions.insert(operation, String::new());
            }
            (Kind::WaitEnded(_), Some(index)) if self.questions.contains_key(&operation) => {
                let approval = self.questions.remove(&operation);
                self.picture.steps[index].approvals.retain(|asked| Some(asked) != approval.as_ref());
            }
            (Kind::WaitStarted(_), Some(index)) => self.picture.steps[index].set_state(S::Waiting),
            (Kind::WaitEnded(ended), Some(index)) => {
                let step = &mut self.picture.steps[index];
                step.set_state(S::Running);
                step.approvals.clear();
                match ended.cause() {
                    Cause::Elapsed => trace::count("waits ended by their time"),
                    Cause::Signalled => trace::count("waits ended by a signal"),
                    Cause::Answered => trace::count("waits ended by an answer"),
                    Cause::Held
                    | Cause::Declined
                    | Cause::Refused
                    | Cause::TimedOut
                    | Cause::Cancelled
                    | Cause::Unspecified => {}
                }
                step.output = match ended.cause() {
                    Cause::Elapsed => Some(json("null")),
                    Cause::Signalled => Some(self.signals.remove(&ended.signal_sequence).ok_or_else(|| {
                        format!("event {} takes a signal that nobody sent, or that was taken before", event.sequence)
                    })?),
                    Cause::Answered => ended.answer.clone(),
                    Cause::Held
                    | Cause::Unspecified
                    | Cause::Declined
                    | Cause::Refused
                    | Cause::TimedOut
                    | Cause::Cancelled => None,
                };
            }
            (Kind::ChildStarted(_), Some(index)) => self.picture.steps[index].set_state(S::Running),
            (Kind::ChildCreated(_) | Kind::ChildPaused(_), Some(_)) => {}
            (Kind::ChildEnded(ended), Some(index)) => {
                self.picture.steps[index].output = match &ended.end {
                    Some(End::Output(output)) => Some(output.clone()),
                    Some(End::Failure(_) | End::Cancelled(_)) | None => None,
                };
            }
            // What a check returned is not the step's result.
            (Kind::ToolCallCompleted(_), Some(index)) if self.checking.contains(&index) => {}
            (Kind::ToolCallCompleted(completed), Some(index)) => {
                self.results.insert((event.record_time, format!("{:?}", completed.result)));
                self.picture.steps[index].output = completed.result.clone();
            }
            (Kind::ToolCallCancelled(_), Some(index)) if !self.stopping => {
                self.picture.steps[index].set_state(S::Ready);
                self.picture.steps[index].approvals.clear();
            }
            (Kind::ToolCallEffectProposed(_) | Kind::ToolCallApprovalRequired(_), Some(index)) => {
                let step = &mut self.picture.steps[index];
                step.set_state(S::AwaitingApproval);
                step.approvals.clear();
            }
            (Kind::ApprovalRequested(requested), Some(index)) if self.questions.contains_key(&operation) => {
                self.questions.insert(operation, requested.approval.clone());
                // In the order of the questions.
                let of_step = self.questions.iter().filter(|((step, ..), _)| *step == event.step_id);
                let asked = of_step.map(|(_, approval)| approval).filter(|approval| !approval.is_empty());
                self.picture.steps[index].approvals = asked.cloned().collect();
            }
            (Kind::ApprovalRequested(requested), Some(index)) => {
                self.picture.steps[index].approvals.push(requested.approval.clone());
            }
            (Kind::ApprovalDecided(_), Some(index)) => {
                let step = &mut self.picture.steps[index];
                step.set_state(S::Running);
                step.approvals.clear();
                self.go_on();
            }
            (
                Kind::ToolCallCancelled(_)
                | Kind::ToolCallFailed(_)
                | Kind::ToolCallDenied(_)
                | Kind::ToolCallOutcomeUnknown(_),
                Some(index),
            ) => {
                let step = &mut self.picture.steps[index];
                if step.state() == S::AwaitingApproval {
                    // It was stopped before a decision was made.
                    step.set_state(S::Running);
                    step.approvals.clear();
                }
            }
            (_, step) => return Err(format!("event {} is out of place, step {step:?}", event.sequence)),
        }
        Ok(())
    }

    /// Whether nothing new starts any more.
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// The call that a step makes now.
    pub(super) fn call(&self, index: usize) -> Option<&v1::ToolStep> {
        let step = self.plan.steps.get(index)?;
        let own = match &step.kind {
            Some(v1::step_spec::Kind::Tool(tool)) => Some(tool),
            _ => None,
        };
        own.into_iter().chain(&step.fallback).nth(self.calls[index])
    }

    /// Adds a step after the others.
    fn add(
        &mut self,
        step: v1::StepSpec,
        dependencies: Vec<usize>,
        entry: Option<(usize, serde_json::Value)>,
    ) -> usize {
        let (step_id, state) = (step.id.clone(), step::State::Pending.into());
        self.picture.steps.push(v1::Step { step_id, state, ..v1::Step::default() });
        self.picture.totals.total += 1;
        self.attempts_before.push(0);
        self.open.push(0);
        self.calls.push(0);
        self.entries.push(entry);
        self.undoes.push(None);
        self.completed_by.push(0);
        self.dependencies.push(dependencies);
        self.plan.steps.push(step);
        self.plan.steps.len() - 1
    }

    /// Counts a step in the totals, unless it undoes another: that was not to be done.
    fn count(&mut self, index: usize, count: impl FnOnce(&mut v1::StepTotals)) {
        if self.undoes[index].is_none() {
            count(&mut self.picture.totals);
        }
    }

    /// The state of a step, with what became of what it did.
    fn shown_state(&self, index: usize) -> step::State {
        use step::State as S;
        let state = |index: usize| self.picture.steps[index].state();
        match self.undone_by.get(&index).map(|undoes| state(*undoes)) {
            None | Some(S::Failed | S::Skipped | S::Cancelled) => state(index),
            Some(S::Completed) => S::Compensated,
            Some(_) => S::Compensating,
        }
    }

    /// The picture that every client is shown.
    pub(super) fn shown(&self) -> Picture {
        let mut shown = self.picture.clone();
        for (index, step) in shown.steps.iter_mut().enumerate() {
            step.set_state(self.shown_state(index));
        }
        shown
    }

    /// The steps whose work has to be undone when the execution ends now, the last to complete first. Of those that have not completed, only the events of
    /// their calls tell whether they did something.
    pub(super) fn to_undo(&self) -> Vec<usize> {
        let is_to_undo = |index: &usize| {
            // What was given its output without an attempt has done nothing.
            self.completed_by[*index] > 0
                && self.picture.steps[*index].attempt > 0
                // Nor has what uses an earlier result.
                && self.picture.steps[*index].cached_result.is_none()
                && self.plan.steps[*index].compensate.is_some()
                && self.undoes[*index].is_none()
        };
        let mut steps: Vec<usize> = (0..self.plan.steps.len()).filter(is_to_undo).collect();
        steps.sort_by_key(|index| std::cmp::Reverse(self.completed_by[*index]));
        steps
    }

    fn create(&mut self, created: &v1::ExecutionCreated) {
        self.plan = created.plan.clone().unwrap_or_default();
        self.inputs.clone_from(&created.inputs);
        let place = |id: &String| self.plan.steps.iter().position(|step| step.id == *id);
        let dependencies = |step| plans::dependencies(step).iter().filter_map(place).collect();
        self.dependencies = self.plan.steps.iter().map(dependencies).collect();
        self.open = self.dependencies.iter().map(Vec::len).collect();
        self.attempts_before = vec![0; self.open.len()];
        self.calls = vec![0; self.open.len()];
        self.entries = vec![None; self.open.len()];
        self.undoes = vec![None; self.open.len()];
        self.completed_by = vec![0; self.open.len()];
        self.picture.state = execution::State::Pending.into();
        self.picture.totals.total = i32::try_from(self.plan.steps.len()).unwrap_or(i32::MAX);
        let pending = |step: &v1::StepSpec| v1::Step {
            step_id: step.id.clone(),
            state: step::State::Pending.into(),
            ..v1::Step::default()
        };
        self.picture.steps = self.plan.steps.iter().map(pending).collect();
        for index in 0..self.open.len() {
            self.make_ready(index);
        }
    }

    fn end(&mut self, index: usize, state: step::State, event: &v1::ExecutionEvent) {
        let step = &mut self.picture.steps[index];
        step.set_state(state);
        step.end_time = event.record_time;
    }

    fn fail_attempt(&mut self, index: usize, event: &v1::ExecutionEvent, failure: &Option<v1::Failure>) {
        let failed = v1::StepAttempt { attempt: event.attempt, failure: failure.clone(), end_time: event.record_time };
        self.picture.steps[index].failed_attempts.push(failed);
    }

    /// A step has ended: one less to wait for, for the steps that want that end. Nothing starts any more while the execution is being stopped.
    fn release(&mut self, ended: usize, completed: bool) {
        for index in 0..self.open.len() {
            let goes_on = completed || !self.stopping;
            if goes_on && self.dependencies[index].contains(&ended) && self.is_met(index, ended) {
                self.open[index] -= 1;
                self.make_ready(index);
            }
        }
    }

    fn make_ready(&mut self, index: usize) {
        use step::State::{Pending, Ready};
        // Those for the entries of a list wait for the list.
        let is_met = self.open[index] == 0 && self.entries[index].is_none() && self.may_run(index);
        let step = &mut self.picture.steps[index];
        if is_met && step.state() == Pending {
            step.set_state(Ready);
        }
    }

    /// Whether one of the steps that a step depends on has ended as it wants. After a failure of one it runs when all have ended.
    pub(super) fn is_met(&self, index: usize, on: usize) -> bool {
        use step::State::{Cancelled, Completed, Failed, Skipped};
        let (spec, status) = (&self.plan.steps[index], &self.picture.steps[on]);
        let is_asked = status.skip_reason() == v1::SkipReason::Requested;
        let succeeded = status.state() == Completed || is_asked;
        if let Some(named) = plans::outcomes_of(spec, &self.plan.steps[on].id) {
            return named.outcomes().any(|outcome| match outcome {
                v1::Outcome::Unspecified => false,
                v1::Outcome::Success => succeeded,
                v1::Outcome::Failure => status.state() == Failed,
                v1::Outcome::Skipped => status.state() == Skipped,
            });
        }
        let has_ended = matches!(status.state(), Completed | Failed | Skipped | Cancelled);
        match spec.run_when() {
            RunWhen::Unspecified | RunWhen::Success => succeeded,
            RunWhen::NoneFailed => has_ended && !self.follows_failure(on),
            RunWhen::Failure | RunWhen::Always => has_ended,
        }
    }

    /// Whether a step has failed, or was skipped because of one that has.
    fn follows_failure(&self, step: usize) -> bool {
        self.picture.steps[self.first_reason(step)].state() == step::State::Failed
    }

    /// Whether the steps that a step depends on have ended as it wants.
    pub(super) fn may_run(&self, index: usize) -> bool {
        let mut on = self.dependencies[index].iter();
        let after_failure = || self.dependencies[index].iter().any(|&on| self.follows_failure(on));
        on.all(|&on| self.is_met(index, on))
            && (self.plan.steps[index].run_when() != RunWhen::Failure || after_failure())
    }

    /// Checks that a step is skipped because of one that it depends on only when it does not run after that one's end.
    fn check_because(&self, index: usize, skipped: &v1::StepSkipped) -> Result<(), String> {
        if !skipped.group.is_empty() {
            trace::count("steps that a failure in their group kept from starting");
            if self.group_that_failed(index).is_none() {
                return Err(format!(
                    "step {index} is skipped because of the group {}, which lets it start",
                    skipped.group
                ));
            }
        }
        use v1::SkipReason::{ConditionFalse, DependencyFailed, DependencySkipped};
        let on = self.dependencies[index].iter().find(|&&on| self.plan.steps[on].id == skipped.because);
        let Some(&on) =
            on.filter(|_| matches!(skipped.reason(), ConditionFalse | DependencyFailed | DependencySkipped))
        else {
            return Ok(());
        };
        let runs_after = match self.plan.steps[index].run_when() {
            RunWhen::Failure => self.may_run(index),
            RunWhen::Unspecified | RunWhen::Success | RunWhen::NoneFailed | RunWhen::Always => self.is_met(index, on),
        };
        if runs_after {
            return Err(format!("step {index} is skipped because of step {on}, and runs after such an end"));
        }
        if plans::outcomes_of(&self.plan.steps[index], &skipped.because).is_some() {
            trace::count("steps skipped after other outcomes");
        }
        Ok(())
    }

    /// Whether conditions are the reason for which every step was skipped.
    pub(super) fn is_skipped_by_conditions(&self) -> bool {
        let is_one = |index: usize| {
            let first = &self.picture.steps[self.first_reason(index)];
            first.skip_reason() == v1::SkipReason::ConditionFalse
        };
        (0..self.picture.steps.len()).all(is_one)
    }

    /// The step at which the reason for skipping a step begins.
    fn first_reason(&self, index: usize) -> usize {
        use v1::SkipReason::{DependencyFailed, DependencySkipped, StopOnError};
        let step = &self.picture.steps[index];
        let because = self.plan.steps.iter().position(|other| other.id == step.skipped_because);
        match (step.skip_reason(), because) {
            (DependencyFailed | DependencySkipped, Some(because)) => self.first_reason(because),
            (StopOnError, Some(because)) if !step.skipped_group.is_empty() => because,
            _ => index,
        }
    }
}

fn json(text: &str) -> v1::Payload {
    v1::Payload { content: Some(v1::payload::Content::Json(text.to_owned())) }
}
