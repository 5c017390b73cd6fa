//! The operator's log about an execution. The driver's span names the execution and its trace.

use std::time::Duration;

use belay_execution::{Body, Event, ExecutionEvent, Failure, Finished, StepEvent, StepId};

use super::Driver;
use crate::wire;

impl Driver {
    /// Logs that an execution was accepted.
    pub(super) fn log_accepted(&self) {
        let created = self.execution.created();
        let (plan, steps) = (created.plan.id(), created.plan.steps().len());
        tracing::info!(plan, steps, principal = self.execution.principal(), "An execution was accepted");
    }

    /// Logs each attempt and each step that failed, and the end. The events are stored already.
    pub(super) fn log(&self, events: &[Event]) {
        for event in events {
            match &event.body {
                Body::Execution(event) => match event {
                    ExecutionEvent::Finished(finished) => self.log_finished(finished),
                    ExecutionEvent::Created(_)
                    | ExecutionEvent::Started
                    | ExecutionEvent::Paused { .. }
                    | ExecutionEvent::Resumed
                    | ExecutionEvent::CancelRequested { .. }
                    | ExecutionEvent::SignalReceived(_)
                    | ExecutionEvent::Recovered { .. }
                    | ExecutionEvent::Retried(_)
                    | ExecutionEvent::PlanUpdated(_)
                    | ExecutionEvent::CompensationStarted { .. }
                    | ExecutionEvent::DeadlineExceeded
                    | ExecutionEvent::AwaitingApproval => {}
                },
                Body::Step { step, attempt, event } => match event {
                    StepEvent::Failed { failure, .. } => self.log_failed(step, *attempt, failure),
                    StepEvent::RetryScheduled { failure, delay, .. } => {
                        self.log_retry(step, *attempt, failure, *delay);
                    }
                    StepEvent::FallbackSwitched { failure, from, to } => {
                        self.log_fallback(step, *attempt, failure, [from, to]);
                    }
                    StepEvent::Started
                    | StepEvent::ItemsListed { .. }
                    | StepEvent::ItemsCollected { .. }
                    | StepEvent::Completed { .. }
                    | StepEvent::Skipped { .. }
                    | StepEvent::Cancelled { .. }
                    | StepEvent::OutcomeUnknown { .. }
                    | StepEvent::Resolved { .. }
                    | StepEvent::SkipRequested { .. }
                    | StepEvent::OutputSet { .. }
                    | StepEvent::RetryAdvanced { .. }
                    | StepEvent::RetryCancelled { .. } => {}
                },
                Body::ToolCall { .. } | Body::Approval { .. } | Body::Wait { .. } => {}
            }
        }
    }

    fn log_failed(&self, step: &StepId, attempt: u32, failure: &Failure) {
        let (step, class) = (step.as_str(), wire::class_name(failure.class));
        tracing::info!(step, attempt, reason = self.reason(failure), class, "A step has failed");
    }

    fn log_retry(&self, step: &StepId, attempt: u32, failure: &Failure, delay: Duration) {
        let (step, class, delay_ms) = (step.as_str(), wire::class_name(failure.class), delay.as_millis());
        let reason = self.reason(failure);
        tracing::warn!(step, attempt, reason, class, delay_ms, "An attempt has failed, and another one is planned");
    }

    fn log_fallback(&self, step: &StepId, attempt: u32, failure: &Failure, [from, to]: [&String; 2]) {
        let (step, class, reason) = (step.as_str(), wire::class_name(failure.class), self.reason(failure));
        tracing::warn!(
            step,
            attempt,
            reason,
            class,
            from,
            to,
            "All attempts of a call have failed, and another takes its place"
        );
    }

    fn log_finished(&self, finished: &Finished) {
        let failure = finished.failure.as_ref();
        tracing::info!(
            state = wire::state_name(&self.execution),
            reason = failure.map(|failure| self.reason(failure)),
            class = failure.map(|failure| wire::class_name(failure.class)),
            completed = finished.totals.completed,
            failed = finished.totals.failed,
            skipped = finished.totals.skipped,
            cancelled = finished.totals.cancelled,
            "The execution has ended"
        );
    }

    /// A failure's reason; a tool's may quote its arguments.
    fn reason(&self, failure: &Failure) -> String {
        self.registry.vault.shown(failure.reason.clone())
    }
}
