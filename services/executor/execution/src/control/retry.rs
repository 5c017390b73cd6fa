//! Selects the steps that run again on a principal's request.

use std::collections::BTreeSet;

use belay_plan::{Escalation, Then};

use super::{NewPlan, Refused};
use crate::{
    Actor, Body, EscalationRetry, Execution, ExecutionEvent, PauseCause, Retried, RetryRequest, SkipReason, StepEvent,
    StepId, StepKey, StepState, StepView, Timestamp, state::Stop,
};

impl Execution {
    /// The events that have the steps run again that did not complete, and all that depend on them; the first is [`ExecutionEvent::Retried`].
    ///
    /// Steps that a condition or a person has skipped stay skipped, unless they depend on a step that runs again.
    pub(super) fn retried(
        &self,
        now: Timestamp,
        actor: &Actor,
        request: RetryRequest,
        plan: Option<NewPlan>,
    ) -> Result<Vec<Body>, Refused> {
        let has_ended = self.state.is_terminal();
        let from = request.from.clone();
        let steps = self.to_retry(from.as_ref())?;
        // The steps for the entries of a list are skipped, and not the step that collects what they have done. What a model has called is not: it is part of its step.
        let failed = |key: &&StepKey| {
            (self.steps[**key].items.steps.is_empty() || self.steps[**key].spec.agent().is_some())
                && request.skip_failed
                && self.steps[**key].state == StepState::Failed
        };
        let skipped: Vec<StepKey> = steps.iter().filter(failed).copied().collect();
        let reason = request.reason.clone();
        let request_pauses = request.start_paused;
        let start_paused = request_pauses && self.paused.is_none();
        let deadline =
            if has_ended { self.plan().timeout().map(|limit| now.saturating_add(limit)) } else { self.deadline };
        let steps = self.ids(steps);
        let retried = Retried { steps, request, deadline, escalation: None };
        let mut events = vec![ExecutionEvent::Retried(Box::new(retried)).into()];
        events.extend(skipped.into_iter().map(|key| {
            let (step, attempt) = (self.steps[key].id.clone(), self.steps[key].attempt);
            Body::Step { step, attempt, event: StepEvent::SkipRequested { reason: reason.clone() } }
        }));
        if let Some(plan) = plan {
            // What it may change is known once the steps that run again have not started.
            let mut then = self.clone();
            for event in &events {
                let recorded = then.record(now, Some(actor.clone()), event.clone());
                recorded.map_err(|illegal| Refused::by(illegal.violation, self.state, from.as_ref()))?;
            }
            events.push(then.updated(now, plan, reason.clone()));
        }
        // The plan has paused it for just this.
        let resumes = self.is_escalated && self.paused.is_some() && !request_pauses;
        events.extend(resumes.then(|| ExecutionEvent::Resumed.into()));
        events.extend(start_paused.then(|| {
            ExecutionEvent::Paused { reason, discard_calls: false, resume_at: None, cause: PauseCause::Request }.into()
        }));
        Ok(events)
    }

    fn ids(&self, steps: BTreeSet<StepKey>) -> Vec<StepId> {
        steps.into_iter().map(|key| self.steps[key].id.clone()).collect()
    }

    /// The next events of the plan's escalation, now that everything has ended: the failed steps are retried later, or the execution waits for a person. An
    /// empty list means that it is waiting already; `None` that the execution ends.
    pub(crate) fn escalated(&self, now: Timestamp) -> Option<Vec<Body>> {
        let Escalation { retries, backoff, then } = self.plan().escalation()?;
        let is_stopped = self.stop.is_some_and(Stop::is_of_execution) || self.compensation.is_some();
        if self.totals.failed == 0 || is_stopped || self.is_escalated && self.paused.is_none() {
            return None;
        }
        let may_retry = self.escalations < *retries && self.may_succeed();
        if !may_retry && *then == Then::Fail {
            return None;
        }
        if self.paused.is_some() {
            return Some(Vec::new());
        }
        if may_retry && let Ok(steps) = self.to_retry(None) {
            let resume_at = now.saturating_add(backoff.delay(self.escalations));
            let escalation = Some(EscalationRetry { number: self.escalations + 1, retries: *retries, resume_at });
            let (steps, request, deadline) = (self.ids(steps), RetryRequest::default(), self.deadline);
            let retried = Retried { steps, request, deadline, escalation };
            return Some(vec![ExecutionEvent::Retried(Box::new(retried)).into()]);
        }
        let reason = match self.escalations {
            0 => "steps have failed".to_owned(),
            1 => "steps have failed, also when they ran again".to_owned(),
            count => format!("steps have failed, also when they ran again, {count} times"),
        };
        Some(vec![
            ExecutionEvent::Paused { reason, discard_calls: false, resume_at: None, cause: PauseCause::Request }.into(),
        ])
    }

