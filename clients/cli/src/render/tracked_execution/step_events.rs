//! The events of a step: what each changes in the tracked execution.

use belay_proto::v1::{
    ExecutionEvent, ToolStepDetail, WaitingReason, execution_event::Kind, step, step::State, waiting_reason,
};

use super::{
    TrackedExecution,
    steps::{has_ended, planned_id},
    waits::{question, waiting_for},
};
use crate::render::{call, time};

impl TrackedExecution {
    pub(super) fn apply_to_step(&mut self, event: &ExecutionEvent, kind: &Kind) {
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
}
