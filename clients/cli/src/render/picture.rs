//! An execution as a watcher knows it: the snapshot, moved on by the events after it; and what a person sees of that while it runs.

use std::{collections::HashMap, time::Duration};

use belay_proto::v1::{
    Execution, ExecutionCompensationStarted, ExecutionEvent, ExecutionPlanUpdated, ExecutionRetried, Plan, SkipReason,
    Step, StepItem, StepItemsListed, ToolStepDetail, WaitStarted, WaitingReason, execution, execution_event::Kind,
    step, step::State, waiting_reason,
};
use pbjson_types::Timestamp;

use super::{
    call,
    text::{Line, Style, shorten},
    time, words,
};
use crate::{follow::is_over, next};

/// The most active and the most pending steps that are shown; the others are counted, so that the picture fits a small window.
const STEPS_SHOWN: usize = 8;
const NEXT_SHOWN: usize = 3;
/// The longest error inside a line, in characters.
const MAX_ERROR_CHARS: usize = 200;
/// The longest entry of a list before what is done for it, in characters.
const MAX_ITEM_CHARS: usize = 40;
/// The widest column of step ids, and the widest part of a window that it takes.
const ID_COLUMNS: usize = 16;
/// The window width where there is no terminal.
const COLUMNS: usize = 80;
/// Below it, time spent waiting for a person is not worth a word.
const WORTH_SAYING: Duration = Duration::from_secs(1);

/// What is known of an execution.
pub(crate) struct Picture {
    execution: Execution,
    /// Where each step stands in `execution.steps`.
    places: HashMap<String, usize>,
    /// What each step does, in words, in the order of `execution.steps`.
    calls: Vec<String>,
    /// What each step waits for before it starts, in the same order.
    depends_on: Vec<Vec<String>>,
    /// Since when each step is in its state, if that is known.
    since: Vec<Option<Timestamp>>,
    /// How wide the column of ids is.
    id_columns: usize,
    pause: Pause,
    /// The questions that calls ask while they run.
    questions: Vec<Question>,
}

/// A question of a call that runs.
struct Question {
    /// Where its step stands.
    place: usize,
    /// Its attempt and operation.
    operation: (i32, i32),
    waiting: WaitingReason,
    /// Its name at the gate; empty until it is asked there.
    approval: String,
}

/// The time in which an execution did nothing but wait for a person.
#[derive(Debug, Default)]
struct Pause {
    since: Option<Timestamp>,
    total: Duration,
}

impl Pause {
    /// Takes an event into account; each has to be given once.
    fn see(&mut self, event: &ExecutionEvent) {
        match &event.kind {
            Some(Kind::ExecutionAwaitingApproval(_)) => self.since = event.record_time,
            // A question is asked while the execution already waits for another; a signal is kept.
            Some(Kind::ApprovalRequested(_) | Kind::ToolCallOutput(_) | Kind::SignalReceived(_)) => {}
            Some(
                Kind::ExecutionCreated(_)
                | Kind::ExecutionStarted(_)
                | Kind::ExecutionPaused(_)
                | Kind::ExecutionResumed(_)
                | Kind::ExecutionCancelRequested(_)
                | Kind::ExecutionRecovered(_)
                | Kind::ExecutionDeadlineExceeded(_)
                | Kind::ExecutionCompensationStarted(_)
                | Kind::ExecutionFinished(_)
                | Kind::ExecutionRetried(_)
                | Kind::ExecutionPlanUpdated(_)
                | Kind::BudgetWarning(_)
                | Kind::BudgetExceeded(_)
                | Kind::BudgetOverrun(_)
                | Kind::StepStarted(_)
                | Kind::StepRetryScheduled(_)
                | Kind::StepCompleted(_)
                | Kind::StepFailed(_)
                | Kind::StepSkipped(_)
                | Kind::StepCancelled(_)
                | Kind::StepOutcomeUnknown(_)
                | Kind::StepResolved(_)
                | Kind::StepFallbackSwitched(_)
                | Kind::StepCachedResultUsed(_)
                | Kind::StepItemsListed(_)
                | Kind::StepItemsCollected(_)
                | Kind::StepSkipRequested(_)
                | Kind::StepOutputSet(_)
                | Kind::StepRetryAdvanced(_)
                | Kind::StepRetryCancelled(_)
                | Kind::WaitStarted(_)
                | Kind::WaitEnded(_)
                | Kind::ChildStarted(_)
                | Kind::ChildCreated(_)
                | Kind::ChildPaused(_)
                | Kind::ChildEnded(_)
                | Kind::ToolCallRequested(_)
                | Kind::ToolCallCompleted(_)
                | Kind::ToolCallFailed(_)
                | Kind::ToolCallCancelled(_)
                | Kind::ToolCallOutcomeUnknown(_)
                | Kind::ToolCallEffectProposed(_)
                | Kind::ToolCallApprovalRequired(_)
                | Kind::ToolCallDenied(_)
                | Kind::ToolCallDispatched(_)
                | Kind::ApprovalDecided(_),
            )
            | None => {
                let until = event.record_time.as_ref().and_then(time::since_epoch);
                self.total += time::between(self.since.take().as_ref(), until).unwrap_or_default();
            }
        }
    }
}

