//! Decides which events to record now, and which actions the driver has to perform.

mod finish;
mod resolve;

use std::cell::Cell;

use crate::{
    Action, Actor, Blobs, Body, DecideContext, ErrorClass, Event, Execution, ExecutionEvent, ExecutionState, Failure,
    LimitRoom, LimitState, NoBlobs, OperationEvent, OperationKey, PauseCause, Progress, SkipReason, StepEvent, StepKey,
    StepState, Timestamp,
    state::{StepRecord, Stop},
    steps::{self, next::Next},
    violation::IllegalEvent,
};
use belay_reasons as reasons;

impl Execution {
    /// Records something that happened outside: a reply of a runner, a decision of a person.
    ///
    /// # Errors
    /// [`IllegalEvent`] when it is not legal now; the execution is unchanged then.
    pub fn record(
        &mut self,
        now: Timestamp,
        actor: Option<Actor>,
        body: impl Into<Body>,
    ) -> Result<Event, IllegalEvent> {
        let (sequence, time) = (self.last_sequence + 1, now.max(self.last_time));
        let event = Event { sequence, time, actor, body: body.into() };
        // `apply` checks events from outside before it changes anything.
        self.apply(&event)?;
        Ok(event)
    }

    /// [`Self::advance_with`] for an execution without blobs.
    pub fn advance(&mut self, context: DecideContext<'_>) -> Vec<Event> {
        self.advance_with(context, &NoBlobs)
    }

    /// Decides everything that can be decided now, and applies it. The driver has to store the events, and the blobs that they name, before it acts
    /// on them. When a decision needs a blob that is not at hand, the driver gets it and calls this again.
    pub fn advance_with(&mut self, context: DecideContext<'_>, blobs: &dyn Blobs) -> Vec<Event> {
        let now = context.now.max(self.last_time);
        let context = DecideContext { now, ..context };
        let mut events = Vec::new();
        loop {
            let decided = self.decide(context, blobs);
            if decided.is_empty() {
                return events;
            }
            for body in decided {
                let event = Event { sequence: self.last_sequence + 1, time: now, actor: None, body };
                self.apply(&event).expect("decide only makes moves that exist; shown by the property tests");
                events.push(event);
            }
        }
    }

    /// Returns the actions of the driver now, besides waiting until [`Self::wake_at`].
    pub fn actions(&self) -> Vec<Action> {
        self.needed().collect()
    }

