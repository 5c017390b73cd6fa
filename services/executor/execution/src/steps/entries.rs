//! The failure of a step whose entries have failed, or have not started.

use std::sync::Arc;

use belay_reasons as reasons;

use crate::{ErrorClass, Execution, Failure, state::StepRecord};

/// The failure of a step of whose entries, as `entries` calls them, some have failed; the first of them is the cause.
pub(super) fn some_failed(first: &StepRecord, count: usize, all: usize, entries: &str) -> Failure {
    let of_first = first.failure.as_deref();
    let why = of_first.map(|failure| format!(": {}", failure.message)).unwrap_or_default();
    let message = format!("{count} of {all} {entries} failed; the first is `{}`{why}", first.id);
    let class = of_first.map_or(ErrorClass::Transient, |failure| failure.class);
    let cause = of_first.cloned().map(Arc::new);
    Failure { cause, ..Failure::new(class, reasons::ITEMS_FAILED, message) }
}

/// The failure of a step of whose entries or calls some have not started, because another step of its group has failed; `None` when there are none.
pub(super) fn not_started(execution: &Execution, record: &StepRecord) -> Option<Failure> {
    let entries = || record.items.current().iter().map(|&entry| &execution.steps[entry]);
    let mut kept = entries().filter_map(|entry| Some((entry.skipped_group.as_deref()?, entry.skipped?.1?)));
    let (group, failed) = kept.next()?;
    let (count, all, failed) = (1 + kept.count(), record.items.current().len(), &execution.steps[failed]);
    let what = match (record.spec.for_each(), record.spec.repeat()) {
        (Some(_), _) => "entries",
        (None, Some(_)) => "rounds",
        (None, None) => "calls",
    };
    let message = format!(
        "{count} of {all} {what} did not start: `{}` failed, and no step of the group `{group}` starts after that",
        failed.id
    );
    let cause = failed.failure.as_deref().cloned().map(Arc::new);
    Some(Failure { cause, ..Failure::new(ErrorClass::Transient, reasons::ITEMS_FAILED, message) })
}