/// A cause for which a step or a call of it waits.
fn waiting_for(wait: &WaitStarted, since: Option<Timestamp>) -> WaitingReason {
    let (kind, who) = match (wait.signal.as_str(), &wait.form) {
        (_, Some(form)) => (waiting_reason::Kind::Form, format!("a person's answer to `{}`", form.title)),
        ("", None) => (waiting_reason::Kind::Time, String::new()),
        (signal, None) => (waiting_reason::Kind::Signal, format!("the signal `{signal}`")),
    };
    WaitingReason { kind: kind.into(), begin_time: since, until_time: wait.until_time, who, ..Default::default() }
}

/// Takes an event about a question of a call: the step runs on, and says for whom its call waits. Returns whether it was one.
fn question(open: &mut Vec<Question>, place: usize, step: &mut Step, event: &ExecutionEvent, kind: &Kind) -> bool {
    let operation = (event.attempt, event.operation);
    let at = open.iter().position(|question| (question.place, question.operation) == (place, operation));
    match (kind, at) {
        (Kind::WaitStarted(wait), _) if wait.asking_call > 0 => {
            let waiting = waiting_for(wait, event.record_time);
            step.waiting = Some(waiting.clone());
            open.push(Question { place, operation, waiting, approval: String::new() });
        }
        (Kind::ApprovalRequested(requested), Some(at)) => {
            open[at].approval.clone_from(&requested.approval);
            step.approvals.push(requested.approval.clone());
        }
        (Kind::WaitEnded(_), Some(at)) => {
            let ended = open.remove(at);
            step.approvals.retain(|approval| *approval != ended.approval);
            let left = open.iter().rev().find(|question| question.place == place);
            step.waiting = left.map(|question| question.waiting.clone());
        }
        _ => return false,
    }
    true
}

impl Picture {
    /// What a snapshot in FULL view says.
    pub(crate) fn new(execution: Execution) -> Picture {
        let places: HashMap<String, usize> =
            execution.steps.iter().enumerate().map(|(place, step)| (step.step_id.clone(), place)).collect();
        let mut calls: Vec<String> = execution.steps.iter().map(call::kind_of).collect();
        let mut depends_on = vec![Vec::new(); calls.len()];
        for step in execution.plan.iter().flat_map(|plan| &plan.steps) {
            if let Some(&place) = places.get(&step.id) {
                calls[place] = call::of_step(step);
                depends_on[place] = call::dependencies(step, |id| places.contains_key(id));
            }
        }
        for (place, step) in execution.steps.iter().enumerate() {
            if let Some(&list) = step.item.as_ref().and_then(|item| places.get(&item.step_id)) {
                let index = step.item.as_ref().and_then(|item| usize::try_from(item.index).ok());
                let planned = execution
                    .plan
                    .iter()
                    .flat_map(|plan| &plan.steps)
                    .find(|planned| planned.id == execution.steps[list].step_id);
                let several = planned.zip(index).and_then(|(planned, index)| call::of_several(planned, index));
                calls[place] = several.map_or_else(|| calls[list].clone(), |(_, words)| words);
            }
        }
        for (call, step) in calls.iter_mut().zip(&execution.steps) {
            if let Some(count) = step.item_count.filter(|_| !matches!(step.detail, Some(step::Detail::Calls(_)))) {
                *call = for_each(call, usize::try_from(count).unwrap_or_default());
            }
        }
        let since =
            execution.steps.iter().map(|step| step.waiting.as_ref().and_then(|waiting| waiting.begin_time)).collect();
        let id_columns = execution.steps.iter().map(|step| step.step_id.chars().count()).max().unwrap_or(0);
        let id_columns = id_columns.min(ID_COLUMNS);
        let (pause, questions) = (Pause::default(), Vec::new());
        Picture { execution, places, calls, depends_on, since, id_columns, pause, questions }
    }

    /// Another snapshot of the same execution, after its journal was lost or restored.
    pub(crate) fn renewed(self, execution: Execution) -> Picture {
        Picture { pause: self.pause, ..Picture::new(execution) }
    }

    /// The execution.
    pub(crate) fn execution(&self) -> &Execution {
        &self.execution
    }

    /// A step by its id.
    pub(crate) fn step(&self, id: &str) -> Option<&Step> {
        self.execution.steps.get(*self.places.get(id)?)
    }

    /// What a step does, in words.
    pub(crate) fn call(&self, id: &str) -> &str {
        self.places.get(id).map_or("", |&place| &self.calls[place])
    }

    /// How long it did nothing but wait for a person, as far as its events have been seen.
    pub(crate) fn paused_for_people(&self) -> Duration {
        self.pause.total
    }

    /// What holds the execution up, as the server says it.
    pub(crate) fn wait_for(&mut self, waiting: Vec<WaitingReason>) {
        self.execution.waiting = waiting;
    }

