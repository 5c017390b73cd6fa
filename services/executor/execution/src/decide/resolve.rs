//! Resolves a step by the end of its operation.

use std::time::Duration;

use belay_plan::QUEUE_DELAY;

use crate::{
    ApprovalMode, Blobs, Body, ErrorClass, Execution, Failure, SkipReason, StepEvent, StepKey, Timestamp, classify,
    state::AttemptEnd,
};

impl Execution {
    /// The event that follows; `None` while what it needs is not known.
    pub(super) fn resolve_step(&self, step: StepKey, now: Timestamp, blobs: &dyn Blobs) -> Option<Body> {
        let record = &self.steps[step];
        let event = match record.end.as_ref().expect("a step to resolve has an ended operation") {
            AttemptEnd::Completed => {
                let duration = record.started_at.map_or(Duration::ZERO, |started| now.since(started));
                StepEvent::Completed { progress: self.progress_with(step), duration }
            }
            AttemptEnd::Cancelled => StepEvent::Cancelled { progress: self.progress_with(step) },
            AttemptEnd::Unknown(failure) => StepEvent::OutcomeUnknown { failure: failure.clone() },
            AttemptEnd::Failed(failure) => {
                self.instead_of_failure(step, self.retry_or_fail(step, failure, now), now, blobs)?
            }
            AttemptEnd::Denied(failure) => {
                StepEvent::Failed { failure: failure.clone(), progress: self.progress_with(step) }
            }
            AttemptEnd::Removed => StepEvent::Skipped {
                reason: SkipReason::PlanUpdated,
                because: None,
                group: None,
                progress: self.progress_with(step),
            },
            AttemptEnd::SkipRequested => StepEvent::Skipped {
                reason: SkipReason::Requested,
                because: None,
                group: None,
                progress: self.progress_with(step),
            },
            AttemptEnd::Skipped => {
                let reason = match self.created.approval_mode {
                    ApprovalMode::Wait => SkipReason::ApprovalSkipped,
                    ApprovalMode::Fail | ApprovalMode::Skip | ApprovalMode::Auto => SkipReason::NonInteractive,
                };
                StepEvent::Skipped { reason, because: None, group: None, progress: self.progress_with(step) }
            }
        };
        Some(self.about(step, record.attempt, event))
    }

    fn retry_or_fail(&self, step: StepKey, failure: &Failure, now: Timestamp) -> StepEvent {
        let record = &self.steps[step];
        let (attempt, retry) = (record.attempt - record.attempts_before_call, record.spec.retry());
        let fail = |failure| StepEvent::Failed { failure, progress: self.progress_with(step) };
        let failure = &if retry.by_output { classify::by_output(failure) } else { failure.clone() };
        if self.stop.is_some() {
            return fail(failure.clone());
        }
        let fallback = self.fallback(step, failure, now);
        // Another attempt cannot start what could not be started.
        let goes_to_fallback_at_once = failure.class == ErrorClass::AgentUnavailable && fallback.is_some();
        if !failure.class.is_retryable()
            || !record.is_tried_again(failure)
            || attempt >= record.spec.max_attempts(failure.class)
            || goes_to_fallback_at_once
        {
            return fallback.unwrap_or_else(|| fail(failure.clone()));
        }
        let planned = match failure.class {
            ErrorClass::RateLimit if record.spec.queues_for_later() => Some(QUEUE_DELAY),
            ErrorClass::RateLimit => retry.delay_after_rate_limit(attempt - 1),
            _ => Some(retry.delay(attempt - 1)),
        };
        let Some(planned) = planned else { return fallback.unwrap_or_else(|| fail(failure.clone())) };
        // A step that is queued for later continues when there is room again.
        let queued =
            failure.retry_after.filter(|_| failure.class == ErrorClass::RateLimit && record.spec.queues_for_later());
        let delay = queued.unwrap_or_else(|| failure.delay_before_retry(planned));
        let not_before = now.saturating_add(delay);
        if self.step_deadline(step).is_some_and(|deadline| deadline <= not_before) {
            let said = failure.message.trim_end_matches('.');
            let message = format!("{said}; the step's time limit leaves no room for another attempt");
            return fail(Failure { message, ..failure.clone() });
        }
        StepEvent::RetryScheduled { failure: failure.clone(), retry_count: attempt, delay, not_before }
    }

    /// The event with which the next call of a step takes the place of the one that failed; `None` when there is none, or when the failure is one that
    /// another call does not mend: a denial stays one, and what failed for good did (S1-20).
    fn fallback(&self, step: StepKey, failure: &Failure, now: Timestamp) -> Option<StepEvent> {
        let record = &self.steps[step];
        let is_fixable = failure.class.is_retryable() || failure.class == ErrorClass::AgentUnavailable;
        let has_time = self.step_deadline(step).is_none_or(|deadline| deadline > now);
        let from = record.current_call()?.tool.clone();
        let to = record.next_call().filter(|_| is_fixable && has_time)?.tool.clone();
        Some(StepEvent::FallbackSwitched { failure: failure.clone(), from, to, reason: String::new() })
    }

    pub(super) fn skip(&self, step: StepKey, reason: SkipReason, because: Option<StepKey>) -> Body {
        let group = because.and_then(|because| self.skipping_group(step, reason, because));
        let because = because.map(|because| self.steps[because].id.clone());
        let record = &self.steps[step];
        let progress = self.progress_with(step);
        self.about(step, record.attempt, StepEvent::Skipped { reason, because, group, progress })
    }

    /// The group whose failure is the reason for which a step is marked to be skipped.
    pub(super) fn skipping_group(&self, step: StepKey, reason: SkipReason, because: StepKey) -> Option<String> {
        let group = self.group_of_failure(step, because).filter(|_| reason == SkipReason::StopOnError);
        group.map(str::to_owned)
    }
}