    /// Whether all its steps have ended and only a pause keeps it from what follows, so that a principal may have run again what has failed, also when that
    /// has stopped it.
    pub(crate) fn waits_for_retry(&self) -> bool {
        self.paused.is_some() && self.has_nothing_left() && !self.stop.is_some_and(Stop::is_of_execution)
    }

    /// Whether every step that has failed may succeed when it runs again.
    fn may_succeed(&self) -> bool {
        let mut failed =
            self.steps.iter().filter(|(_, record)| record.state == StepState::Failed && record.is_counted());
        failed.all(|(_, record)| record.failure.as_ref().is_some_and(|failure| failure.class.is_retryable()))
    }

    /// The steps that run again: those that did not complete, the one that a request names, and all that depend on them. Whether they can is for
    /// [`Execution::apply`] to say.
    fn to_retry(&self, from: Option<&StepId>) -> Result<BTreeSet<StepKey>, Refused> {
        let from = from.map(|id| self.step_named(id)).transpose()?;
        let retried = self.steps().filter(|step| self.is_retried(step)).map(|step| step.key);
        let mut steps: BTreeSet<StepKey> = retried.chain(from).collect();
        self.add_lists(&mut steps, from);
        let mut dependents: Vec<StepKey> = steps.iter().copied().collect();
        while let Some(step) = dependents.pop() {
            let ended =
                self.steps[step].dependents.iter().filter(|&&dependent| self.steps[dependent].state.is_terminal());
            dependents.extend(ended.filter(|&&dependent| steps.insert(dependent)));
        }
        Ok(steps)
    }
}

impl Execution {
    /// Whether a step runs again, whatever it depends on: it did not complete, or what it did was undone.
    fn is_retried(&self, step: &StepView<'_>) -> bool {
        let is_undone = step.compensation() == Some(StepState::Completed);
        self.steps[step.key].is_counted() && (is_undone || is_retried(step.state(), step.skipped()))
    }

    /// A step runs again that runs for each entry of a list when the step for one of them does; all of these when a principal names the step itself.
    fn add_lists(&self, steps: &mut BTreeSet<StepKey>, from: Option<StepKey>) {
        let lists: Vec<StepKey> = steps.iter().filter_map(|&step| self.steps[step].runs_for()).collect();
        steps.extend(lists);
        steps.extend(from.into_iter().flat_map(|from| self.steps[from].items.current()));
    }
}

/// Whether a step runs again that ended like this, whatever it depends on.
fn is_retried(state: StepState, skipped: Option<(SkipReason, Option<StepKey>)>) -> bool {
    match (state, skipped) {
        (StepState::Failed | StepState::Cancelled, _) => true,
        (StepState::Skipped, Some((reason, _))) => match reason {
            SkipReason::StopOnError | SkipReason::Cancelled | SkipReason::TimedOut => true,
            SkipReason::DependencyFailed
            | SkipReason::DependencySkipped
            | SkipReason::ApprovalSkipped
            | SkipReason::NonInteractive
            | SkipReason::Requested
            | SkipReason::PlanUpdated
            | SkipReason::NotListed
            | SkipReason::ConditionFalse => false,
        },
        (
            StepState::Pending
            | StepState::Ready
            | StepState::Running
            | StepState::AwaitingApproval
            | StepState::Waiting
            | StepState::BackingOff
            | StepState::OutcomeUnknown
            | StepState::Completed
            | StepState::Skipped,
            _,
        ) => false,
    }
}