    /// Moves on by an event. One that the snapshot already covers changes nothing but the times.
    pub(crate) fn apply(&mut self, event: &ExecutionEvent) {
        if !event.ephemeral {
            self.pause.see(event);
        }
        if event.sequence <= self.execution.last_sequence {
            return;
        }
        self.execution.last_sequence = event.sequence;
        // Events announce waits for a person or a resume; the server reports services that are unavailable.
        self.execution.waiting.retain(|reason| !words::is_announced_by_event(reason));
        let Some(kind) = &event.kind else { return };
        match kind {
            Kind::ExecutionStarted(_) => {
                self.execution.set_state(execution::State::Running);
                self.execution.start_time = event.record_time;
            }
            Kind::ExecutionResumed(_) => self.execution.set_state(execution::State::Running),
            Kind::ExecutionAwaitingApproval(_) => self.execution.set_state(execution::State::AwaitingApproval),
            Kind::ExecutionPaused(paused) => {
                let by = event.actor.as_ref().map(|actor| &actor.principal);
                let by = by.cloned().unwrap_or_default();
                self.paused(by, event.record_time, paused.resume_time);
            }
            Kind::ExecutionCancelRequested(_) => self.execution.set_state(execution::State::Cancelling),
            Kind::ExecutionFinished(finished) => {
                self.execution.set_state(finished.state());
                self.execution.totals = finished.totals;
                self.execution.failure = finished.failure.clone();
                self.execution.end_time = event.record_time;
            }
            Kind::ExecutionRetried(retried) => self.retried(retried, event.record_time),
            Kind::ExecutionPlanUpdated(updated) => self.plan_updated(updated),
            Kind::ExecutionCompensationStarted(started) => self.compensation_started(started, event.record_time),
            Kind::StepItemsListed(listed) => self.items_listed(&event.step_id, listed, event.record_time),
            Kind::ExecutionCreated(_)
            | Kind::SignalReceived(_)
            | Kind::ExecutionRecovered(_)
            | Kind::BudgetWarning(_)
            | Kind::BudgetExceeded(_)
            | Kind::BudgetOverrun(_)
            | Kind::ToolCallOutput(_) => {}
            Kind::ExecutionDeadlineExceeded(_) => self.execution.set_state(execution::State::Cancelling),
            Kind::StepStarted(_)
            | Kind::StepRetryScheduled(_)
            | Kind::StepCompleted(_)
            | Kind::StepFailed(_)
            | Kind::StepSkipped(_)
            | Kind::StepCancelled(_)
            | Kind::StepOutcomeUnknown(_)
            | Kind::StepResolved(_)
            | Kind::StepFallbackSwitched(_)
            | Kind::StepCachedResultUsed(_)
            | Kind::StepItemsCollected(_)
            | Kind::StepSkipRequested(_)
            | Kind::StepOutputSet(_)
            | Kind::StepRetryAdvanced(_)
            | Kind::StepRetryCancelled(_)
            | Kind::WaitStarted(_)
            | Kind::WaitEnded(_)
            | Kind::ChildStarted(_)
            | Kind::ChildCreated(_)
            | Kind::ChildPaused(_)
            | Kind::ChildEnded(_)
            | Kind::ToolCallRequested(_)
            | Kind::ToolCallCompleted(_)
            | Kind::ToolCallFailed(_)
            | Kind::ToolCallCancelled(_)
            | Kind::ToolCallOutcomeUnknown(_)
            | Kind::ToolCallEffectProposed(_)
            | Kind::ToolCallApprovalRequired(_)
            | Kind::ToolCallDenied(_)
            | Kind::ToolCallDispatched(_)
            | Kind::ApprovalRequested(_)
            | Kind::ApprovalDecided(_) => {
                if self.execution.state() == execution::State::AwaitingApproval {
                    self.execution.set_state(execution::State::Running);
                }
                self.apply_to_step(event, kind);
            }
        }
    }

    /// How many attempts the plan gives each call of a step; `None` when the plan is not known.
    pub(crate) fn planned_attempts(&self, step: &Step) -> Option<i32> {
        planned_attempts(self.execution.plan.as_ref(), step)
    }

    /// It is paused, by a principal or by the plan when `principal` is empty.
    fn paused(&mut self, principal: String, since: Option<Timestamp>, until: Option<Timestamp>) {
        self.execution.set_state(execution::State::Paused);
        let next_command = next::about(&["executions", "resume"], &self.execution.name, &[]);
        let kind = waiting_reason::Kind::Resume.into();
        self.execution.waiting = vec![WaitingReason {
            kind,
            begin_time: since,
            until_time: until,
            next_command,
            principal,
            ..Default::default()
        }];
    }