    fn needed(&self) -> impl Iterator<Item = Action> + '_ {
        let operations = self.operations.iter().filter(|_| !self.state.is_terminal());
        operations.filter_map(|operation| {
            Some(Action { operation: operation.key, required: steps::action(self, operation)? })
        })
    }

    /// When a retry, a wait or the deadline is due next; `None` when none is pending.
    pub fn wake_at(&self) -> Option<Timestamp> {
        if self.state.is_terminal() {
            return None;
        }
        let deadline = match self.stop {
            None | Some(Stop::Error { .. }) => self.deadline,
            Some(Stop::Cancelled | Stop::Killed | Stop::Deadline) => None,
        };
        let may_begin = self.paused.is_none() && self.stop.is_none();
        let may_start = may_begin && self.holds_limits();
        // Without a free slot the execution waits for a running call.
        let backing_off = self.index.backing_off.first().filter(|_| may_start && self.has_free_slot());
        let timer = steps::wait::next_timer(self).filter(|_| self.stop.is_none());
        // Once it has asked for its limits, it is their turn that it waits for.
        let has_asked = self.limits != LimitState::None;
        let start = self.created.start_at.filter(|_| may_begin && self.started_at.is_none() && !has_asked);
        let resume = self.paused.as_ref().and_then(|paused| paused.resume_at).filter(|_| self.stop.is_none());
        let round = self.rounds_that_may_start().next().filter(|_| may_start);
        let times =
            [start, deadline, resume, round.map(|(at, _)| at), backing_off.map(|&(at, _)| at), timer.map(|(at, _)| at)];
        times.into_iter().flatten().min()
    }

    /// Whether the driver has nothing to do: the execution waits for a time, a decision, a person or nothing at all, and can leave memory.
    pub fn is_parked(&self) -> bool {
        self.needed().next().is_none()
    }

    /// The calls whose end a lost executor may have missed: those for which there is something to do.
    pub fn in_doubt(&self) -> Vec<OperationKey> {
        let is_call =
            |key: &OperationKey| self.operation(*key).is_some_and(|operation| operation.tool_call().is_some());
        self.needed().map(|action| action.operation).filter(is_call).collect()
    }

    /// The next events that follow from the current state and time; empty when nothing can be decided.
    ///
    /// Returns one event, or a group that would come out the same one by one: an executor that crashes after any event continues as if it
    /// had not crashed.
    fn decide(&self, context: DecideContext<'_>, blobs: &dyn Blobs) -> Vec<Body> {
        if self.state.is_terminal() {
            return Vec::new();
        }
        let now = context.now;
        if self.deadline.is_some_and(|deadline| deadline <= now) && !self.stop.is_some_and(Stop::is_of_execution) {
            return vec![ExecutionEvent::DeadlineExceeded.into()];
        }
        if let Some(report) = self.due_report() {
            return vec![report];
        }
        // Before what the end of its call means for the step.
        if let Some(withdrawn) = steps::question::withdrawn(self) {
            return vec![withdrawn];
        }
        if let Some(held) = steps::question::held(self) {
            return vec![held];
        }
        if let Some(&step) = self.index.to_resolve.first() {
            // Without an event something is to be looked up first.
            return self.resolve_step(step, now, blobs).into_iter().collect();
        }
        if let Some(turn) = self.pause_or_resume(now, blobs) {
            return vec![turn.into()];
        }
        if let Some(stop) = self.stop {
            if let Some(cancelled) = steps::wait::cancelled(self) {
                return vec![cancelled];
            }
            let drain = self.drain(stop);
            if !drain.is_empty() {
                return drain;
            }
        } else {
            let next = self.decide_by_mode().or_else(|| self.skip_next()).or_else(|| self.next_event(context, blobs));
            if let Some(next) = next {
                return vec![next];
            }
        }
        // One whose steps a person has skipped before its time begins at its time, and ends then.
        let has_begun = self.started_at.is_some() || self.stop.is_some();
        if !self.has_nothing_left() || !has_begun {
            return Vec::new();
        }
        // Also the last step of a plan can be verified before that has its end.
        if self.stop.is_none() && self.paused_for_verification().is_some() {
            return Vec::new();
        }
        if let Some(escalated) = self.escalated(now) {
            return escalated;
        }
        match self.undone() {
            steps if steps.is_empty() => self.finish(now, blobs).into_iter().collect(),
            // Nothing starts while it is paused.
            _ if self.paused.is_some() => Vec::new(),
            _ if !self.holds_limits() => self.next_of_limits(blobs).map(Body::from).into_iter().collect(),
            steps => vec![ExecutionEvent::CompensationStarted { steps }.into()],
        }
    }

    /// A rate limit pauses an execution whose plan queues it for later; a pause that ends by itself ends.
    fn pause_or_resume(&self, now: Timestamp, blobs: &dyn Blobs) -> Option<ExecutionEvent> {
        if self.stop.is_some() {
            return None;
        }
        match &self.paused {
            Some(paused) => {
                let is_due = paused.resume_at.is_some_and(|at| at <= now);
                let has_room = || paused.namespace_budget().is_some() && blobs.has_namespace_room();
                (is_due || has_room()).then_some(ExecutionEvent::Resumed)
            }
            None => self.verification().or_else(|| {
                self.queued_until.filter(|until| *until > now).map(|until| ExecutionEvent::Paused {
                    reason: "a rate limit: queued for later".to_owned(),
                    discard_calls: false,
                    resume_at: Some(until),
                    cause: PauseCause::Request,
                })
            }),
        }
    }

    /// The pause for which the model of a step has asked that is done.
    fn verification(&self) -> Option<ExecutionEvent> {
        // One that was made to run again since has nothing to be verified yet.
        let due = self.verification_due.iter().map(|&step| &self.steps[step]);
        let due: Vec<String> =
            due.filter(|step| step.state == StepState::Completed).map(|step| format!("`{}`", step.id)).collect();
        let reason = match due.as_slice() {
            [] => return None,
            [step] => format!("step {step} is done, and its model asks for verification"),
            steps => format!("steps {} are done, and their models ask for verification", steps.join(", ")),
        };
        Some(ExecutionEvent::Paused { reason, discard_calls: false, resume_at: None, cause: PauseCause::Verification })
    }

    fn skip_next(&self) -> Option<Body> {
        let step = *self.index.to_skip.first()?;
        let (reason, because) = self.steps[step].to_skip?;
        Some(self.skip(step, reason, Some(because)))
    }

    /// Returns the next event of an execution that is not stopped.
    fn next_event(&self, context: DecideContext<'_>, blobs: &dyn Blobs) -> Option<Body> {
        if self.paused.is_some() {
            return steps::wait::due(self, context.now);
        }
        let is_due = || self.created.start_at.is_none_or(|at| at <= context.now);
        if self.started_at.is_none() && !is_due() {
            return None;
        }
        if !self.holds_limits() {
            return self.next_of_limits(blobs).map(Body::from);
        }
        if self.started_at.is_none() {
            return Some(ExecutionEvent::Started.into());
        }
        let awaits = || {
            (self.state == ExecutionState::Running && self.only_awaits_approvals())
                .then(|| ExecutionEvent::AwaitingApproval.into())
        };
        let next = steps::wait::due(self, context.now).or_else(|| self.dispatch_next());
        next.or_else(|| self.start_next(context, blobs)).or_else(awaits)
    }

    /// Whether it holds all of its limits, or has none.
    pub(crate) fn holds_limits(&self) -> bool {
        self.created.limits.is_empty() || self.limits == LimitState::Held
    }

    /// The next event of an execution that does not hold its limits: it asks for them, has them when it is its turn, or does not start when one refuses.
    fn next_of_limits(&self, blobs: &dyn Blobs) -> Option<ExecutionEvent> {
        if self.limits == LimitState::None {
            return Some(ExecutionEvent::LimitsRequested);
        }
        match blobs.limit_room() {
            LimitRoom::Free => Some(ExecutionEvent::LimitsAcquired),
            // Compensation waits, also for a limit that refuses starts.
            LimitRoom::Full { refused: Some(limit) } if self.stop.is_none() => {
                let key = self.created.limits.get(limit).map_or("", |limit| limit.key.as_str());
                Some(ExecutionEvent::CancelRequested { reason: format!("the limit `{key}` is full"), kill: false })
            }
            LimitRoom::Full { .. } | LimitRoom::Wanted => None,
        }
    }

    /// Gives a free slot to the first approved call in plan order.
    fn dispatch_next(&self) -> Option<Body> {
        let &call = self.index.queued.first().filter(|_| self.has_slot_to_dispatch())?;
        Some(Body::Operation { id: self.operation_id(call), event: OperationEvent::Dispatched })
    }

    /// Whether a step that has started may send a call. There is no free slot while commits beside the running calls occupy them all.
    pub(crate) fn has_free_slot(&self) -> bool {
        self.index.slots_held - self.index.slots_idle < self.plan().parallelism()
    }

    /// Whether a slot is held by no step.
    pub(crate) fn has_unheld_slot(&self) -> bool {
        self.index.slots_held < self.plan().parallelism()
    }

    /// Whether an approved call may take a slot. Steps that have started may wait for what such a call holds of a budget, and keep slots meanwhile: it
    /// takes one beside them.
    pub(crate) fn has_slot_to_dispatch(&self) -> bool {
        self.has_unheld_slot() || (self.has_free_slot() && (self.has_budgets() || self.has_namespace_holds()))
    }

    /// The first step that has started and whose next operation can be requested.
    pub(crate) fn next_to_request(&self) -> Option<StepKey> {
        self.index.to_request.iter().copied().find(|&step| !self.waits_for_budget(step))
    }

    /// The same, but for turns of models that wait for tokens or money which others hold: those behind them go on.
    fn next_with_supply(&self, blobs: &dyn Blobs) -> Option<StepKey> {
        let mut waiting = self.index.to_request.iter().copied().filter(|&step| !self.waits_for_budget(step));
        waiting.find(|&step| !steps::agent::turn_waits(self, step, blobs))
    }

    /// The first step that can start and then holds a slot.
    pub(crate) fn next_ready(&self) -> Option<StepKey> {
        // The steps for the entries of one list wait together.
        let waits = Cell::new(None);
        self.index.first_ready(self.plan(), |step| {
            let list = self.steps[step].runs_for();
            if list.is_some() && waits.get() == list {
                return false;
            }
            let has_to_wait = self.waits_for_budget(step);
            if has_to_wait && list.is_some() {
                waits.set(list);
            }
            !has_to_wait
        })
    }

    /// The rounds that begin after a delay and that nothing else holds up, by their times.
    fn rounds_that_may_start(&self) -> impl Iterator<Item = (Timestamp, StepKey)> + '_ {
        self.index.ready_from.iter().copied().filter(|&(_, step)| {
            let record = &self.steps[step];
            let is_free = |resource: &String| self.index.is_free(self.plan(), resource);
            (!record.needs_slot() || self.has_unheld_slot())
                && record.resources().iter().all(is_free)
                && !self.waits_for_budget(step)
        })
    }

    /// Starts next: a step that needs no slot, else the operation of a step that has started, else the retry that has been due longest, else the round that
    /// has been due longest, else the first ready step in plan order. A step that waits for room for the entries of its list holds up none of them.
    fn start_next(&self, context: DecideContext<'_>, blobs: &dyn Blobs) -> Option<Body> {
        for &step in &self.index.to_start_without_slot {
            match self.next_of_step(step, context, blobs) {
                Next::Event(body) => return Some(body),
                Next::Data => return None,
                Next::Room => {}
            }
        }
        let room = self.has_free_slot();
        let to_request = || self.next_with_supply(blobs).filter(|_| room);
        let due = self.index.backing_off.first().filter(|(not_before, _)| *not_before <= context.now);
        let retry = || due.filter(|_| room).map(|&(_, step)| step);
        let rounds = || self.rounds_that_may_start().take_while(|(at, _)| *at <= context.now);
        let round = || rounds().next().map(|(_, step)| step);
        let ready = || self.has_unheld_slot().then(|| self.next_ready()).flatten();
        let step = to_request().or_else(retry).or_else(round).or_else(ready)?;
        match self.next_of_step(step, context, blobs) {
            Next::Event(body) => Some(body),
            Next::Data | Next::Room => None,
        }
    }

    fn next_of_step(&self, step: StepKey, context: DecideContext<'_>, blobs: &dyn Blobs) -> Next {
        // An earlier result, which takes the place of one that came too late, is still checked.
        let is_checked = self.steps[step].has_done() && self.steps[step].cached_from().is_some();
        if !is_checked && self.step_deadline(step).is_some_and(|deadline| deadline <= context.now) {
            return Next::Event(self.fail(step, self.out_of_time(step, context.now)));
        }
        match self.steps[step].needs_operation() {
            true => steps::next(self, step, context, blobs),
            false => self.start(step, blobs).map_or(Next::Data, Next::Event),
        }
    }

    /// Starts an attempt, if the step's condition lets it run; it is asked before the first.
    fn start(&self, step: StepKey, blobs: &dyn Blobs) -> Option<Body> {
        let record = &self.steps[step];
        if let Some(condition) = record.condition().filter(|_| !record.has_started()) {
            match steps::condition::holds(self, step, None, condition, blobs)? {
                Ok(true) => {}
                Ok(false) => return Some(self.skip(step, SkipReason::ConditionFalse, None)),
                Err(failure) => return Some(self.fail(step, failure)),
            }
        }
        Some(self.about(step, record.attempt + 1, StepEvent::Started))
    }

    /// When the step has to have ended, by its own limit or by that of a group that it stands in.
    pub(crate) fn step_deadline(&self, step: StepKey) -> Option<Timestamp> {
        let record = &self.steps[step];
        // That of a step that runs for each entry of a list is the limit of each.
        let limit = record.spec.timeout().filter(|_| !record.has_entries());
        let whole = self.timed(step);
        // Time spent waiting for approval does not count towards the step's time limit.
        let own = limit.zip(whole.started_at).map(|(limit, started)| started.saturating_add(limit + whole.waited));
        [own, self.group_deadline(step).map(|(deadline, _)| deadline)].into_iter().flatten().min()
    }

    /// The step for which a limit of time counts: that of a step with a goal is for all its entries together, and so is what people take to decide.
    fn timed(&self, step: StepKey) -> &StepRecord {
        let record = &self.steps[step];
        record.runs_for().filter(|_| record.is_of_agent()).map_or(record, |whole| &self.steps[whole])
    }

    /// When the first of the groups that the step stands in ends, and which that is; `None` when none of them has begun that has a limit.
    pub(crate) fn group_deadline(&self, step: StepKey) -> Option<(Timestamp, &str)> {
        let record = &self.steps[step];
        // What undoes a step is done when nothing else runs any more; a list fails with its entries.
        if record.compensates().is_some() || record.items.listed.is_some() {
            return None;
        }
        let begun = record
            .spec
            .group_timeouts()
            .iter()
            .filter_map(|(group, limit)| Some((group, limit, self.groups.get(group)?)));
        let waited = self.timed(step).waited;
        begun.map(|(group, limit, begun)| (begun.saturating_add(*limit + waited), group.as_str())).min()
    }

    /// The failure of a step whose time has run out before its next call.
    fn out_of_time(&self, step: StepKey, now: Timestamp) -> Failure {
        let message = match self.group_deadline(step).filter(|(deadline, _)| *deadline <= now) {
            Some((_, group)) => format!("The time limit of the group `{group}` ran out before the step had ended."),
            None => "The step's time limit ran out between two calls.".to_owned(),
        };
        Failure::new(ErrorClass::Timeout, reasons::STEP_TIMEOUT, message)
    }

    pub(crate) fn fail(&self, step: StepKey, failure: Failure) -> Body {
        let event = StepEvent::Failed { failure, progress: self.progress_with(step) };
        self.about(step, self.steps[step].attempt, event)
    }

    fn about(&self, step: StepKey, attempt: u32, event: StepEvent) -> Body {
        Body::Step { step: self.steps[step].id.clone(), attempt, event }
    }

    /// The progress once a step has ended as well.
    pub(crate) fn progress_with(&self, step: StepKey) -> Progress {
        self.progress(usize::from(self.steps[step].is_counted()))
    }

    fn progress(&self, more: usize) -> Progress {
        Progress { done: self.totals.done() + more, total: self.totals.total }
    }
}
