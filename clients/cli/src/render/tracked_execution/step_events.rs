//! The events of a step: what each changes in the tracked execution.

use belay_proto::v1::{ExecutionEvent, ToolStepDetail, WaitingReason, step, step::State, waiting_reason};

use super::{
    TrackedExecution,
    steps::{has_ended, planned_id},
    waits::{question, waiting_for},
};
use crate::render::{
    call,
    event_description::{ApprovalChange, CallChange, NextAttempt, StepChange, StepEnd},
    time,
};

impl TrackedExecution {
    pub(super) fn apply_to_step(&mut self, event: &ExecutionEvent, change: StepChange<'_>) {
        let Some(&place) = self.places.get(&event.step_id) else { return };
        let Some(step) = self.execution.steps.get_mut(place) else { return };
        if question(&mut self.questions, place, step, event, change) {
            return;
        }
        let state = match change {
            StepChange::Started => {
                step.attempt = event.attempt;
                // A rate limit that is queued for later makes more of them.
                step.max_attempts = step.max_attempts.max(event.attempt);
                step.start_time = step.start_time.or(event.record_time);
                State::Running
            }
            StepChange::AttemptFailed(NextAttempt::Retry(retry)) => {
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
            StepChange::AttemptFailed(NextAttempt::Fallback(switched)) => {
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
            StepChange::Ended(StepEnd::Completed) => State::Completed,
            StepChange::Ended(StepEnd::Failed(failure)) => {
                step.failure = failure.cloned();
                State::Failed
            }
            StepChange::Ended(StepEnd::Skipped(skipped)) => {
                step.skip_reason = skipped.reason;
                step.skipped_because = skipped.because.clone();
                step.skipped_group = skipped.group.clone();
                State::Skipped
            }
            StepChange::Ended(StepEnd::Cancelled) => State::Cancelled,
            StepChange::OutcomeUnknown(failure) => {
                step.failure = failure.cloned();
                State::OutcomeUnknown
            }
            StepChange::Resolved(result) => {
                if result.is_some() {
                    step.output = result.cloned();
                }
                State::Running
            }
            StepChange::Output(output) => {
                step.output = output.cloned();
                return;
            }
            StepChange::CachedResult(used) => {
                step.output.clone_from(&used.result);
                step.failure.clone_from(&used.failure);
                step.cached_result.clone_from(&used.source);
                return;
            }
            StepChange::Approval(ApprovalChange::Needed(_)) => State::AwaitingApproval,
            StepChange::Approval(ApprovalChange::Requested(name)) => {
                step.approvals.push(name.to_owned());
                // The gate asks a form: its step waits for the answer.
                if step.state() == State::Waiting {
                    return;
                }
                State::AwaitingApproval
            }
            StepChange::Approval(ApprovalChange::Decided(name)) => {
                step.approvals.retain(|approval| approval != name);
                State::Running
            }
            StepChange::WaitStarted(wait) => {
                step.waiting = Some(waiting_for(wait, event.record_time));
                State::Waiting
            }
            StepChange::WaitEnded => {
                step.approvals.clear();
                State::Running
            }
            StepChange::ChildStarted(child) => {
                let (kind, since) = (waiting_reason::Kind::Child.into(), event.record_time);
                let who = format!("the execution `{}`", child.execution_id);
                step.waiting = Some(WaitingReason { kind, begin_time: since, who, ..Default::default() });
                if let Some(step::Detail::Plan(detail)) = &mut step.detail {
                    let (parent, _) = self.execution.name.rsplit_once('/').unwrap_or_default();
                    detail.execution = format!("{parent}/{}", child.execution_id);
                }
                State::Running
            }
            StepChange::ChildEnded => {
                step.waiting = None;
                State::Running
            }
            StepChange::Call(CallChange::Requested(_)) => State::Running,
            StepChange::Call(
                CallChange::Dispatched
                | CallChange::Completed(_)
                | CallChange::Failed(_)
                | CallChange::Denied(_)
                | CallChange::WithoutOutcome(_),
            )
            | StepChange::None => return,
        };
        let before = step.state();
        if before != state || matches!(change, StepChange::Started) {
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
        let waits =
            matches!(state, State::BackingOff | State::Waiting) || matches!(change, StepChange::ChildStarted(_));
        if !waits {
            step.waiting = None;
        }
        if has_ended(state) {
            step.end_time = event.record_time;
            self.undone(&event.step_id, state);
        }
    }
}