    fn retried(&mut self, retried: &ExecutionRetried, at: Option<Timestamp>) {
        if is_over(self.execution.state()) || self.execution.state() == execution::State::AwaitingApproval {
            self.execution.set_state(execution::State::Running);
        }
        (self.execution.end_time, self.execution.failure, self.execution.totals) = (None, None, None);
        self.execution.deadline_time = retried.deadline_time;
        for id in &retried.step_ids {
            let Some(&place) = self.places.get(id) else { continue };
            let Some(step) = self.execution.steps.get_mut(place) else { continue };
            let attempts = planned_attempts(self.execution.plan.as_ref(), step).unwrap_or(1);
            *step = Step {
                name: std::mem::take(&mut step.name),
                step_id: std::mem::take(&mut step.step_id),
                title: std::mem::take(&mut step.title),
                detail: step.detail.take(),
                item: step.item.take(),
                compensates: std::mem::take(&mut step.compensates),
                failed_attempts: std::mem::take(&mut step.failed_attempts),
                attempt: step.attempt,
                max_attempts: step.attempt.saturating_add(attempts),
                ..Step::default()
            };
            step.set_state(State::Pending);
            self.since[place] = at;
        }
        if let Some(escalation) = &retried.escalation {
            self.paused(String::new(), at, escalation.resume_time);
        }
    }

    fn plan_updated(&mut self, updated: &ExecutionPlanUpdated) {
        let mut execution = std::mem::take(&mut self.execution);
        for planned in updated.plan.iter().flat_map(|plan| &plan.steps) {
            match self.places.get(&planned.id).and_then(|&place| execution.steps.get_mut(place)) {
                // It was removed, and is there again.
                Some(step) if step.skip_reason() == SkipReason::PlanUpdated => {
                    step.set_state(State::Pending);
                    step.set_skip_reason(SkipReason::Unspecified);
                }
                Some(_) => {}
                None => {
                    let max_attempts = planned.retry.as_ref().map_or(1, |retry| retry.max_attempts.max(1));
                    let (step_id, title) = (planned.id.clone(), planned.title.clone());
                    let mut step = Step { step_id, title, max_attempts, ..Step::default() };
                    step.set_state(State::Pending);
                    execution.steps.push(step);
                }
            }
        }
        execution.plan.clone_from(&updated.plan);
        execution.plan_revision = updated.revision;
        execution.deadline_time = updated.deadline_time;
        let mut since = std::mem::take(&mut self.since);
        since.resize(execution.steps.len(), None);
        let pause = std::mem::take(&mut self.pause);
        *self = Picture { since, pause, ..Picture::new(execution) };
    }

    /// What steps have done is undone: for each there is a step that does so.
    fn compensation_started(&mut self, started: &ExecutionCompensationStarted, at: Option<Timestamp>) {
        self.execution.set_state(execution::State::Running);
        for id in &started.step_ids {
            let Some(&place) = self.places.get(id) else { continue };
            let step = &mut self.execution.steps[place];
            step.set_state(State::Compensating);
            let planned = planned_id(step).to_owned();
            let planned = self.execution.plan.iter().flat_map(|plan| &plan.steps).find(|step| step.id == planned);
            let undoes = planned.and_then(|planned| planned.compensate.as_ref());
            let attempts =
                planned.and_then(|planned| planned.retry.as_ref()).map_or(1, |retry| retry.max_attempts.max(1));
            let tool = undoes.map(|call| call.tool.clone()).unwrap_or_default();
            let step_id = format!("{id}~compensate");
            let before = self.step(&step_id).map_or(0, |step| step.attempt);
            let mut step = Step {
                title: step_id.clone(),
                compensates: id.clone(),
                attempt: before,
                max_attempts: before.saturating_add(attempts),
                detail: Some(step::Detail::Tool(ToolStepDetail { tool: tool.clone() })),
                step_id,
                ..Step::default()
            };
            step.set_state(State::Pending);
            self.put(step, tool, at);
        }
    }

    /// A step has ended that undoes another.
    fn undone(&mut self, id: &str, state: State) {
        let compensates = self.step(id).map(|step| step.compensates.clone()).unwrap_or_default();
        let Some(&place) = self.places.get(&compensates) else { return };
        // What could not be undone is there.
        let state = if state == State::Completed { State::Compensated } else { State::Completed };
        self.execution.steps[place].set_state(state);
    }

    /// A step that the plan does not name, in the place of the one with its id.
    fn put(&mut self, step: Step, call: String, at: Option<Timestamp>) {
        if let Some(&place) = self.places.get(&step.step_id) {
            (self.execution.steps[place], self.calls[place], self.since[place]) = (step, call, at);
            return;
        }
        self.id_columns = self.id_columns.max(step.step_id.chars().count()).min(ID_COLUMNS);
        self.places.insert(step.step_id.clone(), self.execution.steps.len());
        self.execution.steps.push(step);
        self.calls.push(call);
        self.depends_on.push(Vec::new());
        self.since.push(at);
    }

