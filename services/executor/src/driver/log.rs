//! What the operator's log says of an execution. The driver's span names the execution and its trace.

use belay_execution::{Event, EventKind, Failure};

use super::Driver;
use crate::wire;

impl Driver {
    /// The line about an execution that was accepted.
    pub(super) fn log_accepted(&self) {
        let created = self.execution.created();
        let (plan, steps) = (created.plan.id(), created.plan.steps().len());
        tracing::info!(plan, steps, principal = created.principal, "An execution was accepted");
    }

    /// A line about each step that failed, and one about the end. They are stored already.
    pub(super) fn log(&self, events: &[Event]) {
        // A tool's word for what went wrong may quote what it was given.
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
