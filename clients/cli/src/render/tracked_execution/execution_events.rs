//! The events of an execution: what each changes in the tracked execution.

use belay_proto::v1::{
    ExecutionEvent, ExecutionPlanUpdated, ExecutionRetried, SkipReason, Step, WaitingReason, execution, step::State,
    waiting_reason,
};
use pbjson_types::Timestamp;

use super::{TrackedExecution, steps::planned_attempts};
use crate::{
    follow::is_over,
    next,
    render::{
        event_description::{EventChange, EventDescription, ExecutionChange, describe},
        words,
    },
};

impl TrackedExecution {
    /// Moves on by an event. One that the snapshot already covers changes nothing but the times.
    pub(crate) fn apply(&mut self, event: &ExecutionEvent) {
        let EventDescription { change, idle, .. } = describe(event);
        if !event.ephemeral {
            self.pause.see(idle, event.record_time);
        }
        if event.sequence <= self.execution.last_sequence {
            return;
        }
        self.execution.last_sequence = event.sequence;
        // Events announce waits for a person or a resume; the server reports services that are unavailable.
        self.execution.waiting.retain(|reason| !words::is_announced_by_event(reason));
        match change {
            EventChange::None => {}
            EventChange::Execution(change) => self.apply_to_execution(event, change),
            EventChange::Step(change) => {
                if self.execution.state() == execution::State::AwaitingApproval {
                    self.execution.set_state(execution::State::Running);
                }
                self.apply_to_step(event, change);
            }
        }
    }

    fn apply_to_execution(&mut self, event: &ExecutionEvent, change: ExecutionChange<'_>) {
        match change {
            ExecutionChange::Started => {
                self.execution.set_state(execution::State::Running);
                self.execution.start_time = event.record_time;
            }
            ExecutionChange::State(state) => self.execution.set_state(state),
            ExecutionChange::Paused(resume_time) => {
                let by = event.actor.as_ref().map(|actor| &actor.principal);
                let by = by.cloned().unwrap_or_default();
                self.paused(by, event.record_time, resume_time);
            }
            ExecutionChange::Finished(finished) => {
                self.execution.set_state(finished.state());
                self.execution.totals = finished.totals;
                self.execution.failure = finished.failure.clone();
                self.execution.end_time = event.record_time;
            }
            ExecutionChange::Retried(retried) => self.retried(retried, event.record_time),
            ExecutionChange::PlanUpdated(updated) => self.plan_updated(updated),
            ExecutionChange::CompensationStarted(started) => self.compensation_started(started, event.record_time),
            ExecutionChange::ItemsListed(listed) => self.items_listed(&event.step_id, listed, event.record_time),
            ExecutionChange::Signal(_) => {}
        }
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
        *self = TrackedExecution { since, pause, ..TrackedExecution::new(execution) };
    }
}