    /// A step has read the list for each entry of which it runs: there is a step for each.
    fn items_listed(&mut self, id: &str, listed: &StepItemsListed, at: Option<Timestamp>) {
        let Some(&list) = self.places.get(id) else { return };
        let planned = self.execution.plan.iter().flat_map(|plan| &plan.steps).find(|planned| planned.id == id);
        let max_attempts =
            planned.and_then(|planned| planned.retry.as_ref()).map_or(1, |retry| retry.max_attempts.max(1));
        let call = planned.map(call::of_step).unwrap_or_default();
        let detail = self.execution.steps[list].detail.clone();
        let of_several = |index| planned.and_then(|planned| call::of_several(planned, index));
        let several: Vec<_> = (0..listed.items.len()).map(of_several).collect();
        for (index, value) in listed.items.iter().enumerate() {
            let step_id = format!("{id}~{index}");
            if let Some(&place) = self.places.get(&step_id) {
                // It ran before, and its step was made to run again.
                let known = &mut self.execution.steps[place];
                if known.state() == State::Pending {
                    known.set_state(State::Ready);
                }
                continue;
            }
            let item =
                StepItem { step_id: id.to_owned(), index: i32::try_from(index).unwrap_or(i32::MAX), value: None };
            let title = step_id.clone();
            let several = several.get(index).cloned().flatten();
            let detail = match &several {
                Some((tool, _)) => Some(step::Detail::Tool(ToolStepDetail { tool: tool.clone() })),
                None => detail.clone(),
            };
            let mut step = Step { step_id, title, max_attempts, detail, item: Some(item), ..Step::default() };
            step.set_state(State::Ready);
            let words = match several {
                Some((_, words)) => words,
                None => format!("{} · {call}", shorten(&words::payload(value), MAX_ITEM_CHARS)),
            };
            self.put(step, words, at);
        }
        self.execution.steps[list].item_count = Some(i32::try_from(listed.items.len()).unwrap_or(i32::MAX));
        self.calls[list] = if several.iter().any(Option::is_some) { call } else { for_each(&call, listed.items.len()) };
    }

