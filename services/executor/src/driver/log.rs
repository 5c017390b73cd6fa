//! The operator's log about an execution. The driver's span names the execution and its trace.

use belay_execution::{Event, EventKind, Failure};

use super::Driver;
use crate::wire;

impl Driver {
    /// Logs that an execution was accepted.
    pub(super) fn log_accepted(&self) {
        let created = self.execution.created();
        let (plan, steps) = (created.plan.id(), created.plan.steps().len());
        tracing::info!(plan, steps, principal = created.principal, "An execution was accepted");
    }

    /// Logs each step that failed, and the end. The events are stored already.
    pub(super) fn log(&self, events: &[Event]) {
        // A tool's failure reason may quote its arguments.
        let reason = |failure: &Failure| self.registry.vault.shown(failure.reason.clone());
        for event in events {
            match &event.kind {
                EventKind::StepFailed { step, attempt, failure, .. } => {
                    let (step, class) = (self.execution.plan().steps()[*step].id(), wire::class_name(failure.class));
                    tracing::info!(step, attempt, reason = reason(failure), class, "A step has failed");
                }
                EventKind::Finished(finished) => {
                    let failure = finished.failure.as_ref();
                    tracing::info!(
                        state = wire::state_name(&self.execution),
                        reason = failure.map(reason),
                        class = failure.map(|failure| wire::class_name(failure.class)),
                        completed = finished.totals.completed,
                        failed = finished.totals.failed,
                        skipped = finished.totals.skipped,
                        cancelled = finished.totals.cancelled,
                        "The execution has ended"
                    );
                }
                _ => {}
            }
        }
    }
}