    /// The approvals that wait for a decision, by name, in the plan's order.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &str> {
        self.execution.steps.iter().flat_map(|step| &step.approvals).map(String::as_str)
    }

    fn apply_to_step(&mut self, event: &ExecutionEvent, kind: &Kind) {
        let Some(&place) = self.places.get(&event.step_id) else { return };
        let Some(step) = self.execution.steps.get_mut(place) else { return };
        if question(&mut self.questions, place, step, event, kind) {
            return;
        }
        let state = match kind {
            Kind::StepStarted(_) => {
                step.attempt = event.attempt;
                // A rate limit that is queued for later makes more of them.
                step.max_attempts = step.max_attempts.max(event.attempt);
                step.start_time = step.start_time.or(event.record_time);
                State::Running
            }
            Kind::StepRetryScheduled(retry) => {
                step.failure = retry.failure.clone();
                let kind = waiting_reason::Kind::Timer.into();
                step.waiting = Some(WaitingReason {
                    kind,
                    begin_time: event.record_time,
                    until_time: retry.retry_time,
                    ..Default::default()
                });
                State::BackingOff
            }
            Kind::StepCompleted(_) => State::Completed,
            Kind::StepFailed(failed) => {
                step.failure = failed.failure.clone();
                State::Failed
            }
            Kind::StepSkipped(skipped) => {
                step.skip_reason = skipped.reason;
                step.skipped_because = skipped.because.clone();
                State::Skipped
            }
            Kind::StepCancelled(_) => State::Cancelled,
            Kind::StepOutcomeUnknown(unknown) => {
                step.failure = unknown.failure.clone();
                State::OutcomeUnknown
            }
            Kind::StepResolved(resolved) => {
                if resolved.result.is_some() {
                    step.output.clone_from(&resolved.result);
                }
                State::Running
            }
            Kind::StepOutputSet(set) => {
                step.output.clone_from(&set.output);
                return;
            }
            Kind::StepCachedResultUsed(used) => {
                step.output.clone_from(&used.result);
                step.failure.clone_from(&used.failure);
                step.cached_result.clone_from(&used.source);
                return;
            }
            Kind::StepItemsCollected(collected) => {
                step.output.clone_from(&collected.output);
                return;
            }
            Kind::StepFallbackSwitched(switched) => {
                let attempts = self.execution.plan.iter().flat_map(|plan| &plan.steps);
                let attempts = attempts
                    .filter(|planned| planned.id == planned_id(step))
                    .find_map(|planned| planned.retry.as_ref());
                step.max_attempts = event.attempt.saturating_add(attempts.map_or(1, |retry| retry.max_attempts.max(1)));
                step.failure = switched.failure.clone();
                step.detail = Some(step::Detail::Tool(ToolStepDetail { tool: switched.fallback_tool.clone() }));
                self.calls[place] = call::kind_of(step);
                State::BackingOff
            }
            Kind::ToolCallEffectProposed(_) | Kind::ToolCallApprovalRequired(_) => State::AwaitingApproval,
            Kind::ApprovalRequested(requested) => {
                step.approvals.push(requested.approval.clone());
                // The gate asks a form: its step waits for the answer.
                if step.state() == State::Waiting {
                    return;
                }
                State::AwaitingApproval
            }
            Kind::ApprovalDecided(decided) => {
                step.approvals.retain(|approval| *approval != decided.approval);
                State::Running
            }
            Kind::WaitEnded(_) => {
                step.approvals.clear();
                State::Running
            }
            Kind::ChildStarted(child) => {
                let (kind, since) = (waiting_reason::Kind::Child.into(), event.record_time);
                let who = format!("the execution `{}`", child.execution_id);
                step.waiting = Some(WaitingReason { kind, begin_time: since, who, ..Default::default() });
                if let Some(step::Detail::Plan(detail)) = &mut step.detail {
                    let (parent, _) = self.execution.name.rsplit_once('/').unwrap_or_default();
                    detail.execution = format!("{parent}/{}", child.execution_id);
                }
                State::Running
            }
            Kind::ChildEnded(_) => {
                step.waiting = None;
                State::Running
            }
            Kind::ChildCreated(_) | Kind::ChildPaused(_) => return,
            Kind::ToolCallRequested(_) => State::Running,
            Kind::WaitStarted(wait) => {
                step.waiting = Some(waiting_for(wait, event.record_time));
                State::Waiting
            }
            Kind::ExecutionCreated(_)
            | Kind::ExecutionStarted(_)
            | Kind::ExecutionPaused(_)
            | Kind::ExecutionResumed(_)
            | Kind::ExecutionCancelRequested(_)
            | Kind::ExecutionRecovered(_)
            | Kind::ExecutionDeadlineExceeded(_)
            | Kind::ExecutionCompensationStarted(_)
            | Kind::ExecutionFinished(_)
            | Kind::ExecutionAwaitingApproval(_)
            | Kind::ExecutionRetried(_)
            | Kind::ExecutionPlanUpdated(_)
            | Kind::BudgetWarning(_)
            | Kind::BudgetExceeded(_)
            | Kind::BudgetOverrun(_)
            | Kind::SignalReceived(_)
            | Kind::StepItemsListed(_)
            | Kind::StepSkipRequested(_)
            | Kind::StepRetryAdvanced(_)
            | Kind::StepRetryCancelled(_)
            | Kind::ToolCallCompleted(_)
            | Kind::ToolCallFailed(_)
            | Kind::ToolCallCancelled(_)
            | Kind::ToolCallOutcomeUnknown(_)
            | Kind::ToolCallDenied(_)
            | Kind::ToolCallDispatched(_)
            | Kind::ToolCallOutput(_) => return,
        };
        let before = step.state();
        if before != state || matches!(kind, Kind::StepStarted(_)) {
            let since = std::mem::replace(&mut self.since[place], event.record_time);
            if before == State::AwaitingApproval {
                let until = event.record_time.as_ref().and_then(time::since_epoch);
                let waited = time::between(since.as_ref(), until).unwrap_or_default();
                let before = step.approval_wait.as_ref().map(time::duration).unwrap_or_default();
                step.approval_wait = Some((before + waited).into());
            }
        }
        step.set_state(state);
        if has_ended(state) {
            step.approvals.clear();
        }
        let waits = matches!(state, State::BackingOff | State::Waiting) || matches!(kind, Kind::ChildStarted(_));
        if !waits {
            step.waiting = None;
        }
        if has_ended(state) {
            step.end_time = event.record_time;
            self.undone(&event.step_id, state);
        }
    }

    /// The rows that are redrawn while it runs, for a window of this many columns: progress, active steps, what they wait for, next
    /// steps.
    pub(crate) fn rows(&self, now: Duration, columns: usize, approvals_announced: bool) -> Vec<Line> {
        let is_active = |state: State| {
            matches!(
                state,
                State::Running | State::AwaitingApproval | State::Waiting | State::BackingOff | State::OutcomeUnknown
            )
        };
        let steps = || self.execution.steps.iter().enumerate();
        let active: Vec<usize> = steps().filter(|(_, step)| is_active(step.state())).map(|(place, _)| place).collect();
        let mut lines = vec![self.header(now, columns)];
        lines.extend(active.iter().take(STEPS_SHOWN).map(|place| self.step_row(*place, now, columns)));
        if let Some(more @ 1..) = active.len().checked_sub(STEPS_SHOWN) {
            lines.push(Line::default().and(Style::Dim, format!("  … and {more} more active")));
        }
        // A step's own row says that it waits for approval.
        let is_news = |reason: &WaitingReason| !(approvals_announced && words::is_pending_approval(reason));
        for wait in self.each_wait(is_news, |reason| words::waiting(reason, now)) {
            let line = Line::default().and(Style::Warn, format!("! {wait}"));
            lines.extend(line.fold(columns.saturating_sub(1).max(1)));
        }
        if !is_over(self.execution.state()) {
            let next = || steps().filter(|(_, step)| matches!(step.state(), State::Pending | State::Ready));
            lines.extend(next().take(NEXT_SHOWN).map(|(place, _)| self.step_row(place, now, columns)));
            if let Some(more @ 1..) = next().count().checked_sub(NEXT_SHOWN) {
                lines.push(Line::default().and(Style::Dim, format!("  … and {more} more pending")));
            }
        }
        lines
    }

    /// `tidy  3 of 6 · 1 running · 1 waiting for approval                12s`. Parts that do not fit are left out from the end.
    fn header(&self, now: Duration, columns: usize) -> Line {
        let count = |state: State| self.execution.steps.iter().filter(|step| step.state() == state).count();
        let ended = self.execution.steps.iter().filter(|step| has_ended(step.state())).count();
        let parts = [
            (count(State::Running), "running", Style::Plain),
            (count(State::AwaitingApproval), "waiting for approval", Style::Warn),
            (count(State::Waiting), "waiting", Style::Plain),
            (count(State::BackingOff), "retrying", Style::Warn),
            (count(State::Failed), "failed", Style::Bad),
        ];
        let since = time::between(self.execution.create_time.as_ref(), Some(now)).unwrap_or_default();
        let since = Line::default().and(Style::Dim, time::short(Duration::from_secs(since.as_secs())));
        let room = columns.saturating_sub(since.width() + 3);
        let mut line = Line::default()
            .and(Style::Strong, shorten(words::title(&self.execution), ID_COLUMNS * 2))
            .and(Style::Plain, format!("  {ended} of {}", words::steps(self.execution.steps.len())))
            .cut(room);
        for (count, what, style) in parts.into_iter().filter(|(count, ..)| *count > 0) {
            let longer = line.clone().and(Style::Dim, " · ").and(style, format!("{count} {what}"));
            if longer.width() > room {
                break;
            }
            line = longer;
        }
        at_the_edge(line, since, columns)
    }

    /// A step as one row: its state first, what it does, and how long.
    fn step_row(&self, place: usize, now: Duration, columns: usize) -> Line {
        let step = &self.execution.steps[place];
        let error = || {
            step.failure.as_ref().map(|failure| shorten(&words::failure(failure), MAX_ERROR_CHARS)).unwrap_or_default()
        };
        let since = self.since[place].or(step.start_time);
        let elapsed = time::between(since.as_ref(), Some(now)).unwrap_or_default();
        let ticking = Line::default().and(Style::Dim, time::short(Duration::from_secs(elapsed.as_secs())));
        let what = self.what(place);
        let attempt = || match step.attempt {
            ..=1 => String::new(),
            attempt => format!("attempt {attempt} of {} · ", step.max_attempts),
        };
        let (style, mark, text, right) = match step.state() {
            State::BackingOff => {
                let until = step.waiting.as_ref().and_then(|waiting| time::since_epoch(waiting.until_time.as_ref()?));
                let wait = time::short(until.unwrap_or(now).saturating_sub(now));
                let retries = words::retries(Some(step), step.attempt);
                (Style::Warn, "↻", format!("retrying ({retries}) in {wait} · {}", error()), Line::default())
            }
            State::AwaitingApproval => (Style::Warn, "?", format!("waiting for approval · {what}"), ticking),
            State::OutcomeUnknown => {
                (Style::Warn, "!", format!("outcome unknown, a person has to look · {}", error()), ticking)
            }
            State::Pending | State::Ready => {
                let open = |id: &&String| self.step(id).is_some_and(|step| !has_ended(step.state()));
                let after: Vec<&str> = self.depends_on[place].iter().filter(open).map(String::as_str).collect();
                let text = if after.is_empty() { what } else { format!("after {}", after.join(", ")) };
                (Style::Dim, "·", text, Line::default())
            }
            State::Completed
            | State::Failed
            | State::Skipped
            | State::Cancelled
            | State::Compensating
            | State::Compensated => {
                return self.ended_row(place, columns);
            }
            State::Waiting => {
                let until = step.waiting.as_ref().and_then(|waiting| time::since_epoch(waiting.until_time.as_ref()?));
                let left = until.map(|until| format!(" · {} left", time::short(until.saturating_sub(now))));
                (Style::Plain, "◦", what + &left.unwrap_or_default(), ticking)
            }
            State::Running | State::Unspecified => {
                let child = step.waiting.as_ref().filter(|waiting| waiting.kind() == waiting_reason::Kind::Child);
                let child = child.map(|waiting| format!(" · {}", waiting.who)).unwrap_or_default();
                (Style::Strong, "●", attempt() + &what + &child, ticking)
            }
        };
        let text_style = if matches!(step.state(), State::Pending | State::Ready) { Style::Dim } else { Style::Plain };
        self.row(place, style, mark, Line::default().and(text_style, text), right, columns)
    }

    /// What a step does: its title, if it has one, and its call.
    fn what(&self, place: usize) -> String {
        let step = &self.execution.steps[place];
        match step.title.as_str() {
            title if title.is_empty() || title == step.step_id => self.calls[place].clone(),
            title => format!("{title} · {}", self.calls[place]),
        }
    }

    /// The row that stays of a step that has ended.
    pub(crate) fn ended(&self, step_id: &str, columns: Option<usize>) -> Option<Line> {
        let &place = self.places.get(step_id)?;
        has_ended(self.execution.steps[place].state()).then(|| self.ended_row(place, columns.unwrap_or(COLUMNS)))
    }

    fn ended_row(&self, place: usize, columns: usize) -> Line {
        let step = &self.execution.steps[place];
        let attempts = match step.attempt {
            ..=1 => String::new(),
            attempts => format!(" · {attempts} attempts"),
        };
        let (style, mark, text) = match step.state() {
            State::Failed => {
                let why = step.failure.as_ref().map(words::failure).unwrap_or_default();
                (Style::Bad, "✗", format!("{why}{attempts}"))
            }
            State::Skipped => {
                (Style::Dim, "-", format!("skipped: {}", words::skipped(step.skip_reason(), &step.skipped_because)))
            }
            State::Cancelled => (Style::Warn, "-", "cancelled".to_owned()),
            State::Compensated => (Style::Dim, "↶", format!("undone: {}", self.what(place))),
            _ => {
                let cached = step.cached_result.as_ref().map(|source| format!(", {}", words::cached(source)));
                (Style::Good, "✓", format!("{}{attempts}{}", self.what(place), cached.unwrap_or_default()))
            }
        };
        let took = machine_time(step).map(time::short).unwrap_or_default();
        let waited = waited_for_people(step).map(|waited| format!("{} for approval + ", time::short(waited)));
        let right = Line::default().and(Style::Dim, waited.unwrap_or_default() + &took);
        let text_style = if step.state() == State::Skipped { Style::Dim } else { Style::Plain };
        self.row(place, style, mark, Line::default().and(text_style, text), right, columns)
    }

    fn row(&self, place: usize, style: Style, mark: &str, text: Line, right: Line, columns: usize) -> Line {
        let ids = self.id_columns.min(columns / 4);
        let id = shorten(&self.execution.steps[place].step_id, ids.max(1));
        let left = Line::default()
            .and(style, mark)
            .and(Style::Plain, " ")
            .column(Style::Strong, id, ids)
            .and(Style::Plain, "  ");
        at_the_edge(left.with(text), right, columns)
    }

    /// What the execution waits for, other than its own calls and timers, each with the command to type next; without durations, and, if every event has been shown, without what events announce.
    pub(crate) fn waits_for(&self, events_shown: bool) -> Vec<String> {
        self.each_wait(|reason| !(events_shown && words::is_announced_by_event(reason)), words::waited_for)
    }

    /// What the execution waits for, other than its own calls and timers; each with the command to type next.
    fn each_wait(
        &self,
        wanted: impl Fn(&WaitingReason) -> bool,
        said: impl Fn(&WaitingReason) -> String,
    ) -> Vec<String> {
        if is_over(self.execution.state()) {
            return Vec::new();
        }
        let mut waits: Vec<String> = Vec::new();
        for reason in &self.execution.waiting {
            if reason.kind() == waiting_reason::Kind::Timer || words::is_own_call(reason) || !wanted(reason) {
                continue;
            }
            let next =
                next::of_server(&reason.next_command).map(|command| format!("; next: {command}")).unwrap_or_default();
            waits.push(said(reason) + &next);
        }
        waits.truncate(STEPS_SHOWN);
        waits
    }
}

/// What a step does that runs for each entry of a list.
fn for_each(call: &str, entries: usize) -> String {
    format!("for each of {}: {call}", words::entries(entries))
}

/// How many attempts a plan gives each call of a step; `None` when it is not known.
fn planned_attempts(plan: Option<&Plan>, step: &Step) -> Option<i32> {
    let planned = plan?.steps.iter().find(|planned| planned.id == planned_id(step))?;
    Some(planned.retry.as_ref().map_or(1, |retry| retry.max_attempts.max(1)))
}

/// The id of the step of the plan that says what a step does.
fn planned_id(step: &Step) -> &str {
    step.item.as_ref().map_or(&step.step_id, |item| &item.step_id)
}

/// Whether a step in this state has ended.
pub(crate) fn has_ended(state: State) -> bool {
    matches!(
        state,
        State::Completed | State::Failed | State::Skipped | State::Cancelled | State::Compensating | State::Compensated
    )
}

/// How long a step that has ended took, without the time spent waiting for decisions; `None` for one that never started.
pub(crate) fn machine_time(step: &Step) -> Option<Duration> {
    let end = step.end_time.as_ref().and_then(time::since_epoch);
    let waited = step.approval_wait.as_ref().map(time::duration).unwrap_or_default();
    time::between(step.start_time.as_ref(), end).map(|took| took.saturating_sub(waited))
}

/// How long a step waited for decisions; `None` below a second.
pub(crate) fn waited_for_people(step: &Step) -> Option<Duration> {
    step.approval_wait.as_ref().map(time::duration).filter(|waited| *waited >= WORTH_SAYING)
}

/// A row with something at its right edge, which is cut last.
fn at_the_edge(left: Line, right: Line, columns: usize) -> Line {
    // As in the rows that are redrawn, the last column stays free.
    let columns = columns.saturating_sub(1);
    if right.width() == 0 || right.width() + ID_COLUMNS > columns {
        return left.cut(columns);
    }
    let room = columns - right.width() - 2;
    let left = left.cut(room);
    let gap = columns - right.width() - left.width();
    left.trimmed().and(Style::Plain, " ".repeat(gap)).with(right)
}

#[cfg(test)]
mod tests;
